"""Avro rows by a registry, with schemas in the form that Confluent's Connect converter gives them.

A sink's record is `KsqlDataSourceSchema` unless it has another name; nested structs and maps are named by
the path to them; every column is a union with null. Maps are arrays of key and value, because their keys may
be null as well. fastavro reads and writes; logical types are taken out of the schemas that it sees, so that
dates stay numbers.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from millstream.serdes.client import RegisteredSchema
from millstream.sql.errors import SqlError
from millstream.sql.formats import connect
from millstream.sql.formats.connect import ConnectField, ConnectType
from millstream.sql.types import ArrayType, Base, MapType, SqlType, StructType

# Schemas from SQL -----------------------------------------------------------------------------------------

_PRIMITIVES = {
    "INT32": "int",
    "INT64": "long",
    "FLOAT64": "double",
    "BOOLEAN": "boolean",
    "STRING": "string",
    "BYTES": "bytes",
}
_LOGICAL_NAMES = {connect.DATE: "date", connect.TIME: "time-millis", connect.TIMESTAMP: "timestamp-millis"}


def schema_of(type_: ConnectType, full_name: str) -> Any:
    """The Avro schema of a key or value, as JSON."""
    return _schema(type_, [full_name])


def _optional(type_: ConnectType, names: list[str]) -> Any:
    return ["null", _schema(type_, names)]


def _split_name(full_name: str) -> dict[str, str]:
    namespace, _, name = full_name.rpartition(".")
    _check_name(name)
    return {"name": name, "namespace": namespace} if namespace else {"name": name}


def _check_name(name: str) -> None:
    if not name:
        raise SqlError("Schema is not compatible with Avro: Empty name")
    for index, character in enumerate(name):
        if character == "_" or character.isalpha() or (index and character.isdigit()):
            continue
        where = "initial character" if index == 0 else "character in"
        raise SqlError(f"Schema is not compatible with Avro: Illegal {where}: {name}")


def _schema(type_: ConnectType, names: list[str]) -> Any:
    if type_.kind == "STRUCT":
        full_name = "_".join(names)
        fields = []
        for one in type_.fields:
            name = one.name.replace(".", "_")
            _check_name(name)
            fields.append({"name": name, "type": _optional(one.type, [*names, one.name]), "default": None})
        return {"type": "record", **_split_name(full_name), "fields": fields, "connect.name": full_name}
    if type_.kind == "ARRAY":
        assert type_.value is not None
        return {"type": "array", "items": _optional(type_.value, names)}
    if type_.kind == "MAP":
        assert type_.key is not None
        assert type_.value is not None
        full_name = "_".join(names)
        fields = [
            {"name": "key", "type": _optional(type_.key, [*names, "MapKey"]), "default": None},
            {"name": "value", "type": _optional(type_.value, [*names, "MapValue"]), "default": None},
        ]
        entry = {
            "type": "record",
            **_split_name(full_name),
            "fields": fields,
            "connect.internal.type": "MapEntry",
        }
        return {"type": "array", "items": entry, "connect.name": full_name}
    if type_.name == connect.DECIMAL:
        return {
            "type": "bytes",
            "scale": type_.scale,
            "precision": type_.precision,
            "connect.version": 1,
            "connect.parameters": {
                "scale": str(type_.scale),
                "connect.decimal.precision": str(type_.precision),
            },
            "connect.name": connect.DECIMAL,
            "logicalType": "decimal",
        }
    if type_.name in _LOGICAL_NAMES:
        return {
            "type": _PRIMITIVES[type_.kind],
            "connect.version": 1,
            "connect.name": type_.name,
            "logicalType": _LOGICAL_NAMES[type_.name],
        }
    return _PRIMITIVES[type_.kind]


# Schemas from a registry ----------------------------------------------------------------------------------

_KINDS: dict[str, connect.Kind] = {
    "boolean": "BOOLEAN",
    "int": "INT32",
    "long": "INT64",
    "float": "FLOAT32",
    "double": "FLOAT64",
    "bytes": "BYTES",
    "fixed": "BYTES",
    "string": "STRING",
    "enum": "STRING",
}


class _Names:
    """The named types of a schema and of what it refers to."""

    def __init__(self) -> None:
        self._names: dict[str, Any] = {}

    def _collect(self, schema: Any, namespace: str) -> None:
        if isinstance(schema, list):
            for one in schema:
                self._collect(one, namespace)
        elif isinstance(schema, dict):
            if schema["type"] in ("record", "enum", "fixed"):
                name = _full_name(schema, namespace)
                self._names[name] = schema
                namespace = name.rpartition(".")[0]
                for one in schema.get("fields", ()):
                    self._collect(one["type"], namespace)
            elif schema["type"] == "array":
                self._collect(schema["items"], namespace)
            elif schema["type"] == "map":
                self._collect(schema["values"], namespace)
            elif isinstance(schema["type"], dict | list):
                self._collect(schema["type"], namespace)

    def _is_entry(self, items: Any, namespace: str) -> bool:
        if isinstance(items, str):
            items = self._names.get(items, self._names.get(f"{namespace}.{items}", {}))
        return isinstance(items, dict) and (
            items.get("connect.internal.type") == "MapEntry"
            or _full_name(items, namespace) == "io.confluent.connect.avro.MapEntry"
        )


class AvroType(_Names):
    """A registered schema in Connect's model, and its values: `decode` gives what `translate` takes."""

    def __init__(self, schema: RegisteredSchema) -> None:
        super().__init__()
        for text in schema.resolved.values():
            self._collect(json.loads(text), "")
        root = json.loads(schema.text)
        self._collect(root, "")
        self._open: set[str] = set()
        # Whether a union has several types: then records, enums and fixed values in unions come with their
        # names.
        self._named_branches = False
        self.type, self._value = self._build(root, "")
        self._program: Any = None
        self._root, self._resolved = root, [json.loads(text) for text in schema.resolved.values()]

    def _build(self, schema: Any, namespace: str) -> tuple[ConnectType, Callable[[Any], Any] | None]:
        """A type and what is left to do with its decoded values (None: nothing)."""
        if isinstance(schema, list):
            return self._union(schema, namespace)
        if isinstance(schema, str):
            if schema in _KINDS:
                return ConnectType(_KINDS[schema], optional=False), None
            full = schema if "." in schema or schema in self._names else f"{namespace}.{schema}"
            return self._build(self._names[full], full.rpartition(".")[0])
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self._build(kind, namespace)
        logical = schema.get("logicalType")
        if kind == "record":
            return self._record(schema, namespace)
        if kind == "array":
            return self._array(schema, namespace)
        if kind == "map":
            value, inner = self._build(schema["values"], namespace)
            made = ConnectType("MAP", optional=False, key=connect.STRING.required(), value=value)
            if inner is None:
                return made, None
            return made, lambda found: {key: inner(item) for key, item in found.items()}
        if logical == "decimal" and kind in ("bytes", "fixed"):
            scale = int(schema.get("scale", 0))
            found = connect.decimal(int(schema.get("precision", 64)), scale).required()
            return found, lambda value: _unscaled(value, scale)
        if logical in ("date", "time-millis") and kind == "int":
            return (connect.DATE_TYPE if logical == "date" else connect.TIME_TYPE).required(), None
        if logical == "timestamp-millis" and kind == "long":
            return connect.TIMESTAMP_TYPE.required(), None
        if kind == "int" and schema.get("connect.type") in ("int8", "int16"):
            return ConnectType("INT8" if schema["connect.type"] == "int8" else "INT16", optional=False), None
        if kind not in _KINDS:
            return self._build(kind, namespace)
        return ConnectType(_KINDS[kind], optional=False), None

    def _record(self, schema: Any, namespace: str) -> tuple[ConnectType, Callable[[Any], Any] | None]:
        name = _full_name(schema, namespace)
        if name in self._open:
            raise SqlError("ksqlDB does not support recursive schemas")
        self._open.add(name)
        fields, converters = [], []
        for one in schema["fields"]:
            type_, convert = self._build(one["type"], name.rpartition(".")[0])
            fields.append(ConnectField(one["name"], type_))
            if convert is not None:
                converters.append((one["name"], convert))
        self._open.discard(name)
        made = ConnectType("STRUCT", name, False, tuple(fields))
        if not converters:
            return made, None

        def apply(value: Any) -> Any:
            for field, convert in converters:
                value[field] = convert(value[field])
            return value

        return made, apply

    def _array(self, schema: Any, namespace: str) -> tuple[ConnectType, Callable[[Any], Any] | None]:
        item, inner = self._build(schema["items"], namespace)
        if item.kind == "STRUCT" and self._is_entry(schema["items"], namespace):
            kinds = {one.name: one.type for one in item.fields}
            made = ConnectType("MAP", optional=False, key=kinds["key"], value=kinds["value"])

            def entries(found: Any) -> Any:
                if inner is not None:
                    found = [inner(one) for one in found]
                return {one["key"]: one["value"] for one in found}

            return made, entries
        made = ConnectType("ARRAY", optional=False, value=item)
        return made, None if inner is None else lambda found: [inner(one) for one in found]

    def _union(self, branches: list[Any], namespace: str) -> tuple[ConnectType, Callable[[Any], Any] | None]:
        rest = [one for one in branches if one != "null"]
        if len(rest) == 1:
            type_, convert = self._build(rest[0], namespace)
            optional = ConnectType(
                type_.kind,
                type_.name,
                len(branches) > 1,
                type_.fields,
                type_.key,
                type_.value,
                type_.precision,
                type_.scale,
            )
            if isinstance(rest[0], str) and rest[0] in _KINDS and convert is None:
                return optional, None
            return optional, lambda value: None if value is None else _inside(value, convert)
        self._named_branches = True
        fields, converters = [], {}
        for one in rest:
            type_, convert = self._build(one, namespace)
            name = _branch_name(one, namespace)
            fields.append(ConnectField(name.rpartition(".")[2], type_))
            converters[name] = (name.rpartition(".")[2], convert)

        def choose(value: Any) -> Any:
            if value is None:
                return None
            tag, inside = value if isinstance(value, tuple) else (_tag(value, converters), value)
            field, convert = converters[tag]
            return {field: inside if convert is None else convert(inside)}

        return ConnectType("STRUCT", connect.UNION, True, tuple(fields)), choose

    def decode(self, body: memoryview) -> Any:
        import fastavro

        if self._program is None:
            self._program = parsed(self._root, self._resolved)
        value = fastavro.schemaless_reader(
            io.BytesIO(body), self._program, None, return_named_type=self._named_branches
        )
        return value if self._value is None else self._value(value)


