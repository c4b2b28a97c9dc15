"""Streams of a real broker, step by step, without Spark around them."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator

import pytest

from millstream.client import Admin, Cluster
from millstream.client.groups import Committed, Groups
from millstream.spark.errors import PipelineError
from millstream.testing import Broker
from tests.support.waiting import wait_until

from .reading import Stream, fill, values

NewTopic = Callable[..., str]


def test_from_the_end_or_from_the_beginning(broker: str, cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic()
    fill(cluster, topic, 0, "ab")
    new, all_of_it = (
        Stream(broker, subscribe=topic),
        Stream(broker, subscribe=topic, startingOffsets="earliest"),
    )
    assert new.step() == []
    assert values(all_of_it.step()) == ["a", "b"]
    fill(cluster, topic, 0, "cd")
    assert values(new.step()) == values(all_of_it.step()) == ["c", "d"]
    assert new.step() == []


def test_nothing_new_is_the_very_same_offset(broker: str, cluster: Cluster, new_topic: NewTopic) -> None:
    """Spark compares the JSON, the plan of the last batch included."""
    topic = new_topic()
    fill(cluster, topic, 0, "ab")
    stream = Stream(broker, subscribe=topic, startingOffsets="earliest")
    stream.step()
    before = json.dumps(stream.start)
    assert stream.step() == []
    assert json.dumps(stream.start) == before


def test_limits(broker: str, cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    fill(cluster, topic, 0, map(str, range(75)))
    fill(cluster, topic, 1, map(str, range(75, 100)))
    stream = Stream(broker, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="40")
    steps = [stream.step() for _ in range(4)]
    assert [len(step) for step in steps] == [40, 40, 20, 0]
    assert {p: sum(r["partition"] == p for r in steps[0]) for p in (0, 1)} == {0: 30, 1: 10}
    assert sorted(int(v) for step in steps for v in values(step)) == list(range(100))
    everything = Stream(broker, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="40")
    assert len(everything.step(everything=True)) == 100


def test_waiting_for_enough(broker: str, cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic()
    fill(cluster, topic, 0, "abc")
    options = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": "5"}
    patient, hasty = Stream(broker, **options), Stream(broker, **options, maxTriggerDelay="0ms")
    both = Stream(broker, **options, maxOffsetsPerTrigger="6")
    # The first batch waits for nothing.
    assert [len(one.step()) for one in (patient, hasty, both)] == [
        3,
        3,
        3,
    ]
    fill(cluster, topic, 0, "de")
    assert [len(one.step()) for one in (patient, hasty, both)] == [0, 2, 0]
    fill(cluster, topic, 0, "fghijk")
    assert [len(one.step()) for one in (patient, both)] == [8, 6]


def test_waiting_starts_with_the_first_look(broker: str, cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic()
    stream = Stream(broker, subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger="2")
    assert stream.step() == []
    fill(cluster, topic, 0, "a")
    assert stream.step() == []
    fill(cluster, topic, 0, "b")
    assert len(stream.step()) == 2


def test_available_now_ends_where_the_log_ended(broker: str, cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic()
    fill(cluster, topic, 0, map(str, range(10)))
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    stream = Stream(broker, **options, maxOffsetsPerTrigger="4", minOffsetsPerTrigger="3")
    stream.reader.prepareForTriggerAvailableNow()
    fill(cluster, topic, 0, ["late"])
    assert [len(stream.step()) for _ in range(5)] == [4, 4, 2, 0, 0]


def test_new_partitions_and_topics(broker: str, cluster: Cluster, new_topic: NewTopic, name: str) -> None:
    topic = new_topic(name=f"{name}.a")
    stream = Stream(broker, subscribePattern=f"{name}\\..")
    assert stream.step() == []
    Admin(cluster).create_partitions({topic: 3})

    def has_three() -> bool:
        cluster.refresh([topic])
        return len(cluster.topics[topic].partitions) == 3

    wait_until(has_three)
    other = new_topic(name=f"{name}.b")
    fill(cluster, topic, 2, ["new partition"])
    fill(cluster, other, 0, ["new topic"])
    assert sorted(values(stream.step())) == ["new partition", "new topic"]


def test_a_replay_makes_the_same_tasks(broker: str, cluster: Cluster, new_topic: NewTopic) -> None:
    """The plan is in the offset that Spark logs: other options after a restart do not change a batch that was
    begun."""
    topic = new_topic(partitions=2)
    fill(cluster, topic, 0, map(str, range(20)))
    first = Stream(broker, subscribe=topic, startingOffsets="earliest", minPartitions="5")
    start = first.reader.initialOffset()
    rows = first.step()
    logged = json.loads(json.dumps(first.start))
    assert first.tasks == 5
    fill(cluster, topic, 1, ["later"])
    second = Stream(broker, subscribe=topic)
    assert second.between(json.loads(json.dumps(start)), logged) == rows
    assert second.tasks == 5
    second.start = logged
    assert values(second.step()) == ["later"]


def test_offsets_are_committed_to_a_group(
    broker: str, cluster: Cluster, new_topic: NewTopic, name: str
) -> None:
    topic = new_topic()
    fill(cluster, topic, 0, "abc")
    stream = Stream(broker, subscribe=topic, startingOffsets="earliest", kafka_group_id=name)
    quiet = Stream(broker, subscribe=topic, startingOffsets="earliest", groupIdPrefix=name)
    stream.step()
    quiet.step()
    assert Groups(cluster).committed(name) == {(topic, 0): Committed(3, -1, "")}
    fill(cluster, topic, 0, "de")
    stream.reader.commit = lambda end: None  # Spark does not call it after the last batch of a run
    stream.step()
    stream.step()
    assert Groups(cluster).committed(name) == {(topic, 0): Committed(5, -1, "")}


def test_a_topic_that_was_deleted(broker: str, cluster: Cluster, new_topic: NewTopic) -> None:
    gone, stays = new_topic(), new_topic()
    options = {"subscribe": f"{gone},{stays}", "startingOffsets": "earliest"}
    careful, careless = Stream(broker, **options), Stream(broker, **options, failOnDataLoss="false")
    careful.step()
    careless.step()
    Admin(cluster).delete_topics([gone])
    wait_until(lambda: gone not in Admin(cluster).topic_names())
    fill(cluster, stays, 0, ["a"])
    with pytest.raises(
        PipelineError, match=f"partition {gone}-0 does not exist any more; some data may be lost"
    ):
        careful.step()
    assert values(careless.step()) == ["a"]


def test_wrong_options_are_said_when_the_stream_is_used(broker: str) -> None:
    """Spark's own process swallows what is raised when the reader is made."""
    stream = Stream(broker, subscribe="t", endingOffsets="latest")
    with pytest.raises(PipelineError, match="'endingOffsets' is only for a batch read"):
        stream.step()


