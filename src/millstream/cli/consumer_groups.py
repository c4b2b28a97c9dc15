"""`millstream consumer-groups`: what kafka-consumer-groups.sh does.

Where Kafka's tool prints `Error: ...` and ends with 0 all the same, this one prints the same sentence on the
error stream and ends with 1. Describing is in consumer_groups_describe.py, resetting of offsets in
consumer_groups_reset.py.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli import cluster_access, shared_options
from millstream.cli.errors import UsageError
from millstream.cli.output import Report, check_style, emit
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.client.groups import Groups
    from millstream.wire.errors import KafkaError

REMOVED = {"--new-consumer": "there is only one kind of consumer: leave it out"}

ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
OPTIONAL_VALUES = ("--state", "--type")  # these may stand alone
STATES = (
    "Assigning",
    "CompletingRebalance",
    "Dead",
    "Empty",
    "Reconciling",
    "PreparingRebalance",
    "Stable",
)
TYPES = ("Consumer", "Classic")
MODES = (
    "to-offset",
    "to-datetime",
    "by-duration",
    "to-earliest",
    "to-latest",
    "to-current",
    "shift-by",
    "from-file",
)
NOTHING_WILL_HAPPEN = (
    "WARN: No action will be performed as the --execute option is missing. Say --dry-run if that is what "
    "you want: "
    "from version 5 on, Kafka's tool wants one of the two."
)
# How RE2 for Java, which is in Kafka, words what RE2 finds.
RE2_WORDS = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "bad repetition operator": "invalid nested repetition operator",
    "no argument for repetition operator": "missing argument to repetition operator",
    "trailing \\": "trailing backslash at end of expression",
}
# How Kafka's clients word these errors.
SENTENCES = {
    "group_id_not_found": "The group id does not exist.",
    "non_empty_group": "The group is not empty.",
    "invalid_group_id": "The configured groupId is invalid.",
    "group_authorization_failed": "Not authorized to access group: Group authorization failed.",
    "group_subscribed_to_topic": "Deleting offsets of a topic is forbidden while the consumer group is "
    "actively "
    "subscribed to it.",
    "unknown_topic_or_partition": "This server does not host this topic-partition.",
    "topic_authorization_failed": "Topic authorization failed.",
}


def prepare(arguments: list[str]) -> list[str]:
    """Short forms, and options whose value may be missing."""
    words = shared_options.action_options(arguments, ACTIONS, "--group")
    found = []
    for at, word in enumerate(words):
        alone = word in OPTIONAL_VALUES and (at + 1 == len(words) or words[at + 1].startswith("-"))
        found.append(f"{word}=" if alone else word)
    return found


def command(
    list_groups: Annotated[bool, typer.Option("--list", help="List the groups.")] = False,
    describe: Annotated[
        bool, typer.Option("--describe", help="Show offsets with lag, members, or the state of groups.")
    ] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete groups that have no members.")] = False,
    reset_offsets: Annotated[
        bool, typer.Option("--reset-offsets", help="Set the offsets of groups that have no members.")
    ] = False,
    delete_offsets: Annotated[
        bool, typer.Option("--delete-offsets", help="Forget a group's offsets in topics.")
    ] = False,
    validate_regex: Annotated[
        str | None,
        typer.Option(
            help="Say whether an expression can be subscribed to by the newer protocol.", metavar="REGEX"
        ),
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="The group; may be repeated.", metavar="NAME")
    ] = None,
    all_groups: Annotated[
        bool, typer.Option("--all-groups", help="All groups (--describe, --delete, --reset-offsets).")
    ] = False,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            help="Topic, or some partitions of it (--reset-offsets, --delete-offsets); may be repeated.",
            metavar="NAME[:P,P]",
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics with offsets of the group (--reset-offsets).")
    ] = False,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Offsets and lag (--describe); what is shown by default.")
    ] = False,
    members: Annotated[bool, typer.Option("--members", help="Members (--describe).")] = False,
    state: Annotated[
        str | None,
        typer.Option(
            help="With --describe: the state. With --list: show states, or only groups in some of them.",
            metavar="[STATE,...]",
        ),
    ] = None,
    type_of_group: Annotated[
        str | None,
        typer.Option(
            "--type", help="With --list: show types, or only groups of some of them.", metavar="[TYPE,...]"
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="More columns (--describe).")] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="Reset to the first offset.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Reset to the end.")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="Reset to what is committed.")] = False,
    to_offset: Annotated[int | None, typer.Option(help="Reset to this offset.", metavar="OFFSET")] = None,
    shift_by: Annotated[
        int | None, typer.Option(help="Shift by this many records, backwards if negative.", metavar="N")
    ] = None,
    to_datetime: Annotated[
        str,
        typer.Option(
            help="Reset to the first record at or after a time (UTC if no zone is given).",
            metavar="YYYY-MM-DDTHH:mm:SS.sss",
        ),
    ] = "",
    by_duration: Annotated[
        str, typer.Option(help="Reset to the first record so long ago or later.", metavar="PnDTnHnMnS")
    ] = "",
    from_file: Annotated[
        str, typer.Option(help="Reset to the offsets in a file written by --export.", metavar="CSV")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be reset.")] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Reset, and show it.")] = False,
    export: Annotated[bool, typer.Option("--export", help="Show it as CSV.")] = False,
    timeout: Annotated[
        int,
        typer.Option(
            help="How long to try, in milliseconds.",
            metavar="MS",
            callback=shared_options.in_range(0, shared_options.LARGEST_INT64),
        ),
    ] = 30_000,
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
    version: shared_options.Version = False,
) -> int:
    """List, describe and delete consumer groups, and reset or delete their offsets.

    The action may be a word: `millstream consumer-groups list`, `millstream consumer-groups describe
    billing`.
    """
    if version:
        return shared_options.show_version()
    style = check_style(output)
    actions = {
        "list": list_groups,
        "describe": describe,
        "delete": delete,
        "reset-offsets": reset_offsets,
        "delete-offsets": delete_offsets,
        "validate-regex": validate_regex is not None,
    }
    action = shared_options.chosen_action(actions, ", ".join(f"--{name}" for name in ACTIONS))
    if validate_regex is not None:
        problem = regex_problem(validate_regex)
        verdict = f"invalid: {problem}" if problem else "valid"
        print(f"The regular expression `{validate_regex}` is {verdict}.")
        return 1 if problem else 0
    chosen = {
        "to-offset": to_offset,
        "shift-by": shift_by,
        "to-datetime": to_datetime or None,
        "by-duration": by_duration or None,
        "to-earliest": to_earliest or None,
        "to-latest": to_latest or None,
        "to-current": to_current or None,
        "from-file": from_file or None,
    }
    modes = {name: value for name, value in chosen.items() if value is not None}
    check_options(
        action,
        {
            "group": group,
            "all-groups": all_groups,
            "topic": topic,
            "all-topics": all_topics,
            "offsets": offsets,
            "members": members,
            "verbose": verbose,
            "dry-run": dry_run,
            "execute": execute,
            "export": export,
            **dict.fromkeys(modes, True),
        },
        state,
        type_of_group,
    )
    if reset_offsets and not (dry_run or execute):
        print(NOTHING_WILL_HAPPEN, file=sys.stderr)
    states = parse_states(state) if list_groups and state else []
    types = parse_types(type_of_group) if type_of_group else []
    properties = cluster_access.read_client_properties(command_config)
    with cluster_access.connect(bootstrap_server, properties, "millstream-consumer-groups") as cluster:
        from millstream.client.groups import Groups

        groups = Groups(cluster, timeout / 1000)
        if list_groups:
            report = list_report(groups, states, types, state is not None, type_of_group is not None)
            emit(report, style)
            return 0
        names = (
            [found_group.group_id for found_group in consumer_groups(groups)]
            if all_groups
            else list(group or [])
        )
        if describe:
            from millstream.cli import consumer_groups_describe as describing

            what = "members" if members else "state" if state is not None else "offsets"
            return describing.run(groups, names, what, verbose, style)
        if delete:
            return delete_groups(groups, names, style)
        if delete_offsets:
            return delete_committed_offsets(groups, names[-1], topic or [], style)
        from millstream.cli import consumer_groups_reset as resetting

        mode = next(iter(modes), "")
        plan = resetting.Plan(mode, modes.get(mode), topic or [], all_topics, execute)
        return resetting.run(groups, names, plan, export, len(group or []) == 1, style)


# --- options ------------------------------------------------------------------------------------------------


def check_options(action: str, given: Mapping[str, Any], state: str | None, group_type: str | None) -> None:
    """The rules between options, in the words of Kafka's tool."""
    has = {name for name, value in given.items() if value}
    if action == "describe":
        if not has & {"group", "all-groups"}:
            raise UsageError("Option [describe] takes one of these options: [group], [all-groups]")
        if len(has & {"members", "offsets"}) + (state is not None) > 1:
            raise UsageError(
                "Option [describe] takes at most one of these options: [members], [offsets], [state]"
            )
        if state:
            raise UsageError("Option [describe] does not take a value for [state]")
    else:
        for name in ("members", "verbose", "offsets"):
            if name in has:
                raise UsageError(
                    f"Option(s) [{name}] are unavailable given other options on the command line"
                )
    if (state is not None and action not in ("describe", "list")) or (
        group_type is not None and action != "list"
    ):
        name = "type" if group_type is not None else "state"
        raise UsageError(f"Option(s) [{name}] are unavailable given other options on the command line")
    if action == "delete":
        if not has & {"group", "all-groups"}:
            raise UsageError("Option [delete] takes one of these options: [group], [all-groups]")
        if "topic" in has:
            raise UsageError(
                "The consumer does not support topic-specific offset deletion from a consumer group."
            )
    if action == "delete-offsets":
        if not {"group", "topic"} <= has:
            raise UsageError("Option [delete-offsets] takes the following options: [group], [topic]")
        if len(given["group"]) > 1:
            raise UsageError("Option [delete-offsets] takes one [group] at a time")
    if action == "reset-offsets":
        check_reset(has)
    if {"group", "all-groups"} <= has:
        raise UsageError('Option "[group]" can\'t be used with option "[all-groups]"')
    if action == "list" and has & {"group", "topic"}:
        name = "group" if "group" in has else "topic"
        raise UsageError(f'Option "[{name}]" can\'t be used with option "[list]"')
    if action == "describe" and "topic" in has:
        raise UsageError('Option "[topic]" can\'t be used with option "[describe]"')
    if action != "reset-offsets":
        for name in ("all-topics", "dry-run", "execute", "export", *MODES):
            if name in has:
                raise UsageError(f'Option "[{name}]" can\'t be used with option "[{action}]"')


