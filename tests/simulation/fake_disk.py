"""What outlives a process: its machine's logs, the checkpoints, and whether the page cache was lost.

`MemoryLog` has the interface of storage.log.PartitionLog as far as replication uses it, with the real cache
of leader epochs; a record is 20 bytes: offset, epoch, value. A run makes some hundred logs, and files would
take most of its time. Logs on files are tested by the storage tests, and by those of crashes and power cuts.

Left out: producers, transactions (`batch_log` has them).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from millstream.settings.log_config import LogConfig
from millstream.storage.epochs import EpochCache
from millstream.storage.log import NOTHING, Slice
from millstream.wire.topic_partition import TopicPartition

RECORD = struct.Struct(">qiq")


class LogEntry(NamedTuple):
    epoch: int
    value: int | bytes  # bytes: a whole batch (batch_log)


GONE = LogEntry(-1, -1)  # below the start of a log that began again there


class MemorySegment:
    """The part of a Segment that serving a fetch needs."""

    end_offset = 1 << 60

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    def acquire(self) -> None: ...

    def release(self) -> None: ...

    def read(self, position: int, size: int) -> bytes:
        first, count = position // RECORD.size, size // RECORD.size
        return b"".join(
            RECORD.pack(first + number, *entry)
            for number, entry in enumerate(self._log.entries[first : first + count])
        )


class MemoryLog:
    flushes = False
    closed = False
    offline = None
    writable = True

    def __init__(
        self,
        name: str,
        topic_id: UUID,
        config: LogConfig,
        committed: Callable[[MemoryLog, int, int], None],
        grown: Callable[[MemoryLog], None],
    ) -> None:
        self.name = name
        self.topic_id: UUID | None = topic_id
        self.config = config
        self.entries: list[LogEntry] = []
        self.epochs = EpochCache()
        self.start_offset = 0
        self.high_watermark = 0
        self.recovery_point = 0
        # Cut below its high watermark, which only an unclean election makes happen. The checkpoint is written
        # every few seconds, by a broker as by Kafka; one that is killed before that may show what was cut off
        # and is not committed as committed. Known, and not simulated: here it is as if written at once.
        self.cut_to: int | None = None
        self.verified = 0  # so many of the entries are known to be those that were committed
        self.compared: dict[object, int] = {}
        self._committed, self._grown = committed, grown
        self.active = MemorySegment(self)

    def reopened(self) -> MemoryLog:
        """As another process finds it."""
        log = type(self)(self.name, self.topic_id, self.config, self._committed, self._grown)  # type: ignore[arg-type]
        log.entries = list(self.entries)
        log.recovery_point = self.recovery_point
        log.verified = self.verified
        log.cut_to = self.cut_to
        log.start_offset = self.start_offset
        for offset in range(log.start_offset, len(log.entries)):
            log.epochs.assign(log.entries[offset].epoch, offset)
        return log

    @property
    def end_offset(self) -> int:
        return len(self.entries)

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark

    # --- as PartitionLog ------------------------------------------------------------------------------------

    def last_epoch(self) -> int:
        return self.entries[-1].epoch if self.entries else GONE.epoch

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_of(epoch, len(self.entries))

    def begin_epoch(self, epoch: int) -> None:
        self.epochs.assign(epoch, len(self.entries))

    def end_epoch(self) -> None:
        if self.epochs.starts and self.epochs.starts[-1] >= len(self.entries):
            self.epochs.truncate_end(len(self.entries))

    def append_leader(self, value: int, epoch: int) -> int:
        self.epochs.assign(epoch, len(self.entries))
        self.entries.append(LogEntry(epoch, value))
        self._grown(self)
        return len(self.entries)

    def append_follower(self, batches: memoryview) -> int:
        for offset, epoch, value in RECORD.iter_unpack(batches):
            assert offset == len(self.entries), f"{self.name}: {offset} is put at {len(self.entries)}"
            self.epochs.assign(epoch, offset)
            self.entries.append(LogEntry(epoch, value))
        self._grown(self)
        return len(self.entries)

    def truncate_to(self, offset: int) -> None:
        del self.entries[offset:]
        self.epochs.truncate_end(offset)
        self.start_offset = min(self.start_offset, offset)
        if offset < self.high_watermark:
            self.high_watermark = self.cut_to = offset
        self.recovery_point = min(self.recovery_point, offset)
        self.verified = min(self.verified, offset)

    def reset_at(self, offset: int) -> None:
        self.entries = [GONE] * offset
        self.epochs.clear()
        self.start_offset = self.high_watermark = offset
        self.recovery_point = min(self.recovery_point, offset)
        self.verified = min(self.verified, offset)

    def advance_start(self, offset: int) -> int:
        if offset > self.start_offset:
            self.start_offset = offset
            self.epochs.truncate_start(offset)
        return self.start_offset

    def set_high_watermark(self, offset: int) -> None:
        reached = min(offset, len(self.entries))
        before = self.high_watermark
        if reached > before:
            self.high_watermark = reached
            self._committed(self, before, reached)

    def read(self, offset: int, max_bytes: int, upto: str = "hw", min_one: bool = True) -> Slice:
        end = self.high_watermark if upto == "hw" else len(self.entries)
        count = min(end - offset, max(max_bytes // RECORD.size, 1 if min_one else 0))
        if count <= 0:
            return NOTHING
        size = count * RECORD.size
        return Slice(self.active, offset * RECORD.size, size, offset + count)  # type: ignore[arg-type]


@dataclass
class Disk:
    """Of one machine. The boot id is the kernel's; a power cut changes it."""

    logs: dict[TopicPartition, MemoryLog] = field(default_factory=dict)
    high_watermarks: dict[TopicPartition, int] = field(default_factory=dict)  # the checkpoint
    boot_id: int = 0
    saved_boot_id: int | None = None
    clean: bool = False  # the marker of a clean stop


