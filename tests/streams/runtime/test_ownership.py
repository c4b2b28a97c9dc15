"""One transaction for all units of a lane: a lane that lost a unit commits nothing for it any more, however
it lost it; one that has let it go keeps the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.client import Cluster
from millstream.client.fetch import Fetcher
from millstream.client.groups import Groups
from millstream.client.transaction_commits import TransactionCommit, commit_all
from millstream.client.transactional import is_fenced
from millstream.host.ownership import Claim, LaneTransactions
from millstream.host.progress import Markers, metadata_of, owners_of, where_to_begin
from millstream.host.unit import UnitId
from millstream.streams import Streams, serdes
from millstream.streams.runtime.unit import StreamsUnit
from millstream.wire.errors import KafkaError
from millstream.wire.topic_partition import TopicPartition
from tests.streams.runtime.kit import Driver, produce, read, word_count


class LaneOfTest:
    """A lane without a loop, with connections of its own."""

    machine = "here"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = Cluster(cluster.config)
        self.transactions = LaneTransactions()

    def cluster(self, _config: Any) -> Cluster:
        return self._cluster

    def shared(self, _key: Any, make: Callable[[], Any]) -> Any:
        return make()

    def claim(self, config: Any, application: str, name: str, timeout_ms: int) -> Claim:
        return self.transactions.claim(config, self._cluster, UnitId(application, name), timeout_ms)

    def open(self, application: str, topic: str, number: int) -> Claim:
        """A unit that reads one partition, from where it is committed."""
        claim = self.claim(self._cluster.config, application, f"0_{number}", 10_000)
        self.take(claim, topic, number)
        return claim

    def take(self, claim: Claim, topic: str, number: int) -> None:
        which = TopicPartition(topic, number)
        found = where_to_begin(self._cluster, claim.application, [which], claim.fence)
        begin = {which: found[which].offset if which in found else 0}
        claim.take(begin, metadata_of(self._cluster, begin, {}, claim.owner))

    def commit(self, *wanted: tuple[Claim, TopicPartition, int]) -> dict[int, KafkaError]:
        commits = []
        for claim, which, offset in wanted:
            metadata = metadata_of(self._cluster, [which], {}, claim.owner)
            commits.append(claim.commit([], {which: offset}, metadata))
        failed = commit_all(self._cluster, commits, Markers(self._cluster).join)
        for number, (claim, _, _) in enumerate(wanted):
            if number not in failed:
                claim.committed(commits[number])
        return failed

    def close(self) -> None:
        self._cluster.close()


@pytest.fixture(autouse=True, params=[1, 2], ids=lambda version: f"protocol {version}")
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both protocols of transactions: in the second one a lane's epoch changes with every commit."""
    if request.param == 1:
        monkeypatch.setattr("millstream.client.transactional.FEATURE", "a feature that no cluster has")


@pytest.fixture
def lanes(cluster: Cluster) -> Iterator[tuple[LaneOfTest, LaneOfTest]]:
    made = LaneOfTest(cluster), LaneOfTest(cluster)
    yield made
    for lane in made:
        lane.close()


def _offsets(cluster: Cluster, group: str) -> dict[int, int]:
    found = Groups(cluster).committed(group, stable=True)
    return {which.partition: one.offset for which, one in found.items() if not isinstance(one, KafkaError)}


