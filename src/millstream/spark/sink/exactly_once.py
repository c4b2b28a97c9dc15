"""Exactly once into a stream's topics: one transaction per task, committed by the driver when all tasks are
done.

A task first takes over its transactional id (query and task number), which fences every earlier attempt, be
it of a driver that is thought dead; then it reads the markers. If its part of the batch is committed, it
skips its rows. Otherwise it writes them, adds a marker that says "prepared", and hands the open transaction
to the driver.

The driver knows how many tasks the batch has. It checks that a replay has as many as before, adds to each
transaction the marker that says so, and commits them one after the other. When it dies between two commits,
the batch is replayed: tasks whose marker is committed skip, the others write. So each task's rows become
visible together, and once. The tasks of a batch are committed together, but not atomically.

Two attempts of one task at a time (speculation): the later one fences the earlier one, unless it finds the
earlier one's "prepared"; then it hands over the earlier one's transaction as its own. A fenced attempt waits
for the other one's.
"""

import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from millstream.client.cluster_cache import SharedCluster
from millstream.client.transactional import Handle, TransactionalProducer, end_all, is_fenced, send_all
from millstream.spark.clusters import cluster_for_writing, shared_cluster
from millstream.spark.errors import PipelineError, said_plainly
from millstream.spark.sink.markers import (
    Marker,
    MarkerLog,
    already_written,
    check_counts,
    check_rows,
    record_of,
)
from millstream.spark.sink.task import (
    Task,
    cluster_for_task,
    query_of,
    refuse_adaptive,
    this_task,
    transactional_id_of,
)
from millstream.spark.sink.write_options import WriteOptions
from millstream.wire.errors import KafkaError
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

FENCED_PAUSE = 0.2
FENCED_TIMEOUT = 20.0  # seconds that a fenced attempt waits for the one that took over


@dataclass(frozen=True)
class TaskCommitMessage(WriterCommitMessage):
    """What a task tells the driver. `handle` is None if its rows were there already."""

    query: str
    run: str
    task: int
    rows: int
    counts: frozenset[int]  # numbers of tasks, by the markers of this batch that are committed
    marker_partition: TopicPartition
    handle: Handle | None


