"""The source inside Spark: what the other tests cannot show without it."""

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.client import Cluster
from millstream.client.groups import Groups
from millstream.spark.errors import explain
from millstream.spark.source.metrics import offsets_behind
from tests.support.waiting import wait_until

from .reading import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

NewTopic = Callable[..., str]


def test_the_columns_of_sparks_kafka_source(
    spark: "SparkSession", broker: str, cluster: Cluster, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=2)
    fill(cluster, topic, 0, "abc")
    fill(cluster, topic, 1, "de")
    reader = (
        spark.read.format("millstream")  # nothing was registered
        .option("kafka.bootstrap.servers", broker)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
    )
    df = reader.load()
    assert [(field.name, field.dataType.simpleString()) for field in df.schema.fields] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    rows = df.selectExpr("cast(value as string) v", "partition", "offset", "headers").collect()
    assert sorted((r.v, r.partition, r.offset, r.headers) for r in rows) == [
        ("a", 0, 0, None),
        ("b", 0, 1, None),
        ("c", 0, 2, None),
        ("d", 1, 0, None),
        ("e", 1, 1, None),
    ]
    fill(cluster, topic, 1, "f")
    assert df.count() == 5  # Spark asks a Python source for its tasks once per DataFrame
    assert reader.load().count() == 6


def test_a_stream_stops_and_goes_on(
    spark: "SparkSession", broker: str, cluster: Cluster, new_topic: NewTopic, name: str, checkpoint: str
) -> None:
    topic = new_topic(partitions=2)
    table = f"t{abs(hash(name))}"
    seen: list[str] = []

    def run() -> "StreamingQuery":
        stream = (
            spark.readStream.format("millstream")
            .option("kafka.bootstrap.servers", broker)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 4)
            .option("kafka.group.id", name)
            .load()
            .selectExpr("cast(value as string) v")
        )
        query: StreamingQuery = (
            stream.writeStream.queryName(table)
            .option("checkpointLocation", checkpoint)
            .foreachBatch(lambda df, _: seen.extend(r.v for r in df.collect()))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        return query

    fill(cluster, topic, 0, "abcde")
    query = run()
    assert sorted(seen) == list("abcde")
    assert [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]] == [4, 1]
    assert {topic_partition: c.offset for topic_partition, c in Groups(cluster).committed(name).items()} == {
        (topic, 0): 5,
        (topic, 1): 0,
    }  # type: ignore[union-attr]
    fill(cluster, topic, 1, "fg")
    run()
    assert sorted(seen) == list("abcdefg")


def failing(act: Callable[[], object]) -> str:
    with pytest.raises(Exception) as caught:
        act()
    text = str(caught.value)
    assert "Traceback" not in text
    assert "\tat " not in text
    explanation = explain(caught.value)
    assert explanation is not None, text
    return explanation


def test_mistakes_are_one_line(spark: "SparkSession", broker: str, new_topic: NewTopic, name: str) -> None:
    topic = new_topic()
    good = {"kafka.bootstrap.servers": broker, "subscribe": topic}

    def load(**changes: str) -> Callable[[], object]:
        return lambda: spark.readStream.format("millstream").options(**{**good, **changes}).load()

    assert failing(load(subscribe=name)) == f"topic '{name}' of option 'subscribe' does not exist"
    assert failing(load(startingOffset="latest")).endswith("did you mean 'startingOffsets'?")
    assert "connection refused" in failing(load(**{"kafka.bootstrap.servers": "127.0.0.1:1"}))
    batch = (
        spark.read.format("millstream").options(**good, startingOffsets=json.dumps({topic: {"0": 99}})).load()
    )
    assert "offset 99 of option 'startingOffsets' is outside" in failing(batch.count)


def test_a_stream_with_an_option_for_batches(
    spark: "SparkSession", broker: str, new_topic: NewTopic, checkpoint: str
) -> None:
    options = {"kafka.bootstrap.servers": broker, "subscribe": new_topic(), "endingOffsets": "latest"}
    stream = spark.readStream.format("millstream").options(**options).load()
    query = stream.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    assert failing(lambda: query.awaitTermination(60)) == "option 'endingOffsets' is only for a batch read"


def test_new_partitions_while_a_stream_runs(
    spark: "SparkSession", broker: str, cluster: Cluster, new_topic: NewTopic, checkpoint: str
) -> None:
    from millstream.client import Admin

    topic = new_topic()
    seen: list[str] = []

    def collect(df: object, _: int) -> None:
        seen.extend(r.v for r in df.collect())  # type: ignore[attr-defined]

    stream = spark.readStream.format("millstream").option("kafka.bootstrap.servers", broker)
    stream = stream.option("subscribe", topic).option("startingOffsets", "earliest").load()
    query = (
        stream.selectExpr("cast(value as string) v")
        .writeStream.option("checkpointLocation", checkpoint)
        .foreachBatch(collect)
        .start()
    )
    try:
        fill(cluster, topic, 0, ["before"])
        wait_for(lambda: seen == ["before"], query)
        Admin(cluster).create_partitions({topic: 2})
        wait_for(lambda: not cluster.refresh([topic]) and len(cluster.topics[topic].partitions) == 2, query)
        fill(cluster, topic, 1, ["after"])
        wait_for(lambda: seen == ["before", "after"], query)
    finally:
        query.stop()


