"""Avro files of records, written and read by fastavro, also inside of Spark's tasks, because Spark's own Avro
is a jar of its own."""

import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

from millstream.cli.errors import CommandFailed

CODEC = "deflate"
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Record",
    "namespace": "millstream",
    "fields": [
        {"name": "key", "type": ["null", "bytes"], "default": None},
        {"name": "value", "type": ["null", "bytes"], "default": None},
        {
            "name": "headers",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Header",
                    "fields": [
                        {"name": "key", "type": "string"},
                        {"name": "value", "type": ["null", "bytes"], "default": None},
                    ],
                },
            },
            "default": [],
        },
        {"name": "topic", "type": ["null", "string"], "default": None},
        {"name": "partition", "type": ["null", "int"], "default": None},
        {"name": "offset", "type": ["null", "long"], "default": None},
        {
            "name": "timestamp",
            "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}],
            "default": None,
        },
    ],
}
READ = (
    "key binary, value binary, headers array<struct<key:string,value:binary>>, partition int, offset bigint"
)


def new_writer(out: IO[bytes]) -> Any:
    from fastavro import parse_schema
    from fastavro.write import Writer

    return Writer(out, parse_schema(SCHEMA), codec=CODEC)


def writing(folder: str) -> Callable[[int, Iterable[Any]], Iterator[int]]:
    """A task that writes its rows to one file and gives their number. The file gets its name only when it is
    whole: a task that is tried again starts over."""

    def write(index: int, rows: Iterable[Any]) -> Iterator[int]:
        name = f"part-{index:05d}.avro"
        unfinished = os.path.join(folder, f".{name}.{uuid.uuid4().hex}")
        count = 0
        os.makedirs(folder, exist_ok=True)
        with open(unfinished, "wb") as out:
            writer = new_writer(out)
            for row in rows:
                writer.write(_plain(row.asDict(recursive=True)))
                count += 1
            writer.flush()
        if count:
            os.replace(unfinished, os.path.join(folder, name))
        else:
            os.unlink(unfinished)
        yield count

    return write


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Spark gives bytearrays, and null for no headers."""

    def fixed(found: Any) -> Any:
        return bytes(found) if isinstance(found, bytearray) else found

    headers = [{"key": one["key"], "value": fixed(one["value"])} for one in row["headers"] or ()]
    return {**row, "key": fixed(row["key"]), "value": fixed(row["value"]), "headers": headers}


def reading(path: str) -> Iterator[tuple[Any, ...]]:
    """The records of one file, as rows of READ. Files from elsewhere may have text where ours have bytes."""
    import fastavro

    def as_bytes(found: Any) -> Any:
        return found.encode() if isinstance(found, str) else found

    with open(path, "rb") as file:
        try:
            records = fastavro.reader(file)
        except ValueError as error:
            raise CommandFailed(f"{path} is not an Avro file: {error}") from None
        schema: Any = records.writer_schema
        names = [field["name"] for field in schema["fields"]] if "fields" in schema else []
        if "value" not in names:
            raise CommandFailed(f"{path} has no field 'value'; it has {', '.join(names)}")
        row: Any
        for row in records:
            headers = [(one["key"], one["value"]) for one in row.get("headers") or ()]
            key, value = as_bytes(row.get("key")), as_bytes(row.get("value"))
            yield key, value, headers, row.get("partition"), row.get("offset")
