"""Membership of classic groups: JoinGroup 0 to 9, SyncGroup 0 to 5, Heartbeat 0 to 4, LeaveGroup 0 to 5; and all groups
as administrators see them: DescribeGroups 0 to 6, ListGroups 0 to 5, DeleteGroups 0 to 2.

The rules are in `groups.classic`; here requests become its events, and its results the protocol's answers. JoinGroup and
SyncGroup wait for the rest of the group; a client that goes away meanwhile is noticed by its session timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from millstream.broker.coordinators.groups import responses
from millstream.broker.coordinators.groups.classic_group import ClassicGroup
from millstream.broker.coordinators.groups.classic_types import Joined, JoinRequest, Leaving, State, Synced
from millstream.broker.coordinators.groups.consumer_group import ConsumerGroup
from millstream.broker.coordinators.groups.coordinator import GroupCoordinator
from millstream.broker.coordinators.groups.group_shard import GroupShard
from millstream.broker.coordinators.groups.subscription import CONSUMER
from millstream.broker.coordinators.runtime import coordinator_error
from millstream.broker.network.dispatch import Api, Call
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.server import Broker

# Operations on a group as a bit field: read 3, delete 6, describe 8, describe configs 10, alter configs 11.
ALL_GROUP_OPERATIONS = sum(1 << n for n in (3, 6, 8, 10, 11))
NOT_ASKED = -(1 << 31)


def milliseconds(value: timedelta) -> int:
    return value // timedelta(milliseconds=1)


def client_host(call: Call) -> str:
    """The client's address as Kafka shows it: with a slash, without the port."""
    return "/" + call.connection.peer.rsplit(":", 1)[0].strip("[]")


class GroupsApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.groups: GroupCoordinator = broker.groups

    def apis(self) -> list[Api]:
        return [
            Api(11, "JoinGroup", 0, 9, self.join_group),
            Api(12, "Heartbeat", 0, 4, self.heartbeat),
            Api(13, "LeaveGroup", 0, 5, self.leave_group),
            Api(14, "SyncGroup", 0, 5, self.sync_group),
            Api(15, "DescribeGroups", 0, 6, self.describe_groups),
            Api(16, "ListGroups", 0, 5, self.list_groups),
            Api(42, "DeleteGroups", 0, 2, self.delete_groups),
        ]

    # ------------------------------------------------------------------ JoinGroup

    def join_group(self, call: Call) -> Any:
        request = call.request
        session = milliseconds(request.session_timeout)
        number = self.broker.settings.integer
        if not request.group_id:
            return self._joined(call, Joined(ErrorCode.invalid_group_id, request.member_id))
        if not number("group.min.session.timeout.ms") <= session <= number("group.max.session.timeout.ms"):
            return self._joined(call, Joined(ErrorCode.invalid_session_timeout, request.member_id))
        try:
            shard = self.groups.runtime.shard(request.group_id)
        except KafkaError as error:
            return self._joined(call, Joined(error.code, ""))
        join = JoinRequest(
            request.member_id,
            request.group_instance_id if call.version >= 5 else None,
            call.connection.client_id,
            client_host(call),
            session,
            milliseconds(request.rebalance_timeout) if call.version >= 1 else session,
            request.protocol_type,
            tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
            must_know_id=call.version >= 4,
            may_skip_assignment=call.version >= 9,
        )
        group = shard.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return self._join_consumers(call, shard, group, join)
        if not isinstance(group, ClassicGroup):
            if request.member_id and (group is not None or not shard.knows(request.group_id)):
                return self._joined(call, Joined(ErrorCode.unknown_member_id, request.member_id))
            try:
                group = self.groups.new_classic(shard, request.group_id)
            except KafkaError as error:
                return self._joined(call, Joined(coordinator_error(error), ""))
        waiter: asyncio.Future[Joined] = self.groups.loop.create_future()
        self.groups.act(shard, group, group.join(join, waiter, self.groups.now()))
        if waiter.done():
            return self._joined(call, waiter.result())
        return self._joined_later(call, waiter)

    def _join_consumers(self, call: Call, shard: GroupShard, group: ConsumerGroup, join: JoinRequest) -> Any:
        """A classic member joins a group of the other protocol."""
        try:
            joined, waiting = self.groups.consumers.join(shard, group, join)
        except KafkaError as error:
            return self._joined(call, Joined(coordinator_error(error), ""))
        if waiting is None:
            return self._joined(call, joined)
        return self._when_written(
            waiting, lambda error: self._joined(call, joined if error is None else Joined(error, ""))
        )

    async def _when_written(
        self, waiting: asyncio.Future[None], answer: Callable[[ErrorCode | None], Any]
    ) -> Any:
        try:
            await waiting
        except KafkaError as error:
            return answer(coordinator_error(error))
        return answer(None)

    async def _joined_later(self, call: Call, waiter: asyncio.Future[Joined]) -> Any:
        return self._joined(call, await waiter)

    def _joined(self, call: Call, joined: Joined) -> Any:
        protocol = joined.protocol
        if protocol is None and call.version < 7:
            protocol = ""  # not nullable yet
        return call.answer(
            error_code=joined.error,
            generation_id=joined.generation,
            protocol_type=joined.protocol_type,
            protocol_name=protocol,
            leader=joined.leader,
            skip_assignment=joined.skip_assignment,
            member_id=joined.member_id,
            members=tuple(
                call.make(
                    "JoinGroupResponseMember",
                    member_id=member_id,
                    group_instance_id=instance_id,
                    metadata=metadata,
                )
                for member_id, instance_id, metadata in joined.members
            ),
        )

    # ------------------------------------------------------------------ SyncGroup

    def sync_group(self, call: Call) -> Any:
        request = call.request
        try:
            if call.version >= 5 and None in (request.protocol_type, request.protocol_name):
                raise KafkaError(ErrorCode.inconsistent_group_protocol)
            if not request.group_id:
                raise KafkaError(ErrorCode.invalid_group_id)
            shard = self.groups.runtime.shard(request.group_id)
            group = shard.groups.get(request.group_id)
            if group is None:
                raise KafkaError(ErrorCode.unknown_member_id)
            instance_id = request.group_instance_id if call.version >= 3 else None
            who = (request.member_id, instance_id, request.generation_id)
            protocol_type = request.protocol_type if call.version >= 5 else None
            protocol = request.protocol_name if call.version >= 5 else None
            if isinstance(group, ConsumerGroup):
                synced = self.groups.consumers.sync(shard, group, *who, protocol_type, protocol)
                return self._synced(call, synced)
        except KafkaError as error:
            return self._synced(call, Synced(error.code))
        waiter: asyncio.Future[Synced] = self.groups.loop.create_future()
        actions = group.sync(
            *who,
            protocol_type,
            protocol,
            ((each.member_id, each.assignment) for each in request.assignments),
            waiter,
            self.groups.now(),
        )
        self.groups.act(shard, group, actions)
        if waiter.done():
            return self._synced(call, waiter.result())
        return self._synced_later(call, waiter)

    async def _synced_later(self, call: Call, waiter: asyncio.Future[Synced]) -> Any:
        return self._synced(call, await waiter)

    def _synced(self, call: Call, synced: Synced) -> Any:
        return call.answer(
            error_code=synced.error,
            protocol_type=synced.protocol_type,
            protocol_name=synced.protocol,
            assignment=synced.assignment,
        )

    # ------------------------------------------------------------------ Heartbeat

    def heartbeat(self, call: Call) -> bytes:
        request = call.request
        error = ErrorCode.none
        try:
            if not request.group_id:
                raise KafkaError(ErrorCode.invalid_group_id)
            shard = self.groups.runtime.shard(request.group_id)
            group = shard.groups.get(request.group_id)
            if group is None:
                raise KafkaError(ErrorCode.unknown_member_id)
            instance_id = request.group_instance_id if call.version >= 3 else None
            who = (request.member_id, instance_id, request.generation_id)
            if isinstance(group, ConsumerGroup):
                error = self.groups.consumers.classic_heartbeat(shard, group, *who)
            else:
                error = group.heartbeat(*who, self.groups.now())
        except KafkaError as problem:
            # While groups are loaded, nobody can tell whether the member lives: it does.
            if problem.code is not ErrorCode.coordinator_load_in_progress:
                error = problem.code
        return responses.heartbeat(call.version, call.correlation_id, error)

    # ------------------------------------------------------------------ LeaveGroup

    def leave_group(self, call: Call) -> Any:
        request = call.request
        if call.version >= 3:
            leaving = [Leaving(each.member_id, each.group_instance_id) for each in request.members]
        else:
            leaving = [Leaving(request.member_id, None)]
        try:
            if not request.group_id:
                raise KafkaError(ErrorCode.invalid_group_id)
            shard = self.groups.runtime.shard(request.group_id)
        except KafkaError as error:
            return call.answer(error_code=error.code, members=())
        group = shard.groups.get(request.group_id)
        if group is None:
            errors = [ErrorCode.unknown_member_id] * len(leaving)
        elif isinstance(group, ConsumerGroup):
            try:
                errors, waiting = self.groups.consumers.leave(shard, group, leaving)
            except KafkaError as error:
                return call.answer(error_code=coordinator_error(error), members=())
            if waiting is not None:
                return self._when_written(
                    waiting,
                    lambda error: self._left(call, leaving, [error] * len(leaving) if error else errors),
                )
        else:
            errors, actions = group.leave(leaving, self.groups.now())
            self.groups.act(shard, group, actions)
        return self._left(call, leaving, errors)

    def _left(self, call: Call, leaving: list[Leaving], errors: list[ErrorCode]) -> Any:
        if call.version < 3:
            return call.answer(error_code=errors[0])
        return call.answer(
            error_code=ErrorCode.none,
            members=tuple(
                call.make(
                    "MemberResponse",
                    member_id=each.member_id,
                    group_instance_id=each.instance_id,
                    error_code=error,
                )
                for each, error in zip(leaving, errors, strict=True)
            ),
        )

    # ------------------------------------------------------------------ DescribeGroups

    def describe_groups(self, call: Call) -> Any:
        return call.answer(groups=tuple(self._described(call, name) for name in call.request.groups))

    def _described(self, call: Call, group_id: str) -> Any:
        asked = call.version >= 3 and call.request.include_authorized_operations
        operations = ALL_GROUP_OPERATIONS if asked else NOT_ASKED
        try:
            shard = self.groups.runtime.shard(group_id)
        except KafkaError as error:
            return self._not_described(call, group_id, error.code, None, "", NOT_ASKED)
        group = shard.groups.get(group_id)
        other = isinstance(group, ConsumerGroup)
        if other or (group is None and not shard.knows(group_id)):
            # Only version 6 has a place for the error; before, the group is simply dead.
            code = ErrorCode.group_id_not_found if call.version >= 6 else ErrorCode.none
            text = f"Group {group_id} is not a classic group." if other else f"Group {group_id} not found."
            operations = NOT_ASKED if call.version >= 6 else operations
            return self._not_described(call, group_id, code, text, State.DEAD.value, operations)
        if not isinstance(group, ClassicGroup):
            return self._not_described(call, group_id, ErrorCode.none, None, State.EMPTY.value, operations)
        # What the members agreed on is known once they did.
        agreed = group.state is State.STABLE
        return call.make(
            "DescribedGroup",
            error_code=ErrorCode.none,
            error_message=None,
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol or "") if agreed else "",
            members=tuple(
                call.make(
                    "DescribedGroupMember",
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(group.protocol) if agreed else b"",
                    member_assignment=member.assignment,
                )
                for member in group.members.values()
            ),
            authorized_operations=operations,
        )

    def _not_described(
        self, call: Call, group_id: str, error: ErrorCode, text: str | None, state: str, operations: int
    ) -> Any:
        return call.make(
            "DescribedGroup",
            error_code=error,
            error_message=text,
            group_id=group_id,
            group_state=state,
            protocol_type="",
            protocol_data="",
            members=(),
            authorized_operations=operations,
        )

    # ------------------------------------------------------------------ ListGroups

    def list_groups(self, call: Call) -> Any:
        request = call.request
        states = {text.lower().strip() for text in request.states_filter} if call.version >= 4 else set()
        types = {text.lower() for text in request.types_filter} if call.version >= 5 else set()
        if self.groups.runtime.is_loading:
            return call.answer(error_code=ErrorCode.coordinator_load_in_progress, groups=())
        found = []
        for shard in self.groups.runtime.ready_shards():
            for group_id in shard.group_ids():
                state, kind, protocol_type = self._listed(shard, group_id)
                if (not states or state.lower() in states) and (not types or kind.lower() in types):
                    found.append(
                        call.make(
                            "ListedGroup",
                            group_id=group_id,
                            protocol_type=protocol_type,
                            group_state=state,
                            group_type=kind,
                        )
                    )
        return call.answer(error_code=ErrorCode.none, groups=tuple(found))

    def _listed(self, shard: GroupShard, group_id: str) -> tuple[str, str, str]:
        """State, type and protocol type."""
        sleeping = shard.groups.sleeping(group_id)
        if sleeping is not None:
            return State.EMPTY.value, "classic", sleeping.protocol_type
        group = shard.groups.get(group_id)
        if group is None:
            return State.EMPTY.value, "classic", ""
        if isinstance(group, ConsumerGroup):
            return group.state, "consumer", CONSUMER
        return group.state.value, "classic", group.protocol_type or ""

    # ------------------------------------------------------------------ DeleteGroups

    def delete_groups(self, call: Call) -> Any:
        return self._delete_groups(call)

    async def _delete_groups(self, call: Call) -> Any:
        results = {}
        for group_id in call.request.groups_names:
            error = ErrorCode.none
            try:
                waiting = self.groups.delete_group(self.groups.runtime.shard(group_id), group_id)
                if waiting is not None:
                    await waiting
            except KafkaError as problem:
                error = coordinator_error(problem)
            results[group_id] = error
        return call.answer(
            results=tuple(
                call.make("DeletableGroupResult", group_id=group_id, error_code=error)
                for group_id, error in results.items()
            )
        )
