"""Subscriptions to the metrics of clients: resources of the type client-metrics, with three settings.

metrics      prefixes of the names of metrics; `*` for all
interval.ms  how often a client pushes them
match        selectors `name=expression`, all of which a client has to match; none: every client
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from millstream.patterns import InvalidPattern, compile_pattern
from millstream.settings.resolve import ConfigEntry, ConfigSource, ConfigSynonym
from millstream.settings.values import Type
from millstream.wire.errors import ErrorCode, KafkaError

SCOPE = "client-metrics"
ALL_METRICS = "*"
DEFAULT_INTERVAL_MS, MIN_INTERVAL_MS, MAX_INTERVAL_MS = 300_000, 100, 3_600_000
MAX_SUBSCRIPTIONS = 1000
MAX_PATTERN_MEMORY = 1 << 20
SELECTORS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


class _Setting(NamedTuple):
    type: Type
    default: str
    doc: str


SETTINGS = {
    "metrics": _Setting(Type.LIST, "", "Prefixes of the names of metrics that clients push; * for all."),
    "interval.ms": _Setting(Type.INT, str(DEFAULT_INTERVAL_MS), "How often clients push them."),
    "match": _Setting(Type.LIST, "", "Which clients: selectors name=expression, all of which have to match."),
}


class Subscription(NamedTuple):
    metrics: frozenset[str]
    interval_ms: int
    match: Mapping[str, Any]  # compiled expressions by selector

    def matches(self, attributes: Mapping[str, str]) -> bool:
        return all(
            pattern.fullmatch(attributes.get(selector, "")) is not None
            for selector, pattern in self.match.items()
        )


def parse(values: Mapping[str, str]) -> Subscription:
    """KafkaError if these may not be the settings of a subscription."""
    for name in values:
        if name not in SETTINGS:
            raise KafkaError(ErrorCode.invalid_request, f"Unknown client metrics configuration: {name}")
    metrics = frozenset(_items(values.get("metrics", "")))
    interval = _interval(values.get("interval.ms", str(DEFAULT_INTERVAL_MS)))
    return Subscription(metrics, interval, dict(map(_selector, _items(values.get("match", "")))))


def _interval(text: str) -> int:
    try:
        interval = int(text.strip())
    except ValueError:
        raise KafkaError(
            ErrorCode.invalid_config,
            f"Invalid value {text} for configuration interval.ms: Not a number of type INT",
        ) from None
    if not MIN_INTERVAL_MS <= interval <= MAX_INTERVAL_MS:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Invalid value {interval} for interval.ms, interval must be between "
            f"{MIN_INTERVAL_MS} and {MAX_INTERVAL_MS} (1 hour)",
        )
    return interval


def _items(text: str) -> list[str]:
    return [item for item in re.split(r"\s*,\s*", text.strip()) if item]


def _selector(text: str) -> tuple[str, Any]:
    parts = text.rstrip("=").split("=")
    name = parts[0].strip()
    if len(parts) == 2 and name in SELECTORS:
        try:
            return name, compile_pattern(parts[1].strip(), MAX_PATTERN_MEMORY)
        except InvalidPattern:
            pass
    raise KafkaError(ErrorCode.invalid_config, f"Illegal client matching pattern: {text}")


def describe(own: Mapping[str, str]) -> list[ConfigEntry]:
    """A default has no synonym here, unlike those of topics and brokers."""
    entries = []
    for name, setting in SETTINGS.items():
        chain: tuple[ConfigSynonym, ...] = ()
        if name in own:
            chain = (ConfigSynonym(name, own[name], ConfigSource.CLIENT_METRICS),)
        source = chain[0].source if chain else ConfigSource.DEFAULT
        value = own.get(name, setting.default)
        entries.append(ConfigEntry(name, value, source, False, False, setting.type, setting.doc, chain))
    return entries