def _inside(value: Any, convert: Callable[[Any], Any] | None) -> Any:
    """The value of an optional type, without the name that fastavro may have given to it."""
    if type(value) is tuple:
        value = value[1]
    return value if convert is None else convert(value)


def _tag(value: Any, branches: dict[str, Any]) -> str:
    """The branch of a value that fastavro gives without its name: everything but records, enums and fixed."""
    kinds: dict[type, tuple[str, ...]] = {
        bool: ("boolean",),
        int: ("int", "long"),
        float: ("double", "float"),
        str: ("string",),
        bytes: ("bytes",),
        list: ("array",),
        dict: ("map",),
    }
    return next(name for name in kinds[type(value)] if name in branches)


def _branch_name(schema: Any, namespace: str) -> str:
    if isinstance(schema, str):
        return schema if schema in _KINDS or "." in schema or not namespace else f"{namespace}.{schema}"
    if schema["type"] in ("record", "enum", "fixed"):
        return _full_name(schema, namespace)
    found: str = schema["type"]
    return found


def _full_name(schema: Any, namespace: str) -> str:
    name: str = schema.get("name", "")
    if "." in name:
        return name
    own = schema.get("namespace", namespace)
    return f"{own}.{name}" if own else name


def _unscaled(value: bytes, scale: int) -> Decimal:
    return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale)


