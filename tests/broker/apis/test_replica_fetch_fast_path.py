"""A follower gets the same by the fast path of its fetches as without it: twins prove it.

Two leaders in miniature (real dispatcher, handler, partitions, trackers and logs) have two followers each:
the production code of a follower, with logs of its own. Random steps, the same for both: appends, fetches,
timers, another epoch, a leader that lost its tail, deleted records, a smaller ISR, throttles, a reconnect.
After each of them both followers have got the same records, errors and divergences, both trackers know the
same, and what is committed is the same. What the fast path may tell later (by the next full fetch) is where a
log begins and how far it is committed, so that these are compared when everything has come to rest.
"""

from __future__ import annotations

import itertools
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.broker.apis.fetch import FetchHandler
from millstream.broker.apis.fetch_sessions import FetchSessions
from millstream.broker.apis.replica_fetch_fast_path import ReplicaFetchFastPath
from millstream.broker.network.dispatch import Api, Dispatcher
from millstream.broker.partition import Partition
from millstream.broker.replication.follower import Follower
from millstream.broker.replication.replica_tracker import ReplicaTracker
from millstream.broker.replication.throttle import RateLimiter
from millstream.client.messages import request_header
from millstream.cluster.metadata_records import Partition as Record
from millstream.settings.log_config import LogConfig
from millstream.storage.log import PartitionLog
from millstream.wire.replica_fetch import Fetched, pack_replica_fetch, read_replica_fetch
from tests.support.effort import examples

from ...storage.batches import batch
from .test_fast_path_equivalence import Clock, Connection, Loop
from .test_produce_queue import Replication

TOPICS = (uuid.UUID(int=7), uuid.UUID(int=8))
PARTITIONS = [(topic, index) for topic in TOPICS for index in (0, 1)]
CONFIG = LogConfig(segment_bytes=60_000, min_insync_replicas=2)
LIMITS = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 60_000, "partition_max_bytes": 30_000}
FOLLOWERS = (2, 3)


class Replica:
    """A follower, with a connection to the leader."""

    def __init__(self, leader: Leader, broker_id: int) -> None:
        self.leader, self.broker_id = leader, broker_id
        self.follower = Follower()
        self.logs = {
            (topic.bytes, index): PartitionLog.open(
                leader.folder / str(broker_id) / f"{topic.int}-{index}", CONFIG
            )
            for topic, index in PARTITIONS
        }
        self.correlation_id = 0
        self.request: Any = None
        self.answers: list[list[Fetched]] = []
        self.connect()

    def connect(self) -> None:
        self.connection = Connection(self.leader.loop, self.leader.dispatcher)
        self.request = None

    def leave(self) -> None:
        for each, end in ((self.connection.pending, "cancel"), (self.connection.fast_path, "leave")):
            ended = getattr(each, end, None)
            if ended is not None:
                ended()
        self.follower.failed()
        self.connect()

    def follow(self, partition: Partition) -> None:
        key = (partition.topic_id.bytes, partition.index)
        self.follower.follow(key, self.logs[key], partition.leader_epoch)

    def run(self) -> None:
        """Take the answer, if there is one, and ask again."""
        connection = self.connection
        if connection.sent:
            (answer,) = connection.sent
            connection.sent.clear()
            found = read_replica_fetch(memoryview(answer)[8:])
            self.answers.append(
                [each._replace(records=bytes(each.records)) for each in found.partitions]  # type: ignore[arg-type]
            )
            self.follower.answered(self.request, found)
            self.request = None
        if self.request is None:
            self.request = self.follower.request()
            if self.request is None:
                self.follower.retry()
                return
            self.correlation_id += 1
            if not self.leader.fast:
                connection.fast_path = None
            frame = request_header(1, 17, self.correlation_id, b"follower", True) + pack_replica_fetch(
                self.request, self.broker_id, self.leader.replication.brokers[self.broker_id].epoch, **LIMITS
            )
            view = memoryview(bytearray(b"before" + frame + b"after"))
            fast_path = connection.fast_path
            self.leader.dispatcher.dispatch(connection, view, 6, 6 + len(frame))  # type: ignore[arg-type]
            assert not connection.closed
            taken["fast" if fast_path is not None and fast_path is connection.fast_path else "full"] += 1

    def hurry(self) -> None:
        if self.connection.pending is not None:
            self.connection.pending.hurry()


