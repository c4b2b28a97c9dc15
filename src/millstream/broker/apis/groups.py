"""Membership of classic groups, and all groups as administrators see them.

JoinGroup 0-9
    1  rebalance timeout (KIP-62)                         6  flexible (KIP-482)
    2  throttle time                                      7  protocol type in the answer (KIP-559)
    3  throttling is up to the client (KIP-219)           8  a reason (KIP-800)
    4  a member id first, MEMBER_ID_REQUIRED (KIP-394)    9  a static leader may skip the assignment (KIP-814)
    5  static members (KIP-345)
SyncGroup 0-5
    1  throttle time    2  KIP-219    3  static members    4  flexible    5  protocol type and name (KIP-559)
Heartbeat 0-4
    1  throttle time    2  KIP-219    3  static members    4  flexible
LeaveGroup 0-5
    1  throttle time    2  KIP-219    3  several members (KIP-345)    4  flexible    5  a reason (KIP-800)
DescribeGroups 0-6
    1  throttle time    2  KIP-219    3  authorized operations (KIP-430)    4  static members    5  flexible
    6  GROUP_ID_NOT_FOUND and a message (KIP-1043)
ListGroups 0-5
    1  throttle time    2  KIP-219    3  flexible    4  states (KIP-518)    5  types (KIP-848)
DeleteGroups 0-2
    0  KIP-229    1  KIP-219    2  flexible

The rules are in `coordinators.groups`; here requests and answers are translated. JoinGroup and SyncGroup wait
for the rest of the group; a client that goes away meanwhile is noticed by its session timeout. Left out:
the reason, which is read and dropped; quotas, so the throttle time is always 0; and authorization, so
everybody may do everything.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from millstream.broker.coordinators.groups import responses
from millstream.broker.coordinators.groups.classic_types import (
    ClassicGroupState,
    Joined,
    JoinRequest,
    Leaving,
    Synced,
    SyncRequest,
)
from millstream.broker.coordinators.runtime import coordinator_error, respond
from millstream.broker.network.dispatch import Api, Call
from millstream.broker.network.slices import Slices, collect
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.server import Broker

# Operations on a group as a bit field: read 3, delete 6, describe 8, describe configs 10, alter configs 11.
ALL_GROUP_OPERATIONS = sum(1 << n for n in (3, 6, 8, 10, 11))
OPERATIONS_NOT_REQUESTED = -(1 << 31)


def milliseconds(value: timedelta) -> int:
    return value // timedelta(milliseconds=1)


def client_host(call: Call) -> str:
    """The client's address as Kafka shows it: with a slash, without the port."""
    return "/" + call.connection.peer.rsplit(":", 1)[0].strip("[]")


class GroupsApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.groups = broker.groups

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
        joined = self.groups.join(
            request.group_id,
            JoinRequest(
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
            ),
        )
        return respond(joined, lambda joined: self._joined(call, joined))

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
        names_protocol = call.version >= 5
        try:
            if names_protocol and None in (request.protocol_type, request.protocol_name):
                raise KafkaError(ErrorCode.inconsistent_group_protocol)
            synced = self.groups.sync(
                request.group_id,
                SyncRequest(
                    request.member_id,
                    request.group_instance_id if call.version >= 3 else None,
                    request.generation_id,
                    request.protocol_type if names_protocol else None,
                    request.protocol_name if names_protocol else None,
                    ((each.member_id, each.assignment) for each in request.assignments),
                ),
            )
        except KafkaError as error:
            return self._synced(call, Synced(error.code))
        return respond(synced, lambda synced: self._synced(call, synced))

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
        instance_id = request.group_instance_id if call.version >= 3 else None
        error = self.groups.heartbeat(request.group_id, request.member_id, instance_id, request.generation_id)
        return responses.heartbeat(call.version, call.correlation_id, error)

    # ------------------------------------------------------------------ LeaveGroup

    def leave_group(self, call: Call) -> Any:
        request = call.request
        if call.version >= 3:
            leaving = [Leaving(each.member_id, each.group_instance_id) for each in request.members]
        else:
            leaving = [Leaving(request.member_id, None)]
        try:
            errors = self.groups.leave(request.group_id, leaving)
        except KafkaError as error:
            return call.answer(error_code=coordinator_error(error), members=())
        return respond(errors, lambda errors: self._left(call, leaving, errors))

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

    def describe_groups(self, call: Call) -> Slices[Any]:
        """A group that is named twice is answered once."""
        groups = []
        for group_id in dict.fromkeys(call.request.groups):
            groups.append((yield from self._described(call, group_id)))
            yield
        return call.answer(groups=tuple(groups))

    def _described(self, call: Call, group_id: str) -> Slices[Any]:
        wanted = call.version >= 3 and call.request.include_authorized_operations
        operations = ALL_GROUP_OPERATIONS if wanted else OPERATIONS_NOT_REQUESTED
        try:
            group = self.groups.classic_group(group_id)
        except KafkaError as error:
            if error.code is not ErrorCode.group_id_not_found:
                return self._without_members(call, group_id, "", OPERATIONS_NOT_REQUESTED, error.code)
            dead = ClassicGroupState.DEAD.value
            if call.version < 6:  # there is no such error yet
                return self._without_members(call, group_id, dead, operations)
            return self._without_members(
                call, group_id, dead, OPERATIONS_NOT_REQUESTED, error.code, error.message
            )
        if group is None:
            return self._without_members(call, group_id, ClassicGroupState.EMPTY.value, operations)
        # What the members agreed on is known once they did.
        agreed = group.state is ClassicGroupState.STABLE
        state, protocol_type, protocol = group.state.value, group.protocol_type or "", group.protocol
        members = yield from collect(
            call.make(
                "DescribedGroupMember",
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(protocol) if agreed else b"",
                member_assignment=member.assignment,
            )
            for member in list(group.members.values())
        )
        return call.make(
            "DescribedGroup",
            error_code=ErrorCode.none,
            error_message=None,
            group_id=group_id,
            group_state=state,
            protocol_type=protocol_type,
            protocol_data=(protocol or "") if agreed else "",
            members=members,
            authorized_operations=operations,
        )

    def _without_members(
        self,
        call: Call,
        group_id: str,
        state: str,
        operations: int,
        error: ErrorCode = ErrorCode.none,
        message: str | None = None,
    ) -> Any:
        return call.make(
            "DescribedGroup",
            error_code=error,
            error_message=message,
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
        try:
            listed = [
                group
                for group in self.groups.list_groups()
                if (not states or group.state.lower() in states)
                and (not types or group.group_type.value in types)
            ]
        except KafkaError as error:
            return call.answer(error_code=error.code, groups=())
        return call.answer(
            error_code=ErrorCode.none,
            groups=tuple(
                call.make(
                    "ListedGroup",
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state,
                    group_type=group.group_type.value,
                )
                for group in listed
            ),
        )

    # ------------------------------------------------------------------ DeleteGroups

    async def delete_groups(self, call: Call) -> Any:
        results = {}
        for group_id in call.request.groups_names:
            error = ErrorCode.none
            try:
                waiting = self.groups.delete_group(group_id)
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
