"""Streams applications, from outside.

`reset` takes a stopped application back to its beginning, as kafka-streams-application-reset.sh does: by its
id and the cluster alone.
"""

import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from millstream.cli import cluster_access, shared_options
from millstream.cli.consumer_groups_reset import Offsets, Plan, moment_of, new_offsets, read_plan
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report, check_style, emit

if TYPE_CHECKING:
    from millstream.client import Cluster
    from millstream.client.groups import Groups, Member

REMOVED = {"--force": ""}  # it has a meaning here

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def reset(
    application_id: Annotated[
        str, typer.Option(metavar="ID", help="The application: its name in Streams(...). Required.")
    ] = "",
    input_topics: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC,...", help="Topics that it reads: to be read again from their beginning."
        ),
    ] = None,
    intermediate_topics: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC,...",
            help="Topics of yours that it writes and reads (through): skipped to the end.",
        ),
    ] = None,
    internal_topics: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC,...",
            help="Delete only these of its internal topics. Without it: all that --dry-run shows.",
        ),
    ] = None,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="Input topics: from the first record.")
    ] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Input topics: from the end.")] = False,
    to_offset: Annotated[
        int | None, typer.Option(metavar="OFFSET", help="Input topics: from an offset.")
    ] = None,
    to_datetime: Annotated[
        str, typer.Option(metavar="YYYY-MM-DDTHH:mm:SS.sss", help="Input topics: from a moment.")
    ] = "",
    by_duration: Annotated[
        str, typer.Option(metavar="PnDTnHnMnS", help="Input topics: from that long ago.")
    ] = "",
    shift_by: Annotated[
        int | None,
        typer.Option(metavar="N", help="Input topics: shift by this many records, backwards if negative."),
    ] = None,
    from_file: Annotated[
        str,
        typer.Option(
            metavar="CSV", help="Input topics: from the offsets in a file of lines topic,partition,offset."
        ),
    ] = "",
    state: Annotated[
        str,
        typer.Option(
            metavar="FOLDER",
            help="The application's `state` here: its stores and checkpoint in there are removed.",
            show_default=False,
        ),
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Remove members that are still in the application's group, such as those of a process that "
            "was killed.",
        ),
    ] = False,
    config_file: Annotated[str, typer.Option("--config-file", hidden=True)] = "",
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
) -> int:
    """Take a stopped application back to its beginning.

    Input topics are read again from their beginning (or from where the other options say), intermediate
    topics are skipped to their end, internal topics (changelogs and repartition topics) are deleted. Output
    topics stay as they are. The application's local state has to go, too, on every machine that it ran on:
    --state removes it on this one. Refused while the application runs.
    """
    from millstream.client.groups import Groups

    style = check_style(output)
    if not application_id or not _LEGAL.fullmatch(application_id) or not application_id.strip("."):
        raise UsageError("--application-id must be specified: letters, digits, '.', '_' and '-'")
    modes = {
        "to-earliest": to_earliest or None,
        "to-latest": to_latest or None,
        "to-offset": to_offset,
        "to-datetime": to_datetime or None,
        "by-duration": by_duration or None,
        "shift-by": shift_by,
        "from-file": from_file or None,
    }
    chosen = [mode for mode, value in modes.items() if value is not None] or ["to-earliest"]
    inputs, intermediate = _names(input_topics), _names(intermediate_topics)
    if len(chosen) > 1 or (chosen != ["to-earliest"] and not inputs):
        raise UsageError(f"choose one of --{', --'.join(modes)}, with --input-topics")
    plan = Plan(chosen[0], modes[chosen[0]], inputs, False, not dry_run)
    shared_options.warn_of_old_names(("--config-file", config_file, "--command-config", command_config))
    properties = cluster_access.read_client_properties(command_config or config_file)
    with cluster_access.connect(bootstrap_server, properties, "millstream-streams") as cluster:
        groups = Groups(cluster)
        members, planners = _members(groups, application_id), _members(groups, f"{application_id}-planner")
        if (members or planners) and not force:
            raise CommandFailed(
                f"Consumer group '{application_id}' is still active. Make sure to stop all running "
                f"application instances "
                "before running the reset tool. --force removes members that are not there any more."
            )
        found = _planned(cluster, application_id, plan, intermediate, _names(internal_topics), state)
        if members and plan.execute:
            print(f"Force deleting all active members in the group: {application_id}", file=sys.stderr)
            _remove(cluster, application_id, members)
        if planners and plan.execute:
            _remove(cluster, f"{application_id}-planner", planners)
        if plan.execute:
            _execute(cluster, found)
            _forget_progress(cluster, application_id)
    emit(_report(found, dry_run), style)
    return 0


