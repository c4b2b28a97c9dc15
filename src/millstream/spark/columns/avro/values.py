"""The slow way: fastavro makes Python objects, Arrow makes arrays of them.

For what the compiled loop leaves out: true unions (a struct with a member per branch), columns of nulls,
types that contain themselves and are only read past. Also for the defaults of a reader's schema, which come
as JSON.

fastavro only reads what values are made of; what they stand for (decimals, uuids, timestamps) is made of that
here, by the reader's schema and by the same rules as in the compiled way.
"""

import decimal
import io
import struct
import uuid
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.spark.columns.avro.types import (
    EXACT,
    MAX_MILLIS,
    AvroSchemas,
    arrow_type,
    found,
    nullable_branch,
    type_name,
)
from millstream.spark.columns.outcome import Decoded, by_halves, reason_of

_NUMBERS = (("int", "long"), ("float", "double"))
_TAG = "millstream.branch_"


class AvroValues:
    def __init__(self, writer: AvroSchemas, reader: AvroSchemas, arrow_type: pa.DataType) -> None:
        self.type = arrow_type
        self._reader = reader
        # Only where nothing has to be resolved can the branches of a union be told apart by tags.
        same = writer == reader
        self._writer_schema = for_fastavro(physical(writer), tagged=same)
        self._reader_schema = None if same else for_fastavro(physical(reader))

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
                bad[row] = reason_of(error)
        return Decoded(by_halves(rows, lambda some: pa.array(some, self.type), self.type, bad), bad)

    def _shaped(self, value: Any, schema: Any) -> Any:
        """A value of fastavro's as Arrow wants it."""
        schema = found(schema, self._reader.named)
        avro_type = type_name(schema)
        if value is None:
            return None
        if avro_type == "union":
            simple = nullable_branch(schema)
            if simple is not None:
                return self._shaped(_untagged(value), simple[1])
            members = [branch for branch in schema if type_name(found(branch, self._reader.named)) != "null"]
            number = self._branch(value, members)
            return {f"member{number}": self._shaped(_untagged(value), members[number])}
        value = _untagged(value)
        if avro_type == "record":
            return {
                field["name"]: self._shaped(value[field["name"]], field["type"]) for field in schema["fields"]
            }
        if avro_type == "array":
            return [self._shaped(item, schema["items"]) for item in value]
        if avro_type == "map":
            return [(key, self._shaped(item, schema["values"])) for key, item in value.items()]
        return value if isinstance(schema, str) else _meant(value, schema, avro_type)

    def _branch(self, value: Any, members: list[Any]) -> int:
        """Which member a value belongs to: the first that holds it exactly, or the first that holds it at
        all."""
        found_members = [found(branch, self._reader.named) for branch in members]
        for exactly in (True, False):
            for number, branch in enumerate(found_members):
                if _fits(value, branch, exactly):
                    return number
        raise ValueError("a union holds a value of none of its types")


def _fits(value: Any, branch: Any, exactly: bool) -> bool:
    avro_type = type_name(branch)
    if isinstance(value, tuple):
        return bool(
            value[0] == (branch["name"] if avro_type in ("record", "enum", "fixed") else f"{_TAG}{avro_type}")
        )
    if exactly and avro_type == "int" and isinstance(value, int):
        return not isinstance(value, bool) and -(1 << 31) <= value < 1 << 31
    if exactly and avro_type == "float" and isinstance(value, float):
        return value != value or _as_float(value) == value
    return isinstance(value, _PYTHON.get(avro_type, ())) and not (
        avro_type != "boolean" and isinstance(value, bool)
    )


