"""Registration, loss and draining of brokers, the controller's claim, producer ids, features."""

from __future__ import annotations

import pytest

from millstream.cluster.commands import (
    AllocateProducerIds,
    BrokerLost,
    ClaimController,
    CreateTopics,
    ElectLeaders,
    FeatureUpdate,
    NewTopic,
    ProducerIdBlock,
    RegisterBroker,
    UnregisterBroker,
    UpdateFeatures,
    UpgradeType,
)
from millstream.cluster.image import Image
from millstream.cluster.metadata_records import (
    BrokerDown,
    BrokerGone,
    BrokerUp,
    Controller,
    Endpoint,
    Feature,
    Partition,
    ProducerIds,
)
from millstream.wire.errors import ErrorCode, KafkaError

from .world import World, shape


def test_a_first_registration() -> None:
    world = World()
    endpoints = (Endpoint("PLAINTEXT", "h", 9092), Endpoint("SSL", "h", 9093, "SSL"))
    assert world.do(RegisterBroker(1, 4, "life", endpoints, "rack", {"f": (1, 2)})) == 4
    assert world.image.brokers[1] == BrokerUp(1, 4, "life", endpoints, "rack", False, {"f": (1, 2)})


def test_a_restart_is_one_entry_with_new_leader_epochs() -> None:
    world = World(1)
    world.do(CreateTopics([NewTopic("a", 1000, 1), NewTopic("b", 1, 1)]))
    version = world.image.version
    world.up(1)
    assert world.image.version == version + 1
    assert all(
        (p.leader, p.leader_epoch, p.partition_epoch) == (1, 1, 1) for p in world.image.all_partitions()
    )
    down, up, *partitions = world.log[-1]
    assert down == BrokerDown(1, 1) and isinstance(up, BrokerUp) and up.epoch == 2
    assert len(partitions) == 1001 and all(isinstance(p, Partition) for p in partitions)


def test_the_same_registration_again_changes_nothing() -> None:
    world = World(1)
    world.topic("a", (1,))
    broker = world.image.brokers[1]
    again = RegisterBroker(1, broker.epoch, broker.incarnation, broker.endpoints)
    decision = world.decide(again)
    assert not decision.records and decision.reply == broker.epoch


def test_news_about_a_living_broker() -> None:
    world = World(1)
    world.topic("a", (1,))
    broker = world.image.brokers[1]
    elsewhere = (Endpoint("PLAINTEXT", "elsewhere", 1),)
    world.do(RegisterBroker(1, broker.epoch, broker.incarnation, elsewhere))
    assert world.image.brokers[1].endpoints == elsewhere
    assert world.partition("a").leader_epoch == 0


def test_an_earlier_life_cannot_come_back() -> None:
    world = World(1)
    world.up(1)
    for epoch in (0, 1):
        with pytest.raises(KafkaError) as raised:
            world.do(RegisterBroker(1, epoch, "ghost"))
        assert raised.value.code is ErrorCode.stale_broker_epoch
    world.down(1)
    with pytest.raises(KafkaError):
        world.do(RegisterBroker(1, 2, "ghost"))


def test_a_broker_is_lost() -> None:
    world = World(1, 2)
    world.topic("a", (1, 2), (2, 1))
    world.topic("b", (2,))
    version = world.image.version
    world.do(BrokerLost(1, 1))
    assert world.image.version == version + 1
    assert world.image.brokers_down == {1: 1} and list(world.image.brokers) == [2]
    assert [shape(world.partition("a", n)) for n in (0, 1)] == [(2, (2,), ())] * 2
    assert [world.partition("a", n).leader_epoch for n in (0, 1)] == [1, 0]
    assert world.partition("b").partition_epoch == 0


@pytest.mark.parametrize(("broker_id", "epoch"), [(1, 1), (1, 9), (7, 1)])
def test_news_of_the_death_of_an_earlier_life(broker_id: int, epoch: int) -> None:
    world = World(1)
    world.up(1)  # epoch 2
    assert not world.decide(BrokerLost(broker_id, epoch)).records


def test_the_whole_cluster_stops_and_returns_in_any_order() -> None:
    world = World(1, 2, 3, min_insync_replicas=2)
    world.topic("a", (1, 2, 3))
    for broker_id in (3, 1, 2):
        world.down(broker_id)
    assert shape(world.partition("a")) == (-1, (), (1, 2))
    world.up(3)
    assert shape(world.partition("a")) == (-1, (), (1, 2))
    world.up(1)
    assert shape(world.partition("a")) == (1, (1,), (2,))


