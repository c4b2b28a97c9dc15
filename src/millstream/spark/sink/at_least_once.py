"""At least once: what a task has written and got acknowledged stays, and an attempt that is repeated writes again."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from millstream.client.producer import Producer
from millstream.spark.errors import said_plainly
from millstream.spark.sink.task import this_task
from millstream.spark.sink.workers import worker_of_task
from millstream.spark.sink.write_options import WriteSettings

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    rows: int


def _write(settings: WriteSettings, iterator: "Iterator[pa.RecordBatch]") -> Written:
    from millstream.spark.sink.batch_writer import Outlet

    task = this_task()
    worker = worker_of_task(settings, task.batch)
    key = (settings.acks, settings.idempotent, settings.request_timeout_ms)
    producer = worker.producers.pop(key, None) or Producer(
        worker.cluster,
        acks=settings.acks,
        idempotent=settings.idempotent,
        timeout_ms=settings.request_timeout_ms,
    )
    rows = Outlet(settings, worker, producer, task.number + task.batch).write(iterator)
    worker.producers[key] = producer  # for the next task; one that has failed is not used again
    return Written(rows)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, settings: WriteSettings) -> None:
        self.settings = settings

    @said_plainly
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return _write(self.settings, iterator)

    def commit(self, messages: "Sequence[WriterCommitMessage | None]", batchId: int) -> None:
        """All is written already."""

    def abort(self, messages: "Sequence[WriterCommitMessage | None]", batchId: int) -> None:
        """What is written stays, and is written again: at least once."""


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, settings: WriteSettings) -> None:
        self.settings = settings

    @said_plainly
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return _write(self.settings, iterator)

    def commit(self, messages: "Sequence[WriterCommitMessage | None]") -> None:
        """All is written already."""

    def abort(self, messages: "Sequence[WriterCommitMessage | None]") -> None:
        """What is written stays."""
