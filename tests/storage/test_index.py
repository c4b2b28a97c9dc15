"""The sparse indexes against a plain list."""

from __future__ import annotations

import os
import random
import struct
from bisect import bisect_right
from pathlib import Path

import pytest

from millstream.storage import index as index_module
from millstream.storage.index import OffsetIndex, TimeIndex


@pytest.fixture(params=[2, 7, 512])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(index_module, "BLOCK", request.param)
    return int(request.param)


def test_bytes(tmp_path: Path) -> None:
    index = OffsetIndex(str(tmp_path / "i"), 1000)
    index.append(1007, 4200)
    index.append(1010, 9000)
    assert not (tmp_path / "i").exists(), "entries stay in memory at first"
    index.save()
    assert (tmp_path / "i").read_bytes() == struct.pack(">iiii", 7, 4200, 10, 9000)
    times = TimeIndex(str(tmp_path / "t"), 1000)
    times.append(5, 1007)
    times.save()
    assert (tmp_path / "t").read_bytes() == struct.pack(">qi", 5, 7)


def test_offset_index_like_a_list(tmp_path: Path, block: int) -> None:
    chance = random.Random(5)
    index = OffsetIndex(str(tmp_path / "i"), 100)
    entries: list[tuple[int, int]] = []
    offset, position = 100, 0
    for step in range(300):
        offset += chance.randint(1, 9)
        position += chance.randint(1, 5000)
        index.append(offset, position)
        entries.append((offset, position))
        if step % 37 == 0:
            index.save()
        if step % 61 == 60:
            index.close_file()
            index.save()
            index = OffsetIndex(str(tmp_path / "i"), 100)
        assert len(index) == len(entries)
        assert index.last() == entries[-1]
        for _ in range(3):
            asked = chance.randint(100, offset + 5)
            at = bisect_right(entries, (asked, 1 << 60))
            assert index.lookup(asked) == (entries[at - 1][1] if at else 0)
            spot = chance.randint(0, position + 10)
            starts = [start for _, start in entries if start <= spot]
            assert index.batch_start_before(spot) == (starts[-1] if starts else 0)
    assert list(index.entries()) == entries
    for keep in (250, 249, 100, 99, 40, 1, 0):
        index.truncate(entries[keep][0])
        assert list(index.entries()) == entries[:keep]
    index.append(1 << 20, 77)
    assert index.lookup(1 << 21) == 77
    index.close_file()


def test_time_index_like_a_list(tmp_path: Path, block: int) -> None:
    chance = random.Random(6)
    index = TimeIndex(str(tmp_path / "t"), 0)
    entries: list[tuple[int, int]] = []
    newest = offset = 0
    for step in range(300):
        offset += chance.randint(1, 9)
        timestamp = newest + chance.randint(-5, 10)
        index.append(timestamp, offset)
        if timestamp > newest or not entries:
            entries.append((timestamp, offset))
            newest = timestamp
        if step % 41 == 40:
            index.save()
            index.close_file()
            index = TimeIndex(str(tmp_path / "t"), 0)
        asked = chance.randint(0, newest + 3)
        at = bisect_right(entries, (asked, 1 << 60))
        assert index.lookup(asked) == (entries[at - 1] if at else (-1, 0))
    assert list(index.entries()) == entries
    for keep in (len(entries) - 1, 100, 50, 1, 0):
        index.truncate(entries[keep][1])
        assert list(index.entries()) == entries[:keep]
        assert (index.last_timestamp, index.last_offset) == (entries[keep - 1] if keep else (-1, 0))
    index.close_file()


def test_an_index_that_shrank_is_an_error_not_a_crash(tmp_path: Path) -> None:
    index = OffsetIndex(str(tmp_path / "i"), 0)
    for number in range(1, 100):
        index.append(number, number * 10)
    index.save()
    os.truncate(tmp_path / "i", 80)
    with pytest.raises(OSError, match="shorter"):
        index.lookup(60)
    index.close_file()


def test_problems(tmp_path: Path) -> None:
    index = OffsetIndex(str(tmp_path / "i"), 100)
    assert index.problem(0) is None
    index.append(110, 500)
    index.save()
    assert index.problem(501) is None
    assert index.problem(500) is not None
    index.close_file()
    times = TimeIndex(str(tmp_path / "t"), 100)
    assert times.problem(100) is None
    times.append(5, 120)
    times.save()
    assert times.problem(121) is None
    assert times.problem(120) is not None
    times.close_file()
