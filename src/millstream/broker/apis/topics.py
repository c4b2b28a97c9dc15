"""Changes to topics and their replicas.

CreateTopics 2-7
     3  the client expects to be throttled after the response (KIP-219)
     4  -1 for the broker's default number of partitions and of replicas (KIP-464)
     5  flexible; the response has the topic's configs (KIP-525)
     6  the client knows THROTTLING_QUOTA_EXCEEDED (KIP-599)
     7  topic id (KIP-516)
DeleteTopics 1-6
     2  the client expects to be throttled after the response (KIP-219)
     3  the client knows TOPIC_DELETION_DISABLED (KIP-322)
     4  flexible
     5  error messages; the client knows THROTTLING_QUOTA_EXCEEDED (KIP-599)
     6  topics by id (KIP-516)
CreatePartitions 0-3 (KIP-195)
     1  the client expects to be throttled after the response (KIP-219)
     2  flexible
     3  the client knows THROTTLING_QUOTA_EXCEEDED (KIP-599)
ElectLeaders 0-2 (KIP-183)
     1  unclean elections, an error for the whole response (KIP-460)
     2  flexible
AlterPartitionReassignments 0-1 (KIP-455)
     1  may the replication factor change? (KIP-860)
ListPartitionReassignments 0 (KIP-455)

Every change is a command to the controller, which answers topic by topic; here it is only translated. Left
out: quotas of these requests (KIP-599).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.broker.network.dispatch import Api, Call
from millstream.broker.network.slices import Slices, collect
from millstream.cluster.commands import (
    AlterReassignments,
    Command,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    MorePartitions,
    NewTopic,
    Result,
    TopicCreated,
    TopicDeleted,
    TopicRef,
)
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.broker.server import Broker

PREFERRED, UNCLEAN = 0, 1
Results = TypeVar("Results")


class TopicsApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def apis(self) -> list[Api]:
        return [
            Api(19, "CreateTopics", 2, 7, self.create_topics),
            Api(20, "DeleteTopics", 1, 6, self.delete_topics),
            Api(37, "CreatePartitions", 0, 3, self.create_partitions),
            Api(43, "ElectLeaders", 0, 2, self.elect_leaders),
            Api(45, "AlterPartitionReassignments", 0, 1, self.alter_reassignments),
            Api(46, "ListPartitionReassignments", 0, 0, self.list_reassignments),
        ]

    async def _submit(self, command: Command[Results], refused: Callable[[KafkaError], Results]) -> Results:
        """Ask the controller; where it refuses the command as a whole, `refused` makes the results of it."""
        try:
            return await self.broker.controller.submit(command)
        except KafkaError as error:
            return refused(error)

    # ------------------------------------------------------------------ create

    async def create_topics(self, call: Call) -> Any:
        request = call.request
        times = Counter(topic.name for topic in request.topics)
        wanted = [topic for topic in request.topics if times[topic.name] == 1]
        created = await self._submit(
            CreateTopics(
                [
                    NewTopic(
                        topic.name,
                        topic.num_partitions,
                        topic.replication_factor,
                        [(assigned.partition_index, assigned.broker_ids) for assigned in topic.assignments],
                        {config.name: config.value for config in topic.configs},
                    )
                    for topic in wanted
                ],
                request.validate_only,
            ),
            lambda error: [TopicCreated(topic.name, error.code, error.message) for topic in wanted],
        )
        twice = [
            TopicCreated(name, ErrorCode.invalid_request, "Duplicate topic name.")
            for name, count in times.items()
            if count > 1
        ]
        topics = await call.in_slices(collect(self._created(call, result) for result in [*created, *twice]))
        return call.answer(topics=topics)

    def _created(self, call: Call, result: TopicCreated) -> Any:
        failed = result.error is not ErrorCode.none
        configs = None
        if not failed and call.version >= 5:
            configs = tuple(
                call.make(
                    "CreatableTopicConfigs",
                    name=entry.name,
                    value=entry.value,
                    read_only=entry.read_only,
                    config_source=entry.source,
                    is_sensitive=entry.sensitive,
                )
                for entry in self.broker.settings.describe_topic(result.configs)
            )
        return call.make(
            "CreatableTopicResult",
            name=result.name,
            topic_id=result.topic_id,
            error_code=result.error,
            error_message=result.message,
            topic_config_error_code=0,
            num_partitions=result.num_partitions,
            replication_factor=result.replication_factor,
            configs=() if failed else configs,
        )

    async def create_partitions(self, call: Call) -> Any:
        request = call.request
        times = Counter(topic.name for topic in request.topics)
        results = await self._submit(
            CreatePartitions(
                [
                    MorePartitions(
                        topic.name,
                        topic.count,
                        None
                        if topic.assignments is None
                        else [assigned.broker_ids for assigned in topic.assignments],
                    )
                    for topic in request.topics
                    if times[topic.name] == 1
                ],
                request.validate_only,
            ),
            lambda error: {name: Result(error.code, error.message) for name in times},
        )
        for name, count in times.items():
            if count > 1:
                results[name] = Result(ErrorCode.invalid_request, "Duplicate topic name.")
        topics = await call.in_slices(
            collect(
                call.make(
                    "CreatePartitionsTopicResult",
                    name=name,
                    error_code=result.error,
                    error_message=result.message,
                )
                for name, result in results.items()
            )
        )
        return call.answer(results=topics)

    # ------------------------------------------------------------------ delete

    async def delete_topics(self, call: Call) -> Any:
        request = call.request
        if call.version >= 6:
            asked = [topic.name if topic.name is not None else topic.topic_id for topic in request.topics]
        else:
            asked = list(request.topic_names)
        if not self.broker.settings.boolean("delete.topic.enable"):
            kept = await call.in_slices(collect(self._not_deleted(call, topic) for topic in asked))
            return call.answer(responses=kept)
        named, refused = self._named(request.topics) if call.version >= 6 else (asked, [])
        deleted = await self._submit(
            DeleteTopics(named), lambda error: [self._undeleted(topic, error) for topic in named]
        )
        responses = await call.in_slices(
            collect(
                call.make(
                    "DeletableTopicResult",
                    name=result.name,
                    topic_id=result.topic_id,
                    error_code=result.error,
                    error_message=result.message,
                )
                for result in (*refused, *deleted)
            )
        )
        return call.answer(responses=responses)

    def _named(self, topics: Any) -> tuple[list[TopicRef], list[TopicDeleted]]:
        """The topics to delete, by name or by id, and those that have both or neither."""
        named: list[TopicRef] = []
        refused: list[TopicDeleted] = []
        for topic in topics:
            name, topic_id = topic.name, topic.topic_id
            if (name is None) is not (topic_id is None):
                named.append(name if topic_id is None else topic_id)
                continue
            reason = (
                "Neither topic name nor id were specified."
                if name is None
                else "You may not specify both topic name and topic id."
            )
            refused.append(TopicDeleted(name or "", name, topic_id, ErrorCode.invalid_request, reason))
        return named, refused

    def _undeleted(self, topic: TopicRef, error: KafkaError) -> TopicDeleted:
        name, topic_id = (topic, None) if isinstance(topic, str) else (None, topic)
        return TopicDeleted(topic, name, topic_id, error.code, error.message)

    def _not_deleted(self, call: Call, topic: Any) -> Any:
        by_name = isinstance(topic, str)
        return call.make(
            "DeletableTopicResult",
            name=topic if by_name else None,
            topic_id=None if by_name else topic,
            error_code=ErrorCode.topic_deletion_disabled if call.version >= 3 else ErrorCode.invalid_request,
            error_message="Topic deletion is disabled (delete.topic.enable=false).",
        )

    # ------------------------------------------------------------------ leaders and replicas

    async def elect_leaders(self, call: Call) -> Any:
        request = call.request
        election_type = request.election_type if call.version >= 1 else PREFERRED
        asked = None
        if request.topic_partitions is not None:
            asked = [
                TopicPartition(topic.topic, index)
                for topic in request.topic_partitions
                for index in topic.partitions
            ]
        error = ErrorCode.none
        if election_type in (PREFERRED, UNCLEAN):
            results = await self._submit(
                ElectLeaders(asked, unclean=election_type == UNCLEAN),
                lambda error: {partition: Result(error.code, error.message) for partition in asked or ()},
            )
        else:
            error = ErrorCode.invalid_request
            message = f"Unknown election type {election_type}"
            results = {partition: Result(error, message) for partition in asked or ()}
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

    async def alter_reassignments(self, call: Call) -> Any:
        request = call.request
        asked = [
            (topic.name, partition.partition_index, partition.replicas)
            for topic in request.topics
            for partition in topic.partitions
        ]
        allow = request.allow_replication_factor_change if call.version >= 1 else True
        results = await self._submit(
            AlterReassignments(asked, allow),
            lambda error: {
                TopicPartition(name, index): Result(error.code, error.message) for name, index, _ in asked
            },
        )
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
            error_code=ErrorCode.none,
            error_message=None,
            responses=responses,
        )

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

    def list_reassignments(self, call: Call) -> Any:
        image = self.broker.image
        asked = call.request.topics
        wanted = (
            None
            if asked is None
            else {TopicPartition(topic.name, index) for topic in asked for index in topic.partition_indexes}
        )
        grouped: dict[str, list[Any]] = {}
        for partition in image.reassignments():
            name = image.topics_by_id[partition.topic_id].name
            if wanted is None or TopicPartition(name, partition.index) in wanted:
                grouped.setdefault(name, []).append(
                    call.make(
                        "OngoingPartitionReassignment",
                        partition_index=partition.index,
                        replicas=partition.replicas,
                        adding_replicas=partition.adding,
                        removing_replicas=partition.removing,
                    )
                )
        topics = tuple(
            call.make("OngoingTopicReassignment", name=name, partitions=tuple(partitions))
            for name, partitions in grouped.items()
        )
        return call.answer(error_code=ErrorCode.none, error_message=None, topics=topics)
