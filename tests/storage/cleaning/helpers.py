"""Cleaning a log in this process, and looking at what is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from millstream.settings.log_config import LogConfig
from millstream.storage.cleaning import planning, swap
from millstream.storage.cleaning.cleaned_segment import Replacement
from millstream.storage.cleaning.compacting import Compaction
from millstream.storage.cleaning.worker_protocol import Job, Summary
from millstream.storage.log import PartitionLog
from millstream.wire.batch import CONTROL, DELETE_HORIZON, BatchHeader
from millstream.wire.records import Record, encode_batch, iter_records

from ..batches import NOW, contents

LATER = NOW + 10


def compacted(**changes: Any) -> LogConfig:
    """Small segments, dense indexes, everything due at once."""
    base = LogConfig(
        cleanup_policy=frozenset({"compact"}),
        segment_bytes=1000,
        index_interval_bytes=200,
        file_delete_delay_ms=0,
        min_cleanable_dirty_ratio=0.0,
        delete_retention_ms=1000,
    )
    return replace(base, **changes)


def put(
    log: PartitionLog,
    *pairs: tuple[bytes | None, bytes | None],
    now: int = NOW,
    codec: int = 0,
    **fields: Any,
) -> int:
    """Append one batch of (key, value); its base offset."""
    rows = [Record(0, now, key, value) for key, value in pairs]
    base = log.append_leader(memoryview(encode_batch(rows, codec, **fields)), 0, now).base_offset
    log.set_high_watermark(log.end_offset)
    return base


def job_of(log: PartitionLog, dirt: planning.Dirt, now_ms: int, **changes: Any) -> Job:
    config = log.config
    job = Job(
        folder=log.folder,
        segments=[(s.base_offset, s.size) for s in log.segments if s.base_offset < dirt.upper],
        first_dirty=dirt.first_dirty,
        upper=dirt.upper,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        index_bytes=config.segment_index_bytes,
        index_interval=config.index_interval_bytes,
        map_bytes=1 << 20,
        load_factor=0.9,
        buffer_bytes=1 << 16,
        bytes_per_second=1e300,
        aborted=log.aborted_transactions(log.segments[0].base_offset, dirt.upper),
        producers={
            p.id: (p.last_offset, p.epoch) for p in log.producers.by_id.values() if p.last_offset < dirt.upper
        },
    )
    for name, value in changes.items():
        setattr(job, name, value)
    return job


def clean(
    log: PartitionLog,
    now_ms: int = LATER,
    put_in_place: Callable[[PartitionLog, Replacement, int], object] = swap.replace_segments,
    **changes: Any,
) -> Summary:
    """What the broker and its child do together, here in one thread."""
    dirt = planning.survey(log, log.cleaned_to, now_ms)
    log.flush_now()
    compaction = Compaction(job_of(log, dirt, now_ms, **changes))
    for replacement in compaction.replacements():
        put_in_place(log, replacement, now_ms)
    log.cleaned_to = compaction.summary.end_offset
    return compaction.summary


class Seen(NamedTuple):
    """A batch with its records."""

    header: BatchHeader
    records: list[Record]

    @property
    def horizon(self) -> int | None:
        return self.header.base_timestamp if self.header.attributes & DELETE_HORIZON else None


def batches(log: PartitionLog, max_bytes: int = 1 << 20) -> list[Seen]:
    return [Seen(header, list(iter_records(data))) for header, data in contents(log, "end", max_bytes)]


def rows(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of every data record."""
    return [
        (record.offset, record.key, record.value)
        for seen in batches(log)
        if not seen.header.attributes & CONTROL
        for record in seen.records
    ]


def read_committed(log: PartitionLog, max_bytes: int = 300) -> list[Record]:
    """What a client with isolation.level=read_committed makes of the log, fetch by fetch."""
    from millstream.storage.producers import parse_marker
    from millstream.wire.records import iter_batches

    found: list[Record] = []
    offset = log.start_offset
    while True:
        part = log.read(offset, max_bytes, "lso")
        if part.segment is None:
            return found
        aborted = sorted(log.aborted_transactions(offset, part), key=lambda entry: entry.first_offset)
        ignored: set[int] = set()
        for header, data in iter_batches(part.read()):
            while aborted and aborted[0].first_offset <= header.last_offset:
                ignored.add(aborted.pop(0).producer_id)
            if header.is_control:
                marker = parse_marker(data)
                if marker is not None and not marker[0]:
                    ignored.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in ignored):
                found += [record for record in iter_records(data) if record.offset >= offset]
        offset = part.next_offset