class Leader:
    def __init__(self, folder: Path, clock: Clock, fast: bool) -> None:
        self.folder, self.clock, self.fast = folder, clock, fast
        self.loop = Loop(clock)
        self.replication = Replication(self.loop)
        self.epochs: dict[Partition, int] = {}
        self.partitions: list[Partition] = []
        by_id: dict[bytes, dict[int, Partition]] = {}
        for topic, index in PARTITIONS:
            log = PartitionLog.open(folder / "leader" / f"{topic.int}-{index}", CONFIG)
            partition = Partition(f"t{topic.int}", topic, index, log)
            partition.leader, partition.replication = 1, self.replication  # type: ignore[assignment]
            self.partitions.append(partition)
            by_id.setdefault(topic.bytes, {})[index] = partition
        table: Any = SimpleNamespace(by_name={}, by_id=by_id, lacks_log=lambda _topic, _index: False)
        self.handler = FetchHandler(table, FetchSessions(5, itertools.count(1).__next__), 100_000, 10)
        self.handler.api = Api(1, "Fetch", 4, 18, raw=self.handler.handle)
        self.dispatcher = Dispatcher()
        self.dispatcher.serve(self.handler.api)
        self.replicas = [Replica(self, each) for each in FOLLOWERS]
        for partition in self.partitions:
            self.lead(partition)

    def lead(self, partition: Partition, isr: tuple[int, ...] = (1, 2, 3)) -> None:
        epoch = self.epochs[partition] = self.epochs.get(partition, 2) + 1
        record = Record(partition.topic_id, partition.index, (1, 2, 3), isr, 1, epoch, epoch)
        tracker = ReplicaTracker(1, record, partition.log.end_offset, self.loop.time())
        partition.become_leader(epoch, (1, 2, 3), isr, tracker)
        for replica in self.replicas:
            replica.follow(partition)

    def append(self, partition: Partition, size: int, count: int = 1) -> None:
        if partition.leads:
            for _ in range(count):
                partition.log.append_leader(batch(size=size), partition.leader_epoch, self.clock.now_ms)
                partition.appended(size, 1, self.clock.now_ms)
            partition.wake_fetches()

    def observe(self) -> dict[str, Any]:
        """What both twins must agree about at any time."""
        return {
            "answers": [
                [
                    sorted(
                        (each.key, each.error, each.diverging, each.records)
                        for each in answer
                        if each.error or each.diverging or len(each.records)
                    )
                    for answer in replica.answers
                ]
                for replica in self.replicas
            ],
            "waiting": [
                (replica.connection.parked, len(replica.connection.sent)) for replica in self.replicas
            ],
            "parked": len(self.handler.parked),
            "copies": [
                [(log.end_offset, log.last_epoch()) for log in replica.logs.values()]
                for replica in self.replicas
            ],
            "leader": [
                (each.leads, each.log.start_offset, each.log.high_watermark, each.log.end_offset)
                for each in self.partitions
            ],
            "trackers": [
                None
                if each.tracker is None
                else [
                    (one, state.end, state.log_start, state.broker_epoch)
                    for one, state in each.tracker.followers.items()
                ]
                for each in self.partitions
            ],
        }

    def close(self) -> None:
        self.dispatcher.close()
        for partition in self.partitions:
            partition.log.close(clean=False)
        for replica in self.replicas:
            for log in replica.logs.values():
                log.close(clean=False)


Step = Callable[[Leader], None]
taken: Counter[str] = Counter()


def _appends(number: int, size: int, count: int) -> Step:
    return lambda leader: leader.append(leader.partitions[number], size, count)


def _fetches(number: int, times: int) -> Step:
    def step(leader: Leader) -> None:
        for _ in range(times):
            leader.replicas[number].run()

    return step


def _loses_tail(number: int) -> Step:
    """The leader's log is shorter than the followers' from here on, under a later epoch."""

    def step(leader: Leader) -> None:
        partition = leader.partitions[number]
        partition.resign()
        log = partition.log
        log.truncate_to(max(log.end_offset - 2, log.start_offset))
        leader.lead(partition)
        leader.append(partition, 150)

    return step


