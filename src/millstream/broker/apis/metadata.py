"""What a client must know before it can work: Metadata, DescribeTopicPartitions, DescribeCluster.

Metadata 0-13
     1  controller, racks, internal topics; null means all topics, an empty list means none
     2  cluster id (KIP-78)
     3  throttle time
     4  whether missing topics may be created
     5  offline replicas (KIP-112)
     6  the client expects to be throttled after the response (KIP-219)
     7  leader epochs (KIP-320)
     8  authorized operations (KIP-430)
     9  flexible
    10  topic ids in the response (KIP-516)
    11  without the cluster's authorized operations, which moved to DescribeCluster (KIP-700)
    12  topics by id (KIP-516)
    13  an error for the whole response, to make a client bootstrap again (KIP-1102)
DescribeTopicPartitions 0 (KIP-966)
DescribeCluster 0-2 (KIP-700)
     1  endpoints of brokers or of controllers (KIP-919)
     2  fenced brokers (KIP-1073)

A topic that does not exist is created here if both the broker (`auto.create.topics.enable`) and the client
allow it, and is in the same response. Left out: ACLs (every operation is authorized), fenced brokers.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from millstream.broker.network.dispatch import Api, Call
from millstream.broker.network.slices import Slices, collect, distinct
from millstream.broker.partitions import INTERNAL_TOPICS
from millstream.cluster.commands import CreateTopics, NewTopic
from millstream.cluster.metadata_records import NO_LEADER, Topic
from millstream.cluster.metadata_records import Partition as PartitionRecord
from millstream.cluster.topic_names import name_problem
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.messages import NO_TOPIC_ID
from millstream.wire.metadata import (
    BrokerAddress,
    PartitionState,
    pack_metadata_response,
    pack_partition,
    pack_topic,
)

if TYPE_CHECKING:
    from millstream.broker.server import Broker

logger = logging.getLogger("millstream.metadata")

# Bit n stands for operation n: read 3, write 4, create 5, delete 6, alter 7, describe 8, cluster action 9,
# describe configs 10, alter configs 11, idempotent write 12.
ALL_TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
ALL_CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
OPERATIONS_NOT_REQUESTED = -(1 << 31)
Named = dict[str | UUID | None, Any]  # the topics of a request, by id or else by name

BROKERS, CONTROLLERS = 1, 2  # endpoint types of DescribeCluster


class PackedTopic(NamedTuple):
    """A topic as it stands in responses, by version, and what that was made of."""

    partitions: list[PartitionRecord]
    alive: frozenset[int]
    by_version: dict[int, bytes]


class MetadataApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._packed_topics: dict[UUID, PackedTopic] = {}

    def apis(self) -> list[Api]:
        return [
            Api(3, "Metadata", 0, 13, self.metadata),
            Api(60, "DescribeCluster", 0, 2, self.describe_cluster),
            Api(75, "DescribeTopicPartitions", 0, 0, self.describe_topic_partitions),
        ]

    # ------------------------------------------------------------------ Metadata

    def metadata(self, call: Call) -> Slices[Any]:
        """Answers at once unless a topic has to be created first. A topic that is named twice is answered
        once."""
        named: Named = {}
        by_id = False
        for topic in call.request.topics or ():
            topic_id = getattr(topic, "topic_id", None)
            by_id = by_id or topic_id is not None or topic.name is None
            named[topic_id or topic.name] = topic
            yield
        if by_id and call.version in (10, 11):
            return (yield from self._refuse_ids(call))
        missing = (yield from self._missing(named)) if self._may_create(call) else []
        if missing:
            return self._create_and_answer(call, named, missing)
        return (yield from self._answer(call, named, {}))

    def _refuse_ids(self, call: Call) -> Slices[Any]:
        """Versions 10 and 11 have a field for the topic id but do not serve it: all topics are refused."""
        refused = yield from collect(
            (
                pack_topic(call.version, ErrorCode.invalid_request, topic.name, topic.topic_id, False, ()),
                OPERATIONS_NOT_REQUESTED,
            )
            for topic in call.request.topics
        )
        return _packed_response(call, (), None, NO_LEADER, refused, OPERATIONS_NOT_REQUESTED)

    def _may_create(self, call: Call) -> bool:
        allowed = call.version < 4 or call.request.allow_auto_topic_creation
        return allowed and self.broker.settings.boolean("auto.create.topics.enable")

    def _missing(self, named: Named) -> Slices[list[str]]:
        """The names of which there is no topic."""
        missing = []
        for name in named:
            if isinstance(name, str) and self.broker.image.topic(name) is None:
                missing.append(name)
            yield
        return missing

    async def _create_and_answer(self, call: Call, named: Named, names: list[str]) -> Any:
        """Internal topics are created by their coordinators, with the partitions and settings they need."""
        internal = self.broker.partitions.coordinated
        for name in names:
            if name in internal:
                try:
                    await internal[name].ensure_exists()
                except KafkaError as error:
                    logger.warning("cannot create %s: %s", name, error)
        ordinary = [NewTopic(name) for name in names if name not in internal]
        refused: dict[str, ErrorCode] = {}
        if ordinary:
            try:
                results = await self.broker.controller.submit(CreateTopics(ordinary), is_large=call.is_large)
                refused = {result.name: result.error for result in results if result.error}
            except KafkaError as error:
                refused = {topic.name: error.code for topic in ordinary}
        return await call.in_slices(self._answer(call, named, refused))

    def _answer(self, call: Call, named: Named, refused: Mapping[str, ErrorCode]) -> Slices[Any]:
        broker, request = self.broker, call.request
        operations = (
            ALL_TOPIC_OPERATIONS
            if getattr(request, "include_topic_authorized_operations", False)
            else OPERATIONS_NOT_REQUESTED
        )
        topics = request.topics
        found: list[tuple[bytes, int]] = []
        if topics is None or (call.version == 0 and not topics):
            for topic in list(broker.image.topics_by_id.values()):
                # Others may have deleted it since the answer was begun.
                if topic.topic_id in broker.image.partitions:
                    found.append(((yield from self._packed(topic, call.version)), operations))
                yield
        else:
            for wanted in named.values():
                found.append((yield from self._named(call.version, wanted, operations, refused)))
                yield
        cluster = getattr(request, "include_cluster_authorized_operations", False)
        return _packed_response(
            call,
            [BrokerAddress(*address) for address in self._addresses(call)],
            broker.cluster_id,
            broker.image.controller_id,
            found,
            ALL_CLUSTER_OPERATIONS if cluster else OPERATIONS_NOT_REQUESTED,
        )

    def _addresses(self, call: Call) -> Iterator[tuple[int, str, int, str | None]]:
        """Id, host, port and rack of the brokers that have the listener of this call."""
        for node in self.broker.image.brokers.values():
            endpoint = node.endpoint(call.listener)
            if endpoint is not None:
                yield node.broker_id, endpoint.host, endpoint.port, node.rack

    def _named(
        self, version: int, wanted: Any, operations: int, refused: Mapping[str, ErrorCode]
    ) -> Slices[tuple[bytes, int]]:
        """A topic that the request names, with what the client may do with it."""
        image = self.broker.image
        name = wanted.name
        topic_id = getattr(wanted, "topic_id", None)
        if topic_id is not None or name is None:  # the id wins over any name
            topic = image.topics_by_id.get(topic_id or NO_TOPIC_ID)
            error = ErrorCode.unknown_topic_id
            name = None
        else:
            topic = image.topic(name)
            error = refused.get(name) or self._why_missing(name)
        if topic is not None:
            return (yield from self._packed(topic, version)), operations
        packed = pack_topic(version, error, name, topic_id, name in INTERNAL_TOPICS, ())
        # What is authorized depends on the name alone.
        return packed, OPERATIONS_NOT_REQUESTED if name is None else operations

    def _why_missing(self, name: str) -> ErrorCode:
        return (
            ErrorCode.unknown_topic_or_partition
            if name_problem(name) is None
            else ErrorCode.invalid_topic_exception
        )

    def _packed(self, topic: Topic, version: int) -> Slices[bytes]:
        """A topic as it stands in a response, packed once until its partitions or the brokers change."""
        image = self.broker.image
        # The image replaces this list when a partition in it changes.
        partitions = image.partitions[topic.topic_id]
        packed_topic = self._packed_topics.get(topic.topic_id)
        if (
            packed_topic is None
            or packed_topic.partitions is not partitions
            or packed_topic.alive != image.brokers.keys()
        ):
            if (
                len(self._packed_topics) > 2 * len(image.topics_by_id) + 100
            ):  # deleted topics, by far the larger part
                self._packed_topics.clear()
            packed_topic = self._packed_topics[topic.topic_id] = PackedTopic(
                partitions, frozenset(image.brokers), {}
            )
        packed = packed_topic.by_version.get(version)
        if packed is None:
            alive = packed_topic.alive
            states = yield from collect(_packed_partition(version, each, alive) for each in partitions)
            internal = topic.name in INTERNAL_TOPICS
            packed = pack_topic(version, ErrorCode.none, topic.name, topic.topic_id, internal, states)
            packed_topic.by_version[version] = packed
        return packed

    # ------------------------------------------------------------------ DescribeTopicPartitions

    def describe_topic_partitions(self, call: Call) -> Slices[Any]:
        """Topics in name order: at most `response_partition_limit` partitions, then a cursor."""
        request, image = call.request, self.broker.image
        limit = max(
            1,
            min(
                request.response_partition_limit,
                self.broker.settings.integer("max.request.partition.size.limit"),
            ),
        )
        named = yield from distinct(topic.name for topic in request.topics)
        names = sorted(named or image.topics_by_name)
        cursor = request.cursor
        if cursor is not None:
            if cursor.partition_index < 0 or (named and cursor.topic_name not in named):
                bad = ErrorCode.invalid_request
                refused = yield from collect(
                    self._described(call, name, None, (), bad) for name in names if named
                )
                return call.answer(topics=refused, next_cursor=None)
            names = [name for name in names if name >= cursor.topic_name]
        topics = []
        following = None
        for name in names:
            yield
            if limit <= 0:
                following = call.make("Cursor", topic_name=name, partition_index=0)
                break
            first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
            topic = image.topic(name)
            if topic is None:
                topics.append(self._described(call, name, None, (), self._why_missing(name)))
                continue
            partitions = image.partitions[topic.topic_id]
            shown = partitions[first : first + limit]
            limit -= len(shown)
            topics.append(self._described(call, name, topic, tuple(shown), ErrorCode.none))
            if first + len(shown) < len(partitions):
                following = call.make("Cursor", topic_name=name, partition_index=first + len(shown))
                break
        return call.answer(topics=tuple(topics), next_cursor=following)

    def _described(
        self,
        call: Call,
        name: str,
        topic: Topic | None,
        partitions: tuple[PartitionRecord, ...],
        error: ErrorCode,
    ) -> Any:
        structure = "DescribeTopicPartitionsResponsePartition"
        return call.make(
            "DescribeTopicPartitionsResponseTopic",
            error_code=error,
            name=name,
            topic_id=topic.topic_id if topic else None,
            is_internal=name in INTERNAL_TOPICS,
            partitions=tuple(
                call.make(
                    structure,
                    error_code=_partition_error(partition),
                    partition_index=partition.index,
                    leader_id=partition.leader,
                    leader_epoch=partition.leader_epoch,
                    replica_nodes=partition.replicas,
                    isr_nodes=partition.isr,
                    offline_replicas=_offline(partition, self.broker.image.brokers),
                    eligible_leader_replicas=partition.elr,
                    last_known_elr=(),
                )
                for partition in partitions
            ),
            topic_authorized_operations=OPERATIONS_NOT_REQUESTED
            if error is ErrorCode.invalid_request
            else ALL_TOPIC_OPERATIONS,
        )

    # ------------------------------------------------------------------ DescribeCluster

    def describe_cluster(self, call: Call) -> Any:
        request, broker = call.request, self.broker
        endpoint_type = request.endpoint_type if call.version >= 1 else BROKERS
        error, message = ErrorCode.none, None
        if endpoint_type == CONTROLLERS:
            error = ErrorCode.mismatched_endpoint_type
            message = "This endpoint is a broker's, not a controller's."
        elif endpoint_type != BROKERS:
            error, message = ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {endpoint_type}"
        requested = request.include_cluster_authorized_operations and not error
        return call.answer(
            error_code=error,
            error_message=message,
            endpoint_type=BROKERS,
            cluster_id="" if error else broker.cluster_id,
            controller_id=-1 if error else broker.image.controller_id,
            brokers=()
            if error
            else tuple(
                call.make(
                    "DescribeClusterBroker", broker_id=node, host=host, port=port, rack=rack, is_fenced=False
                )
                for node, host, port, rack in self._addresses(call)
            ),
            cluster_authorized_operations=ALL_CLUSTER_OPERATIONS if requested else OPERATIONS_NOT_REQUESTED,
        )


def _packed_response(call: Call, *contents: Any) -> Any:
    pack = partial(pack_metadata_response, call.correlation_id, call.version, *contents)
    return pack if call.is_large else pack()


def _packed_partition(version: int, partition: PartitionRecord, alive: frozenset[int]) -> bytes:
    state = PartitionState(
        _partition_error(partition),
        partition.index,
        partition.leader,
        partition.leader_epoch,
        partition.replicas,
        partition.isr,
        _offline(partition, alive),
    )
    return pack_partition(version, state)


def _partition_error(partition: PartitionRecord) -> ErrorCode:
    return ErrorCode.leader_not_available if partition.leader == NO_LEADER else ErrorCode.none


def _offline(partition: PartitionRecord, alive: Collection[int]) -> tuple[int, ...]:
    return tuple(replica for replica in partition.replicas if replica not in alive)
