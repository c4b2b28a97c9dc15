"""Looking into the files of a log without a broker: what is behind `millstream dump-log`.

Each kind of file has a reader that yields structured entries, and `dump` turns them into the lines that
Kafka's DumpLogSegments prints, in its order. Damage is reported, never raised: this is the tool for damaged
files.

Left out: decoders of internal topics (offsets, transactions, cluster metadata), and message formats before
v2, which show up as invalid bytes.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from millstream.storage.index import OFFSET_ENTRY, TIME_ENTRY
from millstream.storage.producers import Producer, decode_snapshot, parse_marker
from millstream.storage.segment import INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX
from millstream.storage.transactions import AbortedTransaction, parse
from millstream.wire.batch import (
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    MAX_SEQUENCE,
    BatchHeader,
    crc_of,
    read_header,
)
from millstream.wire.errors import KafkaError
from millstream.wire.records import Record, iter_records

CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
MAX_MESSAGE_SIZE = 5 * 1024 * 1024
NO_LIMIT = (1 << 31) - 1

Decoder = Callable[[bytes], str]


class Line(NamedTuple):
    text: str
    error: bool = False  # belongs on standard error
    unusable: bool = False  # what the file is there for cannot be had from it


class BatchEntry(NamedTuple):
    position: int
    header: BatchHeader
    valid: bool  # the checksum is right
    data: bytes

    def records(self) -> Iterator[Record]:
        """KafkaError if the records cannot be read."""
        return iter_records(self.data, check_crc=False)


class IndexEntry(NamedTuple):
    offset: int
    position: int
    log_offset: int | None  # where the batch at that position really ends; None if there is none


class TimeIndexEntry(NamedTuple):
    timestamp: int
    offset: int


# -- reading -------------------------------------------------------------------------------------------------


def base_offset_of(path: str) -> int:
    return int(os.path.basename(path).split(".", 1)[0])


def read_log(path: str, start: int = 0, max_bytes: int = NO_LIMIT) -> Iterator[BatchEntry]:
    """The whole batches of a .log file from position `start` on; ends at the first thing that is not one."""
    with open(path, "rb") as file:
        end = min(os.fstat(file.fileno()).st_size, start + max_bytes)
        position = start
        while position + HEADER_SIZE <= end:
            file.seek(position)
            header = read_header(file.read(HEADER_SIZE))
            if header.magic != MAGIC or header.size < HEADER_SIZE or position + header.size > end:
                return
            file.seek(position)
            data = file.read(header.size)
            yield BatchEntry(position, header, crc_of(data) == header.crc, data)
            position += header.size


def read_offset_index(path: str, check: bool = True) -> Iterator[IndexEntry]:
    """The entries of an .index file, each compared with the log beside it. Zeros at the end (space that Kafka
    reserved and did not use) are left out."""
    base = base_offset_of(path)
    with open(path, "rb") as file:
        data = file.read()
    log_path = path[: -len(INDEX)] + LOG
    log = open(log_path, "rb") if check and os.path.exists(log_path) else None  # noqa: SIM115
    try:
        usable = len(data) - len(data) % OFFSET_ENTRY.size
        for number, (relative, position) in enumerate(OFFSET_ENTRY.iter_unpack(data[:usable])):
            if number and not relative:
                return
            found = None
            if log is not None:
                log.seek(position)
                head = log.read(HEADER_SIZE)
                if len(head) == HEADER_SIZE and head[16] == MAGIC:
                    found = read_header(head).last_offset
            yield IndexEntry(base + relative, position, found)
    finally:
        if log is not None:
            log.close()


def read_time_index(path: str) -> Iterator[TimeIndexEntry]:
    base = base_offset_of(path)
    with open(path, "rb") as file:
        data = file.read()
    usable = len(data) - len(data) % TIME_ENTRY.size
    for number, (timestamp, relative) in enumerate(TIME_ENTRY.iter_unpack(data[:usable])):
        if number and not relative:
            return
        yield TimeIndexEntry(timestamp, base + relative)


def read_snapshot(path: str) -> Iterator[Producer]:
    """ValueError if it is damaged."""
    with open(path, "rb") as file:
        return decode_snapshot(file.read())


def read_txn_index(path: str) -> Iterator[AbortedTransaction]:
    with open(path, "rb") as file:
        return parse(file.read())


# -- printing ------------------------------------------------------------------------------------------------


def dump(
    files: Iterable[str],
    *,
    print_data_log: bool = False,
    deep_iteration: bool = False,
    index_sanity_check: bool = False,
    verify_index_only: bool = False,
    skip_record_metadata: bool = False,
    max_message_size: int = MAX_MESSAGE_SIZE,
    max_bytes: int = NO_LIMIT,
    decode_key: Decoder | None = None,
    decode_value: Decoder | None = None,
) -> Iterator[Line]:
    """The lines of DumpLogSegments for these files; what is wrong with them comes last."""
    problems = _Problems()
    for path in files:
        yield Line(f"Dumping {path}")
        suffix = os.path.splitext(path)[1]
        try:
            if suffix == LOG:
                printer = _RecordPrinter(print_data_log, skip_record_metadata, decode_key, decode_value)
                yield from _dump_log(path, deep_iteration or print_data_log, printer, max_bytes, problems)
            elif suffix == INDEX:
                yield from _dump_index(path, index_sanity_check, verify_index_only, problems)
            elif suffix == TIME_INDEX:
                yield from _dump_time_index(
                    path, index_sanity_check, verify_index_only, max_message_size, problems
                )
            elif suffix == SNAPSHOT:
                yield from _dump_snapshot(path)
            elif suffix == TXN_INDEX:
                for entry in read_txn_index(path):
                    yield Line(
                        f"version: 0 producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
                        f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
                    )
            else:
                yield Line(f"Ignoring unknown file {path}", error=True)
        except (OSError, ValueError, KafkaError) as error:
            yield Line(f"Cannot read {path}: {error}", error=True, unusable=True)
    yield from problems.lines()


class _Problems:
    """What Kafka's tool collects while it prints and reports at the end, per file."""

    def __init__(self) -> None:
        self.index: dict[str, list[tuple[int, int]]] = {}
        self.times: dict[str, list[tuple[int, int]]] = {}
        self.order: dict[str, list[tuple[int, int]]] = {}
        self.missing: dict[str, list[tuple[int, int]]] = {}
        self.gaps: dict[str, list[tuple[int, int]]] = {}

    @staticmethod
    def add(where: dict[str, list[tuple[int, int]]], path: str, pair: tuple[int, int]) -> None:
        where.setdefault(path, []).append(pair)

    def lines(self) -> Iterator[Line]:
        for found, title, text in (
            (self.index, "Mismatches in :{}", "  Index offset: {}, log offset: {}"),
            (self.times, "Found timestamp mismatch in :{}", "  Index timestamp: {}, log timestamp: {}"),
            (
                self.order,
                "Found out of order timestamp in :{}",
                "  Index timestamp: {}, Previously indexed timestamp: {}",
            ),
            (
                self.missing,
                "The following indexed offsets are not found in the log.",
                "Indexed offset: {}, found log offset: {}",
            ),
            (self.gaps, "Non-consecutive offsets in {}", "  {} is followed by {}"),
        ):
            for path, pairs in found.items():
                if found is self.index:
                    pairs.sort(reverse=True)  # as Kafka's tool has them
                yield Line(title.format(path), error=True)
                for pair in pairs:
                    yield Line(text.format(*pair), error=True)


