"""Brokers that come and go, the controller's claim, producer id blocks and feature levels."""

from collections.abc import Iterable, Mapping

from millstream.cluster.commands import (
    PRODUCER_ID_BLOCK,
    AllocateProducerIds,
    BrokerLost,
    ClaimController,
    FeatureUpdate,
    ProducerIdBlock,
    RegisterBroker,
    UnregisterBroker,
    UpdateFeatures,
    UpgradeType,
)
from millstream.cluster.configs import rules_for
from millstream.cluster.context import Context, Decision, refuse
from millstream.cluster.image import Image
from millstream.cluster.metadata_records import (
    BrokerDown,
    BrokerGone,
    BrokerUp,
    Controller,
    Feature,
    Partition,
    ProducerIds,
    Record,
)
from millstream.cluster.partitions import broker_down, broker_up, drain, reelect
from millstream.wire.errors import ErrorCode, KafkaError

METADATA_VERSION = "metadata.version"
_LAST_PRODUCER_ID = 2**63 - 1


def claim_controller(image: Image, command: ClaimController, context: Context) -> Decision:
    epoch = image.controller_epoch + 1
    records: list[Record] = [Controller(command.broker_id, epoch)]
    if image.controller_epoch == 0:
        records += (Feature(name, level) for name, level in context.first_features.items())
    return Decision(records, epoch)


# --- registration -------------------------------------------------------------------------------------------


def register_broker(image: Image, command: RegisterBroker, context: Context) -> Decision:
    """A new life of a broker, or (same epoch) news about it. Everything that follows is in the same entry."""
    broker_id = command.broker_id
    before = image.brokers.get(broker_id)
    known = image.last_epoch(broker_id)
    if command.epoch < known or (command.epoch == known and before is None):
        return refuse(
            ErrorCode.stale_broker_epoch,
            f"Broker {broker_id} registers with epoch {command.epoch}, but epoch {known} is known.",
        )
    now = BrokerUp(
        broker_id,
        command.epoch,
        command.incarnation,
        command.endpoints,
        command.rack,
        command.draining,
        dict(command.features),
    )
    if now == before:
        return Decision((), command.epoch)
    if before is None or (before.epoch, before.features) != (now.epoch, now.features):
        problem = unsupported_feature(f"broker {broker_id}", image.features, command.features)
        if problem is not None:
            return refuse(ErrorCode.unsupported_version, problem)
    records: list[Record] = []
    if before is not None and before.epoch == command.epoch:
        records.append(now)
        records += _after_update(image, now, before, context)
    else:
        if before is not None:
            records.append(BrokerDown(broker_id, before.epoch))
        records.append(now)
        # A process that was let in has reported its loss; what it has by now it has written itself since.
        earlier = before or image.last_lives.get(broker_id)
        known_loss = earlier is not None and earlier.incarnation == command.incarnation
        records += _after_new_life(image, now, command.lost_data and not known_loss, context)
    return Decision(records, command.epoch, may_be_split=True)


def _after_new_life(image: Image, now: BrokerUp, lost_data: bool, context: Context) -> Iterable[Partition]:
    broker_id = now.broker_id
    live_without = set(image.brokers) - {broker_id}
    active_without = image.active_brokers() - {broker_id}
    live = live_without | {broker_id}
    active = active_without if now.draining else active_without | {broker_id}
    for topic_id, partitions in image.partitions.items():
        down = up = None
        for partition in partitions:
            if broker_id not in partition.replicas:
                continue
            if down is None or up is None:
                down = rules_for(image, context, topic_id, live_without, active_without)
                up = rules_for(image, context, topic_id, live, active)
            new = broker_up(partition, broker_id, down, up, lost_data)
            if new is not partition:
                yield new


def _after_update(image: Image, now: BrokerUp, before: BrokerUp, context: Context) -> Iterable[Partition]:
    if now.draining == before.draining:
        return
    broker_id = now.broker_id
    live, active = set(image.brokers), image.active_brokers()
    active = active - {broker_id} if now.draining else active | {broker_id}
    for partition in image.partitions_of(broker_id):
        rules = rules_for(image, context, partition.topic_id, live, active)
        new = drain(partition, broker_id, rules) if now.draining else reelect(partition, rules)
        if new is not partition:
            yield new


