"""JSON rows by a JSON Schema in a registry, in the form of Confluent's Connect converter.

The schema decides what a value is: `connect.type` names Connect's types, `connect.index` orders the columns,
a oneOf with null is an optional field. Maps are arrays of objects with key and value, because their keys may
be null.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from millstream.serdes.client import RegisteredSchema
from millstream.sql.errors import SqlError
from millstream.sql.formats import connect
from millstream.sql.formats.connect import ConnectField, ConnectType
from millstream.sql.formats.json_rows import plain_converter
from millstream.sql.formats.values import DoesNotFit, parse_bytes
from millstream.sql.types import ArrayType, MapType, SqlType, StructType

# Schemas from SQL -----------------------------------------------------------------------------------------

_PRIMITIVES: dict[str, dict[str, Any]] = {
    "INT32": {"type": "integer", "connect.type": "int32"},
    "INT64": {"type": "integer", "connect.type": "int64"},
    "FLOAT64": {"type": "number", "connect.type": "float64"},
    "BOOLEAN": {"type": "boolean"},
    "STRING": {"type": "string"},
    "BYTES": {"type": "string", "connect.type": "bytes"},
}


def schema_of(type_: ConnectType) -> Any:
    if type_.kind == "STRUCT":
        properties = {
            one.name: {"connect.index": index, **_optional(one.type)}
            for index, one in enumerate(type_.fields)
        }
        return {"type": "object", "properties": properties}
    if type_.kind == "ARRAY":
        assert type_.value is not None
        return {"type": "array", "items": _optional(type_.value)}
    if type_.kind == "MAP":
        assert type_.key is not None
        assert type_.value is not None
        fields = (ConnectField("key", type_.key), ConnectField("value", type_.value))
        return {"type": "array", "connect.type": "map", "items": schema_of(connect.struct(fields))}
    if type_.name == connect.DECIMAL:
        return {
            "type": "number",
            "title": connect.DECIMAL,
            "connect.version": 1,
            "connect.type": "bytes",
            "connect.parameters": {
                "scale": str(type_.scale),
                "connect.decimal.precision": str(type_.precision),
            },
        }
    if type_.name is not None:
        return {
            "type": "integer",
            "title": type_.name,
            "connect.version": 1,
            "connect.type": type_.kind.lower(),
        }
    return _PRIMITIVES[type_.kind]


def _optional(type_: ConnectType) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, schema_of(type_)]}


# Schemas from a registry ----------------------------------------------------------------------------------

Decode = Callable[[Any], Any]
_KINDS: dict[str, connect.Kind] = {
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float32": "FLOAT32",
    "float64": "FLOAT64",
    "boolean": "BOOLEAN",
    "string": "STRING",
    "bytes": "BYTES",
}
_INTEGERS = connect.INTEGERS


class JsonSchemaType:
    """A registered schema in Connect's model. `decode` takes parsed JSON with exact numbers."""

    def __init__(self, schema: RegisteredSchema) -> None:
        self._root = json.loads(schema.text)
        self._others = {name: json.loads(text) for name, text in schema.resolved.items()}
        self._open: list[str] = []
        self.type, self.decode = self._build(self._root)

    def _build(self, schema: Any) -> tuple[ConnectType, Decode]:
        if not isinstance(schema, dict):
            raise SqlError(f"Unsupported JSON schema: {schema}")
        if "$ref" in schema:
            return self._reference(schema["$ref"])
        for word in ("oneOf", "anyOf"):
            if word in schema:
                return self._union(schema[word])
        if "allOf" in schema:
            return self._build(_merged(schema))
        kind = schema.get("type")
        if isinstance(kind, list):
            return self._union([{**schema, "type": one} for one in kind])
        if "enum" in schema or (kind is None and "const" in schema):
            return connect.STRING, _text
        if kind == "object" or (kind is None and "properties" in schema):
            return self._object(schema)
        if kind == "array":
            return self._array(schema)
        return _primitive(schema, kind)

    def _reference(self, reference: str) -> tuple[ConnectType, Decode]:
        if reference in self._open:
            raise SqlError("ksqlDB does not support recursive schemas")
        self._open.append(reference)
        file, _, pointer = reference.partition("#")
        found: Any = self._others[file] if file else self._root
        for step in pointer.strip("/").split("/") if pointer.strip("/") else ():
            found = found[step.replace("~1", "/").replace("~0", "~")]
        made = self._build(found)
        self._open.pop()
        return made

    def _union(self, branches: list[Any]) -> tuple[ConnectType, Decode]:
        rest = [one for one in branches if one.get("type") != "null"]
        if len(rest) == 1:
            return self._build(rest[0])
        built = [self._build(one) for one in rest]
        fields = tuple(
            ConnectField(f"connect_union_field_{index}", type_) for index, (type_, _) in enumerate(built)
        )

        def decode(value: Any) -> Any:
            if value is None:
                return None
            for index, (_, inner) in enumerate(built):
                try:
                    return {f"connect_union_field_{index}": inner(value)}
                except DoesNotFit:
                    continue
            raise DoesNotFit("no branch of the union fits")

        return connect.struct(fields, connect.UNION), decode

    def _object(self, schema: Any) -> tuple[ConnectType, Decode]:
        if schema.get("connect.type") == "map" or (
            "properties" not in schema and isinstance(schema.get("additionalProperties"), dict)
        ):
            value, inner = self._build(schema["additionalProperties"])
            made = connect.mapping(connect.STRING.required(), value)
            return made, _map_decoder(inner)
        properties = schema.get("properties", {})
        order = sorted(properties, key=lambda name: properties[name].get("connect.index", len(properties)))
        built = {name: self._build(properties[name]) for name in order}
        fields = tuple(ConnectField(name, type_) for name, (type_, _) in built.items())
        decoders = [(name, inner) for name, (_, inner) in built.items()]

        def decode(value: Any) -> Any:
            if value is None:
                return None
            if type(value) is not dict:
                raise DoesNotFit("an object is needed")
            return {name: inner(value.get(name)) for name, inner in decoders}

        return connect.struct(fields, schema.get("title")), decode

    def _array(self, schema: Any) -> tuple[ConnectType, Decode]:
        item, inner = self._build(schema.get("items", {}))
        if schema.get("connect.type") == "map":
            kinds = {one.name: one.type for one in item.fields}
            made = connect.mapping(kinds["key"], kinds["value"])

            def entries(value: Any) -> Any:
                if value is None:
                    return None
                found = [inner(one) for one in value]
                return {one["key"]: one["value"] for one in found}

            return made, entries

        def decode(value: Any) -> Any:
            if value is None:
                return None
            if type(value) is not list:
                raise DoesNotFit("an array is needed")
            return [inner(one) for one in value]

        return connect.array(item), decode