def test_draining_and_back() -> None:
    world = World(1, 2)
    world.topic("a", (1, 2), (2, 1))
    world.topic("alone", (1,))
    world.draining(1)
    assert [shape(world.partition("a", n)) for n in (0, 1)] == [(2, (2,), ())] * 2
    assert shape(world.partition("alone")) == (1, (1,), ())
    world.do(CreateTopics([NewTopic("b", 1, 2)]))
    assert shape(world.partition("b")) == (2, (2,), ())
    world.draining(1, False)
    assert world.image.active_brokers() == {1, 2}
    assert shape(world.partition("a")) == (2, (2,), ())


def test_a_broker_that_returns_while_draining_leads_nothing_until_it_stops_that() -> None:
    world = World(1)
    world.topic("a", (1,))
    world.up(1, draining=True)
    assert shape(world.partition("a")) == (-1, (), (1,))
    world.draining(1, False)
    assert shape(world.partition("a")) == (1, (1,), ())


# --- claim --------------------------------------------------------------------------------------------------


def test_a_claim_takes_the_next_epoch_and_begins_the_log_with_features() -> None:
    world = World(first_features={"metadata.version": 7, "x": 1})
    decision = world.decide(ClaimController(4))
    assert list(decision.records) == [Controller(4, 1), Feature("metadata.version", 7), Feature("x", 1)]
    assert world.do(ClaimController(4)) == 1
    assert world.do(ClaimController(5)) == 2
    assert world.log[-1] == [Controller(5, 2)]


# --- producer ids -------------------------------------------------------------------------------------------


def test_blocks_of_producer_ids_never_overlap() -> None:
    world = World(1, 2)
    blocks = [world.do(AllocateProducerIds(b, b)) for b in (1, 2, 1)]
    assert blocks == [ProducerIdBlock(0, 1000), ProducerIdBlock(1000, 1000), ProducerIdBlock(2000, 1000)]
    assert world.image.next_producer_id == 3000


@pytest.mark.parametrize(
    ("broker_id", "epoch", "message"),
    [
        (1, 9, "Expected broker epoch 1, but got broker epoch 9"),
        (7, 1, "No broker registration found for broker id 7"),
    ],
)
def test_producer_ids_are_for_living_brokers(broker_id: int, epoch: int, message: str) -> None:
    with pytest.raises(KafkaError, match=message) as raised:
        World(1).do(AllocateProducerIds(broker_id, epoch))
    assert raised.value.code is ErrorCode.stale_broker_epoch


def test_producer_ids_end() -> None:
    world = World(1)
    world.apply(ProducerIds(2**63 - 1000))
    with pytest.raises(KafkaError) as raised:
        world.do(AllocateProducerIds(1, 1))
    assert raised.value.code is ErrorCode.unknown_server_error


# --- features -----------------------------------------------------------------------------------------------

SUPPORTED = {"metadata.version": (7, 25), "transaction.version": (0, 2)}


def features() -> World:
    world = World(supported_features=SUPPORTED, first_features={"metadata.version": 20})
    world.do(ClaimController(1))
    world.up(1, features=SUPPORTED)
    return world


def test_a_feature_goes_up_down_and_away() -> None:
    world = features()
    world.do(UpdateFeatures([FeatureUpdate("transaction.version", 2), FeatureUpdate("metadata.version", 21)]))
    assert world.image.features == {"metadata.version": 21, "transaction.version": 2}
    world.do(UpdateFeatures([FeatureUpdate("transaction.version", 1, UpgradeType.SAFE_DOWNGRADE)]))
    assert world.image.features["transaction.version"] == 1
    world.do(UpdateFeatures([FeatureUpdate("transaction.version", 0, UpgradeType.UNSAFE_DOWNGRADE)]))
    assert "transaction.version" not in world.image.features


def test_features_to_validate_only_or_already_there() -> None:
    world = features()
    version = world.image.version
    world.do(UpdateFeatures([FeatureUpdate("transaction.version", 2)], validate_only=True))
    world.do(UpdateFeatures([FeatureUpdate("metadata.version", 20)]))
    assert world.image.version == version


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (FeatureUpdate("transaction.version", -1), "A feature version cannot be less than 0."),
        (FeatureUpdate("transaction.version", 3), "The controller only supports versions 0-2"),
        (FeatureUpdate("nonsense", 1), "The controller does not support this feature."),
        (FeatureUpdate("metadata.version", 0, UpgradeType.UNSAFE_DOWNGRADE), "only supports versions 7-25"),
        (FeatureUpdate("metadata.version", 19), "Can't downgrade the version of this feature without"),
        (FeatureUpdate("metadata.version", 19, UpgradeType.SAFE_DOWNGRADE), "Downgrading metadata.version"),
        (
            FeatureUpdate("metadata.version", 22, UpgradeType.SAFE_DOWNGRADE),
            "Can't downgrade to a newer version.",
        ),
        (FeatureUpdate("metadata.version", 22, 9), "does not support the given upgrade type"),
    ],
)
def test_features_that_cannot_be(update: FeatureUpdate, message: str) -> None:
    world = features()
    with pytest.raises(KafkaError, match=message) as raised:
        world.do(UpdateFeatures([FeatureUpdate("transaction.version", 1), update]))
    assert raised.value.code is ErrorCode.invalid_update_version
    assert str(raised.value).startswith(f"Invalid update version {update.level} for feature {update.name}. ")
    assert world.image.features == {"metadata.version": 20}  # all or none


