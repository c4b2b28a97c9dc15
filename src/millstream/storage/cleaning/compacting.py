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
import struct
import time
from array import array
from collections.abc import Iterator
from itertools import compress

from millstream.storage.cleaning.cleaned_segment import NewSegment, Replacement
from millstream.storage.cleaning.cleaned_transactions import CleanedTransactions
from millstream.storage.cleaning.key_learner import KeyLearner, ScannedChunk
from millstream.storage.cleaning.offset_map import MARK_BYTES, Marks, OffsetMap
from millstream.storage.cleaning.planning import SegmentSizes, groups
from millstream.storage.cleaning.record_filter import RecordFilter
from millstream.storage.cleaning.segment_reader import OUTLINE, SegmentReader
from millstream.storage.cleaning.segment_writer import SegmentWriter
from millstream.storage.cleaning.throttle import Throttle
from millstream.storage.cleaning.worker_protocol import Job, Summary
from millstream.storage.segment import INDEX, LOG, TIME_INDEX, file_stem
from millstream.wire.batch import CRC_START, HEADER_SIZE, LENGTH_END, MAGIC, read_header
from millstream.wire.checksum import crc32c

SMALLEST_BUFFER = 64 * 1024
MAX_TIMESTAMP = struct.Struct(">q")
MAX_TIMESTAMP_AT = 35  # in a batch


