"""Exactly once for a batch write: `df.write` with delivery=exactly_once.

Every task writes in a transaction of its own and leaves it open; the driver commits them all when all tasks
have succeeded, or aborts them all. Readers with read_committed see either all rows of the write or none of
them; only a driver that dies between the first and the last commit leaves a part. The transactional ids
belong to this one write, so that nobody else can be fenced by it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from millstream.client.transactional import Handle, TransactionalProducer, end_all, is_fenced
from millstream.spark.clusters import cluster_for_writing
from millstream.spark.errors import PipelineError, said_plainly
from millstream.spark.sink.task import this_task
from millstream.spark.sink.write_options import WriteOptions
from millstream.wire.errors import KafkaError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class PreparedTransaction(WriterCommitMessage):
    """A transaction that waits for its end; None if there was nothing to write."""

    rows: int
    handle: Handle | None


class AllOrNothingWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions, name: str) -> None:
        self.options = options
        self.name = name

    @said_plainly
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        from millstream.spark.sink.batch_writer import BatchWriter

        task = this_task()
        shared = cluster_for_writing(self.options.client)
        producer = self._producer(task.number)
        producer.begin()  # fences an earlier attempt of this task
        rows = BatchWriter(self.options, shared, producer, task.number).write(iterator)
        return PreparedTransaction(rows, producer.handle() if rows else None)

    @said_plainly
    def commit(self, messages: "Sequence[WriterCommitMessage | None]") -> None:
        handles = [
            message.handle
            for message in messages
            if isinstance(message, PreparedTransaction) and message.handle is not None
        ]
        failed = end_all(cluster_for_writing(self.options.client).cluster, handles, True)
        for name, error in failed.items():
            if not is_fenced(error):
                raise error
            raise PipelineError(
                f"delivery=exactly_once: the transaction of {name} was taken over by another attempt, or "
                "took longer than "
                f"option 'kafka.transaction.timeout.ms' ({self.options.transaction_timeout_ms}); "
                f"{len(handles) - len(failed)} of {len(handles)} tasks are committed"
            )

    def abort(self, messages: "Sequence[WriterCommitMessage | None]") -> None:
        """Take over every transactional id: that undoes what is open and fences attempts that still run."""
        for number in range(len(messages)):
            try:
                self._producer(number).begin()
            except KafkaError:
                return  # no way to the brokers now: the transactions end when their time is up

    def _producer(self, number: int) -> TransactionalProducer:
        return TransactionalProducer(
            cluster_for_writing(self.options.client).cluster,
            f"{self.name}-{number}",
            transaction_timeout_ms=self.options.transaction_timeout_ms,
            timeout_ms=self.options.request_timeout_ms,
        )
