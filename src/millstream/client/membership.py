"""Membership in a group, by the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

`GroupMember` speaks the protocol and leaves to its caller what the group is for: the registry's instances
elect a leader in one. `ConsumerMembership` is a consumer that reads one thing after another in one thread. It
uses the range assignor, which every Kafka client knows, so it shares a group with them. Nothing happens in
the background: whoever reads calls `must_rejoin` often (several times within the session timeout), between
two fetches; there the member sends its heartbeats and notices a rebalance.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from millstream.client.cluster import Cluster
from millstream.client.connection import Connection
from millstream.client.coordinators import GROUP, Coordinators
from millstream.client.errors import check
from millstream.client.groups import NAMES_ONLY, offsets_by_topic
from millstream.client.range_assignor import RANGE, decode_assignment, encode_assignment, range_assign
from millstream.wire.consumer_protocol import CONSUMER, encode_subscription, topics_of
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

# Seconds that a join or sync may take beyond the rebalance timeout.
REBALANCE_GRACE = 5.0

# From the metadata of all members to the assignment of each; only the group's leader computes it.
Assignor = Callable[[Mapping[str, bytes]], Mapping[str, bytes]]


class GroupMember:
    """One member, whatever its group is for. `timeout` limits how long a call looks for the coordinator."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        *,
        protocol_type: str,
        protocol: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        instance_id: str | None = None,
        timeout: float | None = None,
    ) -> None:
        self.group_id = group_id
        self.member_id = ""
        # When the last request that the coordinator took as a sign of life was sent.
        self.last_contact = 0.0
        self._generation_id = -1
        self._protocol_type = protocol_type
        self._protocol = protocol
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._instance_id = instance_id
        self._coordinators = Coordinators(cluster, GROUP, timeout)
        self._heartbeat_timeout = min(cluster.config.request_timeout, session_timeout_ms / 1000)

    def join(self, metadata: bytes, assign: Assignor) -> bytes:
        """Join, or join again, and wait for the others; the assignment of this member. If the group makes it
        the leader, `assign` decides for all."""
        members = self._coordinators.call(self.group_id, partial(self._join, metadata))
        assignments = assign(members) if members is not None else {}
        return self._coordinators.call(self.group_id, partial(self._sync, assignments))

    def heartbeat(self) -> None:
        def request(connection: Connection) -> None:
            sent = time.monotonic()
            answer = connection.request("heartbeat", within=self._heartbeat_timeout, **self.identity())
            self._check(answer.error_code)
            self.last_contact = sent

        self._coordinators.call(self.group_id, request)

    def leave(self, *, within: float | None = None) -> None:
        """The others need not wait for the session to end. A static member (KIP-345) stays: it is expected
        back."""
        if not self.member_id or self._instance_id is not None:
            return
        self._coordinators.call(
            self.group_id,
            lambda connection: connection.request(
                "leave_group",
                within=within,
                group_id=self.group_id,
                member_id=self.member_id,
                members=[{"member_id": self.member_id, "group_instance_id": None, "reason": "closed"}],
            ),
        )

    def must_rejoin(self, error: KafkaError) -> bool:
        """Whether the error means that this member has to join again: as itself, or, where the group has
        forgotten it, as a new member with no id yet."""
        if error.code in (ErrorCode.unknown_member_id, ErrorCode.illegal_generation):
            self.member_id = ""
            self._generation_id = -1
            return True
        return error.code is ErrorCode.rebalance_in_progress

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        topics = offsets_by_topic(offsets, {})

        def request(connection: Connection) -> None:
            answer = connection.request("offset_commit", up_to=NAMES_ONLY, topics=topics, **self.identity())
            for topic in answer.topics:
                for entry in topic.partitions:
                    check(entry.error_code, subject=f"offset of {topic.name}-{entry.partition_index}")

        self._coordinators.call(self.group_id, request)

    def identity(self) -> dict[str, Any]:
        """The fields that say who asks; a request takes those that it has."""
        return {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "generation_id": self._generation_id,
            "generation_id_or_member_epoch": self._generation_id,
            "group_instance_id": self._instance_id,
        }

    def _join(self, metadata: bytes, connection: Connection) -> dict[str, bytes] | None:
        """The metadata of all members if this one leads the group, else None."""
        # The coordinator does not end the session of a member that is joining.
        self.last_contact = time.monotonic()
        while True:
            answer = connection.request(
                "join_group",
                within=self._rebalance_timeout_ms / 1000 + REBALANCE_GRACE,
                group_id=self.group_id,
                session_timeout=self._session_timeout_ms,
                rebalance_timeout=self._rebalance_timeout_ms,
                member_id=self.member_id,
                group_instance_id=self._instance_id,
                protocol_type=self._protocol_type,
                protocols=[{"name": self._protocol, "metadata": metadata}],
                reason=None,
            )
            # The coordinator names a new member first, and lets it in when it comes by that name (KIP-394).
            if answer.error_code is not ErrorCode.member_id_required:
                break
            self.member_id = str(answer.member_id)
        self._check(answer.error_code)
        self.member_id = str(answer.member_id)
        self._generation_id = int(answer.generation_id)
        if answer.leader != self.member_id:
            return None
        return {str(member.member_id): bytes(member.metadata) for member in answer.members}

    def _sync(self, assignments: Mapping[str, bytes], connection: Connection) -> bytes:
        sent = time.monotonic()
        answer = connection.request(
            "sync_group",
            within=self._rebalance_timeout_ms / 1000 + REBALANCE_GRACE,
            protocol_type=self._protocol_type,
            protocol_name=self._protocol,
            assignments=[
                {"member_id": member_id, "assignment": data} for member_id, data in assignments.items()
            ],
            **self.identity(),
        )
        self._check(answer.error_code)
        self.last_contact = sent
        return bytes(answer.assignment)

    def _check(self, code: ErrorCode) -> None:
        check(code, subject=f"group {self.group_id}")


