"""The server's settings: ksqlDB's names and defaults in one table. Our own are marked in their text."""

from __future__ import annotations

from typing import Any

from millstream.client import ClientConfig
from millstream.http.service_config import (
    AUTHENTICATION_KEYS,
    BOOLEAN,
    BROWSER_KEYS,
    INT,
    LIMIT_KEYS,
    LIST,
    LOGGING_KEYS,
    PASSWORD,
    RESPONSE_KEYS,
    STRING,
    TLS_KEYS,
    ServiceConfig,
    ServiceConfigKey,
)

QUERY_LIMIT = "ksql.query.persistent.active.limit"

KEYS: dict[str, ServiceConfigKey] = {
    "listeners": ServiceConfigKey(LIST, "http://0.0.0.0:8088", "Addresses to listen on: http://host:port."),
    "ksql.advertised.listener": ServiceConfigKey(
        STRING, "", "The address that other servers use for this one."
    ),
    "bootstrap.servers": ServiceConfigKey(LIST, "localhost:9092", "The Kafka cluster."),
    "ksql.service.id": ServiceConfigKey(
        STRING, "default_", "Servers with the same id share statements; part of the names of internal topics."
    ),
    "ksql.schema.registry.url": ServiceConfigKey(
        LIST, "", "The Schema Registry, for AVRO, PROTOBUF and JSON_SR."
    ),
    "ksql.schema.registry.basic.auth.user.info": ServiceConfigKey(
        PASSWORD, None, "User and password for it: `user:password`."
    ),
    "ksql.schema.registry.ssl.truststore.location": ServiceConfigKey(
        STRING, None, "Certificates to trust when connecting to it (PEM)."
    ),
    "ksql.connect.url": ServiceConfigKey(
        STRING, "http://localhost:8083", "The Connect worker of CREATE CONNECTOR and its kin."
    ),
    "ksql.connect.basic.auth.credentials.source": ServiceConfigKey(
        STRING, "NONE", "FILE, if that worker wants a user and a password."
    ),
    "ksql.connect.basic.auth.credentials.file": ServiceConfigKey(
        STRING, "", "A file with username= and password=."
    ),
    "ksql.connect.ssl.truststore.location": ServiceConfigKey(
        STRING, None, "Certificates to trust when connecting to that worker (PEM)."
    ),
    "ksql.queries.file": ServiceConfigKey(
        STRING, "", "Headless: run the statements of this file, and take none over REST."
    ),
    "ksql.streams.state.dir": ServiceConfigKey(
        STRING, "millstream-sql-state", "The folder of stores and views."
    ),
    "ksql.streams.auto.offset.reset": ServiceConfigKey(
        STRING, "latest", "Where new queries begin: earliest or latest."
    ),
    "ksql.streams.commit.interval.ms": ServiceConfigKey(
        INT, "50", "How often a task commits what it has done."
    ),
    "ksql.streams.num.stream.threads": ServiceConfigKey(INT, "0", "Lanes of the host; 0 for one per core."),
    "ksql.internal.topic.replicas": ServiceConfigKey(INT, "1", "Copies of internal topics."),
    "ksql.output.topic.name.prefix": ServiceConfigKey(STRING, "", "What names of sinks' topics begin with."),
    "ksql.persistence.default.format.key": ServiceConfigKey(
        STRING, "KAFKA", "The key format unless one is given."
    ),
    "ksql.persistence.default.format.value": ServiceConfigKey(
        STRING, "", "The value format unless one is given."
    ),
    "ksql.persistence.wrap.single.values": ServiceConfigKey(
        STRING, "", "Whether a single value column is a field of an object (true) or stands for itself."
    ),
    "ksql.fail.on.deserialization.error": ServiceConfigKey(
        BOOLEAN, "false", "Whether a record that cannot be read ends its query."
    ),
    "ksql.timestamp.throw.on.invalid": ServiceConfigKey(
        BOOLEAN, "false", "Whether a record whose TIMESTAMP column has no valid time ends its query."
    ),
    "ksql.insert.into.values.enabled": ServiceConfigKey(BOOLEAN, "true", "Whether INSERT VALUES is allowed."),
    "ksql.pull.queries.enable": ServiceConfigKey(BOOLEAN, "true", "Whether pull queries are allowed."),
    "ksql.query.pull.table.scan.enabled": ServiceConfigKey(
        BOOLEAN, "true", "Whether a pull query may read a whole table."
    ),
    "ksql.query.pull.stream.enabled": ServiceConfigKey(BOOLEAN, "true", "Whether pull queries read streams."),
    "ksql.query.pull.limit.clause.enabled": ServiceConfigKey(
        BOOLEAN, "true", "Whether pull queries have LIMIT."
    ),
    "ksql.query.pull.range.scan.enabled": ServiceConfigKey(
        BOOLEAN, "true", "Whether they look up ranges of keys."
    ),
    "ksql.query.pull.max.rows": ServiceConfigKey(
        INT,
        "1000000",
        "Ours: how many rows a pull query with ORDER BY, GROUP BY or joins may hold.",
    ),
    "ksql.query.pull.max.staleness.ms": ServiceConfigKey(
        INT,
        "10",
        "Ours: for how long pull queries of a table share one question to the cluster of how far its topic "
        "goes. 0: each asks. Rows that were inserted by this server are always seen.",
    ),
    QUERY_LIMIT: ServiceConfigKey(
        INT, "2147483647", "How many persistent queries the service may have: one more is refused."
    ),
    "ksql.properties.overrides.denylist": ServiceConfigKey(
        LIST, "", "Settings that clients may not change, with or without ksql.streams. in front."
    ),
    "ksql.max.push.queries": ServiceConfigKey(INT, "100", "How many push queries may run at a time."),
    "ksql.query.push.max.bytes": ServiceConfigKey(
        INT, "67108864", "Ours: what the stores and unread rows of one push query may take."
    ),
    "ksql.batch.external": ServiceConfigKey(
        BOOLEAN, "false", "Ours: whether BATCH statements may use files, databases, programs and Java."
    ),
    "ksql.batch.max.rows": ServiceConfigKey(INT, "1000000", "Ours: how many rows a BATCH query may return."),
    "ksql.batch.idle.ms": ServiceConfigKey(
        INT, "300000", "Ours: how long Spark waits for another BATCH statement before it ends."
    ),
    "ksql.logging.processing.topic.auto.create": ServiceConfigKey(
        BOOLEAN, "true", "Whether the topic of the processing log is made."
    ),
    "ksql.logging.processing.topic.name": ServiceConfigKey(
        STRING, "", "The topic of the processing log; <service.id>ksql_processing_log unless given."
    ),
    "ksql.logging.processing.topic.partitions": ServiceConfigKey(
        INT, "1", "Partitions of that topic, where the stream over it makes it."
    ),
    "ksql.logging.processing.topic.replication.factor": ServiceConfigKey(INT, "1", "Its copies, likewise."),
    "ksql.logging.processing.rows.include": ServiceConfigKey(
        BOOLEAN, "false", "Whether the processing log has the rows that failed."
    ),
    "ksql.logging.processing.stream.auto.create": ServiceConfigKey(
        BOOLEAN, "false", "Whether a stream over the processing log is made at the start."
    ),
    "ksql.logging.processing.stream.name": ServiceConfigKey(STRING, "KSQL_PROCESSING_LOG", "Its name."),
    "ksql.udf.module": ServiceConfigKey(
        LIST, "", "Ours: Python modules with functions and models, by name or by path, imported at the start."
    ),
    "ksql.udf.timeout.ms": ServiceConfigKey(
        INT,
        "10000",
        "Ours: how long a call of such a function may take in a push or pull query, or in INSERT VALUES. In "
        "persistent queries it is millstream.host.unit.timeout.ms.",
    ),
    "millstream.driver.dir": ServiceConfigKey(
        STRING,
        "",
        "Ours: the folder of the driver that runs Spark; services may share it. Without it: a folder of its "
        "own below ksql.streams.state.dir.",
    ),
    "ksql.host.local": ServiceConfigKey(
        BOOLEAN, "false", "Ours: run tasks as threads of this process instead of on Spark."
    ),
    **LIMIT_KEYS,
    **RESPONSE_KEYS,
    **AUTHENTICATION_KEYS,
    **TLS_KEYS,
    **BROWSER_KEYS,
    **LOGGING_KEYS,
}