def test_every_broker_must_support_a_feature() -> None:
    world = features()
    world.up(2, features={"metadata.version": (7, 29), "transaction.version": (0, 1)})
    with pytest.raises(KafkaError, match="Broker 2 only supports versions 0-1"):
        world.do(UpdateFeatures([FeatureUpdate("transaction.version", 2)]))
    world.do(UpdateFeatures([FeatureUpdate("transaction.version", 1)]))


def test_a_broker_that_is_gone_for_good_can_be_forgotten() -> None:
    world = World(1, 2)
    world.topic("a", (2, 1))
    world.do(BrokerLost(2, world.image.brokers[2].epoch))
    for broker_id, code in ((1, ErrorCode.invalid_request), (9, ErrorCode.broker_id_not_registered)):
        reply = world.decide(UnregisterBroker(broker_id)).reply  # 1 is the only one that is alive
        assert isinstance(reply, KafkaError) and reply.code is code
    world.do(UnregisterBroker(2))
    assert world.log[-1] == [BrokerGone(2)]
    assert not world.image.knows_broker(2)


def test_a_broker_that_is_forgotten_alive_leads_nothing_and_needs_a_new_life() -> None:
    world = World(1, 2)
    world.topic("a", (2, 1))
    world.topic("b", (2,))
    epoch = world.image.brokers[2].epoch
    world.do(UnregisterBroker(2))
    assert [type(record) for record in world.log[-1]] == [BrokerDown, Partition, Partition, BrokerGone]
    assert shape(world.partition("a")) == (1, (1,), ()) and shape(world.partition("b")) == (-1, (), (2,))
    with pytest.raises(KafkaError) as raised:  # the controller sees its node in the store all the same
        world.do(RegisterBroker(2, epoch, "life", ()))
    assert raised.value.code is ErrorCode.stale_broker_epoch
    copy = Image()
    copy.load(world.image.records(), world.image.version)
    assert copy == world.image  # which a snapshot says, too
    world.do(RegisterBroker(2, epoch + 1, "life", ()))
    assert world.partition("b").leader == 2 and world.image.last_epoch(2) == epoch + 1
    assert world.image.brokers_gone == {}


def test_a_process_loses_its_data_once() -> None:
    """It says so again if its session ends before it has seen that it was let in. What it has then, it has
    written itself, and may be the only one to have."""
    world = World(1, 2)
    world.topic("a", (2, 1))
    world.do(BrokerLost(1, world.image.brokers[1].epoch))
    epoch = world.image.brokers[2].epoch
    for more in (1, 2):
        world.do(RegisterBroker(2, epoch + more, "life", (), lost_data=True))
        if more == 1:  # nobody has everything any more: an administrator decides
            assert shape(world.partition("a")) == (-1, (), ())
            world.do(ElectLeaders([("a", 0)], unclean=True))
        assert shape(world.partition("a")) == (2, (2,), ())
    world.do(RegisterBroker(2, epoch + 3, "another life", (), lost_data=True))
    assert shape(world.partition("a")) == (-1, (), ())


# --- who may join -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("features", "problem"),
    [
        ({"x": (1, 3)}, None),
        ({"x": (1, 2)}, "supports 1 to 2"),
        ({"x": (4, 9)}, "supports 4 to 9"),
        ({}, "does not know it"),
    ],
)
def test_a_broker_has_to_support_the_levels_in_use(
    features: dict[str, tuple[int, int]], problem: str | None
) -> None:
    world = World(1)
    world.apply(Feature("x", 3))
    if problem is None:
        world.up(2, features=features)
        return
    with pytest.raises(KafkaError, match=f"the cluster uses x level 3, and broker 2 {problem}") as raised:
        world.up(2, features=features)
    assert raised.value.code is ErrorCode.unsupported_version
    world.draining(1)  # what is in the cluster may go on


def test_a_lost_broker_half_of_whose_partitions_were_changed() -> None:
    """The controller ended between two entries of one decision: the next one does the rest."""
    world = World(1, 2)
    for name in ("a", "b"):
        world.topic(name, (1, 2))
    command = BrokerLost(1, world.image.brokers[1].epoch)
    decision = world.decide(command)
    assert decision.may_be_split
    world.apply(next(record for record in decision.records if isinstance(record, Partition)))
    world.do(command)
    assert [shape(world.partition(name)) for name in ("a", "b")] == [(2, (2,), ())] * 2
    assert 1 not in world.image.brokers
