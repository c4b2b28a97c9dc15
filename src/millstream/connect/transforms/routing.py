"""RegexRouter, Filter, and the predicates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.connect.config.config_def import REQUIRED, AllOf, ConfigDef, ConfigKey, NonEmptyString
from millstream.connect.config.java_regex import ValidRegex, compile_regex, replace_first
from millstream.connect.data.record import Record
from millstream.connect.transforms.base import AnyRecord, Predicate, Transform
from millstream.settings.config_key import Importance
from millstream.settings.values import Type as SettingType


class RegexRouter(Transform):
    """Another topic, by a pattern that the whole name matches."""

    config = ConfigDef(
        [
            ConfigKey(
                "regex",
                SettingType.STRING,
                REQUIRED,
                Importance.HIGH,
                "Pattern for the topic's name.",
                ValidRegex(),
            ),
            ConfigKey(
                "replacement",
                SettingType.STRING,
                REQUIRED,
                Importance.HIGH,
                "The new name; $1 is what the first group matched.",
            ),
        ]
    )

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self._regex = compile_regex(self.settings["regex"])

    def apply(self, record: AnyRecord) -> AnyRecord:
        if not self._regex.fullmatch(record.topic):
            return record
        return record.replace(topic=replace_first(self._regex, self.settings["replacement"], record.topic))


class Filter(Transform):
    """Drops every record: used with a predicate."""

    config = ConfigDef()

    def apply(self, record: AnyRecord) -> AnyRecord | None:
        return None


class TopicNameMatches(Predicate):
    config = ConfigDef(
        [
            ConfigKey(
                "pattern",
                SettingType.STRING,
                REQUIRED,
                Importance.MEDIUM,
                "Regular expression that the whole name of the topic matches.",
                AllOf((NonEmptyString(), ValidRegex())),
            )
        ]
    )

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self._regex = compile_regex(self.settings["pattern"])

    def test(self, record: Record) -> bool:
        return self._regex.fullmatch(record.topic) is not None


class HasHeaderKey(Predicate):
    config = ConfigDef(
        [
            ConfigKey(
                "name",
                SettingType.STRING,
                REQUIRED,
                Importance.MEDIUM,
                "Name of the header.",
                NonEmptyString(),
            )
        ]
    )

    def test(self, record: Record) -> bool:
        return any(header.name == self.settings["name"] for header in record.headers)


class RecordIsTombstone(Predicate):
    config = ConfigDef()

    def test(self, record: Record) -> bool:
        return record.value is None
