"""Random lives of a log, compared step by step with a plain list of batches.

The machine appends, rolls, reads, truncates, deletes, flushes, restarts and crashes, also with torn or
damaged tails, in any order that hypothesis can think of. After each step everything that can be seen of the
log must equal the model.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millstream.storage.log import PartitionLog
from millstream.wire.batch import TRANSACTIONAL, read_header
from millstream.wire.errors import ErrorCode, KafkaError
from tests.support.effort import examples

from .batches import NOW, batch, contents, small

CONFIG = small(segment_bytes=900, index_interval_bytes=150, retention_ms=-1)


@dataclass(frozen=True)
class Stored:
    base: int
    last: int
    data: bytes
    epoch: int
    producer: int
    first_sequence: int
    timestamp: int
    marker: bool = False


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp()
        self.folder = os.path.join(self.root, "t-0")
        self.log = PartitionLog.open(self.folder, CONFIG)
        self.batches: list[Stored] = []  # what the segments hold
        self.history: list[Stored] = []  # the same, with what retention deleted: producers remember that
        self.start = self.end = self.high = self.flushed = self.checkpointed = 0
        self.epoch = 0

    def teardown(self) -> None:
        self.log.close(clean=False)
        shutil.rmtree(self.root)

    @initialize(epoch=st.integers(0, 3))
    def begin(self, epoch: int) -> None:
        self.epoch = epoch

    # -- growing ---------------------------------------------------------------------------------------------

    def next_sequence(self, producer: int) -> int:
        for stored in reversed(self.history):
            if stored.producer == producer and not stored.marker:
                return stored.first_sequence + stored.last - stored.base + 1
        return 0

    def store(self, data: bytes, producer: int, sequence: int, timestamp: int, marker: bool = False) -> None:
        header = read_header(data)
        base = self.end
        last = base + header.last_offset_delta
        stamped = base.to_bytes(8, "big") + data[8:12] + self.epoch.to_bytes(4, "big") + data[16:]
        stored = Stored(base, last, stamped, self.epoch, producer, sequence, timestamp, marker)
        self.batches.append(stored)
        self.history.append(stored)
        self.end = last + 1

    @rule(
        records=st.integers(1, 20),
        size=st.integers(61, 900),
        producer=st.integers(-1, 2),
        timestamp=st.integers(-3, 1000),
        count=st.sampled_from([1, 1, 1, 2, 3]),
    )
    def append(self, records: int, size: int, producer: int, timestamp: int, count: int) -> None:
        timestamp = NOW + timestamp if timestamp >= 0 else -1
        size = min(size, 900 // count)
        parts = []
        first = self.end
        for _ in range(count):
            sequence = self.next_sequence(producer) if producer >= 0 else -1
            attributes = TRANSACTIONAL if producer == 2 else 0
            one = batch(
                records,
                size,
                producer=producer,
                sequence=sequence,
                timestamp=timestamp,
                attributes=attributes,
            )
            parts.append(bytes(one))
            self.store(parts[-1], producer, sequence, timestamp)
        appended = self.log.append_leader(memoryview(bytearray(b"".join(parts))), self.epoch, NOW)
        assert appended == (first, self.end - 1, -1, sum(map(len, parts)), False)

    @precondition(lambda self: any(stored.producer >= 0 and not stored.marker for stored in self.recent()))
    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        known = [stored for stored in self.recent() if stored.producer >= 0 and not stored.marker]
        stored = data.draw(st.sampled_from(known))
        again = bytearray(stored.data)
        again[0:8] = bytes(8)
        result = self.log.append_leader(memoryview(again), self.epoch, NOW)
        assert (result.duplicate, result.base_offset, result.last_offset) == (True, stored.base, stored.last)

    def recent(self) -> list[Stored]:
        """The last batch of each producer: what every kind of restart still knows."""
        newest: dict[int, Stored] = {}
        for stored in self.history:
            if not stored.marker:
                newest[stored.producer] = stored
        return list(newest.values())

    @rule(producer=st.integers(0, 2))
    def skip_a_sequence(self, producer: int) -> None:
        if any(stored.producer == producer for stored in self.history):
            attributes = TRANSACTIONAL if producer == 2 else 0
            gap = batch(producer=producer, sequence=self.next_sequence(producer) + 1, attributes=attributes)
            try:
                self.log.append_leader(gap, self.epoch, NOW)
            except KafkaError as error:
                assert error.code is ErrorCode.out_of_order_sequence_number
            else:
                raise AssertionError("a gap was accepted")

    @rule(commit=st.booleans())
    def end_transaction(self, commit: bool) -> None:
        self.log.append_marker(2, 0, commit, 0, self.epoch, NOW)
        data = self.log.read(self.log.end_offset - 1, 1 << 20, "end").read()
        self.store(data[-78:], 2, -1, NOW, True)

    @rule(by=st.integers(1, 3))
    def new_leader(self, by: int) -> None:
        self.epoch += by
        self.log.begin_epoch(self.epoch)

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW)

    @rule(share=st.floats(0, 1))
    def move_high_watermark(self, share: float) -> None:
        ends = [stored.last + 1 for stored in self.batches if stored.last + 1 >= self.high]
        if ends:
            self.high = ends[min(int(share * len(ends)), len(ends) - 1)]
            self.log.set_high_watermark(self.high)

    # -- shrinking -------------------------------------------------------------------------------------------

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        target = int(self.start + share * (self.end - self.start))
        self.log.truncate_to(target)
        self.cut(target)

    def cut(self, target: int) -> None:
        """The model loses every batch that reaches `target` or further."""
        over = [stored for stored in self.batches if stored.last >= target]
        self.batches = [stored for stored in self.batches if stored.last < target]
        self.history = [stored for stored in self.history if stored.last < target]
        if over:
            self.end = min(target, over[0].base)
        self.start = min(self.start, self.end)
        self.high = min(self.high, self.end)
        self.flushed = min(self.flushed, self.end)
        self.checkpointed = min(self.checkpointed, self.end)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        target = int(self.start + share * max(0, self.high - self.start))
        if target <= self.high:
            self.log.advance_start(target)
            self.start = max(self.start, target)

    @rule(keep=st.integers(0, 5000))
    def retention(self, keep: int) -> None:
        self.log.config = small(
            segment_bytes=900, index_interval_bytes=150, retention_ms=-1, retention_bytes=keep
        )
        self.log.delete_old_segments(NOW)
        self.log.config = CONFIG
        assert self.log.start_offset <= self.high
        assert self.log.start_offset >= self.start
        self.start = self.log.start_offset
        self.batches = [stored for stored in self.batches if stored.last >= self.log.segments[0].base_offset]
        self.log.reaper.run(1 << 62)

    # -- lives -----------------------------------------------------------------------------------------------

    @rule()
    def flush(self) -> None:
        self.flushed = self.checkpointed = self.log.flush_now()
        assert self.flushed == self.end

    def reopen(self, clean: bool) -> None:
        self.log = PartitionLog.open(
            self.folder,
            CONFIG,
            clean=clean,
            recovery_point=self.checkpointed,
            start_offset=self.start,
            high_watermark=self.high,
        )

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.reopen(clean=True)
        self.flushed = self.checkpointed = self.end

    @rule()
    def crash(self) -> None:
        self.log.close(clean=False)
        self.reopen(clean=False)

    @rule(share=st.floats(0, 1, exclude_max=True), damage=st.booleans())
    def crash_with_a_bad_tail(self, share: float, damage: bool) -> None:
        """Bytes of the active segment that were never synced are cut off, or changed."""
        active = self.log.active
        self.log.close(clean=False)
        unsynced = [stored for stored in self.batches if stored.base >= max(self.flushed, active.base_offset)]
        room = sum(len(stored.data) for stored in unsynced)
        if not room or self.start > unsynced[0].base:
            self.reopen(clean=False)
            return
        at = active.size - room + int(share * room)
        position = active.size - room
        victim = unsynced[0]
        for stored in unsynced:
            if position + len(stored.data) > at:
                victim = stored
                break
            position += len(stored.data)
        with open(active.path, "r+b") as file:
            if damage:
                at = max(at, position + 21)  # what lies before is not covered by the checksum
                file.seek(at)
                old = file.read(1)
                file.seek(at)
                file.write(bytes([old[0] ^ 0x55]))
            else:
                file.truncate(at)
        self.high = min(self.high, victim.base)
        self.reopen(clean=False)
        self.cut(victim.base)

    # -- looking ---------------------------------------------------------------------------------------------

    @rule(share=st.floats(0, 1), max_bytes=st.integers(1, 3000), upto=st.sampled_from(["hw", "end", "lso"]))
    def read(self, share: float, max_bytes: int, upto: str) -> None:
        offset = int(self.start + share * (self.end - self.start))
        limit = {"hw": self.high, "end": self.end, "lso": self.log.last_stable_offset}[upto]
        found = self.log.read(offset, max_bytes, upto)  # type: ignore[arg-type]
        visible = [stored for stored in self.batches if stored.last >= offset and stored.last < limit]
        if not visible or offset >= limit:
            assert found.segment is None
            return
        data = found.read()
        expected = b"".join(stored.data for stored in visible)
        assert expected.startswith(data)
        assert len(data) <= max_bytes or data == visible[0].data
        following = [stored.last + 1 for stored in visible]
        assert found.next_offset in (*following, *(stored.base for stored in self.batches), limit)

    @rule(offset=st.integers(-2, 5))
    def read_out_of_range(self, offset: int) -> None:
        for wrong in (self.start - 1 - abs(offset), self.end + 1 + abs(offset)):
            try:
                self.log.read(wrong, 100)
            except KafkaError as error:
                assert error.code is ErrorCode.offset_out_of_range
            else:
                raise AssertionError("read outside the log")

    @invariant()
    def offsets_agree(self) -> None:
        log = self.log
        assert (log.start_offset, log.end_offset, log.high_watermark) == (
            self.start,
            self.end,
            max(self.high, self.start),
        )
        self.high = log.high_watermark
        assert log.start_offset <= log.last_stable_offset <= log.high_watermark

    def open_transaction(self) -> int | None:
        first = None
        for stored in self.history:
            if stored.producer == 2:
                first = None if stored.marker else stored.base if first is None else first
        return first

    @invariant()
    def contents_agree(self) -> None:
        visible = [stored for stored in self.batches if stored.last >= self.start]
        assert [data for _, data in contents(self.log)] == [stored.data for stored in visible]
        assert self.log.size == sum(segment.size for segment in self.log.segments)

    @invariant()
    def derived_state_agrees(self) -> None:
        log = self.log
        for producer in (0, 1, 2):
            known = log.producers.by_id.get(producer)
            if any(stored.producer == producer for stored in self.history):
                assert known is not None
                if any(stored.producer == producer and not stored.marker for stored in self.history):
                    assert known.next_sequence == self.next_sequence(producer)
            else:
                assert known is None
        if self.batches and self.start < self.end:
            assert log.last_epoch() == self.batches[-1].epoch
        assert log.producers.open_transactions.get(2) == self.open_transaction()
        for segment in log.segments:
            for offset, position in segment.index.entries():
                assert segment.header_at(position).last_offset == offset
            if segment.size:
                newest = max(
                    stored.timestamp
                    for stored in self.batches
                    if segment.base_offset <= stored.base < min(segment.end_offset, self.end)
                )
                assert segment.newest()[0] == newest


LogMachine.TestCase.settings = settings(
    max_examples=examples(60),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestLog = LogMachine.TestCase
