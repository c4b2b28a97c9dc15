"""Files that do what files do: they grow, rotate, are cut short, hold any bytes, and their disks are full."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from millstream.connect.api import SinkContext, SourceContext
from millstream.connect.connectors.file import FileStreamSinkTask, FileStreamSourceTask
from millstream.connect.data.record import SinkRecord
from millstream.connect.data.schema import REQUIRED, Type
from millstream.connect.errors import RetriableError
from millstream.wire.topic_partition import TopicPartition


def source(path: Path, position: int | None = None) -> FileStreamSourceTask:
    task = FileStreamSourceTask()
    kept = None if position is None else {"position": position}
    task.start({"file": str(path), "topic": "t"}, SourceContext(lambda _partition: kept))
    return task


def read(task: FileStreamSourceTask) -> list[tuple[Any, Any]]:
    return [(record.value, (record.source_offset or {})["position"]) for record in task.poll() or ()]


def test_lines_of_any_bytes_and_ends(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"plain\nk\xc3\xb6ln\r\nno \xff utf\ra\x00b\nunfinished")
    task = source(file)
    try:
        assert read(task) == [("plain", 6), ("köln", 13), ("no \ufffd utf", 22), ("a\x00b", 26)]
        assert read(task) == []
        with file.open("ab") as more:
            more.write(b" no more\n")
        assert read(task) == [("unfinished no more", 45)]
    finally:
        task.stop()


def test_a_file_that_rotates_or_is_cut_short(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("one\ntwo\n")
    task = source(file)
    try:
        assert [line for line, _ in read(task)] == ["one", "two"]
        # Rotated: what was written to the old one meanwhile comes first.
        with file.open("a") as old:
            old.write("three\n")
            old.flush()
            file.rename(tmp_path / "log.1")
            file.write_text("four\n")
            assert read(task) == [("three", 14)]
        assert read(task) == [("four", 5)]
        # Cut short, and written anew from its start.
        file.write_text("5\n")
        assert read(task) == [("5", 2)]
        # Gone for a while.
        file.unlink()
        assert read(task) == []
        file.write_text("back\n")
        assert read(task) == [("back", 5)]
    finally:
        task.stop()


def test_a_task_that_starts_again_goes_on_or_begins_with_a_shorter_file(tmp_path: Path) -> None:
    file = tmp_path / "log"
    assert read(source(file)) == []
    file.write_text("one\ntwo\n")
    for position, lines in ((4, ["two"]), (8, []), (900, ["one", "two"])):
        task = source(file, position)
        assert [line for line, _ in read(task)] == lines
        task.stop()


class _FullDisk:
    """A file whose disk takes half of what is written."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: bytes) -> int:
        self._file.write(data[: len(data) // 2])
        self._file.flush()
        raise OSError(errno.ENOSPC, "No space left on device")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def test_a_sink_whose_disk_is_full_writes_each_line_once(tmp_path: Path) -> None:
    file, partition = tmp_path / "out", TopicPartition("t", 0)
    task = FileStreamSinkTask()
    task.start({"file": str(file)}, SinkContext(lambda _record, _error: None, lambda: None))
    task.open({partition: ""})
    records = [
        SinkRecord(topic="t", partition=0, offset=n, value_schema=REQUIRED[Type.STRING], value=f"line {n}")
        for n in range(3)
    ]
    task.put(records[:1])
    real = task._file
    task._file = _FullDisk(real)  # type: ignore[assignment]
    with pytest.raises(RetriableError, match="No space left on device"):
        task.put(records[1:])
    task._file = real
    task.put(records[1:])
    assert task.flush({partition: 3}) == {partition: "21"}
    task.stop()
    assert file.read_text() == "line 0\nline 1\nline 2\n"
    # What was written after the last commit goes when the task opens the file again.
    file.write_text("line 0\nline 1\n")
    again = FileStreamSinkTask()
    again.start({"file": str(file)}, SinkContext(lambda _record, _error: None, lambda: None))
    again.open({partition: "7"})
    again.stop()
    assert file.read_text() == "line 0\n"


def test_a_sink_writes_values_of_any_kind(tmp_path: Path) -> None:
    """As Java's `toString` has them; what UTF-8 has no bytes for is a question mark."""
    file, place = tmp_path / "out", TopicPartition("t", 0)
    task = FileStreamSinkTask()
    task.start({"file": str(file)}, SinkContext(lambda _record, _error: None, lambda: None))
    task.open({place: ""})
    values: list[Any] = ["ä", None, 5, True, {"a": [1, None]}, "half \ud83d of one"]
    task.put([SinkRecord(topic="t", partition=0, offset=n, value=one) for n, one in enumerate(values)])
    task.stop()
    assert file.read_bytes() == "ä\nnull\n5\ntrue\n{a=[1, null]}\nhalf ? of one\n".encode()
