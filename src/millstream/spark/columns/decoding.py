"""Decoding a batch of values in a Spark task: group them by the schema that wrote them, decode each group,
put the rows back in order, and say what is wrong with those that could not be decoded.

What is kept between batches (schemas, programs, connections to the registry) is kept per worker process, by
`Reading`, which is all that travels from the driver. A registry that does not answer is waited for: that is
not the records' fault.
"""

import time
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from millstream.serdes import RegisteredSchema, RegistryRefused, RegistryUnreachable, SchemaRegistry
from millstream.settings.redaction import hide_url_passwords
from millstream.spark.columns.framing import NULL, UNFRAMED, Frames, frames
from millstream.spark.columns.outcome import Decoded, reason_of
from millstream.spark.errors import PipelineError

CORRUPT_TYPE = pa.struct([("error", pa.string()), ("data", pa.binary())])
REGISTRY_TIMEOUT = 120.0  # seconds that a task waits for a registry that is away
UNKNOWN_FOR = 5.0  # seconds after which a schema that was not there is looked up again


class BodyDecoder(Protocol):
    type: pa.DataType

    def decode(self, data: np.ndarray[Any, Any], starts: Any, ends: Any) -> Decoded: ...


@dataclass(frozen=True)
class Access:
    """Where the registry is, and how to be let in."""

    url: str
    user: str | None = None
    password: str = field(default="", repr=False)
    ca_file: str | None = None

    def connect(self, timeout: float = 10.0) -> SchemaRegistry:
        return SchemaRegistry(
            self.url, user=self.user, password=self.password, ca_file=self.ca_file, timeout=timeout
        )


@dataclass(frozen=True)
class Reader:
    """The schema that the columns are made by."""

    type: str
    text: str
    resolved: tuple[tuple[str, str], ...] = ()
    message: str | None = None

    @property
    def schema(self) -> RegisteredSchema:
        return RegisteredSchema(-1, self.type, self.text, (), dict(self.resolved))


@dataclass(frozen=True)
class Reading:
    """Everything that a task needs to know to decode."""

    access: Access
    reader: Reader
    key: bool = False
    corrupt: str | None = "_corrupt"


def decoder_of(reader: Reader, writer: RegisteredSchema) -> BodyDecoder:
    """How bodies of that writer are read by this reader. Raises ValueError where they cannot be."""
    if writer.type != reader.type:
        raise ValueError(f"was written as {writer.type}, and the reader's schema is {reader.type}")
    resolved = dict(reader.resolved)
    if reader.type == "AVRO":
        from millstream.spark.columns.avro import AvroDecoder, AvroSchemas

        return AvroDecoder(
            AvroSchemas.of(writer.text, writer.resolved), AvroSchemas.of(reader.text, resolved)
        )
    if reader.type == "JSON":
        from millstream.spark.columns.json_schema import JsonDecoder
        from millstream.spark.columns.json_shape import JsonShape

        return JsonDecoder(JsonShape(reader.text, resolved))
    if reader.type == "PROTOBUF":
        from millstream.serdes.bodies import ProtobufBody
        from millstream.spark.columns.protobuf import ProtobufDecoder, message_of

        return ProtobufDecoder(ProtobufBody(writer), message_of(ProtobufBody(reader.schema), reader.message))
    raise ValueError(f"schemas of type {reader.type} are not known")


def column_type(reader: Reader, corrupt: str | None) -> pa.DataType:
    """The type of the whole column: the record's fields (or `value`, if it is not a record) and what is wrong
    with it."""
    inner = decoder_of(reader, reader.schema).type
    fields = list(inner) if pa.types.is_struct(inner) else [pa.field("value", inner)]
    if corrupt is not None:
        if any(field.name == corrupt for field in fields):
            raise ValueError(f"the schema has a field '{corrupt}' itself: choose another name by corrupt=...")
        fields.append(pa.field(corrupt, CORRUPT_TYPE))
    return pa.struct(fields)


