"""CreateTopics, CreatePartitions, DeleteTopics: what they come to. Codes and wording are those users of Kafka
know."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from millstream.cluster.commands import (
    OK,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    Result,
    TopicCreated,
    TopicDeleted,
    TopicRef,
)
from millstream.cluster.configs import check_settings
from millstream.cluster.context import Context, Decision, refuse
from millstream.cluster.image import Image
from millstream.cluster.metadata_records import SCOPE_TOPIC, Config, Partition, Record, Topic, TopicGone
from millstream.cluster.replica_placement import alternate_racks, assign_replicas
from millstream.cluster.topic_names import name_problem
from millstream.wire.errors import ErrorCode, KafkaError

MAX_PARTITIONS_PER_REQUEST = 10_000
METADATA_TOPIC = "__cluster_metadata"


# --- create -------------------------------------------------------------------------------------------------


def create_topics(image: Image, command: CreateTopics, context: Context) -> Decision:
    """Versions of the request differ only in what the reply shows, so there is one way for all."""
    if _too_many(_requested_partitions(topic, context) for topic in command.topics):
        return refuse(ErrorCode.policy_violation, "Excessively large number of partitions per request.")
    room = _room(image, context)
    records: list[Record] = []
    replies: dict[str, TopicCreated] = {}
    times = Counter(topic.name for topic in command.topics)
    unified = _Names(image)
    for topic in command.topics:
        name = topic.name
        if name in replies:
            continue
        try:
            if times[name] > 1:
                raise KafkaError(ErrorCode.invalid_request, "Duplicate topic name.")
            unified.check(name)
            configs = _given_configs(topic, context)
            assignment = _assignment(image, topic, context)
            room = _take_room(room, len(assignment), context)
        except KafkaError as problem:
            replies[name] = TopicCreated(name, problem.code, problem.message or None)
            continue
        topic_id = context.new_topic_id()
        records.append(Topic(topic_id, name))
        if configs:
            records.append(Config(SCOPE_TOPIC, topic_id.hex, dict(configs)))
        records += _new_partitions(image, topic_id, 0, assignment)
        unified.take(name)
        replies[name] = TopicCreated(
            name,
            topic_id=topic_id,
            num_partitions=len(assignment),
            replication_factor=len(assignment[0]),
            configs=configs,
        )
    return Decision(() if command.validate_only else records, list(replies.values()))


class _Names:
    """Names that are taken, by the image and by topics earlier in the same command."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._new: dict[str, str] = {}

    def check(self, name: str) -> None:
        problem = name_problem(name)
        if problem is not None:
            raise KafkaError(ErrorCode.invalid_topic_exception, problem)
        if name in self._image.topics_by_name:
            raise KafkaError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
        if name == METADATA_TOPIC:
            raise KafkaError(ErrorCode.invalid_request, f"Creation of internal topic {name} is prohibited.")
        if "." in name or "_" in name:
            unified = name.replace(".", "_")
            other = self._image.unified_names.get(unified) or self._new.get(unified)
            if other is not None:
                raise KafkaError(
                    ErrorCode.invalid_topic_exception, f"Topic '{name}' collides with existing topic: {other}"
                )

    def take(self, name: str) -> None:
        self._new[name.replace(".", "_")] = name


def _requested_partitions(topic: NewTopic, context: Context) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return context.default_partitions if topic.num_partitions == -1 else max(topic.num_partitions, 0)


def _too_many(counts: Iterable[int]) -> bool:
    return sum(counts) > MAX_PARTITIONS_PER_REQUEST


def _room(image: Image, context: Context) -> int:
    """How many partitions the cluster may still get."""
    return context.max_partitions - sum(map(len, image.partitions.values()))


def _take_room(room: int, count: int, context: Context) -> int:
    if count > room:
        raise KafkaError(
            ErrorCode.policy_violation,
            f"The cluster may have {context.max_partitions} partitions (millstream.max.partitions); "
            f"there is room for {max(room, 0)}, not for {count}.",
        )
    full = context.no_room_for(count)
    if full is not None:
        raise KafkaError(ErrorCode.kafka_storage_error, full)
    return room - count


def _given_configs(topic: NewTopic, context: Context) -> Mapping[str, str]:
    without_value = [name for name, value in topic.configs.items() if value is None]
    if without_value:
        raise KafkaError(
            ErrorCode.invalid_config, "Null value not supported for topic configs: " + ",".join(without_value)
        )
    configs = {name: value for name, value in topic.configs.items() if value is not None}
    check_settings(context, SCOPE_TOPIC, topic.name, configs)
    return configs