def check_reset(has: set[str]) -> None:
    if {"dry-run", "execute"} <= has:
        raise UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not has & {"group", "all-groups"}:
        raise UsageError("Option [reset-offsets] takes one of these options: [group], [all-groups]")
    modes = [name for name in MODES if name in has]
    if len(modes) > 1:
        raise UsageError(f'Option "[{modes[0]}]" can\'t be used with option "[{modes[1]}]"')
    if not has & {"topic", "all-topics", "from-file"}:
        raise UsageError("One of the reset scopes should be defined: --all-topics, --topic.")
    if not modes:
        listed = ", ".join(f"[{name}]" for name in MODES)
        raise UsageError(f"Option '[reset-offsets]' requires one of the following scenarios: {listed}")


def parse_states(text: str) -> list[str]:
    known = {name.lower(): name for name in STATES}
    found = [known.get(item.strip().lower()) for item in text.split(",")]
    if None in found:
        raise UsageError(f"Invalid state list '{text}'. Valid states are: {', '.join(STATES)}")
    return [name for name in found if name]


def parse_types(text: str) -> list[str]:
    known = {name.lower(): name for name in TYPES}
    found = [known.get(item.strip().lower()) for item in text.split(",")]
    if None in found:
        raise UsageError(f"Invalid types list '{text}'. Valid types are: {', '.join(TYPES)}")
    return [name for name in found if name]


