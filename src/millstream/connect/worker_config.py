"""The settings of a worker, by Kafka's names: those of connect-standalone and connect-distributed."""

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
    STRING,
    TLS_KEYS,
    ConfigKey,
    ServiceConfig,
)

_WORKER = {
    "bootstrap.servers": ConfigKey(
        LIST, "localhost:9092", "Brokers to connect to, host:port, comma separated."
    ),
    "listeners": ConfigKey(LIST, "http://127.0.0.1:8083", "Where the REST API listens."),
    "rest.advertised.host.name": ConfigKey(STRING, None, "The name of this worker in worker_id."),
    "rest.advertised.port": ConfigKey(INT, None, "The port of this worker in worker_id."),
    "plugin.path": ConfigKey(LIST, "", "Folders with Python modules of your own connectors."),
    "key.converter": ConfigKey(
        STRING, "JsonConverter", "How keys become bytes, unless a connector says otherwise."
    ),
    "value.converter": ConfigKey(STRING, "JsonConverter", "The same for values."),
    "header.converter": ConfigKey(STRING, "SimpleHeaderConverter", "The same for headers."),
    "offset.flush.interval.ms": ConfigKey(
        INT, "60000", "Accepted; offsets are committed with their records."
    ),
    "topic.creation.enable": ConfigKey(BOOLEAN, "true", "Whether connectors may create topics as they say."),
    "topic.tracking.enable": ConfigKey(BOOLEAN, "true", "Whether the topics of a connector are remembered."),
    "topic.tracking.allow.reset": ConfigKey(BOOLEAN, "true", "Whether what is remembered can be reset."),
    "config.providers": ConfigKey(LIST, "", "Names of providers, each with config.providers.NAME.class."),
    "millstream.driver.dir": ConfigKey(
        STRING, "millstream-host", "Ours: the folder of the driver that runs Spark; services may share it."
    ),
    "spark.master": ConfigKey(STRING, None, "Ours: Spark's master; by default this machine."),
}
_STANDALONE = {
    "offset.storage.file.filename": ConfigKey(
        STRING, "connect.offsets", "The file with the sources' offsets."
    ),
}
_DISTRIBUTED = {
    "group.id": ConfigKey(STRING, "connect-cluster", "The name of this cluster of workers."),
    "session.timeout.ms": ConfigKey(
        INT, "10000", "After this long without a sign of life, the others take a worker's tasks over."
    ),
    "heartbeat.interval.ms": ConfigKey(INT, "1000", "How often a worker gives that sign (Kafka: 3000)."),
    "rebalance.timeout.ms": ConfigKey(INT, "60000", "How long a worker may take to join the group again."),
    "scheduled.rebalance.max.delay.ms": ConfigKey(
        INT,
        "0",
        "How long the tasks of a worker that is gone wait for it (Kafka: 300000). A move costs nothing here.",
    ),
    "exactly.once.source.support": ConfigKey(
        STRING,
        "enabled",
        "Whether sources write in transactions: enabled (Kafka's default is disabled) or disabled.",
    ),
    **{
        f"{what}.storage.{name}": ConfigKey(kind, default, text.format(what=what))
        for what, topic, partitions in (
            ("config", "connect-configs", None),
            ("offset", "connect-offsets", "25"),
            ("status", "connect-status", "5"),
        )
        for name, kind, default, text in (
            ("topic", STRING, topic, "The topic for {what}s."),
            ("replication.factor", INT, "3", "Its replicas, at most as many as there are brokers."),
            *((("partitions", INT, partitions, "Its partitions."),) if partitions else ()),
        )
    },
}


_SERVICE = {**LIMIT_KEYS, **AUTHENTICATION_KEYS, **TLS_KEYS, **BROWSER_KEYS, **LOGGING_KEYS}


class WorkerConfig(ServiceConfig):
    default_port = 8083
    prefixes = (
        "key.converter.",
        "value.converter.",
        "header.converter.",
        "producer.",
        "consumer.",
        "admin.",
        "config.providers.",
        "security.",
        "ssl.",
        "sasl.",
        "spark.",
        "rest.",
    )

    @property
    def client(self) -> ClientConfig:
        return ClientConfig.of(",".join(self.value("bootstrap.servers")), self.given, "connect")

    @property
    def converters(self) -> dict[str, str]:
        """Converters and their settings, as a connector may have them too, and its producer's limit."""
        found = {
            name: str(self.value(name)) for name in ("key.converter", "value.converter", "header.converter")
        }
        own = {
            name: text
            for name, text in self.given.items()
            if name.startswith(("key.converter.", "value.converter.", "header.converter."))
            or name == "producer.max.request.size"
        }
        return found | own

    def worker_id(self, ports: list[int]) -> str:
        host = self.value("rest.advertised.host.name") or self.listeners[0].host
        return f"{host}:{self.value('rest.advertised.port') or ports[0]}"

    def url(self, ports: list[int]) -> str:
        """Where the other workers reach this one."""
        given = self.given.get("rest.advertised.listener", self.listeners[0].scheme)
        return f"{given}://{self.worker_id(ports)}/"

    def number(self, name: str) -> int:
        value: Any = self.value(name)
        return int(value)


class StandaloneConfig(WorkerConfig):
    keys = {**_WORKER, **_STANDALONE, **_SERVICE}


class DistributedConfig(WorkerConfig):
    keys = {**_WORKER, **_DISTRIBUTED, **_SERVICE}
