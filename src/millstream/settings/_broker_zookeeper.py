"""Broker settings about ZooKeeper: with zookeeper.connect a broker is one of several. Kafka had them up to
3.9."""

from millstream.settings.config_key import (
    BOOLEAN,
    HIGH,
    INT,
    LIST,
    LOW,
    MEDIUM,
    PASSWORD,
    STRING,
    ConfigKey,
)
from millstream.settings.values import Items, Range

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
        "zookeeper.ssl.client.enable",
        BOOLEAN,
        "false",
        "Whether the connection to ZooKeeper is made by TLS; zookeeper.connect then names secureClientPorts.",
        importance=MEDIUM,
    ),
    ConfigKey(
        "zookeeper.ssl.keystore.location",
        STRING,
        None,
        "A PEM or PKCS12 file with the key and certificate that this broker shows to ZooKeeper (which "
        "asks for one unless its ssl.clientAuth says otherwise).",
        importance=MEDIUM,
    ),
    ConfigKey(
        "zookeeper.ssl.keystore.password",
        PASSWORD,
        None,
        "Of the key in zookeeper.ssl.keystore.location.",
        importance=MEDIUM,
    ),
    ConfigKey(
        "zookeeper.ssl.keystore.type",
        STRING,
        None,
        "PEM or PKCS12; what the file is, its first bytes say.",
        importance=MEDIUM,
    ),
    ConfigKey(
        "zookeeper.ssl.truststore.location",
        STRING,
        None,
        "A PEM or PKCS12 file with the certificates that ZooKeeper's are checked against. Not set: those of "
        "the system.",
        importance=MEDIUM,
    ),
    ConfigKey(
        "zookeeper.ssl.truststore.password",
        PASSWORD,
        None,
        "Of zookeeper.ssl.truststore.location.",
        importance=MEDIUM,
    ),
    ConfigKey(
        "zookeeper.ssl.truststore.type",
        STRING,
        None,
        "PEM or PKCS12; what the file is, its first bytes say.",
        importance=MEDIUM,
    ),
    ConfigKey(
        "zookeeper.ssl.enabled.protocols",
        LIST,
        "TLSv1.2,TLSv1.3",
        "The versions of TLS that may be used with ZooKeeper.",
        Items(),
        importance=LOW,
    ),
    ConfigKey(
        "zookeeper.ssl.cipher.suites",
        LIST,
        "",
        "The cipher suites that may be used with ZooKeeper; empty leaves it to the library.",
        Items(),
        importance=LOW,
    ),
    ConfigKey(
        "zookeeper.ssl.endpoint.identification.algorithm",
        STRING,
        "HTTPS",
        "Whether the certificate of ZooKeeper has to be one for the host in zookeeper.connect; empty: any "
        "certificate that is trusted will do.",
        importance=LOW,
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
