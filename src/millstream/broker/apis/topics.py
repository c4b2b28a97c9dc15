"""Topics come, grow and go.

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

Every change is a command to the controller, which answers topic by topic; here it is only translated, and
counted for who has a quota of changes (`mutation_quota`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.broker.authorizer import (
    ALTER,
    CLUSTER,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    TOPIC,
    may,
)
from millstream.broker.mutation_quota import THROTTLED, MutationQuota, create_within, mutation_quota
from millstream.broker.network.dispatch import Api, Call
from millstream.broker.network.slices import Slices, collect
from millstream.cluster.commands import (
    Command,
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
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.server import Broker

NAMED_TWICE = Result(ErrorCode.invalid_request, "Duplicate topic name.")
NOT_ALLOWED = Result(ErrorCode.topic_authorization_failed, "Authorization failed.")
THROTTLED_TOPIC = Result(*THROTTLED)
NO_WAIT = timedelta(0)
Key = TypeVar("Key")
Results = TypeVar("Results")


class TopicsApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def apis(self) -> list[Api]:
        return [
            Api(19, "CreateTopics", 2, 7, self.create_topics, forwarded=True),
            Api(20, "DeleteTopics", 1, 6, self.delete_topics, forwarded=True),
            Api(37, "CreatePartitions", 0, 3, self.create_partitions, forwarded=True),
        ]

    # ------------------------------------------------------------------ create

    async def create_topics(self, call: Call) -> Any:
        times = await call.in_slices(_count_names(call.request.topics))
        wanted = await call.in_slices(self._new_topics(call, times))
        validate_only = call.request.validate_only
        quota = None if validate_only else mutation_quota(self.broker, call, call.version >= 6)

        def created_by(command: CreateTopics) -> Awaitable[list[TopicCreated]]:
            return submit(self.broker, call, command, lambda error: self._not_created(command.topics, error))

        if quota is None:
            created, wait = await created_by(CreateTopics(wanted, validate_only)), NO_WAIT
        else:
            created = await create_within(quota, wanted, created_by)
            wait = quota.wait()
        if len(created) < len(times):
            named = {topic.name for topic in wanted}
            created = created + [
                TopicCreated(name, *NOT_ALLOWED)
                for name, count in times.items()
                if count == 1 and name not in named
            ]
        topics = await call.in_slices(self._all_created(call, created, times))
        return call.answer(topics=topics, throttle_time=wait)

    def _new_topics(self, call: Call, times: Mapping[str, int]) -> Slices[list[NewTopic]]:
        wanted = []
        authorizer = self.broker.authorizer
        all_allowed = may(authorizer, call, CREATE, CLUSTER, quiet=True)
        for topic in call.request.topics:
            yield
            if times[topic.name] > 1 or not (all_allowed or may(authorizer, call, CREATE, TOPIC, topic.name)):
                continue
            assignments = yield from collect(
                (assigned.partition_index, assigned.broker_ids) for assigned in topic.assignments
            )
            configs = dict((yield from collect((config.name, config.value) for config in topic.configs)))
            wanted.append(
                NewTopic(topic.name, topic.num_partitions, topic.replication_factor, assignments, configs)
            )
        return wanted

    def _not_created(self, wanted: Sequence[NewTopic], error: KafkaError) -> Slices[list[TopicCreated]]:
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
        hidden = (
            not failed
            and call.version >= 5
            and not may(self.broker.authorizer, call, DESCRIBE_CONFIGS, TOPIC, result.name, quiet=True)
        )
        if not failed and not hidden and call.version >= 5:
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
            topic_config_error_code=ErrorCode.topic_authorization_failed if hidden else 0,
            num_partitions=-1 if hidden else result.num_partitions,
            replication_factor=-1 if hidden else result.replication_factor,
            configs=() if failed or hidden else configs,
        )

    async def create_partitions(self, call: Call) -> Any:
        times = await call.in_slices(_count_names(call.request.topics))
        wanted = await call.in_slices(self._more_partitions(call, times))
        validate_only = call.request.validate_only
        quota = None if validate_only else mutation_quota(self.broker, call, call.version >= 3)
        results: dict[str, Result] = {}
        if quota is not None:
            results = await self._grown(call, wanted, True)
            for topic in wanted:
                more = topic.count - self._partitions_now(topic.name)
                if results[topic.name].error is ErrorCode.none and not quota.take(more):
                    results[topic.name] = THROTTLED_TOPIC
            wanted = [topic for topic in wanted if results[topic.name].error is ErrorCode.none]
        if wanted or quota is None:
            results = {**results, **await self._grown(call, wanted, validate_only)}
        wait = NO_WAIT if quota is None else quota.wait()
        topics = await call.in_slices(self._all_grown(call, results, times))
        return call.answer(results=topics, throttle_time=wait)

    async def _grown(
        self, call: Call, wanted: list[MorePartitions], validate_only: bool
    ) -> dict[str, Result]:
        return await submit(
            self.broker,
            call,
            CreatePartitions(wanted, validate_only),
            lambda error: same_for_all((topic.name for topic in wanted), error),
        )

    def _partitions_now(self, topic: TopicRef) -> int:
        image = self.broker.image
        known = image.topic(topic) if isinstance(topic, str) else image.topics_by_id.get(topic)
        return 0 if known is None else len(image.partitions[known.topic_id])

    def _more_partitions(self, call: Call, times: Mapping[str, int]) -> Slices[list[MorePartitions]]:
        wanted = []
        for topic in call.request.topics:
            yield
            if times[topic.name] > 1 or not may(self.broker.authorizer, call, ALTER, TOPIC, topic.name):
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
            result = results.get(name, NOT_ALLOWED) if count == 1 else NAMED_TWICE
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
        wait = NO_WAIT
        if not self.broker.settings.boolean("delete.topic.enable"):
            named, refused = [*named, *(result.topic for result in refused)], []
            code = ErrorCode.topic_deletion_disabled if call.version >= 3 else ErrorCode.invalid_request
            disabled = KafkaError(code, "Topic deletion is disabled (delete.topic.enable=false).")
            deleted = await call.in_slices(self._undeleted(named, disabled))
        else:
            if self.broker.authorizer is not None:
                named, denied = await call.in_slices(self._deletable(call, named))
                refused += denied
            quota = mutation_quota(self.broker, call, call.version >= 5)
            if quota is not None:
                named, throttled = self._within(quota, named)
                refused += throttled
                wait = quota.wait()
            deleted = await submit(
                self.broker, call, DeleteTopics(named), lambda error: self._undeleted(named, error)
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
        return call.answer(responses=responses, throttle_time=wait)

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

    def _within(
        self, quota: MutationQuota, topics: list[TopicRef]
    ) -> tuple[list[TopicRef], list[TopicDeleted]]:
        """Those that the quota allows; also the unknown ones, of which the client is told that."""
        allowed: list[TopicRef] = []
        refused: list[TopicDeleted] = []
        for topic in topics:
            partitions = self._partitions_now(topic)
            if not partitions or quota.take(partitions):
                allowed.append(topic)
            else:
                name, topic_id = (topic, None) if isinstance(topic, str) else (None, topic)
                refused.append(TopicDeleted(topic, name, topic_id, *THROTTLED))
        return allowed, refused

    def _deletable(
        self, call: Call, topics: list[TopicRef]
    ) -> Slices[tuple[list[TopicRef], list[TopicDeleted]]]:
        """Those that the client may delete. Of a topic by id that it may not even see the name is not
        told."""
        authorizer, image = self.broker.authorizer, self.broker.image
        if may(authorizer, call, DELETE, CLUSTER, quiet=True):
            return topics, []
        allowed: list[TopicRef] = []
        denied: list[TopicDeleted] = []
        for topic in topics:
            yield
            if isinstance(topic, str):
                name, topic_id = topic, None
            else:
                known = image.topics_by_id.get(topic)
                if known is None:  # told to be unknown
                    allowed.append(topic)
                    continue
                name, topic_id = known.name, topic
            visible = may(authorizer, call, DESCRIBE, TOPIC, name)
            if visible and (image.topic(name) is None or may(authorizer, call, DELETE, TOPIC, name)):
                allowed.append(topic)
            else:
                shown = name if visible or topic_id is None else None
                denied.append(TopicDeleted(topic, shown, topic_id, *NOT_ALLOWED))
        return allowed, denied

    def _undeleted(self, topics: list[TopicRef], error: KafkaError) -> Slices[list[TopicDeleted]]:
        results = []
        for topic in topics:
            name, topic_id = (topic, None) if isinstance(topic, str) else (None, topic)
            results.append(TopicDeleted(topic, name, topic_id, error.code, error.message))
            yield
        return results


def _count_names(topics: Any) -> Slices[Counter[str]]:
    """How often each topic is named; whoever names one twice gets it refused."""
    times: Counter[str] = Counter()
    for topic in topics:
        times[topic.name] += 1
        yield
    return times


async def submit(
    broker: Broker, call: Call, command: Command[Results], refused: Callable[[KafkaError], Slices[Results]]
) -> Results:
    """The controller's results; where it refuses the command as a whole, `refused` makes them of that."""
    try:
        return await broker.controller.submit(command, is_large=call.is_large)
    except KafkaError as error:
        return await call.in_slices(refused(error))


def same_for_all(keys: Iterable[Key], error: KafkaError) -> Slices[dict[Key, Result]]:
    result = Result(error.code, error.message)
    return dict((yield from collect((key, result) for key in keys)))
