"""Consumer groups as administrators see them: which there are, who is in them, what they have committed.

Every call about one group goes to the broker that coordinates it (FindCoordinator), and again to another one
when that changes. A group of either protocol is described in the same terms: the newer protocol is tried
first, and a group that it does not know is a classic one. Nobody joins a group here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from millstream.client.cluster import Cluster, Node
from millstream.client.connection import Connection
from millstream.client.coordinators import GROUP, MOVED_COORDINATOR, Coordinators
from millstream.client.errors import check, describe, retriable
from millstream.client.range_assignor import decode_assignment, partitions_by_topic
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

# The last version of OffsetCommit and OffsetFetch that names topics; KIP-848 has their ids from 10 on.
NAMES_ONLY = 9


class GroupListing(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] = ()
    epoch: int | None = None
    # In a group of the newer protocol (KIP-848): whether the member speaks it, too.
    upgraded: bool | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    type: str
    state: str
    assignor: str
    coordinator: Node
    members: tuple[Member, ...]
    epoch: int | None = None
    target_epoch: int | None = None


class Committed(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str


class Groups:
    """The calls about the groups of one cluster. `timeout` limits each call, in seconds."""

    def __init__(self, cluster: Cluster, timeout: float | None = None) -> None:
        self.cluster = cluster
        self._timeout = timeout
        self._coordinators = Coordinators(cluster, GROUP, timeout)

    # --- which groups there are -----------------------------------------------------------------------------

    def listed(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
        """The groups of all brokers that are in one of these states and of one of these types (none: all)."""
        self.cluster.refresh([])
        found: dict[str, GroupListing] = {}
        for node_id in sorted(self.cluster.nodes):
            list_groups = partial(self._list, node_id, list(states), list(types))
            answer = self.cluster.persistently(list_groups, self._timeout)
            for group in answer.groups:
                listing = GroupListing(
                    str(group.group_id),
                    str(group.protocol_type),
                    getattr(group, "group_state", "") or "Unknown",
                    (getattr(group, "group_type", "") or "Unknown").capitalize(),
                )
                found[listing.group_id] = listing
        return [found[name] for name in sorted(found)]

    def _list(self, node_id: int, states: Sequence[str], types: Sequence[str]) -> Any:
        answer = self.cluster.connection(node_id).request(
            "list_groups", states_filter=states, types_filter=types
        )
        check(answer.error_code, subject=f"the groups of broker {node_id}")
        return answer

    # --- one group ------------------------------------------------------------------------------------------

    def describe(self, group_ids: Iterable[str]) -> dict[str, GroupDescription | KafkaError]:
        found: dict[str, GroupDescription | KafkaError] = {}
        for group_id in group_ids:
            try:
                found[group_id] = self._coordinators.call(group_id, partial(self._describe, group_id))
            except KafkaError as error:
                if retriable(error):
                    raise
                found[group_id] = error
        return found

    def _describe(self, group_id: str, connection: Connection) -> GroupDescription:
        newer = self._describe_newer(connection, group_id)
        if newer is not None:
            return newer
        answer = connection.request(
            "describe_groups", groups=[group_id], include_authorized_operations=False
        ).groups[0]
        check(answer.error_code, getattr(answer, "error_message", None), f"group {group_id}")
        members = tuple(
            Member(
                member.member_id,
                getattr(member, "group_instance_id", None),
                member.client_id,
                member.client_host,
                decode_assignment(bytes(member.member_assignment))
                if answer.protocol_type == "consumer"
                else (),
            )
            for member in answer.members
        )
        node = self._coordinators.node(group_id)
        return GroupDescription(group_id, "Classic", answer.group_state, answer.protocol_data, node, members)

    def _describe_newer(self, connection: Connection, group_id: str) -> GroupDescription | None:
        """A group of the newer protocol, or None if it is none."""
        try:
            connection.version("consumer_group_describe")
        except KafkaError:
            return None
        answer = connection.request(
            "consumer_group_describe", group_ids=[group_id], include_authorized_operations=False
        ).groups[0]
        if answer.error_code in (ErrorCode.group_id_not_found, ErrorCode.unsupported_version):
            return None
        check(answer.error_code, answer.error_message, f"group {group_id}")
        members = tuple(
            Member(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                _partitions(member.assignment),
                _partitions(member.target_assignment),
                int(member.member_epoch),
                {0: False, 1: True}.get(int(getattr(member, "member_type", -1))),
            )
            for member in answer.members
        )
        return GroupDescription(
            group_id,
            "Consumer",
            answer.group_state,
            answer.assignor_name,
            self._coordinators.node(group_id),
            members,
            int(answer.group_epoch),
            int(answer.assignment_epoch),
        )

    def delete(self, group_ids: Iterable[str]) -> dict[str, KafkaError | None]:
        found: dict[str, KafkaError | None] = {}
        for group_id in group_ids:
            try:
                self._coordinators.call(group_id, partial(_delete, group_id))
                found[group_id] = None
            except KafkaError as error:
                if retriable(error):
                    raise
                found[group_id] = error
        return found

    # --- offsets --------------------------------------------------------------------------------------------

    def committed(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, *, stable: bool = False
    ) -> dict[TopicPartition, Committed | KafkaError]:
        """What the group has committed, everywhere or for some partitions. What has no offset is left out.
        `stable`: waits for the end of transactions that hold other offsets."""
        topics = None if partitions is None else partitions_by_topic(partitions)

        def request(connection: Connection) -> dict[TopicPartition, Committed | KafkaError]:
            wanted = (
                None
                if topics is None
                else [{"name": name, "partition_indexes": numbers} for name, numbers in topics.items()]
            )
            answer = connection.request(
                "offset_fetch",
                up_to=NAMES_ONLY,
                groups=[{"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": wanted}],
                group_id=group_id,
                topics=wanted,
                require_stable=stable,
            )
            body = answer.groups[0] if hasattr(answer, "groups") else answer
            check(getattr(body, "error_code", ErrorCode.none), subject=f"the offsets of group {group_id}")
            found: dict[TopicPartition, Committed | KafkaError] = {}
            for topic in body.topics:
                for entry in topic.partitions:
                    partition = TopicPartition(str(topic.name), int(entry.partition_index))
                    if entry.error_code is ErrorCode.unstable_offset_commit:
                        raise KafkaError(entry.error_code, describe(entry.error_code))  # asked again
                    if entry.error_code is not ErrorCode.none:
                        found[partition] = KafkaError(entry.error_code, describe(entry.error_code))
                    elif entry.committed_offset >= 0:
                        epoch = int(getattr(entry, "committed_leader_epoch", -1))
                        found[partition] = Committed(int(entry.committed_offset), epoch, entry.metadata or "")
            return found

        return self._coordinators.call(group_id, request)

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        metadata: Mapping[TopicPartition, str] | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commit for a group without members, with the texts that go with some of the offsets. The broker
        refuses a group that has members."""
        topics = offsets_by_topic(offsets, metadata or {})

        def request(connection: Connection) -> dict[TopicPartition, KafkaError | None]:
            answer = connection.request(
                "offset_commit",
                up_to=NAMES_ONLY,
                group_id=group_id,
                generation_id_or_member_epoch=-1,
                member_id="",
                topics=topics,
            )
            return _per_partition(answer, f"group {group_id}")

        return self._coordinators.call(group_id, request) if topics else {}

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Forget what was committed for some partitions. Raises what concerns the group as a whole."""
        topics = [
            {"name": name, "partitions": [{"partition_index": number} for number in numbers]}
            for name, numbers in partitions_by_topic(partitions).items()
        ]

        def request(connection: Connection) -> dict[TopicPartition, KafkaError | None]:
            answer = connection.request("offset_delete", group_id=group_id, topics=topics)
            check(answer.error_code, subject=f"group {group_id}")
            return _per_partition(answer, f"group {group_id}")

        return self._coordinators.call(group_id, request)


# --- inside -------------------------------------------------------------------------------------------------


def _delete(group_id: str, connection: Connection) -> None:
    answer = connection.request("delete_groups", groups_names=[group_id])
    for result in answer.results:
        check(result.error_code, subject=f"group {group_id}")


def _per_partition(answer: Any, subject: str) -> dict[TopicPartition, KafkaError | None]:
    """Answers per partition; one that means that the coordinator has moved concerns the whole request."""
    found: dict[TopicPartition, KafkaError | None] = {}
    for topic in answer.topics:
        for entry in topic.partitions:
            code: ErrorCode = entry.error_code
            if code in MOVED_COORDINATOR:
                check(code, subject=subject)
            error = None if code is ErrorCode.none else KafkaError(code, describe(code))
            found[TopicPartition(str(topic.name), int(entry.partition_index))] = error
    return found


def offsets_by_topic(
    offsets: Mapping[TopicPartition, int], metadata: Mapping[TopicPartition, str]
) -> list[dict[str, Any]]:
    """Offsets to commit, as requests have them."""
    return [
        {
            "name": name,
            "partitions": [
                {
                    "partition_index": number,
                    "committed_offset": offsets[TopicPartition(name, number)],
                    "committed_leader_epoch": -1,
                    "committed_metadata": metadata.get(TopicPartition(name, number), ""),
                }
                for number in numbers
            ],
        }
        for name, numbers in partitions_by_topic(offsets).items()
    ]


def _partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(str(topic.topic_name), int(number))
        for topic in assignment.topic_partitions
        for number in topic.partitions
    )
