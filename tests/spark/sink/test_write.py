"""df.write: columns, partitions, codecs, batches of every size, and all or nothing."""

import pytest
from pyspark.sql import functions as F

from millstream.spark.errors import explain
from millstream.wire.batch import read_header
from millstream.wire.murmur2 import partition_for
from tests.spark.sink.reading import records_of, values_of


def write(frame, broker, **options):
    writer = frame.write.format("millstream").mode("append").option("kafka.bootstrap.servers", broker)
    for name, value in options.items():
        writer = writer.option(name.replace("_", ".") if name.startswith("kafka_") else name, value)
    writer.save()


def refused(act):
    with pytest.raises(Exception) as failure:
        act()
    line = explain(failure.value)
    assert line, failure.value
    assert "Traceback" not in str(failure.value)
    return line


def test_keys_values_and_headers_arrive_where_java_would_put_them(spark, broker, cluster, new_topic):
    topic = new_topic(3)
    frame = spark.range(200).selectExpr(
        "cast(id as string) key",
        "encode(concat('value ', id), 'utf-8') value",
        "case when id % 3 = 0 then null when id % 3 = 1 then array() "
        "else array(named_struct('key', 'a', 'value', cast('1' as binary)), "
        "named_struct('key', 'n', 'value', cast(null as binary))) end headers",
        "'ignored' other",
    )
    write(frame, broker, topic=topic)
    found = records_of(cluster, topic)
    assert sum(map(len, found.values())) == 200
    for partition, records in found.items():
        for record in records:
            number = int(record.key)
            assert partition == partition_for(record.key, 3)
            assert record.value == b"value %d" % number
            wanted = [("a", b"1"), ("n", None)] if number % 3 == 2 else []
            assert list(record.headers) == wanted


def test_null_is_not_empty(spark, broker, cluster, new_topic):
    topic = new_topic()
    frame = spark.sql(
        "select * from values (cast(null as binary), cast('' as binary)), (cast('' as binary), null), "
        "(cast('k' as binary), cast('v' as binary)) as t(key, value)"
    )
    write(frame.coalesce(1), broker, topic=topic)
    assert [(r.key, r.value) for r in records_of(cluster, topic)[0]] == [
        (None, b""),
        (b"", None),
        (b"k", b"v"),
    ]


def test_topic_and_partition_of_each_row(spark, broker, cluster, new_topic):
    one, two = new_topic(2), new_topic(4)
    frame = spark.range(100).select(
        F.when(F.col("id") % 2 == 0, one).otherwise(two).alias("topic"),
        F.when(F.col("id") < 50, (F.col("id") % 2).cast("int")).alias("partition"),
        F.col("id").cast("string").alias("key"),
        F.col("id").cast("string").alias("value"),
    )
    write(frame, broker)
    for topic, rest, count in ((one, 0, 2), (two, 1, 4)):
        for partition, records in records_of(cluster, topic).items():
            for record in records:
                number = int(record.value)
                assert number % 2 == rest
                assert partition == (number % 2 if number < 50 else partition_for(record.key, count))
        assert len(values_of(cluster, topic)) == 50