def _deletes(number: int) -> Step:
    def step(leader: Leader) -> None:
        log = leader.partitions[number].log
        log.advance_start(log.high_watermark)

    return step


def _isr_changes(number: int, isr: tuple[int, ...]) -> Step:
    def step(leader: Leader) -> None:
        partition = leader.partitions[number]
        if partition.tracker is not None:
            epoch = partition.tracker.partition_epoch + 1
            record = Record(
                partition.topic_id, partition.index, (1, 2, 3), isr, 1, partition.leader_epoch, epoch
            )
            partition.tracker.update(record, leader.loop.time())
            partition.become_leader(partition.leader_epoch, (1, 2, 3), isr, partition.tracker)

    return step


def _time_passes(milliseconds: int) -> Step:
    def step(leader: Leader) -> None:
        if leader.fast:  # the clock is shared
            leader.clock.now_ms += milliseconds

    return step


def _throttle(rate: int | None) -> Step:
    def step(leader: Leader) -> None:
        leader.replication.limiter = None if rate is None else RateLimiter(rate)

    return step


def _another_life(number: int) -> Step:
    """A follower registers again; its requests say so at once."""

    def step(leader: Leader) -> None:
        leader.replication.brokers[FOLLOWERS[number]].epoch += 1

    return step


def _access_changes(leader: Leader) -> None:
    for replica in leader.replicas:
        replica.connection.fast_path = None


numbers = st.integers(0, len(PARTITIONS) - 1)
replicas = st.integers(0, len(FOLLOWERS) - 1)
isrs = st.sampled_from([(1, 2, 3), (1, 2), (1,)])
STEPS = st.one_of(
    st.builds(_appends, numbers, st.sampled_from([100, 100, 5000, 20_000, 25_000]), st.integers(1, 3)),
    st.builds(_appends, numbers, st.sampled_from([100, 100, 5000, 20_000, 25_000]), st.integers(1, 3)),
    st.builds(_fetches, replicas, st.integers(1, 3)),
    st.builds(_fetches, replicas, st.integers(1, 3)),
    st.builds(_fetches, replicas, st.integers(1, 3)),
    st.one_of(
        st.just(lambda leader: leader.loop.fire()),
        st.builds(lambda number: lambda leader: leader.replicas[number].hurry(), replicas),
        st.builds(lambda number: lambda leader: leader.replicas[number].leave(), replicas),
        st.builds(lambda number: lambda leader: leader.lead(leader.partitions[number]), numbers),
        st.builds(lambda number: lambda leader: leader.partitions[number].resign(), numbers),
        st.builds(_loses_tail, numbers),
        st.builds(_deletes, numbers),
        st.builds(_isr_changes, numbers, isrs),
        st.builds(_time_passes, st.sampled_from([1, 100, 600, 5000])),
        st.builds(_throttle, st.sampled_from([None, None, 10, 1 << 20])),
        st.builds(_another_life, replicas),
        st.builds(lambda number: lambda leader: leader.partitions[number].log.roll(), numbers),
        st.just(_access_changes),
    ),
)


def _come_to_rest(leader: Leader) -> None:
    leader.replication.limiter = None
    for partition in leader.partitions:
        if not partition.leads:
            leader.lead(partition)
        _isr_changes(leader.partitions.index(partition), (1, 2, 3))(leader)
    for _ in range(40):
        for replica in leader.replicas:
            replica.follower.retry()
            replica.hurry()
            replica.run()
    leader.loop.fire()
    for _ in range(4):
        for replica in leader.replicas:
            replica.run()
        leader.loop.fire()


def _at_rest(leader: Leader) -> list[Any]:
    logs = [[log for log in replica.logs.values()] for replica in leader.replicas]
    return [
        *([each.log, *(copies[number] for copies in logs)] for number, each in enumerate(leader.partitions))
    ]


