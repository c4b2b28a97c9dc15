"""`spark.read.format("millstream")`: what is in the topics between two offsets, once."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from millstream.spark.clusters import shared_cluster
from millstream.spark.errors import OptionError, plainly, said_plainly
from millstream.spark.source.offsets import Source
from millstream.spark.source.plan import Range, ranges_between, split
from millstream.spark.source.read_options import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa


class Task(InputPartition):
    """The ranges of one task."""

    def __init__(self, ranges: tuple[Range, ...]) -> None:
        super().__init__(None)
        self.ranges = ranges


class BatchReader(DataSourceReader):
    """Plans when a DataFrame is first used. Spark keeps that plan, so the same DataFrame used again reads the
    same offsets, and `load()` again what has come since."""

    def __init__(self, options: ReadOptions, names: tuple[str, ...]) -> None:
        self._options = options
        self._names = names

    @said_plainly
    def partitions(self) -> list[InputPartition]:
        options = self._options
        source = Source(options, shared_cluster(options.client).cluster)
        partitions = source.topic_partitions()
        start = source.resolve(options.start, partitions)
        end = source.resolve(options.end, partitions)
        for partition in partitions:
            if start[partition] > end[partition]:
                raise OptionError(
                    f"partition {partition} would be read backwards: '{options.start.option}' is offset "
                    f"{start[partition]}, '{options.end.option}' is {end[partition]}"
                )
        plan = split(ranges_between(start, end), options.min_tasks, options.max_records)
        return [Task(tuple(ranges)) for ranges in plan] or [Task(())]

    def read(self, partition: Any) -> "Iterator[pa.RecordBatch]":
        return read_task(self._options, self._names, partition)


def read_task(options: ReadOptions, names: tuple[str, ...], task: Task) -> "Iterator[pa.RecordBatch]":
    """The record batches of one task."""
    with plainly():
        from millstream.spark.source.rows import Rows
        from millstream.spark.source.task import TaskReader

        rows = Rows(names)
        cluster = shared_cluster(options.client).wait_until_reachable(options.timeout).cluster
        reader = TaskReader(options, cluster, task.ranges, rows.columns)
        yield from rows.batches(reader.chunks())
