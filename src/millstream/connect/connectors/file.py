"""FileStreamSource and FileStreamSink: lines of a file, as they are appended, and records as lines of a file.

The source's offset is the byte behind the last line that was read (Kafka's counts characters and skips
bytes, so it loses its position in text that is not ASCII). A line ends with \\n, \\r or \\r\\n. When the file
shrinks, it is read from its start; when another file takes its name, the rest of the old one comes first.

The sink appends and calls fsync before its offsets are committed, and commits the file's length with them: a
start cuts off what was written behind the last commit, so that every record stands there once.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO

from millstream.connect.api import (
    Settings,
    SinkConnector,
    SinkContext,
    SinkTask,
    SourceConnector,
    SourceContext,
    SourceTask,
)
from millstream.connect.config.config_def import (
    REQUIRED,
    CheckedBy,
    ConfigDef,
    ConfigError,
    ConfigKey,
    NonEmptyString,
)
from millstream.connect.data.java_names import to_string
from millstream.connect.data.record import SinkRecord, SourceRecord
from millstream.connect.data.schema import REQUIRED as REQUIRED_SCHEMAS
from millstream.connect.data.schema import Type
from millstream.connect.errors import ConnectError, RetriableError
from millstream.settings.config_key import Importance
from millstream.settings.values import Type as SettingType
from millstream.wire.topic_partition import TopicPartition

_STRING = REQUIRED_SCHEMAS[Type.STRING]
_CHUNK = 1 << 16
_new_record = SourceRecord.__new__
MAX_LINE_BYTES = 64 << 20
"""A file without line ends is not taken into memory as a whole."""
LOCK_SECONDS = 10.0


class FileStreamSourceTask(SourceTask):
    idle_ms = 50.0

    def __init__(self) -> None:
        self._file: BinaryIO | None = None
        self._path: str | None = None
        self._partition: dict[str, str] | None = None
        self._topic = ""
        self._batch_size = 2000
        self._held = b""
        self._position = 0
        self._offset: Any = lambda _partition: None

    def start(self, settings: Settings, context: SourceContext) -> None:
        parsed = FileStreamSource.config.parse(settings)
        self._path, self._topic, self._batch_size = parsed["file"], parsed["topic"], parsed["batch.size"]
        self._partition = None if self._path is None else {"filename": self._path}
        self._offset = context.offset

    def poll(self) -> Sequence[SourceRecord]:
        if self._file is None and not self._open():
            return []
        self._follow()
        records = self._lines()
        while len(records) < self._batch_size:
            assert self._file is not None
            chunk = self._file.read(_CHUNK) or b""
            if not chunk:
                break
            self._held += chunk
            records += self._lines(self._batch_size - len(records))
            if len(self._held) > MAX_LINE_BYTES:
                raise ConnectError(f"{self._path} has a line of more than {MAX_LINE_BYTES} bytes")
        return records

    def _open(self) -> bool:
        """False while there is no such file: it may come."""
        if self._path is None:
            self._file = os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0)
            return True
        try:
            file = open(self._path, "rb")  # noqa: SIM115 - until stop
        except FileNotFoundError:
            return False
        kept = (self._offset({"filename": self._path}) or {}).get("position", 0)
        if kept > os.fstat(file.fileno()).st_size:
            kept = 0  # another file by the same name
        file.seek(kept)
        self._file, self._position, self._held = file, kept, b""
        return True

    def _follow(self) -> None:
        """Another file by the same name, or this one cut short: from the start."""
        if self._path is None or self._file is None:
            return
        mine = os.fstat(self._file.fileno())
        try:
            named = os.stat(self._path)
        except FileNotFoundError:
            return
        read = self._position + len(self._held)
        if (named.st_dev, named.st_ino) == (mine.st_dev, mine.st_ino) and mine.st_size >= read:
            return
        if (named.st_dev, named.st_ino) != (mine.st_dev, mine.st_ino) and mine.st_size > read:
            return  # the rest of the old one first
        self._file.close()
        self._file = open(self._path, "rb")  # noqa: SIM115 - until stop
        self._position, self._held = 0, b""

    def _lines(self, limit: int | None = None) -> list[SourceRecord]:
        """Whole lines of what is held. A \\r at its end may be the first half of an end of line."""
        wanted = self._batch_size if limit is None else limit
        records: list[SourceRecord] = []
        start = 0
        held = self._held
        if b"\r" not in held:
            # The usual file: one search for all lines, and one decoding if each byte is a character.
            if held.isascii():
                *texts, rest = held.decode("ascii").split("\n", wanted)
                self._held = rest.encode("ascii")
                return self._records(texts, map(len, texts))
            *whole, self._held = held.split(b"\n", wanted)
            return self._records((line.decode("utf-8", "replace") for line in whole), map(len, whole))
        while len(records) < wanted:
            end = _line_end(held, start)
            if end is None:
                break
            stop, after = end
            self._position += after - stop - 1  # behind the line's text and one byte
            records += self._records([held[start:stop].decode("utf-8", "replace")], [stop - start])
            start = after
        self._held = held[start:]
        return records

    def _records(self, texts: Iterable[str], lengths: Iterable[int]) -> list[SourceRecord]:
        """Of lines that each end with one more byte; `lengths` are in bytes."""
        topic, partition, position = self._topic, self._partition, self._position
        records = []
        for text, length in zip(texts, lengths, strict=True):
            position += length + 1
            made = _new_record(SourceRecord)  # the constructor takes three times as long
            made.topic = topic
            made.partition = made.timestamp = made.key_schema = made.key = None
            made.headers = ()
            made.value_schema = _STRING
            made.value = text
            made.source_partition = partition
            made.source_offset = {"position": position}
            records.append(made)
        self._position = position
        return records

    def stop(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _line_end(data: bytes, start: int) -> tuple[int, int] | None:
    """Where a line stops, and where the next one begins."""
    newline, carriage = data.find(b"\n", start), data.find(b"\r", start)
    if carriage < 0 or 0 <= newline < carriage:
        return None if newline < 0 else (newline, newline + 1)
    if carriage + 1 == len(data):
        return None
    return carriage, carriage + (2 if data[carriage + 1 : carriage + 2] == b"\n" else 1)


def _at_least_one(name: str, value: Any) -> None:
    """Kafka has no such check; a text that is no number is reported once."""
    if value is not None and value < 1:
        raise ConfigError.of(name, value, "Value must be at least 1")


class FileStreamSource(SourceConnector):
    task = FileStreamSourceTask
    config = ConfigDef(
        [
            ConfigKey(
                "file",
                SettingType.STRING,
                None,
                Importance.HIGH,
                "The file to read; standard input if not given.",
            ),
            ConfigKey(
                "topic",
                SettingType.STRING,
                REQUIRED,
                Importance.HIGH,
                "The topic to publish data to",
                NonEmptyString(),
            ),
            ConfigKey(
                "batch.size",
                SettingType.INT,
                2000,
                Importance.LOW,
                "How many lines a poll returns.",
                CheckedBy(_at_least_one, "[1,...]"),
            ),
        ]
    )

    def alter_offsets(self, offsets: Sequence[Mapping[str, Any]]) -> bool:
        """One partition, the file, and a position in it."""
        if not self.settings.get("file"):
            raise ConnectError("The 'file' configuration must be specified for offsets to be altered")
        for entry in offsets:
            partition, offset = entry.get("partition"), entry.get("offset")
            if offset is None:
                continue
            if partition is None:
                raise ConnectError("Partition objects cannot be null")
            if not isinstance(partition, dict) or "filename" not in partition:
                raise ConnectError("Partition objects should contain the key 'filename'")
            position = offset.get("position") if isinstance(offset, dict) else None
            if position is None:
                raise ConnectError("Offset objects should either be null or contain the key 'position'")
            if type(position) is not int:
                raise ConnectError(
                    "The value for the 'position' key in the offset is expected to be a Long value"
                )
            if position < 0:
                raise ConnectError(
                    "The value for the 'position' key in the offset should be a non-negative value"
                )
        return True


class FileStreamSinkTask(SinkTask):
    def __init__(self) -> None:
        self._file: BinaryIO | None = None
        self._path: str | None = None

    def start(self, settings: Settings, context: SinkContext) -> None:
        self._path = FileStreamSink.config.parse(settings)["file"]

    def open(self, positions: Mapping[TopicPartition, str]) -> None:
        """Cut to the length of the last commit: what is behind it will come again."""
        if self._path is None:
            return
        if self._file is None:
            try:
                self._file = open(self._path, "ab")  # noqa: SIM115 - until stop
            except OSError as error:
                raise ConnectError(f"cannot write to {self._path}: {error.strerror}") from None
            self._lock(self._file)
        lengths = [int(text) for text in positions.values() if text.isdigit()]
        if lengths and os.fstat(self._file.fileno()).st_size > max(lengths):
            self._file.truncate(max(lengths))

    def _lock(self, file: BinaryIO) -> None:
        """Whoever wrote to it before has to be gone: it may have lost the task without knowing it yet."""
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise RetriableError(f"another process writes to {self._path}") from None
                time.sleep(0.05)  # until the other one has ended

    def put(self, records: Sequence[SinkRecord]) -> None:
        if not records:
            return
        try:
            lines = "\n".join([record.value for record in records]) + "\n"
        except TypeError:  # not all of them are texts
            lines = "".join(to_string(record.value, record.value_schema) + "\n" for record in records)
        if self._file is None:
            sys.stdout.write(lines)
            return
        begin = self._file.seek(0, os.SEEK_END)
        try:
            self._file.write(lines.encode("utf-8", "replace"))  # half a surrogate is ?, as in Java
            self._file.flush()
        except OSError as error:
            # What a full disk has taken goes again, so that a later try does not write it twice.
            self._file.truncate(begin)
            raise RetriableError(f"cannot write to {self._path}: {error.strerror}") from None

    def preview(self, records: Sequence[SinkRecord], settings: Settings) -> list[str]:
        return [f"append {to_string(record.value, record.value_schema)!r}" for record in records]

    def flush(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, str]:
        if self._file is None:
            sys.stdout.flush()
            return {}
        os.fsync(self._file.fileno())
        length = str(self._file.seek(0, os.SEEK_END))
        return dict.fromkeys(offsets, length)

    def stop(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class FileStreamSink(SinkConnector):
    task = FileStreamSinkTask
    config = ConfigDef(
        [
            ConfigKey(
                "file",
                SettingType.STRING,
                None,
                Importance.HIGH,
                "The file to write to; standard output if not given.",
            )
        ]
    )

    def task_settings(self, max_tasks: int) -> list[Settings]:
        """One task: it alone knows how long the file has to be."""
        return [dict(self.settings)]

    def alter_offsets(self, offsets: Sequence[Mapping[str, Any]]) -> bool:
        return True
