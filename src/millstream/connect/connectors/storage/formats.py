"""What stands in a file: JSON lines, raw bytes, Avro containers, Parquet.

The same records make the same bytes: a range that is written again after a crash takes its own place.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millstream.connect.config.config_def import ConfigError
from millstream.connect.connectors.storage.stores import Output
from millstream.connect.converters.json import JsonConverter
from millstream.connect.data.java_names import to_string
from millstream.connect.data.record import SinkRecord
from millstream.connect.data.schema import Schema
from millstream.connect.errors import DataError

ROWS_PER_BATCH = 8_192
ROWS_PER_GROUP = 131_072


class Writer(ABC):
    """One file. `add` raises DataError for a record that this format cannot hold; the file goes on."""

    def __init__(self, output: Output) -> None:
        self.output = output

    reject: Callable[[SinkRecord, Exception], None]
    """For records that turn out not to fit after `add`; set by whoever made the writer."""

    @abstractmethod
    def add(self, record: SinkRecord, value: Any) -> None:
        """`value` is the record's, under the file's schema."""

    def add_many(self, records: Sequence[SinkRecord]) -> None:
        """Records of the file's own schema. One that does not fit is rejected."""
        for record in records:
            try:
                self.add(record, record.value)
            except DataError as error:
                self.reject(record, error)

    @abstractmethod
    def finish(self) -> None:
        """No more records come. May be called again."""


MakeWriter = Callable[[Output, Schema | None], Writer]


class Format:
    """`extension` with its dot; `has_schema`: whether all records of a file have one schema."""

    def __init__(self, extension: str, make: MakeWriter, *, has_schema: bool) -> None:
        self.extension, self.make, self.has_schema = extension, make, has_schema


def make_format(settings: Mapping[str, Any]) -> Format:
    """By the last part of the class's name: AvroFormat, JsonFormat, ParquetFormat, ByteArrayFormat."""
    name = settings["format.class"].rpartition(".")[2].removesuffix("Format").lower()
    zipped = settings["compression.type"] == "gzip"
    level = settings["compression.level"] if zipped else None
    if name == "json":
        return line_format(".json", _json_lines(), level)
    if name == "string":
        return line_format(".txt", _text, level)
    if name == "bytearray":
        separator = settings["format.bytearray.separator"]
        end = b"\n" if separator is None else separator.encode()
        return line_format(settings["format.bytearray.extension"], _raw, level, end)
    if zipped:
        raise ConfigError.of(
            "compression.type",
            "gzip",
            "Avro and Parquet compress inside of the file: avro.codec, parquet.codec",
        )
    if name == "parquet":
        codec = settings["parquet.codec"]
        in_name = codec != "none" and "s3.bucket.name" in settings  # as Confluent's two connectors name them
        extension = f".{codec}.parquet" if in_name else ".parquet"
        return Format(
            extension, lambda output, schema: _ParquetWriter(output, schema, codec), has_schema=True
        )
    if name == "avro":
        from millstream.connect.connectors.storage.avro_file import AvroWriter

        codec = settings["avro.codec"]
        return Format(".avro", lambda output, schema: AvroWriter(output, schema, codec), has_schema=True)
    raise ConfigError.of(
        "format.class",
        settings["format.class"],
        "one of ParquetFormat, AvroFormat, JsonFormat, ByteArrayFormat, StringFormat",
    )


ToLine = Callable[[SinkRecord, Any], bytes]


def line_format(extension: str, to_bytes: ToLine, level: int | None, separator: bytes = b"\n") -> Format:
    """A record after the other; gzip where there is a level of compression."""

    def make(output: Output, _schema: Schema | None) -> Writer:
        return _LineWriter(output, to_bytes, separator, None if level is None else _Gzip(level))

    return Format(extension if level is None else f"{extension}.gz", make, has_schema=False)


# --- lines --------------------------------------------------------------------------------------------------


class _Gzip:
    """A stream of gzip without a time in its header."""

    def __init__(self, level: int) -> None:
        self._compress = zlib.compressobj(level, zlib.DEFLATED, 31)

    def add(self, data: bytes) -> bytes:
        return self._compress.compress(data)

    def end(self) -> bytes:
        return self._compress.flush()