def _as_float(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf")


def _meant(value: Any, schema: Any, avro_type: str) -> Any:
    """What a number or bytes stand for, in a form that Arrow takes."""
    logical = schema.get("logicalType")
    if logical == "decimal" and avro_type in ("bytes", "fixed"):
        number = int.from_bytes(value, "big", signed=True)
        if abs(number) >= 10 ** int(schema["precision"]):
            raise ValueError("a decimal is longer than its type allows")
        return decimal.Decimal(number).scaleb(-int(schema.get("scale", 0)), EXACT)
    if logical == "uuid" and avro_type == "fixed":
        return str(uuid.UUID(bytes=value))
    if avro_type == "long" and str(logical).endswith("timestamp-millis"):
        if not -MAX_MILLIS <= value <= MAX_MILLIS:
            raise ValueError("a timestamp is out of range")
        return 1000 * value
    return value


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


def _untagged(value: Any) -> Any:
    if not isinstance(value, tuple):
        return value
    return value[1]["value"] if value[0].startswith(_TAG) else value[1]


def for_fastavro(schemas: AvroSchemas, tagged: bool = False) -> Any:
    """Parsed, with every named type defined where it is first used.

    fastavro tells of a union's value which record, enum or fixed it is, but not whether it was an int or a
    long. With `tagged`, numbers in unions where that matters are records of one field: these have the same
    bytes, and a name.
    """
    import fastavro

    return fastavro.parse_schema(_spelled_out(schemas.root, schemas.named, set(), tagged))


def _spelled_out(schema: Any, named: dict[str, Any], done: set[str], tagged: bool) -> Any:
    schema = found(schema, named)
    if isinstance(schema, list):
        branches = [_spelled_out(branch, named, done, tagged) for branch in schema]
        return _with_tags(branches, done) if tagged and nullable_branch(schema) is None else branches
    if isinstance(schema, str):
        return schema
    made = {key: value for key, value in schema.items() if key != "namespace"}
    if "name" in made:
        if made["name"] in done:
            return made["name"]
        done.add(made["name"])
    avro_type = made["type"]
    if avro_type == "record":
        made["fields"] = [
            {**field, "type": _spelled_out(field["type"], named, done, tagged)} for field in schema["fields"]
        ]
    elif avro_type == "array":
        made["items"] = _spelled_out(schema["items"], named, done, tagged)
    elif avro_type == "map":
        made["values"] = _spelled_out(schema["values"], named, done, tagged)
    return made


def _with_tags(branches: list[Any], done: set[str]) -> list[Any]:
    avro_types = {type_name(branch) for branch in branches}
    alike = {avro_type for pair in _NUMBERS if avro_types.issuperset(pair) for avro_type in pair}

    def tag(branch: Any) -> Any:
        avro_type = type_name(branch)
        if avro_type not in alike:
            return branch
        name = f"{_TAG}{avro_type}"
        if name in done:
            return name
        done.add(name)
        return {"type": "record", "name": name, "fields": [{"name": "value", "type": avro_type}]}

    return [tag(branch) for branch in branches]


def default_array(schemas: AvroSchemas, default: Any) -> pa.Array:
    """A default of a schema as an array of one: it is written with its own schema and read back like any
    other value."""
    import fastavro

    from millstream.spark.columns.avro.decoder import AvroDecoder

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
    avro_type = type_name(schema)
    if avro_type == "union":  # a default is of the first branch; newer versions of Avro allow any
        for branch in schema:
            try:
                return _from_json(value, branch, named)
            except (TypeError, KeyError, AttributeError, ValueError):
                continue
        raise ValueError(f"the default {value!r} fits no type of its union")
    if avro_type in ("bytes", "fixed"):
        return value.encode("latin-1")
    if avro_type == "record":
        return {
            field["name"]: _from_json(value.get(field["name"], field.get("default")), field["type"], named)
            for field in schema["fields"]
        }
    if avro_type == "array":
        return [_from_json(item, schema["items"], named) for item in value]
    if avro_type == "map":
        return {key: _from_json(item, schema["values"], named) for key, item in value.items()}
    if avro_type == "null":
        if value is not None:
            raise ValueError("not null")
        return None
    if avro_type in ("float", "double"):
        return float(value)
    if not isinstance(value, _PYTHON.get(avro_type, str)):
        raise TypeError(f"{value!r} is not a {avro_type}")
    return value