class SimLogDirs:
    """In place of LogDirs, for one process."""

    def __init__(self, disk: Disk, make_log: Callable[[str, int, UUID, LogConfig], MemoryLog]) -> None:
        self._disk = disk
        self._make_log = make_log
        self.logs: dict[TopicPartition, MemoryLog] = {}
        clean, disk.clean = disk.clean, False
        self.data_lost = disk.saved_boot_id is None or (not clean and disk.saved_boot_id != disk.boot_id)
        if not self.data_lost:
            disk.saved_boot_id = disk.boot_id

    def data_loss_reported(self) -> None:
        self.data_lost = False
        self._disk.saved_boot_id = self._disk.boot_id

    def close(self) -> None:
        """A clean stop."""
        self._disk.clean = not self.data_lost

    def load(self) -> None:
        disk = self._disk
        for key, old in disk.logs.items():
            log = disk.logs[key] = self.logs[key] = old.reopened()
            saved = disk.high_watermarks.get(key, 0)
            saved = saved if log.cut_to is None else min(saved, log.cut_to)
            log.high_watermark = min(max(saved, log.start_offset), log.end_offset)
            log.set_high_watermark(log.high_watermark)  # which also tells what the log knows of producers

    def create(self, topic: str, index: int, topic_id: UUID, config: LogConfig) -> MemoryLog:
        key = TopicPartition(topic, index)
        log = self._make_log(topic, index, topic_id, config)
        self._disk.high_watermarks.pop(key, None)
        self.logs[key] = self._disk.logs[key] = log
        return log

    def delete(self, log: MemoryLog, now_ms: int) -> None:
        for key in [key for key, each in self.logs.items() if each is log]:
            del self.logs[key]
            self._disk.logs.pop(key, None)
            self._disk.high_watermarks.pop(key, None)

    def set_aside_stray(self, log: MemoryLog) -> None:
        self.delete(log, 0)
