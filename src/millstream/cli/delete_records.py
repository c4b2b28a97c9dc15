"""`millstream delete-records`: what kafka-delete-records.sh does."""

from typing import Annotated, Any

import typer

from millstream.cli import cluster_access, json_file, shared_options
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report, check_style, emit
from millstream.cli.progress import progress
from millstream.wire.topic_partition import TopicPartition

AT_ONCE = 200  # partitions in one request


def command(
    offset_json_file: Annotated[
        str,
        typer.Option(
            help='Which partitions, and up to which offset: {"partitions": [{"topic": "orders", '
            '"partition": 0, '
            '"offset": 100}], "version": 1}. The record at the offset stays; -1 means all. Required.',
            metavar="FILE",
        ),
    ] = "",
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
    version: shared_options.Version = False,
) -> int:
    """Delete the records of partitions before an offset."""
    if version:
        return shared_options.show_version()
    style = check_style(output)
    if not offset_json_file:
        raise UsageError('Missing required argument "[offset-json-file]"')
    try:
        with open(offset_json_file, encoding="utf-8") as file:
            wanted = parse_offsets(file.read())
    except (OSError, UnicodeDecodeError):
        raise CommandFailed(f"Unable to read file {offset_json_file}") from None
    properties = cluster_access.read_client_properties(command_config)
    with cluster_access.connect(bootstrap_server, properties, "millstream-delete-records") as cluster:
        from millstream.client.admin import Admin
        from millstream.wire.errors import KafkaError

        outcome: dict[TopicPartition, int | KafkaError] = {}
        topic_partitions = list(wanted)
        with progress("deleting", len(topic_partitions), "partitions") as bar:
            for at in range(0, len(topic_partitions), AT_ONCE):
                some = {
                    topic_partition: wanted[topic_partition]
                    for topic_partition in topic_partitions[at : at + AT_ONCE]
                }
                outcome.update(Admin(cluster).delete_records(some))
                bar.advance(len(some))
    lines = ["Executing records delete operation", "Records delete operation completed:"]
    data: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    failed = 0
    for topic, partition in wanted:
        answer = outcome[TopicPartition(topic, partition)]
        entry: dict[str, Any] = {"topic": topic, "partition": partition}
        if isinstance(answer, KafkaError):
            failed += 1
            problem = f"{answer.code.name.upper()}: {answer.message}"
            lines.append(f"partition: {topic}-{partition}\terror: {problem}")
            data.append({**entry, "error": problem})
            rows.append([topic, partition, None, problem])
        else:
            lines.append(f"partition: {topic}-{partition}\tlow_watermark: {answer}")
            data.append({**entry, "low_watermark": answer})
            rows.append([topic, partition, answer, None])
    emit(Report(lines, data, ["Topic", "Partition", "First offset", "Error"], rows), style)
    return 1 if failed else 0


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    entries = json_file.versioned(text).get("partitions")
    if not isinstance(entries, list):
        raise CommandFailed("Missing partitions field")
    found: dict[TopicPartition, int] = {}
    twice: list[str] = []
    for entry in entries:
        topic = json_file.field(entry, "topic", str)
        partition = json_file.number(entry, "partition", -1, shared_options.LARGEST_INT32)
        topic_partition = TopicPartition(topic, partition)
        if topic_partition in found:
            twice.append(f"{topic_partition}")
        found[topic_partition] = json_file.number(entry, "offset", -1, shared_options.LARGEST_INT64)
    if twice:
        raise CommandFailed(f"Offset json file contains duplicate topic partitions: {','.join(twice)}")
    return found