class BatchDecoder:
    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._registry = reading.access.connect()
        self.type = column_type(reading.reader, reading.corrupt)
        self._own = decoder_of(reading.reader, reading.reader.schema)
        self._decoders: dict[int | str, BodyDecoder | str] = {}  # or why there is none
        self._until: dict[int | str, float] = {}

    def decode(self, values: pa.Array, headers: pa.Array | None = None) -> pa.Array:
        cut = frames(values, headers, self._reading.key)
        decoded = self._grouped(cut, len(values))
        nulls = cut.schema == NULL
        return self._column(values, decoded, nulls)

    def _grouped(self, cut: Frames, rows: int) -> Decoded:
        numbers = np.unique(cut.schema)
        if len(numbers) == 1 and numbers[0] not in (NULL, UNFRAMED):
            return self._group(cut, int(numbers[0]), cut.starts, cut.ends)
        bad: dict[int, str] = {}
        parts: list[pa.Array] = [pa.nulls(1, self._own.type)]  # where rows without a value point to
        where = np.zeros(rows, np.int64)
        filled = 1
        for number in numbers.tolist():
            chosen = np.flatnonzero(cut.schema == number)
            if number == NULL:
                continue
            if number == UNFRAMED:
                bad |= dict.fromkeys(chosen.tolist(), "no schema id in front")
                continue
            part = self._group(cut, number, cut.starts[chosen], cut.ends[chosen])
            bad |= {int(chosen[row]): reason for row, reason in part.bad.items()}
            where[chosen] = np.arange(filled, filled + len(chosen))
            filled += len(chosen)
            parts.append(part.array)
        return Decoded(pa.concat_arrays(parts).take(pa.array(where)), bad)

    def _group(self, cut: Frames, number: int, starts: Any, ends: Any) -> Decoded:
        schema_id = cut.schema_id(number)
        decoder = self._decoder(schema_id)
        if isinstance(decoder, str):
            return Decoded(pa.nulls(len(starts), self._own.type), dict.fromkeys(range(len(starts)), decoder))
        return decoder.decode(cut.data, np.ascontiguousarray(starts), np.ascontiguousarray(ends))

    def _decoder(self, schema_id: int | str) -> BodyDecoder | str:
        found = self._decoders.get(schema_id)
        if found is None or self._until.get(schema_id, float("inf")) < time.monotonic():
            self._until.pop(schema_id, None)
            try:
                found = self._made_for(schema_id)
            except RegistryRefused as error:
                where = hide_url_passwords(self._reading.access.url)
                found = f"schema {schema_id}: the registry at {where} answers: {error}"
                self._until[schema_id] = time.monotonic() + UNKNOWN_FOR
            self._decoders[schema_id] = found
        return found

    def _made_for(self, schema_id: int | str) -> BodyDecoder | str:
        writer = self._written_by(schema_id)
        try:
            return decoder_of(self._reading.reader, writer)
        except Exception as error:  # another registry may have taken a schema that is none to us
            return f"schema {schema_id}: {reason_of(error)}"

    def _written_by(self, schema_id: int | str) -> RegisteredSchema:
        deadline = time.monotonic() + REGISTRY_TIMEOUT
        pause = 0.1
        while True:
            try:
                if isinstance(schema_id, int):
                    return self._registry.schema(schema_id)
                return self._registry.schema_by_guid(schema_id)
            except RegistryUnreachable as error:
                if time.monotonic() > deadline:
                    raise PipelineError(f"{error} (tried for {REGISTRY_TIMEOUT:.0f} s)") from None
            except RegistryRefused as error:
                if error.status < 500 or time.monotonic() > deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

    def _column(self, values: pa.Array, decoded: Decoded, nulls: np.ndarray[Any, Any]) -> pa.Array:
        array, bad = decoded
        if self._reading.corrupt is None and bad:
            row, reason = next(iter(bad.items()))
            raise PipelineError(
                f"a record cannot be decoded: {reason}; its bytes: {_shown(values[row].as_py())}"
            )
        columns = array.flatten() if pa.types.is_struct(array.type) else [array]
        if self._reading.corrupt is not None:
            columns = [*columns, _complaints(values, bad)]
        mask = pa.array(nulls) if nulls.any() else None
        return pa.StructArray.from_arrays(columns, fields=list(self.type), mask=mask)


def _complaints(values: pa.Array, bad: dict[int, str]) -> pa.Array:
    if not bad:
        return pa.nulls(len(values), CORRUPT_TYPE)
    rows: list[Any] = [None] * len(values)
    for row, reason in bad.items():
        rows[row] = {"error": reason, "data": values[row].as_py()}
    return pa.array(rows, CORRUPT_TYPE)


def _shown(data: bytes | None) -> str:
    return "none" if data is None else f"{data[:24].hex(' ')}{' ...' if len(data) > 24 else ''}"


_made: dict[Reading, BatchDecoder] = {}


def decode_batch(reading: Reading, values: pa.Array, headers: pa.Array | None = None) -> pa.Array:
    """In a task: the decoder of an earlier batch in this process is used again."""
    found = _made.get(reading)
    if found is None:
        found = _made[reading] = BatchDecoder(reading)
    return found.decode(values, headers)
