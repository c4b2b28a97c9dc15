"""`millstream topics export` and `millstream topics import`."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli import cluster_access, shared_options
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report, check_style, emit
from millstream.cli.progress import progress
from millstream.cli.transfer import local_transfer, record_files

if TYPE_CHECKING:
    from millstream.cli.transfer.record_files import Row

FORMATS = ("parquet", "json", "avro")

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)]
Folder = Annotated[str, typer.Argument(metavar="FOLDER", help="The folder of the files.", show_default=False)]
Format = Annotated[str, typer.Option("--format", metavar="FORMAT", help="parquet, json (lines) or avro.")]
Master = Annotated[
    str,
    typer.Option(
        metavar="MASTER",
        help="Spark's master (this machine). With it Spark does the work, however little it is.",
        show_default=False,
    ),
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
    """Write the records of a topic to files: up to 500,000 of them by this program alone, more by Spark.

    Each record keeps key, value, headers, partition, offset and timestamp. In JSON lines keys and values are
    text where they are UTF-8, and base64 under another name (value_base64) where not.
    """
    style = check_format(form, output)
    if isolation_level not in ("read_committed", "read_uncommitted"):
        raise UsageError(f"isolation level {isolation_level}: use read_committed or read_uncommitted")
    committed = isolation_level == "read_committed"
    start = parse_moment(from_time, "--from-time")
    end = parse_moment(to_time, "--to-time")
    target = Path(folder).absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CommandFailed(f"{target} is there already and not empty: choose another folder")
    properties = client_settings(bootstrap_server, command_config)
    began = time.monotonic()
    with cluster_access.connect(bootstrap_server, properties, "millstream-export") as cluster:
        ranges = local_transfer.offset_ranges(cluster, topic, start, end, committed)
        total = sum(map(len, ranges.values()))
        if not master and total <= local_transfer.MAX_RECORDS:
            require_files(form)
            with progress("exporting", total, "records") as bar:
                count = local_transfer.export_records(cluster, ranges, target, form, committed, bar)
            say("Exported", count, topic, f"to {target}", form, target, time.monotonic() - began, style)
            return 0
    options = {**spark_options(properties), "kafka.isolation.level": isolation_level}
    if start is not None:
        options["startingTimestamp"] = str(start)
        # A partition without a younger record has nothing to export.
        options["startingOffsetsByTimestampStrategy"] = "latest"
    if end is not None:
        options["endingTimestamp"] = str(end)
    require_spark()
    from millstream.cli.transfer import jobs

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
    """Send the records of files to a topic, in the order they had in their partitions: up to 500,000 records
    of up to 256 MB by this program alone, more by Spark.

    Files may also come from elsewhere: a column `value` is needed; `key`, `headers`, `partition` and `offset`
    may be there. Records get new offsets, and the time of the import as their timestamp.
    """
    style = check_format(form, output)
    source = Path(folder).absolute()
    if not source.exists():
        raise CommandFailed(f"{source} is not there")
    properties = client_settings(bootstrap_server, command_config)
    began = time.monotonic()
    rows = None if master else small_files(source, form)
    if rows is not None:
        if keep_partitions and rows and rows[0].offset is None:
            raise CommandFailed("--keep-partitions needs the columns 'partition' and 'offset'")
        with (
            cluster_access.connect(bootstrap_server, properties, "millstream-import") as cluster,
            progress("importing", len(rows), "records") as bar,
        ):
            count = local_transfer.import_records(cluster, properties, topic, rows, keep_partitions, bar)
    else:
        options = spark_options(properties)
        require_spark()
        from millstream.cli.transfer import jobs

        count = jobs.run(
            "importing",
            None,
            master,
            lambda spark: jobs.import_records(spark, options, topic, str(source), form, keep_partitions),
        )
    say("Imported", count, topic, f"from {source}", form, source, time.monotonic() - began, style)
    return 0


def small_files(source: Path, form: str) -> "list[Row] | None":
    """All that is in the files, or None if that is Spark's work."""
    require_files(form)
    try:
        return record_files.read_all(source, form, local_transfer.MAX_RECORDS, local_transfer.MAX_BYTES)
    except record_files.NeedsSpark:
        return None


def check_format(form: str, output: str) -> str:
    if form not in FORMATS:
        raise UsageError(f"--format {form}: use one of {', '.join(FORMATS)}")
    return check_style(output)


def parse_moment(text: str, option: str) -> int | None:
    if not text:
        return None
    from millstream.filters import BadTime, parse_time

    try:
        return parse_time(text)
    except BadTime as error:
        raise UsageError(f"{option} {error}") from None


def client_settings(servers: str, command_config: str) -> dict[str, str]:
    """The cluster and its client settings, by Kafka's names."""
    from millstream.cli.profile_store import SERVERS, with_profile

    properties = with_profile(servers, cluster_access.read_client_properties(command_config))
    if servers:
        properties[SERVERS] = servers
    if SERVERS not in properties:
        raise UsageError("--bootstrap-server must be specified, or a profile (millstream -p NAME)")
    return properties


def spark_options(properties: Mapping[str, str]) -> dict[str, str]:
    """The same as options of the Spark source and sink."""
    return {f"kafka.{name}": value for name, value in properties.items() if not name.startswith("schema.")}


def require_spark() -> None:
    import importlib.util

    if importlib.util.find_spec("pyspark") is None:
        raise CommandFailed("this needs Spark, which is not installed: pip install 'millstream[pipelines]'")
    from millstream.spark.runner.java import java_problem

    problem = java_problem()
    if problem is not None:
        raise CommandFailed(problem)


def require_files(form: str) -> None:
    import importlib.util

    module = {"parquet": "pyarrow", "avro": "fastavro"}.get(form, "")
    if module and importlib.util.find_spec(module) is None:
        raise CommandFailed(
            f"--format {form} needs {module}, which is not installed: pip install 'millstream[pipelines]' "
            "(json needs nothing more)"
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
