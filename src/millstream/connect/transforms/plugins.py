"""Transforms and predicates by name: Kafka's class names, and the short aliases that Kafka accepts too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.connect.config.config_def import ConfigError
from millstream.connect.transforms.base import KeyOrValueTransform, Predicate, Target, Transform
from millstream.connect.transforms.cast import Cast
from millstream.connect.transforms.fields import (
    ExtractField,
    Flatten,
    HoistField,
    InsertField,
    ReplaceField,
    ValueToKey,
)
from millstream.connect.transforms.headers import DropHeaders, HeaderFrom, InsertHeader
from millstream.connect.transforms.masks import MaskField, SetSchemaMetadata
from millstream.connect.transforms.new_record_state import ExtractNewRecordState
from millstream.connect.transforms.routing import (
    Filter,
    HasHeaderKey,
    RecordIsTombstone,
    RegexRouter,
    TopicNameMatches,
)
from millstream.connect.transforms.timestamps import TimestampConverter, TimestampRouter

_PACKAGE = "org.apache.kafka.connect.transforms."
_ON_KEY_OR_VALUE: tuple[type[KeyOrValueTransform], ...] = (
    Cast,
    ExtractField,
    Flatten,
    HeaderFrom,
    HoistField,
    InsertField,
    MaskField,
    ReplaceField,
    SetSchemaMetadata,
    TimestampConverter,
)
_ON_RECORDS: tuple[type[Transform], ...] = (
    DropHeaders,
    Filter,
    InsertHeader,
    RegexRouter,
    TimestampRouter,
    ValueToKey,
)
_PREDICATES: tuple[type[Predicate], ...] = (HasHeaderKey, RecordIsTombstone, TopicNameMatches)

TRANSFORMS: dict[str, tuple[type[Transform], Target | None]] = {
    **{f"{_PACKAGE}{one.__name__}$Key": (one, "key") for one in _ON_KEY_OR_VALUE},
    **{f"{_PACKAGE}{one.__name__}$Value": (one, "value") for one in _ON_KEY_OR_VALUE},
    **{f"{_PACKAGE}{one.__name__}": (one, None) for one in _ON_RECORDS},
    "io.debezium.transforms.ExtractNewRecordState": (ExtractNewRecordState, None),
}
PREDICATES: dict[str, type[Predicate]] = {f"{_PACKAGE}predicates.{one.__name__}": one for one in _PREDICATES}


def _full_name(name: str, known: Mapping[str, Any]) -> str:
    """`Cast$Value` or the whole class name."""
    if name in known:
        return name
    for full in known:
        if full.rpartition(".")[2] == name:
            return full
    raise ConfigError(f"Class {name} could not be found.")


def find_transform(name: str) -> type[Transform]:
    return TRANSFORMS[_full_name(name, TRANSFORMS)][0]


def find_predicate(name: str) -> type[Predicate]:
    return PREDICATES[_full_name(name, PREDICATES)]


def make_transform(name: str, settings: Mapping[str, Any]) -> Transform:
    made, target = TRANSFORMS[_full_name(name, TRANSFORMS)]
    if issubclass(made, KeyOrValueTransform):
        assert target is not None
        return made(settings, target)
    return made(settings)


def make_predicate(name: str, settings: Mapping[str, Any]) -> Predicate:
    return find_predicate(name)(settings)