SUBCOMMANDS: dict[str, Callable[..., int]] = {"reset": reset}


class Planned(NamedTuple):
    """What a reset is going to do.

    begin, end   the new offsets of input topics, and of intermediate ones
    internal     the topics to delete
    folder       the local state to remove
    specified    whether the internal topics were named, or found by their names
    """

    application: str
    begin: Offsets
    end: Offsets
    internal: list[str]
    folder: Path | None
    specified: bool


def _names(listed: Sequence[str] | None) -> list[str]:
    names = (name.strip() for part in listed or () for name in part.split(","))
    return list(dict.fromkeys(name for name in names if name))


def _planned(
    cluster: "Cluster",
    application: str,
    plan: Plan,
    intermediate: Sequence[str],
    wanted: Sequence[str],
    state: str,
) -> Planned:
    from millstream.client.admin import Admin
    from millstream.client.groups import Groups

    groups = Groups(cluster)
    there, yours = Admin(cluster).topic_names(), [*plan.topics, *intermediate]
    for name in yours:
        if name not in there:
            raise CommandFailed(f"there is no topic {name}; nothing was changed")
    internal = _internal(groups, application, there, yours, wanted)
    by_file = _file_plan(cluster, application, plan) if plan.mode == "from-file" else None
    begin = new_offsets(groups, application, plan, moment_of(plan), by_file) if plan.topics else {}
    skip = Plan("to-latest", None, intermediate, False, plan.execute)
    end = new_offsets(groups, application, skip, 0, None) if intermediate else {}
    folder = Path(state).absolute() / application if state else None
    return Planned(application, begin, end, internal, folder, bool(wanted))


def _forget_progress(cluster: "Cluster", application: str) -> None:
    """The markers beside the group's offsets."""
    from millstream.host.progress import Markers

    Markers(cluster).forget(application)


def _members(groups: "Groups", application: str) -> "Sequence[Member]":
    """Applications of Java are members of their group. Ours only commit there; their planner is a member of a
    group of its own."""
    from millstream.wire.errors import ErrorCode, KafkaError

    found = groups.describe([application])[application]
    if isinstance(found, KafkaError):
        if found.code is not ErrorCode.group_id_not_found:
            raise found
        return ()
    return found.members


def _remove(cluster: "Cluster", application: str, members: "Sequence[Member]") -> None:
    """What a member does itself when it leaves, for those that cannot any more. One that has left by now is
    fine."""
    from millstream.client.coordinators import GROUP, Coordinators
    from millstream.wire.errors import ErrorCode

    leaving = [
        {
            "member_id": member.member_id,
            "group_instance_id": member.instance_id or None,
            "reason": "streams reset --force",
        }
        for member in members
    ]
    answer = Coordinators(cluster, GROUP).call(
        application,
        lambda connection: connection.request(
            "leave_group", group_id=application, member_id="", members=leaving
        ),
    )
    for part in (answer, *getattr(answer, "members", ())):
        code = ErrorCode(part.error_code)
        if code not in (ErrorCode.none, ErrorCode.unknown_member_id):
            raise CommandFailed(f"cannot remove the members of group {application}: {code.name.upper()}")


def _file_plan(cluster: "Cluster", application: str, plan: Plan) -> dict[str, Offsets]:
    """The file has to name each partition of the input topics, and no others."""
    found = read_plan(plan.value, [application], True).get(application, {})
    cluster.refresh(set(plan.topics))
    wanted = {(topic, number) for topic in plan.topics for number in cluster.topic(topic).partitions}
    for topic_partitions, words in (
        (wanted - found.keys(), "has no offset for"),
        (found.keys() - wanted, "names what is no partition of an input topic:"),
    ):
        for topic, number in sorted(topic_partitions):
            raise CommandFailed(f"{plan.value} {words} {topic}-{number}; nothing was changed")
    return {application: found}


