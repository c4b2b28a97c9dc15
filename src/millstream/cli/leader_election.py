"""`millstream leader-election`: what kafka-leader-election.sh does."""

import json
from typing import Annotated, Any

import typer

from millstream.cli import cluster_access, json_file, shared_options
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report, check_style, emit
from millstream.wire.topic_partition import TopicPartition

REMOVED: dict[str, str] = {}
TYPES = ("preferred", "unclean")


def command(
    election_type: Annotated[
        str,
        typer.Option(
            help="preferred: leadership goes to the first replica of each partition, if it is in sync. "
            "unclean: a partition without a leader gets one that is not in sync, and loses what that one "
            "does not have. Required.",
            metavar="TYPE",
        ),
    ] = "",
    topic: Annotated[str, typer.Option(help="The topic; with --partition.", metavar="NAME")] = "",
    partition: shared_options.PartitionOfTopic = None,
    path_to_json_file: Annotated[
        str,
        typer.Option(
            help='Partitions: {"partitions": [{"topic": "orders", "partition": 1}]}.', metavar="FILE"
        ),
    ] = "",
    all_topic_partitions: Annotated[
        bool, typer.Option("--all-topic-partitions", help="Every partition that needs an election.")
    ] = False,
    admin_config: Annotated[
        str, typer.Option("--admin.config", help="The old name of --command-config.", metavar="FILE")
    ] = "",
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
    version: shared_options.Version = False,
) -> int:
    """Elect the leaders of partitions anew."""
    if version:
        return shared_options.show_version()
    style = check_style(output)
    shared_options.warn_of_old_names(("--admin.config", admin_config, "--command-config", command_config))
    if not election_type:
        raise UsageError("Missing required option(s): election-type")
    if election_type.lower() not in TYPES:
        raise UsageError(
            f"Cannot parse argument '{election_type}' of option election-type: use preferred or unclean"
        )
    ways = [bool(topic), bool(path_to_json_file), all_topic_partitions]
    if sum(ways) != 1:
        raise UsageError(
            "One and only one of the following options is required: topic, all-topic-partitions, "
            "path-to-json-file"
        )
    if bool(topic) != (partition is not None):
        raise UsageError(
            "Missing required option(s): partition"
            if topic
            else "Option partition is only allowed if topic is used"
        )
    wanted: list[TopicPartition] | None = None
    if topic and partition is not None:
        wanted = [TopicPartition(topic, partition)]
    elif path_to_json_file:
        wanted = read_partitions(path_to_json_file)
    properties = cluster_access.read_client_properties(command_config or admin_config)
    with cluster_access.connect(bootstrap_server, properties, "millstream-leader-election") as cluster:
        from millstream.client.cluster_admin import ClusterAdmin
        from millstream.wire.errors import ErrorCode, KafkaError

        try:
            outcome = ClusterAdmin(cluster).elect_leaders(wanted, election_type.lower() == "unclean")
        except KafkaError as error:
            if error.code is ErrorCode.request_timed_out:
                raise CommandFailed("Timeout waiting for election results") from None
            if error.code is ErrorCode.cluster_authorization_failed:
                raise CommandFailed("Not authorized to perform leader election") from None
            raise
        not_needed = [
            key for key, error in outcome.items() if error and error.code is ErrorCode.election_not_needed
        ]
        failed = {key: error for key, error in outcome.items() if error and key not in not_needed}
    kind = election_type.upper()
    elected = [key for key, error in outcome.items() if error is None]
    lines = []
    if elected:
        names = ", ".join(map(str, sorted(elected)))
        lines.append(f"Successfully completed leader election ({kind}) for partitions {names}")
    if not_needed:
        lines.append(
            f"Valid replica already elected for partitions {', '.join(map(str, sorted(not_needed)))}"
        )
    for key in sorted(failed):
        lines.append(
            f"Error completing leader election ({kind}) for partition: {key}: {problem(failed[key])}"
        )
    rows: list[list[Any]] = []
    for key in sorted(outcome):
        result = "elected" if key in elected else "not needed" if key in not_needed else "failed"
        rows.append([*key, result, problem(failed[key]) if key in failed else None])
    data = [
        {"topic": row[0], "partition": row[1], "result": row[2], **({"error": row[3]} if row[3] else {})}
        for row in rows
    ]
    emit(Report(lines, data, ["Topic", "Partition", "Result", "Error"], rows), style)
    if failed:
        raise CommandFailed(f"{len(failed)} replica(s) could not be elected")
    return 0


def problem(error: Any) -> str:
    return f"{error.code.name.upper()}: {error.message}" if error.message else str(error.code.name.upper())


def read_partitions(path: str) -> list[TopicPartition]:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError):
        raise CommandFailed(f"Unable to read file {path}") from None
    try:
        content = json.loads(text)
    except ValueError:
        raise CommandFailed("Replica election data is empty or no JSON") from None
    if not isinstance(content, dict) or not isinstance(content.get("partitions"), list):
        raise CommandFailed('Replica election data is missing "partitions" field')
    found: list[TopicPartition] = []
    for entry in content["partitions"]:
        topic = json_file.field(entry, "topic", str)
        key = TopicPartition(topic, json_file.number(entry, "partition", 0, shared_options.LARGEST_INT32))
        if key in found:
            raise CommandFailed(f"Replica election data contains duplicate partitions: {key}")
        found.append(key)
    if not found:
        raise CommandFailed("Replica election data names no partition")
    return found
