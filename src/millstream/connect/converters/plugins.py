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


def make_converter(name: str, settings: Mapping[str, Any], *, is_key: bool = False) -> Converter:
    """By the class name, its last part (`JsonConverter`), or that without `Converter` (`Json`)."""
    for full, made in CONVERTERS.items():
        short = full.rpartition(".")[2]
        if name in (full, short, short.removesuffix("Converter")):
            return made(settings, is_key=is_key)
    raise ConfigError(f"Class {name} could not be found.")