def _without_logical(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical(one) for one in schema]
    if isinstance(schema, dict):
        return {
            key: _without_logical(value) if key in ("type", "items", "values", "fields") else value
            for key, value in schema.items()
            if key != "logicalType"
        }
    return schema


def parsed(schema: Any, resolved: list[Any]) -> Any:
    """For fastavro, without logical types."""
    from fastavro import parse_schema

    names: dict[str, Any] = {}
    for one in resolved:
        parse_schema(_without_logical(one), named_schemas=names)
    return parse_schema(_without_logical(schema), named_schemas=names)


# Values to Avro -------------------------------------------------------------------------------------------


def _bytes_of(value: Decimal, scale: int) -> bytes:
    number = int(value.scaleb(scale))
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


class AvroWriter(_Names):
    """Writes values of a SQL type by a schema: one made of that type, or one that somebody else registered,
    whose fields have the columns' names and which may have more of them, with defaults."""

    def __init__(self, schema: Any, resolved: list[Any], type_: SqlType) -> None:
        import fastavro

        super().__init__()
        for one in (*resolved, schema):
            self._collect(one, "")
        self._convert = self._converter(schema, type_, "")
        self._program, self._write = parsed(schema, resolved), fastavro.schemaless_writer

    def encode(self, value: Any) -> bytes:
        out = io.BytesIO()
        self._write(out, self._program, value if self._convert is None else self._convert(value))
        return out.getvalue()

    def _converter(self, schema: Any, type_: SqlType, namespace: str) -> Callable[[Any], Any] | None:
        """From a SQL value to what fastavro writes; None if it is that already."""
        if isinstance(schema, list):
            rest = [one for one in schema if one != "null"]
            return self._converter(rest[0], type_, namespace) if len(rest) == 1 else None
        if isinstance(schema, str):
            if schema in _KINDS:
                return None
            full = schema if "." in schema or schema in self._names else f"{namespace}.{schema}"
            return self._converter(self._names[full], type_, full.rpartition(".")[0])
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self._converter(kind, type_, namespace)
        if kind == "record" and isinstance(type_, StructType):
            return self._record(schema, type_, _full_name(schema, namespace).rpartition(".")[0])
        if kind == "array" and isinstance(type_, MapType) and self._is_entry(schema["items"], namespace):
            items = schema["items"]
            entry = self._names[items] if isinstance(items, str) else items
            own = next(one["type"] for one in entry["fields"] if one["name"] == "value")
            inner = self._converter(own, type_.value, namespace)
            return lambda value: (
                None
                if value is None
                else [
                    {"key": key, "value": item if inner is None else inner(item)}
                    for key, item in value.items()
                ]
            )
        if kind == "array" and isinstance(type_, ArrayType):
            item = self._converter(schema["items"], type_.item, namespace)
            if item is None:
                return None
            return lambda value: None if value is None else [item(one) for one in value]
        if kind == "map" and isinstance(type_, MapType):
            values = self._converter(schema["values"], type_.value, namespace)
            if values is None:
                return None
            return lambda value: None if value is None else {key: values(item) for key, item in value.items()}
        if schema.get("logicalType") == "decimal" and type_.base is Base.DECIMAL:
            scale = int(schema.get("scale", 0))
            return lambda value: None if value is None else _bytes_of(value, scale)
        return None

    def _record(self, schema: Any, type_: StructType, namespace: str) -> Callable[[Any], Any]:
        types = {name.replace(".", "_"): (name, one) for name, one in type_.fields}
        missing = sorted(set(types) - {one["name"] for one in schema["fields"]})
        if missing:
            raise SqlError(f"Schema from Schema Registry misses field with name: {missing[0]}")
        fields, defaults = [], set()
        for one in schema["fields"]:
            if one["name"] in types:
                name, inner = types[one["name"]]
                fields.append((name, one["name"], self._converter(one["type"], inner, namespace)))
                if one.get("default") is not None:
                    defaults.add(one["name"])

        def convert_record(value: Any) -> Any:
            if value is None:
                return None
            found = {
                written: value[name] if convert is None else convert(value[name])
                for name, written, convert in fields
            }
            for written in defaults:
                if found[written] is None:  # fastavro writes the default of what is not there
                    del found[written]
            return found

        return convert_record
