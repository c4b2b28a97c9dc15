"""Opening after a crash: what is sound stays, what is not goes, and both are said."""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from pathlib import Path

import pytest

from millstream.storage import scan, transactions
from millstream.storage.checkpoints import FormatError
from millstream.storage.log import PartitionLog
from millstream.wire.batch import TRANSACTIONAL
from millstream.wire.errors import KafkaError

from .batches import NOW, batch, contents, files, fill, headers, small
from .conftest import OpenLog


def grow(log: PartitionLog, count: int, size: int = 100) -> None:
    for _ in range(count):
        known = log.producers.by_id.get(1)
        sequence = known.next_sequence if known else 0
        log.append_leader(
            batch(2, size, producer=1, sequence=sequence, timestamp=NOW + log.end_offset), 0, NOW
        )
    log.set_high_watermark(log.end_offset)


def test_everything_is_there_after_a_kill(open_log: OpenLog) -> None:
    log = open_log(small())
    grow(log, 40)
    again = open_log(small())
    assert list(contents(again)) == list(contents(log))
    assert again.describe_producers() == log.describe_producers()
    assert again.last_epoch() == 0


def test_a_tail_torn_at_any_byte_is_cut_at_the_last_whole_batch(
    open_log: OpenLog, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log()
    grow(log, 3, size=75)
    whole = Path(log.active.path).read_bytes()
    before = list(contents(log))
    log.close(clean=False)
    for size in range(len(whole)):
        torn = tmp_path / f"torn-{size}"
        shutil.copytree(folder, torn)
        (torn / "00000000000000000000.log").write_bytes(whole[:size])
        caplog.clear()
        log = PartitionLog.open(torn)
        kept = size // 75
        assert list(contents(log)) == before[:kept]
        assert os.path.getsize(log.active.path) == log.size == kept * 75
        assert (log.end_offset, len(log.describe_producers())) == (kept * 2, min(kept, 1))
        if size % 75:
            assert f"torn-{size}: cut {size % 75} bytes at offset {kept * 2}" in caplog.text
        else:
            assert "cut" not in caplog.text
        grow(log, 1)
        log.close()
        shutil.rmtree(torn)


@pytest.mark.parametrize("at", [75 + 16, 75 + 17, 75 + 25, 75 + 70, 75 + 8, 75 + 11, 75 + 0])
@pytest.mark.parametrize("clean", [False, True])
def test_a_damaged_batch_ends_the_log(open_log: OpenLog, folder: Path, at: int, clean: bool) -> None:
    log = open_log()
    grow(log, 4, size=75)
    log.close(clean)
    path = folder / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[at] ^= 0x81
    path.write_bytes(data)
    if not clean:
        log = open_log()
        assert (log.end_offset, log.size) == (2, 75)


def test_zeros_behind_the_log(open_log: OpenLog, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What a power cut leaves on many file systems: the size is right, the bytes never came."""
    log = open_log()
    grow(log, 3)
    log.close(clean=False)
    with open(folder / "00000000000000000000.log", "ab") as file:
        file.write(bytes(5000))
    log = open_log()
    assert (log.end_offset, log.size) == (6, 300)
    assert "cut 5000 bytes at offset 6" in caplog.text


def test_only_what_follows_the_recovery_point_is_checked(open_log: OpenLog, folder: Path) -> None:
    log = open_log(small())
    grow(log, 25)
    point = log.flush_now()
    grow(log, 20)
    log.close(clean=False)
    first = folder / "00000000000000000000.log"
    data = bytearray(first.read_bytes())
    data[95] ^= 1  # in a record: only a check of the batch would notice
    first.write_bytes(data)
    log = open_log(small(), recovery_point=point)
    assert log.end_offset == 90
    assert open_log(small(), recovery_point=0).end_offset == 0


def test_the_work_grows_with_the_bytes_behind_the_recovery_point(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(small(segment_bytes=100_000))
    grow(log, 900)
    point = log.flush_now()
    log.take_snapshot()
    grow(log, 30)
    log.close(clean=False)
    checked = 0
    true_crc = scan.crc32c

    def counting(data: memoryview) -> int:
        nonlocal checked
        checked += 1
        return true_crc(data)

    monkeypatch.setattr(scan, "crc32c", counting)
    log = open_log(small(segment_bytes=100_000), recovery_point=point)
    assert log.end_offset == 1860
    assert 30 <= checked <= 35
    assert log.producers.by_id[1].next_sequence == 1860


def test_damage_in_a_closed_segment_ends_the_log_there(
    open_log: OpenLog, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(small())
    grow(log, 45)
    log.close(clean=False)
    path = folder / "00000000000000000020.log"
    data = bytearray(path.read_bytes())
    data[350] ^= 1
    path.write_bytes(data)
    log = open_log(small())
    assert log.end_offset == 26
    assert [segment.base_offset for segment in log.segments] == [0, 20]
    assert "orders-7: cut 700 bytes at offset 26" in caplog.text
    assert "3 later segments from offset 40 on" in caplog.text
    assert "00000000000000000040.log.lost" in files(folder)
    grow(log, 20)
    log = open_log(small())
    assert (log.end_offset, log.producers.by_id[1].next_sequence) == (66, 66)


def test_lost_offsets_are_named(open_log: OpenLog, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(small())
    grow(log, 25)
    point = log.flush_now()
    log.close(clean=False)
    with open(folder / "00000000000000000040.log", "r+b") as file:
        file.truncate(150)
    log = open_log(small(), recovery_point=point)
    assert log.end_offset == 42
    assert "orders-7: offsets 42 to 49 are lost" in caplog.text
    assert log.recovery_point == 42


@pytest.mark.parametrize("size", [0, 150, 200])
def test_a_segment_cut_after_a_clean_stop(
    open_log: OpenLog, folder: Path, caplog: pytest.LogCaptureFixture, size: int
) -> None:
    log = open_log(small())
    grow(log, 25)
    log.close()
    with open(folder / "00000000000000000040.log", "r+b") as file:
        file.truncate(size)
    log = open_log(small(), clean=True, recovery_point=50, high_watermark=50)
    kept = 40 + size // 100 * 2
    assert log.end_offset == log.high_watermark == kept
    assert f"orders-7: offsets {kept} to 49 are lost" in caplog.text
    assert log.producers.by_id[1].next_sequence == kept
    grow(log, 10)
    assert [header.base_offset for header in headers(log)] == list(range(0, kept + 20, 2))


def test_a_synced_segment_that_was_cut_short(
    open_log: OpenLog, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(small())
    grow(log, 45)
    point = log.flush_now()
    log.close(clean=False)
    with open(folder / "00000000000000000020.log", "r+b") as file:
        file.truncate(420)
    log = open_log(small(), recovery_point=point)
    assert log.end_offset == 28
    assert "offsets 28 to 89 are lost" in caplog.text


def test_a_missing_active_segment(open_log: OpenLog, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(small())
    grow(log, 25)
    log.close()
    (folder / "00000000000000000040.log").unlink()
    log = open_log(small(), clean=True, recovery_point=50)
    assert log.end_offset == 40
    assert "offsets 40 to 49 are lost" in caplog.text
    assert "00000000000000000040.index" not in files(folder)


def test_every_segment_is_missing(open_log: OpenLog, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(small())
    grow(log, 25)
    log.close()
    for path in folder.glob("*.log"):
        path.unlink()
    log = open_log(small(), recovery_point=50)
    assert (log.start_offset, log.end_offset) == (0, 0)
    assert "offsets 0 to 49 are lost" in caplog.text
    grow(log, 1)


def test_a_log_that_ends_before_its_start(open_log: OpenLog, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(small())
    grow(log, 5)
    log = open_log(small(), start_offset=500)
    assert (log.start_offset, log.end_offset, log.describe_producers()) == (500, 500, [])
    assert "begins again at 500" in caplog.text
    grow(log, 1)
    assert headers(log)[0].base_offset == 500
    log.close()
    assert len(open_log(small(), clean=True, start_offset=500).describe_producers()) == 1


def test_producers_of_a_lost_log_do_not_come_back(open_log: OpenLog, folder: Path) -> None:
    log = open_log(small())
    grow(log, 25)
    log.close(clean=False)
    (folder / "00000000000000000000.log").write_bytes(b"rubbish")
    log = open_log(small(), start_offset=40)
    assert (log.start_offset, log.end_offset, log.describe_producers()) == (40, 40, [])
    assert not [name for name in files(folder) if name.endswith(".snapshot")]
    log = open_log(small(), start_offset=40)
    assert (log.start_offset, log.end_offset, log.describe_producers()) == (40, 40, [])


@pytest.mark.parametrize("damage", ["missing", "torn", "another version", "other offsets"])
@pytest.mark.parametrize("clean", [True, False])
def test_aborted_transactions_are_found_again(
    open_log: OpenLog, folder: Path, damage: str, clean: bool
) -> None:
    """Of closed segments too, which a start does not read otherwise: readers would see what was aborted."""
    log = open_log(small())
    for number in range(12):
        for producer in (1, 2, 3):
            data = batch(producer=producer, sequence=number, attributes=TRANSACTIONAL)
            log.append_leader(data, 0, NOW)
        for producer in (3, 1, 2):
            log.append_marker(producer, 0, producer == 1, 0, 0, NOW)
    log.set_high_watermark(log.end_offset)
    point = log.flush_now()
    before = log.aborted_transactions(0, log.end_offset)
    assert len(before) == 24 and len(log.segments) > 4
    log.close(clean)
    for path in folder.glob("*.txnindex"):
        content = path.read_bytes()
        if damage == "missing":
            path.unlink()
            path.with_suffix(".index").unlink()
        else:
            path.write_bytes(
                {
                    "torn": content[:-5],
                    "another version": b"\0\1" + content[2:],
                    "other offsets": content[:10] + bytes(24),
                }[damage]
            )
    for _ in range(2):
        log = open_log(small(), clean=clean, recovery_point=point, high_watermark=point)
        assert log.aborted_transactions(0, log.end_offset) == before
        log.close(clean)
        assert all(os.path.exists(segment.stem + ".index") for segment in log.segments[:-1])


def test_the_start_offset_is_kept(open_log: OpenLog) -> None:
    log = open_log(small())
    grow(log, 25)
    log = open_log(small(), start_offset=7)
    assert log.start_offset == 7
    with pytest.raises(KafkaError):
        log.read(6, 100)


@pytest.mark.parametrize("kind", ["index", "timeindex"])
@pytest.mark.parametrize("damage", ["missing", "empty", "odd size", "zeros", "rubbish", "too long"])
@pytest.mark.parametrize("clean", [True, False])
def test_damaged_indexes_are_rebuilt(
    open_log: OpenLog, folder: Path, kind: str, damage: str, clean: bool
) -> None:
    config = small(segment_bytes=5000)
    log = open_log(config)
    grow(log, 120)
    point = log.flush_now()
    before = {segment.base_offset: list(segment.index.entries()) for segment in log.segments}
    log.close(clean)
    for path in folder.glob(f"*.{kind}"):
        content = path.read_bytes()
        if damage == "missing":
            path.unlink()
        else:
            path.write_bytes(
                {
                    "empty": b"",
                    "odd size": content[:-3],
                    "zeros": bytes(len(content)),
                    "rubbish": b"\x7f" * len(content),
                    "too long": content + bytes(96),
                }[damage]
            )
    for _ in range(2):
        log = open_log(config, clean=clean, recovery_point=point, high_watermark=point)
        for offset in range(0, 240, 2):
            assert log.read(offset, 100).next_offset == offset + 2
        assert log.segments[-1].newest() == (NOW + 238, 239)
        if damage not in ("missing", "empty"):
            assert {segment.base_offset: list(segment.index.entries()) for segment in log.segments} == before
        log.close(clean)


def test_a_transaction_index_that_cannot_be_written_is_made_by_the_next_start(
    open_log: OpenLog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(small())
    for number in range(20):
        log.append_leader(batch(producer=1, sequence=number, attributes=TRANSACTIONAL), 0, NOW)
        log.append_marker(1, 0, False, 0, 0, NOW)
    log.set_high_watermark(log.end_offset)
    before = log.aborted_transactions(0, log.end_offset)
    log.close()
    path = sorted(folder.glob("*.txnindex"))[0]
    damaged = path.read_bytes()[:-5]
    path.write_bytes(damaged)

    def refuse(*_: object) -> None:
        raise OSError(30, "the disk says no")

    with monkeypatch.context() as patch:
        patch.setattr(transactions, "replace_file", refuse)
        log = open_log(small(), clean=True, recovery_point=log.end_offset)
        assert log.aborted_transactions(0, log.end_offset) == before
        log.close()
    assert path.read_bytes() == damaged, "so that it is still known to be damaged"
    log = open_log(small(), clean=True, recovery_point=log.end_offset)
    assert log.aborted_transactions(0, log.end_offset) == before
    assert path.stat().st_size > len(damaged)


@pytest.mark.parametrize("clean", [True, False])
def test_the_newest_time_is_found_without_the_time_index(
    open_log: OpenLog, folder: Path, clean: bool
) -> None:
    log = open_log(small())
    for number in range(25):
        log.append_leader(batch(timestamp=NOW - number), 0, NOW)
    point = log.flush_now()
    log.close(clean)
    for path in folder.glob("*.timeindex"):
        path.unlink()
    log = open_log(small(), clean=clean, recovery_point=point)
    assert [segment.newest()[0] for segment in log.segments] == [NOW, NOW - 10, NOW - 20]


def test_batches_larger_than_a_chunk(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "CHUNK", 256)
    log = open_log(small(segment_bytes=10_000))
    for size in (100, 156, 256, 200, 1000, 61, 61, 134, 700, 62, 255, 257):
        log.append_leader(batch(size=size), 0, NOW)
    again = open_log(small(segment_bytes=10_000))
    assert list(contents(again)) == list(contents(log))
    with open(again.active.path, "r+b") as file:
        file.truncate(again.size - 1)
    assert open_log(small(segment_bytes=10_000)).end_offset == 11


def test_leftovers_are_removed(open_log: OpenLog, folder: Path) -> None:
    log = open_log(small())
    grow(log, 25)
    log.close()
    for name in (
        "x.deleted",
        "00000000000000000000.log.cleaned",
        "leader-epoch-checkpoint.tmp",
        "00000000000000000007.index",
    ):
        (folder / name).write_bytes(b"?")
    (folder / "readme.txt").write_text("mine")
    open_log(small(), clean=True)
    left = files(folder)
    assert "readme.txt" in left
    assert not [
        name
        for name in left
        if name.endswith((".deleted", ".cleaned", ".tmp")) or name.startswith("0" * 19 + "7")
    ]


def test_a_finished_cleaning_is_completed(open_log: OpenLog, folder: Path) -> None:
    """`.swap` files replace the segments whose offsets they cover, as Kafka does it."""
    log = open_log(small())
    grow(log, 35)
    data = list(contents(log))
    log.close()
    kept = [one for header, one in data if header.base_offset in (4, 22, 38)]
    (folder / "00000000000000000000.log.swap").write_bytes(b"".join(kept))
    (folder / "00000000000000000000.index.swap").write_bytes(b"")
    (folder / "00000000000000000000.timeindex.swap").write_bytes(b"")
    log = open_log(small(), clean=True)
    assert [segment.base_offset for segment in log.segments] == [0, 40, 60]
    assert [header.base_offset for header in headers(log)] == [4, 22, 38, *range(40, 70, 2)]
    assert not [name for name in files(folder) if name.endswith(".swap")]


def test_old_record_formats_are_refused_not_cut(open_log: OpenLog, folder: Path) -> None:
    folder.mkdir()
    body = struct.pack(">bbq", 1, 0, NOW) + struct.pack(">i", -1) + struct.pack(">i", 3) + b"old"
    message = struct.pack(">qi", 0, len(body) + 4) + struct.pack(">I", zlib.crc32(body)) + body
    path = folder / "00000000000000000000.log"
    path.write_bytes(message * 5)
    with pytest.raises(FormatError, match="v1"):
        open_log()
    assert path.read_bytes() == message * 5


def test_offsets_that_go_backwards_end_the_log(open_log: OpenLog, folder: Path) -> None:
    log = open_log()
    grow(log, 3)
    log.close(clean=False)
    path = folder / "00000000000000000000.log"
    data = path.read_bytes()
    path.write_bytes(data + data[:100])
    assert open_log().end_offset == 6


def test_opening_twice_changes_nothing(open_log: OpenLog, folder: Path) -> None:
    log = open_log(small())
    grow(log, 45)
    log.close()
    for clean in (True, False):
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        open_log(small(), clean=clean, recovery_point=90).close()
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_no_file_stays_open(open_log: OpenLog) -> None:
    log = open_log(small())
    grow(log, 25)
    for clean in (True, False):
        log = open_log(small(), clean=clean)
        assert len(log.pool) == 0
        assert all(segment.fd < 0 for segment in log.segments)


def test_fill_after_fill(open_log: OpenLog) -> None:
    """Many lives, each ended by a kill."""
    for life in range(8):
        log = open_log(small(), recovery_point=max(0, life * 14 - 5))
        fill(log, 7, records=2)
    assert [header.base_offset for header in headers(log)] == list(range(0, 112, 2))
