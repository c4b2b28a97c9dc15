"""Values by an Avro schema whose `arg.properties` say what they look like.

The properties are those of Confluent's Avro Random Generator: `options`, `range`, `length`, `regex`,
`prefix`, `suffix`, `iteration`, `odds`, `keys`, `position` and `distribution`. A schema becomes a Connect
schema and one function that makes a value from a source of random numbers; what counts up (`iteration`)
starts at the number of records that were made before, so that it goes on after a restart.
"""

from __future__ import annotations

import base64
import string
from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import orjson

from millstream.connect.config.config_def import ConfigError
from millstream.connect.connectors.datagen.regex_text import text_by_regex
from millstream.connect.data.logical import (
    DATE_SCHEMA,
    EPOCH,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    decimal_from_unscaled,
    decimal_schema,
)
from millstream.connect.data.schema import REQUIRED, Schema, Type, array_schema, map_schema, struct_schema
from millstream.connect.data.struct import Struct

Make = Callable[[Random], Any]

_INT_RANGES = {"int": (-(1 << 31), 1 << 31), "long": (-(1 << 63), 1 << 63)}
_PRIMITIVES = {
    "boolean": Type.BOOLEAN,
    "int": Type.INT32,
    "long": Type.INT64,
    "float": Type.FLOAT32,
    "double": Type.FLOAT64,
    "bytes": Type.BYTES,
    "string": Type.STRING,
}
_LOGICAL: dict[tuple[str, str | None], tuple[Schema, Callable[[int], Any]]] = {
    ("int", "date"): (DATE_SCHEMA, lambda number: EPOCH + timedelta(days=number)),
    ("int", "time-millis"): (TIME_SCHEMA, lambda number: EPOCH + timedelta(milliseconds=number)),
    ("long", "timestamp-millis"): (TIMESTAMP_SCHEMA, lambda number: EPOCH + timedelta(milliseconds=number)),
}
_LETTERS = string.ascii_letters
DEFAULT_LENGTH = (8, 16)


class Generator(NamedTuple):
    schema: Schema
    make: Make


class _Builder:
    def __init__(self, made_before: int) -> None:
        self._made_before = made_before
        self._named: dict[str, Mapping[str, Any]] = {}

    def build(self, schema: Any) -> Generator:
        if isinstance(schema, str):
            if schema in self._named:
                return self.build(self._named[schema])
            schema = {"type": schema}
        if isinstance(schema, list):
            return self._union(schema, {})
        kind = schema.get("type")
        if isinstance(kind, list):
            return self._union(kind, schema.get("arg.properties", {}))
        if isinstance(kind, dict):
            return self.build(kind)
        if schema.get("name") and kind in ("record", "enum", "fixed"):
            self._named[schema["name"]] = schema
        properties = schema.get("arg.properties", {})
        generator = self._by_type(schema, kind, properties)
        if "options" in properties:
            options = [_fit(generator.schema, one) for one in _options(properties["options"])]
            return Generator(generator.schema, lambda random: random.choice(options))
        return generator

    def _by_type(self, schema: Mapping[str, Any], kind: str, properties: Mapping[str, Any]) -> Generator:
        if kind == "record":
            return self._record(schema)
        if kind == "array":
            return self._array(schema, properties)
        if kind == "map":
            return self._map(schema, properties)
        if kind == "enum":
            symbols = list(schema["symbols"])
            return Generator(REQUIRED[Type.STRING], lambda random: random.choice(symbols))
        if kind == "fixed":
            size = int(schema["size"])
            return Generator(REQUIRED[Type.BYTES], lambda random: random.randbytes(size))
        if kind == "null":
            return Generator(Schema(Type.STRING, optional=True), lambda _: None)
        if kind not in _PRIMITIVES:
            raise ConfigError(f"unknown type in the schema: {kind}")
        return self._primitive(schema, kind, properties)

    def _record(self, schema: Mapping[str, Any]) -> Generator:
        fields = []
        for field in schema["fields"]:
            described = field["type"]
            if "arg.properties" in field:
                inner = described if isinstance(described, dict) else {"type": described}
                described = inner | {"arg.properties": field["arg.properties"]}
            fields.append((field["name"], self.build(described)))
        name = schema.get("name", "record")
        full = name if "." in name or "namespace" not in schema else f"{schema['namespace']}.{name}"
        made = struct_schema([(field, one.schema) for field, one in fields], name=full)
        makers = [one.make for _, one in fields]
        return Generator(made, lambda random: Struct(made, [make(random) for make in makers]))

    def _union(self, branches: list[Any], properties: Mapping[str, Any]) -> Generator:
        """Null and one other type: what Connect has words for."""
        others = [one for one in branches if one != "null"]
        if len(others) != 1:
            raise ConfigError("a union in the schema has to be null and one other type")
        inner = self.build(others[0])
        schema = inner.schema.replace(optional=True)
        make = inner.make
        if schema.type is Type.STRUCT:
            original = make
            make = lambda random: Struct(schema, original(random).values)  # noqa: E731
        if "null" not in branches:
            return Generator(inner.schema, inner.make)
        null_at = branches.index("null")
        if "position" in properties:
            chosen_null = int(properties["position"]) == null_at
            return Generator(schema, (lambda _: None) if chosen_null else make)
        odds = float(properties.get("distribution", {}).get(str(null_at), 1 / len(branches)))
        return Generator(schema, lambda random: None if random.random() < odds else make(random))

    def _array(self, schema: Mapping[str, Any], properties: Mapping[str, Any]) -> Generator:
        element, length = self.build(schema["items"]), _length(properties)
        return Generator(
            array_schema(element.schema),
            lambda random: [element.make(random) for _ in range(length(random))],
        )

    def _map(self, schema: Mapping[str, Any], properties: Mapping[str, Any]) -> Generator:
        value, length = self.build(schema["values"]), _length(properties)
        key = self.build({"type": "string", "arg.properties": properties.get("keys", {})})
        return Generator(
            map_schema(key.schema, value.schema),
            lambda random: {key.make(random): value.make(random) for _ in range(length(random))},
        )

    def _primitive(self, schema: Mapping[str, Any], kind: str, properties: Mapping[str, Any]) -> Generator:
        logical = schema.get("logicalType")
        if logical == "decimal" and kind == "bytes":
            return _decimal(schema, properties)
        if "iteration" in properties:
            make = self._iteration(kind, properties["iteration"])
        elif kind == "boolean":
            odds = float(properties.get("odds", 0.5))
            make = lambda random: random.random() < odds  # noqa: E731
        elif kind == "bytes":
            length = _length(properties)
            make = lambda random: random.randbytes(length(random))  # noqa: E731
        elif kind == "string":
            make = _text(properties)
        else:
            make = _number(kind, properties.get("range", {}))
        if (kind, logical) in _LOGICAL:
            logical_schema, convert = _LOGICAL[kind, logical]
            inner = make
            return Generator(logical_schema, lambda random: convert(inner(random)))
        return Generator(REQUIRED[_PRIMITIVES[kind]], make)

    def _iteration(self, kind: str, described: Mapping[str, Any]) -> Make:
        start = described["start"]
        count = self._made_before
        if kind == "boolean":

            def alternate(_: Random) -> bool:
                nonlocal count
                count += 1
                return bool(start) if count % 2 else not start

            return alternate
        restart, first = described.get("restart"), described.get("initial", start)
        if restart is not None and restart == start:
            raise ConfigError("an iteration's restart has to differ from its start")
        step = described.get("step", -1 if restart is not None and restart < start else 1)
        number = float if kind in ("float", "double") else int

        def count_on(_: Random) -> Any:
            nonlocal count
            value = first + step * count
            count += 1
            return number(value if restart is None else start + (value - start) % (restart - start))

        return count_on


