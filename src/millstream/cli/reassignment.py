"""The five actions of `millstream reassign-partitions`, each on a cluster, each with its report.

The lines are those of Kafka's tool. Moves go on in the cluster when the tool has ended: `verify` asks how far
they are, and removes the throttles that `execute` has set once nothing moves any more.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from millstream.cli.errors import CommandFailed
from millstream.cli.output import Report
from millstream.cli.progress import progress
from millstream.cli.reassignment_plan import (
    Plan,
    format_plan,
    moves_of,
    moving_brokers,
    named,
    plan_data,
    propose,
    throttled_replicas,
)
from millstream.client.admin import BROKER, DELETE, SET, TOPIC, Reassignment
from millstream.client.cluster_admin import ClusterAdmin, Replica, ReplicaFolders, describe_problem
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

BROKER_THROTTLES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
FOLDER_THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
TOPIC_THROTTLES = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
OTHER_MOVES = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this "
    "and create a new partition assignment in addition to the existing one. The --additional flag can also "
    "be used to change the throttle by resubmitting the current reassignment."
)
RUN_VERIFY = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle "
    "is removed."
)
LOOK_EVERY = 0.5  # seconds, while waiting
COMPLETED, IN_PROGRESS = "completed", "in progress"


class ExecuteOptions(NamedTuple):
    additional: bool = False
    throttle: int = -1
    folder_throttle: int = -1
    timeout_ms: int = 10_000
    allow_replication_factor_change: bool = True


class PartitionStatus(NamedTuple):
    partition: TopicPartition
    current: tuple[int, ...]
    target: tuple[int, ...]
    moving: bool

    @property
    def state(self) -> str:
        if self.moving:
            return IN_PROGRESS
        return COMPLETED if self.current == self.target else "not started"

    def line(self) -> str:
        if self.moving:
            return f"Reassignment of partition {self.partition} is still in progress."
        if self.current == self.target:
            return f"Reassignment of partition {self.partition} is completed."
        return (
            f"There is no active reassignment of partition {self.partition}, but replica set is "
            f"{named(self.current)} rather than {named(self.target)}."
        )


# --- generate -----------------------------------------------------------------------------------------------


def generate(admin: ClusterAdmin, topics: Sequence[str], brokers: Sequence[int], by_rack: bool) -> Report:
    current = _replicas_of_topics(admin, topics)
    racks = {node.id: node.rack if by_rack else None for node in admin.brokers() if node.id in brokers}
    if any(racks.values()) and not all(racks.values()):
        raise CommandFailed(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica "
            "assignment without rack information."
        )
    if not racks:
        raise CommandFailed(f"None of the brokers {named(brokers)} is in the cluster")
    proposed = propose(current, racks)
    folders = _folders_of(admin, current)
    lines = [
        "Current partition replica assignment",
        format_plan(current, folders),
        "",
        "Proposed partition reassignment configuration",
        format_plan(proposed),
    ]
    data = {"current": plan_data(current, folders), "proposed": plan_data(proposed)}
    rows = [
        [*partition, named(current[partition]), named(proposed[partition])] for partition in sorted(proposed)
    ]
    return Report(lines, data, ["Topic", "Partition", "Replicas", "Proposed"], rows)


def _replicas_of_topics(admin: ClusterAdmin, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, ...]]:
    found: dict[TopicPartition, tuple[int, ...]] = {}
    for name, state in admin.describe_topics(topics).items():
        if isinstance(state, KafkaError):
            if state.code is ErrorCode.unknown_topic_or_partition:
                raise CommandFailed(f"Topic {name} not found.")
            raise state
        for partition in state.partitions:
            found[TopicPartition(name, partition.index)] = partition.replicas
    return found


def _folders_of(admin: ClusterAdmin, replicas: Mapping[TopicPartition, Sequence[int]]) -> dict[Replica, str]:
    """The data folders of replicas, as far as their brokers are up."""
    wanted = [Replica(*partition, broker) for partition, brokers in replicas.items() for broker in brokers]
    return {
        replica: found.current
        for replica, found in admin.replica_folders(wanted).items()
        if found.current is not None
    }


# --- execute ------------------------------------------------------------------------------------------------


def execute(admin: ClusterAdmin, plan: Plan, options: ExecuteOptions) -> Report:
    under_way = admin.reassignments()
    if under_way and not options.additional:
        raise CommandFailed(OTHER_MOVES)
    live = {node.id for node in admin.brokers()}
    for brokers in plan.replicas.values():
        for broker in brokers:
            if broker not in live:
                raise CommandFailed(f"Unknown broker id {broker}")
    known = _replicas_of_topics(admin, plan.topics)
    if missing := sorted(partition for partition in plan.replicas if partition not in known):
        raise CommandFailed(f"Unable to find partition: {', '.join(map(str, missing))}")
    current = {partition: known[partition] for partition in plan.replicas}
    folders = _folders_of(admin, current)
    lines = [
        "Current partition replica assignment",
        "",
        format_plan(current, folders),
        "",
        "Save this to use as the --reassignment-json-file option during rollback",
    ]
    if options.throttle >= 0 or options.folder_throttle >= 0:
        lines.append(RUN_VERIFY)
    if options.throttle >= 0:
        _throttle_moves(admin, under_way, plan, current, options.throttle)
        lines.append(f"The inter-broker throttle limit was set to {options.throttle} B/s")
    if options.folder_throttle >= 0:
        movers = sorted({replica.broker for replica in plan.folders})
        _alter(
            admin,
            {
                (BROKER, str(broker)): [(FOLDER_THROTTLE, SET, str(options.folder_throttle))]
                for broker in movers
            },
        )
        lines.append(f"The replica-alter-dir throttle limit was set to {options.folder_throttle} B/s")
    answers = admin.alter_reassignments(plan.replicas, options.allow_replication_factor_change)
    _refuse_failures("Error reassigning partition(s):", answers)
    plural = "" if len(plan.replicas) == 1 else "s"
    lines.append(f"Successfully started partition reassignment{plural} for {named(sorted(plan.replicas))}")
    lines += move_folders(admin, plan.folders, options.timeout_ms)
    rows = [
        [*partition, named(current[partition]), named(plan.replicas[partition])]
        for partition in sorted(plan.replicas)
    ]
    data = {"previous": plan_data(current, folders), "started": plan_data(plan.replicas)}
    return Report(lines, data, ["Topic", "Partition", "Replicas", "Target"], rows)


def _throttle_moves(
    admin: ClusterAdmin,
    under_way: Mapping[TopicPartition, Reassignment],
    plan: Plan,
    current: Mapping[TopicPartition, Sequence[int]],
    rate: int,
) -> None:
    moving = {partition: (move.replicas, move.adding) for partition, move in under_way.items()}
    moves = moves_of(moving, plan.replicas, current)
    changes: dict[tuple[int, str], list[tuple[str, int, str | None]]] = {
        (TOPIC, topic): [(name, SET, value) for name, value in zip(TOPIC_THROTTLES, values, strict=True)]
        for topic, values in throttled_replicas(moves).items()
    }
    for broker in moving_brokers(moves):
        changes[BROKER, str(broker)] = [(name, SET, str(rate)) for name in BROKER_THROTTLES]
    _alter(admin, changes)


def _alter(
    admin: ClusterAdmin,
    changes: Mapping[tuple[int, str], Sequence[tuple[str, int, str | None]]],
    may_be_gone: bool = False,
) -> None:
    for (kind, name), problem in admin.alter_configs(changes).items():
        gone = problem is not None and problem.code is ErrorCode.unknown_topic_or_partition
        if problem is not None and not (gone and may_be_gone):
            what = f"topic {name}" if kind == TOPIC else f"broker {name}"
            raise CommandFailed(f"The throttle of {what} cannot be changed: {describe_problem(problem)}")


def _refuse_failures(what: str, answers: Mapping[TopicPartition, KafkaError | None]) -> None:
    failed = {partition: error for partition, error in answers.items() if error is not None}
    if failed:
        reasons = (f"{partition}: {describe_problem(failed[partition])}" for partition in sorted(failed))
        raise CommandFailed(f"{what} {'; '.join(reasons)}")


def move_folders(admin: ClusterAdmin, folders: Mapping[Replica, str], timeout_ms: int) -> list[str]:
    """Asks until every broker has begun: a replica that was just assigned to a broker may be late."""
    lines: list[str] = []
    pending = dict(folders)
    deadline = time.monotonic() + timeout_ms / 1000
    while pending:
        answers = admin.alter_replica_log_dirs(pending)
        for replica in sorted(answers, key=_by_broker):
            problem = answers[replica]
            if problem is None:
                lines.append(
                    f"Successfully started moving log directory to {pending.pop(replica)} for replica "
                    f"{replica.topic}-{replica.partition} with broker {replica.broker} "
                )
            elif problem.code is not ErrorCode.replica_not_available:
                raise CommandFailed(f"Failed to alter dir for {replica}: {describe_problem(problem)}")
        if pending:
            if time.monotonic() >= deadline:
                plural = "" if len(pending) == 1 else "s"
                raise CommandFailed(
                    f"Timed out before log directory move{plural} could be started for: "
                    f"{named(_sorted(pending))}"
                )
            time.sleep(0.1)
    return lines


def _sorted(replicas: Iterable[Replica]) -> list[Replica]:
    return sorted(replicas, key=_by_broker)


def _by_broker(replica: Replica) -> tuple[int, str, int]:
    return replica.broker, replica.topic, replica.partition


# --- verify -------------------------------------------------------------------------------------------------


def verify(admin: ClusterAdmin, plan: Plan, preserve_throttles: bool, wait: bool = False) -> Report:
    if wait:
        wait_until_done(admin, plan)
    statuses, anything_moves = partition_statuses(admin, plan)
    folders = admin.replica_folders(plan.folders)
    lines = ["Status of partition reassignment:", *(status.line() for status in statuses)]
    folder_lines = [
        _folder_line(replica, plan.folders[replica], folders.get(replica))
        for replica in sorted(plan.folders, key=_by_broker)
    ]
    lines += folder_lines or [""]
    cleared = False
    if not anything_moves and not _folder_moves(plan, folders) and not preserve_throttles:
        lines += clear_throttles(admin, plan)
        cleared = True
    data = {
        "partitions": [
            {
                "topic": status.partition.topic,
                "partition": status.partition.partition,
                "state": status.state,
                "replicas": list(status.current),
                "target": list(status.target),
            }
            for status in statuses
        ],
        "log_dirs": [_folder_facts(replica, plan.folders[replica], folders) for replica in plan.folders],
        "throttles_cleared": cleared,
    }
    rows = [
        [*status.partition, status.state, named(status.current), named(status.target)] for status in statuses
    ]
    return Report(lines, data, ["Topic", "Partition", "State", "Replicas", "Target"], rows)


def partition_statuses(admin: ClusterAdmin, plan: Plan) -> tuple[list[PartitionStatus], bool]:
    """How far each partition of the plan is, and whether anything at all is moving in the cluster."""
    under_way = admin.reassignments()
    states = admin.describe_topics(plan.topics)
    found: list[PartitionStatus] = []
    for partition in sorted(plan.replicas):
        target = tuple(plan.replicas[partition])
        move = under_way.get(partition)
        current: tuple[int, ...] = ()
        state = states.get(partition.topic)
        if move is not None:
            current = move.replicas
        elif isinstance(state, KafkaError):
            if state.code is not ErrorCode.unknown_topic_or_partition:
                raise state
        elif state is not None:
            current = next(
                (each.replicas for each in state.partitions if each.index == partition.partition), ()
            )
        found.append(PartitionStatus(partition, current, target, move is not None))
    return found, bool(under_way)


def _folder_moves(plan: Plan, folders: Mapping[Replica, ReplicaFolders]) -> bool:
    return any(replica in folders and folders[replica].future is not None for replica in plan.folders)


def _folder_line(replica: Replica, target: str, found: ReplicaFolders | None) -> str:
    where = f"Partition {replica.topic}-{replica.partition}"
    if found is None:
        return f"{where} cannot be found in any live log directory on broker {replica.broker}."
    if found.current is None:
        return (
            f"{where} is not found in any live log dir on broker {replica.broker}. There is likely an "
            "offline log directory on the broker."
        )
    if found.future is None:
        if found.current == target:
            return f"Reassignment of replica {replica} completed successfully."
        return (
            f"{where} on broker {replica.broker} is not being moved from log dir {found.current} to {target}."
        )
    if found.future == target:
        return f"Reassignment of replica {replica} is still in progress."
    return f"{where} on broker {replica.broker} is being moved to log dir {found.future} instead of {target}."


def _folder_facts(replica: Replica, target: str, folders: Mapping[Replica, ReplicaFolders]) -> dict[str, Any]:
    found = folders.get(replica)
    facts: dict[str, Any] = {
        "topic": replica.topic,
        "partition": replica.partition,
        "broker": replica.broker,
        "current": found.current if found else None,
        "future": found.future if found else None,
        "target": target,
    }
    if found is not None and found.future is not None:
        facts["lag"] = found.lag
    return facts


def clear_throttles(admin: ClusterAdmin, plan: Plan) -> list[str]:
    """Throttles of all brokers that are up: nobody knows any more which of them sent, and to whom."""
    brokers = sorted(node.id for node in admin.brokers())
    _alter(
        admin,
        {
            (BROKER, str(broker)): [(name, DELETE, None) for name in (*BROKER_THROTTLES, FOLDER_THROTTLE)]
            for broker in brokers
        },
    )
    for topic in plan.topics:
        _alter(admin, {(TOPIC, topic): [(name, DELETE, None) for name in TOPIC_THROTTLES]}, may_be_gone=True)
    return [
        f"Clearing broker-level throttles on broker{'' if len(brokers) == 1 else 's'} {named(brokers)}",
        f"Clearing topic-level throttles on topic{'' if len(plan.topics) == 1 else 's'} {named(plan.topics)}",
    ]


def wait_until_done(admin: ClusterAdmin, plan: Plan) -> None:
    """Until nothing of the plan moves. The bar counts the bytes of the new replicas, against the size of
    their leaders' logs."""
    with progress("moving", 100, "%") as bar:
        shown = 0
        while True:
            under_way = {
                partition: move
                for partition, move in admin.reassignments().items()
                if partition in plan.replicas
            }
            folders = admin.replica_folders(plan.folders)
            if not under_way and not _folder_moves(plan, folders):
                bar.advance(100 - shown)
                return
            percent = max(shown, _percent_copied(admin, under_way, plan, folders))
            bar.advance(percent - shown)
            shown = percent
            # The pace at which a person is told; the brokers need no more questions than that.
            time.sleep(LOOK_EVERY)