class _LineWriter(Writer):
    def __init__(
        self,
        output: Output,
        to_bytes: ToLine,
        separator: bytes,
        compressor: _Gzip | None,
    ) -> None:
        super().__init__(output)
        self._to_bytes, self._separator, self._compressor = to_bytes, separator, compressor
        self._finished = False

    def add(self, record: SinkRecord, value: Any) -> None:
        line = self._to_bytes(record, value) + self._separator
        self.output.write(line if self._compressor is None else self._compressor.add(line))

    def finish(self) -> None:
        if self._compressor is not None and not self._finished:
            self.output.write(self._compressor.end())
        self._finished = True


def _json_lines() -> ToLine:
    converter = JsonConverter({"schemas.enable": "false"})

    def line(record: SinkRecord, value: Any) -> bytes:
        return converter.from_connect(record.topic, record.value_schema, value) or b"null"

    return line


def _text(record: SinkRecord, value: Any) -> bytes:
    return to_string(value, record.value_schema).encode()


def _raw(record: SinkRecord, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if value is None:
        return b""
    raise DataError("ByteArrayFormat writes bytes: use the ByteArrayConverter")


# --- Parquet ------------------------------------------------------------------------------------------------


class _ParquetWriter(Writer):
    def __init__(self, output: Output, schema: Schema | None, codec: str) -> None:
        super().__init__(output)
        assert schema is not None
        import pyarrow.parquet as pq

        from millstream.connect.connectors.storage.arrow_columns import Columns

        self._columns = Columns(schema)
        self._rows: list[list[Any]] = []
        self._records: list[SinkRecord] = []
        self._batches: list[Any] = []
        self._file = _ArrowFile(output)
        self._writer: Any = pq.ParquetWriter(
            self._file, self._columns.schema, compression=codec if codec != "none" else None
        )

    def add(self, record: SinkRecord, value: Any) -> None:
        self._rows.append(value.values)
        self._records.append(record)
        if len(self._rows) >= ROWS_PER_BATCH:
            self._to_columns()
            if sum(batch.num_rows for batch in self._batches) >= ROWS_PER_GROUP:
                self._end_group()

    def add_many(self, records: Sequence[SinkRecord]) -> None:
        """The bounds of batches are the same, however the records come: so are the bytes of the file."""
        begin = 0
        while begin < len(records):
            some = records[begin : begin + ROWS_PER_BATCH - len(self._rows) - 1]
            self._rows += [record.value.values for record in some]
            self._records += some
            begin += len(some)
            if begin < len(records):
                self.add(records[begin], records[begin].value)
                begin += 1

    def _to_columns(self) -> None:
        if not self._rows:
            return
        rows, records = self._rows, self._records
        self._rows, self._records = [], []
        try:
            self._batches.append(self._columns.batch(rows))
        except DataError:
            self._batches += self._one_by_one(rows, records)

    def _one_by_one(self, rows: list[list[Any]], records: list[SinkRecord]) -> list[Any]:
        """One of them does not fit its schema: which?"""
        batches = []
        for row, record in zip(rows, records, strict=True):
            try:
                batches.append(self._columns.batch([row]))
            except DataError as error:
                self.reject(record, error)
        return batches

    def _end_group(self) -> None:
        if self._batches:
            import pyarrow as pa

            table = pa.Table.from_batches(self._batches)
            self._batches = []
            self._writer.write_table(table, row_group_size=ROWS_PER_GROUP)

    def finish(self) -> None:
        if self._writer is not None:
            self._to_columns()
            self._end_group()
            self._writer.close()
            self._writer = None


class _ArrowFile:
    """An output as pyarrow wants a file."""

    def __init__(self, output: Output) -> None:
        self._output, self._position, self.closed = output, 0, False

    def write(self, data: Any) -> int:
        self._position += self._output.write(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None: ...

    def close(self) -> None:
        self.closed = True

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False