class ExactlyOnceWriter(DataSourceStreamArrowWriter):
    """The writer of one query; Spark makes a new one for every batch, and another one to commit it."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    # --- in a task ------------------------------------------------------------------------------------------

    @said_plainly
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        from millstream.spark.sink.batch_writer import count_rows

        task = this_task()
        refuse_adaptive(task)
        shared = cluster_for_task(self.options, task)
        log = _log(shared, self.options.marker_topic, task.query)
        if task.attempt > 0:
            prepared = log.catch_up().prepared(task.number, task.batch, task.run)
            if prepared is not None:
                count_rows(iterator)
                return _done(task, log, prepared)
        producer = TransactionalProducer(
            shared.cluster,
            task.transactional_id,
            transaction_timeout_ms=self.options.transaction_timeout_ms,
            timeout_ms=self.options.request_timeout_ms,
        )
        producer.begin()
        marker = already_written(log.catch_up(), task.number, task.batch)
        if marker is not None:
            check_rows(marker, count_rows(iterator))
            counts = log.state.counts(task.batch)
            return TaskCommitMessage(
                task.query, task.run, task.number, marker.rows, counts, log.partition, None
            )
        try:
            return self._write(task, shared, log, producer, iterator)
        except KafkaError as error:
            if not is_fenced(error):
                _abort(producer)
                raise
            count_rows(iterator)
            return _other_attempt(task, log)
        except BaseException:
            _abort(producer)
            raise

    def _write(
        self,
        task: Task,
        shared: SharedCluster,
        log: MarkerLog,
        producer: TransactionalProducer,
        iterator: "Iterator[pa.RecordBatch]",
    ) -> TaskCommitMessage:
        from millstream.spark.sink.batch_writer import BatchWriter

        rows = BatchWriter(self.options, shared, producer, task.number + task.batch).write(iterator)
        prepared = Marker(
            task.number, task.batch, 0, rows, task.run, producer.producer_id, producer.producer_epoch
        )
        producer.send_batches({log.partition: record_of(task.query, prepared, _now_ms())})
        return _done(task, log, prepared)

    # --- on the driver --------------------------------------------------------------------------------------

    @said_plainly
    def commit(self, messages: "Sequence[WriterCommitMessage | None]", batchId: int) -> None:
        done = [message for message in messages if isinstance(message, TaskCommitMessage)]
        handles = _handles(done)
        cluster = cluster_for_writing(self.options.client).cluster
        try:
            for message in done:
                check_counts(batchId, len(done), message.counts)
        except PipelineError:
            end_all(cluster, handles, False)
            raise
        if not handles:
            return
        markers = [
            (message.handle, _marker(message, message.handle, batchId, len(done)))
            for message in done
            if message.handle is not None
        ]
        failed = send_all(cluster, done[0].marker_partition, markers) or end_all(cluster, handles, True)
        for name, error in failed.items():
            if is_fenced(error):
                raise PipelineError(
                    f"delivery=exactly_once: batch {batchId} cannot be committed, since the transaction of "
                    f"{name} was taken "
                    "over by another run of this query, or took longer than option "
                    "'kafka.transaction.timeout.ms' "
                    f"({self.options.transaction_timeout_ms}); the batch will be replayed"
                )
            raise error

    def abort(self, messages: "Sequence[WriterCommitMessage | None]", batchId: int) -> None:
        """The batch has failed, or the query is stopped: undo what its tasks have written, so that readers
        need not wait for it. Tasks that are done have said how; the others were killed, and their
        transactional ids are taken over."""
        done = [message for message in messages if isinstance(message, TaskCommitMessage)]
        query = done[0].query if done else query_of(self.options.checkpoint)
        cluster = shared_cluster(self.options.client).refresh_old_metadata().cluster
        try:
            end_all(cluster, _handles(done), False)
            finished = {message.task for message in done}
            for number in range(len(messages)):
                if query and number not in finished:
                    TransactionalProducer(cluster, transactional_id_of(query, number)).begin()
        except KafkaError:
            pass  # the next run does it, or time


def _handles(messages: Iterable[TaskCommitMessage]) -> list[Handle]:
    return [message.handle for message in messages if message.handle is not None]


def _marker(message: TaskCommitMessage, handle: Handle, batch: int, tasks: int) -> bytearray:
    marker = Marker(
        message.task, batch, tasks, message.rows, message.run, handle.producer_id, handle.producer_epoch
    )
    return record_of(message.query, marker, _now_ms())


def _done(task: Task, log: MarkerLog, prepared: Marker) -> TaskCommitMessage:
    """The message about a transaction that waits for its final marker; the prepared one had sequence number
    0."""
    handle = Handle(
        task.transactional_id, prepared.producer_id, prepared.producer_epoch, ((*log.partition, 1),)
    )
    counts = log.state.counts(task.batch)
    return TaskCommitMessage(task.query, task.run, task.number, prepared.rows, counts, log.partition, handle)


def _other_attempt(task: Task, log: MarkerLog) -> TaskCommitMessage:
    """This attempt was fenced: what the attempt that fenced it has achieved."""
    deadline = time.monotonic() + FENCED_TIMEOUT
    while time.monotonic() < deadline:
        state = log.catch_up()
        marker = state.committed.get(task.number)
        if marker is not None and marker.batch == task.batch:
            counts = state.counts(task.batch)
            return TaskCommitMessage(
                task.query, task.run, task.number, marker.rows, counts, log.partition, None
            )
        prepared = state.prepared(task.number, task.batch, task.run)
        if prepared is not None:
            return _done(task, log, prepared)
        time.sleep(FENCED_PAUSE)
    raise PipelineError(
        f"task {task.number} of batch {task.batch} was fenced by another attempt, or its transaction took "
        "longer than "
        "option 'kafka.transaction.timeout.ms'"
    )


def _abort(producer: TransactionalProducer) -> None:
    """As well as it goes: what stays open is undone by the next attempt, or when its time is up."""
    try:
        if producer.producer_id >= 0:
            producer.abort()
    except KafkaError:
        pass


_logs: weakref.WeakKeyDictionary[SharedCluster, dict[tuple[str, str], MarkerLog]] = (
    weakref.WeakKeyDictionary()
)


def _log(shared: SharedCluster, topic: str, query: str) -> MarkerLog:
    """The log as far as this process has read it."""
    logs = _logs.setdefault(shared, {})
    if (topic, query) not in logs:
        logs[topic, query] = MarkerLog(shared.cluster, topic, query)
    return logs[topic, query]


def _now_ms() -> int:
    return round(time.time() * 1000)
