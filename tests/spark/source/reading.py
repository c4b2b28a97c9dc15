"""Reading without Spark: the readers that Spark would call, called here. Fast, and the errors come as they
are."""

from collections.abc import Iterable
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from millstream.client import Cluster, Producer
from millstream.spark.source import make_reader, make_stream_reader
from millstream.wire.records import Record

SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
WITH_HEADERS = StructType([*SCHEMA.fields, StructField("headers", ArrayType(HEADER))])

Row = dict[str, Any]


def fill(cluster: Cluster, topic: str, partition: int, values: Iterable[str], **producer: Any) -> None:
    """Each value is a record of its own in one batch; its key is the same text, its timestamp 1000 times its
    index."""
    records = [Record(0, 1000 * i, v.encode(), v.encode()) for i, v in enumerate(values)]
    Producer(cluster, **producer).send(topic, partition, records)


def read(broker: str, schema: StructType = SCHEMA, **options: str) -> list[Row]:
    """All rows of a batch read."""
    reader = make_reader({"kafka.bootstrap.servers": broker, **spelled(options)}, schema)
    return [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]  # type: ignore[union-attr]


class Stream:
    """A streaming query without Spark: `step` is one micro-batch."""

    def __init__(self, broker: str, schema: StructType = SCHEMA, **options: str) -> None:
        self.reader: Any = make_stream_reader({"kafka.bootstrap.servers": broker, **spelled(options)}, schema)
        self.start: dict[str, Any] | None = None
        self.tasks = 0

    def step(self, everything: bool = False) -> list[Row]:
        if self.start is None:
            self.start = self.reader.initialOffset()
        limit = ReadAllAvailable() if everything else self.reader.getDefaultReadLimit()
        end = self.reader.latestOffset(self.start, limit)
        if end == self.start:
            return []
        rows = self.between(self.start, end)
        self.reader.commit(end)
        self.start = end
        return rows

    def between(self, start: dict[str, Any], end: dict[str, Any]) -> list[Row]:
        tasks = self.reader.partitions(start, end)
        self.tasks = len(tasks)
        return [row for task in tasks for batch in self.reader.read(task) for row in batch.to_pylist()]


def values(rows: Iterable[Row]) -> list[str]:
    return [row["value"].decode() for row in rows]


def spelled(options: dict[str, str]) -> dict[str, str]:
    """Python's keywords have no dots: kafka_group_id is kafka.group.id. Spark hands names over in lower
    case."""
    return {(k.replace("_", ".") if k.startswith("kafka_") else k).lower(): v for k, v in options.items()}