def wait_for(condition: Callable[[], bool], query: "StreamingQuery") -> None:
    def so() -> bool:
        assert query.exception() is None
        return condition()

    wait_until(so)


def test_a_checkpoint_of_sparks_own_connector_is_taken_over(
    spark: "SparkSession", broker: str, cluster: Cluster, new_topic: NewTopic, name: str, checkpoint: str
) -> None:
    """The files are what the connector leaves after one batch."""
    topic = new_topic(partitions=2)
    fill(cluster, topic, 0, "abc")
    fill(cluster, topic, 1, "d")
    files = {
        "metadata": json.dumps({"id": str(uuid.uuid4())}),
        "offsets/0": 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n'
        + json.dumps({topic: {"0": 2, "1": 0}}),
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
        "sources/0/0": "\0v1\n" + json.dumps({topic: {"0": 0, "1": 0}}),
    }
    for path, text in files.items():
        file = Path(checkpoint, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    seen: list[str] = []
    query = (
        spark.readStream.format("millstream")
        .option("kafka.bootstrap.servers", broker)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.foreachBatch(
            lambda batch, _: seen.extend(bytes(row.value).decode() for row in batch.collect())
        )
        .queryName(name)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(seen) == ["c", "d"]
    assert offsets_behind(query.lastProgress) == [
        {"minOffsetsBehindLatest": 0, "maxOffsetsBehindLatest": 0, "avgOffsetsBehindLatest": 0.0}
    ]


def test_a_temporary_view_reads_and_writes(
    spark: "SparkSession", broker: str, cluster: Cluster, new_topic: NewTopic
) -> None:
    topic = new_topic()
    servers = f"'kafka.bootstrap.servers' '{broker}'"
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW sink (key string, value string) USING millstream "
        f"OPTIONS ({servers}, topic '{topic}')"
    )
    spark.sql("INSERT INTO sink VALUES ('k', 'a'), (null, 'b')")
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW source USING millstream OPTIONS ({servers}, subscribe '{topic}')"
    )
    rows = spark.sql("SELECT cast(key as string) k, cast(value as string) v FROM source").collect()
    assert sorted((row.v, row.k) for row in rows) == [("a", "k"), ("b", None)]


def test_a_table_is_read_in_batches_and_as_a_stream(
    spark: "SparkSession", broker: str, cluster: Cluster, new_topic: NewTopic
) -> None:
    topic = new_topic()
    fill(cluster, topic, 0, "ab")
    options = f"'kafka.bootstrap.servers' '{broker}', subscribe '{topic}', startingOffsets 'earliest'"
    spark.sql(f"CREATE TABLE orders USING millstream OPTIONS ({options}, includeHeaders 'true')")
    try:
        for _ in range(2):
            rows = spark.sql("SELECT value, headers FROM orders WHERE offset > 0").collect()
            assert [(bytes(row.value), row.headers) for row in rows] == [(b"b", None)]
        query = spark.readStream.table("orders").writeStream.format("memory").queryName("orders_seen")
        query.trigger(availableNow=True).start().awaitTermination()
        assert spark.table("orders_seen").count() == 2
        with pytest.raises(Exception) as refused:
            spark.sql("INSERT INTO orders (key, value) VALUES (X'00', X'01')")
        assert (explain(refused.value) or "").startswith("a table of topics is for reading")
    finally:
        spark.sql("DROP TABLE orders")


def test_what_a_table_cannot_be(spark: "SparkSession", broker: str, new_topic: NewTopic) -> None:
    options = f"'kafka.bootstrap.servers' '{broker}', subscribe '{new_topic()}'"
    with pytest.raises(Exception) as refused:
        spark.sql(f"CREATE TABLE t USING millstream OPTIONS ({options}, 'kafka.ssl.key.password' 'x')")
    assert "would be kept in the catalog for all to read" in (explain(refused.value) or "")
    with pytest.raises(Exception) as refused:
        spark.sql(f"CREATE TABLE t USING millstream OPTIONS ({options}, nonsense 'x')")
    assert "unknown option 'nonsense'" in (explain(refused.value) or "")
    spark.sql(f"CREATE TABLE t (value binary) USING millstream OPTIONS ({options})")
    try:
        with pytest.raises(Exception) as refused:
            spark.sql("SELECT * FROM t").collect()
        assert "create it without a list of columns" in (explain(refused.value) or "")
    finally:
        spark.sql("DROP TABLE t")
