"""Who leads a partition, and where its replicas are.

ElectLeaders 0-2 (KIP-183)
     1  unclean elections, an error for the whole response (KIP-460)
     2  flexible
AlterPartitionReassignments 0-1 (KIP-455)
     1  may the replication factor change? (KIP-860)
ListPartitionReassignments 0 (KIP-455)

Changes are commands to the controller, which answers partition by partition; here they are only translated.
They need ALTER on the cluster, the list needs DESCRIBE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.broker.apis.topics import same_for_all, submit
from millstream.broker.authorizer import ALTER, CLUSTER, DESCRIBE, may
from millstream.broker.network.dispatch import Api, Call
from millstream.broker.network.slices import Slices, collect
from millstream.cluster.commands import AlterReassignments, ElectLeaders, Result
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.broker.server import Broker

PREFERRED, UNCLEAN = 0, 1
CLUSTER_DENIED = KafkaError(ErrorCode.cluster_authorization_failed, "Cluster authorization failed.")


class ReassignmentsApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def apis(self) -> list[Api]:
        return [
            Api(43, "ElectLeaders", 0, 2, self.elect_leaders, forwarded=True),
            Api(45, "AlterPartitionReassignments", 0, 1, self.alter_reassignments, forwarded=True),
            Api(46, "ListPartitionReassignments", 0, 0, self.list_reassignments, forwarded=True),
        ]

    async def elect_leaders(self, call: Call) -> Any:
        request = call.request
        election_type = request.election_type if call.version >= 1 else PREFERRED
        wanted = None
        if request.topic_partitions is not None:
            wanted = await call.in_slices(self._partitions(request.topic_partitions))
        error = ErrorCode.none
        if not may(self.broker.authorizer, call, ALTER, CLUSTER):
            error = CLUSTER_DENIED.code
            results = await call.in_slices(same_for_all(wanted or (), CLUSTER_DENIED))
        elif election_type in (PREFERRED, UNCLEAN):
            results = await submit(
                self.broker,
                call,
                ElectLeaders(wanted, unclean=election_type == UNCLEAN),
                lambda error: same_for_all(wanted or (), error),
            )
        else:
            error = ErrorCode.invalid_request
            unknown = KafkaError(error, f"Unknown election type {election_type}")
            results = await call.in_slices(same_for_all(wanted or (), unknown))
        elected = await call.in_slices(
            self._by_topic(
                call,
                results,
                "ReplicaElectionResult",
                "topic",
                "partition_result",
                "PartitionResult",
                "partition_id",
            )
        )
        return call.answer(error_code=error, replica_election_results=elected)

    def _partitions(self, topics: Any) -> Slices[list[TopicPartition]]:
        partitions: list[TopicPartition] = []
        for topic in topics:
            yield
            partitions += yield from collect(TopicPartition(topic.topic, index) for index in topic.partitions)
        return partitions

    async def alter_reassignments(self, call: Call) -> Any:
        request = call.request
        wanted = await call.in_slices(self._reassignments(request.topics))
        allow = request.allow_replication_factor_change if call.version >= 1 else True
        allowed = may(self.broker.authorizer, call, ALTER, CLUSTER)
        if allowed:
            results = await submit(
                self.broker,
                call,
                AlterReassignments(wanted, allow),
                lambda error: same_for_all((TopicPartition(name, index) for name, index, _ in wanted), error),
            )
        else:
            partitions = [TopicPartition(name, index) for name, index, _ in wanted]
            results = await call.in_slices(same_for_all(partitions, CLUSTER_DENIED))
        responses = await call.in_slices(
            self._by_topic(
                call,
                results,
                "ReassignableTopicResponse",
                "name",
                "partitions",
                "ReassignablePartitionResponse",
                "partition_index",
            )
        )
        return call.answer(
            allow_replication_factor_change=allow,
            error_code=ErrorCode.none if allowed else CLUSTER_DENIED.code,
            error_message=None if allowed else CLUSTER_DENIED.message,
            responses=responses,
        )

    def _reassignments(self, topics: Any) -> Slices[list[tuple[str, int, tuple[int, ...] | None]]]:
        wanted: list[tuple[str, int, tuple[int, ...] | None]] = []
        for topic in topics:
            yield
            wanted += yield from collect(
                (topic.name, partition.partition_index, partition.replicas) for partition in topic.partitions
            )
        return wanted

    def _by_topic(
        self,
        call: Call,
        results: dict[TopicPartition, Result],
        structure: str,
        name_field: str,
        partitions_field: str,
        partition_structure: str,
        index_field: str,
    ) -> Slices[tuple[Any, ...]]:
        """The controller's flat results, grouped by topic as the response has them."""
        grouped: dict[str, list[Any]] = {}
        for (topic, index), result in results.items():
            partition = call.make(
                partition_structure,
                error_code=result.error,
                error_message=result.message,
                **{index_field: index},
            )
            grouped.setdefault(topic, []).append(partition)
            yield
        topics = yield from collect(
            call.make(structure, **{name_field: topic, partitions_field: tuple(partitions)})
            for topic, partitions in grouped.items()
        )
        return topics

    def list_reassignments(self, call: Call) -> Slices[Any]:
        image = self.broker.image
        if not may(self.broker.authorizer, call, DESCRIBE, CLUSTER):
            denied = CLUSTER_DENIED
            return call.answer(error_code=denied.code, error_message=denied.message, topics=())
        wanted: set[TopicPartition] | None = None
        if call.request.topics is not None:
            wanted = set()
            for topic in call.request.topics:
                yield
                for index in topic.partition_indexes:
                    wanted.add(TopicPartition(topic.name, index))
                    yield
        grouped: dict[str, list[Any]] = {}
        for partition in list(image.reassignments()):
            yield
            known = image.topics_by_id.get(partition.topic_id)
            if known is not None and (
                wanted is None or TopicPartition(known.name, partition.index) in wanted
            ):
                grouped.setdefault(known.name, []).append(
                    call.make(
                        "OngoingPartitionReassignment",
                        partition_index=partition.index,
                        replicas=partition.replicas,
                        adding_replicas=partition.adding,
                        removing_replicas=partition.removing,
                    )
                )
        topics = yield from collect(
            call.make("OngoingTopicReassignment", name=name, partitions=tuple(partitions))
            for name, partitions in grouped.items()
        )
        return call.answer(error_code=ErrorCode.none, error_message=None, topics=topics)
