"""Settings that one group has for itself: its session timeout and heartbeat interval, within what the broker allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from millstream.settings.resolve import BrokerSettings, ConfigEntry, ConfigSource, ConfigSynonym
from millstream.settings.values import Type
from millstream.wire.errors import ErrorCode, KafkaError


class GroupSetting(NamedTuple):
    default: str  # the broker settings: what holds otherwise, and the bounds
    least: str
    most: str
    doc: str


GROUP_SETTINGS = {
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
        "A member of this group that is silent for so long is removed.",
    ),
}


def validate(settings: BrokerSettings, values: Mapping[str, str]) -> None:
    """KafkaError if these may not be the settings of a group."""
    numbers = {}
    for name, text in values.items():
        known = GROUP_SETTINGS.get(name)
        if known is None:
            raise KafkaError(ErrorCode.invalid_config, f"Unknown group config name: {name}")
        least, most = settings.integer(known.least), settings.integer(known.most)
        try:
            numbers[name] = int(text)
        except ValueError:
            raise KafkaError(ErrorCode.invalid_config, f"{name} must be a number, not {text!r}.") from None
        if not least <= numbers[name] <= most:
            raise KafkaError(
                ErrorCode.invalid_config, f"{name} must be between {least} and {most}, not {text}."
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
    return max(settings.integer(known.least), min(settings.integer(known.most), value))


def describe(settings: BrokerSettings, own: Mapping[str, str]) -> list[ConfigEntry]:
    entries = []
    for name, known in GROUP_SETTINGS.items():
        default = str(settings.integer(known.default))
        chain = [ConfigSynonym(known.default, default, ConfigSource.DEFAULT)]
        if name in own:
            chain.insert(0, ConfigSynonym(name, own[name], ConfigSource.GROUP))
        entries.append(
            ConfigEntry(
                name, own.get(name, default), chain[0].source, False, False, Type.INT, known.doc, tuple(chain)
            )
        )
    return entries
