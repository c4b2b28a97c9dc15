"""An application's topics on a cluster: how they are made, and how it is taken back to its beginning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.client import Admin, Cluster, NewTopic
from millstream.client.admin import TOPIC, ConfigEntry
from millstream.streams import (
    JoinWindows,
    Streams,
    StreamsBuilder,
    StreamsError,
    TimeWindows,
    Topology,
    serdes,
)
from millstream.streams.runtime.topics import ADDITIONAL_RETENTION
from tests.streams.runtime.kit import Driver, produce, read, word_count
from tests.support.waiting import wait_until


def _settings(cluster: Cluster, topic: str) -> dict[str, str | None]:
    found = Admin(cluster).describe_configs([(TOPIC, topic)])[TOPIC, topic]
    assert isinstance(found, list)
    return {setting.name: setting.value for setting in found if isinstance(setting, ConfigEntry)}


def test_settings_of_internal_topics(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    left, right = new_topic(), new_topic()
    builder = StreamsBuilder()
    words = builder.stream(left)
    words.join(builder.stream(right), lambda x, y: x, JoinWindows.of(1000).grace(0), store_name="pair")
    words.group_by_key().windowed_by(TimeWindows.of_size(1000).grace(500)).count(materialized="windows")
    words.group_by(lambda _, word: word).count(materialized="counts")
    name = f"{left}-app"
    Streams(
        builder.build(),
        name,
        bootstrap_servers=broker,
        state=tmp_path,
        config={ADDITIONAL_RETENTION: 60_000},
    ).make_topics()
    for topic, policy, kept in (
        (f"{name}-counts-changelog", "compact", None),
        (f"{name}-windows-changelog", "compact,delete", "61500"),
        (f"{name}-pair-this-join-store-changelog", "delete", "62000"),
        (f"{name}-pair-other-join-store-changelog", "delete", "62000"),
        (f"{name}-counts-repartition", "delete", "-1"),
    ):
        found = _settings(cluster, topic)
        assert (topic, found["cleanup.policy"]) == (topic, policy)
        assert found["message.timestamp.type"] == "CreateTime"
        assert kept is None or (topic, found["retention.ms"]) == (topic, kept)


def topics_of(cluster: Cluster, prefix: str) -> list[str]:
    return sorted(topic for topic in Admin(cluster).topic_names() if topic.startswith(prefix))


def test_inputs_with_more_partitions_than_before(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    words, counts = new_topic(partitions=2), new_topic()
    application = Streams(word_count(words, counts), f"{words}-app", bootstrap_servers=broker, state=tmp_path)
    assert len(application.make_topics()) == 2
    assert application.make_topics() == []
    Admin(cluster).create_partitions({words: 3})
    wait_until(lambda: len(Admin(cluster).describe_topics([words])[words].partitions) == 3)
    with pytest.raises(StreamsError, match=r"-app-counts-\w+ has 2 partitions.* needs 3 .*reset\(\)"):
        application.make_topics()


def test_reset_begins_anew(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Also without what an earlier version of the topology has left, and without what belongs to others."""
    words, counts = new_topic(), new_topic()
    name = f"{words}-app"
    application = Streams(word_count(words, counts), name, bootstrap_servers=broker, state=tmp_path)
    others = [f"{name}-changelog", f"{name}-notes"]
    Admin(cluster).create_topics([NewTopic(topic, 1, -1) for topic in (f"{name}-old-changelog", *others)])
    produce(cluster, words, 0, (b"k", b"a"))
    Driver(application).run()
    application.reset()
    # Kafka answers before all readers of metadata see that a topic is gone.
    wait_until(lambda: topics_of(cluster, name) == others)
    Driver(application).run()
    assert [serdes.LONG.read("", value) for _, value in read(cluster, counts)] == [1, 1]
    Admin(cluster).delete_topics(others)


def test_reset_does_not_read_twice_what_the_application_wrote_itself(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    words, between, counts = new_topic(), new_topic(), new_topic()
    builder = StreamsBuilder()
    stream = builder.stream(words).through(between)
    stream.group_by_key().count(materialized="counts").to_stream().to(counts)
    application = Streams(builder.build(), f"{words}-app", bootstrap_servers=broker, state=tmp_path)
    produce(cluster, words, 0, (b"k", b"a"), (b"k", b"b"))
    for _ in range(2):
        Driver(application).run()
        application.reset()
        wait_until(lambda: not topics_of(cluster, f"{words}-app-"))
    assert len(read(cluster, between)) == 4
    assert [serdes.LONG.read("", value) for _, value in read(cluster, counts)] == [1, 2, 1, 2]


def test_a_new_version_in_the_same_worker(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic()

    def version(number: int) -> Topology:
        builder = StreamsBuilder()
        builder.stream(source).map_values(lambda value: f"{value} by {number}").to(target)
        return builder.build()

    for number in (1, 2):
        produce(cluster, source, 0, (b"k", b"made"))
        # The worker's process stays.
        application = Streams(version(number), f"{source}-app", bootstrap_servers=broker, state=tmp_path)
        Driver(application).run()
    assert [value for _, value in read(cluster, target)] == [b"made by 1", b"made by 2"]


def test_keys_longer_than_the_store_on_disk_takes(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    words, counts = new_topic(), new_topic()
    application = Streams(word_count(words, counts), f"{words}-app", bootstrap_servers=broker, state=tmp_path)
    driver = Driver(application)
    for _ in range(2):
        for size in (510, 511, 20_000):
            produce(cluster, words, 0, (b"k", b"x" * size))
        driver.run()
    driver.run_elsewhere()
    produce(cluster, words, 0, (b"k", b"x" * 20_000))
    driver.run_elsewhere()
    found = [(len(key or b""), serdes.LONG.read("", value)) for key, value in read(cluster, counts)]
    assert found == [(510, 1), (511, 1), (20_000, 1), (510, 2), (511, 2), (20_000, 2), (20_000, 3)]
