"""`millstream metadata-quorum`: what kafka-metadata-quorum.sh does, as far as there is a quorum to describe.

The metadata of a Millstream cluster is a log in ZooKeeper, or in a file of the only broker. It goes by the
name that Kafka has for it: its leader is the controller, its voters are the brokers that may become it, and
its offsets count the entries.
"""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli import cluster_access, shared_options
from millstream.cli.cluster_access import kafka_id
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report, check_style, emit

if TYPE_CHECKING:
    from millstream.client.cluster_admin import Quorum, QuorumReplica

REMOVED = {
    "--bootstrap-controller": "every broker knows the controller: use --bootstrap-server",
}
HELP = "Show who leads the metadata of the cluster, and how far the other brokers have followed."
COLUMNS = (
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
)


def prepare(arguments: list[str]) -> list[str]:
    return shared_options.subcommand_first(arguments, SUBCOMMANDS)


def describe(
    status: Annotated[bool, typer.Option("--status", help="A short summary.")] = False,
    replication: Annotated[
        bool, typer.Option("--replication", help="Every broker that follows the metadata.")
    ] = False,
    human_readable: Annotated[
        bool, typer.Option("--human-readable", help="Times as so long ago (--replication).")
    ] = False,
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
) -> int:
    """Describe the controller and those who follow it."""
    style = check_style(output)
    if status == replication:
        raise UsageError(
            "One of --status or --replication must be specified with describe sub-command"
            if not status
            else "Only one of --status or --replication should be specified with describe sub-command"
        )
    if human_readable and status:
        raise UsageError("--human-readable can't be used with --status")
    properties = cluster_access.read_client_properties(command_config)
    with cluster_access.connect(bootstrap_server, properties, "millstream-metadata-quorum") as cluster:
        from millstream.client.cluster_admin import ClusterAdmin

        admin = ClusterAdmin(cluster)
        cluster_id, _, _ = admin.describe_cluster()
        quorum = admin.quorum()
    if all(voter.id != quorum.leader for voter in quorum.voters):
        raise CommandFailed("The metadata has no leader at the moment; try again")
    report = status_report(cluster_id, quorum) if status else replication_report(quorum, human_readable)
    emit(report, style)
    return 0


def status_report(cluster_id: str | None, quorum: "Quorum") -> Report:
    leader = next(voter for voter in quorum.voters if voter.id == quorum.leader)
    last = min(quorum.voters, key=lambda voter: voter.log_end_offset)
    lag_ms = 0
    if last.log_end_offset != leader.log_end_offset:
        known = min(leader.last_caught_up_ms, last.last_caught_up_ms) >= 0
        lag_ms = leader.last_caught_up_ms - last.last_caught_up_ms if known else -1
    facts: dict[str, Any] = {
        "ClusterId": cluster_id,
        "LeaderId": quorum.leader,
        "LeaderEpoch": quorum.leader_epoch,
        "HighWatermark": quorum.high_watermark,
        "MaxFollowerLag": leader.log_end_offset - last.log_end_offset,
        "MaxFollowerLagTimeMs": lag_ms,
        "CurrentVoters": _described(quorum, quorum.voters),
        "CurrentObservers": _described(quorum, quorum.observers),
    }
    shown = {
        **facts,
        "CurrentVoters": _as_json(facts["CurrentVoters"]),
        "CurrentObservers": _as_json(facts["CurrentObservers"]),
    }
    lines = [f"{f'{name}:':<24}{value}" for name, value in shown.items()]
    return Report(lines, facts, ["", "Metadata"], [[name, value] for name, value in shown.items()])


def _described(quorum: "Quorum", replicas: "Iterable[QuorumReplica]") -> list[dict[str, Any]]:
    found = []
    for replica in replicas:
        entry: dict[str, Any] = {"id": replica.id}
        if replica.directory_id.int:
            entry["directoryId"] = kafka_id(replica.directory_id)
        if quorum.endpoints.get(replica.id):
            entry["endpoints"] = quorum.endpoints[replica.id]
        found.append(entry)
    return found


def _as_json(entries: list[dict[str, Any]]) -> str:
    import json

    return json.dumps(entries)


def replication_report(quorum: "Quorum", human_readable: bool) -> Report:
    end = next(voter.log_end_offset for voter in quorum.voters if voter.id == quorum.leader)
    now_ms = time.time_ns() // 1_000_000
    ordered = sorted(quorum.voters, key=lambda voter: voter.id != quorum.leader)
    rows: list[list[Any]] = []
    data: list[dict[str, Any]] = []
    for replica, role in [
        *((voter, "Leader" if voter.id == quorum.leader else "Follower") for voter in ordered),
        *((observer, "Observer") for observer in quorum.observers),
    ]:
        times: list[int | str] = [replica.last_fetch_ms, replica.last_caught_up_ms]
        if human_readable:
            times = [
                f"{max(0, now_ms - when)} ms ago" if when >= 0 else -1
                for when in times
                if isinstance(when, int)
            ]
        row = [
            replica.id,
            kafka_id(replica.directory_id),
            replica.log_end_offset,
            end - replica.log_end_offset,
        ]
        rows.append([*row, *times, role])
        data.append(dict(zip(COLUMNS, rows[-1], strict=True)))
    return Report(_padded([list(COLUMNS), *rows]), data, COLUMNS, rows)


def _padded(rows: list[list[Any]]) -> list[str]:
    """Kafka's own layout: padded to the widest of a column, a tab after each."""
    widths = [max(len(str(row[number])) for row in rows) for number in range(len(COLUMNS))]
    return ["".join(f"{cell!s:<{width}}\t" for cell, width in zip(row, widths, strict=True)) for row in rows]


SUBCOMMANDS = {"describe": describe}
