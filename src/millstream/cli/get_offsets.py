"""`millstream get-offsets`: what kafka-get-offsets.sh does."""

import re
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from millstream.cli import cluster_access, shared_options
from millstream.cli.cluster_access import INTERNAL_TOPICS
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report, check_style, emit
from millstream.wire.topic_partition import TopicPartition

REMOVED = {
    "--offsets": "each partition has one answer: leave it out",
    "--max-wait-ms": "leave it out; request.timeout.ms can be set in a --command-config file",
}

TIMES = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}

Filter = Callable[[str, int], bool]

_PATTERN = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")


def command(
    topic: Annotated[
        str, typer.Option(help="Topic, also a regular expression. Without it: all.", metavar="NAME")
    ] = "",
    partitions: Annotated[str, typer.Option(help="Partitions. Without it: all.", metavar="N,...")] = "",
    topic_partitions: Annotated[
        str,
        typer.Option(
            help="Topics (regular expressions) with partitions: orders:1, orders:0-3 (without 3), orders:5-, "
            "orders:-3, orders.",
            metavar="T:P,...",
        ),
    ] = "",
    time: Annotated[
        str,
        typer.Option(
            help="Which offset: latest (-1), earliest (-2), max-timestamp (-3), earliest-local (-4), "
            "latest-tiered "
            "(-5), earliest-pending-upload (-6), or milliseconds: the first record at or after that time.",
            metavar="TIME",
        ),
    ] = "latest",
    exclude_internal_topics: Annotated[
        bool, typer.Option("--exclude-internal-topics", help="Leave out internal topics.")
    ] = False,
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
    version: shared_options.Version = False,
) -> int:
    """Show the offsets of partitions, as topic:partition:offset. A partition that has no such offset is left
    out."""
    if version:
        return shared_options.show_version()
    style = check_style(output)
    if topic_partitions and (topic or partitions):
        raise UsageError("--topic-partitions cannot be used with --topic or --partitions")
    moment = parse_time(time)
    wanted = pattern_filter(topic_partitions) if topic_partitions else plain_filter(topic, partitions)
    properties = cluster_access.read_client_properties(command_config)
    with cluster_access.connect(bootstrap_server, properties, "millstream-get-offsets") as cluster:
        from millstream.client import list_offsets

        cluster.refresh()
        matching = sorted(
            (name, index)
            for name, found in cluster.topics.items()
            if not (exclude_internal_topics and name in INTERNAL_TOPICS)
            for index in found.partitions
            if wanted(name, index)
        )
        if not matching:
            raise CommandFailed("Could not match any topic-partitions with the specified filters")
        for name, index in matching:
            if cluster.topics[name].partitions[index].leader not in cluster.nodes:
                print(
                    f"Skip getting offsets for topic-partition {name}:{index}: it has no leader",
                    file=sys.stderr,
                )
        answers = list_offsets(
            cluster,
            {
                TopicPartition(name, index): moment
                for name, index in matching
                if cluster.topics[name].partitions[index].leader in cluster.nodes
            },
        )
    rows = [
        (*topic_partition, answer.offset)
        for topic_partition, answer in sorted(answers.items())
        if answer.offset >= 0
    ]
    data = [{"topic": name, "partition": index, "offset": offset} for name, index, offset in rows]
    lines = [f"{name}:{index}:{offset}" for name, index, offset in rows]
    emit(Report(lines, data, ["Topic", "Partition", "Offset"], rows), style)
    return 0


def parse_time(text: str) -> int:
    if text in TIMES:
        return TIMES[text]
    try:
        number = int(text)
    except ValueError:
        number = -100
    if not min(TIMES.values()) <= number <= shared_options.LARGEST_INT64:
        words = ", ".join(f"{word} ({number})" for word, number in TIMES.items())
        raise UsageError(f"Malformed time argument {text}. Use {words}, or milliseconds since 1970")
    return number


def plain_filter(topic: str, partitions: str) -> Filter:
    """--topic and --partitions."""
    matcher = cluster_access.topic_matcher(topic) if topic else None
    numbers: set[int] | None = None
    if partitions:
        try:
            numbers = {int(item) for item in partitions.split(",") if item.strip()}
        except ValueError:
            raise UsageError(
                f"--partitions expects a comma separated list of numeric partition ids, but received: "
                f"{partitions}"
            ) from None
    return lambda name, index: (
        (matcher is None or matcher.fullmatch(name) is not None) and (numbers is None or index in numbers)
    )


def pattern_filter(text: str) -> Filter:
    """--topic-partitions: any of several patterns."""
    rules = [_rule(item.strip()) for item in text.split(",") if item.strip()]
    return lambda name, index: any(rule(name, index) for rule in rules)


def _rule(item: str) -> Filter:
    match = _PATTERN.fullmatch(item)
    if match is None:
        raise UsageError(f"Invalid rule specification: {item}")
    topic, exact, low, high = match.groups()
    matcher = cluster_access.topic_matcher(topic) if topic else None
    first = int(exact or low or 0)
    last = first + 1 if exact else int(high) if high else 1 << 31

    return lambda name, index: (
        (matcher is None or matcher.fullmatch(name) is not None) and first <= index < last
    )