def test_the_option_wins_over_the_column(spark, broker, cluster, new_topic):
    topic = new_topic()
    write(spark.range(3).selectExpr("'nowhere' topic", "cast(id as string) value"), broker, topic=topic)
    assert sorted(values_of(cluster, topic)) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs_and_small_batches(spark, broker, cluster, new_topic, codec):
    topic = new_topic(2)
    frame = spark.range(2000).selectExpr("cast(null as string) key", "repeat(cast(id as string), 5) value")
    write(frame, broker, topic=topic, kafka_compression_type=codec, **{"kafka.batch.size": "4096"})
    found = records_of(cluster, topic)
    assert sorted(int(r.value[: len(r.value) // 5]) for rs in found.values() for r in rs) == list(range(2000))
    assert all(len(records) > 200 for records in found.values()), "rows without a key take turns"


def test_acks_one_and_zero(spark, broker, cluster, new_topic):
    topic = new_topic()
    for acks in ("1", "0"):
        write(spark.range(10).selectExpr("cast(id as string) value"), broker, topic=topic, kafka_acks=acks)
    assert len(values_of(cluster, topic)) == 20


def test_a_topic_with_a_low_limit_gets_smaller_batches(spark, broker, cluster, new_topic):
    topic = new_topic(configs={"max.message.bytes": "2000"})
    write(spark.range(1000).selectExpr("repeat('x', 100) value"), broker, topic=topic)
    assert len(values_of(cluster, topic)) == 1000


def test_exactly_once_shows_all_at_the_end(spark, broker, cluster, new_topic):
    topic = new_topic(2)
    frame = spark.range(0, 5000, 1, 3).selectExpr("cast(id as string) key", "cast(id as string) value")
    write(frame, broker, topic=topic, delivery="exactly_once")
    assert sorted(map(int, values_of(cluster, topic))) == list(range(5000))
    write(spark.range(0).selectExpr("cast(id as string) value"), broker, topic=topic, delivery="exactly_once")
    assert len(values_of(cluster, topic)) == 5000


def test_a_failed_write_leaves_nothing_to_committed_readers(spark, broker, cluster, new_topic):
    topic = new_topic(2)
    fails = F.when(F.col("id") == 29_999, F.raise_error(F.lit("broken row"))).otherwise(
        F.col("id").cast("string")
    )
    frame = spark.range(0, 30_000, 1, 3).select(fails.alias("value"))
    with pytest.raises(Exception, match="broken row"):
        write(frame, broker, topic=topic, delivery="exactly_once")
    assert values_of(cluster, topic) == []
    write(spark.range(5).selectExpr("cast(id as string) value"), broker, topic=topic, delivery="exactly_once")
    assert len(values_of(cluster, topic)) == 5, "and nothing open stands in the way of what comes later"


def test_batches_have_a_producer_id(spark, broker, cluster, new_topic):
    from millstream.client import Fetcher

    topic = new_topic()
    write(spark.range(10).selectExpr("cast(id as string) value").coalesce(1), broker, topic=topic)
    (answer,) = Fetcher(cluster).poll({(topic, 0): 0})
    header = read_header(answer.records)
    assert header.producer_id >= 0
    assert (header.base_sequence >= 0, header.record_count) == (True, 10)


# --- mistakes: one line that names what is wrong ------------------------------------------------------------


def test_mistakes_in_options(spark, broker, new_topic):
    topic = new_topic()
    good = spark.range(1).selectExpr("cast(id as string) value")
    cases = [
        (good, {}, "option 'topic'"),
        (good, {"topic": topic, "kafka_acks": "2"}, "'kafka.acks'"),
        (good, {"topic": topic, "kafka_compression_type": "rar"}, "'kafka.compression.type'"),
        (good, {"topic": topic, "delivery": "twice"}, "'delivery'"),
        (good, {"topic": topic, "delivery": "exactly_once", "kafka_acks": "1"}, "'kafka.acks'"),
        (good, {"topic": topic, "topik": "x"}, "did you mean 'topic'"),
        (good, {"topic": topic, "kafka_transactional_id": "x"}, "'kafka.transactional.id'"),
        (good.withColumnRenamed("value", "v"), {"topic": topic}, "column 'value' is missing"),
        (spark.range(1).selectExpr("id value"), {"topic": topic}, "column 'value' must be string or binary"),
        (spark.range(1).selectExpr("'v' value", "id key"), {"topic": topic}, "column 'key'"),
        (
            spark.range(1).selectExpr("'v' value", "id partition"),
            {"topic": topic},
            "column 'partition' must be int",
        ),
        (spark.range(1).selectExpr("'v' value", "array(1) headers"), {"topic": topic}, "column 'headers'"),
    ]
    for frame, options, wanted in cases:
        assert wanted in refused(lambda frame=frame, options=options: write(frame, broker, **options))


def test_mistakes_in_rows(spark, broker, new_topic):
    topic = new_topic()
    big = spark.range(1).selectExpr("repeat('x', 2000000) value")
    line = refused(lambda: write(big, broker, topic=topic))
    assert "kafka.max.request.size" in line and topic in line
    far = spark.range(1).selectExpr("'v' value", "7 partition")
    line = refused(lambda: write(far, broker, topic=topic))
    assert "column 'partition' says 7" in line and topic in line
    nowhere = spark.range(1).selectExpr("'v' value", "cast(null as string) topic")
    assert "column 'topic' is null" in refused(lambda: write(nowhere, broker))
    wrong = spark.range(1).selectExpr("'v' value", "'a/b' topic")
    assert "a/b" in refused(lambda: write(wrong, broker))


def test_a_broker_that_is_not_there(spark, unused_port):
    line = refused(
        lambda: write(spark.range(1).selectExpr("'v' value"), f"127.0.0.1:{unused_port}", topic="t")
    )
    assert f"127.0.0.1:{unused_port}" in line


def test_overwriting_is_refused(spark, broker, new_topic):
    frame = spark.range(1).selectExpr("'v' value")
    with pytest.raises(Exception, match=r"append|overwrit"):
        frame.write.format("millstream").mode("overwrite").option("kafka.bootstrap.servers", broker).option(
            "topic", new_topic()
        ).save()


@pytest.fixture
def unused_port():
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]
