"""`spark.read.format("millstream")`: what is in the topics between two offsets, once."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from millstream.spark.errors import OptionError, plainly, said_plainly
from millstream.spark.source.connections import cluster, patient_cluster
from millstream.spark.source.offsets import Source
from millstream.spark.source.plan import Range, ranges_between, split
from millstream.spark.source.read_options import SourceSettings

if TYPE_CHECKING:
    import pyarrow as pa


class Task(InputPartition):
    """The ranges of one task."""

    def __init__(self, ranges: tuple[Range, ...]) -> None:
        super().__init__(None)
        self.ranges = ranges


class BatchReader(DataSourceReader):
    """Plans when a DataFrame is first used. Spark keeps that plan, so the same DataFrame used again reads the same
    offsets, and `load()` again what has come since."""

    def __init__(self, settings: SourceSettings, names: tuple[str, ...]) -> None:
        self._settings = settings
        self._names = names

    @said_plainly
    def partitions(self) -> list[InputPartition]:
        settings = self._settings
        source = Source(settings, cluster(settings.client))
        places = source.places()
        start = source.resolve(settings.start, places)
        end = source.resolve(settings.end, places)
        for place in places:
            if start[place] > end[place]:
                raise OptionError(
                    f"partition {place[0]}-{place[1]} would be read backwards: '{settings.start.option}' is offset "
                    f"{start[place]}, '{settings.end.option}' is {end[place]}"
                )
        plan = split(ranges_between(start, end), settings.min_tasks, settings.max_records)
        return [Task(tuple(ranges)) for ranges in plan] or [Task(())]

    def read(self, partition: Any) -> "Iterator[pa.RecordBatch]":
        return read_task(self._settings, self._names, partition)


def read_task(settings: SourceSettings, names: tuple[str, ...], task: Task) -> "Iterator[pa.RecordBatch]":
    """The record batches of one task."""
    with plainly():
        from millstream.spark.source.rows import Rows
        from millstream.spark.source.task import TaskReader

        rows = Rows(names)
        reached = patient_cluster(settings.client, settings.patience)
        reader = TaskReader(settings, reached, task.ranges, rows.columns)
        yield from rows.batches(reader.chunks())
