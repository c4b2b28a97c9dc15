"""`dump-log` without a broker. (That its lines are those of Kafka's tool is tested in test_kafka.py.)"""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.storage import dump
from millstream.storage.dump import dump as dump_files
from millstream.storage.log import PartitionLog
from millstream.wire.batch import TRANSACTIONAL

from .batches import NOW, batch, real, small
from .conftest import OpenLog


@pytest.fixture
def folder_with_all(open_log: OpenLog, folder: Path) -> Path:
    log = open_log(small(index_interval_bytes=100))
    for number in range(12):
        log.append_leader(
            real([b"value", None, b""], codec=number % 5, timestamp=NOW + number, step=1), 3, NOW
        )
    log.append_leader(
        real([b"x"], producer_id=4, producer_epoch=1, base_sequence=6, transactional=True), 3, NOW
    )
    log.append_marker(4, 1, False, 9, 3, NOW + 50)
    log.close()
    return folder


def lines(*paths: Path, **options: bool) -> list[str]:
    return [line.text for line in dump_files([str(path) for path in paths], **options)]  # type: ignore[arg-type]


def errors(*paths: Path, **options: bool) -> list[str]:
    found = dump_files([str(path) for path in paths], **options)  # type: ignore[arg-type]
    return [line.text for line in found if line.error]


def test_batches(folder_with_all: Path) -> None:
    path = folder_with_all / "00000000000000000000.log"
    out = lines(path)
    assert out[:2] == [f"Dumping {path}", "Log starting offset: 0"]
    assert out[2].startswith(
        "baseOffset: 0 lastOffset: 2 count: 3 baseSequence: -1 lastSequence: -1 producerId: -1"
    )
    assert "compresscodec: none" in out[2]
    assert out[2].endswith("isvalid: true")
    assert not [line for line in out if line.startswith("|")]


def test_records(folder_with_all: Path) -> None:
    path = folder_with_all / "00000000000000000000.log"
    deep = [line for line in lines(path, deep_iteration=True) if line.startswith("|")]
    assert deep[0] == f"| offset: 0 CreateTime: {NOW} keySize: 1 valueSize: 5 sequence: -1 headerKeys: []"
    data = [line for line in lines(path, print_data_log=True) if line.startswith("|")]
    assert data[0] == deep[0] + " key: k payload: value"
    assert data[1] == deep[1] + " key: k"
    assert data[2] == deep[2] + " key: k payload: "
    bare = lines(path, print_data_log=True, skip_record_metadata=True)
    assert "| key: k payload: value" in bare
    entry = next(dump.read_log(str(path)))
    record = next(iter(entry.records()))._replace(key=None)
    printer = dump._RecordPrinter(True, True, None, None)
    assert printer.format(entry, record) == "| payload: value"
    decoded = dump_files([str(path)], print_data_log=True, decode_value=lambda value: value.hex())
    assert any("payload: 76616c7565" in line.text for line in decoded)


def test_markers(folder_with_all: Path) -> None:
    path = sorted(folder_with_all.glob("*.log"))[-1]
    assert lines(path, deep_iteration=True)[-1].endswith("endTxnMarker: ABORT coordinatorEpoch: 9")


def test_indexes_and_snapshots(folder_with_all: Path) -> None:
    first = folder_with_all / "00000000000000000000.index"
    log_lines = [line.split() for line in lines(first.with_suffix(".log")) if line.startswith("baseOffset")]
    ends = {words[words.index("position:") + 1]: words[3] for words in log_lines}
    for line in lines(first)[1:]:
        _, offset, _, position = line.split()
        assert ends[position] == offset
    times = lines(first.with_suffix(".timeindex"))
    assert times[1] == f"timestamp: {NOW + 4} offset: 8"
    snapshot = sorted(folder_with_all.glob("*.snapshot"))[-1]
    assert lines(snapshot)[1] == (
        "producerId: 4 producerEpoch: 1 coordinatorEpoch: 9 currentTxnFirstOffset: OptionalLong.empty "
        f"lastTimestamp: {NOW + 50} firstSequence: 6 lastSequence: 6 lastOffset: 36 offsetDelta: 0 "
        f"timestamp: {NOW + 50}"
    )
    (aborted,) = folder_with_all.glob("*.txnindex")
    assert lines(aborted)[1:] == [
        "version: 0 producerId: 4 firstOffset: 36 lastOffset: 37 lastStableOffset: 38"
    ]