def broker_lost(image: Image, command: BrokerLost, context: Context) -> Decision:
    """News about an earlier life than the image's is no news."""
    broker_id = command.broker_id
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != command.epoch:
        return Decision(())
    live = set(image.brokers) - {broker_id}
    active = image.active_brokers() - {broker_id}
    records: list[Record] = [BrokerDown(broker_id, command.epoch)]
    for partition in image.partitions_of(broker_id):
        new = broker_down(partition, broker_id, rules_for(image, context, partition.topic_id, live, active))
        if new is not partition:
            records.append(new)
    return Decision(records, may_be_split=True)


def unregister_broker(image: Image, command: UnregisterBroker, context: Context) -> Decision:
    """As in Kafka, also one that is alive, and one that has replicas: others lead, and it may come back under
    a new epoch. The last that is alive stays: nobody could be the controller."""
    broker_id = command.broker_id
    if not image.knows_broker(broker_id):
        return refuse(
            ErrorCode.broker_id_not_registered, f"Broker ID {broker_id} is not currently registered"
        )
    if set(image.brokers) == {broker_id}:
        return refuse(ErrorCode.invalid_request, f"Broker {broker_id} is the only one that is alive.")
    records: list[Record] = []
    if broker_id in image.brokers:
        lost = BrokerLost(broker_id, image.brokers[broker_id].epoch)
        records += broker_lost(image, lost, context).records
    return Decision([*records, BrokerGone(broker_id)], may_be_split=True)


# --- producer ids -------------------------------------------------------------------------------------------


def check_broker_epoch(image: Image, broker_id: int, epoch: int) -> None:
    """Whoever acts in a broker's name must be its present life."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.stale_broker_epoch, f"No broker registration found for broker id {broker_id}"
        )
    if broker.epoch != epoch:
        raise KafkaError(
            ErrorCode.stale_broker_epoch,
            f"Expected broker epoch {broker.epoch}, but got broker epoch {epoch}",
        )


def allocate_producer_ids(image: Image, command: AllocateProducerIds) -> Decision:
    check_broker_epoch(image, command.broker_id, command.broker_epoch)
    first = image.next_producer_id
    if first > _LAST_PRODUCER_ID - PRODUCER_ID_BLOCK:
        return refuse(ErrorCode.unknown_server_error, "All producer ids have been handed out.")
    return Decision([ProducerIds(first + PRODUCER_ID_BLOCK)], ProducerIdBlock(first, PRODUCER_ID_BLOCK))


# --- features -----------------------------------------------------------------------------------------------


def update_features(image: Image, command: UpdateFeatures, context: Context) -> Decision:
    records: list[Record] = []
    for update in command.updates:
        problem = _feature_problem(image, update, context)
        if problem is not None:
            return refuse(
                ErrorCode.invalid_update_version,
                f"Invalid update version {update.level} for feature {update.name}. {problem}",
            )
        if update.level != image.features.get(update.name, 0):
            records.append(Feature(update.name, update.level))
    return Decision(() if command.validate_only else records)


def _feature_problem(image: Image, update: FeatureUpdate, context: Context) -> str | None:
    if update.upgrade_type not in tuple(UpgradeType):
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    problem = _unsupported("The controller", update.level, context.supported_features.get(update.name))
    for broker in image.brokers.values():
        name = f"Broker {broker.broker_id}"
        problem = problem or _unsupported(name, update.level, broker.features.get(update.name))
    if problem is not None:
        return problem
    current = image.features.get(update.name, 0)
    if update.level < current:
        if update.upgrade_type == UpgradeType.UPGRADE:
            return (
                "Can't downgrade the version of this feature without setting the upgrade type to "
                "either safe or "
                "unsafe downgrade."
            )
        if update.name == METADATA_VERSION:
            return "Downgrading metadata.version is not supported: it might lose metadata."
    elif update.level > current and update.upgrade_type != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    return None


def unsupported_feature(
    who: str, finalized: Mapping[str, int], supported: Mapping[str, tuple[int, int]]
) -> str | None:
    """Why a broker that supports these levels cannot join a cluster that uses those; None if it can."""
    for name, level in finalized.items():
        levels = supported.get(name)
        if level and _unsupported(who, level, levels) is not None:
            can = "does not know it" if levels is None else f"supports {levels[0]} to {levels[1]}"
            return f"the cluster uses {name} level {level}, and {who} {can}: too old or too new to join"
    return None


def _unsupported(who: str, level: int, levels: tuple[int, int] | None) -> str | None:
    if levels is None:
        return f"{who} does not support this feature."
    low, high = levels
    # Level 0 means the feature is off, which is possible wherever it may be absent altogether.
    if not (low <= level <= high or level == 0 == low):
        return f"{who} only supports versions {low}-{high}"
    return None