def test_followers_get_the_same_by_both_paths() -> None:
    taken.clear()

    @settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(STEPS, min_size=10, max_size=60))
    def run(script: list[Step]) -> None:
        with tempfile.TemporaryDirectory() as name:
            clock = Clock()
            pair = [Leader(Path(name) / kind, clock, kind == "fast") for kind in ("fast", "full")]
            try:
                for number, step in enumerate(script):
                    for leader in pair:
                        step(leader)
                    seen, expected = pair[0].observe(), pair[1].observe()
                    for what in expected:
                        assert seen[what] == expected[what], f"{what} differ after step {number}"
                for leader in pair:
                    _come_to_rest(leader)
                    for logs in _at_rest(leader):
                        ends = {(log.start_offset, log.high_watermark, log.end_offset) for log in logs}
                        assert len(ends) == 1, f"{'fast' if leader.fast else 'full'}: {ends}"
                assert [
                    [(log.high_watermark, log.end_offset) for log in logs] for logs in _at_rest(pair[0])
                ] == [[(log.high_watermark, log.end_offset) for log in logs] for logs in _at_rest(pair[1])]
            finally:
                for leader in pair:
                    leader.close()

    run()
    assert taken["fast"] > taken["full"] / 4, taken


def test_a_session_that_rests_is_told_by_the_next_full_fetch_where_its_logs_begin(tmp_path: Path) -> None:
    clock = Clock()
    leader = Leader(tmp_path, clock, fast=True)
    _appends(0, 100, 3)(leader)
    for _ in range(4):
        for replica in leader.replicas:
            replica.run()
    assert all(isinstance(each.connection.fast_path, ReplicaFetchFastPath) for each in leader.replicas)
    assert leader.partitions[0].log.high_watermark == 3
    _deletes(0)(leader)
    for _ in range(3):
        leader.loop.fire()
        for replica in leader.replicas:
            replica.run()
    for replica in leader.replicas:
        assert next(iter(replica.logs.values())).start_offset == 3
    leader.close()


def test_an_append_to_one_of_many_partitions_touches_no_other(tmp_path: Path) -> None:
    """A session stays registered with its partitions, and looks only at those that have changed."""
    leader = Leader(tmp_path, Clock(), fast=True)
    for _ in range(3):
        _appends(1, 100, 1)(leader)
        for replica in leader.replicas:
            replica.run()
    for replica in leader.replicas:
        replica.run()
    waiters = [dict(partition.fetch_waiters) for partition in leader.partitions]
    for replica in leader.replicas:
        fast_path: Any = replica.connection.fast_path
        assert isinstance(fast_path, ReplicaFetchFastPath) and fast_path.waiting
        assert {each.key for each in fast_path._active} <= {(TOPICS[0].bytes, 1)}
    _appends(1, 100, 1)(leader)
    for replica in leader.replicas:
        assert len(replica.connection.sent) == 1
    assert [partition.fetch_waiters for partition in leader.partitions] == waiters
    leader.close()


def test_a_partition_that_leaves_the_session_and_comes_back_is_followed(tmp_path: Path) -> None:
    """Found by the simulation: a fetch that taught nothing took it out of the session, and the fast path that
    still knew it served what was stated of it next. The session never heard of it, and it was starved."""
    clock = Clock()
    leader = Leader(tmp_path, clock, fast=True)
    replica = leader.replicas[0]
    for _ in range(4):
        replica.run()
    assert isinstance(replica.connection.fast_path, ReplicaFetchFastPath)
    partition = leader.partitions[0]
    key = (partition.topic_id.bytes, partition.index)
    replica.hurry()
    replica.follower.forget(key)
    leader.handler.max_parked = 0  # which is answered at once
    replica.run()
    leader.handler.max_parked = 10
    replica.follow(partition)
    replica.run()
    for append in (False, True):
        if append:
            _appends(0, 100, 1)(leader)
        for _ in range(3):
            clock.now_ms += 1000
            leader.loop.fire()
            replica.hurry()
            replica.run()
    assert replica.logs[key].end_offset == partition.log.end_offset == 1
    leader.close()


def test_a_connection_that_closes_leaves_no_trace(tmp_path: Path) -> None:
    leader = Leader(tmp_path, Clock(), fast=True)
    for _ in range(3):
        for replica in leader.replicas:
            replica.run()
    assert any(partition.fetch_waiters for partition in leader.partitions)
    for replica in leader.replicas:
        replica.leave()
    assert not any(partition.fetch_waiters or partition.commit_waiters for partition in leader.partitions)
    assert not leader.handler.parked and not leader.loop.waiting()
    leader.close()