class Compaction:
    def __init__(self, job: Job, throttle: Throttle | None = None) -> None:
        self.job = job
        self.summary = Summary()
        self._throttle = throttle if throttle is not None else Throttle(job.bytes_per_second)
        self._scanned: dict[tuple[int, int], ScannedChunk] = {}
        ends = [base for base, _ in job.segments[1:]] + [job.upper]
        self._segments = [(base, end, size) for (base, size), end in zip(job.segments, ends, strict=True)]

    def replacements(self) -> Iterator[Replacement]:
        """Do it all. When the iterator is at its end, so is the work, and `summary` is complete."""
        job, summary = self.job, self.summary
        began = time.monotonic()
        newest = OffsetMap(job.map_bytes, job.load_factor, max(0, job.upper - job.first_dirty))
        marks = Marks(job.first_dirty, job.upper, MARK_BYTES)
        # These two are kept, if only as bare headers: the end of what is cleaned, and what producers wrote
        # last.
        marks.look_at(job.upper - 1)
        for last_offset, _ in job.producers.values():
            marks.look_at(last_offset)
        learner = self._learn(newest, marks)
        end = job.upper if learner.full_at is None else learner.full_at
        self._scanned = learner.scanned
        marks.learned(newest, end)
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
            marks,
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

    def _learn(self, newest: OffsetMap, marks: Marks) -> KeyLearner:
        """Fill the map from the dirty part, as far as there is room."""
        job = self.job
        # Those that ended before the dirty part must not be taken for open ones: their markers are not read
        # here.
        first_dirty = job.first_dirty
        transactions = CleanedTransactions(entry for entry in job.aborted if entry.last_offset >= first_dirty)
        learner = KeyLearner(newest, marks, transactions, first_dirty)
        for base, end, size in self._segments:
            if end <= first_dirty:
                continue
            with self._source(base, end, size) as source:
                while not source.ended and learner.full_at is None:
                    self._spend(learner.learn(source))
        return learner

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
        """A batch without a mark goes unseen: it was verified when its keys were learned. A chunk without a
        mark is not even read."""
        summary, marks = self.summary, judge.marks
        while not source.ended:
            before = source.position
            scanned = self._scanned.get((source.base, before))
            if scanned is not None and not marks.must_look(scanned.first, scanned.last):
                writer.drop()
                source.take(scanned.taken, 0, scanned.last + 1)
                summary.records_before += scanned.records
            else:
                if (
                    scanned is not None
                    and scanned.starts is not None
                    and marks.exact(scanned.first, scanned.last)
                ):
                    self._rewrite_scanned(source, writer, judge, scanned, scanned.starts)
                else:
                    self._rewrite_chunk(source, writer, judge)
                self._spend(source.position - before)
                self._spend_written(writer.end_chunk())
            summary.bytes_before += source.position - before

    def _rewrite_scanned(
        self,
        source: SegmentReader,
        writer: SegmentWriter,
        judge: RecordFilter,
        scanned: ScannedChunk,
        starts: array[int],
    ) -> None:
        """One offset a batch, so a mark is a batch."""
        chunk = source.read(scanned.taken)
        view = memoryview(chunk)
        marks = judge.marks
        due = scanned.first
        flags = marks.marks[due - marks.first : scanned.last + 1 - marks.first]
        kept = 0
        for start, flag in zip(compress(starts, flags), filter(None, flags), strict=True):
            base, length, magic, crc, _, delta, count = OUTLINE.unpack_from(chunk, start)
            size = length + LENGTH_END
            stop = start + size
            if magic != MAGIC or size < HEADER_SIZE or stop > scanned.taken or delta or count < 0:
                raise source.no_batch(start)
            if base < due or base > scanned.last:
                raise source.wrong_offsets(start, base, base, due)
            if base > due:
                writer.drop()
            due = base + 1
            if not scanned.plain or flag != Marks.KEPT:
                self._judge(source, view, start, stop, base, crc, writer, judge)
                continue
            # What the filter would say without opening it: the only record stays, and no clock starts.
            if crc32c(view[start + CRC_START : stop]) != crc:
                raise source.wrong_checksum(start, base)
            writer.keep(
                view, start, size, base, MAX_TIMESTAMP.unpack_from(chunk, start + MAX_TIMESTAMP_AT)[0]
            )
            kept += 1
        self.summary.records_after += kept
        if due <= scanned.last:
            writer.drop()
        source.take(scanned.taken, 0, scanned.last + 1)
        self.summary.records_before += scanned.records

    def _rewrite_chunk(self, source: SegmentReader, writer: SegmentWriter, judge: RecordFilter) -> None:
        chunk = source.read()
        view = memoryview(chunk)
        filled, at, size = len(chunk), 0, HEADER_SIZE
        expected, end = source.expected, source.end
        marks = judge.marks
        records = 0
        unpack = OUTLINE.unpack_from
        while at + HEADER_SIZE <= filled:
            base, length, magic, crc, _, delta, count = unpack(chunk, at)
            size = length + LENGTH_END
            if magic != MAGIC or size < HEADER_SIZE or delta < 0 or count < 0:
                raise source.no_batch(at)
            stop = at + size
            if stop > filled:
                break
            last = base + delta
            if base < expected or last >= end:
                raise source.wrong_offsets(at, base, last, expected)
            records += count
            if marks.must_look(base, last):
                self._judge(source, view, at, stop, last, crc, writer, judge)
            else:
                writer.drop()
            expected = last + 1
            at = stop
        source.take(at, size, expected)
        self.summary.records_before += records

    def _judge(
        self,
        source: SegmentReader,
        chunk: memoryview,
        start: int,
        stop: int,
        last: int,
        crc: int,
        writer: SegmentWriter,
        judge: RecordFilter,
    ) -> None:
        """Write what remains of one batch."""
        batch = chunk[start:stop]
        header = read_header(batch)
        if crc32c(batch[CRC_START:]) != crc:
            raise source.wrong_checksum(start, header.base_offset)
        fresh, newest, records = judge.apply(header, last, batch)
        self.summary.records_after += records
        if fresh is batch:
            writer.keep(chunk, start, stop - start, last, newest)
        elif fresh is None:
            writer.drop()
        else:
            assert isinstance(fresh, bytearray)
            writer.replace(fresh, last, newest)

    # -- files -----------------------------------------------------------------------------------------------

    def _source(self, base_offset: int, end_offset: int, size: int) -> SegmentReader:
        path = os.path.join(self.job.folder, file_stem(base_offset) + LOG)
        return SegmentReader(path, base_offset, end_offset, size, max(self.job.buffer_bytes, SMALLEST_BUFFER))

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
