"""The writing half of a partition's log: state, appending, rolling.

Appending is the hot path. A produced record set is nearly always one batch that needs no change; `append_plain`
judges it by one unpack, one checksum and one chain of comparisons, stamps offset and epoch into its first 16 bytes and
writes it with one pwrite at the position where the log ends. Everything else (several batches, recompression, log
append time, compacted topics, retries, errors) takes `_append_slowly`, which judges all, then writes all.

A write that fails leaves no trace: the file is cut back to its old size, and memory changes only after the write.

The limits at which a segment rolls are kept as plain numbers to compare with; whatever may change them (another
segment, another setting, a full index) sets them so that the next append asks `_prepare`, which knows the rules.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import time
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from crc32c import crc32c

from millstream.settings.log_config import LogConfig
from millstream.storage import validate
from millstream.storage.epochs import EpochCache
from millstream.storage.files import FilePool, Reaper, remove_quietly, replace_file, storage_error, write_all
from millstream.storage.producers import REMEMBERED, ProducerTable, encode_marker
from millstream.storage.segment import OPEN_END, SNAPSHOT, Segment, file_stem
from millstream.wire.batch import (
    CODEC_MASK,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    MAX_SEQUENCE,
    SMALLEST_RECORD,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
)
from millstream.wire.errors import ErrorCode, KafkaError

NEVER = (1 << 63) - 1
MAX_RELATIVE = 0x7FFFFFFF
_STAMP = Struct(">qii")  # base offset, length, leader epoch

_unpack_header = HEADER.unpack_from
_stamp = _STAMP.pack_into
_pwrite = os.pwrite


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    append_time: int  # -1 unless the topic uses log append time
    size: int
    duplicate: bool


class WritableLog:
    """State of a log, and everything that makes it longer. Use `PartitionLog`."""

    __slots__ = (
        "_after_ms",
        "_before_ms",
        "_by_id",
        "_config",
        "_epoch",
        "_first_unstable",
        "_hints",
        "_interval",
        "_jitter_ms",
        "_max_bytes",
        "_max_index_entries",
        "_max_time_entries",
        "_opens",
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
        "sync_failed",
        "topic",
        "topic_id",
        "unsynced",
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
        self.snapshots = (
            snapshots if snapshots is not None else []
        )  # offsets of the snapshot files, ascending
        self.cleaned_to = 0  # the first offset that compaction has not seen yet
        self.last_flush_ms = int(time.time() * 1000)
        self.generation = 0  # counts truncations, so that a flush under way notices one
        # Files were created or renamed so many times; the names up to `names_synced` are durable.
        self.name_changes = 0 if folder_synced else 1
        self.names_synced = 0
        # Whether the folder's own name and the topic id in it are durable.
        self.folder_synced = folder_synced
        self.snapshot_position = self.active.size  # in the active segment, of the last snapshot
        self.unsynced: list[Segment] = []  # closed segments with bytes that were not synced
        self.closed = False
        self.flush_lock: asyncio.Lock | None = None  # made by the first flush
        self.sync_failed = False
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

    # -- settings and state -----------------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        """Takes effect with the next append."""
        self._config = config
        self._max_bytes = config.max_message_bytes
        self.stamps_time = (
            config.message_timestamp_type == "LogAppendTime"
        )  # then the client's time is nothing to us
        self._after_ms = NEVER if self.stamps_time else config.message_timestamp_after_max_ms
        self._before_ms = NEVER if self.stamps_time else config.message_timestamp_before_max_ms
        self._interval = config.index_interval_bytes
        self._max_index_entries = config.segment_index_bytes // 8
        self._max_time_entries = config.segment_index_bytes // 12 - 1
        self._opens = validate.opens(config)
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
        """A leader starts here; its first batch may come much later. Not worth a write: an epoch without batches is
        forgotten at a restart, and the first batch brings it back."""
        dirty = self.epochs.dirty
        self.epochs.assign(epoch, self.end_offset)
        self.epochs.dirty = dirty

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

    # -- appending ----------------------------------------------------------------------------------------------

    def append_leader(self, batches: memoryview, epoch: int, now_ms: int) -> Appended:
        """Assign offsets to what a client produced, stamp the leader's epoch, write. The buffer is changed in place.

        Nothing is written when this raises KafkaError.
        """
        if len(batches) >= HEADER_SIZE and not batches.readonly:
            first = self.append_plain(batches, _unpack_header(batches), epoch, now_ms)
            if first >= 0:
                append_time = now_ms if self.stamps_time else -1
                return Appended(first, self.end_offset - 1, append_time, len(batches), False)
        return self._append_slowly(batches, epoch, now_ms)

    def append_plain(self, batch: memoryview, header: tuple[int, ...], epoch: int, now_ms: int) -> int:
        """Append one batch that needs no change, from a producer that is known here; returns its first offset.

        `header` is what `wire.batch.HEADER` finds in it. -1 says that nothing was done, because the batch is not plain or
        not right: `append_leader` knows which.
        """
        (
            zero,
            length,
            _,
            magic,
            crc,
            attributes,
            delta,
            base_timestamp,
            timestamp,
            producer_id,
            producer_epoch,
            sequence,
            count,
        ) = (  # fmt: skip
            header
        )
        size = len(batch)
        if (
            length != size - LENGTH_END
            or magic != MAGIC
            or zero
            or delta < 0
            or count != delta + 1
            or (count * SMALLEST_RECORD > size - HEADER_SIZE and not attributes & CODEC_MASK)
            or self._opens
            or size > self._max_bytes
            or timestamp < base_timestamp
            or timestamp > now_ms + self._after_ms
            or base_timestamp < now_ms - self._before_ms
            or not 0 <= (attributes & ~TRANSACTIONAL) <= validate.MAX_CODEC
            or crc32c(batch[CRC_START:]) != crc
        ):
            return -1
        if producer_id >= 0:
            producer = self._by_id.get(producer_id)
            if (
                producer is None
                or producer.next_sequence != sequence
                or producer.epoch != producer_epoch
                or sequence < 0
                or (producer.txn_first_offset < 0) is (attributes >= TRANSACTIONAL)
            ):
                return -1
        if self.stamps_time:
            timestamp = now_ms
        active = self.active
        position = active.size
        base_offset = self.end_offset
        last_offset = base_offset + delta
        if (
            position + size > self._roll_size
            or timestamp > self._roll_time
            or now_ms > self._roll_clock
            or last_offset > self._roll_offset
        ):
            self._prepare(size, last_offset, timestamp, now_ms)
            active = self.active
            position = active.size
        if self.stamps_time:
            validate.stamp_time(batch, attributes, now_ms)
        _stamp(batch, 0, base_offset, length, epoch)
        try:
            fd = active.fd
            if fd < 0:
                fd = active.open_file()
            active.used = True
            written = _pwrite(fd, batch, position)
            if written != size:
                write_all(fd, batch[written:], position + written)
        except OSError as error:
            raise self._undo_write(error) from error
        active.size = position + size
        self.end_offset = last_offset + 1
        if timestamp > active.max_timestamp:
            active.max_timestamp = timestamp
            active.max_timestamp_offset = last_offset
        if active.unindexed > self._interval:
            self._add_index_entries(active, last_offset, position)
            active.unindexed = size
        else:
            active.unindexed += size
        if producer_id >= 0:
            last_sequence = (sequence + delta) & MAX_SEQUENCE
            recent = producer.recent  # type: ignore[union-attr]
            recent.append((sequence, last_sequence, last_offset, timestamp, delta))
            if len(recent) > REMEMBERED:
                del recent[0]
            producer.next_sequence = (last_sequence + 1) & MAX_SEQUENCE  # type: ignore[union-attr]
            producer.timestamp = timestamp  # type: ignore[union-attr]
            producer.seen_ms = now_ms  # type: ignore[union-attr]
        if epoch != self._epoch:
            self._new_epoch(epoch, base_offset)
        return base_offset

    def _append_slowly(self, batches: memoryview, epoch: int, now_ms: int) -> Appended:
        """The same, for whatever is not one plain batch of a known producer: judge all batches, then write all."""
        if self.closed:
            raise KafkaError(ErrorCode.kafka_storage_error, f"{self.name} is closed")
        config = self._config
        parts = validate.split(batches)
        for number, part in enumerate(parts):
            validate.refuse(part, config)
            if not self.stamps_time:
                parts[number] = validate.check_times(part, config, now_ms)
        headers = [read_header(part) for part in parts]
        sent = self.producers.check_all(headers)
        if sent is not None:
            when = sent.timestamp if self.stamps_time else -1
            return Appended(sent.first_offset, sent.last_offset, when, len(batches), True)
        if self._opens or self.stamps_time:
            parts = [validate.rewrite(part, config, now_ms) for part in parts]
            headers = [read_header(part) for part in parts]
        total = sum(len(part) for part in parts)
        newest = max(header.max_timestamp for header in headers)
        first = self.end_offset
        last = first + sum(header.last_offset_delta + 1 for header in headers) - 1
        self._make_room(total, last, newest, now_ms)
        offset = first
        for number, (part, header) in enumerate(zip(parts, headers, strict=True)):
            if part.readonly:
                parts[number] = part = memoryview(bytearray(part))
            _stamp(part, 0, offset, header.length, epoch)
            headers[number] = header._replace(base_offset=offset, leader_epoch=epoch)
            offset += header.last_offset_delta + 1
        self._write(parts)
        self._note(headers, now_ms)
        return Appended(first, last, now_ms if self.stamps_time else -1, total, False)

    def append_trusted(self, batch: memoryview, epoch: int, now_ms: int) -> Appended:
        """Write one batch that the broker itself made. If it is part of a producer's transaction it has an epoch, which
        is checked, but no sequence."""
        header = read_header(batch)
        if len(batch) > self._max_bytes:
            raise validate.too_large(len(batch), self._config)
        self.producers.check_epoch(header.producer_id, header.producer_epoch)
        first, last = self.end_offset, self.end_offset + header.last_offset_delta
        self._make_room(len(batch), last, header.max_timestamp, now_ms)
        _stamp(batch, 0, first, header.length, epoch)
        self._write([batch])
        self._note([header._replace(base_offset=first, leader_epoch=epoch)], now_ms)
        return Appended(first, last, -1, len(batch), False)

    def append_follower(self, batches: memoryview) -> int:
        """Store batches as the leader sent them; they must not begin before the end. Returns the new end offset.

        A batch that is cut off at the end is ignored, as a fetch answer may end with one.
        """
        parts, headers = validate.split_replicated(batches, self.end_offset, self.name)
        if headers:
            now_ms = int(time.time() * 1000)
            total = sum(header.size for header in headers)
            newest = max(header.max_timestamp for header in headers)
            self._make_room(total, headers[-1].last_offset, newest, now_ms)
            self._write(parts)
            self._note(headers, now_ms, parts)
        return self.end_offset

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        epoch: int,
        now_ms: int,
    ) -> Appended:
        """End a producer's transaction in this partition (the transaction coordinator says so)."""
        self.producers.check_marker(producer_id, producer_epoch, coordinator_epoch)
        marker = memoryview(encode_marker(producer_id, producer_epoch, commit, coordinator_epoch, now_ms))
        header = read_header(marker)._replace(base_offset=self.end_offset, leader_epoch=epoch)
        self._make_room(len(marker), self.end_offset, now_ms, now_ms)
        _stamp(marker, 0, self.end_offset, header.length, epoch)
        self._write([marker])
        self._note([header], now_ms, [marker])
        when = now_ms if self.stamps_time else -1
        return Appended(header.base_offset, header.base_offset, when, len(marker), False)

    def _note(self, headers: list[BatchHeader], now_ms: int, parts: list[memoryview] | None = None) -> None:
        """Batches were written at the end of the active segment: everything that is kept about them."""
        active, producers = self.active, self.producers
        for number, header in enumerate(headers):
            active.note(header.last_offset, active.size, header.size, header.max_timestamp, self._interval)
            self.end_offset = header.next_offset
            if header.leader_epoch != self._epoch:
                self._new_epoch(header.leader_epoch, header.base_offset)
            if header.producer_id < 0:
                continue
            if not header.is_control:
                producers.record(header, header.base_offset, now_ms)
            elif parts is not None:
                aborted = producers.replay(header, parts[number])
                if aborted is not None:
                    # The first one makes the file. Without its name, what was aborted would look committed.
                    self.name_changes += not active.txn_index.entries()
                    active.txn_index.append(aborted)
            if header.attributes & TRANSACTIONAL:
                self._first_unstable = producers.first_unstable()
        if self._index_is_full():
            self._roll_size = 0  # the next append rolls

    def _write(self, parts: list[memoryview]) -> None:
        """Write at the end of the active segment, or raise and leave it as it was."""
        active = self.active
        data = parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
        try:
            write_all(active.open_for_writing(), data, active.size)
        except OSError as error:
            raise self._undo_write(error) from error

    def _undo_write(self, error: OSError) -> KafkaError:
        """Cut off what a failed write may have left. If even that fails, it is tried again before the next write."""
        self._tail_is_dirty = True
        self._ask_before_next_append()
        try:
            self._cut_tail()
        except OSError:
            pass
        self.active.close_files()
        if error.errno == errno.EBADF:  # it was opened for reading only
            error = OSError(errno.EROFS, os.strerror(errno.EROFS))
        return storage_error(f"append to {self.name}", error)

    def _cut_tail(self) -> None:
        os.ftruncate(self.active.open_for_writing(), self.active.size)
        self._tail_is_dirty = False

    def _new_epoch(self, epoch: int, offset: int) -> None:
        self.epochs.assign(epoch, offset)
        self.epochs.dirty = True
        self._epoch = epoch

    def _add_index_entries(self, active: Segment, last_offset: int, position: int) -> None:
        index, time_index = active.index, active.time_index
        index.append(last_offset, position)
        if active.max_timestamp > time_index.last_timestamp:
            time_index.append(active.max_timestamp, active.max_timestamp_offset)
        if (
            index.saved + len(index.offsets) >= self._max_index_entries
            or time_index.saved + len(time_index.tail) >= self._max_time_entries
        ):
            self._roll_size = 0  # full: the next append rolls

    def _index_is_full(self) -> bool:
        active = self.active
        return (
            len(active.index) >= self._max_index_entries or len(active.time_index) >= self._max_time_entries
        )

    # -- rolling ------------------------------------------------------------------------------------------------

    def _ask_before_next_append(self) -> None:
        """Make the next append call `_prepare`, which works out the real limits."""
        self._roll_size = 0
        self._roll_time = self._roll_clock = self._roll_offset = NEVER

    def _make_room(self, size: int, last_offset: int, timestamp: int, now_ms: int) -> None:
        """What `append_plain` does inline: ask only when a limit is reached."""
        if (
            self.active.size + size > self._roll_size
            or timestamp > self._roll_time
            or now_ms > self._roll_clock
            or last_offset > self._roll_offset
        ):
            self._prepare(size, last_offset, timestamp, now_ms)

    def _prepare(self, size: int, last_offset: int, timestamp: int, now_ms: int) -> None:
        """Before a write that may not fit: repair the tail, roll if size, age or index ask for it, renew the limits."""
        config = self._config
        if size > config.segment_bytes:
            raise KafkaError(
                ErrorCode.record_list_too_large,
                f"{size} bytes do not fit into segment.bytes={config.segment_bytes}",
            )
        try:
            if self._tail_is_dirty:
                self._cut_tail()
            active = self.active
            if active.size:
                wait = config.roll_ms - self._jitter_ms
                first = active.first_timestamp()
                age = timestamp - first if first >= 0 else now_ms - active.created_ms
                if (
                    active.size + size > config.segment_bytes
                    or age > wait
                    or last_offset - active.base_offset > MAX_RELATIVE
                    or self._index_is_full()
                ):
                    self._roll(now_ms)
        except OSError as error:
            raise storage_error(f"append to {self.name}", error) from error
        active = self.active
        first = active.first_timestamp() if active.size else timestamp
        wait = config.roll_ms - self._jitter_ms
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

    # -- producer snapshots -----------------------------------------------------------------------------------------

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
