"""Broker settings about ZooKeeper: with zookeeper.connect a broker is one of several. Kafka had them up to
3.9."""

from millstream.settings.config_key import BOOLEAN, HIGH, INT, MEDIUM, PASSWORD, STRING, ConfigKey
from millstream.settings.values import Range

ZOOKEEPER = (
    ConfigKey(
        "zookeeper.connect",
        STRING,
        None,
        "host:port,host:port/path of the ZooKeeper that the brokers of a cluster share. Not set: this broker "
        "is alone, and its metadata lies in its own data folder.",
        importance=HIGH,
    ),
    ConfigKey(
        "zookeeper.session.timeout.ms",
        INT,
        "18000",
        "A broker that ZooKeeper has not heard of for this long is dead to the others.",
        Range(1000),
        HIGH,
    ),
    ConfigKey(
        "zookeeper.connection.timeout.ms",
        INT,
        None,
        "How long a starting broker waits for ZooKeeper. Not set: zookeeper.session.timeout.ms.",
        Range(1),
        HIGH,
    ),
    ConfigKey(
        "zookeeper.set.acl",
        BOOLEAN,
        "false",
        "Whether nodes in ZooKeeper are readable and writable only for the user of "
        "millstream.zookeeper.digest.",
        importance=HIGH,
    ),
    ConfigKey(
        "broker.id.generation.enable",
        BOOLEAN,
        "true",
        "Whether a broker with zookeeper.connect and without an id is given one, above "
        "reserved.broker.max.id.",
        importance=MEDIUM,
    ),
    ConfigKey(
        "reserved.broker.max.id",
        INT,
        "1000",
        "The highest id that is given by hand.",
        Range(0),
        MEDIUM,
    ),
    ConfigKey(
        "millstream.zookeeper.digest",
        PASSWORD,
        None,
        "user:password for ZooKeeper (its scheme digest).",
    ),
)
