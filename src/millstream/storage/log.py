"""PartitionLog: the append-only log of one partition.

    segments     closed ones, oldest first, then the active one, which alone is written
    offsets      start_offset <= last_stable_offset <= high_watermark <= end_offset
    beside it    producers (producers.py), leader epochs (epochs.py), aborted transactions (transactions.py)

The log knows offsets and epochs; who leads, and how far replicas are, it is told (`set_high_watermark`). It
is used by one thread. Only `flush` leaves it, to run fsync elsewhere, and touches nothing but descriptors
there.

Appending is in append.py, on state that writable_log.py keeps. Reading returns a `Slice`: a range of one
segment's file that holds whole batches. Readers mostly continue where they or another reader stopped, so the
log remembers such places (`_hints`: offset -> segment, position); others are found by index and a short walk
over headers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_right
from pathlib import Path
from typing import Literal, NamedTuple
from uuid import UUID

from millstream.settings.log_config import LogConfig
from millstream.storage import lookup, retention, truncation
from millstream.storage.append import AppendableLog, Appended
from millstream.storage.checkpoints import write_topic_id
from millstream.storage.files import FilePool, Reaper, remove_quietly, storage_error
from millstream.storage.flush import Flush
from millstream.storage.lookup import ProducerState, TimedOffset
from millstream.storage.segment import Segment
from millstream.storage.transactions import AbortedTransaction
from millstream.wire.batch import HEADER_SIZE, read_header
from millstream.wire.errors import ErrorCode, KafkaError

__all__ = ["NOTHING", "Appended", "PartitionLog", "Slice", "Upto"]

logger = logging.getLogger(__name__)

HINTS = 64
SNAPSHOT_EVERY = 64 << 20  # bytes: bounds what recovery must replay to know the producers
Upto = Literal["hw", "lso", "end"]


class Slice(NamedTuple):
    """A range of a segment's file. `next_offset` is where a reader of the whole slice continues."""

    segment: Segment | None
    position: int
    size: int
    next_offset: int

    def read(self) -> bytes:
        """The bytes (for tools and tests; the broker sends them straight from the file)."""
        return self.segment.read(self.position, self.size) if self.segment is not None else b""


NOTHING = Slice(None, 0, 0, -1)
_slice = tuple.__new__


def _reaches_over(batches: memoryview, offset: int) -> bool:
    """Whether the first batch begins before this offset and ends at or behind it."""
    if len(batches) < HEADER_SIZE:
        return False
    first = read_header(batches)
    return 0 <= first.base_offset < offset <= first.last_offset


