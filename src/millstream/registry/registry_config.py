"""The registry's settings: Confluent's names, types and defaults in one table. Our own are marked in their
text."""

import socket

from millstream.client import ClientConfig
from millstream.http.service_config import (
    AUTHENTICATION_KEYS,
    BOOLEAN,
    BROWSER_KEYS,
    INT,
    LIMIT_KEYS,
    LIST,
    LOGGING_KEYS,
    RESPONSE_KEYS,
    STRING,
    TLS_KEYS,
    ServiceConfig,
    ServiceConfigKey,
)
from millstream.registry.compatibility_levels import LEVELS
from millstream.registry.dek.registry import DekConfig
from millstream.registry.election import ElectionConfig, Identity
from millstream.registry.schemas_topic import SchemasTopicConfig
from millstream.registry.service import RegistryOptions
from millstream.settings.values import InvalidSetting

KEYS: dict[str, ServiceConfigKey] = {
    "listeners": ServiceConfigKey(
        LIST, "http://0.0.0.0:8081", "Addresses to listen on: http://host:port, https://host:port."
    ),
    "host.name": ServiceConfigKey(
        STRING, None, "The name under which other instances reach this one; the machine's name by default."
    ),
    "kafkastore.bootstrap.servers": ServiceConfigKey(
        LIST, "localhost:9092", "The Kafka cluster that keeps the schemas."
    ),
    "kafkastore.topic": ServiceConfigKey(
        STRING, "_schemas", "The topic that holds the schemas: one partition, compacted."
    ),
    "kafkastore.topic.replication.factor": ServiceConfigKey(
        INT, "3", "Replication factor of the topic when it is created; fewer if there are fewer brokers."
    ),
    "kafkastore.topic.skip.validation": ServiceConfigKey(
        BOOLEAN, "false", "Use the topic even if it is not compacted."
    ),
    "kafkastore.timeout.ms": ServiceConfigKey(
        INT, "5000", "How long one write may take. Confluent's default is 500."
    ),
    "kafkastore.init.timeout.ms": ServiceConfigKey(
        INT, "60000", "How long reading the topic may take at startup."
    ),
    "kafkastore.security.protocol": ServiceConfigKey(
        STRING,
        "PLAINTEXT",
        "How to connect to the cluster: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; "
        "see kafkastore.ssl.* and kafkastore.sasl.*.",
    ),
    "kafkastore.group.id": ServiceConfigKey(
        STRING, "", "Not needed; accepted because Confluent's registry has it."
    ),
    "schema.registry.group.id": ServiceConfigKey(
        STRING, "schema-registry", "The group in which instances elect their leader."
    ),
    "leader.eligibility": ServiceConfigKey(
        BOOLEAN, "true", "Whether this instance may become the leader, which alone writes."
    ),
    "master.eligibility": ServiceConfigKey(BOOLEAN, None, "The older name of leader.eligibility."),
    "kafkagroup.session.timeout.ms": ServiceConfigKey(
        INT, "10000", "An instance without a heartbeat for this long is considered dead."
    ),
    "kafkagroup.heartbeat.interval.ms": ServiceConfigKey(
        INT, "3000", "How often an instance sends a heartbeat."
    ),
    "kafkagroup.rebalance.timeout.ms": ServiceConfigKey(
        INT, "300000", "How long the group waits for its members."
    ),
    "leader.connect.timeout.ms": ServiceConfigKey(
        INT, "60000", "How long connecting to the leader may take when a write is forwarded."
    ),
    "leader.read.timeout.ms": ServiceConfigKey(
        INT, "60000", "How long the leader may take to answer a forwarded write."
    ),
    "millstream.leader.wait.ms": ServiceConfigKey(
        INT, "10000", "Ours: how long a write waits while there is no leader."
    ),
    "schema.compatibility.level": ServiceConfigKey(
        STRING, "backward", "The compatibility level where none has been set through the API."
    ),
    "avro.compatibility.level": ServiceConfigKey(
        STRING, None, "The older name of schema.compatibility.level."
    ),
    "schema.validate.fields": ServiceConfigKey(
        BOOLEAN, "false", "The default of validateFields: no field may have a reserved name or begin with $$."
    ),
    "schema.validate.new.schemas": ServiceConfigKey(
        BOOLEAN, "true", "The default of validateNewSchemas: Avro namespaces and defaults are checked."
    ),
    "mode.mutability": ServiceConfigKey(BOOLEAN, "true", "Whether modes can be changed."),
    "associations.enable": ServiceConfigKey(
        BOOLEAN, "true", "Whether topics can be associated with subjects: /associations."
    ),
    "dek.registry.topic": ServiceConfigKey(
        STRING, "_dek_registry_keys", "The topic that holds the encryption keys: one partition, compacted."
    ),
    "dek.registry.max.keys": ServiceConfigKey(
        INT, "20000", "How many KEKs, and how many DEKs, there may be."
    ),
    "schema.reject.empty.subject": ServiceConfigKey(
        BOOLEAN, "false", "Refuse to register under an empty subject, or under `*`."
    ),
    "schema.providers.reference.versions.strict": ServiceConfigKey(
        BOOLEAN, "false", "Refuse references that lead to two versions under one name."
    ),
    **LIMIT_KEYS,
    "size.limit.filter.enabled": ServiceConfigKey(
        BOOLEAN, "false", "Whether size.limit.filter.max.request.body.size applies."
    ),
    "size.limit.filter.max.request.body.size": ServiceConfigKey(
        INT, "1048576", "The largest body of a request, in bytes, if it is smaller than max.request.size."
    ),
    **RESPONSE_KEYS,
    **AUTHENTICATION_KEYS,
    **TLS_KEYS,
    "ssl.endpoint.identification.algorithm": ServiceConfigKey(
        STRING, "https", "Empty: the name in another instance's certificate is not checked."
    ),
    "inter.instance.protocol": ServiceConfigKey(
        STRING, None, "http or https: which listener other instances use."
    ),
    **BROWSER_KEYS,
    **LOGGING_KEYS,
}


