"""The registry's settings: Confluent's names, types and defaults in one table. Our own are marked in their text."""

import socket

from millstream.client import ClientConfig
from millstream.http import service_config as http
from millstream.http.service_config import INT, LIST, B, HttpSettings, S, Setting
from millstream.registry.compatibility_levels import LEVELS
from millstream.registry.election import ElectionSettings, Identity
from millstream.registry.schemas_topic import TopicSettings
from millstream.registry.service import ServiceSettings
from millstream.settings.values import InvalidSetting

DEFAULT_PORT = 8081


SETTINGS: dict[str, Setting] = {
    "listeners": Setting(
        LIST, "http://0.0.0.0:8081", "Addresses to listen on: http://host:port, https://host:port."
    ),
    "host.name": Setting(
        S, None, "The name under which other instances reach this one; the machine's name by default."
    ),
    "kafkastore.bootstrap.servers": Setting(
        LIST, "localhost:9092", "The Kafka cluster that keeps the schemas."
    ),
    "kafkastore.topic": Setting(S, "_schemas", "The topic with the schemas: one partition, compacted."),
    "kafkastore.topic.replication.factor": Setting(
        INT, "3", "Copies of the topic when it is created, as far as there are brokers."
    ),
    "kafkastore.topic.skip.validation": Setting(B, "false", "Use the topic even if it is not compacted."),
    "kafkastore.timeout.ms": Setting(INT, "5000", "How long one write may take. Confluent's default is 500."),
    "kafkastore.init.timeout.ms": Setting(INT, "60000", "How long reading the topic at the start may take."),
    "kafkastore.security.protocol": Setting(
        S,
        "PLAINTEXT",
        "How to connect to the cluster: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; see kafkastore.ssl.* and kafkastore.sasl.*.",
    ),
    "kafkastore.group.id": Setting(S, "", "Not needed; accepted because Confluent's registry has it."),
    "schema.registry.group.id": Setting(
        S, "schema-registry", "The group in which instances choose their leader."
    ),
    "leader.eligibility": Setting(B, "true", "Whether this instance may lead, that is write."),
    "master.eligibility": Setting(B, None, "The older name of leader.eligibility."),
    "kafkagroup.session.timeout.ms": Setting(
        INT, "10000", "After how long without a sign an instance counts as gone."
    ),
    "kafkagroup.heartbeat.interval.ms": Setting(INT, "3000", "How often an instance gives a sign."),
    "kafkagroup.rebalance.timeout.ms": Setting(INT, "300000", "How long the group waits for its members."),
    "leader.connect.timeout.ms": Setting(INT, "60000", "Connecting to the leader to pass on a write."),
    "leader.read.timeout.ms": Setting(INT, "60000", "Waiting for the leader's answer."),
    "millstream.leader.wait.ms": Setting(
        INT, "10000", "Ours: how long a write waits while there is no leader."
    ),
    "schema.compatibility.level": Setting(
        S, "backward", "The compatibility level where none is set by request."
    ),
    "avro.compatibility.level": Setting(S, None, "The older name of schema.compatibility.level."),
    "mode.mutability": Setting(B, "true", "Whether modes can be changed."),
    **http.LIMITS,
    **http.USERS,
    **http.TLS,
    "ssl.endpoint.identification.algorithm": Setting(
        S, "https", "Empty: the name in another instance's certificate is not checked."
    ),
    "inter.instance.protocol": Setting(S, None, "http or https: which listener other instances use."),
    **http.PAGES,
    **http.LOGGING,
}


class RegistrySettings(HttpSettings):
    """Typed values. A value that makes no sense is an InvalidSetting, a name that is not known a warning."""

    def __init__(self, given: dict[str, str]) -> None:
        super().__init__(SETTINGS, given, ("kafkastore.",), DEFAULT_PORT)

    @property
    def level(self) -> str:
        text = self.value("avro.compatibility.level") or self.value("schema.compatibility.level")
        level = str(text).upper()
        if level not in LEVELS:
            raise InvalidSetting(
                "schema.compatibility.level", str(text), f"expected one of {', '.join(LEVELS)}"
            )
        return level

    def client(self) -> ClientConfig:
        properties = self.with_prefix("kafkastore.")
        properties.pop("bootstrap.servers", None)
        servers = ",".join(self.value("kafkastore.bootstrap.servers"))
        return ClientConfig.of(servers, properties, "schema-registry")

    def identity(self, ports: list[int]) -> Identity:
        """Where the others reach this instance; `ports` are those really bound, one for each listener."""
        wanted = self.value("inter.instance.protocol")
        index = next((i for i, one in enumerate(self.listeners) if one.scheme == wanted), 0)
        listener = self.listeners[index]
        host = self.value("host.name")
        if not host:
            host = listener.host if listener.host not in ("0.0.0.0", "::", "") else socket.getfqdn()  # noqa: S104
        older = self.value("master.eligibility")
        eligible = self.value("leader.eligibility") if older is None else older
        return Identity(listener.scheme, str(host), ports[index], bool(eligible))

    def service(self, ports: list[int]) -> ServiceSettings:
        group = str(self.value("schema.registry.group.id"))
        return ServiceSettings(
            client=self.client(),
            topic=TopicSettings(
                name=self.value("kafkastore.topic"),
                replication_factor=self.value("kafkastore.topic.replication.factor"),
                check=not self.value("kafkastore.topic.skip.validation"),
                # One name for all registries of one topic, whatever their group: they all write to that topic.
                producer_name=f"schema-registry-{self.value('kafkastore.topic')}",
                timeout=self.value("kafkastore.timeout.ms") / 1000,
                init_timeout=self.value("kafkastore.init.timeout.ms") / 1000,
            ),
            election=ElectionSettings(
                group=group,
                session_ms=self.value("kafkagroup.session.timeout.ms"),
                heartbeat_ms=self.value("kafkagroup.heartbeat.interval.ms"),
                rebalance_ms=self.value("kafkagroup.rebalance.timeout.ms"),
            ),
            me=self.identity(ports),
            level=self.level,
            mode_changes=self.value("mode.mutability"),
            leader_patience=self.value("millstream.leader.wait.ms") / 1000,
        )
