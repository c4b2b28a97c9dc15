"""Settings that Kafka does not have. All begin with `millstream.`."""

from millstream.settings.config_key import BOOLEAN, HIGH, INT, LIST, LONG, LOW, STRING, ConfigKey
from millstream.settings.values import OneOf, Range

OWN = (
    ConfigKey(
        "millstream.metrics.listener",
        STRING,
        "",
        "host:port that serves /metrics (Prometheus) and /health, for example 127.0.0.1:9404. Empty: off.",
    ),
    ConfigKey(
        "millstream.metrics.allowed.hosts",
        LIST,
        "",
        "Names under which browsers reach millstream.metrics.listener, besides addresses, localhost and the "
        "machine's name; * for any.",
        importance=LOW,
    ),
    ConfigKey(
        "millstream.client.metrics.max.series",
        INT,
        "10000",
        "How many series of metrics that clients push (KIP-714) /metrics shows. 0, or no "
        "millstream.metrics.listener: clients are not asked for any.",
        Range(0),
        LOW,
    ),
    ConfigKey(
        "millstream.audit.log",
        STRING,
        "",
        "Where logins, refusals and changes are noted, one JSON object each: file:PATH or topic:NAME. Empty: "
        "nowhere.",
        importance=LOW,
    ),
    ConfigKey(
        "millstream.log.format",
        STRING,
        "text",
        "How the broker's own messages are written: lines for people, or one JSON object a line.",
        OneOf(("text", "json")),
        LOW,
    ),
    ConfigKey(
        "millstream.log.level",
        STRING,
        "info",
        "The least important messages that are written. For one part of the broker, and while it runs: "
        "`millstream configs --alter --entity-type broker-loggers`.",
        OneOf(("debug", "info", "warning", "error")),
        LOW,
    ),
    ConfigKey(
        "millstream.loop.slow.callback.ms",
        INT,
        "0",
        "For debugging: name every callback that held up the loop for longer. 0: off.",
        Range(0),
        LOW,
    ),
    ConfigKey(
        "millstream.broker.memory.budget.bytes",
        LONG,
        "268435456",
        "Memory for requests that are still arriving and answers that are still leaving, over all "
        "connections. At the limit the broker reads no further until some of it is free.",
        Range(1048576),
        HIGH,
    ),
    ConfigKey(
        "millstream.max.parked.fetches",
        INT,
        "100000",
        "How many fetches may wait for data at once; beyond that a fetch is answered at once with what "
        "there is.",
        Range(1),
    ),
    ConfigKey(
        "millstream.max.partitions",
        INT,
        "200000",
        "How many partitions the cluster may have; creating more is refused.",
        Range(1),
    ),
    ConfigKey(
        "millstream.max.open.files",
        INT,
        "0",
        "How many segment files are held open at once. 0: most of what the operating system allows the "
        "process.",
        Range(0),
    ),
    ConfigKey(
        "millstream.tls.reload.ms",
        INT,
        "10000",
        "How often the files of keys and certificates are looked at; changed ones are read while the broker "
        "runs. 0: never.",
        Range(0),
        LOW,
    ),
    ConfigKey(
        "millstream.login.failures.per.address",
        INT,
        "20",
        "How many logins from one address may fail in a minute. Beyond that its new connections are closed "
        "for "
        "a minute. 0: no limit.",
        Range(0),
    ),
    ConfigKey(
        "millstream.revoke.closes",
        BOOLEAN,
        "true",
        "Whether removing a user's credentials closes his connections at once. Otherwise they last until "
        "they "
        "have to log in again (connections.max.reauth.ms), as in Kafka.",
    ),
)
