"""A member of a consumer group, for tools that read one thing after another in one thread.

It speaks the classic protocol with the range assignor, which every Kafka client knows, so it shares a group with them.
Nothing happens in the background: whoever reads calls `poll` often (several times within the session timeout), between
two fetches; there the member joins, sends its heartbeats and notices that the group is being divided anew.
"""

import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from millstream.client.cluster import Cluster
from millstream.client.connection import Connection
from millstream.client.errors import check
from millstream.client.groups import GROUP, NAMES_ONLY, Coordinators, parse_assignment, places_by_topic
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.primitives import INT16, INT32, read_bytes
from millstream.wire.topic_partition import TopicPartition

PROTOCOL = "range"
GRACE = 5.0  # what a join may take beyond the rebalance timeout

# The member has to begin again: as what it is, or as a new one.
_REJOIN = frozenset({ErrorCode.rebalance_in_progress})
_FORGOTTEN = frozenset({ErrorCode.unknown_member_id, ErrorCode.illegal_generation})


class Membership:
    """`topics` tells the topics to read and how many partitions each has, whenever the group is divided."""

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
        self.group_id = group_id
        self.assignment: tuple[TopicPartition, ...] = ()
        self._topics = topics
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._heartbeat = heartbeat_interval_ms / 1000
        self._instance_id = instance_id
        self._coordinators = Coordinators(cluster, GROUP)
        self._member_id = ""
        self._generation = -1
        self._joined = False
        self._next_beat = 0.0
        self._divided: Mapping[str, int] = {}  # the topics as they were when the group was divided last

    # --- what a reader calls -----------------------------------------------------------------------------------------

    def must_rejoin(self) -> bool:
        """Heartbeat if one is due. True if the group is to be divided (again): commit, then `join`."""
        if not self._joined:
            return True
        if self._topics() != self._divided:
            self._joined = False
            return True
        if time.monotonic() >= self._next_beat:
            self._next_beat = time.monotonic() + self._heartbeat
            try:
                self._coordinators.ask(self.group_id, self._beat)
            except KafkaError as error:
                self._notice(error)
        return not self._joined

    def join(self) -> tuple[TopicPartition, ...]:
        """Join, wait for the others, and say which partitions are ours now."""
        while not self._joined:
            try:
                self._divided = dict(self._topics())
                members = self._coordinators.ask(self.group_id, self._join)
                shares = self._divide(members)
                data = self._coordinators.ask(self.group_id, partial(self._sync, shares))
            except KafkaError as error:
                self._notice(error)
                continue
            self.assignment = parse_assignment(data)
            self._joined = True
            self._next_beat = time.monotonic() + self._heartbeat
        return self.assignment

    def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit as this member. False if the group has gone on without it: then others have these partitions."""
        if not offsets:
            return True
        topics = [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": number,
                        "committed_offset": offsets[TopicPartition(name, number)],
                        "committed_leader_epoch": -1,
                        "committed_metadata": "",
                    }
                    for number in numbers
                ],
            }
            for name, numbers in places_by_topic(offsets).items()
        ]

        def ask(connection: Connection) -> None:
            answer = connection.request("offset_commit", up_to=NAMES_ONLY, topics=topics, **self._identity())
            for t in answer.topics:
                for p in t.partitions:
                    check(p.error_code, subject=f"offset of {t.name}-{p.partition_index}")

        try:
            self._coordinators.ask(self.group_id, ask)
            return True
        except KafkaError as error:
            self._notice(error)
            return False

    def leave(self) -> None:
        """Others need not wait for the session to end. A member with an instance id stays, it is expected back."""
        if not self._member_id or self._instance_id is not None:
            return
        self._joined = False
        self._coordinators.ask(
            self.group_id,
            lambda connection: connection.request(
                "leave_group",
                group_id=self.group_id,
                member_id=self._member_id,
                members=[{"member_id": self._member_id, "group_instance_id": None, "reason": "closed"}],
            ),
        )

    # --- inside ------------------------------------------------------------------------------------------------------

    def _notice(self, error: KafkaError) -> None:
        """Errors that mean another try at joining; all others are the caller's."""
        if error.code in _FORGOTTEN:
            self._member_id = ""
            self._generation = -1
        elif error.code not in _REJOIN:
            raise error
        self._joined = False

    def _identity(self) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "member_id": self._member_id,
            "generation_id": self._generation,
            "generation_id_or_member_epoch": self._generation,
            "group_instance_id": self._instance_id,
        }

    def _beat(self, connection: Connection) -> None:
        answer = connection.request("heartbeat", **self._identity())
        check(answer.error_code, subject=f"group {self.group_id}")

    def _join(self, connection: Connection) -> Sequence[tuple[str, bytes]]:
        """The members with their subscriptions if we lead the group, else nothing."""
        while True:
            answer = connection.request(
                "join_group",
                within=self._rebalance_timeout_ms / 1000 + GRACE,
                group_id=self.group_id,
                session_timeout=self._session_timeout_ms,
                rebalance_timeout=self._rebalance_timeout_ms,
                member_id=self._member_id,
                group_instance_id=self._instance_id,
                protocol_type="consumer",
                protocols=[{"name": PROTOCOL, "metadata": encode_subscription(sorted(self._divided))}],
                reason=None,
            )
            if answer.error_code is not ErrorCode.member_id_required:
                break
            self._member_id = str(answer.member_id)
        check(answer.error_code, subject=f"group {self.group_id}")
        self._member_id = str(answer.member_id)
        self._generation = int(answer.generation_id)
        if answer.leader != self._member_id:
            return []
        return [(str(m.member_id), bytes(m.metadata)) for m in answer.members]

    def _divide(self, members: Sequence[tuple[str, bytes]]) -> dict[str, bytes]:
        wishes = {member_id: decode_subscription(data) for member_id, data in members}
        shares = range_shares(wishes, self._divided)
        return {member_id: encode_assignment(places) for member_id, places in shares.items()}

    def _sync(self, shares: Mapping[str, bytes], connection: Connection) -> bytes:
        answer = connection.request(
            "sync_group",
            within=self._rebalance_timeout_ms / 1000 + GRACE,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=[{"member_id": m, "assignment": data} for m, data in shares.items()],
            **self._identity(),
        )
        check(answer.error_code, subject=f"group {self.group_id}")
        return bytes(answer.assignment)


