"""Files of records without Spark: JSON lines, Parquet and Avro, as the Spark jobs write and read them.

All files are read before anything is sent, because records have to be put in order first. If they hold more
than one process should keep in memory, that is Spark's work (`NeedsSpark`).
"""

import base64
import bz2
import gzip
import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from millstream.cli.errors import CommandFailed
from millstream.cli.message_formatter import ConsumerRecord
from millstream.cli.transfer import avro_files

ROWS_AT_ONCE = 10_000  # of a Parquet file
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CALENDAR_CYCLE = 146_097 * 86_400_000  # milliseconds of 400 years, after which the calendar repeats itself
LARGEST_MILLISECONDS = ((1 << 63) - 1) // 1000  # as microseconds

OTHER_CODECS = (".deflate", ".lz4", ".snappy", ".zst")

Headers = tuple[tuple[str, bytes | None], ...]


class NeedsSpark(Exception):
    """More than is held in memory here, or compressed in a way that only Spark reads."""


class Row(NamedTuple):
    """A record of a file. Without a position it comes in the order of the file."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None
    offset: int | None


# --- writing ------------------------------------------------------------------------------------------------


class RecordWriter(Protocol):
    def write(self, record: ConsumerRecord) -> None: ...

    def close(self) -> None: ...


class JsonWriter:
    def __init__(self, path: Path) -> None:
        self._out = path.open("w", encoding="utf-8")

    def write(self, record: ConsumerRecord) -> None:
        line = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": instant(record.timestamp),
            **_text_or_base64("key", record.key),
            **_text_or_base64("value", record.value),
        }
        if record.headers:
            line["headers"] = [
                {"key": name, **_text_or_base64("value", value)} for name, value in record.headers
            ]
        self._out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")

    def close(self) -> None:
        self._out.close()


def _text_or_base64(name: str, data: bytes | None) -> dict[str, str]:
    """Nothing for null, as Spark leaves it out."""
    if data is None:
        return {}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def instant(milliseconds: int) -> str:
    """2026-01-31T12:30:00.000Z, also for years that Python's calendar does not have."""
    cycles, rest = divmod(milliseconds, CALENDAR_CYCLE)
    moment = EPOCH + timedelta(milliseconds=rest)
    year = moment.year + 400 * cycles
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}{moment:-%m-%dT%H:%M:%S}.{rest % 1000:03d}Z"


class ParquetWriter:
    def __init__(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        header = pa.struct([("key", pa.string()), ("value", pa.binary())])
        self._schema = pa.schema(
            [
                ("key", pa.binary()),
                ("value", pa.binary()),
                ("headers", pa.list_(header)),
                ("topic", pa.string()),
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                ("timestamp", pa.timestamp("us", "UTC")),
            ]
        )
        self._table: Callable[..., Any] = pa.Table.from_pylist
        self._out = pq.ParquetWriter(path, self._schema, compression="snappy")
        self._rows: list[dict[str, Any]] = []

    def write(self, record: ConsumerRecord) -> None:
        timestamp = min(record.timestamp, LARGEST_MILLISECONDS) * 1000
        fields = _fields(record)
        # Null without headers, as in Spark's source.
        self._rows.append({**fields, "headers": fields["headers"] or None, "timestamp": timestamp})
        if len(self._rows) >= ROWS_AT_ONCE:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._out.close()

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            self._out.write_table(self._table(rows, schema=self._schema))


class AvroWriter:
    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._out = avro_files.new_writer(self._file)

    def write(self, record: ConsumerRecord) -> None:
        self._out.write({**_fields(record), "timestamp": record.timestamp})

    def close(self) -> None:
        self._out.flush()
        self._file.close()


def _fields(record: ConsumerRecord) -> dict[str, Any]:
    return {
        "key": record.key,
        "value": record.value,
        "headers": [{"key": name, "value": value} for name, value in record.headers],
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
    }


WRITERS: dict[str, tuple[Callable[[Path], RecordWriter], str]] = {
    "json": (JsonWriter, "json"),
    "parquet": (ParquetWriter, "snappy.parquet"),
    "avro": (AvroWriter, "avro"),
}


def new_writer(folder: Path, number: int, form: str) -> RecordWriter:
    writer, suffix = WRITERS[form]
    return writer(folder / f"part-{number:05d}.{suffix}")


# --- reading ------------------------------------------------------------------------------------------------


def read_all(folder: Path, form: str, max_records: int, max_bytes: int) -> list[Row]:
    """The rows of all files in the order of their positions, if they have some, otherwise as they come."""
    files = data_files(folder)
    if sum(file.stat().st_size for file in files) > max_bytes:
        raise NeedsSpark
    rows: list[Row] = []
    size = 0
    for row in READERS[form](folder, files):
        rows.append(row)
        size += len(row.key or b"") + len(row.value or b"")
        if len(rows) > max_records or size > max_bytes:
            raise NeedsSpark
    if rows and rows[0].offset is not None:
        rows.sort(key=lambda row: (-1 if row.partition is None else row.partition, row.offset or 0))
    return rows


def data_files(folder: Path) -> list[Path]:
    """What Spark would read: files whose names begin with _ or . are about the others."""
    if folder.is_file():
        return [folder]
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not any(name.startswith(("_", ".")) for name in path.relative_to(folder).parts)
    )


