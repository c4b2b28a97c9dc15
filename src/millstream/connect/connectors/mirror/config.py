"""Settings of the three connectors, by MirrorMaker's names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from millstream.client import ClientConfig, Cluster
from millstream.connect.config.config_def import (
    REQUIRED,
    CheckedBy,
    ConfigDef,
    ConfigError,
    ConfigKey,
    NonEmptyString,
    ValidString,
    with_prefix,
)
from millstream.connect.config.java_regex import compile_regex
from millstream.connect.connectors.mirror.naming import POLICIES
from millstream.connect.errors import ConnectError
from millstream.settings.config_key import Importance
from millstream.settings.values import Type
from millstream.wire.errors import KafkaError

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_MIRROR = "org.apache.kafka.connect.mirror."
_SHARED = ("bootstrap.servers", "security.protocol", "sasl.", "ssl.")


def _is_policy(name: str, value: Any) -> None:
    if value is None or value.rpartition(".")[2] not in POLICIES:
        raise ConfigError.of(name, value, f"it is one of {', '.join(POLICIES)} here")


def _only(class_name: str) -> CheckedBy:
    def check(name: str, value: Any) -> None:
        if value is None or value.rpartition(".")[2] != class_name:
            raise ConfigError.of(name, value, f"only {class_name} is known here")

    return CheckedBy(check, class_name)


def _are_patterns(name: str, value: Any) -> None:
    try:
        compile_regex("|".join(value or ()))
    except re.error as error:
        raise ConfigError.of(name, ",".join(value), f"Invalid regex: {error}") from None


_PATTERNS = CheckedBy(_are_patterns, "names and regexes")
_ALIAS = NonEmptyString()


def _cluster_keys(side: str) -> list[ConfigKey]:
    prefix = f"{side}.cluster."
    login = {
        "security.protocol": (Type.STRING, "How to connect to it, PLAINTEXT if not given."),
        "sasl.mechanism": (Type.STRING, "The mechanism of the login."),
        "sasl.jaas.config": (Type.PASSWORD, "The login, in JAAS's words."),
        "ssl.truststore.location": (Type.STRING, "Whom to trust (PEM)."),
        "ssl.truststore.password": (Type.PASSWORD, "The password of that file."),
        "ssl.keystore.location": (Type.STRING, "Certificate and key of the client (PEM)."),
        "ssl.keystore.password": (Type.PASSWORD, "The password of that file."),
        "ssl.key.password": (Type.PASSWORD, "The password of the key."),
        "ssl.keystore.key": (Type.PASSWORD, "The key itself (PEM)."),
    }
    servers = ConfigKey(
        f"{prefix}bootstrap.servers", Type.STRING, REQUIRED, HIGH, f"Brokers of the {side} cluster.", _ALIAS
    )
    return [
        servers,
        *(ConfigKey(f"{prefix}{name}", kind, None, MEDIUM, doc) for name, (kind, doc) in login.items()),
    ]


_TOPIC_KEYS = [
    ConfigKey("topics", Type.LIST, (".*",), HIGH, "Topics to mirror: names and regexes.", _PATTERNS),
    ConfigKey(
        "topics.exclude",
        Type.LIST,
        (r".*[\-\.]internal", r".*\.replica", "__.*"),
        HIGH,
        "Topics not to mirror, even if `topics` has them.",
        _PATTERNS,
    ),
    ConfigKey(
        "topic.filter.class",
        Type.STRING,
        f"{_MIRROR}DefaultTopicFilter",
        LOW,
        "What reads these two.",
        _only("DefaultTopicFilter"),
    ),
]
_SYNC_KEYS = [
    ConfigKey(
        "offset-syncs.topic.location",
        Type.STRING,
        "source",
        LOW,
        "Which cluster has the topic of offset syncs.",
        ValidString(("source", "target")),
    ),
    ConfigKey(
        "emit.offset-syncs.enabled",
        Type.BOOLEAN,
        True,
        LOW,
        "Whether it is noted where records stand in both clusters. Checkpoints need it.",
    ),
]
BASE = ConfigDef(
    [
        ConfigKey("enabled", Type.BOOLEAN, True, LOW, "Whether anything is mirrored."),
        ConfigKey(
            "source.cluster.alias", Type.STRING, REQUIRED, HIGH, "A name of the source cluster.", _ALIAS
        ),
        ConfigKey(
            "target.cluster.alias", Type.STRING, "target", HIGH, "A name of the target cluster.", _ALIAS
        ),
        *_cluster_keys("source"),
        *_cluster_keys("target"),
        ConfigKey(
            "admin.timeout.ms",
            Type.LONG,
            60000,
            LOW,
            "Accepted; a call to a cluster may take 20 seconds.",
        ),
        ConfigKey(
            "replication.policy.class",
            Type.STRING,
            f"{_MIRROR}DefaultReplicationPolicy",
            LOW,
            "How mirrored topics are called.",
            CheckedBy(_is_policy, ", ".join(POLICIES)),
        ),
        ConfigKey("replication.policy.separator", Type.STRING, ".", LOW, "Between alias and topic.", _ALIAS),
        ConfigKey(
            "replication.policy.internal.topic.separator.enabled",
            Type.BOOLEAN,
            True,
            LOW,
            "Whether MirrorMaker's own topics have that separator too; `.` if not.",
        ),
    ]
)


def _seconds(name: str, default: int, doc: str) -> ConfigKey:
    return ConfigKey(f"{name}.interval.seconds", Type.LONG, default, LOW, doc)


def _enabled(name: str, default: bool, doc: str) -> ConfigKey:
    return ConfigKey(f"{name}.enabled", Type.BOOLEAN, default, LOW, doc)


SOURCE = BASE + ConfigDef(
    [
        *_TOPIC_KEYS,
        ConfigKey(
            "config.properties.exclude",
            Type.LIST,
            (
                r"follower\.replication\.throttled\.replicas",
                r"leader\.replication\.throttled\.replicas",
                r"message\.timestamp\.difference\.max\.ms",
                r"message\.timestamp\.type",
                r"unclean\.leader\.election\.enable",
                r"min\.insync\.replicas",
            ),
            HIGH,
            "Settings of topics that are not mirrored: names and regexes.",
            _PATTERNS,
        ),
        ConfigKey(
            "config.property.filter.class",
            Type.STRING,
            f"{_MIRROR}DefaultConfigPropertyFilter",
            LOW,
            "What reads it.",
            _only("DefaultConfigPropertyFilter"),
        ),
        ConfigKey(
            "use.defaults.from",
            Type.STRING,
            "target",
            MEDIUM,
            "Whose defaults hold for settings that a topic does not have.",
            ValidString(("source", "target")),
        ),
        ConfigKey(
            "consumer.poll.timeout.ms", Type.LONG, 1000, LOW, "How long a poll may wait; 200 at most counts."
        ),
        _enabled("refresh.topics", True, "Whether new topics and partitions are looked for."),
        _seconds("refresh.topics", 600, "How often."),
        _enabled("sync.topic.configs", True, "Whether settings of topics follow those of the source."),
        _seconds("sync.topic.configs", 600, "How often."),
        _enabled("sync.topic.acls", True, "Whether ACLs of topics follow those of the source."),
        _seconds("sync.topic.acls", 600, "How often."),
        ConfigKey("replication.factor", Type.INT, 2, LOW, "Replication factor of topics that are created."),
        ConfigKey(
            "offset-syncs.topic.replication.factor",
            Type.SHORT,
            3,
            LOW,
            "The same of the offset syncs' topic.",
        ),
        ConfigKey(
            "offset.lag.max",
            Type.LONG,
            100,
            LOW,
            "After how many records an offset sync is written at least.",
        ),
        *_SYNC_KEYS,
        _enabled(
            "heartbeats.replication", True, "Whether heartbeats are mirrored though `topics` lacks them."
        ),
    ]
)
HEARTBEAT = BASE + ConfigDef(
    [
        _enabled("emit.heartbeats", True, "Whether there are any."),
        _seconds("emit.heartbeats", 1, "How often."),
        ConfigKey("heartbeats.topic.replication.factor", Type.SHORT, 3, LOW, "Of the topic `heartbeats`."),
    ]
)
CHECKPOINT = BASE + ConfigDef(
    [
        ConfigKey("groups", Type.LIST, (".*",), HIGH, "Groups to follow: names and regexes.", _PATTERNS),
        ConfigKey(
            "groups.exclude",
            Type.LIST,
            ("console-consumer-.*", "connect-.*", "__.*"),
            HIGH,
            "Groups not to follow, even if `groups` has them.",
            _PATTERNS,
        ),
        ConfigKey(
            "group.filter.class",
            Type.STRING,
            f"{_MIRROR}DefaultGroupFilter",
            LOW,
            "What reads these two.",
            _only("DefaultGroupFilter"),
        ),
        *_TOPIC_KEYS,
        ConfigKey("consumer.poll.timeout.ms", Type.LONG, 1000, LOW, "Accepted; polls do not wait."),
        _enabled("refresh.groups", True, "Whether new groups are looked for."),
        _seconds("refresh.groups", 600, "How often."),
        _enabled("emit.checkpoints", True, "Whether there are any."),
        _seconds("emit.checkpoints", 60, "How often."),
        _enabled(
            "sync.group.offsets", False, "Whether groups without members get the offsets, in the target."
        ),
        _seconds("sync.group.offsets", 60, "How often."),
        ConfigKey("checkpoints.topic.replication.factor", Type.SHORT, 3, LOW, "Of the topic of checkpoints."),
        *_SYNC_KEYS,
    ]
)


def client_properties(settings: Mapping[str, str], side: str, kind: str) -> dict[str, str]:
    """Of a client of one of the clusters: what all have, and above that what this kind has."""
    shared = with_prefix(settings, f"{side}.cluster.")
    found = {name: text for name, text in shared.items() if name.startswith(_SHARED)}
    return found | with_prefix(settings, f"{kind}.") | with_prefix(settings, f"{side}.{kind}.")


def cluster(settings: Mapping[str, str], side: str, kind: str) -> Cluster:
    """A cluster that is asked by a connector: it fails soon, as others wait."""
    properties = {"default.api.timeout.ms": "20000", "request.timeout.ms": "10000"}
    properties |= client_properties(settings, side, kind)
    alias = settings.get(f"{side}.cluster.alias", side)
    try:
        return Cluster(ClientConfig.of("", properties, f"mirror-{alias}"))
    except ValueError as error:
        raise ConfigError(f"{side}.cluster: {error}") from None


def unreachable(settings: Mapping[str, str], side: str, error: KafkaError) -> ConnectError:
    alias = settings.get(f"{side}.cluster.alias", side)
    servers = settings.get(f"{side}.cluster.bootstrap.servers")
    return ConnectError(f"cluster {alias} ({side}.cluster.bootstrap.servers={servers}): {error}")


def reads_committed(settings: Mapping[str, str]) -> bool:
    return client_properties(settings, "source", "consumer").get("isolation.level") != "read_uncommitted"


def offset_syncs_topic(parsed: Mapping[str, Any], policy: Any) -> str:
    other = "target" if parsed["offset-syncs.topic.location"] == "source" else "source"
    found: str = policy.offset_syncs_topic(parsed[f"{other}.cluster.alias"])
    return found
