"""Settings that one group has for itself: how often it is assigned, its session timeout and heartbeat
interval, within what the broker allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from millstream.settings.resolve import BrokerSettings, ConfigEntry, ConfigSource, ConfigSynonym
from millstream.settings.values import Type
from millstream.wire.errors import ErrorCode, KafkaError


class GroupSetting(NamedTuple):
    default: str  # broker settings: the default and the bounds
    minimum: str
    maximum: str
    doc: str


GROUP_SETTINGS = {
    "consumer.assignment.interval.ms": GroupSetting(
        "group.consumer.assignment.interval.ms",
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
        "The least time between two assignments of this group.",
    ),
    "consumer.heartbeat.interval.ms": GroupSetting(
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
        "How often the members of this group are told to send a heartbeat.",
    ),
    "consumer.session.timeout.ms": GroupSetting(
        "group.consumer.session.timeout.ms",
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
        "A member of this group that sends no heartbeat for this long is removed.",
    ),
}


def validate(settings: BrokerSettings, values: Mapping[str, str]) -> None:
    """KafkaError if these may not be the settings of a group."""
    numbers = {}
    for name, text in values.items():
        known = GROUP_SETTINGS.get(name)
        if known is None:
            raise KafkaError(ErrorCode.invalid_config, f"Unknown group config name: {name}")
        try:
            number = numbers[name] = int(text)
        except ValueError:
            raise KafkaError(ErrorCode.invalid_config, f"{name} must be a number, not {text!r}.") from None
        if number < settings.integer(known.minimum):
            raise KafkaError(
                ErrorCode.invalid_config, f"{name} must be greater than or equal to {known.minimum}"
            )
        if number > settings.integer(known.maximum):
            raise KafkaError(
                ErrorCode.invalid_config, f"{name} must be less than or equal to {known.maximum}"
            )
    session, heartbeat = (
        numbers.get(name, settings.integer(GROUP_SETTINGS[name].default))
        for name in ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms")
    )
    if numbers and session <= heartbeat:
        raise KafkaError(
            ErrorCode.invalid_config,
            "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms.",
        )


def within_bounds(settings: BrokerSettings, name: str, value: int) -> int:
    """The value as it holds: the broker's bounds may have changed since it was set."""
    known = GROUP_SETTINGS[name]
    return max(settings.integer(known.minimum), min(settings.integer(known.maximum), value))


def describe(settings: BrokerSettings, own: Mapping[str, str]) -> list[ConfigEntry]:
    entries = []
    for name, known in GROUP_SETTINGS.items():
        chain = settings.synonyms_of(known.default)
        if name in own:
            chain = (ConfigSynonym(name, own[name], ConfigSource.GROUP), *chain)
        value = own.get(name, str(settings.integer(known.default)))
        source = chain[0].source if chain else ConfigSource.DEFAULT
        entries.append(ConfigEntry(name, value, source, False, False, Type.INT, known.doc, chain))
    return entries
