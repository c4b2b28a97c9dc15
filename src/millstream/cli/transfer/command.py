"""`millstream topics export` and `millstream topics import`."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from millstream.cli import cluster_access, shared_options
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report, check_style, emit
from millstream.wire.topic_partition import TopicPartition

FORMATS = ("parquet", "json", "avro")

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)]
Folder = Annotated[str, typer.Argument(metavar="FOLDER", help="The folder of the files.", show_default=False)]
Format = Annotated[str, typer.Option("--format", metavar="FORMAT", help="parquet, json (lines) or avro.")]
Master = Annotated[
    str, typer.Option(metavar="MASTER", help="Spark's master; local[*] otherwise.", show_default=False)
]


def export_topic(
    topic: Topic,
    folder: Folder,
    form: Format = "parquet",
    from_time: Annotated[
        str, typer.Option(metavar="TIME", help="Only records from a time on: 2026-01-31T12:30Z, -1h, ...")
    ] = "",
    to_time: Annotated[str, typer.Option(metavar="TIME", help="Only records before a time.")] = "",
    isolation_level: Annotated[
        str, typer.Option(metavar="LEVEL", help="read_committed or read_uncommitted.")
    ] = "read_committed",
    master: Master = "",
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
) -> int:
    """Write the records of a topic to files, as many at a time as there are cores.

    Each record keeps key, value, headers, partition, offset and timestamp. In JSON lines keys and values are
    text where they are UTF-8, and base64 under another name (value_base64) where not.
    """
    style = check_format(form, output)
    if isolation_level not in ("read_committed", "read_uncommitted"):
        raise UsageError(f"isolation level {isolation_level}: use read_committed or read_uncommitted")
    bounds: dict[str, str] = {}
    if from_time:
        bounds["startingTimestamp"] = parse_moment(from_time, "--from-time")
        # A partition without a younger record has nothing to export.
        bounds["startingOffsetsByTimestampStrategy"] = "latest"
    if to_time:
        bounds["endingTimestamp"] = parse_moment(to_time, "--to-time")
    target = Path(folder).absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CommandFailed(f"{target} is there already and not empty: choose another folder")
    options = connection_options(bootstrap_server, command_config)
    options |= {"kafka.isolation.level": isolation_level, **bounds}
    require_spark()
    total = records_of(topic, bootstrap_server, command_config)
    from millstream.cli.transfer import jobs

    began = time.monotonic()
    count = jobs.run(
        "exporting",
        total,
        master,
        lambda spark: jobs.export_records(spark, options, topic, str(target), form, total),
    )
    say("Exported", count, topic, f"to {target}", form, target, time.monotonic() - began, style)
    return 0


def import_topic(
    topic: Topic,
    folder: Folder,
    form: Format = "parquet",
    keep_partitions: Annotated[
        bool,
        typer.Option(
            "--keep-partitions", help="Send each record to the partition it had; otherwise its key decides."
        ),
    ] = False,
    master: Master = "",
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
) -> int:
    """Send the records of files to a topic, in the order they had in their partitions.

    Files may also come from elsewhere: a column `value` is needed; `key`, `headers`, `partition` and `offset`
    may be there. Records get new offsets, and the time of the import as their timestamp.
    """
    style = check_format(form, output)
    source = Path(folder).absolute()
    if not source.exists():
        raise CommandFailed(f"{source} is not there")
    options = connection_options(bootstrap_server, command_config)
    require_spark()
    from millstream.cli.transfer import jobs

    began = time.monotonic()
    count = jobs.run(
        "importing",
        None,
        master,
        lambda spark: jobs.import_records(spark, options, topic, str(source), form, keep_partitions),
    )
    say("Imported", count, topic, f"from {source}", form, source, time.monotonic() - began, style)
    return 0


def check_format(form: str, output: str) -> str:
    if form not in FORMATS:
        raise UsageError(f"--format {form}: use one of {', '.join(FORMATS)}")
    return check_style(output)


def parse_moment(text: str, option: str) -> str:
    from millstream.filters import BadTime, parse_time

    try:
        return str(parse_time(text))
    except BadTime as error:
        raise UsageError(f"{option} {error}") from None


def connection_options(servers: str, command_config: str) -> dict[str, str]:
    """The cluster and its client settings, as options of the Spark source and sink."""
    from millstream.cli.profile_store import SERVERS, with_profile

    properties = with_profile(servers, cluster_access.read_client_properties(command_config))
    if servers:
        properties[SERVERS] = servers
    if SERVERS not in properties:
        raise UsageError("--bootstrap-server must be specified, or a profile (millstream -p NAME)")
    return {f"kafka.{name}": value for name, value in properties.items() if not name.startswith("schema.")}


def require_spark() -> None:
    import importlib.util

    if importlib.util.find_spec("pyspark") is None:
        raise CommandFailed("this needs Spark, which is not installed: pip install 'millstream[pipelines]'")


def records_of(topic: str, servers: str, command_config: str) -> int:
    """About how many records there are; and one line if the topic is not there, before Spark is started."""
    from millstream.client import EARLIEST, LATEST, list_offsets

    with cluster_access.connect(
        servers, cluster_access.read_properties(command_config), "millstream-export"
    ) as cluster:
        problem = cluster.refresh([topic]).get(topic)
        if problem is not None:
            raise problem
        topic_partitions = [TopicPartition(topic, number) for number in cluster.topics[topic].partitions]
        ends = list_offsets(cluster, dict.fromkeys(topic_partitions, LATEST))
        starts = list_offsets(cluster, dict.fromkeys(topic_partitions, EARLIEST))
    return sum(
        ends[topic_partition].offset - starts[topic_partition].offset for topic_partition in topic_partitions
    )


def say(
    did: str, count: int, topic: str, where: str, form: str, folder: Path, seconds: float, style: str
) -> None:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(("_", "."))]
    size = sum(path.stat().st_size for path in files)
    facts: dict[str, Any] = {
        "topic": topic,
        "records": count,
        "folder": str(folder),
        "format": form,
        "files": len(files),
        "bytes": size,
        "seconds": round(seconds, 2),
    }
    line = (
        f"{did} {count:,} records of {topic} {where} ({form}, {len(files)} files, {size / 1e6:.1f} MB) "
        f"in {seconds:.1f} s."
    )
    emit(Report([line], facts, [name.capitalize() for name in facts], [list(facts.values())]), style)
