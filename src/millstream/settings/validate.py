"""Whether a setting may be given a value: for a topic, or for a running broker.

Used by the controller before it writes a change down. Refusals are worded as Kafka words them. Kafka answers
a refused topic setting with INVALID_CONFIG and a refused broker setting with INVALID_REQUEST; the caller
picks the code.
"""

from __future__ import annotations

from collections.abc import Mapping

from millstream.settings.config_def import TOPIC, base_config_key, has_listener_prefix
from millstream.settings.config_key import Mode
from millstream.settings.values import InvalidSetting, Value

# These change at run time only for a named listener, so that a mistake cannot lock out all clients at once.
_ONLY_PER_LISTENER = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
# Of the settings of a named listener, those that may be given for the listeners of all brokers at once.
_OF_ALL_LISTENERS = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})
# 0 would lock out everybody, also whoever wants to take it back.
_NOT_ZERO_WHILE_RUNNING = frozenset({"max.connections", "max.connection.creation.rate"})


def validate_topic_config(name: str, value: str) -> None:
    """Raise InvalidSetting unless a topic may have this setting with this value."""
    topic_value(name, value)


def topic_value(name: str, value: str) -> Value:
    """The typed value of a topic's setting, checked."""
    setting = TOPIC.get(name)
    if setting is None:
        message = f"Unknown topic config name: {name}"
        raise InvalidSetting(name, value, "no such topic setting", message)
    return setting.parse(value)


def validate_broker_config(name: str, value: str, per_broker: bool) -> None:
    """Raise InvalidSetting unless this may be set at run time, for one broker or as the default of all.

    A name that nobody knows is fine, as it is in Kafka, where a plug-in might know it.
    """
    setting = base_config_key(name)
    if setting is None:
        return
    prefixed = has_listener_prefix(name)
    if setting.mode is Mode.READ_ONLY:
        message = f"Cannot update these configs dynamically: Set({name})"
        raise InvalidSetting(name, value, "needs a restart", message)
    if name in _ONLY_PER_LISTENER:
        message = (
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"Set({name})"
        )
        raise InvalidSetting(name, value, "needs the prefix of a listener", message)
    if setting.parse(value, name) == 0 and setting.name in _NOT_ZERO_WHILE_RUNNING:
        raise InvalidSetting(name, value, "Value must be at least 1 while the broker runs")
    of_one_listener = prefixed and setting.name not in _OF_ALL_LISTENERS
    if not per_broker and (of_one_listener or setting.mode is Mode.PER_BROKER):
        message = (
            f"Cannot update these configs at default cluster level, broker id must be specified: Set({name})"
        )
        raise InvalidSetting(name, value, "belongs to one broker", message)


def check_topic_values(values: Mapping[str, Value]) -> None:
    """Rules between the settings of one topic, overrides and defaults together."""
    shortest, longest = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    assert isinstance(shortest, int) and isinstance(longest, int)
    if shortest > longest:
        message = (
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) "
            f"> max.compaction.lag.ms ({longest})"
        )
        raise InvalidSetting(
            "max.compaction.lag.ms", str(longest), "less than min.compaction.lag.ms", message
        )
