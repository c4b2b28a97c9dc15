"""Cleaning one log: learn the keys of its dirty part, then rewrite it from the start, group after group of
segments.

Learning stops when the map is full; the log is then clean up to the last record that was learned, and the
rest is for the next round. Rewriting judges every record up to there: one that a later record of its key
replaces goes.

Each group of segments becomes one new segment. `replacements` gives it to whoever owns the log and continues
when that one asks for the next, so no more than one new segment waits at a time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from millstream.storage.cleaning.batch_records import plain_records, record_spans
from millstream.storage.cleaning.cleaned_segment import NewSegment, Replacement
from millstream.storage.cleaning.cleaned_transactions import CleanedTransactions
from millstream.storage.cleaning.offset_map import Marks, OffsetMap
from millstream.storage.cleaning.planning import SegmentSizes, groups
from millstream.storage.cleaning.record_filter import RecordFilter
from millstream.storage.cleaning.segment_reader import SegmentReader
from millstream.storage.cleaning.segment_writer import SegmentWriter
from millstream.storage.cleaning.throttle import Throttle
from millstream.storage.cleaning.worker_protocol import Job, Summary
from millstream.storage.segment import INDEX, LOG, TIME_INDEX, file_stem
from millstream.wire.batch import CONTROL, TRANSACTIONAL, BatchHeader

SMALLEST_BUFFER = 64 * 1024


class Compaction:
    def __init__(self, job: Job, throttle: Throttle | None = None) -> None:
        self.job = job
        self.summary = Summary()
        self._throttle = throttle if throttle is not None else Throttle(job.bytes_per_second)
        self._buffer = bytearray(max(job.buffer_bytes, SMALLEST_BUFFER))
        ends = [base for base, _ in job.segments[1:]] + [job.upper]
        self._segments = [(base, end, size) for (base, size), end in zip(job.segments, ends, strict=True)]

    def replacements(self) -> Iterator[Replacement]:
        """Do it all. When the iterator is at its end, so is the work, and `summary` is complete."""
        job, summary = self.job, self.summary
        began = time.monotonic()
        newest = OffsetMap(job.map_bytes, job.load_factor, max(0, job.upper - job.first_dirty))
        end = self._learn(newest)
        summary.end_offset = end
        summary.keys, summary.map_bytes, summary.map_utilization = (
            len(newest),
            newest.memory,
            newest.utilization,
        )
        summary.learn_seconds = time.monotonic() - began
        judge = RecordFilter(
            newest,
            end,
            Marks(newest, job.first_dirty, end),
            CleanedTransactions(job.aborted),
            job.producers,
            job.upper,
            job.now_ms,
            job.delete_retention_ms,
        )
        below = [self._sizes(segment) for segment in self._segments if segment[0] < end]
        for group in groups(below, job.segment_bytes, job.index_bytes):
            new = self._rewrite(group, judge)
            if new is not None:
                yield Replacement([segment.base_offset for segment in group], new)
        summary.seconds = time.monotonic() - began
        summary.throttled_seconds = self._throttle.slept

    # -- learning --------------------------------------------------------------------------------------------

    def _learn(self, newest: OffsetMap) -> int:
        """Fill the map from the dirty part. The offset up to which it is complete."""
        job = self.job
        # Those that ended before the dirty part must not be taken for open ones: their markers are not read
        # here.
        first_dirty = job.first_dirty
        transactions = CleanedTransactions(entry for entry in job.aborted if entry.last_offset >= first_dirty)
        for base, end, size in self._segments:
            if end <= first_dirty:
                continue
            with self._source(base, end, size) as source:
                for _, chunk, batches in source.chunks():
                    self._spend(len(chunk))
                    for at, stop, last, header in batches:
                        if last < first_dirty:
                            continue
                        full_at = self._learn_batch(newest, transactions, header, chunk[at:stop])
                        if full_at is not None:
                            return full_at
        return job.upper

    def _learn_batch(
        self, newest: OffsetMap, transactions: CleanedTransactions, header: BatchHeader, batch: memoryview
    ) -> int | None:
        """The offset of the first record that found no room in the map; None if all did."""
        attributes = header.attributes
        if attributes & (TRANSACTIONAL | CONTROL):
            may_go = transactions.may_go(header, batch)
            if may_go or attributes & CONTROL:
                return None
        spans = record_spans(header, plain_records(header, batch))
        base, first_dirty = header.base_offset, self.job.first_dirty
        if base < first_dirty:  # the last round ended inside this batch
            spans = [span for span in spans if base + span[2] >= first_dirty]
        taken = newest.learn(base, spans)
        return None if taken == len(spans) else base + spans[taken][2]

    # -- rewriting -------------------------------------------------------------------------------------------

    def _rewrite(self, group: list[SegmentSizes], judge: RecordFilter) -> NewSegment | None:
        """One new segment for a group; None if the group is a single segment that stays as it is."""
        folder = self.job.folder
        sources: list[SegmentReader] = []
        writer: SegmentWriter | None = None
        try:
            sources = [self._source(each.base_offset, each.end_offset, each.size) for each in group]
            modified_ns = os.fstat(sources[-1].fd).st_mtime_ns
            writer = SegmentWriter(
                folder, group[0].base_offset, self.job.index_interval, sources[0] if len(group) == 1 else None
            )
            for source in sources:
                self._rewrite_source(source, writer, judge)
                source.close()
            aborted = judge.transactions.take_kept()
            self.summary.bytes_after += writer.position
            if writer.unchanged:
                writer.discard()
                return None
            self._spend_written(writer.copied)
            return writer.finish(aborted, modified_ns)
        except BaseException:
            if writer is not None:
                writer.discard()
            raise
        finally:
            for source in sources:
                source.close()

    def _rewrite_source(self, source: SegmentReader, writer: SegmentWriter, judge: RecordFilter) -> None:
        summary = self.summary
        for _, chunk, batches in source.chunks():
            self._spend(len(chunk))
            summary.bytes_before += len(chunk)
            for at, stop, last, header in batches:
                batch = chunk[at:stop]
                fresh, newest, records = judge.apply(header, last, batch)
                summary.records_before += header.record_count
                summary.records_after += records
                if fresh is batch:
                    writer.keep(chunk, at, stop - at, last, newest)
                else:
                    assert fresh is None or isinstance(fresh, bytearray)
                    writer.replace(fresh, last, newest)
            self._spend_written(writer.end_chunk())

    # -- files -----------------------------------------------------------------------------------------------

    def _source(self, base_offset: int, end_offset: int, size: int) -> SegmentReader:
        path = os.path.join(self.job.folder, file_stem(base_offset) + LOG)
        return SegmentReader(path, base_offset, end_offset, size, self._buffer)

    def _sizes(self, segment: tuple[int, int, int]) -> SegmentSizes:
        base, end, size = segment
        stem = os.path.join(self.job.folder, file_stem(base))
        return SegmentSizes(base, end, size, _size_of(stem + INDEX), _size_of(stem + TIME_INDEX))

    def _spend(self, count: int) -> None:
        self.summary.bytes_read += count
        self._throttle.spend(count)

    def _spend_written(self, count: int) -> None:
        if count:
            self.summary.bytes_written += count
            self._throttle.spend(count)


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
