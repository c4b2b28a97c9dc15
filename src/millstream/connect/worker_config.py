"""The settings of a worker, by Kafka's names: those of connect-standalone and connect-distributed."""

from __future__ import annotations

from typing import Any

from millstream.client import ClientConfig
from millstream.connect.runtime.client_settings import OVERRIDE_POLICY
from millstream.http.service_config import (
    AUTHENTICATION_KEYS,
    BOOLEAN,
    BROWSER_KEYS,
    HTTPS_PREFIX,
    INT,
    LIMIT_KEYS,
    LIST,
    LOGGING_KEYS,
    PASSWORD,
    STRING,
    TLS_KEYS,
    ServiceConfig,
    ServiceConfigKey,
)

GRACEFUL_TIMEOUT = "task.shutdown.graceful.timeout.ms"
_WORKER = {
    "bootstrap.servers": ServiceConfigKey(
        LIST, "localhost:9092", "Brokers to connect to, host:port, comma separated."
    ),
    "listeners": ServiceConfigKey(LIST, "http://127.0.0.1:8083", "Where the REST API listens."),
    "rest.advertised.host.name": ServiceConfigKey(STRING, None, "The name of this worker in worker_id."),
    "rest.advertised.port": ServiceConfigKey(INT, None, "The port of this worker in worker_id."),
    "plugin.path": ServiceConfigKey(LIST, "", "Folders with Python modules of your own connectors."),
    "key.converter": ServiceConfigKey(
        STRING, "JsonConverter", "How keys become bytes, unless a connector says otherwise."
    ),
    "value.converter": ServiceConfigKey(STRING, "JsonConverter", "The same for values."),
    "header.converter": ServiceConfigKey(STRING, "SimpleHeaderConverter", "The same for headers."),
    "schema.registry.url": ServiceConfigKey(
        STRING, "", "Ours: the Schema Registry of converters that name none."
    ),
    "schema.registry.basic.auth.user.info": ServiceConfigKey(
        PASSWORD, None, "Ours: user:password for it, where a converter uses this registry without its own."
    ),
    "offset.flush.interval.ms": ServiceConfigKey(
        INT, "60000", "Accepted; offsets are committed with their records."
    ),
    GRACEFUL_TIMEOUT: ServiceConfigKey(
        INT, "5000", "How long tasks may take to end; all that end at once have it together."
    ),
    "topic.creation.enable": ServiceConfigKey(
        BOOLEAN, "true", "Whether connectors may create topics as they say."
    ),
    "topic.tracking.enable": ServiceConfigKey(
        BOOLEAN, "true", "Whether the topics of a connector are remembered."
    ),
    "topic.tracking.allow.reset": ServiceConfigKey(
        BOOLEAN, "true", "Whether what is remembered can be reset."
    ),
    "config.providers": ServiceConfigKey(
        LIST, "", "Names of providers, each with config.providers.NAME.class."
    ),
    OVERRIDE_POLICY: ServiceConfigKey(
        STRING, "All", "What connectors may override of producers and consumers: All, None or Principal."
    ),
    "millstream.driver.dir": ServiceConfigKey(
        STRING, "millstream-host", "Ours: the folder of the driver that runs Spark; services may share it."
    ),
    "spark.master": ServiceConfigKey(STRING, None, "Ours: Spark's master; by default this machine."),
}
_STANDALONE = {
    "offset.storage.file.filename": ServiceConfigKey(
        STRING, "connect.offsets", "The file with the sources' offsets."
    ),
}
_DISTRIBUTED = {
    "group.id": ServiceConfigKey(STRING, "connect-cluster", "The name of this cluster of workers."),
    "session.timeout.ms": ServiceConfigKey(
        INT,
        "6000",
        "After this long without a sign of life, the others take a worker's tasks over (Kafka: 10000; what "
        "brokers allow at least is 6000).",
    ),
    "heartbeat.interval.ms": ServiceConfigKey(
        INT, "1000", "How often a worker gives that sign (Kafka: 3000)."
    ),
    "rebalance.timeout.ms": ServiceConfigKey(
        INT, "60000", "How long a worker may take to join the group again."
    ),
    "scheduled.rebalance.max.delay.ms": ServiceConfigKey(
        INT,
        "0",
        "How long the tasks of a worker that is gone wait for it (Kafka: 300000). A move costs nothing here.",
    ),
    "exactly.once.source.support": ServiceConfigKey(
        STRING,
        "enabled",
        "Whether sources write in transactions: enabled (Kafka's default is disabled) or disabled.",
    ),
    **{
        f"{what}.storage.{name}": ServiceConfigKey(kind, default, text.format(what=what))
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
        HTTPS_PREFIX,
        "schema.registry.",
    )

    @property
    def client(self) -> ClientConfig:
        return ClientConfig.of(",".join(self.value("bootstrap.servers")), self.given, "connect")

    @property
    def converters(self) -> dict[str, str]:
        """Converters and their settings, as a connector may have them too, the worker's registry, and what it
        says of producers, consumers and what connectors may override of them."""
        found = {
            name: str(self.value(name)) for name in ("key.converter", "value.converter", "header.converter")
        }
        own = {
            name: text
            for name, text in self.given.items()
            if name.startswith(("key.converter.", "value.converter.", "header.converter."))
            or name.startswith(("schema.registry.", "producer.", "consumer."))
            or name == OVERRIDE_POLICY
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
