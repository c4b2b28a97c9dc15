"""Converters by name: the class names of Kafka and Confluent, and the short aliases that Kafka takes too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.connect.config.config_def import ConfigError
from millstream.connect.converters.avro import AvroConverter
from millstream.connect.converters.base import Converter
from millstream.connect.converters.json import JsonConverter
from millstream.connect.converters.json_schema import JsonSchemaConverter
from millstream.connect.converters.protobuf import ProtobufConverter
from millstream.connect.converters.registry import RegistryConverter, with_worker_registry
from millstream.connect.converters.simple import (
    BooleanConverter,
    ByteArrayConverter,
    DoubleConverter,
    FloatConverter,
    IntegerConverter,
    LongConverter,
    ShortConverter,
    SimpleHeaderConverter,
    StringConverter,
)

_PACKAGE = "org.apache.kafka.connect."
_NUMBERS = (
    BooleanConverter,
    ByteArrayConverter,
    DoubleConverter,
    FloatConverter,
    IntegerConverter,
    LongConverter,
    ShortConverter,
)
CONVERTERS: dict[str, type[Converter]] = {
    f"{_PACKAGE}json.JsonConverter": JsonConverter,
    f"{_PACKAGE}storage.SimpleHeaderConverter": SimpleHeaderConverter,
    f"{_PACKAGE}storage.StringConverter": StringConverter,
    "io.confluent.connect.avro.AvroConverter": AvroConverter,
    "io.confluent.connect.json.JsonSchemaConverter": JsonSchemaConverter,
    "io.confluent.connect.protobuf.ProtobufConverter": ProtobufConverter,
    **{f"{_PACKAGE}converters.{one.__name__}": one for one in _NUMBERS},
}

HEADERS_ONLY = frozenset({f"{_PACKAGE}storage.SimpleHeaderConverter"})


def converter_name(name: str) -> str | None:
    """The class name, by that, its last part (`JsonConverter`), or that without `Converter` (`Json`)."""
    for full in CONVERTERS:
        short = full.rpartition(".")[2]
        if name in (full, short, short.removesuffix("Converter")):
            return full
    return None


def make_converter(
    name: str, settings: Mapping[str, Any], *, is_key: bool = False, registry: Mapping[str, str] | None = None
) -> Converter:
    """By any of its names. `registry` has the worker's own settings for its registry."""
    full = converter_name(name)
    if full is None:
        raise ConfigError(f"Class {name} could not be found.")
    made = CONVERTERS[full]
    if issubclass(made, RegistryConverter):
        settings = with_worker_registry(settings, registry or {})
    return made(settings, is_key=is_key)