def test_a_lane_that_lost_a_unit_commits_nothing_for_it(
    cluster: Cluster, lanes: tuple[LaneOfTest, LaneOfTest], new_topic: Callable[..., str], name: str
) -> None:
    topic = new_topic(partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    produce(cluster, topic, 0, *((b"k", b"v"),) * 9)
    produce(cluster, topic, 1, *((b"k", b"v"),) * 9)
    old, new = lanes
    mine = old.open(name, topic, 0), old.open(name, topic, 1)
    assert old.commit((mine[0], first, 1), (mine[1], second, 2)) == {}
    # What it has open when the unit is opened elsewhere is undone, and not seen by the new owner.
    mine[0].producer.commit_offsets(name, {first: 5})
    taken = new.open(name, topic, 0)
    assert _offsets(cluster, name) == {0: 1, 1: 2}
    failed = old.commit((mine[0], first, 7), (mine[1], second, 8))
    assert all(is_fenced(error) for error in failed.values())
    assert len(failed) == 2
    assert new.commit((taken, first, 3)) == {}
    # Its other unit is opened again, in the same lane, under another id.
    old.transactions.release([UnitId(name, "0_0"), UnitId(name, "0_1")])
    again = old.open(name, topic, 1)
    assert again.owner != mine[1].owner
    assert old.commit((again, second, 4)) == {}
    assert _offsets(cluster, name) == {0: 3, 1: 4}


def test_a_lane_that_has_committed_nothing_is_fenced_too(
    cluster: Cluster, lanes: tuple[LaneOfTest, LaneOfTest], new_topic: Callable[..., str], name: str
) -> None:
    """It was stopped after it had opened the unit: nobody has heard of it but by what opening wrote."""
    topic, (old, new) = new_topic(), lanes
    which = TopicPartition(topic, 0)
    produce(cluster, topic, 0, *((b"k", b"v"),) * 9)
    before = old.open(name, topic, 0)
    taken = new.open(name, topic, 0)
    assert new.commit((taken, which, 2)) == {}
    (error,) = old.commit((before, which, 9)).values()
    assert is_fenced(error)
    assert _offsets(cluster, name) == {0: 2}


def test_an_owner_who_is_seen_late_is_fenced(
    cluster: Cluster,
    lanes: tuple[LaneOfTest, LaneOfTest],
    new_topic: Callable[..., str],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Coordinators of an older Kafka apply the offsets of a transaction after it has ended: whoever does not
    ask for stable ones may find the owner before the last."""
    topic, (old, new) = new_topic(), lanes
    which = TopicPartition(topic, 0)
    produce(cluster, topic, 0, *((b"k", b"v"),) * 9)
    old.open(name, topic, 0)
    late = Groups(cluster).committed(name)
    owner = new.open(name, topic, 0)
    assert new.commit((owner, which, 2)) == {}
    read = Groups.committed

    def committed(self: Groups, group_id: str, partitions: Any = None, *, stable: bool = False) -> Any:
        return read(self, group_id, partitions, stable=True) if stable else late

    monkeypatch.setattr(Groups, "committed", committed)
    third = LaneOfTest(cluster)
    taken = third.open(name, topic, 0)
    monkeypatch.undo()
    (error,) = new.commit((owner, which, 9)).values()
    assert is_fenced(error)
    assert third.commit((taken, which, 3)) == {}
    assert _offsets(cluster, name) == {0: 3}
    third.close()


def test_of_two_that_open_a_unit_one_gets_it(
    cluster: Cluster, lanes: tuple[LaneOfTest, LaneOfTest], new_topic: Callable[..., str], name: str
) -> None:
    topic, (one, other) = new_topic(), lanes
    early = one.claim(cluster.config, name, "0_0", 10_000)
    late = other.claim(cluster.config, name, "0_0", 10_000)
    with pytest.raises(KafkaError) as refused:
        one.take(early, topic, 0)
    assert is_fenced(refused.value)
    other.take(late, topic, 0)
    assert owners_of(cluster, name) == {late.owner}


def test_a_unit_that_was_let_go_does_not_fence_its_lane(
    cluster: Cluster, lanes: tuple[LaneOfTest, LaneOfTest], new_topic: Callable[..., str], name: str
) -> None:
    topic, (old, new) = new_topic(partitions=2), lanes
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    produce(cluster, topic, 0, *((b"k", b"v"),) * 9)
    produce(cluster, topic, 1, *((b"k", b"v"),) * 9)
    mine = old.open(name, topic, 0), old.open(name, topic, 1)
    assert old.commit((mine[0], first, 1), (mine[1], second, 1)) == {}
    old.transactions.release([UnitId(name, "0_0")])
    taken = new.open(name, topic, 0)
    assert new.commit((taken, first, 2)) == {}
    assert old.commit((mine[1], second, 2)) == {}
    assert _offsets(cluster, name) == {0: 2, 1: 2}


def test_an_error_of_one_unit_does_not_touch_the_others(
    cluster: Cluster, lanes: tuple[LaneOfTest, LaneOfTest], new_topic: Callable[..., str], name: str
) -> None:
    """Its batch is refused, which aborts the transaction of all."""
    topic = new_topic(partitions=3)
    out, small = new_topic(), new_topic(configs={"max.message.bytes": "200"})
    lane = lanes[0]
    claims = [lane.open(name, topic, number) for number in range(3)]
    for turn in range(2):
        commits: list[TransactionCommit] = []
        for number, claim in enumerate(claims):
            which = TopicPartition(topic, number)
            rows: dict[TopicPartition, bytearray | memoryview] = {
                TopicPartition(out, 0): _batch(b"%d-%d" % (turn, number))
            }
            if turn and number == 1:
                rows[TopicPartition(small, 0)] = _batch(b"x" * 1000)
            metadata = metadata_of(cluster, [which], {}, claim.owner)
            commits.append(claim.commit([rows], {which: 0}, metadata))
        failed = commit_all(lane.cluster(None), commits, Markers(lane.cluster(None)).join)
        assert set(failed) == ({1} if turn else set())
    assert sorted(value or b"" for _, value in read(cluster, out)) == [b"0-0", b"0-1", b"0-2", b"1-0", b"1-2"]
    assert read(cluster, small) == []


def _batch(value: bytes) -> bytearray:
    from millstream.wire.records import Record, encode_batch

    return encode_batch([Record(0, 1_700_000_000_000, b"k", value)], transactional=True)


def test_a_zombie_of_an_application(
    broker: str,
    cluster: Cluster,
    lanes: tuple[LaneOfTest, LaneOfTest],
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    """A task in the middle of its work is opened by another lane, twice: before and after its own commit is
    prepared. Every count comes once."""
    words, counts = new_topic(), new_topic()
    application = Streams(
        word_count(words, counts), f"{words}-app", bootstrap_servers=broker, state=tmp_path / "new"
    )
    zombie_settings = Streams(
        word_count(words, counts), f"{words}-app", bootstrap_servers=broker, state=tmp_path / "old"
    ).settings
    produce(cluster, words, 0, *((b"k", b"w"),) * 10)
    application.make_topics()
    zombies = [StreamsUnit(zombie_settings, application.topology, number, 0, lanes[0]) for number in (0, 1)]
    _work(zombies[0], cluster)
    prepared = zombies[0].prepare_commit()
    assert prepared is not None
    Driver(application).run()
    failed = commit_all(lanes[0].cluster(None), [prepared], Markers(lanes[0].cluster(None)).join)
    assert is_fenced(failed[0])
    for zombie in zombies:
        zombie.abandon()
    found = [serdes.LONG.read("", count) for _, count in read(cluster, counts)]
    assert found == list(range(1, 11))


def _work(unit: StreamsUnit, cluster: Cluster) -> None:
    fetcher = Fetcher(cluster, read_committed=True)
    while not unit.uncommitted:
        for fetched in fetcher.poll(unit.positions, 100):
            unit.receive(fetched)
        unit.poll()


def test_reset_leaves_nobody_who_could_commit(
    broker: str,
    cluster: Cluster,
    lanes: tuple[LaneOfTest, LaneOfTest],
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    words, counts = new_topic(), new_topic()
    application = Streams(word_count(words, counts), f"{words}-app", bootstrap_servers=broker, state=tmp_path)
    which, lane = TopicPartition(words, 0), lanes[0]
    claim = lane.open(f"{words}-app", words, 0)
    application.reset()
    (error,) = lane.commit((claim, which, 0)).values()
    assert is_fenced(error)
    assert _offsets(cluster, f"{words}-app") == {}
