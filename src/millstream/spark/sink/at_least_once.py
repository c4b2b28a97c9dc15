"""At least once: what a task has written and got acknowledged stays, and an attempt that is repeated writes
again."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from millstream.client.producer import Producer
from millstream.spark.errors import said_plainly
from millstream.spark.sink.task import cluster_for_task, this_task
from millstream.spark.sink.write_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class RowsWritten(WriterCommitMessage):
    rows: int


def _write(options: WriteOptions, iterator: "Iterator[pa.RecordBatch]") -> RowsWritten:
    from millstream.spark.sink.batch_writer import BatchWriter

    task = this_task()
    shared = cluster_for_task(options, task)
    key = (options.acks, options.idempotent, options.request_timeout_ms)
    producer = shared.producers.pop(key, None) or Producer(
        shared.cluster,
        acks=options.acks,
        idempotent=options.idempotent,
        timeout_ms=options.request_timeout_ms,
    )
    rows = BatchWriter(options, shared, producer, task.number + task.batch).write(iterator)
    shared.producers[key] = producer  # for the next task; one that has failed is not used again
    return RowsWritten(rows)


class AtLeastOnceStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    @said_plainly
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return _write(self.options, iterator)

    def commit(self, messages: "Sequence[WriterCommitMessage | None]", batchId: int) -> None:
        """All is written already."""

    def abort(self, messages: "Sequence[WriterCommitMessage | None]", batchId: int) -> None:
        """What is written stays, and is written again: at least once."""


class AtLeastOnceBatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    @said_plainly
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return _write(self.options, iterator)

    def commit(self, messages: "Sequence[WriterCommitMessage | None]") -> None:
        """All is written already."""

    def abort(self, messages: "Sequence[WriterCommitMessage | None]") -> None:
        """What is written stays."""