def regex_problem(pattern: str) -> str:
    """What is wrong with it; empty if nothing is. Brokers match subscriptions by RE2: in linear time, without
    looking ahead or back."""
    import re2

    quiet = re2.Options()
    quiet.log_errors = False
    try:
        re2.compile(pattern, quiet)
    except re2.error as error:
        found = error.args[0]
        text = found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)
        reason = text.partition(": ")[0]
        return RE2_WORDS.get(reason, reason)
    return ""


# --- list ---------------------------------------------------------------------------------------------------


def consumer_groups(groups: "Groups", states: Sequence[str] = (), types: Sequence[str] = ()) -> list[Any]:
    """Groups of consumers: not those of other programs that use the classic protocol, such as Connect's
    workers."""
    return [
        found
        for found in groups.listed(states, types)
        if found.protocol_type in ("", "consumer") and found.type in (*TYPES, "Unknown")
    ]


def list_report(
    groups: "Groups", states: Sequence[str], types: Sequence[str], show_state: bool, show_type: bool
) -> Report:
    found = consumer_groups(groups, states, types)
    lines = [group.group_id for group in found]
    if show_state or show_type:
        width = max([15, *(len(group.group_id) for group in found)]) + 10
        table = [("GROUP", "TYPE", "STATE"), *((group.group_id, group.type, group.state) for group in found)]
        lines = []
        for name, group_type, state in table:
            extra = ([group_type] if show_type else []) + ([state] if show_state else [])
            lines.append(" ".join([f"{name:<{width}}", *(f"{cell:<20}" for cell in extra)]))
    data = [{"group": group.group_id, "type": group.type, "state": group.state} for group in found]
    return Report(
        lines,
        data,
        ["Group", "Type", "State"],
        [[group.group_id, group.type, group.state] for group in found],
    )


