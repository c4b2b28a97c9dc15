"""The fast path of an append against the full one, on twin logs: random and hostile batches, the same end.

One log takes what `append_leader` takes (the fast path wherever it says yes), its twin the full path always.
After each step both have given the same answer or the same error and know the same: offsets, segments, both
indexes, producers, epochs, open transactions, what a reader sees. At the end both folders hold the same
files, byte for byte. Followers of the first log, one of them without a fast path, are held against each other
in the same way. (What a produced batch sets off beyond the log, counters and waiters, is compared in
tests/broker/apis/test_fast_path_equivalence.py.)
"""

from __future__ import annotations

import shutil
import struct
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from millstream.storage import append as append_module
from millstream.storage.log import PartitionLog
from millstream.wire.batch import CONTROL, HEADER, LOG_APPEND_TIME, MAX_SEQUENCE, TRANSACTIONAL
from millstream.wire.errors import KafkaError
from tests.support.effort import examples

from .batches import NOW, batch, contents, real, sealed, small
from .conftest import OpenLog

CONFIG = small(segment_bytes=1500, index_interval_bytes=200, segment_index_bytes=96, max_message_bytes=1200)
CONFIGS = (
    CONFIG,
    replace(CONFIG, message_timestamp_type="LogAppendTime"),
    replace(CONFIG, message_timestamp_after_max_ms=1000, message_timestamp_before_max_ms=1000),
    replace(CONFIG, cleanup_policy=frozenset({"compact"})),
    replace(CONFIG, compression_type="lz4"),
    replace(CONFIG, segment_ms=3000),
)

Step = Callable[["Twins"], None]


@dataclass
class Twins:
    fast: PartitionLog
    full: PartitionLog
    now_ms: int = NOW
    epoch: int = 0
    followers: list[PartitionLog] = field(default_factory=list)

    @property
    def both(self) -> tuple[PartitionLog, PartitionLog]:
        return self.fast, self.full

    def append(self, data: bytes, readonly: bool = False) -> None:
        """Send the same bytes both ways; either both are refused, for the same reason, or both answer the
        same."""
        if self.followers:  # then one leader is enough
            with suppress(KafkaError):
                self.fast.append_leader(memoryview(bytearray(data)), self.epoch, self.now_ms)
            return
        answers = []
        for append in (self.fast.append_leader, self.full._append_full):
            buffer = memoryview(data if readonly else bytearray(data))
            try:
                answers.append(("appended", append(buffer, self.epoch, self.now_ms)))
            except KafkaError as error:
                answers.append((error.code.name, error.message, getattr(error, "records", ())))  # type: ignore[arg-type]
        event(f"{answers[0][0]}")
        assert answers[0] == answers[1]

    def do(self, step: Callable[[PartitionLog], object]) -> None:
        assert step(self.fast) == step(self.full)

    def marker(self, producer: int, commit: bool, coordinator_epoch: int) -> None:
        answers = []
        for log in self.both[: 1 if self.followers else 2]:
            try:
                answers.append(
                    log.append_marker(producer, 0, commit, coordinator_epoch, self.epoch, self.now_ms)
                )
            except KafkaError as error:
                answers.append((error.code, error.message))  # type: ignore[arg-type]
        assert answers[0] == answers[-1]

    def compare(self) -> None:
        assert state(self.fast) == state(self.full)


def state(log: PartitionLog) -> dict[str, Any]:
    """Everything that a log knows, as plain values."""
    return {
        "offsets": (log.start_offset, log.last_stable_offset, log.high_watermark, log.end_offset),
        "sizes": (log.size, log.closed_size, log.recovery_point),
        "segments": [
            (
                segment.base_offset,
                segment.size,
                segment.max_timestamp,
                segment.max_timestamp_offset,
                segment.unindexed,
                list(segment.index.entries()),
                [segment.time_index.entry(number) for number in range(len(segment.time_index))],
            )
            for segment in log.segments
        ],
        "producers": {
            producer.id: {name: getattr(producer, name) for name in producer.__slots__}
            for producer in log.producers.by_id.values()
        },
        "transactions": (dict(log.producers.open_transactions), list(log.producers.unreplicated)),
        "producer snapshot": (log.producers.encode(), list(log.snapshots)),
        "epochs": (log.last_epoch(), log.epochs.encode(), log.epochs.dirty),
        "aborted": log.aborted_transactions(log.start_offset, log.end_offset),
        "flush due": (log.unflushed, [segment.base_offset for segment in log.unsynced]),
    }


# --- steps --------------------------------------------------------------------------------------------------


