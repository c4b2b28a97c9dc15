"""Records as documents: what JSON they are, how they are called, and how an index sees their fields."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from millstream.connect.data import logical
from millstream.connect.data.java_names import to_string
from millstream.connect.data.record import SinkRecord
from millstream.connect.data.schema import Schema, Type
from millstream.connect.data.struct import Struct
from millstream.connect.errors import DataError

_TEXT = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}
_MAPPINGS: dict[Type, dict[str, Any]] = {
    Type.INT8: {"type": "byte"},
    Type.INT16: {"type": "short"},
    Type.INT32: {"type": "integer"},
    Type.INT64: {"type": "long"},
    Type.FLOAT32: {"type": "float"},
    Type.FLOAT64: {"type": "double"},
    Type.BOOLEAN: {"type": "boolean"},
    Type.STRING: _TEXT,
    Type.BYTES: {"type": "binary"},
}
_LOGICAL = {
    logical.DECIMAL: {"type": "double"},
    logical.DATE: {"type": "date"},
    logical.TIME: {"type": "long"},
    logical.TIMESTAMP: {"type": "date"},
}


def document(record: SinkRecord, *, compact_maps: bool) -> dict[str, Any]:
    """DataError for a value that is no object."""
    found = _plain(record.value_schema, record.value, compact_maps)
    if not isinstance(found, dict):
        raise DataError("a document is an object: the value has to be a struct or a map")
    return found


def document_text(found: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(found, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise DataError(f"the value cannot be written as JSON: {error}") from None


def _plain(schema: Schema | None, value: Any, compact: bool) -> Any:
    if value is None:
        return None if schema is None or schema.default is None else _plain(schema, schema.default, compact)
    if isinstance(value, Struct):
        return {
            field.name: _plain(field.schema, held, compact)
            for field, held in zip(value.schema.fields, value.values, strict=True)
        }
    if isinstance(value, dict):
        return _map(schema, value, compact)
    if isinstance(value, list):
        inner = schema.value_schema if schema is not None and schema.type is Type.ARRAY else None
        return [_plain(inner, one, compact) for one in value]
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime):
        if schema is not None and schema.name == logical.DATE:
            return value.date().isoformat()
        return logical.to_millis(value)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _map(schema: Schema | None, value: dict[Any, Any], compact: bool) -> Any:
    """A map with text keys is an object; others, or all without `compact.map.entries`, are lists of pairs."""
    inner = schema.value_schema if schema is not None and schema.type is Type.MAP else None
    if schema is None or (compact and all(isinstance(key, str) for key in value)):
        return {str(key): _plain(inner, one, compact) for key, one in value.items()}
    return [
        {"key": _plain(None, key, compact), "value": _plain(inner, one, compact)}
        for key, one in value.items()
    ]


def mapping(schema: Schema, *, compact_maps: bool) -> dict[str, Any] | None:
    """How an index is told of a field; None where it may guess."""
    if schema.name in _LOGICAL:
        return _LOGICAL[schema.name]
    if schema.type is Type.STRUCT:
        fields = ((field.name, mapping(field.schema, compact_maps=compact_maps)) for field in schema.fields)
        return {"properties": {name: found for name, found in fields if found is not None}}
    if schema.type is Type.ARRAY:
        inner = schema.value_schema
        return None if inner is None else mapping(inner, compact_maps=compact_maps)
    if schema.type is Type.MAP:
        return None if compact_maps else {"type": "nested"}
    return _MAPPINGS[schema.type]


def document_id(record: SinkRecord, *, ignore_key: bool) -> str:
    """By its key, or by its topic, partition and offset."""
    if ignore_key:
        offset = record.offset if record.original_offset is None else record.original_offset
        return f"{record.topic}+{record.partition}+{offset}"
    if record.key is None:
        raise DataError(
            "a record without a key has no id; key.ignore=true takes its topic, partition and offset instead"
        )
    if isinstance(record.key, Struct | dict | list | bytes):
        raise DataError("the key is no text or number, and cannot be an id")
    return to_string(record.key, record.key_schema)
