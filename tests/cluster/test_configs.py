"""Dynamic settings: incremental and whole changes, and what follows for partitions."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from millstream.cluster.commands import AlterConfigs, ConfigChange, ConfigOp, Resource, Result, SetConfigs
from millstream.settings.values import InvalidSetting
from millstream.wire.errors import ErrorCode, KafkaError

from .world import World, shape

SET, DELETE, APPEND, SUBTRACT = ConfigOp.SET, ConfigOp.DELETE, ConfigOp.APPEND, ConfigOp.SUBTRACT
TOPIC, BROKER, EVERY_BROKER = Resource("topic", "a"), Resource("broker", "1"), Resource("broker", "")


def validate(scope: str, name: str, values: Mapping[str, str]) -> None:
    for setting, value in values.items():
        if value == "bad":
            raise InvalidSetting(setting, value, "not good")
        if value == "forbidden":
            raise KafkaError(ErrorCode.invalid_request, f"{scope} {name!r} may not have {setting}")


def list_default(scope: str, name: str) -> str | None:
    return {"cleanup.policy": "delete", "throttled": ""}.get(name)


@pytest.fixture
def world() -> World:
    world = World(1, validate=validate, list_default=list_default)
    world.topic("a", (1,), retention_ms="1", segment_bytes="2")
    return world


def alter(world: World, resource: Resource, *changes: ConfigChange) -> Result:
    return world.do(AlterConfigs([(resource, changes)]))[resource]


def values(world: World, resource: Resource) -> Mapping[str, str]:
    if resource.scope == "topic":
        return world.image.topic_config(world.image.topics_by_name[resource.name].topic_id)
    return world.image.configs.get((resource.scope, resource.name), {})


def test_set_and_delete(world: World) -> None:
    assert alter(
        world, TOPIC, ConfigChange("retention.ms", SET, "7"), ConfigChange("segment.bytes", DELETE)
    ).ok
    assert values(world, TOPIC) == {"retention.ms": "7"}
    assert alter(world, TOPIC, ConfigChange("retention.ms", DELETE), ConfigChange("never.set", DELETE)).ok
    assert world.image.configs == {}


def test_set_all(world: World) -> None:
    assert world.do(SetConfigs([(TOPIC, {"x": "1"}), (EVERY_BROKER, {"y": "2"})])) == {
        TOPIC: Result(),
        EVERY_BROKER: Result(),
    }
    assert values(world, TOPIC) == {"x": "1"} and world.image.broker_config() == {"y": "2"}
    world.do(SetConfigs([(TOPIC, {})]))
    assert values(world, TOPIC) == {}


def test_append_and_subtract(world: World) -> None:
    assert alter(world, TOPIC, ConfigChange("cleanup.policy", APPEND, "compact")).ok
    assert values(world, TOPIC)["cleanup.policy"] == "delete,compact"
    assert alter(world, TOPIC, ConfigChange("cleanup.policy", APPEND, "compact,delete")).ok
    assert values(world, TOPIC)["cleanup.policy"] == "delete,compact"
    assert alter(world, TOPIC, ConfigChange("cleanup.policy", SUBTRACT, "delete,other")).ok
    assert values(world, TOPIC)["cleanup.policy"] == "compact"
    assert alter(world, TOPIC, ConfigChange("throttled", APPEND, "0:1,1:1,")).ok
    assert values(world, TOPIC)["throttled"] == "0:1,1:1"


@pytest.mark.parametrize("op", [APPEND, SUBTRACT])
def test_only_lists_can_be_appended_to(world: World, op: ConfigOp) -> None:
    assert alter(world, TOPIC, ConfigChange("retention.ms", op, "1")) == Result(
        ErrorCode.invalid_config, f"Can't {op.name} to key retention.ms because its type is not LIST."
    )


def test_nothing_is_written_for_a_topic_that_stays_the_same(world: World) -> None:
    assert not world.decide(AlterConfigs([(TOPIC, [ConfigChange("retention.ms", SET, "1")])])).records
    # but a broker's settings are, which makes it load changed files again
    world.do(SetConfigs([(BROKER, {"x": "1"})]))
    assert len(world.decide(AlterConfigs([(BROKER, [ConfigChange("x", SET, "1")])])).records) == 1


def test_validate_only(world: World) -> None:
    version = world.image.version
    assert world.do(AlterConfigs([(TOPIC, [ConfigChange("x", SET, "1")])], validate_only=True))[TOPIC].ok
    assert (
        world.do(SetConfigs([(TOPIC, {"x": "bad"})], validate_only=True))[TOPIC].error
        is ErrorCode.invalid_config
    )
    assert world.image.version == version


def test_bad_values(world: World) -> None:
    wrong = Result(ErrorCode.invalid_config, "Invalid value bad for configuration x: not good")
    assert alter(world, TOPIC, ConfigChange("x", SET, "bad")) == wrong
    assert world.do(SetConfigs([(TOPIC, {"x": "bad"})])) == {TOPIC: wrong}
    assert alter(world, EVERY_BROKER, ConfigChange("x", SET, "forbidden")) == Result(
        ErrorCode.invalid_request, "broker '' may not have x"
    )


def test_values_have_a_limit(world: World) -> None:
    assert alter(world, TOPIC, ConfigChange("x", SET, "y" * 32767)).ok
    assert alter(world, TOPIC, ConfigChange("x", SET, "é" * 16384)).error is ErrorCode.invalid_config


def test_one_resource_fails_another_succeeds(world: World) -> None:
    replies = world.do(SetConfigs([(TOPIC, {"x": "bad"}), (BROKER, {"y": "1"})]))
    assert (replies[TOPIC].ok, replies[BROKER].ok) == (False, True)
    assert world.image.broker_config(1) == {"y": "1"}


@pytest.mark.parametrize(
    ("resource", "code", "message"),
    [
        (Resource("topic", "x"), ErrorCode.unknown_topic_or_partition, "The topic 'x' does not exist."),
        (Resource("topic", ""), ErrorCode.invalid_request, "Default topic resources are not allowed."),
        (
            Resource("topic", ".."),
            ErrorCode.invalid_topic_exception,
            "Topic name is invalid: '..' is not allowed",
        ),
        (Resource("broker", "9"), ErrorCode.broker_id_not_registered, "No node with id 9 found."),
        (Resource("broker", "-1"), ErrorCode.invalid_request, "Invalid negative broker ID."),
        (
            Resource("broker", "one"),
            ErrorCode.invalid_request,
            "Unable to parse broker name as a base 10 number.",
        ),
        (
            Resource("broker", "9" * 30),
            ErrorCode.invalid_request,
            "Unable to parse broker name as a base 10 number.",
        ),
        (Resource("group", ""), ErrorCode.invalid_request, "Default group resources are not allowed."),
        (Resource("planet", "x"), ErrorCode.invalid_request, "Unknown resource type planet"),
    ],
)
def test_resources_that_are_not_there(
    world: World, resource: Resource, code: ErrorCode, message: str
) -> None:
    assert alter(world, resource, ConfigChange("x", SET, "1")) == Result(code, message)
    assert world.do(SetConfigs([(resource, {"x": "1"})])) == {resource: Result(code, message)}


@pytest.mark.parametrize("resource", [Resource("topic", "x"), Resource("broker", "9")])
def test_a_wrong_value_is_told_before_that_the_resource_is_not_there(
    world: World, resource: Resource
) -> None:
    wrong = Result(ErrorCode.invalid_config, "Invalid value bad for configuration x: not good")
    assert alter(world, resource, ConfigChange("x", SET, "bad")) == wrong
    assert world.do(SetConfigs([(resource, {"x": "bad"})])) == {resource: wrong}
    assert alter(world, resource, ConfigChange("x", APPEND, "1")).error is ErrorCode.invalid_config


def test_groups_have_settings(world: World) -> None:
    assert alter(world, Resource("group", "g"), ConfigChange("x", SET, "1")).ok
    assert world.image.configs["group", "g"] == {"x": "1"}


def test_a_broker_that_is_down_can_be_configured(world: World) -> None:
    world.down(1)
    assert alter(world, BROKER, ConfigChange("x", SET, "1")).ok


def test_a_broker_has_one_name(world: World) -> None:
    assert alter(world, Resource("broker", "01"), ConfigChange("x", SET, "1")).ok
    assert world.image.broker_config(1) == {"x": "1"}


def test_requests_that_make_no_sense(world: World) -> None:
    twice = [(TOPIC, [ConfigChange("x", SET, "1")]), (TOPIC, [ConfigChange("y", SET, "1")])]
    assert world.do(AlterConfigs(twice)) == {
        TOPIC: Result(ErrorCode.invalid_request, "Each resource must appear at most once.")
    }
    assert alter(world, TOPIC, ConfigChange("x", SET, "1"), ConfigChange("x", DELETE)) == Result(
        ErrorCode.invalid_request, "Error due to duplicate config keys : x"
    )
    null = Result(ErrorCode.invalid_request, "Null value not supported for : x")
    assert alter(world, TOPIC, ConfigChange("x", SET, None)) == null
    assert alter(world, TOPIC, ConfigChange("x", APPEND, None)) == null
    assert world.do(SetConfigs([(TOPIC, {"x": None})])) == {TOPIC: null}


# --- consequences -------------------------------------------------------------------------------------------


def test_a_smaller_min_isr_clears_the_elr_in_the_same_entry() -> None:
    world = World(1, 2, 3)
    world.topic("a", (1, 2, 3), min_insync_replicas="3")
    world.down(3)
    assert shape(world.partition("a")) == (1, (1, 2), (3,))
    version = world.image.version
    alter(world, TOPIC, ConfigChange("min.insync.replicas", SET, "2"))
    assert shape(world.partition("a")) == (1, (1, 2), ())
    assert world.image.version == version + 1
    assert world.partition("a").leader_epoch == 0


def test_the_default_of_all_brokers_counts_where_the_topic_says_nothing() -> None:
    world = World(1, 2, min_insync_replicas=2)
    world.topic("own", (1, 2), min_insync_replicas="2")
    world.topic("default", (1, 2))
    world.down(2)
    alter(world, EVERY_BROKER, ConfigChange("min.insync.replicas", SET, "1"))
    assert shape(world.partition("own")) == (1, (1,), (2,))
    assert shape(world.partition("default")) == (1, (1,), ())


def test_one_broker_cannot_have_a_min_isr_of_its_own() -> None:
    """The answer must not depend on who is the controller."""
    world = World(1, 2, min_insync_replicas=2)
    world.topic("default", (1, 2))
    world.down(2)
    assert alter(world, BROKER, ConfigChange("min.insync.replicas", SET, "1")) == Result(
        ErrorCode.invalid_config, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
    )
    assert shape(world.partition("default")) == (1, (1,), (2,))
    assert alter(world, BROKER, ConfigChange("min.insync.replicas", DELETE)).ok


def test_allowing_unclean_elections_elects() -> None:
    world = World(1, 2)
    world.topic("a", (1, 2))
    world.down(2)
    world.down(1)
    world.up(2)
    assert shape(world.partition("a")) == (-1, (), (1,))
    alter(world, TOPIC, ConfigChange("unclean.leader.election.enable", SET, "true"))
    partition = world.partition("a")
    assert shape(partition) == (2, (2,), ()) and partition.recovering