def _assignment(image: Image, topic: NewTopic, context: Context) -> list[tuple[int, ...]]:
    """The replicas of each partition of a new topic, as requested or as placed."""
    if topic.assignments:
        return _manual_assignment(image, topic)
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise KafkaError(
            ErrorCode.invalid_partitions, "Number of partitions was set to an invalid non-positive value."
        )
    partitions = context.default_partitions if topic.num_partitions == -1 else topic.num_partitions
    replicas = (
        context.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
    )
    return _placed(image, partitions, replicas, context)


def _manual_assignment(image: Image, topic: NewTopic) -> list[tuple[int, ...]]:
    for what, value in (
        ("replication factor", topic.replication_factor),
        ("numPartitions", topic.num_partitions),
    ):
        if value != -1:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    by_index: dict[int, tuple[int, ...]] = {}
    factor: int | None = None
    for index, replicas in topic.assignments:
        if index in by_index:
            raise KafkaError(
                ErrorCode.invalid_replica_assignment,
                f"Found multiple manual partition assignments for partition {index}",
            )
        by_index[index] = check_replicas(image, replicas, factor)
        factor = len(replicas)
        _check_somebody_active(image, index, replicas)
    if set(by_index) != set(range(len(by_index))):
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return [by_index[index] for index in range(len(by_index))]


def check_replicas(image: Image, replicas: Sequence[int], factor: int | None) -> tuple[int, ...]:
    """A list of broker ids that a user gave: known brokers, each once, as many as elsewhere in the topic."""
    start = "The manual partition assignment includes"
    if not replicas:
        raise KafkaError(ErrorCode.invalid_replica_assignment, f"{start} an empty replica list.")
    ordered = sorted(replicas)
    for position, broker_id in enumerate(ordered):
        if not image.knows_broker(broker_id):
            raise KafkaError(
                ErrorCode.invalid_replica_assignment,
                f"{start} broker {broker_id}, but no such broker is registered.",
            )
        if position and ordered[position - 1] == broker_id:
            raise KafkaError(
                ErrorCode.invalid_replica_assignment, f"{start} the broker {broker_id} more than once."
            )
    if factor is not None and len(replicas) != factor:
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            f"{start} a partition with {len(replicas)} replica(s), but this is not consistent with previous "
            f"partitions, which have {factor} replica(s).",
        )
    return tuple(replicas)


def _check_somebody_active(image: Image, index: int, replicas: Sequence[int]) -> None:
    if image.active_brokers().isdisjoint(replicas):
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            f"All brokers specified in the manual partition assignment for partition {index} are "
            "fenced or in "
            "controlled shutdown.",
        )


def _placed(image: Image, partitions: int, replicas: int, context: Context) -> list[tuple[int, ...]]:
    """Replicas on brokers that are active; where there are too few, also on those that are expected back. As
    in Kafka, a topic can be made while a broker is down, and its replica there joins when the broker does."""
    active = image.active_brokers()
    lives = {**dict.fromkeys(image.brokers_down), **image.last_lives, **image.brokers}
    absent = alternate_racks({each: life and life.rack for each, life in lives.items() if each not in active})
    problem = None
    if not active:
        problem = "All brokers are currently fenced."
    elif replicas > len(active) + len(absent):
        problem = (
            f"The target replication factor of {replicas} cannot be reached because only "
            f"{len(active) + len(absent)} broker(s) "
            "are registered."
        )
    if problem is not None:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"Unable to replicate the partition {replicas} time(s): {problem}",
        )
    racks = {broker_id: image.brokers[broker_id].rack for broker_id in active}
    start = context.below(len(active))
    placed = assign_replicas(racks, partitions, min(replicas, len(active)), start)
    missing = replicas - len(active)
    if missing <= 0:
        return list(placed)
    return [
        (*chosen, *(absent[(start + number + step) % len(absent)] for step in range(missing)))
        for number, chosen in enumerate(placed)
    ]


def _new_partitions(
    image: Image, topic_id: UUID, first: int, assignment: Sequence[tuple[int, ...]]
) -> Iterable[Partition]:
    active = image.active_brokers()
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}  # replicas -> the ISR to begin with
    for index, replicas in enumerate(assignment, first):
        isr = shared.get(replicas)
        if isr is None:
            isr = shared[replicas] = tuple(broker for broker in replicas if broker in active)
        yield Partition(topic_id, index, replicas, isr, isr[0])


