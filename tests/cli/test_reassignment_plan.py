"""Plans of reassign-partitions: files that are wrong, proposals, and what a throttle has to name."""

from __future__ import annotations

import json

import pytest

from millstream.cli.errors import CommandFailed
from millstream.cli.reassignment_plan import (
    Move,
    format_plan,
    moves_of,
    moving_brokers,
    parse_brokers,
    parse_plan,
    parse_topics,
    propose,
    throttled_replicas,
)
from millstream.client.cluster_admin import Replica
from millstream.wire.topic_partition import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def plan_of(**entry: object) -> str:
    return json.dumps({"partitions": [{"topic": "a", "partition": 0, "replicas": [1], **entry}]})


def test_a_plan_with_and_without_folders() -> None:
    plan = parse_plan(
        '{"partitions": [{"topic": "a", "partition": 1, "replicas": [2, 1], "log_dirs": ["any", "/d"]},'
        ' {"topic": "a", "partition": 0, "replicas": [3]}]}'
    )
    assert plan.replicas == {A1: [2, 1], A0: [3]}
    assert plan.folders == {Replica("a", 1, 1): "/d"}
    assert plan.topics == ["a"]


def test_what_is_printed_can_be_read() -> None:
    replicas = {B0: (2, 1), A1: (1, 2)}
    folders = {Replica("b", 0, 1): "/data/1"}
    plan = parse_plan(format_plan(replicas, folders))
    assert {key: tuple(brokers) for key, brokers in plan.replicas.items()} == replicas
    assert plan.folders == folders


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a valid JSON"),
        ("[]", "not a JSON object"),
        ('{"version": 2, "partitions": []}', "Not supported version field value 2"),
        ("{}", "cannot be empty"),
        ('{"partitions": 7}', "must be a list"),
        ('{"partitions": [7]}', "must be a list of objects"),
        (plan_of(topic=7), "Field `topic` must be a string"),
        (plan_of(partition="0"), "Field `partition` must be a whole number"),
        (plan_of(partition=True), "Field `partition` must be a whole number"),
        (plan_of(partition=-1), "out of range"),
        (plan_of(partition=1 << 40), "out of range"),
        (plan_of(replicas=[]), "Partition replica list cannot be empty"),
        (plan_of(replicas=[1, 1]), "a-0 contains multiple entries for 1"),
        (plan_of(replicas=[-1]), "out of range"),
        (plan_of(replicas=[1 << 31]), "out of range"),
        (plan_of(replicas="1"), "must be a list"),
        (plan_of(log_dirs=["any", "any"]), "is different from size of log dirs list"),
        (plan_of(log_dirs=[1]), "Field `log_dirs` must be a string"),
        ('{"partitions": [{"topic": "a", "partition": 0}]}', "No such field exists: `replicas`"),
    ],
)
def test_plans_that_are_none(text: str, words: str) -> None:
    with pytest.raises(CommandFailed, match=words.replace("[", r"\[")) as caught:
        parse_plan(text)
    assert len(str(caught.value).splitlines()) == 1


def test_topics_and_brokers() -> None:
    assert parse_topics('{"topics": [{"topic": "a"}, {"topic": "b"}]}') == ["a", "b"]
    assert parse_brokers("3,1") == [3, 1]
    for text in ("1,1", "1,x", ""):
        with pytest.raises(CommandFailed):
            parse_brokers(text)
    with pytest.raises(CommandFailed, match="is empty"):
        parse_topics("{}")


@pytest.mark.parametrize("start", range(4))
def test_a_proposal_spreads_over_brokers_and_racks(start: int) -> None:
    current = {TopicPartition("a", index): (1, 2) for index in range(8)}
    racks: dict[int, str | None] = {1: "x", 2: "x", 3: "y", 4: "y"}
    proposed = propose(current, racks, start)
    assert set(proposed) == set(current)
    leaders = [brokers[0] for brokers in proposed.values()]
    assert all(leaders.count(broker) == 2 for broker in racks)
    for brokers in proposed.values():
        assert {racks[broker] for broker in brokers} == {"x", "y"}


def test_more_replicas_than_brokers() -> None:
    with pytest.raises(CommandFailed, match="Replication factor: 2 larger than available brokers: 1"):
        propose({A0: (1, 2)}, {1: None})


def test_what_a_throttle_names() -> None:
    moves = moves_of({B0: ((1, 2, 3), (3,))}, {A0: [2, 3], A1: [1]}, {A0: (1, 2), A1: (1,)})
    assert moves == {
        B0: Move(frozenset({1, 2}), frozenset({3})),
        A0: Move(frozenset({1, 2}), frozenset({3})),
        A1: Move(frozenset({1}), frozenset()),
    }
    assert throttled_replicas(moves) == {"a": ("0:1,0:2,1:1", "0:3"), "b": ("0:1,0:2", "0:3")}
    assert moving_brokers(moves) == [1, 2, 3]


def test_a_move_under_way_that_is_planned_anew() -> None:
    """The sources are those of the move under way: what is only being added cannot send yet."""
    moves = moves_of({A0: ((2, 1), (2,))}, {A0: [3]}, {A0: (2, 1)})
    assert moves == {A0: Move(frozenset({1}), frozenset({3}))}
