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
     2  fenced brokers (KIP-1073): those that are down, with the address that they had

A topic that is not there is created if broker (`auto.create.topics.enable`) and client allow it, and is
in the same response. One that the client may not describe is refused, there or not, and left out of a list.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from millstream.broker.authorizer import CLUSTER, CREATE, DESCRIBE, TOPIC, may
from millstream.broker.mutation_quota import reasons
from millstream.broker.network.dispatch import Api, Call
from millstream.broker.network.slices import Slices, collect, distinct
from millstream.broker.partition import INTERNAL_TOPICS
from millstream.cluster.commands import NewTopic
from millstream.cluster.metadata_records import NO_LEADER, BrokerUp, Topic
from millstream.cluster.metadata_records import Partition as PartitionRecord
from millstream.cluster.topic_names import name_problem
from millstream.wire.acls import CLUSTER_NAME
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

FIRST_WITH_LISTENER_NOT_FOUND, NEWEST = 6, 13
BROKERS, CONTROLLERS = 1, 2  # endpoint types of DescribeCluster


class PackedTopic(NamedTuple):
    """A topic as it stands in responses, by version, and what that was made of."""

    partitions: list[PartitionRecord]
    reachable: frozenset[int]  # the brokers that are alive and have the client's listener
    by_version: dict[int, bytes]


class MetadataApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._packed_topics: dict[UUID, PackedTopic] = {}

    def apis(self) -> list[Api]:
        return [
            Api(3, "Metadata", 0, NEWEST, self.metadata),
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
        missing = (yield from self._missing(call, named)) if self._may_create(call) else []
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

    def _missing(self, call: Call, named: Named) -> Slices[list[str]]:
        """The names of which there is no topic, and the client may create one."""
        missing = []
        authorizer = self.broker.authorizer
        for name in named:
            if (
                isinstance(name, str)
                and self.broker.image.topic(name) is None
                and (
                    authorizer is None
                    or (may(authorizer, call, DESCRIBE, TOPIC, name) and self._creatable(call, name))
                )
            ):
                missing.append(name)
            yield
        return missing

    def _creatable(self, call: Call, name: str) -> bool:
        authorizer = self.broker.authorizer
        return may(authorizer, call, CREATE, CLUSTER, quiet=True) or may(
            authorizer, call, CREATE, TOPIC, name
        )

    async def _create_and_answer(self, call: Call, named: Named, names: list[str]) -> Any:
        """Internal topics are created by their coordinators, with the partitions and settings they need."""
        internal = self.broker.partitions.coordinated
        refused: dict[str, ErrorCode] = {}
        for name in names:
            if name in internal:
                try:
                    await internal[name].ensure_exists()
                except KafkaError as error:
                    logger.warning("cannot create %s: %s", name, error)
                    refused[name] = error.code
        ordinary = [NewTopic(name) for name in names if name not in internal]
        if ordinary:
            try:
                results = await self.broker.forwarding.create_topics(ordinary, call)
                refused |= reasons(results)
            except KafkaError as error:
                refused |= {topic.name: error.code for topic in ordinary}
        return await call.in_slices(self._answer(call, named, refused))

    def _answer(self, call: Call, named: Named, refused: Mapping[str, ErrorCode]) -> Slices[Any]:
        broker, request = self.broker, call.request
        wants_operations = getattr(request, "include_topic_authorized_operations", False)
        operations = ALL_TOPIC_OPERATIONS if wants_operations else OPERATIONS_NOT_REQUESTED
        authorizer = self.broker.authorizer
        topics = request.topics
        addresses = [BrokerAddress(*address) for address in self._addresses(call)]
        reachable = frozenset(address.node_id for address in addresses)
        found: list[tuple[bytes, int]] = []
        if topics is None or (call.version == 0 and not topics):
            for topic in list(broker.image.topics_by_id.values()):
                # Others may have deleted it since the answer was begun.
                if topic.topic_id in broker.image.partitions:
                    if authorizer is not None:
                        if not may(authorizer, call, DESCRIBE, TOPIC, topic.name, quiet=True):
                            yield
                            continue
                        if wants_operations:
                            operations = authorizer.operations(call, TOPIC, topic.name)
                    found.append(((yield from self._packed(topic, call.version, reachable)), operations))
                yield
        else:
            for wanted in named.values():
                if authorizer is not None:
                    found.append(
                        (yield from self._judged(call, wanted, wants_operations, refused, reachable))
                    )
                else:
                    found.append(
                        (yield from self._named(call.version, wanted, operations, refused, reachable))
                    )
                yield
        cluster = getattr(request, "include_cluster_authorized_operations", False)
        return _packed_response(
            call,
            addresses,
            broker.cluster_id,
            self._controller_id(),
            found,
            self._cluster_operations(call) if cluster else OPERATIONS_NOT_REQUESTED,
        )

    def _cluster_operations(self, call: Call) -> int:
        authorizer = self.broker.authorizer
        if authorizer is None:
            return ALL_CLUSTER_OPERATIONS
        return (
            authorizer.operations(call, CLUSTER, CLUSTER_NAME)
            if may(authorizer, call, DESCRIBE, CLUSTER)
            else 0
        )

    def _judged(
        self,
        call: Call,
        wanted: Any,
        wants_operations: bool,
        refused: Mapping[str, ErrorCode],
        reachable: frozenset[int],
    ) -> Slices[tuple[bytes, int]]:
        """As `_named`, where there is an authorizer. Ids are no secret, but names are."""
        authorizer, image = self.broker.authorizer, self.broker.image
        assert authorizer is not None
        topic_id = getattr(wanted, "topic_id", None)
        name = wanted.name
        by_id = topic_id is not None or name is None
        if by_id:
            known = image.topics_by_id.get(topic_id or NO_TOPIC_ID)
            name = None if known is None else known.name
        operations = OPERATIONS_NOT_REQUESTED
        if name is not None:
            allowed = may(authorizer, call, DESCRIBE, TOPIC, name)
            if allowed and image.topic(name) is None and name not in refused and self._may_create(call):
                allowed = self._creatable(call, name)
            if not allowed:
                shown, id_shown = (None, topic_id) if by_id else (name, None)
                error = ErrorCode.topic_authorization_failed
                return pack_topic(call.version, error, shown, id_shown, False, ()), operations
            if wants_operations:
                operations = authorizer.operations(call, TOPIC, name)
        return (yield from self._named(call.version, wanted, operations, refused, reachable))

    def _addresses(
        self, call: Call, brokers: Mapping[int, BrokerUp] | None = None
    ) -> Iterator[tuple[int, str, int, str | None]]:
        """Id, host, port and rack of brokers that have the listener of this call; by default, of those up."""
        for node in (self.broker.image.brokers if brokers is None else brokers).values():
            endpoint = node.endpoint(call.listener)
            if endpoint is not None:
                yield node.broker_id, endpoint.host, endpoint.port, node.rack

    def _controller_id(self) -> int:
        """Where to send administrative requests: any broker takes them, so while there is no controller this
        one is named."""
        image = self.broker.image
        return image.controller_id if image.controller_id in image.brokers else self.broker.node_id

    def _named(
        self,
        version: int,
        wanted: Any,
        operations: int,
        refused: Mapping[str, ErrorCode],
        reachable: frozenset[int],
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
            return (yield from self._packed(topic, version, reachable)), operations
        packed = pack_topic(version, error, name, topic_id, name in INTERNAL_TOPICS, ())
        # What is authorized depends on the name alone.
        return packed, OPERATIONS_NOT_REQUESTED if name is None else operations

    def _why_missing(self, name: str) -> ErrorCode:
        return (
            ErrorCode.unknown_topic_or_partition
            if name_problem(name) is None
            else ErrorCode.invalid_topic_exception
        )

    def _packed(self, topic: Topic, version: int, reachable: frozenset[int]) -> Slices[bytes]:
        """A topic as it stands in a response, packed once until its partitions or the brokers change."""
        image = self.broker.image
        # The image replaces this list when a partition in it changes.
        partitions = image.partitions[topic.topic_id]
        packed_topic = self._packed_topics.get(topic.topic_id)
        if (
            packed_topic is None
            or packed_topic.partitions is not partitions
            or packed_topic.reachable != reachable
        ):
            # Deleted topics, by far the larger part.
            if len(self._packed_topics) > 2 * len(image.topics_by_id) + 100:
                self._packed_topics.clear()
            packed_topic = self._packed_topics[topic.topic_id] = PackedTopic(partitions, reachable, {})
        packed = packed_topic.by_version.get(version)
        if packed is None:
            alive = frozenset(image.brokers)
            states = yield from collect(
                _packed_partition(version, each, reachable, alive) for each in partitions
            )
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
        denied: list[Any] = []
        if self.broker.authorizer is not None:
            names = yield from self._describable(call, names, denied, is_filter=not named)
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
        return call.answer(topics=(*topics, *denied), next_cursor=following)

    def _describable(
        self, call: Call, names: list[str], denied: list[Any], is_filter: bool
    ) -> Slices[list[str]]:
        allowed = []
        for name in names:
            if may(self.broker.authorizer, call, DESCRIBE, TOPIC, name, quiet=is_filter):
                allowed.append(name)
            elif not is_filter:
                denied.append(self._described(call, name, None, (), ErrorCode.topic_authorization_failed))
            yield
        return allowed

    def _topic_operations(self, call: Call, name: str, error: ErrorCode) -> int:
        if error in (ErrorCode.invalid_request, ErrorCode.topic_authorization_failed):
            return OPERATIONS_NOT_REQUESTED
        authorizer = self.broker.authorizer
        return ALL_TOPIC_OPERATIONS if authorizer is None else authorizer.operations(call, TOPIC, name)

    def _described(
        self,
        call: Call,
        name: str,
        topic: Topic | None,
        partitions: tuple[PartitionRecord, ...],
        error: ErrorCode,
    ) -> Any:
        structure = "DescribeTopicPartitionsResponsePartition"
        alive = self.broker.image.brokers
        reachable = {address[0] for address in self._addresses(call)} if partitions else ()
        leaders = [_leader(NEWEST, partition, reachable, alive) for partition in partitions]
        return call.make(
            "DescribeTopicPartitionsResponseTopic",
            error_code=error,
            name=name,
            topic_id=topic.topic_id if topic else None,
            is_internal=name in INTERNAL_TOPICS and error is not ErrorCode.topic_authorization_failed,
            partitions=tuple(
                call.make(
                    structure,
                    error_code=partition_error,
                    partition_index=partition.index,
                    leader_id=leader,
                    leader_epoch=partition.leader_epoch,
                    replica_nodes=partition.replicas,
                    isr_nodes=partition.isr,
                    offline_replicas=_offline(partition, reachable),
                    eligible_leader_replicas=partition.elr,
                    last_known_elr=(),
                )
                for partition, (partition_error, leader) in zip(partitions, leaders, strict=True)
            ),
            topic_authorized_operations=self._topic_operations(call, name, error),
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
        nodes = [(*address, False) for address in self._addresses(call)]
        if call.version >= 2 and request.include_fenced_brokers:
            down: dict[int, Any] = {each: (each, "", -1, None) for each in sorted(broker.image.brokers_down)}
            down |= {address[0]: address for address in self._addresses(call, broker.image.last_lives)}
            nodes += [(*address, True) for address in down.values()]
        return call.answer(
            error_code=error,
            error_message=message,
            endpoint_type=BROKERS,
            cluster_id="" if error else broker.cluster_id,
            controller_id=-1 if error else self._controller_id(),
            brokers=()
            if error
            else tuple(
                call.make(
                    "DescribeClusterBroker", broker_id=node, host=host, port=port, rack=rack, is_fenced=fenced
                )
                for node, host, port, rack, fenced in nodes
            ),
            cluster_authorized_operations=self._cluster_operations(call)
            if requested
            else OPERATIONS_NOT_REQUESTED,
        )


def _packed_response(call: Call, *contents: Any) -> Any:
    pack = partial(pack_metadata_response, call.correlation_id, call.version, *contents)
    return pack if call.is_large else pack()


def _packed_partition(
    version: int, partition: PartitionRecord, reachable: frozenset[int], alive: frozenset[int]
) -> bytes:
    error, leader = _leader(version, partition, reachable, alive)
    replicas, isr = partition.replicas, partition.isr
    if version == 0:  # which has no list of offline replicas
        replicas = tuple(replica for replica in replicas if replica in reachable)
        isr = tuple(replica for replica in isr if replica in reachable)
        if error is ErrorCode.none and len(replicas) < len(partition.replicas):
            error = ErrorCode.replica_not_available
    state = PartitionState(
        error,
        partition.index,
        leader,
        partition.leader_epoch,
        replicas,
        isr,
        _offline(partition, reachable),
    )
    return pack_partition(version, state)


def _leader(
    version: int, partition: PartitionRecord, reachable: Collection[int], alive: Collection[int]
) -> tuple[ErrorCode, int]:
    """The error and the leader that a client is told. One that does not have the client's listener is of no
    use to it."""
    if partition.leader in reachable:
        return ErrorCode.none, partition.leader
    if partition.leader in alive and version >= FIRST_WITH_LISTENER_NOT_FOUND:
        return ErrorCode.listener_not_found, NO_LEADER
    return ErrorCode.leader_not_available, NO_LEADER


def _offline(partition: PartitionRecord, reachable: Collection[int]) -> tuple[int, ...]:
    return tuple(replica for replica in partition.replicas if replica not in reachable)