def range_shares(
    wishes: Mapping[str, Iterable[str]], partitions: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Each topic's partitions in one piece per member, the first members one more where it does not come out even."""
    shares: dict[str, list[TopicPartition]] = {member: [] for member in wishes}
    for topic in sorted(partitions):
        takers = sorted(member for member, topics in wishes.items() if topic in topics)
        if not takers:
            continue
        each, more = divmod(partitions[topic], len(takers))
        at = 0
        for index, member in enumerate(takers):
            count = each + (index < more)
            shares[member] += [TopicPartition(topic, number) for number in range(at, at + count)]
            at += count
    return shares


def encode_subscription(topics: Sequence[str]) -> bytes:
    """Version 0: the topics, no user data."""
    names = b"".join(INT16.pack(len(data)) + data for data in (topic.encode() for topic in topics))
    return INT16.pack(0) + INT32.pack(len(topics)) + names + INT32.pack(-1)


def decode_subscription(data: bytes) -> list[str]:
    """The topics; every version begins with them."""
    topics = []
    at = 6
    for _ in range(INT32.unpack_from(data, 2)[0]):
        name, at = read_bytes(data, at + 2, INT16.unpack_from(data, at)[0])
        topics.append(name.decode())
    return topics


def encode_assignment(places: Iterable[TopicPartition]) -> bytes:
    parts = []
    topics = places_by_topic(places)
    for name, numbers in topics.items():
        data = name.encode()
        parts.append(INT16.pack(len(data)) + data + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return INT16.pack(0) + INT32.pack(len(topics)) + b"".join(parts) + INT32.pack(-1)
