"""The recorder's JSON to our data and back: values with their Java type, schemas as in JsonConverter."""

from __future__ import annotations

import base64
from datetime import datetime
from decimal import Decimal
from typing import Any

from millstream.connect.converters.json import JsonConverter
from millstream.connect.data import logical
from millstream.connect.data.java_names import number_text
from millstream.connect.data.record import Header, Record, SchemaAndValue, SinkRecord
from millstream.connect.data.schema import Schema, Type
from millstream.connect.data.struct import Struct
from millstream.serdes.java_text import to_float32

SCHEMAS = JsonConverter({})
_TAGS = {
    Type.INT8: "i8",
    Type.INT16: "i16",
    Type.INT32: "i32",
    Type.INT64: "i64",
    Type.FLOAT32: "f32",
    Type.FLOAT64: "f64",
}


def to_value(schema: Schema | None, tagged: Any) -> Any:
    if tagged is None:
        return None
    ((tag, content),) = tagged.items()
    if tag in ("i8", "i16", "i32", "i64", "bool", "str"):
        return content
    if tag == "f32":
        return to_float32(float(content))
    if tag == "f64":
        return float(content)
    if tag == "bytes":
        return base64.b64decode(content)
    if tag == "dec":
        return Decimal(content)
    if tag == "date":
        return logical.from_millis(content)
    inner = schema.value_schema if schema is not None and schema.type in (Type.ARRAY, Type.MAP) else None
    if tag == "list":
        return [to_value(inner, one) for one in content]
    if tag == "map":
        keys = schema.key_schema if schema is not None else None
        return {to_value(keys, key): to_value(inner, one) for key, one in content}
    assert tag == "struct" and schema is not None
    struct = Struct(schema)
    for name, one in content.items():
        found = schema.field(name)
        assert found is not None
        struct.put(name, to_value(found.schema, one))
    return struct


def from_value(schema: Schema | None, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int | float):
        kind = schema.type if schema is not None and schema.type in _TAGS else None
        if kind is None:
            kind = Type.INT64 if isinstance(value, int) else Type.FLOAT64
        text = value if isinstance(value, int) else number_text(value, Schema(kind))
        return {_TAGS[kind]: text}
    if isinstance(value, str):
        return {"str": value}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, Decimal):
        return {"dec": number_text(value)}
    if isinstance(value, datetime):
        return {"date": logical.to_millis(value)}
    if isinstance(value, list):
        inner = schema.value_schema if schema is not None else None
        return {"list": [from_value(inner, one) for one in value]}
    if isinstance(value, dict):
        keys, inner = (schema.key_schema, schema.value_schema) if schema is not None else (None, None)
        return {"map": [[from_value(keys, key), from_value(inner, one)] for key, one in value.items()]}
    assert isinstance(value, Struct)
    return {
        "struct": {
            field.name: from_value(field.schema, value.values[field.index]) for field in value.schema.fields
        }
    }


def to_record(case: Any) -> SinkRecord:
    key_schema = SCHEMAS.schema_from_json(case["key"]["schema"])
    value_schema = SCHEMAS.schema_from_json(case["value"]["schema"])
    headers = []
    for header in case["headers"]:
        schema = SCHEMAS.schema_from_json(header["schema"])
        headers.append(Header(header["name"], schema, to_value(schema, header["value"])))
    return SinkRecord(
        topic=case["topic"],
        partition=case["partition"],
        offset=case["offset"],
        timestamp=case["timestamp"],
        key_schema=key_schema,
        key=to_value(key_schema, case["key"]["value"]),
        value_schema=value_schema,
        value=to_value(value_schema, case["value"]["value"]),
        headers=tuple(headers),
    )


def schema_json(schema: Schema | None) -> Any:
    """As the recorder writes it: a container of nulls only has a name."""
    import json

    if schema is None:
        return None
    empty = (schema.type is Type.ARRAY and schema.value_schema is None) or (
        schema.type is Type.MAP and (schema.value_schema is None or schema.key_schema is None)
    )
    if empty:
        return "no element schema"
    return json.loads(SCHEMAS._schema_text(schema))


def both(found: SchemaAndValue) -> Any:
    return {"schema": schema_json(found.schema), "value": from_value(found.schema, found.value)}


def from_record(record: Record | None) -> Any:
    if record is None:
        return None
    return {
        "topic": record.topic,
        "partition": record.partition,
        "timestamp": record.timestamp,
        "key": both(SchemaAndValue(record.key_schema, record.key)),
        "value": both(SchemaAndValue(record.value_schema, record.value)),
        "headers": [
            both(SchemaAndValue(header.schema, header.value)) | {"name": header.name}
            for header in record.headers
        ],
    }


def normal(node: Any, schema: Any = "none") -> Any:
    """Without what our data does not have: the order of a map, and the width of a number without a schema."""
    if isinstance(node, dict):
        if set(node) == {"map"}:
            entries = [normal(entry, schema) for entry in node["map"]]
            return {"map": sorted(entries, key=repr)}
        if set(node) >= {"schema", "value"} and node["schema"] is None:
            rest = {key: normal(one) for key, one in node.items() if key != "value"}
            return rest | {"value": normal(_widened(node["value"]))}
        if isinstance(node.get("schema"), str) or _without_elements(node.get("schema")):
            return {key: normal(_widened(one) if key == "value" else one) for key, one in node.items()} | {
                "schema": "no element schema"
            }
        if set(node) == {"f32"}:
            # Java before 19 prints more digits than needed.
            return {"f32": to_float32(float(node["f32"])).hex()}
        return {key: normal(one, schema) for key, one in node.items()}
    if isinstance(node, list):
        return [normal(one, schema) for one in node]
    return node


def _without_elements(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    kind = schema.get("type")
    return (kind == "array" and schema.get("items") is None) or (
        kind == "map" and (schema.get("keys") is None or schema.get("values") is None)
    )


def _widened(node: Any) -> Any:
    if isinstance(node, dict):
        ((tag, content),) = node.items()
        if tag in ("i8", "i16", "i32"):
            return {"i64": content}
        if tag == "f32":
            return {"f64": number_text(to_float32(float(content)))}
        if tag in ("list", "map", "struct"):
            return {tag: _widened(content)}
        return node
    return [_widened(one) for one in node] if isinstance(node, list) else node
