"""A log in memory that holds real batches: what coordinators and transactional producers need.

Judging and stamping a batch, and the table of producers, are the broker's own code; the file is a list. The
first offset of a batch has its bytes, the others a number, so a batch is equal to its copy on another broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from millstream.storage.append import AppendableLog
from millstream.storage.log import NOTHING, Slice
from millstream.storage.producers import ProducerTable
from millstream.wire.batch import HEADER_SIZE, LENGTH_END, BatchHeader, read_header
from tests.simulation.fake_disk import LogEntry, MemoryLog

MAX_BATCH = 1 << 20


class BatchSegment:
    base_offset = 0
    end_offset = 1 << 60

    def __init__(self, log: BatchLog) -> None:
        self._log = log

    def acquire(self) -> None: ...

    def release(self) -> None: ...

    def read(self, position: int, size: int) -> bytes:
        """`position` is the first offset."""
        found = bytearray()
        for _, batch in self._log.batches(position):
            found += batch
            if len(found) >= size:
                break
        return bytes(found)


class BatchLog(MemoryLog):
    closed = False
    stamps_time = False
    opens = False
    _max_bytes = MAX_BATCH

    def __init__(self, name: str, topic_id: UUID, *more: Any) -> None:
        super().__init__(name, topic_id, *more)
        self.producers = ProducerTable(name)
        self.active = BatchSegment(self)  # type: ignore[assignment]

    @property
    def _config(self) -> Any:
        return self.config

    def reopened(self) -> BatchLog:
        log = super().reopened()
        assert isinstance(log, BatchLog)
        log._learn()
        return log

    def batches(self, first: int) -> Iterator[tuple[int, bytes]]:
        """From the batch on that begins at this offset."""
        for offset in range(first, len(self.entries)):
            value = self.entries[offset].value
            if isinstance(value, bytes):
                yield offset, value

    def _learn(self) -> None:
        """What the log says of its producers."""
        self.producers.clear()
        for _, batch in self.batches(self.start_offset):
            self.producers.replay(read_header(batch), batch)
        self.producers.passed(self.high_watermark)

    @property
    def last_stable_offset(self) -> int:
        first = self.producers.first_unstable()
        return self.high_watermark if first < 0 else min(first, self.high_watermark)

    # --- writing: the broker's code, on top of a list -------------------------------------------------------

    append_prepared: Any = AppendableLog.append_prepared
    append_trusted: Any = AppendableLog.append_trusted
    append_marker: Any = AppendableLog.append_marker
    append_follower: Any = AppendableLog.append_follower  # type: ignore[assignment]
    _append_follower_full: Any = AppendableLog._append_follower_full
    append_leader: Any = AppendableLog._append_full  # type: ignore[assignment]

    def append_follower_fast(self, batches: memoryview, now_ms: int) -> bool:
        return False

    def refuse_if_offline(self) -> None: ...

    def _make_room(self, *_: Any) -> None: ...

    def _read_aborted(self) -> None: ...

    def _write(self, parts: list[memoryview]) -> None:
        for part in parts:
            at = 0
            while at < len(part):
                header = read_header(part, at)
                size = header.length + LENGTH_END
                assert size >= HEADER_SIZE and header.base_offset == len(self.entries), self.name
                self.epochs.assign(header.leader_epoch, len(self.entries))
                self.entries.append(LogEntry(header.leader_epoch, bytes(part[at : at + size])))
                self.entries += (
                    LogEntry(header.leader_epoch, number) for number in range(1, header.last_offset_delta + 1)
                )
                at += size
        self._grown(self)

    def _remember_all(self, headers: list[BatchHeader], now_ms: int, parts: Any = None) -> None:
        for number, header in enumerate(headers):
            self.producers.replay(header, parts[number] if parts is not None else None)

    def truncate_to(self, offset: int) -> None:
        """Whole batches go."""
        while 0 < offset < len(self.entries) and not isinstance(self.entries[offset].value, bytes):
            offset -= 1
        super().truncate_to(offset)
        self._learn()

    def reset_at(self, offset: int) -> None:
        super().reset_at(offset)
        self._learn()

    def set_high_watermark(self, offset: int) -> None:
        super().set_high_watermark(offset)
        self.producers.passed(self.high_watermark)

    # --- reading --------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, upto: str = "hw", min_one: bool = True) -> Slice:
        end = {"hw": self.high_watermark, "lso": self.last_stable_offset}.get(upto, len(self.entries))
        if offset >= end:
            return NOTHING
        while offset > self.start_offset and not isinstance(self.entries[offset].value, bytes):
            offset -= 1
        size, next_offset = 0, offset
        for base, batch in self.batches(offset):
            last = base + read_header(batch).last_offset_delta
            if last >= end or (size + len(batch) > max_bytes and (size or not min_one)):
                break
            size, next_offset = size + len(batch), last + 1
        return Slice(self.active, offset, size, next_offset) if size else NOTHING  # type: ignore[arg-type]
