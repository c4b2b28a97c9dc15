"""Broker settings about other brokers: replication, the controller, quotas on what flows between them."""

from millstream.settings.config_key import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LONG,
    LOW,
    MAX_LONG,
    STRING,
    ConfigKey,
)
from millstream.settings.values import Range

_NO_JAVA = "Java classes cannot be loaded here."
_NO_HEARTBEAT = "A broker's life is that of its session with the metadata store."

REPLICATION = (
    ConfigKey(
        "replica.lag.time.max.ms",
        LONG,
        "30000",
        "A follower that has not caught up with its leader for this long leaves the in-sync replicas.",
        importance=HIGH,
    ),
    ConfigKey(
        "replica.fetch.max.bytes",
        INT,
        "1048576",
        "How much a follower asks for of one partition. A first batch larger than this is still sent.",
        Range(0),
    ),
    ConfigKey(
        "replica.fetch.response.max.bytes",
        INT,
        "10485760",
        "How much a follower asks for in all at a time.",
        Range(0),
    ),
    ConfigKey(
        "replica.fetch.min.bytes",
        INT,
        "1",
        "A follower's fetch waits until there is this much, or replica.fetch.wait.max.ms is over.",
        importance=HIGH,
    ),
    ConfigKey(
        "replica.fetch.wait.max.ms",
        INT,
        "500",
        "How long a follower's fetch waits for data. Less than replica.lag.time.max.ms and "
        "replica.socket.timeout.ms.",
        importance=HIGH,
    ),
    ConfigKey(
        "replica.fetch.backoff.ms",
        INT,
        "1000",
        "How long a follower rests after a failed fetch.",
        Range(0),
    ),
    ConfigKey(
        "replica.high.watermark.checkpoint.interval.ms",
        LONG,
        "5000",
        "How often the high watermark of each log is written down.",
        importance=HIGH,
    ),
    ConfigKey(
        "replica.socket.receive.buffer.bytes",
        INT,
        "65536",
        "Receive buffer in the operating system of a follower's connection to its leader.",
        importance=HIGH,
    ),
    ConfigKey(
        "replica.socket.timeout.ms",
        INT,
        "30000",
        "How long a follower waits for a response.",
        importance=HIGH,
    ),
    ConfigKey(
        "replica.selector.class",
        STRING,
        None,
        "How the replica that a consumer reads from is chosen. Kafka's RackAwareReplicaSelector, by name, "
        "selects the one in the consumer's rack; without it consumers read from the leader.",
    ),
    ConfigKey(
        "num.replica.fetchers",
        INT,
        "1",
        "Fetching connections to each other broker.",
        Range(1),
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "num.replica.alter.log.dirs.threads",
        INT,
        None,
        "Threads that move replicas between data folders.",
        importance=HIGH,
        no_effect="One process with one loop does this work; there is no pool to size.",
    ),
    ConfigKey(
        "auto.leader.rebalance.enable",
        BOOLEAN,
        "true",
        "Whether leadership goes back to the preferred replica of a partition by itself.",
        importance=HIGH,
    ),
    ConfigKey(
        "leader.imbalance.check.interval.seconds",
        LONG,
        "300",
        "How often to look whether it should.",
        Range(1),
        HIGH,
    ),
    ConfigKey(
        "controller.socket.timeout.ms",
        INT,
        "30000",
        "How long a broker waits for an answer of the controller.",
    ),
    ConfigKey(
        "broker.heartbeat.interval.ms",
        INT,
        "2000",
        "How often a broker reports to Kafka's controller.",
        no_effect=_NO_HEARTBEAT,
    ),
    ConfigKey(
        "broker.session.timeout.ms",
        INT,
        "9000",
        "How long Kafka's controller waits for such a report before it fences the broker.",
        no_effect=_NO_HEARTBEAT,
    ),
    ConfigKey(
        "initial.broker.registration.timeout.ms",
        INT,
        "60000",
        "How long a starting broker tries to join the cluster before it gives up.",
    ),
)

QUOTAS = (
    ConfigKey(
        "quota.window.num",
        INT,
        "11",
        "Windows over which a client's rate is measured.",
        Range(1),
        LOW,
    ),
    ConfigKey("quota.window.size.seconds", INT, "1", "Length of each of these windows.", Range(1), LOW),
    ConfigKey(
        "replication.quota.window.num",
        INT,
        "11",
        "Windows over which the rate of throttled replication is measured.",
        Range(1),
        LOW,
    ),
    ConfigKey(
        "replication.quota.window.size.seconds", INT, "1", "Length of each of these windows.", Range(1), LOW
    ),
    ConfigKey(
        "alter.log.dirs.replication.quota.window.num",
        INT,
        "11",
        "Windows over which the rate of moving replicas between folders is measured.",
        Range(1),
        LOW,
    ),
    ConfigKey(
        "alter.log.dirs.replication.quota.window.size.seconds",
        INT,
        "1",
        "Length of each of these windows.",
        Range(1),
        LOW,
    ),
    ConfigKey(
        "controller.quota.window.num",
        INT,
        "11",
        "Windows over which the rate of topic creations and deletions is measured.",
        Range(1),
        LOW,
    ),
    ConfigKey(
        "controller.quota.window.size.seconds", INT, "1", "Length of each of these windows.", Range(1), LOW
    ),
    ConfigKey(
        "client.quota.callback.class",
        CLASS,
        None,
        "A Java class that decides which quota a client has.",
        importance=LOW,
        no_effect=_NO_JAVA,
    ),
    # These three exist only as dynamic settings; nobody puts them into a file.
    ConfigKey(
        "leader.replication.throttled.rate",
        LONG,
        MAX_LONG,
        "Bytes a second that this broker sends to the followers named in "
        "leader.replication.throttled.replicas.",
        Range(0),
        mode=CLUSTER_WIDE,
        hidden=True,
    ),
    ConfigKey(
        "follower.replication.throttled.rate",
        LONG,
        MAX_LONG,
        "Bytes a second that this broker fetches for the replicas named in "
        "follower.replication.throttled.replicas.",
        Range(0),
        mode=CLUSTER_WIDE,
        hidden=True,
    ),
    ConfigKey(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG,
        MAX_LONG,
        "Bytes a second at which replicas move between this broker's data folders.",
        Range(0),
        mode=CLUSTER_WIDE,
        hidden=True,
    ),
)