class RegistryConfig(ServiceConfig):
    """`kafkastore.*` goes to the Kafka client: kafkastore.security.protocol, kafkastore.ssl.* ..."""

    keys = KEYS
    prefixes = ("kafkastore.",)
    default_port = 8081

    @property
    def level(self) -> str:
        text = self.value("avro.compatibility.level") or self.value("schema.compatibility.level")
        level = str(text).upper()
        if level not in LEVELS:
            raise InvalidSetting(
                "schema.compatibility.level", str(text), f"expected one of {', '.join(LEVELS)}"
            )
        return level

    @property
    def max_request_bytes(self) -> int:
        limit = int(self.value("max.request.size"))
        if self.value("size.limit.filter.enabled"):
            limit = min(limit, int(self.value("size.limit.filter.max.request.body.size")))
        return limit

    def client(self) -> ClientConfig:
        properties = self.with_prefix("kafkastore.")
        properties.pop("bootstrap.servers", None)
        servers = ",".join(self.value("kafkastore.bootstrap.servers"))
        return ClientConfig.of(servers, properties, "schema-registry")

    def identity(self, ports: list[int]) -> Identity:
        """Where the others reach this instance; `ports` are those really bound, one for each listener."""
        wanted = self.value("inter.instance.protocol")
        index = next((position for position, one in enumerate(self.listeners) if one.scheme == wanted), 0)
        listener = self.listeners[index]
        host = self.value("host.name")
        if not host:
            host = listener.host if listener.host not in ("0.0.0.0", "::", "") else socket.getfqdn()  # noqa: S104
        older = self.value("master.eligibility")
        eligible = self.value("leader.eligibility") if older is None else older
        return Identity(listener.scheme, str(host), ports[index], bool(eligible))

    def _topic(self, setting: str) -> SchemasTopicConfig:
        name = self.value(setting)
        return SchemasTopicConfig(
            name=name,
            replication_factor=self.value("kafkastore.topic.replication.factor"),
            check=not self.value("kafkastore.topic.skip.validation"),
            # One name for all registries of one topic, whatever their group: they all write to that topic.
            producer_name=f"schema-registry-{name}",
            timeout=self.value("kafkastore.timeout.ms") / 1000,
            init_timeout=self.value("kafkastore.init.timeout.ms") / 1000,
        )

    def service(self, ports: list[int]) -> RegistryOptions:
        return RegistryOptions(
            client=self.client(),
            topic=self._topic("kafkastore.topic"),
            deks=DekConfig(self._topic("dek.registry.topic"), self.value("dek.registry.max.keys")),
            election=ElectionConfig(
                group_id=str(self.value("schema.registry.group.id")),
                session_timeout_ms=self.value("kafkagroup.session.timeout.ms"),
                heartbeat_interval_ms=self.value("kafkagroup.heartbeat.interval.ms"),
                rebalance_timeout_ms=self.value("kafkagroup.rebalance.timeout.ms"),
            ),
            me=self.identity(ports),
            level=self.level,
            validate_fields=self.value("schema.validate.fields"),
            validate_new_schemas=self.value("schema.validate.new.schemas"),
            reject_empty_subject=self.value("schema.reject.empty.subject"),
            strict_references=self.value("schema.providers.reference.versions.strict"),
            mode_changes=self.value("mode.mutability"),
            leader_timeout=self.value("millstream.leader.wait.ms") / 1000,
        )