def _internal(
    groups: "Groups", application: str, there: Sequence[str], yours: Sequence[str], wanted: Sequence[str]
) -> list[str]:
    """The topics to delete: those that are named as the application's own, and do not belong to another one
    whose name begins like this one's."""
    try:
        from millstream.streams.runtime.topics import internal_topics
        from millstream.streams.topology import Topology
    except ImportError as error:
        raise CommandFailed(
            f"Streams applications need {error.name}, which is missing: pip install 'millstream[pipelines]'"
        ) from None
    known = [group.group_id for group in groups.listed()]
    found = internal_topics(sorted(there), application, Topology(), known)
    found = [name for name in found if name not in yours]
    for name in wanted:
        if name not in found:
            raise CommandFailed(f"{name} is not an internal topic of {application}; nothing was changed")
    return list(wanted) or found


def _execute(cluster: "Cluster", planned: Planned) -> None:
    from millstream.client.admin import Admin
    from millstream.client.groups import Groups

    groups, application = Groups(cluster), planned.application
    # What was read of topics that are about to go: new ones of the same name begin anew.
    gone = [
        topic_partition
        for topic_partition in groups.committed(application)
        if topic_partition.topic in planned.internal
    ]
    moved = {**planned.begin, **planned.end}
    outcomes = dict(groups.delete_offsets(application, gone)) if gone else {}
    outcomes |= groups.commit(application, moved) if moved else {}
    for (topic, partition), error in outcomes.items():
        if error is not None:
            raise CommandFailed(f"cannot set the offset of {topic}-{partition}: {error.message}")
    for topic, error in Admin(cluster).delete_topics(planned.internal).items():
        if error is not None:
            raise CommandFailed(f"cannot delete {topic}: {error.message}")
    if planned.folder is not None:
        shutil.rmtree(planned.folder, ignore_errors=True)


def _report(planned: Planned, dry_run: bool) -> Report:
    application, begin, end, internal, folder, _ = planned
    lines = []
    if dry_run:
        lines.append(
            "----Dry run displays the actions which will be performed when running Streams Reset Tool----"
        )
    for offsets, what in ((begin, "Reset-offsets for input"), (end, "Seek-to-end for intermediate")):
        if offsets:
            lines.append(f"{what} topics [{', '.join(dict.fromkeys(topic for topic, _ in offsets))}]")
    for offsets, what in (
        (begin, "input topics offsets will be reset to"),
        (end, "intermediate topics offsets will be reset to end"),
    ):
        if offsets:
            lines.append(f"Following {what} (for consumer group {application})")
            lines += [
                f"Topic: {topic} Partition: {partition} Offset: {offset}"
                for (topic, partition), offset in sorted(offsets.items())
            ]
    if not begin and not end:
        lines.append("No input or intermediate topics specified. Skipping seek.")
    lines.append(
        f"Deleting {'specified' if planned.specified else 'inferred'} internal topics [{', '.join(internal)}]"
    )
    if folder is not None:
        lines.append(f"Removing {folder}")
    else:
        lines.append(
            f"Before it starts again, remove the folder {application} in its state folder, on every machine."
        )
    lines.append("Done.")
    moved = sorted({**begin, **end}.items())
    data = {
        "application": application,
        "offsets": [
            {"topic": topic, "partition": partition, "new_offset": offset}
            for (topic, partition), offset in moved
        ],
        "deleted_topics": list(internal),
        "removed_folder": None if folder is None else str(folder),
        "dry_run": dry_run,
    }
    rows: list[list[Any]] = [
        ["read again" if topic_partition in begin else "skip", *topic_partition, offset]
        for topic_partition, offset in moved
    ]
    rows += [["delete", name, None, None] for name in internal]
    return Report(lines, data, ["Action", "Topic", "Partition", "New offset"], rows)
