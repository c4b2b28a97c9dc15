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
from collections.abc import Callable, Iterable, Mapping
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
NAMED_TWICE = Result(ErrorCode.invalid_request, "Duplicate topic name.")
Key = TypeVar("Key")
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

    async def _submit(
        self, call: Call, command: Command[Results], refused: Callable[[KafkaError], Slices[Results]]
    ) -> Results:
        """The controller's results; where it refuses the command as a whole, `refused` makes them of that."""
        try:
            return await self.broker.controller.submit(command, is_large=call.is_large)
        except KafkaError as error:
            return await call.in_slices(refused(error))

    # ------------------------------------------------------------------ create

    async def create_topics(self, call: Call) -> Any:
        times = await call.in_slices(_count_names(call.request.topics))
        wanted = await call.in_slices(self._new_topics(call, times))
        created = await self._submit(
            call,
            CreateTopics(wanted, call.request.validate_only),
            lambda error: self._not_created(wanted, error),
        )
        topics = await call.in_slices(self._all_created(call, created, times))
        return call.answer(topics=topics)

    def _new_topics(self, call: Call, times: Mapping[str, int]) -> Slices[list[NewTopic]]:
        wanted = []
        for topic in call.request.topics:
            yield
            if times[topic.name] > 1:
                continue
            assignments = yield from collect(
                (assigned.partition_index, assigned.broker_ids) for assigned in topic.assignments
            )
            configs = dict((yield from collect((config.name, config.value) for config in topic.configs)))
            wanted.append(
                NewTopic(topic.name, topic.num_partitions, topic.replication_factor, assignments, configs)
            )
        return wanted

    def _not_created(self, wanted: list[NewTopic], error: KafkaError) -> Slices[list[TopicCreated]]:
        refused = yield from collect(TopicCreated(topic.name, error.code, error.message) for topic in wanted)
        return list(refused)

    def _all_created(
        self, call: Call, created: list[TopicCreated], times: Mapping[str, int]
    ) -> Slices[tuple[Any, ...]]:
        topics = yield from collect(self._created(call, result) for result in created)
        refused = []
        for name, count in times.items():
            yield
            if count > 1:
                twice = TopicCreated(name, ErrorCode.invalid_request, "Duplicate topic name.")
                refused.append(self._created(call, twice))
        return (*topics, *refused)

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
        times = await call.in_slices(_count_names(call.request.topics))
        wanted = await call.in_slices(self._more_partitions(call, times))
        results = await self._submit(
            call,
            CreatePartitions(wanted, call.request.validate_only),
            lambda error: _same_for_all((topic.name for topic in wanted), error),
        )
        topics = await call.in_slices(self._all_grown(call, results, times))
        return call.answer(results=topics)

    def _more_partitions(self, call: Call, times: Mapping[str, int]) -> Slices[list[MorePartitions]]:
        wanted = []
        for topic in call.request.topics:
            yield
            if times[topic.name] > 1:
                continue
            assignments = None
            if topic.assignments is not None:
                assignments = yield from collect(assigned.broker_ids for assigned in topic.assignments)
            wanted.append(MorePartitions(topic.name, topic.count, assignments))
        return wanted

    def _all_grown(
        self, call: Call, results: dict[str, Result], times: Mapping[str, int]
    ) -> Slices[tuple[Any, ...]]:
        topics = []
        for name, count in times.items():
            result = results[name] if count == 1 else NAMED_TWICE
            topics.append(
                call.make(
                    "CreatePartitionsTopicResult",
                    name=name,
                    error_code=result.error,
                    error_message=result.message,
                )
            )
            yield
        return tuple(topics)

    # ------------------------------------------------------------------ delete

    async def delete_topics(self, call: Call) -> Any:
        named, refused = await call.in_slices(self._named(call))
        if not self.broker.settings.boolean("delete.topic.enable"):
            named, refused = [*named, *(result.topic for result in refused)], []
            code = ErrorCode.topic_deletion_disabled if call.version >= 3 else ErrorCode.invalid_request
            disabled = KafkaError(code, "Topic deletion is disabled (delete.topic.enable=false).")
            deleted = await call.in_slices(self._undeleted(named, disabled))
        else:
            deleted = await self._submit(
                call, DeleteTopics(named), lambda error: self._undeleted(named, error)
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

    def _named(self, call: Call) -> Slices[tuple[list[TopicRef], list[TopicDeleted]]]:
        """The topics to delete, by name or by id, and those that have both or neither."""
        if call.version < 6:
            names = yield from collect(call.request.topic_names)
            return list(names), []
        named: list[TopicRef] = []
        refused: list[TopicDeleted] = []
        for topic in call.request.topics:
            yield
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

    def _undeleted(self, topics: list[TopicRef], error: KafkaError) -> Slices[list[TopicDeleted]]:
        results = []
        for topic in topics:
            name, topic_id = (topic, None) if isinstance(topic, str) else (None, topic)
            results.append(TopicDeleted(topic, name, topic_id, error.code, error.message))
            yield
        return results

    # ------------------------------------------------------------------ leaders and replicas

    async def elect_leaders(self, call: Call) -> Any:
        request = call.request
        election_type = request.election_type if call.version >= 1 else PREFERRED
        wanted = None
        if request.topic_partitions is not None:
            wanted = await call.in_slices(self._partitions(request.topic_partitions))
        error = ErrorCode.none
        if election_type in (PREFERRED, UNCLEAN):
            results = await self._submit(
                call,
                ElectLeaders(wanted, unclean=election_type == UNCLEAN),
                lambda error: _same_for_all(wanted or (), error),
            )
        else:
            error = ErrorCode.invalid_request
            unknown = KafkaError(error, f"Unknown election type {election_type}")
            results = await call.in_slices(_same_for_all(wanted or (), unknown))
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
        results = await self._submit(
            call,
            AlterReassignments(wanted, allow),
            lambda error: _same_for_all((TopicPartition(name, index) for name, index, _ in wanted), error),
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


def _count_names(topics: Any) -> Slices[Counter[str]]:
    """How often each topic is named; whoever names one twice gets it refused."""
    times: Counter[str] = Counter()
    for topic in topics:
        times[topic.name] += 1
        yield
    return times


def _same_for_all(keys: Iterable[Key], error: KafkaError) -> Slices[dict[Key, Result]]:
    result = Result(error.code, error.message)
    return dict((yield from collect((key, result) for key in keys)))