def read_json(folder: Path, files: Sequence[Path]) -> Iterator[Row]:
    seen: set[str] = set()
    for file in files:
        with _opened(file) as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    values = top_level(line.decode())
                    row = _json_row(values)
                except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
                    raise CommandFailed(f"{file}, line {number} is not a record in JSON") from None
                seen.update(values)
                yield row
    if seen and not seen & {"value", "value_base64", "offset"}:
        raise CommandFailed(
            f"the files in {folder} have no column 'value'; they have {', '.join(sorted(seen))}"
        )


def _opened(file: Path) -> IO[bytes]:
    """As Spark does it, the name says how a file is compressed."""
    if file.suffix in OTHER_CODECS:
        raise NeedsSpark
    openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}
    opened: IO[bytes] = openers.get(file.suffix, open)(file, "rb")
    return opened


class JsonValue(NamedTuple):
    """A value and how it was written: what is not a string becomes a record's text as it stands there."""

    value: Any
    text: str

    def as_bytes(self) -> bytes | None:
        if self.value is None:
            return None
        return (self.value if isinstance(self.value, str) else self.text).encode()


_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")
_MISSING = JsonValue(None, "null")


def top_level(text: str) -> dict[str, JsonValue]:
    """The members of a JSON object, each with its own text."""

    def skip(at: int) -> int:
        found = _SPACE.match(text, at)
        return found.end() if found else at

    def expect(char: str, at: int) -> int:
        if text[at] != char:
            raise ValueError(f"{char} expected at {at}")
        return skip(at + 1)

    members: dict[str, JsonValue] = {}
    at = expect("{", skip(0))
    while text[at] != "}":
        if members:
            at = expect(",", at)
        name, end = _DECODER.raw_decode(text, at)
        at = expect(":", skip(end))
        value, end = _DECODER.raw_decode(text, at)
        members[name] = JsonValue(value, text[at:end])
        at = skip(end)
    if expect("}", at) != len(text):
        raise ValueError("more than one object")
    return members


def _json_row(members: dict[str, JsonValue]) -> Row:
    headers = members.get("headers", _MISSING).value or ()
    partition, offset = members.get("partition", _MISSING).value, members.get("offset", _MISSING).value
    if offset is not None:
        partition, offset = None if partition is None else int(partition), int(offset)
    return Row(
        _json_bytes(members, "key"),
        _json_bytes(members, "value"),
        tuple(
            (
                str(header["key"]),
                _json_bytes({name: JsonValue(value, str(value)) for name, value in header.items()}, "value"),
            )
            for header in headers
        ),
        partition,
        offset,
    )


def _json_bytes(members: dict[str, JsonValue], name: str) -> bytes | None:
    data = members.get(name, _MISSING).as_bytes()
    if data is not None:
        return data
    encoded = members.get(f"{name}_base64", _MISSING).value
    return None if encoded is None else base64.b64decode(encoded)


def read_parquet(folder: Path, files: Sequence[Path]) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.dataset as ds

    if not files:
        raise CommandFailed(f"there are no files in {folder}")
    base = str(folder if folder.is_dir() else folder.parent)
    try:
        data = ds.dataset(
            [str(file) for file in files], format="parquet", partitioning="hive", partition_base_dir=base
        )
        _check_parquet(folder, data.schema)
        names = [name for name in Row._fields if name in data.schema.names]
        for batch in data.to_batches(columns=names):
            for row in batch.to_pylist():
                yield _parquet_row(row)
    except pa.ArrowInvalid as error:
        raise CommandFailed(f"cannot read {folder}: {str(error).splitlines()[0]}") from None


def _check_parquet(folder: Path, schema: Any) -> None:
    from pyarrow import types

    if "value" not in schema.names:
        raise CommandFailed(
            f"the files in {folder} have no column 'value'; they have {', '.join(schema.names)}"
        )

    def text_or_bytes(arrow_type: Any) -> bool:
        checks = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
        return any(check(arrow_type) for check in (*checks, types.is_fixed_size_binary, types.is_null))

    for name in ("key", "value"):
        if name in schema.names and not text_or_bytes(schema.field(name).type):
            raise CommandFailed(
                f"column '{name}' must be string or binary to be written, not {schema.field(name).type}"
            )


def _parquet_row(row: dict[str, Any]) -> Row:
    has_position = row.get("partition") is not None and row.get("offset") is not None
    headers = tuple((header["key"], as_bytes(header["value"])) for header in row.get("headers") or ())
    return Row(
        as_bytes(row.get("key")),
        as_bytes(row["value"]),
        headers,
        row["partition"] if has_position else None,
        row["offset"] if has_position else None,
    )


def as_bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def read_avro(folder: Path, files: Sequence[Path]) -> Iterator[Row]:
    named = [file for file in files if file.suffix == ".avro" or file == folder]
    if not named:
        raise CommandFailed(f"there are no .avro files in {folder}")
    for file in named:
        for key, value, headers, partition, offset in avro_files.reading(str(file)):
            yield Row(key, value, tuple(headers), partition, offset)


READERS: dict[str, Callable[[Path, Sequence[Path]], Iterator[Row]]] = {
    "json": read_json,
    "parquet": read_parquet,
    "avro": read_avro,
}
