"""The one table of settings, Kafka's `ConfigDef`: BROKER and TOPIC, by name.

Everything else is made from it: parsing and checking (`values`, `resolve`), what DescribeConfigs answers, a
commented server.properties and the reference page (`render`). Names, types, defaults and dynamic modes are
those of Apache Kafka 4.2; where one differs on purpose, its text says so and DIFFERENT says why. What Kafka
has and Millstream has not (tiered storage, KRaft, share groups) is not in the table; `_unsupported` knows
those names so that a broker given one can say what it is.
"""

from __future__ import annotations

from millstream.settings import _broker_cluster as cluster
from millstream.settings import _broker_coordinators as coordinators
from millstream.settings import _broker_core as core
from millstream.settings import _broker_log as log
from millstream.settings import _broker_sasl as sasl
from millstream.settings import _broker_tls as tls
from millstream.settings._broker_own import OWN
from millstream.settings._broker_zookeeper import ZOOKEEPER
from millstream.settings._topic import TOPIC_SETTINGS
from millstream.settings._unsupported import kafka_only, not_yet
from millstream.settings.config_key import ConfigKey, Importance, Mode, Synonym
from millstream.settings.values import Type

__all__ = [
    "BROKER",
    "DIFFERENT",
    "SECTIONS",
    "TOPIC",
    "ConfigKey",
    "Importance",
    "Mode",
    "Synonym",
    "Type",
    "base_config_key",
    "kafka_only",
]


def _with_no_effect(rows: tuple[ConfigKey, ...]) -> tuple[ConfigKey, ...]:
    """The rows, with the reason for those that do nothing yet."""
    return tuple(row if row.no_effect else row._replace(no_effect=not_yet(row.name)) for row in rows)


# Headings in the order of the reference page.
_SECTIONS: tuple[tuple[str, tuple[ConfigKey, ...]], ...] = (
    ("Identity", core.IDENTITY),
    ("Listeners", core.LISTENERS),
    ("Network", core.NETWORK),
    ("Topics and requests", core.REQUESTS),
    ("Data folders", log.FOLDERS),
    ("Defaults of topics", log.TOPIC_DEFAULTS),
    ("Compaction", log.CLEANER),
    ("Groups", coordinators.GROUPS),
    ("Committed offsets", coordinators.OFFSETS),
    ("Transactions", coordinators.TRANSACTIONS),
    ("Replication", cluster.REPLICATION),
    ("ZooKeeper", ZOOKEEPER),
    ("Quotas", cluster.QUOTAS),
    ("TLS", tls.TLS),
    ("SASL", sasl.SASL),
    ("OAuth", sasl.OAUTH),
    ("Users and authorization", sasl.AUTHORIZATION),
    ("Metrics and plug-ins", core.METRICS),
    ("Millstream's own", OWN),
)

SECTIONS = tuple((heading, _with_no_effect(rows)) for heading, rows in _SECTIONS)
BROKER: dict[str, ConfigKey] = {setting.name: setting for _, rows in SECTIONS for setting in rows}
TOPIC: dict[str, ConfigKey] = {setting.name: setting for setting in _with_no_effect(TOPIC_SETTINGS)}

# Where the table departs from Kafka's on purpose.
DIFFERENT: dict[str, str] = {
    "listeners": "the default listens on the loopback only; cannot change while the broker runs",
    "listener.security.protocol.map": "cannot change while the broker runs",
    "node.id": "has a default, 1",
    "broker.id": "has node.id's default, 1, instead of -1; with zookeeper.connect an id is generated",
    "log.dir": "the default is millstream-data under the current folder instead of a folder under /tmp",
    "process.roles": "need not be set",
    "controller.listener.names": "need not be set",
    "group.coordinator.rebalance.protocols": "the default leaves out streams",
}

_LISTENER = "listener.name."
# Settings that may carry a mechanism's name after the listener's.
_BY_MECHANISM = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)


def base_config_key(name: str) -> ConfigKey | None:
    """The broker setting behind a name, which may have the prefix of a listener and of a SASL mechanism."""
    setting = BROKER.get(name)
    if setting is None and name.startswith(_LISTENER):
        rest = name[len(_LISTENER) :].partition(".")[2]
        setting = BROKER.get(rest)
        if setting is None:
            after_mechanism = rest.partition(".")[2]
            if after_mechanism in _BY_MECHANISM or (
                after_mechanism.startswith("sasl.oauthbearer.") and after_mechanism in BROKER
            ):
                setting = BROKER[after_mechanism]
    return setting


def has_listener_prefix(name: str) -> bool:
    return name.startswith(_LISTENER)