def test_a_broker_that_restarts_is_waited_for(name: str) -> None:
    with Broker() as own, connected(own) as cluster:
        from millstream.client import NewTopic as Topic

        Admin(cluster).create_topics([Topic(name, 1, 1)])
        fill(cluster, name, 0, map(str, range(10)))
        stream = Stream(own.bootstrap_servers, subscribe=name, startingOffsets="earliest")
        assert len(stream.step()) == 10
        own.kill()
        own.start()
        fill(cluster, name, 0, ["after"])
        assert values(stream.step()) == ["after"]
        end = stream.start
        own.kill()
        own.start()
        assert len(stream.between(stream.reader.initialOffset(), end | {"plan": [[[name, 0, 0, 11]]]})) == 11


def test_a_new_process_waits_for_the_broker(name: str) -> None:
    """Only the first start of a query has to find one."""
    with Broker() as own, connected(own) as cluster:
        from millstream.client import NewTopic as Topic

        Admin(cluster).create_topics([Topic(name, 1, 1)])
        fill(cluster, name, 0, "ab")
        options = {"subscribe": name, "startingOffsets": "earliest"}
        before = Stream(own.bootstrap_servers, **options)
        before.step()
        fill(cluster, name, 0, "cd")
        own.kill()
        after, reading, first = (Stream(own.bootstrap_servers, **options) for _ in range(3))
        after.start = before.start
        with pytest.raises(PipelineError, match=r"connection refused \(option 'kafka.bootstrap.servers'\)"):
            first.step()
        with back_soon(own):
            assert values(after.step()) == ["c", "d"]
        own.kill()
        with back_soon(own):
            assert values(reading.between(before.start or {}, after.start or {})) == ["c", "d"]


@contextlib.contextmanager
def back_soon(broker: Broker) -> Iterator[None]:
    starting = threading.Timer(0.5, broker.start)
    starting.start()
    try:
        yield
    finally:
        starting.join()


def connected(broker: Broker) -> Cluster:
    from millstream.client import ClientConfig

    return Cluster(ClientConfig.of(broker.bootstrap_servers))


def test_an_offset_of_sparks_own_connector_is_understood(
    broker: str, cluster: Cluster, new_topic: NewTopic
) -> None:
    """Also that of a topic with the name which our own offsets begin with."""
    for topic in (new_topic(partitions=2), new_topic(partitions=2, name="offsets")):
        fill(cluster, topic, 0, "abc")
        fill(cluster, topic, 1, "de")
        stream = Stream(broker, subscribe=topic)
        start, end = {topic: {"0": 1, "1": 0}}, {topic: {"0": 2, "1": 2}}
        assert sorted(values(stream.between(start, end))) == ["b", "d", "e"]  # a batch that is run again
        stream.start = end
        assert values(stream.step()) == ["c"]
        Admin(cluster).delete_topics([topic])
