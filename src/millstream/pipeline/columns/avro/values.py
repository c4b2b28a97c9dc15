"""The slow way: fastavro makes Python objects, Arrow makes arrays of them.

For what the compiled loop leaves out: true unions (a struct with a member per branch), columns of nulls, types that contain
themselves and are only read past. Also for the defaults of a reader's schema, which come as JSON.
"""

import io
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.pipeline.columns.avro.types import AvroSchemas, arrow_type, found, kind_of, nullable_branch
from millstream.pipeline.columns.outcome import Decoded


class AvroValues:
    def __init__(self, writer: AvroSchemas, reader: AvroSchemas, kind: pa.DataType) -> None:
        self.type = kind
        self._reader = reader
        self._writer_schema = for_fastavro(writer)
        self._reader_schema = for_fastavro(reader)

    def decode(self, data: np.ndarray[Any, Any], starts: Any, ends: Any) -> Decoded:
        import fastavro

        view = memoryview(data)  # type: ignore[arg-type]
        rows: list[Any] = []
        bad: dict[int, str] = {}
        for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            body = io.BytesIO(view[start:end])
            try:
                value = fastavro.schemaless_reader(
                    body, self._writer_schema, self._reader_schema, return_named_type=True
                )
                if body.tell() != end - start:
                    raise ValueError("bytes are left over behind the record")
                rows.append(self._shaped(value, self._reader.root))
            except Exception as error:  # whatever bad bytes make fastavro raise
                rows.append(None)
                bad[row] = f"{type(error).__name__}: {error}" if type(error) is not ValueError else str(error)
        return Decoded(pa.array(rows, self.type), bad)

    def _shaped(self, value: Any, schema: Any) -> Any:
        """A value of fastavro's as Arrow wants it."""
        schema = found(schema, self._reader.named)
        kind = kind_of(schema)
        if value is None:
            return None
        if kind == "union":
            simple = nullable_branch(schema)
            if simple is not None:
                return self._shaped(_untagged(value), simple[1])
            members = [branch for branch in schema if kind_of(found(branch, self._reader.named)) != "null"]
            for number, branch in enumerate(members):
                if self._fits(value, branch):
                    return {f"member{number}": self._shaped(_untagged(value), branch)}
            raise ValueError("a union holds a value of none of its types")
        value = _untagged(value)
        if kind == "record":
            return {
                field["name"]: self._shaped(value[field["name"]], field["type"]) for field in schema["fields"]
            }
        if kind == "array":
            return [self._shaped(item, schema["items"]) for item in value]
        if kind == "map":
            return [(key, self._shaped(item, schema["values"])) for key, item in value.items()]
        return str(value) if type(value).__name__ == "UUID" else value

    def _fits(self, value: Any, branch: Any) -> bool:
        branch = found(branch, self._reader.named)
        kind = kind_of(branch)
        if isinstance(value, tuple):
            return kind in ("record", "enum", "fixed") and value[0] == branch["name"]
        if isinstance(branch, dict) and branch.get("logicalType"):
            expected = _LOGICAL.get(branch["logicalType"])
            if expected is not None:
                return type(value).__name__ == expected
        return isinstance(value, _PYTHON.get(kind, ())) and not (
            kind != "boolean" and isinstance(value, bool)
        )


_PYTHON: dict[str, Any] = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "string": str,
    "bytes": bytes,
    "array": list,
    "map": dict,
}
_LOGICAL = {
    "decimal": "Decimal",
    "uuid": "UUID",
    "date": "date",
    "timestamp-millis": "datetime",
    "timestamp-micros": "datetime",
    "local-timestamp-millis": "datetime",
    "local-timestamp-micros": "datetime",
}


def _untagged(value: Any) -> Any:
    return value[1] if isinstance(value, tuple) else value


def for_fastavro(schemas: AvroSchemas) -> Any:
    """Parsed, with every named type defined where it is first used. Times of day stay the numbers they are."""
    import fastavro

    return fastavro.parse_schema(_spelled_out(schemas.root, schemas.named, set()))


def _spelled_out(schema: Any, named: dict[str, Any], done: set[str]) -> Any:
    schema = found(schema, named)
    if isinstance(schema, list):
        return [_spelled_out(branch, named, done) for branch in schema]
    if isinstance(schema, str):
        return schema
    made = {key: value for key, value in schema.items() if key != "namespace"}
    if str(made.get("logicalType", "")).startswith("time-"):
        del made["logicalType"]
    if "name" in made:
        if made["name"] in done:
            return made["name"]
        done.add(made["name"])
    kind = made["type"]
    if kind == "record":
        made["fields"] = [
            {**field, "type": _spelled_out(field["type"], named, done)} for field in schema["fields"]
        ]
    elif kind == "array":
        made["items"] = _spelled_out(schema["items"], named, done)
    elif kind == "map":
        made["values"] = _spelled_out(schema["values"], named, done)
    return made


def default_array(schemas: AvroSchemas, default: Any) -> pa.Array:
    """A default of a schema as an array of one: it is written with its own schema and read back like any other value."""
    import fastavro

    from millstream.pipeline.columns.avro.decoder import AvroDecoder

    out = io.BytesIO()
    fastavro.schemaless_writer(
        out, for_fastavro(physical(schemas)), _from_json(default, schemas.root, schemas.named)
    )
    body = np.frombuffer(out.getvalue(), np.uint8)
    decoded = AvroDecoder(schemas, schemas).decode(
        body, np.zeros(1, np.int64), np.array([len(body)], np.int64)
    )
    if decoded.bad:
        raise ValueError(f"the default {default!r} does not fit its type: {decoded.bad[0]}")
    assert decoded.array.type == arrow_type(schemas)
    return decoded.array


def physical(schemas: AvroSchemas) -> AvroSchemas:
    """Without logical types: defaults are given as what they are made of."""

    def plain(schema: Any) -> Any:
        if isinstance(schema, list):
            return [plain(branch) for branch in schema]
        if isinstance(schema, dict):
            return {key: plain(value) if key in ("type", "items", "values") else (
                [{**field, "type": plain(field["type"])} for field in value] if key == "fields" else value
            ) for key, value in schema.items() if key != "logicalType"}  # fmt: skip
        return schema

    return AvroSchemas(plain(schemas.root), {name: plain(schema) for name, schema in schemas.named.items()})


def _from_json(value: Any, schema: Any, named: dict[str, Any]) -> Any:
    """Avro's JSON form of a default as Python values: bytes are text with a character a byte."""
    schema = found(schema, named)
    kind = kind_of(schema)
    if kind == "union":  # a default is of the first branch; newer versions of Avro allow any
        for branch in schema:
            try:
                return _from_json(value, branch, named)
            except (TypeError, KeyError, AttributeError, ValueError):
                continue
        raise ValueError(f"the default {value!r} fits no type of its union")
    if kind in ("bytes", "fixed"):
        return value.encode("latin-1")
    if kind == "record":
        return {
            field["name"]: _from_json(value.get(field["name"], field.get("default")), field["type"], named)
            for field in schema["fields"]
        }
    if kind == "array":
        return [_from_json(item, schema["items"], named) for item in value]
    if kind == "map":
        return {key: _from_json(item, schema["values"], named) for key, item in value.items()}
    if kind == "null":
        if value is not None:
            raise ValueError("not null")
        return None
    if kind in ("float", "double"):
        return float(value)
    if not isinstance(value, _PYTHON.get(kind, str)):
        raise TypeError(f"{value!r} is not a {kind}")
    return value