class PartitionLog(AppendableLog):
    __slots__ = ()

    @classmethod
    def open(
        cls,
        folder: Path | str,
        config: LogConfig | None = None,
        *,
        clean: bool = False,
        recovery_point: int = 0,
        start_offset: int = 0,
        high_watermark: int = 0,
        topic_id: UUID | None = None,
        pool: FilePool | None = None,
        reaper: Reaper | None = None,
        expiration_ms: int = 24 * 60 * 60 * 1000,
    ) -> PartitionLog:
        """Open a partition's folder, making it if it does not exist. Unless it was closed `clean`ly,
        everything from `recovery_point` on is read and checked (recovery.py)."""
        from millstream.storage import recovery

        pool = pool if pool is not None else FilePool()
        loaded = recovery.load(
            str(folder),
            config or LogConfig(),
            pool,
            clean,
            recovery_point,
            start_offset,
            high_watermark,
            expiration_ms,
        )
        log = cls(
            str(folder),
            config or LogConfig(),
            loaded.segments,
            loaded.end_offset,
            start_offset=start_offset,
            recovery_point=loaded.recovery_point,
            high_watermark=high_watermark,
            producers=loaded.producers,
            epochs=loaded.epochs,
            snapshots=loaded.snapshots,
            topic_id=topic_id,
            pool=pool,
            reaper=reaper,
            folder_synced=clean and not loaded.created,
        )
        # Of a process that was killed, nobody knows what it had synced beyond the recovery point.
        log.unsynced = [
            segment
            for segment in loaded.segments[:-1]
            if segment.size and segment.end_offset > loaded.recovery_point
        ]
        return log

    # -- reading ---------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, upto: Upto = "hw", min_one: bool = True) -> Slice:
        """Whole batches from the one that holds `offset`, at most `max_bytes` of one segment.

        With `min_one` the first batch comes even if it is larger. The caller acquires `Slice.segment` before
        anything else happens to the log, and releases it when the bytes are sent.
        """
        if upto == "hw":
            limit = self.high_watermark
        elif upto == "end":
            limit = self.end_offset
        else:
            limit = self.last_stable_offset
        if offset >= limit or offset < self.start_offset:
            return self._nothing_at(offset)
        hints = self._hints
        hint = hints.get(offset)
        if hint is None:
            hint = self._locate(offset)
            if hint is None:
                return NOTHING
        segment, position = hint
        if limit >= segment.end_offset:
            following = segment.end_offset
            size = segment.size - position
        elif limit == self.end_offset:
            following = limit
            size = segment.size - position
        else:
            following = limit
            size = self._position_below(segment, limit) - position
        if size > max_bytes:
            size, following = self._fit(segment, position, max_bytes)
            if not size:
                if not min_one:
                    return NOTHING
                size, following = segment.first_batch(position)
        if size <= 0:
            return NOTHING
        if following not in hints and (segment.size > position + size or segment is self.active):
            self._remember(following, segment, position + size)
        return _slice(Slice, (segment, position, size, following))

    def _nothing_at(self, offset: int) -> Slice:
        """Within the log but with nothing to show yet, or out of range."""
        if not self.start_offset <= offset <= self.end_offset:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"offset {offset} is not in {self.name}, which holds {self.start_offset} to "
                f"{self.end_offset}",
            )
        if offset == self.end_offset and offset not in self._hints:
            self._remember(offset, self.active, self.active.size)
        return NOTHING

    def _fit(self, segment: Segment, position: int, max_bytes: int) -> tuple[int, int]:
        try:
            return segment.fit(position, max_bytes)
        except OSError as error:
            raise storage_error(f"read {self.name}", error) from error

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        hints = self._hints
        if len(hints) >= HINTS:
            del hints[next(iter(hints))]
        hints[offset] = (segment, position)

    def _locate(self, offset: int) -> tuple[Segment, int] | None:
        """The batch that holds `offset`, or the next one behind a gap that compaction left. A gap that damage
        has left is none: nobody would notice what is missing."""
        try:
            for number in range(bisect_right(self.bases, offset) - 1, len(self.segments)):
                segment = self.segments[number]
                found = segment.find(offset, whole=True)
                if found is not None:
                    return segment, found[0]
        except OSError as error:
            raise storage_error(f"read {self.name}", error) from error
        return None

    def _position_below(self, segment: Segment, limit: int) -> int:
        """Where the first batch begins that a reader bounded by `limit` must not see."""
        hint = self._hints.get(limit)
        if hint is not None and hint[0] is segment:
            return hint[1]
        found = segment.find(limit, whole=True)
        position = segment.size if found is None else found[0]
        if found is not None and found[1] == limit:
            self._remember(limit, segment, position)
        return position

    # -- other questions -------------------------------------------------------------------------------------

    def offset_for_timestamp(self, timestamp: int) -> TimedOffset | None:
        """The first record that is not older than `timestamp`; None if all are."""
        try:
            return lookup.offset_for_timestamp(self, timestamp)
        except OSError as error:
            raise storage_error(f"search {self.name}", error) from error

    def max_timestamp(self) -> TimedOffset | None:
        """The newest record; None if no record carries a time."""
        try:
            return lookup.max_timestamp(self)
        except OSError as error:
            raise storage_error(f"search {self.name}", error) from error

    def aborted_transactions(self, start: int, stop: int | Slice) -> list[AbortedTransaction]:
        """Those that a read_committed reader of offsets from `start` up to `stop`, or of a slice, must
        know."""
        bound = stop.next_offset if isinstance(stop, Slice) else stop
        try:
            return lookup.aborted_transactions(self, start, bound)
        except OSError as error:
            raise storage_error(f"search {self.name}", error) from error

    def describe_producers(self) -> list[ProducerState]:
        return lookup.describe_producers(self)

    # -- copying a leader ------------------------------------------------------------------------------------

    def append_follower(self, batches: memoryview) -> int:
        """As `AppendableLog`'s. A leader's log may start in the middle of a batch: an empty log that is to
        start there takes the batch as a whole, and hides its beginning."""
        start = self.start_offset
        if self.size or start != self.end_offset or not _reaches_over(batches, start):
            return super().append_follower(batches)
        self.reset_at(read_header(batches).base_offset)
        end = super().append_follower(batches)
        self.start_offset = min(start, end)
        self.set_high_watermark(self.start_offset)
        self.epochs.truncate_start(self.start_offset)
        return end

    # -- becoming shorter ------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        truncation.truncate_to(self, offset)

    def reset_at(self, offset: int) -> None:
        truncation.reset_at(self, offset)

    def advance_start(self, offset: int) -> int:
        return retention.advance_start(self, offset)

    def delete_old_segments(self, now_ms: int) -> int:
        return retention.delete_old_segments(self, now_ms)

    def forget_oldest(self, count: int) -> None:
        """The first `count` segments are gone; readers find the rest."""
        self.closed_size -= sum(segment.size for segment in self.segments[:count])
        gone = set(self.segments[:count])
        del self.segments[:count]
        del self.bases[:count]
        self.unsynced = [segment for segment in self.unsynced if segment not in gone]
        self._hints = {offset: hint for offset, hint in self._hints.items() if hint[0] not in gone}
        if self.start_offset < self.bases[0]:
            self.start_offset = self.bases[0]
            self.epochs.truncate_start(self.start_offset)
        while len(self.snapshots) > 1 and self.snapshots[0] < self.bases[0]:  # no truncation reaches below
            remove_quietly(self.snapshot_path(self.snapshots.pop(0)))

    def exchange(self, first: int, count: int, segment: Segment) -> None:
        """`count` segments from number `first` on became one, with the same offsets (cleaning/swap.py)."""
        gone = set(self.segments[first : first + count])
        self.segments[first : first + count] = [segment]
        self.bases[first : first + count] = [segment.base_offset]
        self.closed_size += segment.size - sum(old.size for old in gone)
        self.unsynced = [each for each in self.unsynced if each not in gone]
        self._hints = {offset: hint for offset, hint in self._hints.items() if hint[0] not in gone}
        self.name_changes += 1
        needed = {*self.bases, *self.snapshots[-1:]}
        for offset in self.snapshots:
            if offset not in needed:
                remove_quietly(self.snapshot_path(offset))
        self.snapshots = [offset for offset in self.snapshots if offset in needed]

    def become_shorter(self, end: int) -> None:
        """The last segment in the list is now the active one and the log ends at `end`."""
        self.active = self.segments[-1]
        self.end_offset = end
        self.closed_size = sum(segment.size for segment in self.segments[:-1])
        self.start_offset = min(self.start_offset, end)
        self.high_watermark = min(self.high_watermark, end)
        self.recovery_point = min(self.recovery_point, end)
        self.cleaned_to = min(self.cleaned_to, end)
        self.unsynced = [segment for segment in self.unsynced if segment in self.segments[:-1]]
        self.snapshot_position = 0
        self._hints.clear()
        self._tail_is_dirty = False
        self._ask_before_next_append()

    def expire_producers(self, now_ms: int) -> int:
        return self.producers.expire(now_ms)

    # -- durability ------------------------------------------------------------------------------------------

    async def flush(self, closed_segments_only: bool = False) -> int:
        """Everything written before this call (or before the last roll) is durable when it returns; fsync
        runs in a thread. The recovery point. Kafka syncs closed segments in the background: call it so while
        `unsynced`."""
        if self.flush_lock is None:
            self.flush_lock = asyncio.Lock()
        # One at a time: an older flush must not put its epochs over those of a newer one.
        async with self.flush_lock:
            flush = self._plan_flush(closed_segments_only)
            if flush is not None:
                try:
                    await asyncio.get_running_loop().run_in_executor(None, flush.run)
                finally:
                    self._end_flush(flush)
        return self.recovery_point

    def flush_now(self) -> int:
        """The same in this thread (a clean stop, tests)."""
        flush = self._plan_flush()
        if flush is not None:
            try:
                flush.run()
            finally:
                self._end_flush(flush)
        return self.recovery_point

    def _nothing_to_save(self) -> bool:
        if not self.size and not self.producers.by_id:
            return True
        return self._all_durable() and self.snapshots[-1:] == [self.end_offset]

    def _all_durable(self) -> bool:
        return (
            self.recovery_point >= self.end_offset
            and not self.epochs.dirty
            and self.name_changes == self.names_synced
        )

    def _plan_flush(self, closed_only: bool = False) -> Flush | None:
        """What a flush needs from the log; nothing of the log is touched by its `run`."""
        if self._all_durable() or (closed_only and not self.unsynced):
            return None
        self.refuse_if_offline()
        closed = list(self.unsynced)
        active = None if closed_only else self.active
        end = self.active.base_offset if closed_only else self.end_offset
        try:
            if self.active.size - self.snapshot_position > SNAPSHOT_EVERY:
                self.take_snapshot()
            for segment in closed:
                segment.save_indexes()
            if active is not None:
                active.save_indexes()
        except OSError as error:
            raise storage_error(f"flush {self.name}", error) from error
        flush = Flush(
            self.folder,
            closed,
            active,
            end,
            self.generation,
            self.name_changes,
            names=self.name_changes != self.names_synced,
            new_folder=not self.folder_synced,
        )
        if self.epochs.dirty:
            flush.epochs = self.epochs.encode()
        return flush

    def _end_flush(self, flush: Flush) -> None:
        """Back in the log's thread. After a failed fsync the kernel may have dropped what it could not write,
        and would call the next fsync a success: so the recovery point never moves again, nothing more is
        written or acknowledged, and a restart checks the log."""
        flush.release()
        if not flush.done:
            if flush.sync_error is not None:
                self.take_offline(str(flush.sync_error))
                if self.on_sync_failed is not None:
                    self.on_sync_failed(flush.sync_error)
            return
        done = set(flush.closed)
        self.unsynced = [segment for segment in self.unsynced if segment not in done]
        self.last_flush_ms = int(time.time() * 1000)
        self.folder_synced = True
        self.names_synced = max(self.names_synced, flush.name_changes)
        if flush.generation != self.generation:
            self.epochs.dirty = True  # the log was truncated meanwhile: what was written may be too much
            return
        if flush.epochs is not None and flush.epochs == self.epochs.encode():
            self.epochs.dirty = False
        if flush.end_offset > self.recovery_point:
            self.recovery_point = flush.end_offset

    def close(self, clean: bool = True, sync: bool = True) -> None:
        """Clean: everything is durable and the next open need not check it. Without `sync` the caller syncs
        the whole file system afterwards, which is much faster for many logs. A log that nobody wrote to costs
        nothing."""
        if self.closed:
            return
        self.closed = True
        self._max_bytes = self._fast_max_bytes = -1  # a late append is refused
        try:
            if clean and not self._nothing_to_save():
                self.active.seal(self.active.end_offset)
                self.take_snapshot(sync)
                if sync:
                    self.flush_now()
                else:
                    self.refuse_if_offline()
                    self.epochs.save(self.folder, sync=False)
                    self.recovery_point = self.end_offset
        except OSError as error:
            raise storage_error(f"close {self.name}", error) from error
        finally:
            for segment in self.segments:
                segment.close_files()

    def adopt(self, topic_id: UUID) -> None:
        """The folder has lost its topic id, to a power failure before its first flush: it is this one's."""
        self.topic_id = topic_id
        try:
            write_topic_id(self.folder, topic_id, sync=False)
        except OSError as error:  # the next start adopts it again
            logger.warning("%s: its topic id could not be written: %s", self.name, error)
        self.folder_synced = False
        self.name_changes += 1

    def exchange_files(self, other: PartitionLog) -> None:
        """Another log with the same batches gives its files to this one (relocation.py). Readers, producers
        and epochs notice nothing; a flush under way finds that the log has changed."""
        self.generation += 1
        self.folder = other.folder
        self.segments, self.bases, self.active = other.segments, other.bases, other.active
        self.closed_size = other.closed_size
        self.recovery_point = min(other.recovery_point, self.end_offset)
        self.unsynced, self.snapshots = other.unsynced, other.snapshots
        self.snapshot_position = other.snapshot_position
        self.name_changes += 1
        self.folder_synced = False
        self.epochs.dirty = True
        self.cleaned_to = min(self.cleaned_to, other.cleaned_to)
        self._hints.clear()
        self._tail_is_dirty = False
        self._ask_before_next_append()

    def batch_at(self, offset: int) -> int | None:
        """The base offset of the batch that holds `offset`, or of the next one; None if there is none."""
        try:
            for number in range(bisect_right(self.bases, offset) - 1, len(self.segments)):
                found = self.segments[number].find(offset)
                if found is not None:
                    return found[1]
        except OSError as error:
            raise storage_error(f"read {self.name}", error) from error
        return None

    def moved_to(self, folder: str) -> None:
        """The folder was renamed: files that are still to be opened are found there."""
        self.folder = folder
        for segment in self.segments:
            segment.moved_to(folder)
