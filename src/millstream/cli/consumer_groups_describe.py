"""`millstream consumer-groups --describe`: offsets with lag, members, or the state of groups."""

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream.cli.errors import CommandFailed
from millstream.cli.output import Report, emit
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.client.groups import GroupDescription, Groups, Member

UNKNOWN = "-"
REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
FAILED = "Error: Executing consumer group command failed due to "


class Row(NamedTuple):
    """A partition that a group reads or has read; None is what nobody knows."""

    topic: str
    partition: int
    leader_epoch: int | None
    current: int | None
    end: int | None
    member: "Member | None"

    @property
    def lag(self) -> int | None:
        return None if self.current is None or self.end is None else self.end - self.current


def run(groups: "Groups", names: Sequence[str], what: str, verbose: bool, style: str) -> int:
    from millstream.wire.errors import KafkaError

    described: list[GroupDescription] = []
    for name, found in sorted(groups.describe(names).items()):
        if isinstance(found, KafkaError):
            raise CommandFailed(f"{FAILED}{found.message or name}")
        described.append(found)
    shown = {"offsets": _offsets, "members": _members, "state": _state}[what]
    data: list[Any] = []
    columns: Sequence[str] = []
    rows: list[Sequence[Any]] = []
    code = 0
    for group in described:
        report = shown(groups, group, verbose)
        data.append(report.data)
        columns = report.columns
        rows += report.rows
        there = _say_state(group)
        code = code if there else 1
        if style == "lines" and there:
            emit(report, style)
            sys.stdout.flush()
    if style != "lines":
        emit(Report((), data, columns, rows), style)
    return code


def _say_state(group: "GroupDescription") -> bool:
    """What one should know about the state, on the error stream; False if there is no such group."""
    if group.state == "Dead":
        print(f"\nError: Consumer group '{group.group_id}' does not exist.", file=sys.stderr)
        return False
    if group.state == "Empty":
        print(f"\nConsumer group '{group.group_id}' has no active members.", file=sys.stderr)
    elif group.state in REBALANCING:
        print(f"\nWarning: Consumer group '{group.group_id}' is rebalancing.", file=sys.stderr)
    sys.stderr.flush()
    return True


def _facts(group: "GroupDescription") -> dict[str, Any]:
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "coordinator": {
            "id": group.coordinator.id,
            "host": group.coordinator.host,
            "port": group.coordinator.port,
        },
        "assignment_strategy": group.assignor or None,
        "group_epoch": group.epoch,
        "target_assignment_epoch": group.target_epoch,
    }


