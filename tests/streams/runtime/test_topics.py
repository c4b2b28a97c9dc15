"""Internal topics: what they are called, how many partitions they have, how long they keep what."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millstream.streams import (
    JoinWindows,
    KStream,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    StreamsError,
    TimeWindows,
    Topology,
    TopologyError,
)
from millstream.streams.runtime.topics import (
    DAY,
    REPARTITION,
    changelog_settings,
    check_partitions,
    intermediate_topics,
    internal_partitions,
    internal_topics,
)
from millstream.streams.stores import StoreSpec


def test_partitions_of_internal_topics() -> None:
    builder = StreamsBuilder()
    left = builder.stream("a").select_key(lambda key, value: value)
    left.join(builder.stream("b"), lambda x, y: x, JoinWindows.of(5)).group_by(lambda k, v: v).count()
    counts = internal_partitions(builder.build(), {"a": 3, "b": 6})
    assert list(counts.values()) == [6, 6]
    builder = StreamsBuilder()
    builder.stream("a").join(builder.stream("b"), lambda x, y: x, JoinWindows.of(5)).to("c")
    with pytest.raises(TopologyError, match="same number of partitions: a 3, b 6"):
        internal_partitions(builder.build(), {"a": 3, "b": 6})


def _partitions(build: Callable[[StreamsBuilder], object], **inputs: int) -> list[int]:
    builder = StreamsBuilder()
    build(builder)
    return list(internal_partitions(builder.build(), inputs).values())


def _first(left: str, _right: str) -> str:
    return left


def _rekeyed(builder: StreamsBuilder, topic: str) -> KStream[str, str]:
    return builder.stream(topic).select_key(lambda _key, value: value)


def test_a_topic_that_is_joined_with_a_narrower_one_is_as_narrow() -> None:
    """The application's own topics are as they are."""
    assert _partitions(lambda b: _rekeyed(b, "a").join(b.table("b"), _first), a=6, b=2) == [2]
    windows = JoinWindows.of(5)
    assert _partitions(lambda b: _rekeyed(b, "a").join(_rekeyed(b, "b"), _first, windows), a=6, b=2) == [6, 6]


@pytest.mark.parametrize(("left", "right"), [(6, 2), (2, 6)])
def test_tables_joined_by_a_foreign_key_need_not_have_as_many_partitions(left: int, right: int) -> None:
    """The subscriptions go to the right table's partitions, the answers to the left one's."""

    def build(builder: StreamsBuilder) -> object:
        return builder.table("a").join(builder.table("b"), _first, foreign_key=lambda value: value)

    assert _partitions(build, a=left, b=right) == [right, left]


def test_a_topic_with_a_given_number_of_partitions_is_joined() -> None:
    windows = JoinWindows.of(5)

    def build(builder: StreamsBuilder) -> object:
        given = _rekeyed(builder, "a").repartition(partitions=2)
        return given.join(_rekeyed(builder, "b"), _first, windows)

    assert _partitions(build, a=6, b=4) == [2, 2]
    with pytest.raises(TopologyError, match=r"same number of partitions: .*-repartition 2, b 3"):
        _partitions(lambda b: b.stream("a").repartition(partitions=2).join(b.table("b"), _first), a=3, b=3)


def test_a_rekeyed_stream_is_joined_twice() -> None:
    """Through one topic, which cannot be as wide as two different ones."""

    def build(builder: StreamsBuilder) -> object:
        stream = _rekeyed(builder, "a")
        return stream.join(builder.table("b"), _first), stream.join(builder.table("c"), _first)

    assert _partitions(build, a=6, b=2, c=2) == [2]
    with pytest.raises(TopologyError, match="same number of partitions"):
        _partitions(build, a=6, b=2, c=3)


def _stores() -> dict[str, StoreSpec]:
    builder = StreamsBuilder()
    left, right = builder.stream("a"), builder.stream("b")
    left.left_join(right, lambda x, y: x, JoinWindows.of(1000).grace(500), store_name="pair")
    grouped = left.group_by_key()
    grouped.count(materialized="counts")
    grouped.windowed_by(TimeWindows.of_size(1000).grace(500)).count(materialized="windows")
    grouped.windowed_by(SessionWindows.of(1000).grace(500)).count(materialized="sessions")
    grouped.windowed_by(TimeWindows.of_size(1000).grace(500)).count(
        materialized=Materialized("mine", config={"retention.ms": "77", "segment.ms": "88"})
    )
    return builder.build().stores


def test_changelogs_of_windows_do_not_grow_for_ever() -> None:
    """As Kafka Streams makes them."""
    found: dict[str, set[str]] = {}
    for name, spec in _stores().items():
        settings = changelog_settings(spec)
        found.setdefault(settings["cleanup.policy"], set()).add(name)
        assert settings["message.timestamp.type"] == "CreateTime"
        kept = settings.get("retention.ms")
        if settings["cleanup.policy"] == "compact":
            assert kept is None, name
        elif name != "mine":
            assert int(kept or 0) == spec.retention + DAY >= 1500 + DAY
    assert found["compact,delete"] == {"windows", "sessions", "mine"}
    assert len(found["delete"]) == 2  # both sides of the join
    assert len(found["compact"]) == 2  # the counts, and what waits for a partner
    assert REPARTITION["cleanup.policy"] == "delete" and REPARTITION["retention.ms"] == "-1"


def test_settings_of_a_store_s_own_come_first() -> None:
    settings = changelog_settings(_stores()["mine"], 5)
    assert (settings["retention.ms"], settings["segment.ms"]) == ("77", "88")
    assert changelog_settings(_stores()["windows"], 5)["retention.ms"] == "1505"
    spec = _stores()["windows"]
    spec.retention = (1 << 63) - 1
    assert changelog_settings(spec)["retention.ms"] == str((1 << 63) - 1)


def test_a_topic_with_another_number_of_partitions() -> None:
    check_partitions({"app-a-repartition": 4, "app-b-changelog": 4}, {"app-a-repartition": 4})
    with pytest.raises(StreamsError, match=r"app-b-changelog has 2 partitions.* needs 4 .*reset\(\)"):
        check_partitions({"app-a-repartition": 4, "app-b-changelog": 4}, {"app-b-changelog": 2})


def test_internal_topics_are_known_by_their_names() -> None:
    topology = Topology().add_source("in", ["app-mine-changelog", "words"])
    topology.add_sink("out", "app-out-repartition", "in")
    made = [
        "app-counts-changelog",
        "app-of-last-year-repartition",
        "app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic",
        "app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000014-topic",
        "app-named-subscription-registration-topic",
        "app-named-subscription-response-topic",
    ]
    others = [
        "app",
        "app-changelog",
        "app-counts",
        "app-mine-changelog",
        "app-out-repartition",
        "application-counts-changelog",
        "app-two-counts-changelog",
        "counts-changelog",
        "words",
    ]
    groups = ["app", "app-two", "other"]
    assert internal_topics([*others, *made], "app", topology, groups) == made


def test_topics_that_an_application_writes_and_reads() -> None:
    builder = StreamsBuilder()
    builder.stream("words").through("between").group_by(lambda _, word: word).count().to_stream().to("counts")
    topology = builder.build()
    assert topology.internal
    assert intermediate_topics(topology) == {"between"}
