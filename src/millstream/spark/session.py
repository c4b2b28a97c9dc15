"""A Spark session whose settings suit micro-batches on one machine, and which any master can take over.

    from millstream.spark.session import spark
    spark().readStream.format("millstream")...

This machine (`default_master`), unless a master is named here, in the environment (MILLSTREAM_SPARK_MASTER)
or in Spark's own configuration. One SparkContext per process; `spark(name, settings)` gives each pipeline a
session of its own whose SQL settings do not leak.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.spark.errors import PipelineError
from millstream.spark.lost import forget_lost, why_lost
from millstream.spark.resources import watch_resources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER_VARIABLE = "MILLSTREAM_SPARK_MASTER"
LOG_VARIABLE = "MILLSTREAM_SPARK_LOG"  # a level of log4j
# These log, with Java's stack, what a query, a task or a write has failed with; its user gets that as an
# exception anyway.
_LOGGED_TWICE = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.datasources.v2.AppendDataExec",
    "org.apache.spark.sql.execution.datasources.v2.DataWritingSparkTask",
    "org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2Exec",
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution",
    "org.apache.spark.util.Utils",
)

# Why each is here: `docs/pipelines.md`. All of them can be overridden by the caller.
CONTEXT_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.python.daemon.module": "millstream.spark.daemon",
    "spark.python.worker.reuse": "true",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -Djdk.lang.Process.launchMechanism=VFORK",
}
SQL_SETTINGS = {
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.arrow.maxBytesPerBatch": "262144",
}


def spark(
    name: str = "millstream", settings: Mapping[str, str] | None = None, master: str | None = None
) -> "SparkSession":
    """A session for one pipeline. The first call in a process starts Spark (some seconds)."""
    from pyspark.sql import SparkSession

    wanted = dict(settings or {})
    running = running_session()
    if running is None:
        refuse_connect(master or wanted.get("spark.master"))
        chosen = master or wanted.get("spark.master") or os.environ.get(MASTER_VARIABLE) or default_master()
        settings = {**CONTEXT_SETTINGS, **SQL_SETTINGS, **_faster_start(chosen, wanted), **wanted}
        builder = SparkSession.builder.appName(name).master(chosen)
        for key, value in settings.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        _quieten(session, os.environ.get(LOG_VARIABLE))
        watch_resources(session)
        return session
    session = running.newSession()
    for key, value in {**SQL_SETTINGS, **wanted}.items():
        if key.startswith("spark.sql.") and session.conf.isModifiable(key):
            session.conf.set(key, value)
    return session


def running_session() -> "SparkSession | None":
    """The one that this process has, if it has one that can still be used. PySpark forgets a JVM that is
    gone."""
    from pyspark.sql import SparkSession

    running = SparkSession._instantiatedSession
    if running is None or running.sparkContext._jsc is None:
        return None
    if why_lost(running) is not None:
        forget_lost(running)
        return None
    return SparkSession.getActiveSession() or running


def _faster_start(master: str, wanted: Mapping[str, str]) -> dict[str, str]:
    """Settings by which Spark starts faster the second time, where it runs on this machine."""
    from pyspark.find_spark_home import _find_spark_home

    from millstream.spark.class_archive import archive_options
    from millstream.spark.package import settings_for_archive
    from millstream.spark.precompile import start_compiling
    from millstream.spark.worker_python import worker_python

    if master.startswith("local"):
        start_compiling()

    spark_home = Path(_find_spark_home())
    found: dict[str, str] = {}
    if options := archive_options(spark_home, wanted):
        found["spark.driver.defaultJavaOptions"] = options
    # The small JVM that only puts the command of the real one together.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    if not master.startswith("local"):
        found |= settings_for_archive(wanted)
    # Workers have this interpreter with these packages.
    os.environ.setdefault(
        "PYSPARK_PYTHON", worker_python(spark_home) if master.startswith("local") else sys.executable
    )
    return found


@contextmanager
def stderr_to(log: Path) -> Iterator[None]:
    """The process's error stream into a file, for children born meanwhile: Java keeps the one it is born
    with."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)


def refuse_connect(master: str | None = None) -> None:
    """Spark Connect has no SparkContext on this side, and without one there are neither lanes nor a place for
    our settings."""
    named = master or os.environ.get(MASTER_VARIABLE) or os.environ.get("SPARK_REMOTE") or ""
    if named.startswith("sc://") or os.environ.get("SPARK_REMOTE"):
        cure = ", and unset SPARK_REMOTE" if os.environ.get("SPARK_REMOTE") else ""
        raise PipelineError(
            f"Spark Connect ({named}) is not supported: name the cluster's own master "
            f"(spark://host:7077, yarn, k8s://...){cure}"
        )


def default_master() -> str:
    """This machine: two slots a core, because the lanes of a host (`millstream.host`) hold theirs for ever;
    and a task that fails is tried again."""
    return f"local[{2 * (os.cpu_count() or 1)},4]"


def _quieten(session: "SparkSession", level: str | None) -> None:
    """Only errors, and each once, unless a level is set."""
    session.sparkContext.setLogLevel(level or "ERROR")
    if level is None:
        log4j: Any = session.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
        for name in _LOGGED_TWICE:
            log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