@st.composite
def sound_batches(
    draw: st.DrawFn, twins_next: Callable[[int], int] | None = None
) -> Callable[[Twins], bytes]:
    """A batch that may well be accepted; its sequence number depends on what the log has seen."""
    records = draw(st.integers(1, 5))
    size = draw(st.sampled_from([100, 100, 150, 300, 300, 900, 1150, 1300]))
    producer = draw(st.sampled_from([-1, 0, 0, 0, 1]))
    shift = draw(st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1, -records]))
    first = draw(st.sampled_from([0, 0, 5, MAX_SEQUENCE - 1]))
    producer_epoch = draw(st.sampled_from([0, 0, 0, 0, 1]))
    timestamp = draw(st.sampled_from([0, 0, 0, 0, 1, 5, 2500, -2500]))
    no_timestamp = draw(st.integers(0, 20)) == 0
    transactional = draw(st.sampled_from([0, 0, 0, TRANSACTIONAL])) if producer >= 0 else 0
    attributes = transactional | draw(st.sampled_from([0, 0, 0, 0, 0, 0, 3, 4]))
    with_records = draw(st.integers(0, 5)) == 0

    def make(twins: Twins) -> bytes:
        known = twins.fast.producers.by_id.get(producer)
        sequence = -1
        if producer >= 0:
            sequence = known.next_sequence if known is not None and known.next_sequence >= 0 else first
            sequence = (sequence + shift) & MAX_SEQUENCE
        when = -1 if no_timestamp else twins.now_ms + timestamp
        if with_records:
            return bytes(
                real(
                    [b"v" * (size // 10)] * records,
                    key=b"k" if records % 2 else None,
                    codec=attributes & 7,
                    timestamp=when,
                    step=1,
                    producer_id=producer,
                    producer_epoch=producer_epoch if producer >= 0 else -1,
                    base_sequence=sequence,
                    transactional=bool(transactional),
                )
            )
        return bytes(
            batch(
                records,
                size,
                producer=producer,
                epoch=producer_epoch,
                sequence=sequence,
                timestamp=when,
                attributes=attributes,
            )
        )

    return make


FIELDS = (
    (0, ">q"), (8, ">i"), (12, ">i"), (16, ">b"), (17, ">I"), (21, ">h"), (23, ">i"), (27, ">q"), (35, ">q"),
    (43, ">q"), (51, ">h"), (53, ">i"), (57, ">i"),
)  # fmt: skip


@st.composite
def spoilt(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """What may happen to a batch on its way from a hostile client: a header field changed, mostly by a little
    and mostly with the right checksum; else bytes changed, missing or too many."""
    how = draw(st.sampled_from(["field"] * 7 + ["byte", "cut", "extended"]))
    reseal = draw(st.integers(0, 4)) > 0
    at, layout = draw(st.sampled_from(FIELDS))
    by = draw(st.sampled_from([1, -1, 2, -3, 700, -700, 3000, -3000, 1 << 14, 1 << 30, -(1 << 30), 1 << 62]))
    attributes = draw(
        st.sampled_from([CONTROL, LOG_APPEND_TIME, 0x40, 5, 7, 0x80, -1, TRANSACTIONAL | CONTROL])
    )
    position, byte = draw(st.integers(0, 2000)), draw(st.integers(0, 255))

    def spoil(data: bytes) -> bytes:
        out = bytearray(data)
        if how == "field":
            size = struct.calcsize(layout)
            value = attributes if at == 21 else int.from_bytes(out[at : at + size], "big") + by
            out[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "big")
        elif how == "byte":
            out[position % len(out)] = byte
        elif how == "cut":
            del out[position % len(out) :]
        else:
            out += bytes(position % 100 + 1)
        return bytes(sealed(out)) if reseal and len(out) > HEADER.size and at != 17 else bytes(out)

    return spoil


@st.composite
def steps(draw: st.DrawFn) -> Step:
    kind = draw(st.sampled_from(["batch"] * 8 + ["hostile"] * 4 + ["several", "readonly", "other", "other"]))
    if kind == "several":
        makers = draw(st.lists(sound_batches(), min_size=2, max_size=3))
        return lambda twins: twins.append(b"".join(make(twins) for make in makers))
    if kind == "other":
        return draw(other_steps)
    make = draw(sound_batches())
    if kind == "hostile":
        spoil = draw(spoilt())
        return lambda twins: twins.append(spoil(make(twins)))
    return lambda twins: twins.append(make(twins), readonly=kind == "readonly")


def later(by: int) -> Step:
    def step(twins: Twins) -> None:
        twins.now_ms += by

    return step


def next_epoch(twins: Twins) -> None:
    twins.epoch += 1


def high_watermark(twins: Twins) -> None:
    twins.do(lambda log: log.set_high_watermark(log.end_offset))


def another_config(number: int) -> Step:
    def step(twins: Twins) -> None:
        for log in twins.both:
            log.config = CONFIGS[number]

    return step


other_steps: st.SearchStrategy[Step] = st.one_of(
    st.sampled_from([later(1), later(500), later(4000), next_epoch, high_watermark]),
    st.builds(another_config, st.sampled_from([0, 0, 1, 2, 3, 4, 5])),
    st.builds(
        lambda producer, commit, epoch: lambda twins: twins.marker(producer, commit, epoch),
        st.integers(0, 2),
        st.booleans(),
        st.integers(0, 1),
    ),
    st.just(lambda twins: twins.do(lambda log: log.roll(twins.now_ms))),
    st.just(lambda twins: twins.do(lambda log: log.flush_now())),
)


def folder_content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@given(
    config=st.sampled_from((CONFIG, *CONFIGS[:3], *CONFIGS)), life=st.lists(steps(), min_size=8, max_size=30)
)
@settings(max_examples=examples(200))
def test_both_ways_of_appending_come_to_the_same(config: Any, life: list[Step]) -> None:
    root = Path(tempfile.mkdtemp())
    opened: list[PartitionLog] = []
    try:
        for name in ("fast", "full"):
            opened.append(PartitionLog.open(root / name / "t-0", config))
            opened[-1].name = "t-0"
        twins = Twins(*opened)
        for step in life:
            step(twins)
            twins.compare()
        assert [one for _, one in contents(twins.fast)] == [one for _, one in contents(twins.full)]
        for log in twins.both:
            log.close()
        assert folder_content(root / "fast" / "t-0") == folder_content(root / "full" / "t-0")
    finally:
        for log in opened:
            log.close(clean=False)
        shutil.rmtree(root)


@pytest.mark.parametrize("config", CONFIGS[:3])
def test_the_fast_path_takes_what_it_is_for(open_log: OpenLog, config: Any) -> None:
    """Without this, a fast path that never says yes would pass the test above."""
    log = open_log(config)
    log.append_leader(batch(producer=4, sequence=0), 0, NOW)
    for data in (batch(), batch(producer=4, sequence=1), batch(3, attributes=3)):
        assert log.append_fast(data, HEADER.unpack_from(data), 0, NOW) == log.end_offset - read_count(data)


class FollowerWithoutFastPath(PartitionLog):
    __slots__ = ()

    def append_follower_fast(self, batches: memoryview, now_ms: int) -> bool:
        return False


@st.composite
def copies(draw: st.DrawFn) -> Callable[[Twins], None]:
    """Followers get what the leader has, all or a part of it, as it is or spoilt on its way."""
    limit = draw(st.sampled_from([1, 300, 1000, 1 << 20, 1 << 20]))
    spoil = draw(spoilt()) if draw(st.integers(0, 3)) == 0 else bytes
    shift = draw(st.sampled_from([0, 0, 0, 0, 0, -1, 1]))

    def copy(twins: Twins) -> None:
        followers, leader = twins.followers, twins.fast
        offset = followers[0].end_offset + shift
        if leader.start_offset <= offset < leader.end_offset:
            data = spoil(leader.read(offset, limit, "end").read())
            answers = []
            for log in followers:
                try:
                    answers.append(("appended", log.append_follower(memoryview(data))))
                except KafkaError as error:
                    answers.append((error.code.name, error.message))  # type: ignore[arg-type]
            event(f"copied: {answers[0][0]}")
            assert answers[0] == answers[1]

    return copy


def follower_rolls(twins: Twins) -> None:
    for log in twins.followers:
        log.roll(twins.now_ms)


def follower_commits(twins: Twins) -> None:
    for log in twins.followers:
        log.set_high_watermark(log.end_offset)


@given(
    config=st.sampled_from((CONFIG, *CONFIGS)),
    life=st.lists(
        st.one_of(steps(), copies(), copies(), st.sampled_from([follower_rolls, follower_commits])),
        min_size=8,
        max_size=40,
    ),
)
@settings(max_examples=examples(200))
def test_both_ways_of_following_come_to_the_same(config: Any, life: list[Step]) -> None:
    root = Path(tempfile.mkdtemp())
    opened: list[PartitionLog] = []
    try:
        kinds = {"leader": PartitionLog, "fast": PartitionLog, "full": FollowerWithoutFastPath}
        for name, kind in kinds.items():
            opened.append(kind.open(root / name / "t-0", config))
            opened[-1].name = "t-0"
        leader, *followers = opened
        twins = Twins(leader, leader, followers=followers)
        with patch.object(append_module, "time", SimpleNamespace(time_ns=lambda: twins.now_ms * 1_000_000)):
            for step in life:
                step(twins)
                assert state(followers[0]) == state(followers[1])
        for log in followers:
            log.close()
        assert folder_content(root / "fast" / "t-0") == folder_content(root / "full" / "t-0")
    finally:
        for log in opened:
            log.close(clean=False)
        shutil.rmtree(root)


def test_the_fast_path_of_a_follower_takes_what_it_is_for(open_log: OpenLog) -> None:
    leader, follower = open_log(CONFIG), open_log(CONFIG)
    leader.append_leader(batch(producer=4, sequence=0), 0, NOW)
    follower.append_follower(memoryview(leader.read(0, 1 << 20, "end").read()))
    for data in (batch(), batch(producer=4, sequence=1), batch(3, attributes=3)):
        leader.append_leader(data, 0, NOW)
    data = memoryview(leader.read(1, 1 << 20, "end").read())
    assert follower.append_follower_fast(data, NOW)
    assert follower.end_offset == leader.end_offset


def read_count(data: memoryview) -> int:
    return int(HEADER.unpack_from(data)[-1])
