"""The Spark jobs behind `topics export` and `topics import`."""

import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.cli.errors import CommandFailed
from millstream.cli.progress import Progress, progress
from millstream.cli.transfer import avro_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS_PER_TASK = 500_000  # larger exports are split further than by partition
LOOK_EVERY = 0.2

COLUMNS = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")


def run(what: str, total: int | None, master: str, job: "Callable[[SparkSession], int]") -> int:
    """Start Spark and do the job; a thread beside it shows how far it is by the tasks that are done. (Not the
    other way round: Spark finds its data sources by the session of the thread.) What Spark logs goes to a
    file that stays only if the job fails."""
    from pyspark.sql import SparkSession

    from millstream.spark.errors import PipelineError, explain

    ours = SparkSession.getActiveSession() is None  # else it belongs to whoever started it
    number, name = tempfile.mkstemp(prefix="millstream-spark-", suffix=".log")
    os.close(number)
    log = Path(name)
    session = start(what, master, log)
    finished = threading.Event()

    def watch(bar: Progress) -> None:
        shown = 0.0
        while total and not finished.wait(LOOK_EVERY):
            done = finished_share(session)
            if done > shown:
                bar.advance(round(total * done) - round(total * shown))
                shown = done

    try:
        with progress(what, total or None, "records") as bar:
            watcher = threading.Thread(target=watch, args=(bar,), daemon=True)
            watcher.start()
            try:
                count = job(session)
            finally:
                finished.set()
                watcher.join()
    except (CommandFailed, KeyboardInterrupt):
        raise
    except PipelineError as error:
        raise CommandFailed(error.message) from None
    except Exception as error:
        reason = explain(error) or f"{short_cause(error)} (its log is {log})"
        raise CommandFailed(reason) from None
    finally:
        if ours:
            session.stop()
    log.unlink(missing_ok=True)
    return count


def start(what: str, master: str, log: Path) -> "SparkSession":
    from millstream.spark.datasource import MillstreamDataSource
    from millstream.spark.session import spark, stderr_to

    try:
        with stderr_to(log):
            session = spark(f"millstream-{what}", {}, master or None)
    except Exception as error:
        raise CommandFailed(f"Spark does not start: {error} (its log is {log})") from None
    # Spark looks for data sources by itself only in its first session.
    session.dataSource.register(MillstreamDataSource)
    return session


