"""Broker settings about the process itself: who it is, where it listens, what a client may ask of it."""

from millstream.settings.config_key import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MAX_INT,
    MEDIUM,
    STRING,
    ConfigKey,
)
from millstream.settings.values import HostLimits, Items, OneOf, Range

_ONE_LOOP = "One process serves everything in one loop; more cores are used by running more brokers."
_NO_PURGATORY = "Waiting requests are dropped from memory as soon as they are answered."
_PROMETHEUS = "Metrics are served in Prometheus format, see millstream.metrics.listener."
_NO_JAVA = "Java classes cannot be loaded here."
_NO_KRAFT = "There is no KRaft quorum; this broker keeps its metadata in its own store."

IDENTITY = (
    ConfigKey(
        "node.id",
        INT,
        "1",
        "The number of this broker, unique in its cluster. Written into the data folder at the first start "
        "and not to be changed afterwards.",
        Range(0),
        HIGH,
    ),
    ConfigKey(
        "broker.id",
        INT,
        "1",
        "The older name of node.id. Either may be given; if both are, they must agree. -1 is as good as not "
        "set: with zookeeper.connect a number is generated.",
        Range(-1),
        HIGH,
    ),
    ConfigKey(
        "broker.rack",
        STRING,
        None,
        "The rack of this broker. Replicas are spread over racks, and a consumer with a client.rack may "
        "read from a replica in its own.",
    ),
    ConfigKey(
        "controlled.shutdown.enable",
        BOOLEAN,
        "true",
        "Whether a stopping broker first hands its leaderships to others.",
    ),
    ConfigKey(
        "process.roles",
        LIST,
        None,
        "Kafka's division of a node into broker and controller. A list with broker in it is accepted.",
        Items(("broker", "controller"), may_be_empty=False),
        HIGH,
        no_effect=_NO_KRAFT,
    ),
    ConfigKey(
        "controller.listener.names",
        LIST,
        None,
        "Listeners of Kafka's controller. Listeners with these names are not opened.",
        Items(may_be_empty=False),
        HIGH,
    ),
    ConfigKey(
        "controller.quorum.voters",
        LIST,
        "",
        "Members of Kafka's controller quorum, as id@host:port.",
        Items(),
        HIGH,
        no_effect=_NO_KRAFT,
    ),
    ConfigKey(
        "controller.quorum.bootstrap.servers",
        LIST,
        "",
        "Addresses through which Kafka's controller quorum is found.",
        Items(),
        HIGH,
        no_effect=_NO_KRAFT,
    ),
)

LISTENERS = (
    ConfigKey(
        "listeners",
        LIST,
        "PLAINTEXT://127.0.0.1:9092",
        "Where the broker listens, comma separated, each as NAME://host:port. An empty host or 0.0.0.0 "
        "means every interface, port 0 a free port. The name is a security protocol or one that "
        "listener.security.protocol.map explains. Kafka's default listens on every interface; this one only "
        "on the loopback.",
        Items(may_be_empty=False),
        HIGH,
    ),
    ConfigKey(
        "advertised.listeners",
        LIST,
        None,
        "The addresses that clients are told to connect to, when they differ from listeners: behind a "
        "proxy, in a container, or when listeners says every interface.",
        Items(may_be_empty=False),
        HIGH,
    ),
    ConfigKey(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Which protocol each listener name speaks, as NAME:PROTOCOL pairs. Needed only for names of your "
        "own.",
        importance=LOW,
    ),
    ConfigKey(
        "inter.broker.listener.name",
        STRING,
        None,
        "The listener that other brokers use. Without it, the one whose name is "
        "security.inter.broker.protocol.",
    ),
    ConfigKey(
        "security.inter.broker.protocol",
        STRING,
        "PLAINTEXT",
        "The protocol between brokers; set this or inter.broker.listener.name, not both.",
        OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    ),
    ConfigKey(
        "early.start.listeners",
        LIST,
        None,
        "Listeners that open before the authorizer is ready.",
        Items(),
        HIGH,
        no_effect="All listeners open together, once the broker can serve.",
    ),
)