def test_checks(folder_with_all: Path) -> None:
    paths = [*folder_with_all.glob("*.index"), *folder_with_all.glob("*.timeindex")]
    assert errors(*paths) == errors(*paths, verify_index_only=True) == []
    assert len(lines(*paths, verify_index_only=True)) == len(paths)
    for line in lines(*paths, index_sanity_check=True):
        assert line.startswith("Dumping") or line.endswith(("passed sanity check.", "is empty."))


def test_damage_is_reported(folder_with_all: Path) -> None:
    log, index = folder_with_all / "00000000000000000000.log", folder_with_all / "00000000000000000000.index"
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data[:-5])
    out = lines(log, deep_iteration=True)
    assert "isvalid: false" in out[2]
    assert out[-1].startswith("Found ")
    assert out[-1].endswith("invalid bytes at the end of 00000000000000000000.log")
    index.write_bytes(index.read_bytes()[:8] + bytes([0, 0, 0, 99]) + index.read_bytes()[12:])
    assert f"Mismatches in :{index}" in errors(index)
    assert any("Index offset: 99" in line for line in errors(index))
    index.write_bytes(bytes([0, 0, 0, 98]) + index.read_bytes()[4:])
    assert [line.split(",")[0] for line in errors(index)[1:]] == ["  Index offset: 99", "  Index offset: 98"]
    index.write_bytes(index.read_bytes() + b"\0")
    assert "corrupt" in lines(index, index_sanity_check=True)[1]
    times = index.with_suffix(".timeindex")
    raw = bytearray(times.read_bytes())
    raw[7] ^= 1
    times.write_bytes(raw)
    assert any(line.startswith("Found timestamp mismatch") for line in errors(times))
    snapshot = sorted(folder_with_all.glob("*.snapshot"))[-1]
    snapshot.write_bytes(b"\0\1no")
    assert "Cannot read" in errors(snapshot)[0]


def test_records_that_cannot_be_read(open_log: OpenLog, folder: Path) -> None:
    log = open_log()
    log.append_leader(batch(5), 0, NOW)
    log.append_leader(real([b"fine"]), 0, NOW)
    out = lines(folder / "00000000000000000000.log", print_data_log=True)
    assert any("Cannot read the records at offset 0" in line for line in out)
    assert out[-1].endswith("payload: fine")


def test_gaps_are_reported(open_log: OpenLog, folder: Path) -> None:
    log = open_log()
    log.append_leader(real([b"a"]), 0, NOW)
    moved = bytearray(real([b"b"]))
    moved[0:8] = (7).to_bytes(8, "big")
    log.append_follower(memoryview(moved))
    path = folder / "00000000000000000000.log"
    assert errors(path, deep_iteration=True) == [f"Non-consecutive offsets in {path}", "  0 is followed by 7"]


def test_unknown_and_missing_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("?")
    assert errors(tmp_path / "notes.txt") == [f"Ignoring unknown file {tmp_path / 'notes.txt'}"]
    assert "Cannot read" in errors(tmp_path / "00000000000000000000.log")[0]
    (tmp_path / "00000000000000000000.index").write_bytes(b"")
    assert lines(tmp_path / "00000000000000000000.index")[1].endswith("is empty.")
    times = tmp_path / "00000000000000000000.timeindex"
    times.write_bytes(b"")
    assert lines(times) == [f"Dumping {times}"]
    assert lines(times, index_sanity_check=True)[1] == f"{times} passed sanity check."


def test_max_bytes(folder_with_all: Path) -> None:
    path = folder_with_all / "00000000000000000000.log"
    whole = [line for line in lines(path) if line.startswith("baseOffset")]
    some = list(dump_files([str(path)], max_bytes=250))
    assert 0 < len(some) - 2 < len(whole)
    assert not any("invalid bytes" in line.text for line in some)


def test_structured(folder_with_all: Path) -> None:
    entries = list(dump.read_log(str(folder_with_all / "00000000000000000000.log")))
    assert all(entry.valid for entry in entries)
    assert [record.value for record in entries[0].records()] == [b"value", None, b""]


def test_open_transactions_and_transactional_batches(open_log: OpenLog, folder: Path) -> None:
    log: PartitionLog = open_log()
    log.append_leader(batch(2, producer=8, sequence=0, attributes=TRANSACTIONAL), 0, NOW)
    log.close()
    assert "isTransactional: true isControl: false" in lines(folder / "00000000000000000000.log")[2]
    assert "OptionalLong[0]" in lines(folder / "00000000000000000002.snapshot")[1]
