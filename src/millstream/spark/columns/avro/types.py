"""What an Avro schema looks like as an Arrow type.

The choices are those of Spark's own Avro functions: enums and uuids are strings, `["null", T]` is a T that
may be null, a union of int and long is a long and one of float and double a double (as plain numbers,
whatever they stand for), any other union of several types is a struct with a field per branch (member0,
member1, ...) of which one is set. Times of day stay numbers. A schema that contains itself has no type in
Spark: it is refused, with the way out (a reader's schema without that field).
"""

import decimal
from typing import Any, NamedTuple

import pyarrow as pa

PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
INSTANT = pa.timestamp("us", tz="UTC")
LOCAL = pa.timestamp("us")
MAX_DIGITS = 38
EXACT = decimal.Context(prec=2 * MAX_DIGITS)  # Python's own rounds to 28
MAX_MILLIS = (2**63 - 1) // 1000  # that microseconds can say
WIDER = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}


class Unsuitable(ValueError):
    """A schema that cannot be a column."""


class AvroSchemas(NamedTuple):
    """A schema, parsed as JSON, and the named types it can refer to, by full name."""

    root: Any
    named: dict[str, Any]

    @classmethod
    def of(cls, text: str, resolved: dict[str, str] | None = None) -> "AvroSchemas":
        import json

        named: dict[str, Any] = {}
        for other in (resolved or {}).values():
            _qualify(json.loads(other), "", named)
        return cls(_qualify(json.loads(text), "", named), named)


def _qualify(schema: Any, namespace: str, named: dict[str, Any]) -> Any:
    """The same schema with full names everywhere, and its named types collected."""
    if isinstance(schema, str):
        return schema if schema in PRIMITIVES or "." in schema or not namespace else f"{namespace}.{schema}"
    if isinstance(schema, list):
        return [_qualify(branch, namespace, named) for branch in schema]
    avro_type = schema["type"]
    if isinstance(avro_type, dict | list):  # {"type": {"type": "string"}} means the inner one
        return _qualify(avro_type, namespace, named)
    made = dict(schema)
    if avro_type in ("record", "error", "enum", "fixed"):
        name = schema["name"]
        if "." not in name:
            space = schema.get("namespace", namespace)
            name = f"{space}.{name}" if space else name
        made["name"] = name
        namespace = name.rpartition(".")[0]
        named[name] = made
        if avro_type in ("record", "error"):
            made["type"] = "record"
            made["fields"] = [
                {**field, "type": _qualify(field["type"], namespace, named)} for field in schema["fields"]
            ]
    elif avro_type == "array":
        made["items"] = _qualify(schema["items"], namespace, named)
    elif avro_type == "map":
        made["values"] = _qualify(schema["values"], namespace, named)
    elif avro_type not in PRIMITIVES:
        return _qualify(avro_type, namespace, named)
    return made


def type_name(schema: Any) -> str:
    """The type of a schema: a primitive's name, record, enum, array, map, fixed or union."""
    if isinstance(schema, list):
        return "union"
    return schema if isinstance(schema, str) else str(schema["type"])


def found(schema: Any, named: dict[str, Any]) -> Any:
    """The definition behind a name."""
    if isinstance(schema, str) and schema not in PRIMITIVES:
        if schema in named:
            return named[schema]
        short = schema.rpartition(".")[2]  # a name of the empty namespace, used inside another one
        if short in named:
            return named[short]
        raise Unsuitable(f"the Avro schema names a type '{schema}' that it does not define")
    return schema


def nullable_branch(schema: Any) -> tuple[bool, Any] | None:
    """(whether null is allowed, the one other type) where a schema comes down to one type; None for true
    unions."""
    if not isinstance(schema, list):
        return False, schema
    others = [branch for branch in schema if type_name(branch) != "null"]
    if len(others) == 1:
        return len(schema) > 1, others[0]
    wider = widened(schema)
    return None if wider is None else (len(schema) > len(others), wider)


def widened(schema: Any) -> str | None:
    """The one type that holds all numbers of a union of int and long, or of float and double."""
    others = [type_name(branch) for branch in schema if type_name(branch) != "null"]
    return WIDER.get(frozenset(others)) if len(others) == 2 else None


def arrow_type(schemas: AvroSchemas) -> pa.DataType:
    return _type(schemas.root, schemas.named, ())


def _type(schema: Any, named: dict[str, Any], inside: tuple[str, ...]) -> pa.DataType:
    schema = found(schema, named)
    avro_type = type_name(schema)
    if avro_type == "union":
        simple = nullable_branch(schema)
        if simple is not None:
            return _type(simple[1], named, inside)
        members = [branch for branch in schema if type_name(found(branch, named)) != "null"]
        return pa.struct(
            [(f"member{number}", _type(branch, named, inside)) for number, branch in enumerate(members)]
        )
    if avro_type == "record":
        name = schema["name"]
        if name in inside:
            raise Unsuitable(
                f"the Avro record {name} contains itself, which no column can; read it with a schema without "
                "that field"
            )
        return pa.struct(
            [(field["name"], _type(field["type"], named, (*inside, name))) for field in schema["fields"]]
        )
    if avro_type == "array":
        return pa.list_(pa.field("element", _type(schema["items"], named, inside)))
    if avro_type == "map":
        return pa.map_(pa.string(), pa.field("value", _type(schema["values"], named, inside)))
    return leaf_type(schema)


def leaf_type(schema: Any) -> pa.DataType:
    avro_type = type_name(schema)
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if logical == "decimal" and avro_type in ("bytes", "fixed"):
        precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
        if precision > MAX_DIGITS:
            raise Unsuitable(f"a decimal of {precision} digits is longer than Spark's {MAX_DIGITS}")
        return pa.decimal128(precision, scale)
    if logical == "uuid" and avro_type in ("string", "fixed"):
        return pa.string()
    if (logical, avro_type) == ("date", "int"):
        return pa.date32()
    if logical in ("timestamp-millis", "timestamp-micros") and avro_type == "long":
        return INSTANT
    if logical in ("local-timestamp-millis", "local-timestamp-micros") and avro_type == "long":
        return LOCAL
    if avro_type == "enum":
        return pa.string()
    if avro_type == "fixed":
        return pa.binary()
    return PRIMITIVES[avro_type]
