"""Requests that are written while earlier ones of their connection wait for the commit.

A producer that keeps several in flight gets an answer to each, in order and with its own correlation id; a
success only when the high watermark has passed what it wrote; and the log has every accepted batch once, in
the order of the requests. Two followers move as they like, the leader resigns, time runs out, other requests
come between.
"""

from __future__ import annotations

import struct
import tempfile
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from millstream.broker.apis.pending_produce import MAX_QUEUED, ProduceQueue
from millstream.broker.apis.produce import ProduceHandler
from millstream.broker.network.dispatch import Api, Dispatcher
from millstream.broker.partition import Partition
from millstream.broker.replication.replica_tracker import ReplicaTracker
from millstream.broker.replication.throttle import RateLimiter
from millstream.cluster.metadata_records import Partition as Record
from millstream.storage.log import PartitionLog
from tests.support.effort import examples

from ...storage.batches import batch
from ..raw_frames import request
from .test_fast_path_equivalence import CONFIG, EPOCH, TOPIC_ID, Clock, Connection, Loop

TIMEOUT_MS = 1500


class Replication:
    """What a leader knows of the cluster."""

    max_lag = 30.0
    by_rack = False

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.brokers = {each: SimpleNamespace(epoch=10 * each, draining=False) for each in (1, 2, 3)}
        self.limiter: RateLimiter | None = None

    def now(self) -> float:
        return self.loop.time()

    def propose_soon(self, partition: Partition) -> None: ...

    def send_limiter(self, partition: Partition, replica_id: int) -> RateLimiter | None:
        return self.limiter


class Pipelining(Connection):
    """Looks at the next frame as `network.connection.Connection` does."""

    def __init__(self, loop: Loop, dispatcher: Dispatcher) -> None:
        super().__init__(loop, dispatcher)
        self.arrived: deque[bytes] = deque()
        self.most_waiting = 0

    def arrives(self, frame: bytes) -> None:
        self.arrived.append(frame)
        self.go_on()

    def go_on(self) -> None:
        while self.arrived and not self.closed:
            frame = self.arrived[0]
            view = memoryview(bytearray(frame))
            if self.parked:
                if not getattr(self.pending, "takes_more", False):
                    return
                if not self.pending.take(view, 0, len(frame)):
                    return
                self.arrived.popleft()
            else:
                self.arrived.popleft()
                self.dispatcher.dispatch(self, view, 0, len(frame))  # type: ignore[arg-type]
            if isinstance(self.pending, ProduceQueue):
                self.most_waiting = max(self.most_waiting, len(self.pending._entries))


class Leader:
    def __init__(self, folder: Path) -> None:
        self.loop = Loop(Clock())
        replication = Replication(self.loop)
        self.partitions = []
        for index in (0, 1):
            partition = Partition("orders", TOPIC_ID, index, PartitionLog.open(folder / str(index), CONFIG))
            partition.leader, partition.replication = 1, replication  # type: ignore[assignment]
            record = Record(TOPIC_ID, index, (1, 2, 3), (1, 2, 3), 1, EPOCH, 1)
            tracker = ReplicaTracker(1, record, 0, self.loop.time())
            partition.become_leader(EPOCH, (1, 2, 3), (1, 2, 3), tracker)
            self.partitions.append(partition)
        table: Any = SimpleNamespace(
            by_name={}, by_id={TOPIC_ID.bytes: dict(enumerate(self.partitions))}, lacks_log=lambda *_: False
        )
        self.produce = ProduceHandler(table, self.loop)  # type: ignore[arg-type]
        self.produce.api = Api(0, "Produce", 3, 13, raw=self.produce.handle)
        self.dispatcher = Dispatcher()
        self.dispatcher.serve(self.produce.api)
        self.connection = Pipelining(self.loop, self.dispatcher)
        self.correlation_id = 0

    def send(self, index: int, kind: str) -> None:
        """One request. A version without a template, or a bad batch, waits for its turn."""
        self.correlation_id += 1
        data = bytearray(batch(size=100 + self.correlation_id))
        if kind == "bad":
            data[80] ^= 1
        topics = [{"topic_id": TOPIC_ID, "partition_data": [{"index": index, "records": bytes(data)}]}]
        if kind == "two":
            topics[0]["partition_data"] = [
                {"index": each, "records": bytes(batch(size=90))} for each in (0, 1)
            ]
        self.connection.arrives(
            request(
                "produce",
                13,
                self.correlation_id,
                transactional_id=None,
                acks=-1,
                timeout=TIMEOUT_MS,
                topic_data=topics,
            )[4:]
        )

    def follow(self, replica: int, index: int, back: int) -> None:
        partition = self.partitions[index]
        tracker = partition.tracker
        if tracker is not None:
            offset = max(partition.log.end_offset - back, tracker.followers[replica].end, 0)
            partition.replica_fetched(replica, 10 * replica, offset, 0)

    def run(self) -> None:
        """What the loop does after a turn."""
        self.connection.go_on()

    def close(self) -> None:
        self.dispatcher.close()
        for partition in self.partitions:
            partition.log.close(clean=False)


