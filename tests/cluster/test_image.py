"""The image and its deltas."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cluster.commands import (
    AlterConfigs,
    ConfigChange,
    ConfigOp,
    DeleteTopics,
    MorePartitions,
    Resource,
)
from millstream.cluster.commands import CreatePartitions as More
from millstream.cluster.image import Image, PartitionChange, difference
from millstream.cluster.metadata_records import (
    BrokerDown,
    BrokerGone,
    BrokerUp,
    Config,
    Controller,
    Endpoint,
    Feature,
    Partition,
    ProducerIds,
    Record,
    Topic,
    TopicGone,
    UnknownMetadata,
)

from .world import World, topic_id

T1, T2 = topic_id(1), topic_id(2)


def partition(
    number: int = 0, topic: int = 1, replicas: tuple[int, ...] = (1,), leader: int = 1, epoch: int = 0
) -> Partition:
    return Partition(topic_id(topic), number, replicas, replicas, leader, epoch)


def test_topics_partitions_and_settings() -> None:
    image = Image()
    delta = image.apply([Topic(T1, "a"), Config("topic", T1.hex, {"x": "1"}), partition(0), partition(1)], 1)
    assert image.version == delta.version == 1
    assert image.topic("a") == Topic(T1, "a") == image.topics_by_id[T1]
    assert image.partitions[T1] == [partition(0), partition(1)]
    assert image.partition(T1, 1) == partition(1)
    assert (
        image.partition(T1, 2) is None and image.partition(T1, -1) is None and image.partition(T2, 0) is None
    )
    assert image.topic_config(T1) == {"x": "1"}
    assert image.topic_config(T2) == {}
    assert delta.topics_created == {T1: Topic(T1, "a")}
    assert delta.partitions[T1, 1] == PartitionChange(None, partition(1))
    assert delta.topic_configs() == [T1]


def test_a_deleted_topic_takes_everything_with_it() -> None:
    image = Image()
    image.apply([Topic(T1, "a.b"), Config("topic", T1.hex, {"x": "1"}), partition()], 1)
    delta = image.apply([TopicGone(T1)], 2)
    assert not image.topics_by_id and not image.topics_by_name and not image.partitions and not image.configs
    assert not image.unified_names
    assert delta.topics_deleted == {T1: Topic(T1, "a.b")}
    assert delta.partitions == {(T1, 0): PartitionChange(partition(), None)}


def test_what_comes_and_goes_in_one_entry_is_not_in_the_delta() -> None:
    image = Image()
    delta = image.apply([Topic(T1, "a"), Config("topic", T1.hex, {"x": "1"}), partition(), TopicGone(T1)], 1)
    assert (delta.topics_created, delta.topics_deleted, delta.partitions, delta.configs) == (
        {},
        {},
        {},
        set(),
    )


def test_two_changes_of_one_partition_are_one() -> None:
    image = Image()
    image.apply([Topic(T1, "a"), partition()], 1)
    later = partition(epoch=2)
    delta = image.apply([partition(epoch=1), later], 2)
    assert delta.partitions == {(T1, 0): PartitionChange(partition(), later)}


def test_a_list_of_partitions_that_somebody_holds_does_not_change() -> None:
    image = Image()
    image.apply([Topic(T1, "a"), partition()], 1)
    held = image.partitions[T1]
    image.apply([partition(epoch=1), partition(1)], 2)
    assert held == [partition()]
    assert len(image.partitions[T1]) == 2


def test_a_topic_made_again_under_the_same_name_is_another() -> None:
    image = Image()
    image.apply([Topic(T1, "a"), partition()], 1)
    delta = image.apply([TopicGone(T1), Topic(T2, "a"), partition(topic=2)], 2)
    assert list(delta.topics_deleted) == [T1] and list(delta.topics_created) == [T2]
    assert image.topic("a") == Topic(T2, "a")
    roles = delta.roles(1)
    assert [p.topic_id for p in roles.delete] == [T1] and [p.topic_id for p in roles.lead] == [T2]


@pytest.mark.parametrize(
    "records",
    [
        [partition()],
        [TopicGone(T1)],
        [Topic(T1, "a"), Topic(T2, "a")],
        [Topic(T1, "a"), Topic(T1, "b")],
        [Topic(T1, "a"), partition(1)],
    ],
)
def test_a_log_that_contradicts_itself_stops_the_reader(records: list[Record]) -> None:
    with pytest.raises(UnknownMetadata):
        Image().apply(records, 1)
    with pytest.raises(UnknownMetadata):
        Image().load(records, 1)


def test_brokers_features_producer_ids_and_controller() -> None:
    image = Image()
    up = BrokerUp(1, 5, "life", (Endpoint("L", "h", 1),))
    delta = image.apply([Controller(1, 3), up, ProducerIds(1000), Feature("f", 2)], 1)
    assert (image.controller_id, image.controller_epoch, image.next_producer_id) == (1, 3, 1000)
    assert image.brokers == {1: up} and image.features == {"f": 2} and image.knows_broker(1)
    assert delta.brokers == {1} and delta.features == {"f"} and delta.producer_ids and delta.controller
    image.apply([BrokerDown(1, 5), Feature("f", 0)], 2)
    assert image.brokers == {} and image.brokers_down == {1: 5} and image.features == {}
    assert image.knows_broker(1) and not image.active_brokers()
    image.apply([up._replace(epoch=6)], 3)
    assert image.brokers_down == {} and image.active_brokers() == {1}
    image.apply([up._replace(epoch=6, draining=True)], 4)
    assert not image.active_brokers()


def test_of_a_broker_that_is_down_its_last_life_is_known_until_it_is_forgotten() -> None:
    image = Image()
    up = BrokerUp(1, 5, "life", (Endpoint("L", "h", 1),), "rack")
    image.apply([up, BrokerDown(2, 7)], 1)  # of broker 2, a version before this one knew the epoch only
    image.apply([BrokerDown(1, 5)], 2)
    assert image.last_lives == {1: up}
    loaded = Image()
    loaded.load(image.records(), 2)
    assert loaded == image
    assert loaded.brokers == {} and loaded.brokers_down == {1: 5, 2: 7} and loaded.last_lives == {1: up}
    image.apply([BrokerGone(1)], 3)
    assert image.brokers_down == {2: 7} and image.last_lives == {}
    loaded.apply([up._replace(epoch=6)], 3)
    assert loaded.last_lives == {}


def test_settings_of_brokers() -> None:
    image = Image()
    delta = image.apply([Config("broker", "", {"a": "1"}), Config("broker", "2", {"b": "2"})], 1)
    assert (
        image.broker_config() == {"a": "1"}
        and image.broker_config(2) == {"b": "2"}
        and image.broker_config(3) == {}
    )
    assert delta.broker_configs(2) and delta.broker_configs(7)
    delta = image.apply([Config("broker", "2", {})], 2)
    assert delta.broker_configs(2) and not delta.broker_configs(7)
    assert image.configs == {("broker", ""): {"a": "1"}}


ROLES = [
    # old, new, what broker 1 does
    (None, partition(), "lead"),
    (None, partition(replicas=(2, 1), leader=2), "follow"),
    (None, partition(replicas=(2, 3), leader=2), None),
    (None, partition(leader=-1), "resign"),
    (partition(), partition(epoch=1), "lead"),
    (partition(replicas=(2, 1), leader=2), partition(replicas=(2, 1), leader=1, epoch=1), "lead"),
    (partition(replicas=(2, 1), leader=1), partition(replicas=(2, 1), leader=2, epoch=1), "follow"),
    (partition(), partition(leader=-1, epoch=1), "resign"),
    (partition(replicas=(1, 2)), replace(partition(replicas=(1, 2)), isr=(1,), partition_epoch=1), "update"),
    (partition(), None, "delete"),
    (partition(replicas=(2, 1), leader=2), partition(replicas=(2,), leader=2, epoch=1), "delete"),
    (partition(replicas=(2,), leader=2), partition(replicas=(2, 1), leader=2), "follow"),
    (partition(replicas=(2,), leader=2), None, None),
]


@pytest.mark.parametrize(("old", "new", "role"), ROLES)
def test_roles(old: Partition | None, new: Partition | None, role: str | None) -> None:
    before, after = Image(), Image()
    for image, record in ((before, old), (after, new)):
        if record is not None:
            image.apply([Topic(T1, "a"), record], 1)
    roles = difference(before, after).roles(1)
    found = {name: getattr(roles, name) for name in ("lead", "follow", "resign", "delete", "update")}
    expected = old if role == "delete" else new
    assert {name: value for name, value in found.items() if value} == ({role: [expected]} if role else {})


def history(steps: list[int]) -> World:
    """A log of topics made, changed and deleted, by small numbers."""
    world = World(1, 2)
    for step in steps:
        name = f"t.{step % 5}"
        if name not in world.image.topics_by_name:
            world.topic(name, (1, 2), (2, 1), **({"retention_ms": str(step)} if step % 2 else {}))
        elif step % 7 == 0:
            world.do(DeleteTopics([name]))
        elif step % 7 == 1:
            world.do(
                More(
                    [
                        MorePartitions(
                            name, len(world.image.partitions[world.image.topics_by_name[name].topic_id]) + 1
                        )
                    ]
                )
            )
        elif step % 7 == 2:
            op = ConfigOp.SET if step % 2 else ConfigOp.DELETE
            world.do(AlterConfigs([(Resource("topic", name), [ConfigChange("retention.ms", op, str(step))])]))
        elif step % 7 == 3:
            world.do(AlterConfigs([(Resource("broker", "1"), [ConfigChange("x", ConfigOp.SET, str(step))])]))
        elif step % 7 == 4 and 2 in world.image.brokers:
            world.down(2)
        else:
            world.up(2)
    return world


@given(st.lists(st.integers(0, 69), max_size=25), st.integers(0, 100))
def test_snapshot_and_the_rest_equal_the_whole_log(steps: list[int], cut: int) -> None:
    log = history(steps).log
    cut = min(cut, len(log))
    whole, early = Image(), Image()
    for version, records in enumerate(log, 1):
        whole.apply(records, version)
        if version <= cut:
            early.apply(records, version)
    short = Image()
    short.apply(early.records(), early.version)
    assert short == early
    for version, records in enumerate(log[cut:], cut + 1):
        short.apply(records, version)
    assert short == whole
    loaded = Image()
    loaded.load(early.records(), early.version)
    for version, records in enumerate(log[cut:], cut + 1):
        loaded.load(records, version)
    assert loaded == whole
    assert short.records() == whole.records() or sorted(map(repr, short.records())) == sorted(
        map(repr, whole.records())
    )


@given(st.lists(st.integers(0, 69), max_size=25))
def test_the_difference_of_two_images_is_what_apply_says(steps: list[int]) -> None:
    image = Image()
    for version, records in enumerate(history(steps).log, 1):
        before = image.copy()
        delta = image.apply(records, version)
        found = difference(before, image)
        # apply names what was written, the difference only what is not the same as before
        assert found.topics_created == delta.topics_created
        assert found.topics_deleted == delta.topics_deleted
        assert found.partitions == {k: c for k, c in delta.partitions.items() if c.old != c.new}
        assert found.configs <= delta.configs and found.brokers <= delta.brokers
        assert before.version == version - 1  # a copy stays as it was


def test_a_copy_is_separate() -> None:
    world = World(1)
    world.topic("a", (1,))
    copy = world.image.copy()
    assert copy == world.image
    world.topic("b", (1,))
    world.do(DeleteTopics(["a"]))
    assert list(copy.topics_by_name) == ["a"] and copy != world.image


def test_lists_of_partitions() -> None:
    world = World(1, 2)
    world.topic("a", (1,), (2,), (1,))
    assert [p.index for p in world.image.partitions_of(2)] == [1]
    assert list(world.image.reassignments()) == []
    world.apply(replace(world.partition("a", 1), replicas=(1, 2), adding=(1,)))
    assert [p.index for p in world.image.reassignments()] == [1]
