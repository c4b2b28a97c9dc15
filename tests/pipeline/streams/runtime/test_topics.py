"""Internal topics: what they are called, how many partitions they have, how long they keep what."""

from __future__ import annotations

import pytest

from millstream.pipeline.streams import (
    JoinWindows,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    StreamsError,
    TimeWindows,
    Topology,
    TopologyError,
)
from millstream.pipeline.streams.runtime.topics import (
    DAY,
    REPARTITION,
    changelog_settings,
    check_partitions,
    intermediate_topics,
    internal_partitions,
    internal_topics,
)
from millstream.pipeline.streams.stores import StoreSpec


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
