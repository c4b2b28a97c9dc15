"""CreateTopics, CreatePartitions, DeleteTopics: records, codes and words."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from millstream.cluster.commands import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    Result,
    TopicCreated,
    TopicDeleted,
)
from millstream.cluster.context import random_topic_id
from millstream.cluster.metadata_records import Config, Partition, Topic
from millstream.cluster.topic_names import name_problem
from millstream.settings.values import InvalidSetting
from millstream.wire.errors import ErrorCode, KafkaError

from .world import World, shape, topic_id


def refuse_bad(scope: str, name: str, values: Mapping[str, str]) -> None:
    for setting, value in values.items():
        if value == "bad":
            raise InvalidSetting(setting, value, "not good")


def create(world: World, topic: NewTopic) -> TopicCreated:
    [reply] = world.do(CreateTopics([topic]))
    return reply


def refused(world: World, topic: NewTopic) -> tuple[ErrorCode, str | None]:
    decision = world.decide(CreateTopics([topic]))
    assert not decision.records
    [reply] = decision.reply  # type: ignore[misc]
    assert reply.topic_id is None and reply.error is not ErrorCode.none
    return reply.error, reply.message


# --- names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 249, "...", "-", "__consumer_offsets"])
def test_good_names(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
        ("a b", "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("grün", "'grün' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("a/b", "'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("a\n", "'a\n' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
    ],
)
def test_bad_names(name: str, problem: str) -> None:
    assert refused(World(1), NewTopic(name, 1, 1)) == (
        ErrorCode.invalid_topic_exception,
        f"Topic name is invalid: {problem}",
    )


def test_names_that_differ_only_in_dots_and_underscores_collide() -> None:
    world = World(1)
    world.topic("a.b", (1,))
    assert refused(world, NewTopic("a_b", 1, 1)) == (
        ErrorCode.invalid_topic_exception,
        "Topic 'a_b' collides with existing topic: a.b",
    )
    world.do(DeleteTopics(["a.b"]))
    assert create(world, NewTopic("a_b", 1, 1)).error is ErrorCode.none


def test_names_of_one_request_can_collide_too() -> None:
    world = World(1)
    good, bad = world.do(CreateTopics([NewTopic("a.b_c", 1, 1), NewTopic("a_b.c", 1, 1)]))
    assert good.error is ErrorCode.none
    assert bad.message == "Topic 'a_b.c' collides with existing topic: a.b_c"
    assert list(world.image.topics_by_name) == ["a.b_c"]


def test_an_existing_name() -> None:
    world = World(1)
    world.topic("a.b", (1,))
    assert refused(world, NewTopic("a.b", 1, 1)) == (
        ErrorCode.topic_already_exists,
        "Topic 'a.b' already exists.",
    )


def test_a_name_twice_in_one_request() -> None:
    world = World(1)
    replies = world.do(CreateTopics([NewTopic("a", 1, 1), NewTopic("b", 1, 1), NewTopic("a", 2, 1)]))
    assert [(r.name, r.error) for r in replies] == [("a", ErrorCode.invalid_request), ("b", ErrorCode.none)]
    assert replies[0].message == "Duplicate topic name."


def test_the_metadata_topic_is_not_for_users() -> None:
    assert refused(World(1), NewTopic("__cluster_metadata", 1, 1))[0] is ErrorCode.invalid_request


# --- create -------------------------------------------------------------------------------------------------


def test_a_topic_with_settings() -> None:
    world = World(1)
    decision = world.decide(CreateTopics([NewTopic("a", 2, 1, configs={"retention.ms": "5"})]))
    t = topic_id(1)
    assert list(decision.records) == [
        Topic(t, "a"),
        Config("topic", t.hex, {"retention.ms": "5"}),
        Partition(t, 0, (1,), (1,), 1),
        Partition(t, 1, (1,), (1,), 1),
    ]
    assert decision.reply == [TopicCreated("a", ErrorCode.none, None, t, 2, 1, {"retention.ms": "5"})]


def test_defaults() -> None:
    world = World(1, 2, 3, default_partitions=6, default_replication_factor=3)
    made = create(world, NewTopic("a"))
    assert (made.num_partitions, made.replication_factor) == (6, 3)
    made = create(world, NewTopic("b", replication_factor=2))
    assert (made.num_partitions, made.replication_factor) == (6, 2)


def test_the_cluster_has_room_for_so_many_partitions() -> None:
    world = World(1, max_partitions=10)
    create(world, NewTopic("a", 4, 1))
    first, second = world.do(CreateTopics([NewTopic("b", 5, 1), NewTopic("c", 2, 1)]))
    assert first.error is ErrorCode.none
    assert second.error is ErrorCode.policy_violation and "room for 1, not for 2" in (second.message or "")
    replies = world.do(CreatePartitions([MorePartitions("a", 6)]))
    assert replies["a"].error is ErrorCode.policy_violation
    assert world.do(CreatePartitions([MorePartitions("a", 5)]))["a"].error is ErrorCode.none


def test_several_topics_fail_and_succeed_separately() -> None:
    world = World(1)
    replies = world.do(CreateTopics([NewTopic("a", 1, 1), NewTopic("b", 1, 9), NewTopic("c", 1, 1)]))
    assert [r.error for r in replies] == [
        ErrorCode.none,
        ErrorCode.invalid_replication_factor,
        ErrorCode.none,
    ]
    assert list(world.image.topics_by_name) == ["a", "c"]


def test_validate_only_makes_nothing() -> None:
    world = World(1)
    [reply] = world.do(CreateTopics([NewTopic("a", 3, 1)], validate_only=True))
    assert (reply.error, reply.num_partitions) == (ErrorCode.none, 3)
    assert not world.image.topics_by_name


@pytest.mark.parametrize("partitions", [0, -2, -(2**31)])
def test_numbers_of_partitions_that_make_no_sense(partitions: int) -> None:
    assert refused(World(1), NewTopic("a", partitions, 1)) == (
        ErrorCode.invalid_partitions,
        "Number of partitions was set to an invalid non-positive value.",
    )


@pytest.mark.parametrize("factor", [0, -2, -(2**15)])
def test_replication_factors_that_make_no_sense(factor: int) -> None:
    assert refused(World(1), NewTopic("a", 1, factor)) == (
        ErrorCode.invalid_replication_factor,
        "Replication factor must be larger than 0, or -1 to use the default value.",
    )


def test_too_few_brokers() -> None:
    world = World(1)
    assert refused(world, NewTopic("a", 1, 3)) == (
        ErrorCode.invalid_replication_factor,
        "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be "
        "reached because "
        "only 1 broker(s) are registered.",
    )
    world.down(1)
    assert refused(world, NewTopic("a", 1, 1)) == (
        ErrorCode.invalid_replication_factor,
        "Unable to replicate the partition 1 time(s): All brokers are currently fenced.",
    )


@pytest.mark.parametrize("partitions", [10_001, 2**31 - 1])
def test_too_many_partitions_at_once(partitions: int) -> None:
    with pytest.raises(KafkaError, match="Excessively large number of partitions per request") as raised:
        World(1).do(CreateTopics([NewTopic("a", partitions, 1)]))
    assert raised.value.code is ErrorCode.policy_violation


def test_bad_settings() -> None:
    world = World(1, validate=refuse_bad)
    assert refused(world, NewTopic("a", 1, 1, configs={"x": "bad"})) == (
        ErrorCode.invalid_config,
        "Invalid value bad for configuration x: not good",
    )
    assert refused(world, NewTopic("a", 1, 1, configs={"x": None, "y": "1", "z": None})) == (
        ErrorCode.invalid_config,
        "Null value not supported for topic configs: x,z",
    )


def test_topic_ids_are_random_and_easy_to_type() -> None:
    made = {random_topic_id() for _ in range(2000)}
    assert len(made) == 2000
    assert all(t.int >> 122 != 0b111110 for t in made)


# --- assignments by hand ------------------------------------------------------------------------------------


def test_an_assignment_by_hand() -> None:
    world = World(1, 2, 3)
    world.down(3)
    made = create(world, NewTopic("a", assignments=[(1, [3, 2]), (0, [1, 2])]))
    assert (made.num_partitions, made.replication_factor) == (2, 2)
    assert world.partition("a", 0).replicas == (1, 2)
    assert shape(world.partition("a", 1)) == (2, (2,), ())  # 3 is known but not alive


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (
            NewTopic("a", 1, assignments=[(0, [1])]),
            ErrorCode.invalid_request,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            NewTopic("a", -1, 1, assignments=[(0, [1])]),
            ErrorCode.invalid_request,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            NewTopic("a", assignments=[(0, [1]), (0, [2])]),
            ErrorCode.invalid_replica_assignment,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            NewTopic("a", assignments=[(0, [])]),
            ErrorCode.invalid_replica_assignment,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            NewTopic("a", assignments=[(0, [1, 9])]),
            ErrorCode.invalid_replica_assignment,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            NewTopic("a", assignments=[(0, [2, 1, 2])]),
            ErrorCode.invalid_replica_assignment,
            "The manual partition assignment includes the broker 2 more than once.",
        ),
        (
            NewTopic("a", assignments=[(0, [1]), (1, [1, 2])]),
            ErrorCode.invalid_replica_assignment,
            "The manual partition assignment includes a partition with 2 replica(s), but this is "
            "not consistent "
            "with previous partitions, which have 1 replica(s).",
        ),
        (
            NewTopic("a", assignments=[(0, [1]), (2, [1])]),
            ErrorCode.invalid_replica_assignment,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            NewTopic("a", assignments=[(0, [3])]),
            ErrorCode.invalid_replica_assignment,
            "All brokers specified in the manual partition assignment for partition 0 are fenced "
            "or in controlled "
            "shutdown.",
        ),
    ],
)
def test_assignments_that_cannot_be(topic: NewTopic, code: ErrorCode, message: str) -> None:
    world = World(1, 2, 3)
    world.down(3)
    assert refused(world, topic) == (code, message)


# --- more partitions ----------------------------------------------------------------------------------------


def more(world: World, count: int, assignments: list[list[int]] | None = None, name: str = "a") -> Result:
    return world.do(CreatePartitions([MorePartitions(name, count, assignments)]))[name]


def test_more_partitions() -> None:
    world = World(1, 2)
    world.topic("a", (1, 2))
    assert more(world, 3).ok
    partitions = world.image.partitions[topic_id(1)]
    assert [p.index for p in partitions] == [0, 1, 2]
    assert all(sorted(p.replicas) == [1, 2] for p in partitions)
    assert more(world, 4, [[2, 1]]).ok
    assert world.partition("a", 3).replicas == (2, 1)


def test_more_partitions_to_validate_only() -> None:
    world = World(1)
    world.topic("a", (1,))
    assert world.do(CreatePartitions([MorePartitions("a", 5)], validate_only=True))["a"].ok
    assert len(world.image.partitions[topic_id(1)]) == 1


@pytest.mark.parametrize(
    ("count", "assignments", "code", "message"),
    [
        (2, None, ErrorCode.invalid_partitions, "Topic already has 2 partition(s)."),
        (
            1,
            None,
            ErrorCode.invalid_partitions,
            "The topic a currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            4,
            [[1, 2]],
            ErrorCode.invalid_replica_assignment,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            3,
            [[1]],
            ErrorCode.invalid_replica_assignment,
            "The manual partition assignment includes a partition with 1 replica(s), but this is "
            "not consistent "
            "with previous partitions, which have 2 replica(s).",
        ),
        (
            3,
            [[1, 7]],
            ErrorCode.invalid_replica_assignment,
            "The manual partition assignment includes broker 7, but no such broker is registered.",
        ),
    ],
)
def test_partitions_that_cannot_be_added(
    count: int, assignments: list[list[int]] | None, code: ErrorCode, message: str
) -> None:
    world = World(1, 2)
    world.topic("a", (1, 2), (2, 1))
    assert more(world, count, assignments) == Result(code, message)
    assert len(world.image.partitions[topic_id(1)]) == 2


def test_more_partitions_when_brokers_are_missing() -> None:
    world = World(1, 2)
    world.topic("a", (1, 2))
    world.down(2)
    assert more(world, 2) == Result(ErrorCode.none)
    new = world.partition("a", 1)
    assert (new.replicas, new.isr, new.leader) == ((1, 2), (1,), 1)


def test_replicas_go_to_absent_brokers_only_if_too_few_are_active() -> None:
    world = World(1, 2, 3, 4)
    world.down(2)
    world.draining(4)
    create(world, NewTopic("two", 8, 2))
    for partition in world.image.partitions[world.image.topics_by_name["two"].topic_id]:
        assert set(partition.replicas) == {1, 3} == set(partition.isr)
    assert create(world, NewTopic("three", 8, 3)).error is ErrorCode.none
    made = world.image.partitions[world.image.topics_by_name["three"].topic_id]
    for partition in made:
        assert partition.isr == partition.replicas[:2] and set(partition.isr) == {1, 3}
        assert partition.leader == partition.isr[0]
    assert {partition.replicas[2] for partition in made} == {2, 4}  # in turn
    assert create(world, NewTopic("four", 1, 4)).error is ErrorCode.none
    assert set(world.partition("four").replicas) == {1, 2, 3, 4}
    code, message = refused(world, NewTopic("five", 1, 5))
    assert code is ErrorCode.invalid_replication_factor
    assert message is not None and "only 4 broker(s) are registered" in message


def test_absent_brokers_of_different_racks_are_taken() -> None:
    world = World(1, 2, 3, 4, 5, racks={1: "a", 2: "b", 3: "b", 4: "c", 5: "c"})
    for broker_id in (2, 3, 4, 5):
        world.down(broker_id)
    create(world, NewTopic("t", 12, 3))
    for partition in world.image.partitions[world.image.topics_by_name["t"].topic_id]:
        first, *others = partition.replicas
        assert first == 1 and {broker_id // 2 for broker_id in others} == {1, 2}  # of rack b, and of c


def test_more_partitions_of_nothing() -> None:
    assert more(World(1), 2, name="x").error is ErrorCode.unknown_topic_or_partition


def test_more_partitions_twice_in_one_request() -> None:
    world = World(1)
    world.topic("a", (1,))
    replies = world.do(CreatePartitions([MorePartitions("a", 2), MorePartitions("a", 3)]))
    assert replies == {"a": Result(ErrorCode.invalid_request, "Duplicate topic name.")}


def test_more_partitions_than_sensible() -> None:
    world = World(1)
    world.topic("a", (1,))
    with pytest.raises(KafkaError, match="Excessively large"):
        more(world, 2**31 - 1)


# --- delete -------------------------------------------------------------------------------------------------


def test_delete_by_name_and_by_id() -> None:
    world = World(1)
    world.topic("a", (1,), retention_ms="5")
    second = world.topic("b", (1,))
    replies = world.do(DeleteTopics(["a", second]))
    assert [(r.name, r.error) for r in replies] == [("a", ErrorCode.none), ("b", ErrorCode.none)]
    assert not world.image.topics_by_id and not world.image.configs


def test_delete_what_is_not_there() -> None:
    by_name, by_id = World(1).do(DeleteTopics(["x", topic_id(9)]))
    assert (by_name.name, by_name.error) == ("x", ErrorCode.unknown_topic_or_partition)
    assert (by_id.topic_id, by_id.error) == (topic_id(9), ErrorCode.unknown_topic_id)
    assert by_id.message == "This server does not host this topic ID."


@pytest.mark.parametrize("known", [True, False])
def test_delete_twice_in_one_request(known: bool) -> None:
    world = World(1)
    first = world.topic("a", (1,)) if known else topic_id(9)
    bad = ErrorCode.invalid_request
    assert world.do(DeleteTopics(["a", "a", "a"])) == [
        TopicDeleted("a", "a", None, bad, "Duplicate topic name.")
    ]
    assert world.do(DeleteTopics([first, first])) == [
        TopicDeleted(first, None, first, bad, "Duplicate topic id.")
    ]
    assert ("a" in world.image.topics_by_name) is known


def test_delete_by_name_and_by_id_in_one_request() -> None:
    world = World(1)
    first = world.topic("a", (1,))
    message = "The provided topic name maps to an ID that was already supplied."
    both = TopicDeleted("a", "a", first, ErrorCode.invalid_request, message)
    assert world.do(DeleteTopics(["a", first])) == world.do(DeleteTopics([first, "a"])) == [both]
    assert both in world.do(DeleteTopics([first, "a", first]))
    assert "a" in world.image.topics_by_name
    # The name is of no account when it is there twice.
    [twice, gone] = world.do(DeleteTopics(["a", first, "a"]))
    assert (twice.message, gone.error) == ("Duplicate topic name.", ErrorCode.none)
    assert "a" not in world.image.topics_by_name