NETWORK = (
    ConfigKey(
        "max.connections",
        INT,
        MAX_INT,
        "How many connections the broker holds at once, all listeners together; 0 cannot be set while the "
        "broker runs. One listener may have a limit of its own: listener.name.<name>.max.connections.",
        Range(0),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "max.connections.per.ip",
        INT,
        MAX_INT,
        "How many connections one address may hold at once. 0 only together with "
        "max.connections.per.ip.overrides.",
        Range(0),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "max.connections.per.ip.overrides",
        STRING,
        "",
        "Other limits for some addresses, as address:number pairs.",
        HostLimits(),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "max.connection.creation.rate",
        INT,
        MAX_INT,
        "How many new connections a second are accepted; the rest wait. Can be set for one listener.",
        Range(0),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "connections.max.idle.ms",
        LONG,
        "600000",
        "A connection that has sent nothing for this long is closed. Negative: never.",
    ),
    ConfigKey(
        "connection.failed.authentication.delay.ms",
        INT,
        "100",
        "How long a connection that failed to authenticate stays open before it is closed, against guessing.",
        Range(0),
        LOW,
    ),
    ConfigKey(
        "connections.max.reauth.ms",
        LONG,
        "0",
        "A SASL client must authenticate again within this time or is disconnected. 0: never.",
    ),
    ConfigKey(
        "socket.listen.backlog.size",
        INT,
        "50",
        "How many connections may wait to be accepted; the operating system has a limit of its own. If "
        "it is not set, 1024.",
        Range(1),
    ),
    ConfigKey(
        "socket.receive.buffer.bytes",
        INT,
        "102400",
        "Receive buffer of each connection in the operating system (SO_RCVBUF). -1 leaves it to the system.",
        importance=HIGH,
    ),
    ConfigKey(
        "socket.send.buffer.bytes",
        INT,
        "102400",
        "Send buffer of each connection in the operating system (SO_SNDBUF). -1 leaves it to the system.",
        importance=HIGH,
    ),
    ConfigKey(
        "socket.request.max.bytes",
        INT,
        "104857600",
        "The largest request. A connection that announces a larger one is closed.",
        Range(1),
        HIGH,
    ),
    ConfigKey(
        "socket.connection.setup.timeout.ms",
        LONG,
        "10000",
        "How long a connection to another broker may take; doubled after each failure.",
    ),
    ConfigKey(
        "socket.connection.setup.timeout.max.ms",
        LONG,
        "30000",
        "The longest that socket.connection.setup.timeout.ms may grow to.",
    ),
    ConfigKey(
        "queued.max.request.bytes",
        LONG,
        "-1",
        "Bytes of requests that may wait to be handled before no more is read from the network. -1: "
        "millstream.broker.memory.budget.bytes alone decides.",
    ),
    ConfigKey(
        "queued.max.requests",
        INT,
        "500",
        "Requests that may wait before the network is no longer read.",
        Range(1),
        HIGH,
        no_effect="A request is handled as soon as it is complete; there is no queue.",
    ),
    ConfigKey(
        "num.network.threads",
        INT,
        "3",
        "Threads that read and write sockets.",
        Range(1),
        HIGH,
        CLUSTER_WIDE,
        no_effect=_ONE_LOOP,
    ),
    ConfigKey(
        "num.io.threads",
        INT,
        "8",
        "Threads that handle requests.",
        Range(1),
        HIGH,
        CLUSTER_WIDE,
        no_effect=_ONE_LOOP,
    ),
    ConfigKey(
        "background.threads",
        INT,
        "10",
        "Threads for fsync, deleting files, cold reads and other work that must not hold up the loop.",
        Range(1),
        HIGH,
        CLUSTER_WIDE,
    ),
)

