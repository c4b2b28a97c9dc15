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
the reason, which is read and dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

from millstream.broker.authorizer import CLUSTER, DELETE, DESCRIBE, GROUP, READ, may
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
from millstream.broker.network.slices import ELEMENTS_PER_SLICE, Slices, collect, distinct
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.server import Broker

# Operations on a group as a bit field: read 3, delete 6, describe 8, describe configs 10, alter configs 11.
ALL_GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
OPERATIONS_NOT_REQUESTED = -(1 << 31)
MAX_PROTOCOLS = 1000  # of a member of a classic group; these are the names of its assignors


def milliseconds(value: timedelta) -> int:
    return value // timedelta(milliseconds=1)


def client_host(call: Call) -> str:
    """The client's address as Kafka shows it: with a slash, without the port."""
    return "/" + call.connection.peer.rsplit(":", 1)[0].strip("[]")


def group_operations(broker: Broker, call: Call, group_id: str) -> int:
    if broker.authorizer is None:
        return ALL_GROUP_OPERATIONS
    return broker.authorizer.operations(call, GROUP, group_id)


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
        if not may(self.broker.authorizer, call, READ, GROUP, request.group_id):
            return self._joined(call, Joined(ErrorCode.group_authorization_failed, ""))
        if len(request.protocols) > MAX_PROTOCOLS:
            return self._joined(call, Joined(ErrorCode.inconsistent_group_protocol, request.member_id))
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
        if not isinstance(joined, Joined):
            return self._joined_later(call, joined)
        if len(joined.members) > ELEMENTS_PER_SLICE:
            return self._joined_in_slices(call, joined)
        return self._joined(call, joined)

    async def _joined_later(self, call: Call, waiting: asyncio.Future[Joined]) -> Any:
        joined = await waiting
        if len(joined.members) > ELEMENTS_PER_SLICE:
            return await call.in_slices(self._joined_in_slices(call, joined))
        return self._joined(call, joined)

    def _joined_in_slices(self, call: Call, joined: Joined) -> Slices[Any]:
        return self._joined(call, joined, (yield from collect(self._members(call, joined))))

    def _members(self, call: Call, joined: Joined) -> Iterator[Any]:
        """The leader is given the metadata of all members, the others none."""
        for member_id, instance_id, metadata in joined.members:
            yield call.make(
                "JoinGroupResponseMember",
                member_id=member_id,
                group_instance_id=instance_id,
                metadata=metadata,
            )

    def _joined(self, call: Call, joined: Joined, members: tuple[Any, ...] | None = None) -> Any:
        protocol = joined.protocol
        if protocol is None and call.version < 7:
            protocol = ""  # not nullable yet
        if members is None:
            members = tuple(self._members(call, joined)) if joined.members else ()
        return call.answer(
            error_code=joined.error,
            generation_id=joined.generation,
            protocol_type=joined.protocol_type,
            protocol_name=protocol,
            leader=joined.leader,
            skip_assignment=joined.skip_assignment,
            member_id=joined.member_id,
            members=members,
        )

    # ------------------------------------------------------------------ SyncGroup

    def sync_group(self, call: Call) -> Any:
        assignments = call.request.assignments
        if not may(self.broker.authorizer, call, READ, GROUP, call.request.group_id):
            return self._synced(call, Synced(ErrorCode.group_authorization_failed))
        if len(assignments) > ELEMENTS_PER_SLICE:
            return self._sync_in_slices(call)
        return self._sync(call, {each.member_id: each.assignment for each in assignments})

    def _sync_in_slices(self, call: Call) -> Slices[Any]:
        assignments: dict[str, bytes] = {}
        for each in call.request.assignments:
            assignments[each.member_id] = each.assignment
            yield
        return self._sync(call, assignments)

    def _sync(self, call: Call, assignments: dict[str, bytes]) -> Any:
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
                    assignments,
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
        if not may(self.broker.authorizer, call, READ, GROUP, request.group_id):
            error = ErrorCode.group_authorization_failed
            return responses.heartbeat(call.version, call.correlation_id, error)
        error = self.groups.heartbeat(request.group_id, request.member_id, instance_id, request.generation_id)
        return responses.heartbeat(call.version, call.correlation_id, error)

    # ------------------------------------------------------------------ LeaveGroup

    def leave_group(self, call: Call) -> Slices[Any]:
        """Many members leave in several steps, as if each step were a request of its own."""
        request = call.request
        if not may(self.broker.authorizer, call, READ, GROUP, request.group_id):
            return call.answer(error_code=ErrorCode.group_authorization_failed, members=())
        if call.version < 3:
            leaving = [Leaving(request.member_id, None)]
        else:
            leaving = []
            for each in request.members:
                leaving.append(Leaving(each.member_id, each.group_instance_id))
                yield
        steps: list[list[ErrorCode] | asyncio.Future[list[ErrorCode]]] = []
        try:
            for start in range(0, max(len(leaving), 1), ELEMENTS_PER_SLICE):
                step = leaving[start : start + ELEMENTS_PER_SLICE]
                steps.append(self.groups.leave(request.group_id, step))
                yield from collect(step)
        except KafkaError as error:
            return call.answer(error_code=coordinator_error(error), members=())
        if any(isinstance(step, asyncio.Future) for step in steps):
            return self._left_later(call, leaving, steps)
        return (yield from self._left(call, leaving, chain.from_iterable(steps)))  # type: ignore[arg-type]

    async def _left_later(
        self,
        call: Call,
        leaving: list[Leaving],
        steps: list[list[ErrorCode] | asyncio.Future[list[ErrorCode]]],
    ) -> Any:
        errors: list[ErrorCode] = []
        for step in steps:
            errors += step if isinstance(step, list) else await step
        return await call.in_slices(self._left(call, leaving, errors))

    def _left(self, call: Call, leaving: list[Leaving], errors: Iterable[ErrorCode]) -> Slices[Any]:
        if call.version < 3:
            return call.answer(error_code=next(iter(errors)))
        members = yield from collect(
            call.make(
                "MemberResponse",
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                error_code=error,
            )
            for each, error in zip(leaving, errors, strict=True)
        )
        return call.answer(error_code=ErrorCode.none, members=members)

    # ------------------------------------------------------------------ DescribeGroups

    def describe_groups(self, call: Call) -> Slices[Any]:
        """A group that is named twice is answered once."""
        groups = []
        for group_id in (yield from distinct(call.request.groups)):
            groups.append((yield from self._described(call, group_id)))
            yield
        return call.answer(groups=tuple(groups))

    def _described(self, call: Call, group_id: str) -> Slices[Any]:
        wanted = call.version >= 3 and call.request.include_authorized_operations
        operations = group_operations(self.broker, call, group_id) if wanted else OPERATIONS_NOT_REQUESTED
        if not may(self.broker.authorizer, call, DESCRIBE, GROUP, group_id):
            return self._without_members(
                call, group_id, "", OPERATIONS_NOT_REQUESTED, ErrorCode.group_authorization_failed
            )
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

    def list_groups(self, call: Call) -> Slices[Any]:
        request = call.request
        states: set[str] = set()
        types: set[str] = set()
        for text in request.states_filter if call.version >= 4 else ():
            states.add(text.lower().strip())
            yield
        for text in request.types_filter if call.version >= 5 else ():
            types.add(text.lower())
            yield
        listed = []
        authorizer = self.broker.authorizer
        all_allowed = may(authorizer, call, DESCRIBE, CLUSTER, quiet=True)
        try:
            for group in self.groups.list_groups():
                allowed = all_allowed or may(authorizer, call, DESCRIBE, GROUP, group.group_id, quiet=True)
                if (
                    allowed
                    and (not states or group.state.lower() in states)
                    and (not types or group.group_type.value in types)
                ):
                    listed.append(
                        call.make(
                            "ListedGroup",
                            group_id=group.group_id,
                            protocol_type=group.protocol_type,
                            group_state=group.state,
                            group_type=group.group_type.value,
                        )
                    )
                yield
        except KafkaError as error:
            return call.answer(error_code=error.code, groups=())
        return call.answer(error_code=ErrorCode.none, groups=tuple(listed))

    # ------------------------------------------------------------------ DeleteGroups

    def delete_groups(self, call: Call) -> Slices[Any]:
        """A group that is named twice is deleted and answered once."""
        results: dict[str, ErrorCode] = {}
        waiting: dict[str, asyncio.Future[None]] = {}
        for group_id in call.request.groups_names:
            yield
            if group_id in results:
                continue
            results[group_id] = ErrorCode.none
            if not may(self.broker.authorizer, call, DELETE, GROUP, group_id):
                results[group_id] = ErrorCode.group_authorization_failed
                continue
            try:
                future = self.groups.delete_group(group_id)
            except KafkaError as problem:
                results[group_id] = coordinator_error(problem)
                continue
            if future is not None:
                waiting[group_id] = future
        if waiting:
            return self._deleted_later(call, results, waiting)
        return (yield from self._deleted(call, results))

    async def _deleted_later(
        self, call: Call, results: dict[str, ErrorCode], waiting: dict[str, asyncio.Future[None]]
    ) -> Any:
        for group_id, future in waiting.items():
            try:
                await future
            except KafkaError as problem:
                results[group_id] = coordinator_error(problem)
        return await call.in_slices(self._deleted(call, results))

    def _deleted(self, call: Call, results: dict[str, ErrorCode]) -> Slices[Any]:
        deleted = yield from collect(
            call.make("DeletableGroupResult", group_id=group_id, error_code=error)
            for group_id, error in results.items()
        )
        return call.answer(results=deleted)
