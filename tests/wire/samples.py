"""A right request of any schema that kio knows: small, and where a field may be null or many, one of it."""

import dataclasses
import io
import types
import typing
import uuid
from datetime import datetime, timedelta
from typing import Any

from millstream.wire._kio import entity_writer

VALUES: dict[str, Any] = {
    "string": "name",
    "bytes": b"bytes",
    "records": b"records",
    "uuid": uuid.UUID(int=7),
    "bool": True,
    "float64": 1.5,
    "timedelta_i32": timedelta(milliseconds=5),
    "timedelta_i64": timedelta(milliseconds=5),
    "datetime_i64": datetime.fromtimestamp(1_700_000_000).astimezone(),
}


def sample_body(schema: Any, **instead: Any) -> bytes:
    """The bytes of a sample; instead=... replaces the value of a wire type (string="topic")."""
    out = io.BytesIO()
    entity_writer(schema)(out, _entity(schema, VALUES | instead))
    return out.getvalue()


def _entity(schema: Any, values: dict[str, Any]) -> Any:
    fields = dataclasses.fields(schema)
    return schema(
        **{field.name: _value(field.type, field.metadata.get("kafka_type"), values) for field in fields}
    )


def _value(kind: Any, wire: Any, values: dict[str, Any]) -> Any:
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        kind = next(option for option in typing.get_args(kind) if option is not type(None))
    if typing.get_origin(kind) is tuple:
        return (_value(typing.get_args(kind)[0], wire, values),)
    if dataclasses.is_dataclass(kind):
        return _entity(kind, values)
    return values.get(wire, 1)  # all the rest are integers