def _aligned(rows: Iterable[Sequence[Any]], min_widths: Sequence[int], open_end: bool) -> list[str]:
    """Rows in columns that are as wide as their widest cell, or `min_widths`. With an open end, the last one
    is not filled up."""
    texts = [[UNKNOWN if cell is None or cell == "" else str(cell) for cell in row] for row in rows]
    widths = [
        max([low, *map(len, column)])
        for low, column in zip(min_widths, zip(*texts, strict=True), strict=True)
    ]
    if open_end:
        widths[-1] = 0
    return [" ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in texts]


# --- offsets ------------------------------------------------------------------------------------------------


def _offsets(groups: "Groups", group: "GroupDescription", verbose: bool) -> Report:
    found = collect_rows(groups, group)
    head = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    head += ["CONSUMER-ID", "HOST", "CLIENT-ID"]
    min_widths = [15, 15, 10, 15, 15, 15, 15, 15, 0]
    table: list[list[Any]] = []
    data: list[dict[str, Any]] = []
    for row in found:
        member = row.member
        who = [member.member_id, member.host, member.client_id] if member is not None else [None, None, None]
        table.append([group.group_id, row.topic, row.partition, row.current, row.end, row.lag, *who])
        data.append(
            {
                "topic": row.topic,
                "partition": row.partition,
                "leader_epoch": row.leader_epoch,
                "current_offset": row.current,
                "log_end_offset": row.end,
                "lag": row.lag,
                "consumer_id": who[0],
                "host": who[1],
                "client_id": who[2],
            }
        )
    columns = ["Group", "Topic", "Partition", "Current", "End", "Lag", "Consumer", "Host", "Client"]
    rows = [list(line) for line in table]
    if verbose:
        head.insert(3, "LEADER-EPOCH")
        min_widths.insert(3, 15)
        for line, row in zip(table, found, strict=True):
            line.insert(3, row.leader_epoch)
    lines = ["", *_aligned([head, *table], min_widths, open_end=True)] if found else []
    return Report(lines, {**_facts(group), "partitions": data}, columns, rows)


def collect_rows(groups: "Groups", group: "GroupDescription") -> list[Row]:
    """Partitions with a reader, those of the busiest reader first, then partitions that only have an
    offset."""
    from millstream.client.groups import Committed

    committed = groups.committed(group.group_id)
    busiest = sorted(group.members, key=lambda member: -len(member.assignment))
    owned = [(topic_partition, member) for member in busiest for topic_partition in sorted(member.assignment)]
    taken = {topic_partition for topic_partition, _ in owned}
    owners: list[tuple[TopicPartition, Member | None]] = [
        *owned,
        *((topic_partition, None) for topic_partition in sorted(committed.keys() - taken)),
    ]
    ends = log_ends(groups, [topic_partition for topic_partition, _ in owners])
    rows = []
    for topic_partition, member in owners:
        known = committed.get(topic_partition)
        offset = known if isinstance(known, Committed) else None
        epoch = offset.leader_epoch if offset is not None and offset.leader_epoch >= 0 else None
        current = offset.offset if offset is not None else None
        rows.append(Row(*topic_partition, epoch, current, ends.get(topic_partition), member))
    return rows


def log_ends(groups: "Groups", topic_partitions: "Sequence[TopicPartition]") -> "dict[TopicPartition, int]":
    """Where the partitions end, as far as they exist and have a leader."""
    from millstream.client.offsets import LATEST, list_offsets

    cluster = groups.cluster
    if topic_partitions:
        cluster.refresh({topic for topic, _ in topic_partitions})
    led = {}
    for topic, number in topic_partitions:
        known = cluster.topics.get(topic)
        partition = None if known is None else known.partitions.get(number)
        if partition is not None and partition.leader in cluster.nodes:
            led[TopicPartition(topic, number)] = LATEST
    return (
        {topic_partition: answer.offset for topic_partition, answer in list_offsets(cluster, led).items()}
        if led
        else {}
    )


# --- members ------------------------------------------------------------------------------------------------


def _members(_: "Groups", group: "GroupDescription", verbose: bool) -> Report:
    static = any(member.instance_id for member in group.members)
    mixed = {member.upgraded for member in group.members} >= {True, False}
    head: list[str] = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    min_widths = [15, 15, 15, 15, 15]
    if static:
        head.insert(2, "GROUP-INSTANCE-ID")
        min_widths.insert(2, 17)
    if verbose:
        head += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
        min_widths += [15, 20, 15, 20]
    if verbose and mixed:
        head.append("UPGRADED")
        min_widths.append(0)
    table = []
    data = []
    rows = []
    for member in group.members:
        line: list[Any] = [
            group.group_id,
            member.member_id,
            member.host,
            member.client_id,
            len(member.assignment),
        ]
        if static:
            line.insert(2, member.instance_id or " ")
        if verbose:
            line += [
                member.epoch,
                assignment_text(member.assignment),
                group.target_epoch,
                assignment_text(member.target),
            ]
        if verbose and mixed:
            line.append(None if member.upgraded is None else str(member.upgraded).lower())
        table.append(line)
        rows.append(
            [
                group.group_id,
                member.member_id,
                member.host,
                member.client_id,
                assignment_text(member.assignment),
            ]
        )
        data.append(
            {
                "consumer_id": member.member_id,
                "group_instance_id": member.instance_id,
                "host": member.host,
                "client_id": member.client_id,
                "epoch": member.epoch,
                "assignment": _by_topic(member.assignment),
                "target_assignment": _by_topic(member.target),
                "upgraded": member.upgraded,
            }
        )
    end = "" if verbose else " "
    lines = ["", *(line + end for line in _aligned([head, *table], min_widths, open_end=False))]
    columns = ["Group", "Consumer", "Host", "Client", "Partitions"]
    return Report(lines, {**_facts(group), "members": data}, columns, rows)


def _by_topic(topic_partitions: "Iterable[TopicPartition]") -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(topic_partitions):
        found.setdefault(topic, []).append(partition)
    return found


def assignment_text(topic_partitions: "Iterable[TopicPartition]") -> str:
    return ";".join(
        f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in _by_topic(topic_partitions).items()
    )


# --- state --------------------------------------------------------------------------------------------------


def _state(_: "Groups", group: "GroupDescription", verbose: bool) -> Report:
    node = group.coordinator
    where = f"{node.host}:{node.port}  ({node.id})"
    head = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]
    line: list[Any] = [group.group_id, where, group.assignor, group.state, len(group.members)]
    min_widths = [15, 25, 20, 20, 0]
    columns = ["Group", "Coordinator", "Strategy", "State", "Members"]
    rows = [list(line)]
    if verbose:
        head[4:4] = ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        line[4:4] = [group.epoch, group.target_epoch]
        min_widths[4:4] = [15, 25]
    lines = ["", *_aligned([head, line], min_widths, open_end=True)]
    return Report(lines, {**_facts(group), "members": len(group.members)}, columns, rows)