REQUESTS = (
    ConfigKey(
        "auto.create.topics.enable",
        BOOLEAN,
        "true",
        "Create a topic when a client asks for one that does not exist, with num.partitions and "
        "default.replication.factor.",
        importance=HIGH,
    ),
    ConfigKey(
        "delete.topic.enable", BOOLEAN, "true", "Whether topics can be deleted at all.", importance=HIGH
    ),
    ConfigKey(
        "num.partitions",
        INT,
        "1",
        "Partitions of a topic that is created without saying how many.",
        Range(1),
    ),
    ConfigKey(
        "default.replication.factor",
        INT,
        "1",
        "Replicas of a topic that is created without saying how many.",
    ),
    ConfigKey(
        "fetch.max.bytes",
        INT,
        "57671680",
        "The largest fetch response, whatever the client asks for. A first batch larger than this is "
        "still sent.",
        Range(1024),
    ),
    ConfigKey(
        "max.incremental.fetch.session.cache.slots",
        INT,
        "1000",
        "How many incremental fetch sessions are remembered. Clients beyond that send their whole list each "
        "time.",
        Range(0),
    ),
    ConfigKey(
        "max.request.partition.size.limit",
        INT,
        "2000",
        "How many partitions one DescribeTopicPartitions response holds; the client asks again for the rest.",
        Range(1),
    ),
    ConfigKey(
        "request.timeout.ms",
        INT,
        "30000",
        "How long this broker waits for an answer of another one.",
        importance=HIGH,
    ),
    ConfigKey(
        "producer.id.expiration.ms",
        INT,
        "86400000",
        "A partition forgets an idempotent producer that has sent it nothing for this long. A later retry of "
        "that producer is then no longer recognised.",
        Range(1),
        LOW,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "producer.id.expiration.check.interval.ms",
        INT,
        "600000",
        "How often to look for such producers.",
        Range(1),
        LOW,
        hidden=True,
    ),
    ConfigKey(
        "unstable.api.versions.enable",
        BOOLEAN,
        "false",
        "List API versions that may still change: InitProducerId 6.",
        importance=HIGH,
        hidden=True,
    ),
    ConfigKey(
        "create.topic.policy.class.name",
        CLASS,
        None,
        "A Java class that may refuse new topics.",
        importance=LOW,
        no_effect=_NO_JAVA,
    ),
    ConfigKey(
        "alter.config.policy.class.name",
        CLASS,
        None,
        "A Java class that may refuse changes of settings.",
        importance=LOW,
        no_effect=_NO_JAVA,
    ),
    ConfigKey(
        "producer.purgatory.purge.interval.requests",
        INT,
        "1000",
        "How often Kafka clears answered produce requests out of its waiting room.",
        no_effect=_NO_PURGATORY,
    ),
    ConfigKey(
        "fetch.purgatory.purge.interval.requests",
        INT,
        "1000",
        "How often Kafka clears answered fetch requests out of its waiting room.",
        no_effect=_NO_PURGATORY,
    ),
    ConfigKey(
        "delete.records.purgatory.purge.interval.requests",
        INT,
        "1",
        "How often Kafka clears answered DeleteRecords requests out of its waiting room.",
        no_effect=_NO_PURGATORY,
    ),
)

METRICS = (
    ConfigKey(
        "metric.reporters",
        LIST,
        "org.apache.kafka.common.metrics.JmxReporter",
        "Java classes that receive Kafka's metrics.",
        Items(),
        LOW,
        CLUSTER_WIDE,
        no_effect=_PROMETHEUS,
    ),
    ConfigKey(
        "kafka.metrics.reporters",
        LIST,
        "",
        "Java classes that receive Kafka's older metrics.",
        Items(),
        LOW,
        no_effect=_PROMETHEUS,
    ),
    ConfigKey(
        "kafka.metrics.polling.interval.secs",
        INT,
        "10",
        "How often those classes are called.",
        Range(1),
        LOW,
        no_effect=_PROMETHEUS,
    ),
    ConfigKey(
        "metrics.num.samples",
        INT,
        "2",
        "How many windows a rate is averaged over.",
        Range(1),
        LOW,
        no_effect=_PROMETHEUS,
    ),
    ConfigKey(
        "metrics.sample.window.ms",
        LONG,
        "30000",
        "How long such a window is.",
        Range(1),
        LOW,
        no_effect=_PROMETHEUS,
    ),
    ConfigKey(
        "metrics.recording.level",
        STRING,
        "INFO",
        "Which metrics Kafka records.",
        importance=LOW,
        no_effect=_PROMETHEUS,
    ),
    ConfigKey(
        "telemetry.max.bytes",
        INT,
        "1048576",
        "The largest telemetry a client may push.",
        Range(1),
        LOW,
    ),
    ConfigKey(
        "config.providers",
        LIST,
        "",
        "Java classes that fill in ${...} placeholders.",
        Items(),
        LOW,
        CLUSTER_WIDE,
        no_effect=_NO_JAVA,
    ),
)