def format_batch(entry: BatchEntry) -> str:
    header = entry.header
    time_name = "LogAppendTime" if header.attributes & LOG_APPEND_TIME else "CreateTime"
    horizon = (
        f"OptionalLong[{header.base_timestamp}]"
        if header.attributes & DELETE_HORIZON
        else "OptionalLong.empty"
    )
    codec = CODEC_NAMES[header.codec] if header.codec < len(CODEC_NAMES) else str(header.codec)
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.leader_epoch} isTransactional: {_java(header.is_transactional)} "
        f"isControl: {_java(header.is_control)} deleteHorizonMs: {horizon} position: {entry.position} "
        f"{time_name}: {header.max_timestamp} size: {header.size} magic: {header.magic} "
        f"compresscodec: {codec} crc: {header.crc} isvalid: {_java(entry.valid)}"
    )


def _java(value: bool) -> str:
    return "true" if value else "false"


class _RecordPrinter:
    def __init__(self, data: bool, skip_metadata: bool, key: Decoder | None, value: Decoder | None) -> None:
        self.data = data
        self.skip_metadata = skip_metadata
        self.key = key or _utf8
        self.value = value or _utf8

    def format(self, entry: BatchEntry, record: Record) -> str:
        header = entry.header
        text = ""
        if not self.skip_metadata:
            time_name = "LogAppendTime" if header.attributes & LOG_APPEND_TIME else "CreateTime"
            sequence = header.base_sequence
            if sequence >= 0:
                sequence = (sequence + record.offset - header.base_offset) & MAX_SEQUENCE
            keys = ",".join(name for name, _ in record.headers)
            text = (
                f"| offset: {record.offset} {time_name}: {record.timestamp} keySize: {_size(record.key)} "
                f"valueSize: {_size(record.value)} sequence: {sequence} headerKeys: [{keys}]"
            )
            if header.is_control:
                text += f" {_control(entry, record)}"
        if self.data and not header.is_control:
            if record.key is not None:
                text += f"{' ' if text else '| '}key: {self.key(record.key)}"
            if record.value is not None:
                text += f"{' ' if text else '| '}payload: {self.value(record.value)}"
        return text


def _control(entry: BatchEntry, record: Record) -> str:
    marker = parse_marker(entry.data)
    if marker is not None:
        commit, coordinator_epoch = marker
        return f"endTxnMarker: {'COMMIT' if commit else 'ABORT'} coordinatorEpoch: {coordinator_epoch}"
    number = int.from_bytes((record.key or b"")[2:4], "big")
    return f"controlType: UNKNOWN({number})"