# --- delete -------------------------------------------------------------------------------------------------


def sentence(error: "KafkaError") -> str:
    """As Kafka's clients word it, or the broker's own words."""
    return SENTENCES.get(error.code.name) or error.message or f"the broker answers {error.code.name.upper()}"


def delete_groups(groups: "Groups", names: Sequence[str], style: str) -> int:
    outcome = groups.delete(names)
    failed = {name: error for name, error in outcome.items() if error is not None}
    done = [name for name, error in outcome.items() if error is None]
    quoted = ", ".join(f"'{name}'" for name in done)
    lines = [] if failed else [f"Deletion of requested consumer groups ({quoted}) was successful."]
    if failed and done:
        lines = [f"These consumer groups were deleted successfully: {quoted}"]
    data = [
        {"group": name, "deleted": error is None, "error": None if error is None else sentence(error)}
        for name, error in outcome.items()
    ]
    rows = [[entry["group"], "deleted" if entry["deleted"] else entry["error"]] for entry in data]
    emit(Report(lines, data, ["Group", "Status"], rows), style)
    if not failed:
        return 0
    sys.stdout.flush()
    print("Error: Deletion of some consumer groups failed:", file=sys.stderr)
    for name, error in failed.items():
        print(f"* Group '{name}' could not be deleted due to: {sentence(error)}", file=sys.stderr)
    return 1


# --- delete-offsets -----------------------------------------------------------------------------------------


def named_partitions(
    groups: "Groups", topics: Sequence[str]
) -> "tuple[list[TopicPartition], dict[str, KafkaError]]":
    """The partitions of `topic` and `topic:0,2` arguments, and what is wrong with those topics that are not
    there."""
    topic_partitions: list[TopicPartition] = []
    whole: list[str] = []
    for item in topics:
        if ":" not in item:
            whole.append(item)
            continue
        name, _, numbers = item.partition(":")
        if not name or not numbers or ":" in numbers:
            raise UsageError(f"Invalid topic arg '{item}', expected topic name and partitions")
        for number in numbers.split(","):
            if not number.isdecimal() or int(number) > shared_options.LARGEST_INT32:
                raise UsageError(f"Invalid partition '{number}' specified in topic arg '{item}'")
            topic_partitions.append(TopicPartition(name, int(number)))
    problems = groups.cluster.refresh(whole) if whole else {}
    for name in whole:
        if name not in problems:
            topic_partitions += [
                TopicPartition(name, number) for number in groups.cluster.topics[name].partitions
            ]
    return list(dict.fromkeys(topic_partitions)), problems


def delete_committed_offsets(groups: "Groups", name: str, topics: Sequence[str], style: str) -> int:
    from millstream.wire.errors import KafkaError

    topic_partitions, problems = named_partitions(groups, topics)
    outcome: dict[tuple[str, int | None], str] = {
        (topic, None): sentence(error) for topic, error in problems.items()
    }
    whole = ""
    try:
        for topic_partition, error in groups.delete_offsets(name, topic_partitions).items():
            outcome[topic_partition] = "" if error is None else sentence(error)
    except KafkaError as error:
        if error.code.retriable:
            raise
        whole = sentence(error)
        outcome.update(dict.fromkeys(topic_partitions, whole))
    failed = any(outcome.values())
    if whole:
        print(f"Error: {whole}", file=sys.stderr)
    elif failed:
        print("Error: Encountered some partition-level error, see the follow-up details.", file=sys.stderr)
    rows: list[list[Any]] = [
        [topic, "-" if number is None else number, f"Error: {problem}" if problem else "Successful"]
        for (topic, number), problem in sorted(
            outcome.items(), key=lambda item: (item[0][0], item[0][1] or -1)
        )
    ]
    width = max([15, *(len(topic) for topic, _ in outcome)])
    lines = [] if failed else [f"Request succeeded for deleting offsets from group {name}."]
    lines.append("")
    head: list[Any] = ["TOPIC", "PARTITION", "STATUS"]
    lines += [f"{topic:<{width}} {number:<10} {status:<15}" for topic, number, status in [head, *rows]]
    data = [
        {"group": name, "topic": topic, "partition": number, "deleted": not problem, "error": problem or None}
        for (topic, number), problem in outcome.items()
    ]
    emit(Report(lines, data, ["Topic", "Partition", "Status"], rows), style)
    return 1 if failed else 0