EDITABLE = ("ksql.streams.", "auto.offset.reset", "ksql.query.", "ksql.output.", "ksql.persistence.")


class SqlConfig(ServiceConfig):
    """`ksql.streams.*`, `ksql.functions.*`, `spark.*` and the security settings of Kafka clients are taken by
    prefix."""

    keys = KEYS
    prefixes = ("ksql.", "security.", "sasl.", "ssl.", "client.", "millstream.", "confluent.", "spark.")
    default_port = 8088

    def __init__(self, given: dict[str, str]) -> None:
        super().__init__(given)
        self.bootstrap = ",".join(self.value("bootstrap.servers"))
        self.service_id: str = self.value("ksql.service.id")

    def client(self) -> ClientConfig:
        properties = {"default.api.timeout.ms": "15000", "request.timeout.ms": "10000", **self.security()}
        return ClientConfig.of(self.bootstrap, properties, "sql-server")

    def security(self) -> dict[str, str]:
        """How to reach the cluster, under the names of Kafka clients."""
        own = {
            name: text
            for name, text in self.given.items()
            if name.startswith(("security.", "sasl.")) or (name.startswith("ssl.") and name not in KEYS)
        }
        return own | self.with_prefix("client.")

    def spark_settings(self) -> dict[str, str]:
        """Of the Spark of BATCH statements: `ksql.batch.spark.*`, without `ksql.batch.`."""
        return {f"spark.{name}": text for name, text in self.with_prefix("ksql.batch.spark.").items()}

    def host_settings(self) -> dict[str, str]:
        """Of the Spark that persistent queries run on: `spark.*`, and `millstream.host.*` by their names
        there."""
        own = {
            f"spark.{name}": text for name, text in self.given.items() if name.startswith("millstream.host.")
        }
        return own | {name: text for name, text in self.given.items() if name.startswith("spark.")}

    @property
    def processing_log(self) -> str:
        return self.value("ksql.logging.processing.topic.name") or f"{self.service_id}ksql_processing_log"

    def settings(self) -> dict[str, Any]:
        """What statements are checked against: the settings that were given, by ksqlDB's names."""
        found: dict[str, Any] = {
            name: text for name, text in self.given.items() if name.startswith("ksql.") and text != ""
        }
        for name, key in KEYS.items():
            if name.startswith("ksql.") and name not in found and key.default not in (None, ""):
                found[name] = key.default
        return found