def short_cause(error: BaseException) -> str:
    """The line that matters out of one of Spark's long texts: the innermost cause, else the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [
        line
        for line in lines
        if line.startswith("Caused by:") or ("Exception: " in line and line[:3] == "org")
    ]
    chosen = causes[-1] if causes else lines[0] if lines else type(error).__name__
    return f"Spark: {chosen.removeprefix('Caused by:').strip()}"


def finished_share(session: "SparkSession") -> float:
    try:
        tracker = session.sparkContext.statusTracker()
        infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        tasks = sum(info.numTasks for info in infos if info is not None)
        return sum(info.numCompletedTasks for info in infos if info is not None) / tasks if tasks else 0.0
    except Exception:
        return 0.0  # Spark is on its way up or down


# --- export -------------------------------------------------------------------------------------------------


def export_records(
    spark: "SparkSession", options: dict[str, str], topic: str, folder: str, form: str, total: int
) -> int:
    reader = spark.read.format("millstream").options(**options)
    reader = reader.option("subscribe", topic).option("includeHeaders", "true")
    if total > RECORDS_PER_TASK:
        reader = reader.option("minPartitions", str(-(-total // RECORDS_PER_TASK)))
    rows = reader.load().select(*COLUMNS)
    if form == "avro":
        return export_avro(rows, folder)
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation("export_records")
    rows = rows.observe(seen, f.count(f.lit(1)).alias("records"))
    if form == "json":
        as_text(rows).write.json(folder)
    else:
        # Spark's default is INT96, which is out of use elsewhere and not what the files without Spark have.
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        rows.write.parquet(folder)
    return int(seen.get["records"])


def export_avro(rows: "DataFrame", folder: str) -> int:
    plain = rows.selectExpr(
        "key", "value", "headers", "topic", "partition", "offset", "unix_millis(timestamp) timestamp"
    )
    written = plain.rdd.mapPartitionsWithIndex(avro_files.writing(folder)).collect()
    os.makedirs(folder, exist_ok=True)  # also for an empty topic
    return sum(written)


def as_text(rows: "DataFrame") -> "DataFrame":
    """Bytes as text where they are UTF-8, as base64 under another name where not."""

    def both(name: str, inside: str = "") -> list[str]:
        column = f"{inside}{name}"
        valid = f"is_valid_utf8(cast({column} as string))"
        return [
            f"case when {valid} then cast({column} as string) end",
            f"case when not {valid} then base64({column}) end",
        ]

    header = both("value", "header.")
    headers = (
        "case when size(headers) > 0 then transform(headers, header -> named_struct('key', header.key, "
        "'value', "
        f"{header[0]}, 'value_base64', {header[1]})) end headers"
    )
    columns = []
    for name in ("key", "value"):
        text, coded = both(name)
        columns += [f"{text} {name}", f"{coded} {name}_base64"]
    return rows.selectExpr("topic", "partition", "offset", "timestamp", *columns, headers)


# --- import -------------------------------------------------------------------------------------------------


def import_records(
    spark: "SparkSession", options: dict[str, str], topic: str, folder: str, form: str, keep_partitions: bool
) -> int:
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    rows = {"parquet": read_parquet, "json": read_json, "avro": read_avro}[form](spark, folder)
    if "value" not in rows.columns:
        raise CommandFailed(
            f"the files in {folder} have no column 'value'; they have {', '.join(rows.columns)}"
        )
    if {"partition", "offset"} <= set(rows.columns):
        # All of a partition in one task and in its order: what was in order comes back in order.
        rows = rows.repartition("partition").sortWithinPartitions("partition", "offset")
    elif keep_partitions:
        raise CommandFailed("--keep-partitions needs the columns 'partition' and 'offset'")
    wanted: list[str] = [name for name in ("key", "value", "headers") if name in rows.columns]
    if keep_partitions:
        wanted.append("partition")
    seen = Observation("import")
    rows = rows.select(*wanted).observe(seen, f.count(f.lit(1)).alias("records"))
    rows.write.format("millstream").options(**options).option("topic", topic).mode("append").save()
    return int(seen.get["records"])


def read_parquet(spark: "SparkSession", folder: str) -> "DataFrame":
    return spark.read.parquet(folder)


def read_avro(spark: "SparkSession", folder: str) -> "DataFrame":
    path = Path(folder)
    files = sorted(map(str, path.rglob("*.avro"))) if path.is_dir() else [folder]
    if not files:
        raise CommandFailed(f"there are no .avro files in {folder}")
    rows = spark.sparkContext.parallelize(files, len(files)).flatMap(avro_files.reading)
    return spark.createDataFrame(rows, avro_files.READ, verifySchema=False)


def read_json(spark: "SparkSession", folder: str) -> "DataFrame":
    header = "array<struct<key:string,value:string,value_base64:string>>"
    schema = (
        "key string, key_base64 string, value string, value_base64 string, partition int, offset bigint, "
        f"headers {header}"
    )
    # Otherwise a line that is not JSON would become a record without key and value.
    rows = spark.read.option("mode", "FAILFAST").schema(schema).json(folder)
    back = "coalesce(cast({0} as binary), unbase64({0}_base64))"
    headers = (
        "transform(headers, header -> named_struct('key', header.key, 'value', "
        + "coalesce(cast(header.value as binary), unbase64(header.value_base64)))) headers"
    )
    columns = [f"{back.format(name)} {name}" for name in ("key", "value")]
    columns.append(headers)
    found = rows.selectExpr("partition", "offset", *columns)
    first = rows.select("partition", "offset").head()
    if first is not None and first["offset"] is None:  # not written by us
        found = found.drop("partition", "offset")
    return found