def _percent_copied(
    admin: ClusterAdmin,
    under_way: Mapping[TopicPartition, Reassignment],
    plan: Plan,
    folders: Mapping[Replica, ReplicaFolders],
) -> int:
    """Of the bytes of all new copies, those that are there. A partition of the plan that no longer moves is
    complete, and weighs nothing."""
    sizes: dict[TopicPartition, dict[int, int]] = {}
    copies: dict[Replica, int] = {}
    for folder in admin.describe_log_dirs():
        for partition, (size, _, is_future) in folder.sizes.items():
            if is_future:
                copies[Replica(*partition, folder.broker)] = size
            else:
                sizes.setdefault(partition, {})[folder.broker] = size
    total = done = 0
    for partition, move in under_way.items():
        held = sizes.get(partition, {})
        whole = max((held.get(broker, 0) for broker in move.replicas if broker not in move.adding), default=0)
        for broker in move.adding:
            total += whole
            done += min(whole, held.get(broker, 0))
    for replica, found in folders.items():
        if found.future is not None:
            whole = sizes.get(TopicPartition(replica.topic, replica.partition), {}).get(replica.broker, 0)
            total += whole
            done += min(whole, copies.get(replica, 0))
    return min(99, 100 * done // total) if total else 0


# --- cancel and list ----------------------------------------------------------------------------------------


def cancel(admin: ClusterAdmin, plan: Plan, preserve_throttles: bool, timeout_ms: int) -> Report:
    active = sorted(partition for partition in admin.reassignments() if partition in plan.replicas)
    lines: list[str] = []
    if active:
        plural = "" if len(active) == 1 else "s"
        _refuse_failures(
            f"Error cancelling partition reassignment{plural} for:",
            admin.alter_reassignments(dict.fromkeys(active)),
        )
        lines.append(f"Successfully cancelled partition reassignment{plural} for: {named(active)}")
    else:
        lines.append("None of the specified partition reassignments are active.")
    moving = {
        replica: found.current
        for replica, found in admin.replica_folders(plan.folders).items()
        if found.future is not None and found.current is not None
    }
    if moving:
        lines += move_folders(admin, moving, timeout_ms)
    else:
        lines.append("None of the specified partition moves are active.")
    if not preserve_throttles:
        lines += clear_throttles(admin, plan)
    data = {
        "cancelled": [{"topic": topic, "partition": index} for topic, index in active],
        "cancelled_log_dirs": [replica._asdict() for replica in moving],
    }
    return Report(lines, data, ["Topic", "Partition"], [list(partition) for partition in active])


def list_moves(admin: ClusterAdmin) -> Report:
    under_way = admin.reassignments()
    lines = ["Current partition reassignments:"] if under_way else ["No partition reassignments found."]
    data: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    for partition, move in sorted(under_way.items()):
        adding = f" adding: {named(move.adding)}." if move.adding else ""
        removing = f" removing: {named(move.removing)}." if move.removing else ""
        lines.append(f"{partition}: replicas: {named(move.replicas)}.{adding}{removing}")
        data.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "replicas": list(move.replicas),
                "adding_replicas": list(move.adding),
                "removing_replicas": list(move.removing),
            }
        )
        rows.append([*partition, named(move.replicas), named(move.adding), named(move.removing)])
    return Report(lines, data, ["Topic", "Partition", "Replicas", "Adding", "Removing"], rows)