def build_generator(schema: Any, made_before: int = 0) -> Generator:
    """ConfigError where the schema makes no sense, or is not a record."""
    try:
        generator = _Builder(made_before).build(schema)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"the schema cannot be understood: {error!r}") from None
    if generator.schema.type is not Type.STRUCT:
        raise ConfigError("the schema has to be that of a record")
    return generator


def _options(options: Any) -> list[Any]:
    if isinstance(options, dict):
        if options.get("encoding") != "json":
            raise ConfigError("options of a file have to be JSON")
        loaded = orjson.loads(Path(options["file"]).read_bytes())
        return list(loaded)
    return list(options)


def _fit(schema: Schema, value: Any) -> Any:
    """A value of the options, written in JSON."""
    if value is None:
        return None
    if schema.type is Type.STRUCT:
        return Struct(schema, [_fit(field.schema, value.get(field.name)) for field in schema.fields])
    if schema.type is Type.ARRAY and schema.value_schema is not None:
        return [_fit(schema.value_schema, one) for one in value]
    if schema.type is Type.MAP and schema.value_schema is not None:
        return {key: _fit(schema.value_schema, one) for key, one in value.items()}
    if schema.type in (Type.FLOAT32, Type.FLOAT64):
        return float(value)
    if schema.type is Type.BYTES and isinstance(value, str):
        return base64.b64decode(value)
    return value


def _length(properties: Mapping[str, Any]) -> Callable[[Random], int]:
    """Up to the maximum, which is left out itself."""
    described = properties.get("length", {"min": DEFAULT_LENGTH[0], "max": DEFAULT_LENGTH[1]})
    if isinstance(described, int):
        return lambda _: described
    low = int(described.get("min", 0))
    high = int(described.get("max", low + DEFAULT_LENGTH[1]))
    return lambda random: random.randrange(low, max(high, low + 1))


def _text(properties: Mapping[str, Any]) -> Make:
    prefix, suffix = properties.get("prefix", ""), properties.get("suffix", "")
    if "regex" in properties:
        inner = text_by_regex(properties["regex"])
    else:
        length = _length(properties)
        inner = lambda random: "".join(random.choices(_LETTERS, k=length(random)))  # noqa: E731
    return lambda random: f"{prefix}{inner(random)}{suffix}"


def _number(kind: str, described: Mapping[str, Any]) -> Make:
    if kind in _INT_RANGES:
        low = int(described.get("min", _INT_RANGES[kind][0]))
        high = int(described.get("max", _INT_RANGES[kind][1]))
        return lambda random: random.randrange(low, high)
    low_float, high_float = float(described.get("min", 0)), float(described.get("max", 1))
    return lambda random: random.uniform(low_float, high_float)


def _decimal(schema: Mapping[str, Any], properties: Mapping[str, Any]) -> Generator:
    scale, precision = int(schema.get("scale", 0)), int(schema.get("precision", 9))
    described = properties.get("range", {})
    low = int(Decimal(str(described.get("min", 0))).scaleb(scale))
    high = int(Decimal(str(described["max"])).scaleb(scale)) if "max" in described else 10**precision
    return Generator(
        decimal_schema(scale), lambda random: decimal_from_unscaled(random.randrange(low, high), scale)
    )
