"""What a client must know before it can work: Metadata 0 to 13, DescribeTopicPartitions 0, DescribeCluster 0 to 2.

A topic that does not exist is created here, where both the broker (`auto.create.topics.enable`) and the client allow it,
and is in the same answer. Left out: clusters' authorised operations are all operations until there are ACLs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from millstream.broker.dispatch import Api, Call
from millstream.broker.partitions import INTERNAL_TOPICS
from millstream.cluster.commands import CreateTopics, NewTopic
from millstream.cluster.records import NO_LEADER, Topic
from millstream.cluster.records import Partition as PartitionRecord
from millstream.cluster.topics import name_problem
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.messages import NO_TOPIC_ID

if TYPE_CHECKING:
    from millstream.broker.server import Broker

# Bit n stands for operation n: read 3, write 4, create 5, delete 6, alter 7, describe 8, cluster action 9,
# describe configs 10, alter configs 11, idempotent write 12.
ALL_TOPIC_OPERATIONS = sum(1 << n for n in (3, 4, 5, 6, 7, 8, 10, 11))
ALL_CLUSTER_OPERATIONS = sum(1 << n for n in (5, 7, 8, 9, 10, 11, 12))
NOT_ASKED = -(1 << 31)

BROKERS, CONTROLLERS = 1, 2  # endpoint types of DescribeCluster


class MetadataApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def apis(self) -> list[Api]:
        return [
            Api(3, "Metadata", 0, 13, self.metadata),
            Api(60, "DescribeCluster", 0, 2, self.describe_cluster),
            Api(75, "DescribeTopicPartitions", 0, 0, self.describe_topic_partitions),
        ]

    # ------------------------------------------------------------------ Metadata

    def metadata(self, call: Call) -> Any:
        """Answers at once unless a topic has to be created first."""
        if call.version in (10, 11) and any(
            topic.topic_id is not None or topic.name is None for topic in call.request.topics or ()
        ):
            return self._refuse_ids(call)
        missing = self._to_create(call)
        return self._create_and_answer(call, missing) if missing else self._answer(call, {})

    def _refuse_ids(self, call: Call) -> Any:
        """Versions 10 and 11 have a field for the topic id, but nobody may ask by it: all topics are refused."""
        refused = (
            call.make(
                "MetadataResponseTopic",
                error_code=ErrorCode.invalid_request,
                name=topic.name or "",
                topic_id=topic.topic_id,
                is_internal=False,
                partitions=(),
                topic_authorized_operations=NOT_ASKED,
            )
            for topic in call.request.topics
        )
        return call.answer(
            brokers=(),
            cluster_id=None,
            controller_id=-1,
            topics=tuple(refused),
            cluster_authorized_operations=NOT_ASKED,
        )

    def _to_create(self, call: Call) -> list[str]:
        request = call.request
        allowed = call.version < 4 or request.allow_auto_topic_creation
        if not request.topics or not allowed or not self.broker.settings.boolean("auto.create.topics.enable"):
            return []
        image = self.broker.image
        named = (topic.name for topic in request.topics if getattr(topic, "topic_id", None) is None)
        return [name for name in dict.fromkeys(named) if name is not None and image.topic(name) is None]

    async def _create_and_answer(self, call: Call, names: list[str]) -> Any:
        try:
            results = await self.broker.controller.submit(CreateTopics([NewTopic(name) for name in names]))
            refused = {result.name: result.error for result in results if result.error}
        except KafkaError as error:
            refused = dict.fromkeys(names, error.code)
        return self._answer(call, refused)

    def _answer(self, call: Call, refused: Mapping[str, ErrorCode]) -> Any:
        broker, request = self.broker, call.request
        operations = (
            ALL_TOPIC_OPERATIONS
            if getattr(request, "include_topic_authorized_operations", False)
            else NOT_ASKED
        )
        topics = request.topics
        if topics is None or (call.version == 0 and not topics):
            found = [self._topic(call, topic, operations) for topic in broker.image.topics_by_id.values()]
        else:
            found = [self._asked(call, asked, operations, refused) for asked in topics]
        cluster = getattr(request, "include_cluster_authorized_operations", False)
        return call.answer(
            brokers=self._brokers(call, "MetadataResponseBroker", "node_id"),
            cluster_id=broker.cluster_id,
            controller_id=broker.image.controller_id,
            topics=tuple(found),
            cluster_authorized_operations=ALL_CLUSTER_OPERATIONS if cluster else NOT_ASKED,
            error_code=ErrorCode.none,
        )

    def _brokers(self, call: Call, structure: str, id_field: str) -> tuple[Any, ...]:
        found = []
        for node in self.broker.image.brokers.values():
            endpoint = node.endpoint(call.listener)
            if endpoint is not None:
                fields = {id_field: node.broker_id, "host": endpoint.host, "port": endpoint.port}
                found.append(call.make(structure, rack=node.rack, is_fenced=False, **fields))
        return tuple(found)

    def _asked(self, call: Call, asked: Any, operations: int, refused: Mapping[str, ErrorCode]) -> Any:
        image = self.broker.image
        name = asked.name
        topic_id = getattr(asked, "topic_id", None)
        if topic_id is not None or name is None:  # the id wins, whatever name stands beside it
            topic = image.topics_by_id.get(topic_id or NO_TOPIC_ID)
            error = ErrorCode.unknown_topic_id
            name = None
        else:
            topic = image.topic(name)
            error = refused.get(name) or self._why_missing(name)
        if topic is not None:
            return self._topic(call, topic, operations)
        return call.make(
            "MetadataResponseTopic",
            error_code=error,
            name=name,
            topic_id=topic_id,
            is_internal=False,
            partitions=(),
            topic_authorized_operations=NOT_ASKED,
        )

    def _why_missing(self, name: str) -> ErrorCode:
        return (
            ErrorCode.unknown_topic_or_partition
            if name_problem(name) is None
            else ErrorCode.invalid_topic_exception
        )

    def _topic(self, call: Call, topic: Topic, operations: int) -> Any:
        return call.make(
            "MetadataResponseTopic",
            error_code=ErrorCode.none,
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=tuple(
                self._partition(call, "MetadataResponsePartition", partition)
                for partition in self.broker.image.partitions[topic.topic_id]
            ),
            topic_authorized_operations=operations,
        )

    def _partition(self, call: Call, structure: str, partition: PartitionRecord, **more: Any) -> Any:
        alive = self.broker.image.brokers
        return call.make(
            structure,
            error_code=ErrorCode.leader_not_available if partition.leader == NO_LEADER else ErrorCode.none,
            partition_index=partition.index,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=partition.replicas,
            isr_nodes=partition.isr,
            offline_replicas=tuple(replica for replica in partition.replicas if replica not in alive),
            **more,
        )

    # ------------------------------------------------------------------ DescribeTopicPartitions

    def describe_topic_partitions(self, call: Call) -> Any:
        """Pages through topics in name order: at most `response_partition_limit` partitions, then a cursor."""
        request, image = call.request, self.broker.image
        limit = max(
            1,
            min(
                request.response_partition_limit,
                self.broker.settings.integer("max.request.partition.size.limit"),
            ),
        )
        names = sorted({topic.name for topic in request.topics} or set(image.topics_by_name))
        cursor = request.cursor
        if cursor is not None:
            names = [name for name in names if name >= cursor.topic_name]
        topics = []
        following = None
        for name in names:
            if limit <= 0:
                following = call.make("Cursor", topic_name=name, partition_index=0)
                break
            first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
            topic = image.topic(name)
            if topic is None:
                if cursor is None or cursor.topic_name != name:
                    topics.append(self._described(call, name, None, (), self._why_missing(name)))
                    limit -= 1
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
                self._partition(call, structure, p, eligible_leader_replicas=p.elr, last_known_elr=())
                for p in partitions
            ),
            topic_authorized_operations=ALL_TOPIC_OPERATIONS if topic else NOT_ASKED,
        )

    # ------------------------------------------------------------------ DescribeCluster

    def describe_cluster(self, call: Call) -> Any:
        request, broker = call.request, self.broker
        kind = request.endpoint_type if call.version >= 1 else BROKERS
        error, message = ErrorCode.none, None
        if kind == CONTROLLERS:
            error = ErrorCode.mismatched_endpoint_type
            message = "This endpoint is a broker's, not a controller's."
        elif kind != BROKERS:
            error, message = ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {kind}"
        asked = request.include_cluster_authorized_operations
        return call.answer(
            error_code=error,
            error_message=message,
            endpoint_type=BROKERS,
            cluster_id="" if error else broker.cluster_id,
            controller_id=-1 if error else broker.image.controller_id,
            brokers=() if error else self._brokers(call, "DescribeClusterBroker", "broker_id"),
            cluster_authorized_operations=ALL_CLUSTER_OPERATIONS if asked else NOT_ASKED,
        )
