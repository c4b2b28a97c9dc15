"""df.writeStream by Spark itself: both deliveries, restarts, a lost commit file, and mistakes."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from millstream.spark.errors import explain
from tests.spark.sink.reading import values_of
from tests.support.waiting import wait_until

BATCHES = 3
ROWS = 100


def start(spark, broker, topic, checkpoint, tasks=2, one_batch=False, **options):
    rows = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", str(ROWS))
        .option("numPartitions", str(tasks))
        .load()
        .selectExpr("cast(value as string) as key", "cast(value as string) as value")
    )
    writer = rows.writeStream.format("millstream").option("kafka.bootstrap.servers", broker)
    if one_batch:
        writer = writer.trigger(availableNow=True)
    return writer.options(**options).option("topic", topic).option("checkpointLocation", checkpoint).start()


def run(query, batches=BATCHES):
    """Let so many batches pass, then stop."""
    try:
        wait_until(
            lambda: (
                not query.isActive
                or sum(1 for progress in query.recentProgress if progress["numInputRows"]) >= batches
            )
        )
        if (problem := query.exception()) is not None:
            raise problem
    finally:
        query.stop()


def newest(folder):
    return max(
        (path for path in Path(folder).glob("*") if path.name.isdigit()), key=lambda path: int(path.name)
    )


def forget(file):
    """A file of the checkpoint is lost, with its checksum."""
    file.unlink()
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def committed(checkpoint):
    """How many rows are in the batches that Spark counts as done."""
    return (int(newest(f"{checkpoint}/commits").name) + 1) * ROWS


def once_each(cluster, topic, rows):
    """All numbers from 0 on, at least so many, each once.

    Behind them there may be a part of a batch: its tasks commit one after the other, and a stop can come
    in between. Spark interrupts a query that it stops, and an interrupted abort leaves a transaction open
    until the next run or its timeout: we read up to it, and do not wait for its end.
    """
    expected = set(range(rows))

    def counts():
        return Counter(map(int, values_of(cluster, topic, settled=False)))

    wait_until(lambda: counts().keys() >= expected, lambda: f"missing: {sorted(expected - counts().keys())}")
    assert set(counts().values()) == {1}


def test_at_least_once(spark, broker, cluster, new_topic, checkpoint):
    topic = new_topic(2)
    run(start(spark, broker, topic, checkpoint))
    assert set(map(int, values_of(cluster, topic))) >= set(range(BATCHES * ROWS))


def test_exactly_once_over_a_restart_and_a_lost_commit_file(spark, broker, cluster, new_topic, checkpoint):
    topic = new_topic(2)
    run(start(spark, broker, topic, checkpoint, delivery="exactly_once"))
    before = committed(checkpoint)
    assert before >= BATCHES * ROWS
    once_each(cluster, topic, before)
    forget(newest(f"{checkpoint}/commits"))
    run(start(spark, broker, topic, checkpoint, delivery="exactly_once"))
    after = committed(checkpoint)
    assert after > before
    once_each(cluster, topic, after)


def test_another_number_of_tasks_in_a_replay(spark, broker, cluster, new_topic, checkpoint):
    topic = new_topic(2)
    run(start(spark, broker, topic, checkpoint, one_batch=True, delivery="exactly_once"), 1)
    once_each(cluster, topic, ROWS)
    before = sorted(values_of(cluster, topic))
    forget(newest(f"{checkpoint}/commits"))
    with pytest.raises(PySparkException) as failure:
        run(start(spark, broker, topic, checkpoint, tasks=1, delivery="exactly_once"), 1)
    line = explain(failure.value)
    assert line is not None
    assert "replayed with" in line
    assert sorted(values_of(cluster, topic)) == before


def test_a_checkpoint_that_was_written_otherwise(spark, broker, new_topic, checkpoint):
    topic = new_topic()
    run(start(spark, broker, topic, checkpoint), 2)
    with pytest.raises(PySparkException) as failure:
        run(start(spark, broker, topic, checkpoint, delivery="exactly_once"), 1)
    assert "there is no marker" in (explain(failure.value) or "")


def test_adaptive_execution(spark, broker, new_topic, checkpoint):
    other = spark.newSession()
    other.conf.set("spark.sql.adaptive.streaming.stateless.enabled", "true")
    with pytest.raises(PySparkException) as failure:
        run(start(other, broker, new_topic(), checkpoint, delivery="exactly_once"), 1)
    assert "spark.sql.adaptive.streaming.stateless.enabled=false" in (explain(failure.value) or "")


def test_a_mistake_is_one_line(spark, broker, name, checkpoint):
    with pytest.raises(PySparkException) as failure:
        run(start(spark, broker, name, checkpoint, delivery="sometimes"), 1)
    assert (explain(failure.value) or "").startswith("option 'delivery' must be")


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_wrong_address_is_said_in_the_first_batch(spark, name, checkpoint, delivery):
    with pytest.raises(PySparkException) as failure:
        run(start(spark, "127.0.0.1:1", name, checkpoint, delivery=delivery), 1)
    assert "cannot reach a broker at 127.0.0.1:1" in (explain(failure.value) or "")
