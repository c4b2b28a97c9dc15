"""Groups of the consumer protocol (KIP-848).

ConsumerGroupHeartbeat 0-1
    0  KIP-848    1  subscription by a regular expression; the client chooses the member id (KIP-1082)
ConsumerGroupDescribe 0-1
    0  KIP-848    1  whether a member speaks the classic protocol (KIP-1099)

UNSUPPORTED_VERSION unless `group.coordinator.rebalance.protocols` names `consumer`. Left out: client-side
assignors, and racks, which members may name but no assignor looks at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from millstream.broker.apis.groups import (
    OPERATIONS_NOT_REQUESTED,
    client_host,
    group_operations,
    milliseconds,
)
from millstream.broker.authorizer import DESCRIBE, GROUP, READ, TOPIC, may
from millstream.broker.coordinators.groups import responses
from millstream.broker.coordinators.groups.assignors import ASSIGNORS
from millstream.broker.coordinators.groups.consumer_group import ConsumerGroup
from millstream.broker.coordinators.groups.consumer_group_manager import new_member_id
from millstream.broker.coordinators.groups.consumer_types import (
    JOIN,
    LEAVE,
    LEAVE_STATIC,
    ConsumerMember,
    HeartbeatRequest,
    HeartbeatResponse,
    MaySee,
)
from millstream.broker.coordinators.runtime import committed_within, coordinator_error
from millstream.broker.network.dispatch import Api, Call
from millstream.broker.network.slices import ELEMENTS_PER_SLICE, Slices, collect, distinct
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.messages import NO_TOPIC_ID

if TYPE_CHECKING:
    from millstream.broker.server import Broker

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
# Seconds before a member learns of its new partitions, about what Kafka takes to write them. librdkafka
# (2.16) loses a subscription that is changed and changed back while an earlier answer is on its way into its
# rebalance callback.
ASSIGNMENT_PAUSE = 0.005
FEATURE = "group.version"  # from level 1 on this protocol is served


class ConsumerGroupsApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.groups = broker.groups
        self._served = "consumer" in broker.settings.items("group.coordinator.rebalance.protocols")

    def apis(self) -> list[Api]:
        return [
            Api(68, "ConsumerGroupHeartbeat", 0, 1, self.heartbeat),
            Api(69, "ConsumerGroupDescribe", 0, 1, self.describe),
        ]

    # ------------------------------------------------------------------ ConsumerGroupHeartbeat

    def heartbeat(self, call: Call) -> Any:
        """Answers at once unless the log has to be flushed or replicated first, partitions change hands, or a
        regular expression has to be matched with the topics."""
        if (
            self.broker.authorizer is not None
            and len(call.request.subscribed_topic_names or ()) > ELEMENTS_PER_SLICE
        ):
            return self._many_names(call)
        return self._after_rights(call, None)

    async def _many_names(self, call: Call) -> Any:
        names = await call.in_slices(distinct(call.request.subscribed_topic_names))
        answer = self._after_rights(call, await call.in_slices(self._first_refused(call, names)))
        return await answer if asyncio.iscoroutine(answer) else answer

    def _after_rights(self, call: Call, refused: KafkaError | None) -> Any:
        """`refused`: what has been found out about very many topics."""
        try:
            self._check_enabled()
            self._check_authorized(call)
            if refused is not None:
                raise refused
            request = self._request(call)
            patterns = self.groups.unresolved_patterns(call.request.group_id, request)
        except KafkaError as error:
            return self._refuse(call, error)
        return self._resolve_first(call, request, patterns) if patterns else self._heartbeat(call, request)

    async def _resolve_first(self, call: Call, request: HeartbeatRequest, patterns: list[str]) -> Any:
        await self.groups.resolve(patterns)
        answer = self._heartbeat(call, request)
        return await answer if asyncio.iscoroutine(answer) else answer

    def _heartbeat(self, call: Call, request: HeartbeatRequest) -> Any:
        try:
            answer, waiting = self.groups.consumer_heartbeat(call.request.group_id, request)
        except KafkaError as error:
            return self._refuse(call, error)
        if waiting is not None or answer.assignment is not None:
            return self._later(call, waiting, answer)
        return self._answer(call, answer)

    async def _later(
        self, call: Call, waiting: asyncio.Future[None] | None, answer: HeartbeatResponse
    ) -> Any:
        try:
            if waiting is not None:
                timeout_ms = self.broker.settings.integer("offsets.commit.timeout.ms")
                await committed_within(waiting, timeout_ms)
        except KafkaError as error:
            return self._refuse(call, error)
        if answer.assignment is not None:
            await asyncio.sleep(ASSIGNMENT_PAUSE)
        return self._answer(call, answer)

    def _answer(self, call: Call, answer: HeartbeatResponse) -> bytes:
        leaves = answer.epoch < 0
        return responses.consumer_heartbeat(
            call.correlation_id,
            member_id=answer.member_id,
            epoch=answer.epoch,
            interval=0 if leaves else self._interval(call.request.group_id),
            assignment=answer.assignment,
        )

    def _refuse(self, call: Call, error: KafkaError) -> bytes:
        return responses.consumer_heartbeat(
            call.correlation_id, error=coordinator_error(error), message=error.message or None
        )

    def _interval(self, group_id: str) -> int:
        own = self.groups.group_setting(group_id, "consumer.heartbeat.interval.ms")
        return self.broker.settings.integer("group.consumer.heartbeat.interval.ms") if own is None else own

    def _request(self, call: Call) -> HeartbeatRequest:
        """The request, if it makes sense."""
        request = call.request
        pattern = request.subscribed_topic_regex if call.version >= 1 else None
        timeout = milliseconds(request.rebalance_timeout)
        epoch = request.member_epoch
        must_be_named = call.version >= 1 or epoch > 0 or epoch == LEAVE
        _check(bool(request.member_id) or not must_be_named, "MemberId can't be empty.")
        _check(request.group_id != "", "GroupId can't be empty.")
        _check(request.instance_id != "", "InstanceId can't be empty.")
        _check(request.rack_id != "", "RackId can't be empty.")
        _check(epoch >= LEAVE_STATIC, "MemberEpoch is invalid.")
        _check(epoch != LEAVE_STATIC or request.instance_id is not None, "InstanceId can't be null.")
        if epoch == JOIN:
            _check(timeout != -1, "RebalanceTimeoutMs must be provided in first request.")
            _check(request.topic_partitions == (), "TopicPartitions must be empty when (re-)joining.")
            _check(
                request.subscribed_topic_names is not None or pattern is not None,
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
            )
        self._check_assignor(request.server_assignor)
        owned = None
        if request.topic_partitions is not None:
            owned = {each.topic_id or NO_TOPIC_ID: each.partitions for each in request.topic_partitions}
        return HeartbeatRequest(
            request.member_id or new_member_id(),
            epoch,
            request.instance_id,
            request.rack_id,
            timeout,
            request.subscribed_topic_names,
            pattern,
            request.server_assignor,
            owned,
            call.connection.client_id,
            client_host(call),
            self._may_see(call),
        )

    def _may_see(self, call: Call) -> MaySee | None:
        authorizer = self.broker.authorizer
        if authorizer is None:
            return None
        principal, host, api = call.principal, call.host, call.codec.api  # the group outlives the call
        return lambda topic: authorizer.allows(principal, host, api, DESCRIBE, TOPIC, topic, quiet=True)

    def _check_enabled(self) -> None:
        if not self._served or self.broker.image.features.get(FEATURE, 0) < 1:
            raise KafkaError(ErrorCode.unsupported_version)

    def _check_authorized(self, call: Call) -> None:
        authorizer = self.broker.authorizer
        if authorizer is None:
            return
        if not may(authorizer, call, READ, GROUP, call.request.group_id):
            raise KafkaError(ErrorCode.group_authorization_failed)
        names = call.request.subscribed_topic_names or ()
        if len(names) <= ELEMENTS_PER_SLICE:
            for topic in names:
                if not may(authorizer, call, DESCRIBE, TOPIC, topic):
                    raise KafkaError(ErrorCode.topic_authorization_failed)

    def _first_refused(self, call: Call, names: Iterable[str]) -> Slices[KafkaError | None]:
        authorizer = self.broker.authorizer
        if may(authorizer, call, READ, GROUP, call.request.group_id, quiet=True):
            for topic in names:
                yield
                if not may(authorizer, call, DESCRIBE, TOPIC, topic):
                    return KafkaError(ErrorCode.topic_authorization_failed)
        return None

    def _check_assignor(self, name: str | None) -> None:
        offered = [
            each for each in self.broker.settings.items("group.consumer.assignors") if each in ASSIGNORS
        ]
        if name is not None and name not in offered:
            raise KafkaError(
                ErrorCode.unsupported_assignor,
                f"ServerAssignor {name} is not supported. Supported assignors: {', '.join(offered)}.",
            )

    # ------------------------------------------------------------------ ConsumerGroupDescribe

    def describe(self, call: Call) -> Slices[Any]:
        """A group that is named twice is answered once."""
        groups = []
        for group_id in (yield from distinct(call.request.group_ids)):
            groups.append((yield from self._described(call, group_id)))
            yield
        return call.answer(groups=tuple(groups))

    def _described(self, call: Call, group_id: str) -> Slices[Any]:
        operations = (
            group_operations(self.broker, call, group_id)
            if call.request.include_authorized_operations
            else OPERATIONS_NOT_REQUESTED
        )
        try:
            self._check_enabled()
            if not may(self.broker.authorizer, call, DESCRIBE, GROUP, group_id):
                raise KafkaError(ErrorCode.group_authorization_failed)
            group = self.groups.consumer_group(group_id)
            if not (yield from self._may_see_topics(call, group)):
                raise KafkaError(
                    ErrorCode.topic_authorization_failed,
                    "The described group uses topics that the client may not describe.",
                )
        except KafkaError as error:
            return call.make(
                "DescribedGroup",
                error_code=error.code,
                error_message=error.message or None,
                group_id=group_id,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                assignor_name="",
                members=(),
                authorized_operations=OPERATIONS_NOT_REQUESTED,
            )
        state, epoch, target_epoch, assignor = group.state, group.epoch, group.target_epoch, group.assignor
        members = yield from collect(
            self._member(call, group, member) for member in list(group.members.values())
        )
        return call.make(
            "DescribedGroup",
            error_code=ErrorCode.none,
            error_message=None,
            group_id=group_id,
            group_state=state,
            group_epoch=epoch,
            assignment_epoch=target_epoch,
            assignor_name=assignor,
            members=members,
            authorized_operations=operations,
        )

    def _may_see_topics(self, call: Call, group: ConsumerGroup) -> Slices[bool]:
        """All topics that members have or will have."""
        authorizer = self.broker.authorizer
        if authorizer is None:
            return True
        ids: set[UUID] = set()
        for member in list(group.members.values()):
            ids.update(member.assigned, member.revoking, group.target(member.member_id))
            yield
        name_of = self.groups.consumer_groups.topics.name_of
        for name in map(name_of, ids):
            if name is not None and not may(authorizer, call, DESCRIBE, TOPIC, name):
                return False
            yield
        return True

    def _member(self, call: Call, group: ConsumerGroup, member: ConsumerMember) -> Any:
        value = member.value
        return call.make(
            "Member",
            member_id=member.member_id,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            member_epoch=member.epoch,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=value.topics,
            subscribed_topic_regex=value.regex,
            assignment=self._assignment(call, member.assigned, member.revoking),
            target_assignment=self._assignment(call, group.target(member.member_id)),
            member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
        )

    def _assignment(self, call: Call, *held: Mapping[UUID, Iterable[int]]) -> Any:
        """What a member has includes what it has yet to give up."""
        by_topic: dict[UUID, set[int]] = {}
        for partitions in held:
            for topic_id, indexes in partitions.items():
                by_topic.setdefault(topic_id, set()).update(indexes)
        found = []
        for topic_id, numbers in by_topic.items():
            name = self.groups.consumer_groups.topics.name_of(topic_id)
            if name is not None:
                found.append(
                    call.make(
                        "TopicPartitions",
                        topic_id=topic_id,
                        topic_name=name,
                        partitions=tuple(sorted(numbers)),
                    )
                )
        return call.make("Assignment", topic_partitions=tuple(found))


def _check(condition: bool, otherwise: str) -> None:
    if not condition:
        raise KafkaError(ErrorCode.invalid_request, otherwise)
