"""Where an application goes on: its place does not expire, and it does not go on in another log. And one
process at a time runs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.client import Admin, Cluster, NewTopic, Producer
from millstream.client.groups import Groups
from millstream.host.local import LocalHost
from millstream.host.membership import running_planners
from millstream.host.progress import TOPIC, Marker, Markers, read_markers
from millstream.streams import Streams, StreamsBuilder
from millstream.streams.errors import StreamsError
from millstream.streams.runtime import application as module
from millstream.streams.runtime.running import RunningStreams
from millstream.wire.records import Record
from millstream.wire.topic_partition import TopicPartition
from tests.streams.runtime.kit import Driver, produce, read, word_count
from tests.support.waiting import wait_until


def _copy(broker: str, source: str, target: str, folder: Path, delivery: str = "exactly_once") -> Streams:
    builder = StreamsBuilder()
    builder.stream(source).to(target)
    return Streams(
        builder.build(), f"{source}-app", bootstrap_servers=broker, state=folder, delivery=delivery
    )


def _values(cluster: Cluster, topic: str) -> list[bytes | None]:
    return [value for _, value in read(cluster, topic)]


def _expire(cluster: Cluster, group: str) -> None:
    """As the broker does with the offsets of a group that nobody has used for a week."""
    (outcome,) = Groups(cluster).delete([group]).values()
    assert outcome is None


def _create_again(cluster: Cluster, topic: str) -> None:
    Admin(cluster).delete_topics([topic])
    wait_until(lambda: topic in cluster.refresh([topic]))
    Admin(cluster).create_topics([NewTopic(topic, 1, 1)])
    cluster.wait_for_topics([topic])


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_offsets_that_have_expired(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path, delivery: str
) -> None:
    source, target = new_topic(), new_topic()
    application = _copy(broker, source, target, tmp_path, delivery)
    produce(cluster, source, 0, (b"k", b"0"), (b"k", b"1"))
    Driver(application).run()
    _expire(cluster, f"{source}-app")
    produce(cluster, source, 0, (b"k", b"2"))
    Driver(application).run()
    assert _values(cluster, target) == [b"0", b"1", b"2"]


def test_offsets_and_stores_that_have_gone(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    words, counts = new_topic(partitions=2), new_topic()
    for number, folder in enumerate(("one", "two"), 1):
        streams = Streams(
            word_count(words, counts), f"{words}-app", bootstrap_servers=broker, state=tmp_path / folder
        )
        produce(cluster, words, 0, (b"k", b"w"))
        produce(cluster, words, 1, (b"k", b"w"))
        Driver(streams).run()
        assert int.from_bytes(_values(cluster, counts)[-1] or b"") == 2 * number
        _expire(cluster, f"{words}-app")


def test_a_topic_that_was_created_again(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Its first records must not be skipped as if they had been processed."""
    source, target = new_topic(), new_topic()
    driver = Driver(_copy(broker, source, target, tmp_path))
    produce(cluster, source, 0, (b"k", b"0"))
    driver.run()
    _create_again(cluster, source)
    produce(cluster, source, 0, (b"k", b"1"), (b"k", b"2"))
    with pytest.raises(StreamsError, match="was deleted and created again since it was read up to offset 1"):
        driver.run()
    application = _copy(broker, source, target, tmp_path)
    application.reset()
    Driver(application).run()
    assert _values(cluster, target) == [b"0", b"1", b"2"]


def test_a_topic_that_is_created_again_while_it_is_read(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic()
    produce(cluster, source, 0, (b"k", b"0"))
    with Driver(_copy(broker, source, target, tmp_path)).running() as running:
        wait_until(lambda: _values(cluster, target) == [b"0"])
        _create_again(cluster, source)
        produce(cluster, source, 0, (b"k", b"1"), (b"k", b"2"))
        wait_until(lambda: running.exception() is not None)
        assert "deleted and created again" in str(running.exception())
    assert _values(cluster, target) == [b"0"]


def test_a_log_that_ends_before_the_position(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic()
    produce(cluster, source, 0, (b"k", b"0"))
    Groups(cluster).commit(f"{source}-app", {TopicPartition(source, 0): 5})
    with Driver(_copy(broker, source, target, tmp_path)).running() as running:
        wait_until(lambda: running.exception() is not None)
        assert "ends at 1, before offset 5, which was processed already" in str(running.exception())


def test_markers(cluster: Cluster, new_topic: Callable[..., str]) -> None:
    one, other = new_topic(), new_topic()
    markers, producer = Markers(cluster), Producer(cluster)
    first, second = TopicPartition(one, 0), TopicPartition(other, 0)
    ids = {which: str(cluster.topic(which.topic).id) for which in (first, second)}
    markers.write(producer, f"{one}-app", {first: 1, second: 2})
    markers.write(producer, f"{one}-app", {first: 3})
    markers.write(producer, "another", {first: 9})
    assert read_markers(cluster, f"{one}-app") == {
        first: Marker(3, ids[first]),
        second: Marker(2, ids[second]),
    }
    producer.send(TOPIC, 0, [Record(0, 0, b"of somebody else", b"", ())])
    markers.forget(f"{one}-app")
    assert read_markers(cluster, f"{one}-app") == {}
    assert read_markers(cluster, "another") == {first: Marker(9, ids[first])}


def test_another_process_takes_the_application_over(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic()
    streams = _copy(broker, source, target, tmp_path)
    with Driver(streams).running() as before:
        produce(cluster, source, 0, (b"k", b"0"))
        wait_until(lambda: _values(cluster, target) == [b"0"])
        with Driver(streams).running() as after:
            wait_until(lambda: before.exception() is not None)
            assert "was started by another process" in str(before.exception())
            wait_until(lambda: not before.isActive)
            produce(cluster, source, 0, (b"k", b"1"))
            wait_until(lambda: _values(cluster, target) == [b"0", b"1"])
            assert after.exception() is None


def test_no_reset_while_it_runs(
    broker: str,
    cluster: Cluster,
    new_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target = new_topic(), new_topic()
    streams = _copy(broker, source, target, tmp_path)
    host = LocalHost()
    running = RunningStreams(streams, host)
    try:
        wait_until(lambda: running_planners(cluster, running.name))
        with monkeypatch.context() as patch:
            patch.setattr(module, "RESET_PATIENCE", 0.0)
            with pytest.raises(StreamsError, match=r"-app runs at .*: stop it first"):
                streams.reset()
    finally:
        running.stop()
        host.close()
    streams.reset()
    assert running_planners(cluster, running.name) == []