def _merged(schema: Any) -> Any:
    """An allOf as one object; what is not an object keeps its last word."""
    found: dict[str, Any] = {key: value for key, value in schema.items() if key != "allOf"}
    for one in schema["allOf"]:
        for key, value in one.items():
            found[key] = {**found.get(key, {}), **value} if isinstance(value, dict) else value
    return found


def _map_decoder(inner: Decode) -> Decode:
    def decode(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not dict:
            raise DoesNotFit("an object is needed")
        return {key: inner(item) for key, item in value.items()}

    return decode


def _primitive(schema: Any, kind: Any) -> tuple[ConnectType, Decode]:
    named = schema.get("connect.type")
    title = schema.get("title")
    if title == connect.DECIMAL and named == "bytes":
        parameters = schema.get("connect.parameters", {})
        precision = int(parameters.get("connect.decimal.precision", 64))
        return connect.decimal(precision, int(parameters.get("scale", 0))), _decimal
    if title in (connect.DATE, connect.TIME, connect.TIMESTAMP):
        return ConnectType("INT64" if title == connect.TIMESTAMP else "INT32", title), _integer
    if named in _KINDS and kind in ("integer", "number"):
        found = _KINDS[named]
        return ConnectType(found), _integer if found in _INTEGERS else _double
    if kind == "integer":
        return connect.INT64, _integer
    if kind == "number":
        return connect.FLOAT64, _double
    if kind == "boolean":
        return connect.BOOLEAN, _boolean
    if kind == "string":
        return (connect.BYTES, _bytes) if named == "bytes" else (connect.STRING, _text)
    raise SqlError(f"Unsupported criterion type {kind}")


def _integer(value: Any) -> Any:
    if value is None or (type(value) is int):
        return value
    if isinstance(value, float | Decimal):
        return int(value)
    raise DoesNotFit("an integer is needed")


def _double(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return float(value)
    raise DoesNotFit("a number is needed")


def _decimal(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, int | Decimal | str) and not isinstance(value, bool):
        return Decimal(value)
    raise DoesNotFit("a number is needed")


def _boolean(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    raise DoesNotFit("a boolean is needed")


def _text(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    raise DoesNotFit("a string is needed")


def _bytes(value: Any) -> Any:
    return None if value is None else parse_bytes(_text(value))


# Values to JSON -------------------------------------------------------------------------------------------


def to_json(type_: SqlType, maps_as_objects: bool = False) -> Callable[[Any], Any] | None:
    """From a SQL value to what orjson writes; None if it is that already."""
    if isinstance(type_, MapType):
        inner = to_json(type_.value, maps_as_objects)
        if maps_as_objects:
            return lambda value: (
                None
                if value is None
                else {key: item if inner is None else inner(item) for key, item in value.items()}
            )
        return lambda value: (
            None
            if value is None
            else [
                {"key": key, "value": item if inner is None else inner(item)} for key, item in value.items()
            ]
        )
    if isinstance(type_, ArrayType):
        item = to_json(type_.item, maps_as_objects)
        return (
            None if item is None else (lambda value: None if value is None else [item(one) for one in value])
        )
    if isinstance(type_, StructType):
        fields = {
            name: found for name, one in type_.fields if (found := to_json(one, maps_as_objects)) is not None
        }
        if not fields:
            return None
        return lambda value: (
            None
            if value is None
            else {name: fields[name](one) if name in fields else one for name, one in value.items()}
        )
    return plain_converter(type_)
