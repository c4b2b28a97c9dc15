"""The state of a partition's log, and the steps that every append shares: write, remember, roll.

`append_fast_path` and `append` decide what is written; this module writes it at the end of the active segment
and remembers it (`_end_append`). A write that fails leaves no trace: the file is cut back to its old size,
and memory changes only after the write.

The limits at which a segment rolls are kept as plain numbers to compare with; whatever may change them
(another segment, another setting, a full index) sets them so that the next append asks `_prepare`, which
knows the rules.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import time
from collections.abc import Callable
from uuid import UUID

from millstream.settings.log_config import LogConfig
from millstream.storage import validate
from millstream.storage.epochs import EpochCache
from millstream.storage.files import (
    FilePool,
    Reaper,
    SyncFailed,
    remove_quietly,
    replace_file,
    storage_error,
    write_all,
)
from millstream.storage.index import MAX_RELATIVE
from millstream.storage.producers import REMEMBERED, Producer, ProducerTable
from millstream.storage.segment import OPEN_END, SNAPSHOT, Segment, file_stem
from millstream.wire.batch import MAX_SEQUENCE
from millstream.wire.errors import ErrorCode, KafkaError

NEVER = (1 << 63) - 1


class WritableLog:
    """State of a log, and the steps that every append shares. Use `PartitionLog`."""

    __slots__ = (
        "_after_ms",
        "_before_ms",
        "_by_id",
        "_config",
        "_epoch",
        "_fast_max_bytes",
        "_first_unstable",
        "_hints",
        "_interval",
        "_jitter_ms",
        "_max_bytes",
        "_max_index_entries",
        "_max_time_entries",
        "_roll_clock",
        "_roll_offset",
        "_roll_size",
        "_roll_time",
        "_tail_is_dirty",
        "active",
        "bases",
        "cleaned_to",
        "closed",
        "closed_size",
        "end_offset",
        "epochs",
        "flush_lock",
        "flushes",
        "folder",
        "folder_synced",
        "generation",
        "high_watermark",
        "last_flush_ms",
        "name",
        "name_changes",
        "names_synced",
        "offline",
        "on_sync_failed",
        "opens",
        "partition",
        "pool",
        "producers",
        "reaper",
        "recovery_point",
        "segments",
        "snapshot_position",
        "snapshots",
        "stamps_time",
        "start_offset",
        "topic",
        "topic_id",
        "unsynced",
        "write_problem",
    )

    def __init__(
        self,
        folder: str,
        config: LogConfig,
        segments: list[Segment],
        end_offset: int,
        *,
        start_offset: int = 0,
        recovery_point: int = 0,
        high_watermark: int = 0,
        producers: ProducerTable | None = None,
        epochs: EpochCache | None = None,
        snapshots: list[int] | None = None,
        topic_id: UUID | None = None,
        pool: FilePool | None = None,
        reaper: Reaper | None = None,
        folder_synced: bool = False,
    ) -> None:
        self.folder = folder
        self.name = os.path.basename(folder)
        topic, _, number = self.name.rpartition("-")
        self.topic = topic
        self.partition = int(number) if number.isdecimal() else -1
        self.topic_id = topic_id
        self.pool = pool if pool is not None else FilePool()
        self.reaper = reaper if reaper is not None else Reaper()
        self.segments = segments
        self.bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.closed_size = sum(segment.size for segment in segments[:-1])
        self.start_offset = max(start_offset, segments[0].base_offset)
        self.end_offset = end_offset
        self.high_watermark = min(max(high_watermark, self.start_offset), end_offset)
        self.recovery_point = min(recovery_point, end_offset)
        self.producers = producers if producers is not None else ProducerTable(self.name)
        self._by_id = self.producers.by_id
        self.epochs = epochs if epochs is not None else EpochCache()
        self.producers_changed()
        # Offsets of the snapshot files, ascending.
        self.snapshots = snapshots if snapshots is not None else []
        self.cleaned_to = 0  # the first offset that compaction has not seen yet
        self.last_flush_ms = int(time.time() * 1000)
        self.generation = 0  # counts truncations, so that a flush under way notices one
        # How often files were created or renamed; the names up to `names_synced` are durable.
        self.name_changes = 0 if folder_synced else 1
        self.names_synced = 0
        # Whether the folder's own name and the topic id in it are durable.
        self.folder_synced = folder_synced
        self.snapshot_position = self.active.size  # in the active segment, of the last snapshot
        self.unsynced: list[Segment] = []  # closed segments with bytes that were not synced
        self.closed = False
        self.flush_lock: asyncio.Lock | None = None  # made by the first flush
        # Why nothing more is written until a restart; whom to tell of an fsync that failed.
        self.offline: str | None = None
        self.on_sync_failed: Callable[[SyncFailed], None] | None = None
        self.write_problem: str | None = None  # why the last write failed, if it did (the disk is full, say)
        self._hints: dict[int, tuple[Segment, int]] = {}
        self._tail_is_dirty = False
        self._jitter_ms = 0
        self.config = config

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, {self.start_offset}..{self.end_offset})"

    def producers_changed(self) -> None:
        """Producers and epochs were rebuilt: renew what is cached of them."""
        self.producers.passed(self.high_watermark)
        self._first_unstable = self.producers.first_unstable()
        self._epoch = self.epochs.latest

    # -- settings and state ----------------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        """Takes effect with the next append."""
        self._config = config
        self._max_bytes = config.max_message_bytes
        # The producer's timestamps are ignored under LogAppendTime, however old or new they are.
        self.stamps_time = config.message_timestamp_type == "LogAppendTime"
        self._after_ms = NEVER if self.stamps_time else config.message_timestamp_after_max_ms
        self._before_ms = NEVER if self.stamps_time else config.message_timestamp_before_max_ms
        self._interval = config.index_interval_bytes
        self._max_index_entries = config.segment_index_bytes // 8
        self._max_time_entries = config.segment_index_bytes // 12 - 1
        self.opens = validate.opens(config)
        # Batches that have to be opened are none for the fast path, whatever their size.
        self._fast_max_bytes = -1 if self.opens else config.max_message_bytes
        self.flushes = config.flush_messages < NEVER or config.flush_ms < NEVER
        self._jitter_ms = int(random.random() * min(config.segment_jitter_ms, config.segment_ms))
        self._ask_before_next_append()

    @property
    def size(self) -> int:
        """Bytes in all segments."""
        return self.closed_size + self.active.size

    @property
    def last_stable_offset(self) -> int:
        first, high = self._first_unstable, self.high_watermark
        if first < 0:
            return high
        if first < self.start_offset:  # the beginning of that transaction was deleted
            first = self.start_offset
        return first if first < high else high

    def last_epoch(self) -> int:
        """The leader epoch of the last batch, -1 if there is none."""
        return self._epoch

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_of(epoch, self.end_offset)

    def begin_epoch(self, epoch: int) -> None:
        """A leader starts here; its first batch may come much later. Not worth a write: an epoch without
        batches is forgotten at a restart, and the first batch brings it back."""
        dirty = self.epochs.dirty
        self.epochs.assign(epoch, self.end_offset)
        self.epochs.dirty = dirty

    def end_epoch(self) -> None:
        """Another leads from here on: an epoch of ours that has no batch must not hide one of its."""
        if self.epochs.starts and self.epochs.starts[-1] >= self.end_offset:
            self.epochs.truncate_end(self.end_offset)

    def set_high_watermark(self, offset: int) -> None:
        """Never backwards (except by truncation), never beyond the end."""
        if offset > self.high_watermark:
            self.high_watermark = offset if offset <= self.end_offset else self.end_offset
            if self.producers.unreplicated:
                self.producers.passed(self.high_watermark)
                self._first_unstable = self.producers.first_unstable()

    @property
    def unflushed(self) -> int:
        """Messages that an fsync has not reached (for flush.messages)."""
        return self.end_offset - self.recovery_point

    def flush_due(self, now_ms: int) -> bool:
        """Do flush.messages or flush.ms ask for a flush now?"""
        waiting = self.end_offset - self.recovery_point
        config = self._config
        return waiting > 0 and (
            waiting >= config.flush_messages or now_ms - self.last_flush_ms >= config.flush_ms
        )

    # -- writing ---------------------------------------------------------------------------------------------

    def _write(self, parts: list[memoryview]) -> None:
        """Write at the end of the active segment, or raise and leave it as it was."""
        active = self.active
        data = parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
        try:
            write_all(active.open_for_writing(), data, active.size)
        except OSError as error:
            raise self._undo_write(error) from error

    def _undo_write(self, error: OSError) -> KafkaError:
        """Cut off what a failed write may have left. If even that fails, it is tried again before the next
        write."""
        self._tail_is_dirty = True
        self._ask_before_next_append()
        for clean_up in (self._cut_tail, self.active.close_files):
            try:
                clean_up()
            except OSError:
                pass
        if error.errno == errno.EBADF:  # it was opened for reading only
            error = OSError(errno.EROFS, os.strerror(errno.EROFS))
        self.write_problem = error.strerror or str(error)
        return storage_error(f"append to {self.name}", error)

    def _cut_tail(self) -> None:
        os.ftruncate(self.active.open_for_writing(), self.active.size)
        self._tail_is_dirty = False

    def take_offline(self, reason: str) -> None:
        """Refuse every write from now on. The next append asks `_prepare`, which never renews the limits."""
        self.offline = reason
        self._ask_before_next_append()

    @property
    def writable(self) -> bool:
        """Whether a write would go well, as far as the last one tells."""
        return self.offline is None and self.write_problem is None

    def refuse_if_offline(self) -> None:
        if self.offline is not None:
            raise KafkaError(
                ErrorCode.kafka_storage_error, f"{self.name} takes no writes until a restart: {self.offline}"
            )

    # -- the end of every append -----------------------------------------------------------------------------

    def _end_append(
        self,
        size: int,
        base_offset: int,
        delta: int,
        timestamp: int,
        epoch: int,
        producer: Producer | None,
        sequence: int,
        now_ms: int,
    ) -> None:
        """One batch stands at the end of the active segment: everything that is remembered of it.

        The fast path and the full one both end here, and only here does an append change the log's state."""
        active = self.active
        position = active.size
        last_offset = base_offset + delta
        active.size = position + size
        self.end_offset = last_offset + 1
        if timestamp > active.max_timestamp:
            active.max_timestamp = timestamp
            active.max_timestamp_offset = last_offset
        if active.unindexed > self._interval:
            index, time_index = active.index, active.time_index
            index.append(last_offset, position)
            if active.max_timestamp > time_index.last_timestamp:
                time_index.append(active.max_timestamp, active.max_timestamp_offset)
            active.unindexed = size
            if (
                index.saved + len(index.offsets) >= self._max_index_entries
                or time_index.saved + len(time_index.tail) >= self._max_time_entries
            ):
                self._roll_size = 0  # full: the next append rolls
        else:
            active.unindexed += size
        if producer is not None:
            last_sequence = (sequence + delta) & MAX_SEQUENCE if sequence >= 0 else sequence
            recent = producer.recent
            recent.append((sequence, last_sequence, last_offset, timestamp, delta))
            if len(recent) > REMEMBERED:
                del recent[0]
            producer.next_sequence = (last_sequence + 1) & MAX_SEQUENCE
            producer.timestamp = timestamp
            if now_ms > producer.seen_ms:
                producer.seen_ms = now_ms
        if epoch != self._epoch:
            self.epochs.assign(epoch, base_offset)
            self.epochs.dirty = True
            self._epoch = epoch

    def _index_is_full(self) -> bool:
        active = self.active
        return (
            len(active.index) >= self._max_index_entries or len(active.time_index) >= self._max_time_entries
        )

    # -- rolling ---------------------------------------------------------------------------------------------

    def _ask_before_next_append(self) -> None:
        """Make the next append call `_prepare`, which works out the real limits."""
        self._roll_size = 0
        self._roll_time = self._roll_clock = self._roll_offset = NEVER

    def _make_room(self, size: int, last_offset: int, timestamp: int, now_ms: int) -> None:
        """What the fast path does in line: ask only when a limit is reached."""
        if (
            self.active.size + size > self._roll_size
            or timestamp > self._roll_time
            or now_ms > self._roll_clock
            or last_offset > self._roll_offset
        ):
            self._prepare(size, last_offset, timestamp, now_ms)

    def _prepare(self, size: int, last_offset: int, timestamp: int, now_ms: int) -> None:
        """Before a write that may not fit: repair the tail, roll if size, age or index ask for it, renew the
        limits."""
        self.refuse_if_offline()
        config = self._config
        if size > config.segment_bytes:
            raise KafkaError(
                ErrorCode.record_list_too_large,
                f"{size} bytes do not fit into segment.bytes={config.segment_bytes}",
            )
        wait = config.roll_ms - self._jitter_ms
        try:
            if self._tail_is_dirty:
                self._cut_tail()
            active = self.active
            first = timestamp
            if active.size:
                active.open_for_writing()
                first = active.first_timestamp()
                age = timestamp - first if first >= 0 else now_ms - active.created_ms
                if (
                    active.size + size > config.segment_bytes
                    or age > wait
                    or last_offset - active.base_offset > MAX_RELATIVE
                    or self._index_is_full()
                ):
                    self._roll(now_ms)
                    active, first = self.active, timestamp
                    wait = config.roll_ms - self._jitter_ms
        except OSError as error:
            self.write_problem = error.strerror or str(error)
            raise storage_error(f"append to {self.name}", error) from error
        self.write_problem = None
        self._roll_size = config.segment_bytes
        self._roll_offset = active.base_offset + MAX_RELATIVE
        self._roll_time = first + wait if first >= 0 else NEVER
        self._roll_clock = NEVER if first >= 0 else active.created_ms + wait

    def roll(self, now_ms: int | None = None) -> None:
        """Close the active segment and begin a new one (no-op if it is empty)."""
        try:
            self._roll(int(time.time() * 1000) if now_ms is None else now_ms)
        except OSError as error:
            raise storage_error(f"roll {self.name}", error) from error

    def _roll(self, now_ms: int) -> None:
        """Each step leaves a folder that loads: indexes first, then the snapshot, the new file last."""
        old = self.active
        if not old.size:
            return
        old.seal(OPEN_END)
        self.take_snapshot()
        fresh = Segment(self.folder, self.end_offset, self.pool)
        fresh.created_ms = now_ms
        fresh.create()
        old.end_offset = self.end_offset
        self.unsynced.append(old)
        self._hints.pop(self.end_offset, None)
        self.segments.append(fresh)
        self.bases.append(fresh.base_offset)
        self.closed_size += old.size
        self.active = fresh
        self.snapshot_position = 0
        self.name_changes += 1
        self._jitter_ms = int(random.random() * min(self._config.segment_jitter_ms, self._config.segment_ms))
        self._ask_before_next_append()

    def _begin_segment_at(self, offset: int, now_ms: int) -> None:
        """What comes next is too far from the base of the active segment for its indexes. Between the log's
        end and `offset` there is nothing, as after a compaction at the leader."""
        try:
            if self._tail_is_dirty:
                self._cut_tail()
            self.end_offset = offset
            if self.active.size:
                self._roll(now_ms)
            elif self.active.base_offset < offset:
                fresh = Segment(self.folder, offset, self.pool)
                fresh.created_ms = now_ms
                fresh.create()
                self.reaper.add(now_ms + self._config.file_delete_delay_ms, self.active.doom())
                self.segments[-1] = self.active = fresh
                self.bases[-1] = offset
                self.name_changes += 1
                self._hints.clear()
        except OSError as error:
            self.write_problem = error.strerror or str(error)
            raise storage_error(f"append to {self.name}", error) from error
        if self.start_offset < self.bases[0]:
            self.start_offset = self.bases[0]
            self.high_watermark = max(self.high_watermark, self.start_offset)
        self._ask_before_next_append()

    # -- producer snapshots ----------------------------------------------------------------------------------

    def snapshot_path(self, offset: int) -> str:
        return os.path.join(self.folder, file_stem(offset) + SNAPSHOT)

    def take_snapshot(self, sync: bool = False) -> None:
        """Save the producers as they are at the end offset. Kept: one per segment start, and the newest."""
        offset = self.end_offset
        if self.snapshots and self.snapshots[-1] >= offset:
            return
        replace_file(self.snapshot_path(offset), self.producers.encode(), sync)
        while self.snapshots and self.snapshots[-1] not in self.bases:
            remove_quietly(self.snapshot_path(self.snapshots.pop()))
        self.snapshots.append(offset)
        self.snapshot_position = self.active.size