class ConsumerMembership:
    """`topics` says which topics to read and how many partitions each has; a change of it is a reason to
    rejoin."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        topics: Callable[[], Mapping[str, int]],
        *,
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 300_000,
        heartbeat_interval_ms: int = 3_000,
        instance_id: str | None = None,
    ) -> None:
        self.assignment: tuple[TopicPartition, ...] = ()
        self._topics = topics
        self._heartbeat_interval = heartbeat_interval_ms / 1000
        self._member = GroupMember(
            cluster,
            group_id,
            protocol_type=CONSUMER,
            protocol=RANGE,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            instance_id=instance_id,
        )
        self._joined = False
        self._next_heartbeat = 0.0
        # As they were at the last rebalance.
        self._assigned_topics: Mapping[str, int] = {}

    def must_rejoin(self) -> bool:
        """Heartbeat if one is due. True before the first join and when the group rebalances: commit, then
        `join`."""
        if not self._joined:
            return True
        if self._topics() != self._assigned_topics:
            self._joined = False
            return True
        if time.monotonic() >= self._next_heartbeat:
            self._next_heartbeat = time.monotonic() + self._heartbeat_interval
            try:
                self._member.heartbeat()
            except KafkaError as error:
                self._rejoin_after(error)
        return not self._joined

    def join(self) -> tuple[TopicPartition, ...]:
        """Join, wait for the others, and say which partitions this member has now."""
        while not self._joined:
            try:
                self._assigned_topics = dict(self._topics())
                subscription = encode_subscription(sorted(self._assigned_topics))
                data = self._member.join(subscription, self._assign)
            except KafkaError as error:
                self._rejoin_after(error)
                continue
            self.assignment = decode_assignment(data)
            self._joined = True
            self._next_heartbeat = time.monotonic() + self._heartbeat_interval
        return self.assignment

    def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit as this member. False if the group has gone on without it: others have these partitions by
        now."""
        if not offsets:
            return True
        try:
            self._member.commit(offsets)
            return True
        except KafkaError as error:
            self._rejoin_after(error)
            return False

    def leave(self) -> None:
        self._joined = False
        self._member.leave()

    def _rejoin_after(self, error: KafkaError) -> None:
        if not self._member.must_rejoin(error):
            raise error
        self._joined = False

    def _assign(self, members: Mapping[str, bytes]) -> dict[str, bytes]:
        subscriptions = {member_id: topics_of(data) for member_id, data in members.items()}
        assigned = range_assign(subscriptions, self._assigned_topics)
        return {member_id: encode_assignment(partitions) for member_id, partitions in assigned.items()}
