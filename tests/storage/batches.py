"""Batches for the storage tests, and small ways to look into a log."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from millstream.settings.log_config import LogConfig
from millstream.storage.log import PartitionLog, Upto
from millstream.wire.batch import HEADER, BatchHeader, crc_of, read_header
from millstream.wire.records import Record, encode_batch

NOW = 1_760_000_000_000


def batch(
    records: int = 1,
    size: int = 100,
    *,
    producer: int = -1,
    epoch: int = 0,
    sequence: int = -1,
    timestamp: int = NOW,
    attributes: int = 0,
    fill: bytes = b"x",
) -> memoryview:
    """A batch with a sound header whose records are filler: enough for everything that does not open
    batches."""
    # For that many records, unless they claim to be compressed.
    room = 7 * records if not attributes & 7 else 0
    data = bytearray(61) + fill * max(size - 61, room)
    producer_epoch = epoch if producer >= 0 else -1
    HEADER.pack_into(
        data, 0, 0, len(data) - 12, -1, 2, 0, attributes, records - 1, timestamp, timestamp,
        producer, producer_epoch, sequence, records,
    )  # fmt: skip
    return sealed(data)


def sealed(data: bytearray) -> memoryview:
    """The same bytes with the right checksum."""
    struct.pack_into(">I", data, 17, crc_of(data))
    return memoryview(data)


def real(
    values: list[bytes | None],
    *,
    key: bytes | None = b"k",
    codec: int = 0,
    timestamp: int = NOW,
    step: int = 0,
    **fields: Any,
) -> memoryview:
    """A batch of true records, `step` milliseconds apart."""
    records = [Record(0, timestamp + number * step, key, value) for number, value in enumerate(values)]
    return memoryview(encode_batch(records, codec, **fields))


def small(**changes: Any) -> LogConfig:
    """Settings under which everything happens early."""
    return replace(LogConfig(segment_bytes=1000, index_interval_bytes=200, file_delete_delay_ms=0), **changes)


def headers(log: PartitionLog, upto: Upto = "end", max_bytes: int = 1 << 20) -> list[BatchHeader]:
    """Every batch of the log, by reading it as a consumer does."""
    return [header for header, _ in contents(log, upto, max_bytes)]


def contents(
    log: PartitionLog, upto: Upto = "end", max_bytes: int = 1 << 20
) -> Iterator[tuple[BatchHeader, bytes]]:
    offset = log.start_offset
    while True:
        found = log.read(offset, max_bytes, upto)
        if found.segment is None:
            return
        data = found.read()
        assert len(data) == found.size > 0
        at = 0
        while at < len(data):
            header = read_header(data, at)
            assert at + header.size <= len(data), "a slice holds whole batches"
            one = data[at : at + header.size]
            assert crc_of(one) == header.crc
            yield header, one
            at += header.size
        assert found.next_offset > offset
        offset = found.next_offset


def fill(log: PartitionLog, count: int, **fields: Any) -> None:
    for _ in range(count):
        log.append_leader(batch(**fields), 0, NOW)
    log.set_high_watermark(log.end_offset)


def files(folder: Path | str) -> set[str]:
    return {path.name for path in Path(folder).iterdir()}
