"""Encoding a batch of values in a Spark task: Arrow structs into bodies with the schema's id in front."""

import datetime
import io
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from millstream.pipeline.columns.avro.types import AvroSchemas, arrow_type
from millstream.pipeline.columns.decoding import CORRUPT_TYPE, Access, Reader
from millstream.pipeline.errors import PipelineError
from millstream.serdes import to_json
from millstream.serdes.bodies import ProtobufBody, body_of
from millstream.serdes.frame import with_id


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
    """What a column must look like to be encoded by that schema; Spark casts it, and says so where it cannot."""
    from millstream.pipeline.columns.decoding import decoder_of

    return decoder_of(schema, schema.schema).type


class BatchEncoder:
    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        body = body_of(writing.schema.schema, validate=True)
        if isinstance(body, ProtobufBody) and writing.schema.message:
            body.path = body.path_to(writing.schema.message)
        self._body = body
        self._avro = writing.schema.type == "AVRO"

    @cached_property
    def _write(self) -> Any:
        """Values to bytes. Avro is written without logical types: numbers come as numbers out of Arrow."""
        if not self._avro:
            leave_out = self._writing.schema.type != "AVRO"
            return lambda value: self._body.encode(_present(value) if leave_out else value)
        import fastavro

        from millstream.pipeline.columns.avro.values import for_fastavro, physical

        schemas = AvroSchemas.of(self._writing.schema.text, dict(self._writing.schema.resolved))
        schema = for_fastavro(physical(schemas))
        shape = _Raw(schemas)

        def write(value: Any) -> bytes:
            out = io.BytesIO()
            fastavro.schemaless_writer(out, schema, shape.of(value, schemas.root), strict_allow_default=True)
            return out.getvalue()

        return write

    def encode(self, values: pa.Array) -> pa.Array:
        out: list[bytes | None] = []
        bad: dict[int, tuple[str, Any]] = {}
        for row, value in enumerate(values.to_pylist(maps_as_pydicts="strict")):
            if value is None:
                out.append(None)
                continue
            try:
                out.append(with_id(self._writing.schema_id, self._write(value)))
            except Exception as error:  # fastavro, protobuf and jsonschema have no common ground
                reason = (
                    f"the value does not fit its schema: {str(error) or type(error).__name__}".splitlines()[0]
                )
                if self._writing.corrupt is None:
                    raise PipelineError(f"{reason}: {to_json(value)[:200]}") from None
                bad[row] = (reason, value)
                out.append(None)
        data = pa.array(out, pa.binary())
        if self._writing.corrupt is None:
            return data
        complaints: list[Any] = [None] * len(out)
        for row, (reason, value) in bad.items():
            complaints[row] = {"error": reason, "data": to_json(value).encode()}
        return pa.StructArray.from_arrays(
            [data, pa.array(complaints, CORRUPT_TYPE)], fields=list(self._writing.output_type)
        )


class _Raw:
    """Python values out of Arrow as what Avro's types are made of."""

    def __init__(self, schemas: AvroSchemas) -> None:
        self._named = schemas.named
        self._epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        arrow_type(schemas)

    def of(self, value: Any, schema: Any) -> Any:
        from millstream.pipeline.columns.avro.types import found, kind_of, nullable_branch

        schema = found(schema, self._named)
        kind = kind_of(schema)
        if value is None:
            return None
        if kind == "union":
            simple = nullable_branch(schema)
            if simple is not None:
                return self.of(value, simple[1])
            members = [branch for branch in schema if kind_of(found(branch, self._named)) != "null"]
            for number, branch in enumerate(members):
                inner = value.get(f"member{number}")
                if inner is not None:
                    made = self.of(inner, branch)
                    branch = found(branch, self._named)
                    return (branch["name"], made) if isinstance(branch, dict) and "name" in branch else made
            return None
        if kind == "record":
            return {
                field["name"]: self.of(value.get(field["name"]), field["type"]) for field in schema["fields"]
            }
        if kind == "array":
            return [self.of(item, schema["items"]) for item in value]
        if kind == "map":
            return {key: self.of(item, schema["values"]) for key, item in value.items()}
        return self._leaf(value, schema, kind)

    def _leaf(self, value: Any, schema: Any, kind: str) -> Any:
        if isinstance(value, datetime.datetime):
            moment = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
            micros = (moment - self._epoch) // datetime.timedelta(microseconds=1)
            return micros // 1000 if schema["logicalType"].endswith("millis") else micros
        if isinstance(value, datetime.date):
            return (value - self._epoch.date()).days
        if type(value).__name__ == "Decimal":
            size = int(schema["size"]) if kind == "fixed" else 0
            number = int(value.scaleb(int(schema.get("scale", 0))))
            size = size or (number + (number < 0)).bit_length() // 8 + 1
            return number.to_bytes(size, "big", signed=True)
        if kind == "fixed" and isinstance(value, str):
            import uuid

            return uuid.UUID(value).bytes
        return value


def _present(value: Any) -> Any:
    """Without fields that are null: JSON and Protobuf leave them out."""
    if isinstance(value, dict):
        return {key: _present(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_present(item) for item in value]
    return value


_made: dict[Writing, BatchEncoder] = {}


def encode_batch(writing: Writing, values: pa.Array) -> pa.Array:
    """In a task: the encoder of an earlier batch in this process is used again."""
    found = _made.get(writing)
    if found is None:
        found = _made[writing] = BatchEncoder(writing)
    return found.encode(values)
