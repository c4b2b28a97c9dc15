"""The task that this process works for: which query, which run of it, which batch, which task, which
attempt."""

import json
from dataclasses import dataclass
from pathlib import Path

from millstream.client.cluster_cache import SharedCluster
from millstream.spark.clusters import cluster_for_writing
from millstream.spark.errors import PipelineError
from millstream.spark.sink.write_options import WriteOptions

_ADAPTIVE = ("spark.sql.adaptive.enabled", "spark.sql.adaptive.streaming.stateless.enabled")


@dataclass(frozen=True, slots=True)
class Task:
    query: str
    run: str
    batch: int
    number: int
    attempt: int
    adaptive: bool

    @property
    def transactional_id(self) -> str:
        return transactional_id_of(self.query, self.number)


def transactional_id_of(query: str, number: int) -> str:
    return f"{transactional_id_prefix(query)}{number}"


def transactional_id_prefix(query: str) -> str:
    """Of all tasks of a query."""
    return f"millstream-{query}-"


def query_of(checkpoint: str | None) -> str:
    """The id of the query with this checkpoint, for the driver; empty if the checkpoint is not on this
    machine."""
    if checkpoint is None:
        return ""
    try:
        text = (Path(checkpoint.removeprefix("file://")) / "metadata").read_text()
        return str(json.loads(text)["id"])
    except (OSError, ValueError, LookupError):
        return ""


def this_task() -> Task:
    """The task in which this process is. Outside of a streaming query, query and run are empty and the batch
    is -1."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("not in a Spark task")

    def local_property(name: str) -> str:
        return context.getLocalProperty(name) or ""

    return Task(
        query=local_property("sql.streaming.queryId"),
        run=local_property("spark.jobGroup.id"),
        batch=int(local_property("streaming.sql.batchId") or -1),
        number=context.partitionId(),
        attempt=context.attemptNumber(),
        adaptive=all(local_property(name) != "false" for name in _ADAPTIVE),
    )


def cluster_for_task(options: WriteOptions, task: Task) -> SharedCluster:
    """In a query's first batch, brokers that nobody has reached yet are a wrong address, and no reason to
    wait."""
    was_reached = options.brokers_reachable or task.batch > 0
    return cluster_for_writing(options.client, None if was_reached else 0)


def refuse_adaptive(task: Task) -> None:
    """Adaptive execution may cut a batch otherwise when it is replayed."""
    if task.adaptive:
        raise PipelineError(
            f"delivery=exactly_once needs {_ADAPTIVE[1]}=false (millstream.spark.session sets it), so that a "
            "batch "
            "is cut into the same tasks when it is replayed"
        )