def _result(response: bytes) -> tuple[int, list[tuple[int, int, int]]]:
    """Correlation id; partition, error and base offset of each result."""
    correlation_id = struct.unpack_from(">i", response, 4)[0]
    count, at = response[26] - 1, 27
    results = []
    for _ in range(count):
        index, error, offset = struct.unpack_from(">ihq", response, at)
        results.append((index, error, offset))
        at += 30
        if response[at] != 1 or response[at + 1] != 0 or response[at + 2] != 0:
            break  # an error with a message: there are no offsets behind it to look at
        at += 3
    return correlation_id, results


steps = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 1), st.sampled_from(["good"] * 9 + ["bad", "two"])),
    st.tuples(st.just("send"), st.integers(0, 1), st.sampled_from(["good"] * 9 + ["bad", "two"])),
    st.tuples(st.just("follow"), st.sampled_from([2, 3]), st.integers(0, 1), st.sampled_from([0, 0, 1, 2])),
    st.tuples(st.just("follow"), st.sampled_from([2, 3]), st.integers(0, 1), st.sampled_from([0, 0, 1, 2])),
    st.tuples(st.just("expire")),
    st.tuples(st.just("resign"), st.integers(0, 1)),
)


@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, min_size=5, max_size=60))
def test_answers_come_in_order_and_only_after_the_commit(script: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        leader = Leader(Path(name))
        try:
            answered = 0
            for kind, *arguments in script:
                if kind == "send":
                    leader.send(*arguments)
                elif kind == "follow":
                    leader.follow(*arguments)
                elif kind == "expire":
                    leader.loop.fire()
                else:
                    leader.partitions[arguments[0]].resign()
                leader.run()
                for response in leader.connection.sent[answered:]:
                    answered += 1
                    correlation_id, results = _result(response)
                    assert correlation_id == answered, "answers are out of order"
                    for index, error, offset in results:
                        event(f"error {error}")
                        if not error:
                            assert leader.partitions[index].log.high_watermark > offset
            for _ in script:  # what waits behind something else may come one by one
                leader.loop.fire()
                leader.run()
            assert len(leader.connection.sent) == leader.correlation_id, "a request has no answer"
            assert not leader.connection.parked and not leader.loop.waiting()
            event(f"most waiting: {min(leader.connection.most_waiting, 3)}")
        finally:
            leader.close()


def test_requests_in_flight_are_written_before_the_first_is_answered(tmp_path: Path) -> None:
    """Without the queue a follower's fetch would have one batch at a time."""
    leader = Leader(tmp_path)
    leader.send(0, "good")  # by the full path, which learns the template
    leader.follow(2, 0, 0)
    leader.follow(3, 0, 0)
    for _ in range(5):
        leader.send(0, "good")
    log = leader.partitions[0].log
    assert (log.end_offset, log.high_watermark, len(leader.connection.sent)) == (6, 1, 1)
    leader.follow(2, 0, 0)
    leader.follow(3, 0, 2)
    assert [_result(each)[0] for each in leader.connection.sent] == [1, 2, 3, 4]
    leader.follow(3, 0, 0)
    assert [_result(each)[0] for each in leader.connection.sent] == [1, 2, 3, 4, 5, 6]
    assert not leader.connection.parked
    leader.close()


def test_the_queue_has_a_limit_and_leaves_the_rest_waiting(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    leader.send(0, "good")
    leader.follow(2, 0, 0)
    leader.follow(3, 0, 0)
    for _ in range(MAX_QUEUED + 10):
        leader.send(0, "good")
    assert leader.partitions[0].log.end_offset == 1 + MAX_QUEUED
    for _ in range(2):
        leader.follow(2, 0, 0)
        leader.follow(3, 0, 0)
        leader.run()
    assert leader.partitions[0].log.end_offset == len(leader.connection.sent) == MAX_QUEUED + 11
    leader.close()


def test_a_client_that_leaves_is_forgotten(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    leader.send(0, "good")
    leader.follow(2, 0, 0)
    leader.follow(3, 0, 0)
    leader.send(0, "good")
    leader.send(0, "good")
    assert isinstance(leader.connection.pending, ProduceQueue)
    leader.connection.pending.cancel()
    leader.connection.pending = None
    leader.follow(2, 0, 0)
    leader.follow(3, 0, 0)
    assert len(leader.connection.sent) == 1 and not leader.loop.waiting()
    assert leader.partitions[0].log.high_watermark == 3
    leader.close()