def _utf8(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _size(value: bytes | None) -> int:
    return -1 if value is None else len(value)


def _dump_log(
    path: str, deep: bool, printer: _RecordPrinter, max_bytes: int, problems: _Problems
) -> Iterator[Line]:
    yield Line(f"Log starting offset: {base_offset_of(path)}")
    end, before = 0, -1
    for entry in read_log(path, max_bytes=max_bytes):
        yield Line(format_batch(entry))
        end = entry.position + entry.header.size
        if not deep:
            continue
        try:
            for record in entry.records():
                if before >= 0 and record.offset != before + 1:
                    problems.add(problems.gaps, os.path.abspath(path), (before, record.offset))
                before = record.offset
                yield Line(printer.format(entry, record))
        except KafkaError as error:
            text = f"Cannot read the records at offset {entry.header.base_offset}: {error}"
            yield Line(text, error=True, unusable=True)
    rest = os.path.getsize(path) - end
    if rest > 0 and max_bytes == NO_LIMIT:
        yield Line(f"Found {rest} invalid bytes at the end of {os.path.basename(path)}")


def _dump_index(path: str, sanity_only: bool, verify_only: bool, problems: _Problems) -> Iterator[Line]:
    size = os.path.getsize(path)
    if size < OFFSET_ENTRY.size:
        yield Line(f"{path} is empty.")
        return
    if sanity_only:
        yield _sanity(
            path, size, OFFSET_ENTRY.size, [entry.offset for entry in read_offset_index(path, check=False)]
        )
        return
    for entry in read_offset_index(path):
        if entry.log_offset != entry.offset:
            found = -1 if entry.log_offset is None else entry.log_offset
            problems.add(problems.index, os.path.abspath(path), (entry.offset, found))
        if not verify_only:
            yield Line(f"offset: {entry.offset} position: {entry.position}")


def _sanity(path: str, size: int, entry_size: int, offsets: list[int]) -> Line:
    """What Kafka checks before it trusts an index."""
    if size % entry_size:
        return Line(f"{path} is corrupt: its size {size} is no multiple of {entry_size}", True, True)
    if size > entry_size and offsets and offsets[-1] < base_offset_of(path):
        return Line(f"{path} is corrupt: its last offset {offsets[-1]} is not behind its base", True, True)
    return Line(f"{path} passed sanity check.")


def _dump_time_index(
    path: str, sanity_only: bool, verify_only: bool, max_message_size: int, problems: _Problems
) -> Iterator[Line]:
    size = os.path.getsize(path)
    if sanity_only:
        yield _sanity(path, size, TIME_ENTRY.size, [entry.offset for entry in read_time_index(path)])
        return
    name = os.path.abspath(path)
    stem = path[: -len(TIME_INDEX)]
    offsets = list(read_offset_index(stem + INDEX, check=False)) if os.path.exists(stem + INDEX) else []
    before = -1
    for entry in read_time_index(path):
        at = bisect_right(offsets, entry.offset, key=lambda each: each.offset)
        newest, last = _newest_in_batch(stem + LOG, offsets[at - 1].position if at else 0, entry.offset)
        if last != entry.offset:
            problems.add(problems.missing, name, (entry.offset, last))
        else:
            if newest != entry.timestamp:
                problems.add(problems.times, name, (entry.timestamp, newest))
            if before >= entry.timestamp:
                problems.add(problems.order, name, (entry.timestamp, before))
        if not verify_only:
            yield Line(f"timestamp: {entry.timestamp} offset: {entry.offset}")
        before = entry.timestamp


def _newest_in_batch(log_path: str, position: int, offset: int) -> tuple[int, int]:
    """(newest timestamp, last offset) of the first batch from `position` on that reaches `offset`; -1s if
    none does."""
    if os.path.exists(log_path):
        for entry in read_log(log_path, position):
            if entry.header.last_offset >= offset:
                try:
                    newest = max((record.timestamp for record in entry.records()), default=-1)
                except KafkaError:
                    newest = -1
                return newest, entry.header.last_offset
    return -1, -1


def _dump_snapshot(path: str) -> Iterator[Line]:
    for producer in read_snapshot(path):
        first = producer.txn_first_offset
        text = (
            f"producerId: {producer.id} producerEpoch: {producer.epoch} "
            f"coordinatorEpoch: {producer.coordinator_epoch} "
            f"currentTxnFirstOffset: {f'OptionalLong[{first}]' if first >= 0 else 'OptionalLong.empty'} "
            f"lastTimestamp: {producer.timestamp}"
        )
        if producer.recent:
            first_sequence, last_sequence, last_offset, timestamp, delta = producer.recent[-1]
            text += (
                f" firstSequence: {first_sequence} lastSequence: {last_sequence} lastOffset: {last_offset} "
                f"offsetDelta: {delta} timestamp: {timestamp}"
            )
        yield Line(text)
