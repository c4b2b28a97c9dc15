"""Encoding a batch of values in a Spark task: Arrow structs into bodies with the schema's id in front."""

import datetime
import decimal
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa

from millstream.serdes import to_json
from millstream.serdes.bodies import ProtobufBody, body_of
from millstream.serdes.frame import with_id
from millstream.spark.columns.avro.types import EXACT, AvroSchemas, arrow_type
from millstream.spark.columns.decoding import CORRUPT_TYPE, Access, Reader
from millstream.spark.errors import PipelineError


@dataclass(frozen=True)
class Writing:
    """Everything that a task needs to know to encode."""

    access: Access
    schema_id: int
    schema: Reader
    corrupt: str | None = None

    @property
    def output_type(self) -> pa.DataType:
        if self.corrupt is None:
            return pa.binary()
        return pa.struct([("data", pa.binary()), (self.corrupt, CORRUPT_TYPE)])


def input_type(schema: Reader) -> pa.DataType:
    """What a column must look like to be encoded by that schema; Spark casts it, and says so where it
    cannot."""
    from millstream.spark.columns.decoding import decoder_of

    return decoder_of(schema, schema.schema).type


class BatchEncoder:
    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        body = body_of(writing.schema.schema, validate=True)
        if isinstance(body, ProtobufBody) and writing.schema.message:
            body.path = body.path_to(writing.schema.message)
        self._body = body

    @cached_property
    def _write(self) -> Callable[[Any], bytes]:
        """Values to bytes."""
        schema = self._writing.schema
        if schema.type == "AVRO":
            return _avro_writer(AvroSchemas.of(schema.text, dict(schema.resolved)))
        encode = self._body.encode
        if schema.type == "JSON":
            from millstream.spark.columns.json_schema import unshaped
            from millstream.spark.columns.json_shape import JsonShape

            shape = JsonShape(schema.text, dict(schema.resolved)).shape
            return lambda value: encode(unshaped(value, shape))
        from millstream.spark.columns.protobuf import to_fill

        assert isinstance(self._body, ProtobufBody)
        descriptor = self._body.message_class(self._body.path).DESCRIPTOR
        return lambda value: encode(to_fill(value, descriptor))

    def encode(self, values: pa.Array) -> pa.Array:
        out: list[bytes | None] = []
        bad: dict[int, tuple[str, Any]] = {}
        for row, value in enumerate(_as_python(values)):
            if value is None:
                out.append(None)
                continue
            try:
                if isinstance(value, _Unreadable):
                    raise value.error
                out.append(with_id(self._writing.schema_id, self._write(value)))
            except Exception as error:  # fastavro, protobuf and jsonschema have no common ground
                reason = (
                    f"the value does not fit its schema: {str(error) or type(error).__name__}".splitlines()[0]
                )
                if self._writing.corrupt is None:
                    raise PipelineError(f"{reason}: {_shown(value)[:200]}") from None
                bad[row] = (reason, value)
                out.append(None)
        data = pa.array(out, pa.binary())
        if self._writing.corrupt is None:
            return data
        complaints: list[Any] = [None] * len(out)
        for row, (reason, value) in bad.items():
            complaints[row] = {"error": reason, "data": _shown(value).encode()}
        return pa.StructArray.from_arrays(
            [data, pa.array(complaints, CORRUPT_TYPE)], fields=list(self._writing.output_type)
        )


class _Unreadable(NamedTuple):
    """A value that Arrow has and Python has not: a map with a key twice, a time after the year 9999."""

    error: Exception
    text: str


def _as_python(values: pa.Array) -> list[Any]:
    try:
        found: list[Any] = values.to_pylist(maps_as_pydicts="strict")
        return found
    except Exception:  # one of them cannot be had: which?
        return [_one_as_python(value) for value in values]


def _one_as_python(value: pa.Scalar) -> Any:
    try:
        return value.as_py(maps_as_pydicts="strict")
    except Exception as error:  # KeyError, OverflowError, ValueError
        return _Unreadable(error, _text_of(value))


def _text_of(value: pa.Scalar) -> str:
    try:
        return to_json(value.as_py())  # maps as lists of pairs
    except Exception:  # as above
        return f"a {value.type}"


def _shown(value: Any) -> str:
    return value.text if isinstance(value, _Unreadable) else to_json(value)


def _avro_writer(schemas: AvroSchemas) -> Callable[[Any], bytes]:
    """Avro is written without logical types: numbers come as numbers out of Arrow."""
    import fastavro

    from millstream.spark.columns.avro.values import for_fastavro, physical

    schema = for_fastavro(physical(schemas))
    shape = _Raw(schemas)

    def write(value: Any) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, shape.of(value, schemas.root), strict_allow_default=True)
        return out.getvalue()

    return write


class _Raw:
    """Python values out of Arrow as what Avro's types are made of."""

    def __init__(self, schemas: AvroSchemas) -> None:
        self._named = schemas.named
        self._epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        arrow_type(schemas)

    def of(self, value: Any, schema: Any) -> Any:
        from millstream.spark.columns.avro.types import found, nullable_branch, type_name, widened

        schema = found(schema, self._named)
        avro_type = type_name(schema)
        if value is None:
            return None
        if avro_type == "union":
            simple = nullable_branch(schema)
            if simple is not None:
                made = self.of(value, simple[1])
                return made if widened(schema) is None else (simple[1], made)
            members = [branch for branch in schema if type_name(found(branch, self._named)) != "null"]
            for number, branch in enumerate(members):
                inner = value.get(f"member{number}")
                if inner is not None:
                    chosen = found(branch, self._named)
                    named = type_name(chosen) in ("record", "enum", "fixed")
                    return chosen["name"] if named else type_name(chosen), self.of(inner, chosen)
            return None
        if avro_type == "record":
            return {
                field["name"]: self.of(value.get(field["name"]), field["type"]) for field in schema["fields"]
            }
        if avro_type == "array":
            return [self.of(item, schema["items"]) for item in value]
        if avro_type == "map":
            return {key: self.of(item, schema["values"]) for key, item in value.items()}
        return self._leaf(value, schema, avro_type)

    def _leaf(self, value: Any, schema: Any, avro_type: str) -> Any:
        if isinstance(value, datetime.datetime):
            moment = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
            micros = (moment - self._epoch) // datetime.timedelta(microseconds=1)
            return micros // 1000 if schema["logicalType"].endswith("millis") else micros
        if isinstance(value, datetime.date):
            return (value - self._epoch.date()).days
        if isinstance(value, decimal.Decimal):
            size = int(schema["size"]) if avro_type == "fixed" else 0
            number = int(value.scaleb(int(schema.get("scale", 0)), EXACT))
            size = size or (number + (number < 0)).bit_length() // 8 + 1
            return number.to_bytes(size, "big", signed=True)
        if avro_type == "fixed" and isinstance(value, str):
            import uuid

            return uuid.UUID(value).bytes
        return value


_made: dict[Writing, BatchEncoder] = {}


def encode_batch(writing: Writing, values: pa.Array) -> pa.Array:
    """In a task: the encoder of an earlier batch in this process is used again."""
    found = _made.get(writing)
    if found is None:
        found = _made[writing] = BatchEncoder(writing)
    return found.encode(values)