# --- more partitions ----------------------------------------------------------------------------------------


def create_partitions(image: Image, command: CreatePartitions, context: Context) -> Decision:
    additional = (topic.count - _partition_count(image, topic.name) for topic in command.topics)
    if _too_many(max(count, 0) for count in additional):
        return refuse(ErrorCode.policy_violation, "Excessively large number of partitions per request.")
    room = _room(image, context)
    records: list[Record] = []
    replies: dict[str, Result] = {}
    times = Counter(topic.name for topic in command.topics)
    for topic in command.topics:
        try:
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.invalid_request, "Duplicate topic name.")
            more = list(_more_partitions(image, topic, context))
            room = _take_room(room, len(more), context)
            records += more
            replies[topic.name] = OK
        except KafkaError as problem:
            replies[topic.name] = Result(problem.code, problem.message or None)
    return Decision(() if command.validate_only else records, replies)


def _partition_count(image: Image, name: str) -> int:
    topic = image.topics_by_name.get(name)
    return 0 if topic is None else len(image.partitions[topic.topic_id])


def _more_partitions(image: Image, more: MorePartitions, context: Context) -> Iterable[Partition]:
    topic = image.topics_by_name.get(more.name)
    if topic is None:
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition, "This server does not host this topic-partition."
        )
    existing = image.partitions[topic.topic_id]
    count = len(existing)
    if more.count == count:
        raise KafkaError(ErrorCode.invalid_partitions, f"Topic already has {count} partition(s).")
    if more.count < count:
        raise KafkaError(
            ErrorCode.invalid_partitions,
            f"The topic {more.name} currently has {count} partition(s); {more.count} would not be "
            "an increase.",
        )
    additional = more.count - count
    first = existing[0]
    factor = len(first.replicas) - len(first.adding)
    if more.assignments is None:
        return _new_partitions(image, topic.topic_id, count, _placed(image, additional, factor, context))
    if len(more.assignments) != additional:
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            f"Attempted to add {additional} additional partition(s), but only {len(more.assignments)} "
            "assignment(s) were specified.",
        )
    assignment = []
    for index, replicas in enumerate(more.assignments, count):
        assignment.append(check_replicas(image, replicas, factor))
        _check_somebody_active(image, index, replicas)
    return _new_partitions(image, topic.topic_id, count, assignment)


# --- delete -------------------------------------------------------------------------------------------------


def delete_topics(image: Image, command: DeleteTopics) -> Decision:
    """Whatever is named twice, by name or by id or by both, stays; it is answered once."""
    records: list[Record] = []
    replies: list[TopicDeleted] = []
    times = Counter(command.topics)
    for ref, count in times.items():
        topic = _find(image, ref)
        if count > 1:
            replies.append(_named_twice(ref))
        elif topic is None:
            replies.append(_not_found(ref))
        elif isinstance(ref, str) and topic.topic_id in times:
            message = "The provided topic name maps to an ID that was already supplied."
            replies.append(TopicDeleted(ref, ref, topic.topic_id, ErrorCode.invalid_request, message))
        elif isinstance(ref, str) or times[topic.name] != 1:  # else the answer for the name says it all
            records.append(TopicGone(topic.topic_id))
            replies.append(TopicDeleted(ref, topic.name, topic.topic_id))
    return Decision(records, replies)


def _named_twice(ref: TopicRef) -> TopicDeleted:
    if isinstance(ref, str):
        return TopicDeleted(ref, ref, None, ErrorCode.invalid_request, "Duplicate topic name.")
    return TopicDeleted(ref, None, ref, ErrorCode.invalid_request, "Duplicate topic id.")


def _find(image: Image, ref: TopicRef) -> Topic | None:
    return image.topics_by_name.get(ref) if isinstance(ref, str) else image.topics_by_id.get(ref)


def _not_found(ref: TopicRef) -> TopicDeleted:
    if isinstance(ref, str):
        return TopicDeleted(
            ref,
            ref,
            None,
            ErrorCode.unknown_topic_or_partition,
            "This server does not host this topic-partition.",
        )
    return TopicDeleted(
        ref, None, ref, ErrorCode.unknown_topic_id, "This server does not host this topic ID."
    )
