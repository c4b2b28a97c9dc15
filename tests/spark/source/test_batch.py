"""Batch reads of a real broker, without Spark around them."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer as Confluent

from millstream.client import Admin, Cluster
from millstream.spark.errors import OptionError, PipelineError
from millstream.wire.compression import CODEC_NAMES
from millstream.wire.records import Record

from .reading import SCHEMA, WITH_HEADERS, StructType, fill, read, values

NewTopic = Callable[..., str]


def test_every_column(broker: str, cluster: Cluster, new_topic: NewTopic) -> None:
    from millstream.client import Producer

    topic = new_topic()
    records = [
        Record(0, 1700000000123, b"k", b"v", [("h", b"1"), ("h", None)]),
        Record(0, 1700000000124, None, b""),
        Record(0, 1700000000125, b"", None),
    ]
    Producer(cluster).send(topic, 0, records)
    first, second, third = read(broker, WITH_HEADERS, subscribe=topic, includeHeaders="true")
    assert first == {
        "key": b"k",
        "value": b"v",
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123000, UTC),
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
    }
    assert (second["key"], second["value"], second["headers"]) == (None, b"", None)
    assert (third["key"], third["value"], third["offset"]) == (b"", None, 2)


@pytest.mark.parametrize("codec", range(len(CODEC_NAMES)))
def test_every_codec(codec: int, broker: str, cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic()
    expected = [f"value {i}" for i in range(500)]
    fill(cluster, topic, 0, expected, codec=codec)
    assert values(read(broker, subscribe=topic)) == expected


def test_log_append_time(broker: str, cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"message.timestamp.type": "LogAppendTime"})
    fill(cluster, topic, 0, ["a"])
    (row,) = read(broker, subscribe=topic)
    assert row["timestampType"] == 1
    assert row["timestamp"].year > 2020


def test_many_small_batches_and_partitions(broker: str, cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=5)
    for i in range(40):
        fill(cluster, topic, i % 5, [str(i)])
    rows = read(broker, subscribe=topic)
    assert sorted(map(int, values(rows))) == list(range(40))
    per_partition = {p: [r["offset"] for r in rows if r["partition"] == p] for p in range(5)}
    assert per_partition == {p: list(range(8)) for p in range(5)}


def test_batches_larger_than_a_fetch(broker: str, cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    for i in range(6):
        fill(cluster, topic, i % 2, [f"{i}-{'x' * 200_000}", f"{i}+{'y' * 200_000}"])
    rows = read(broker, subscribe=topic, kafka_max_partition_fetch_bytes="1000", kafka_fetch_max_bytes="1000")
    assert sorted(v[:2] for v in values(rows)) == sorted(f"{i}{sign}" for i in range(6) for sign in "-+")


def test_two_topics_a_pattern_and_an_assignment(
    broker: str, cluster: Cluster, new_topic: NewTopic, name: str
) -> None:
    one, two = new_topic(name=f"{name}.one", partitions=2), new_topic(name=f"{name}.two")
    fill(cluster, one, 0, ["a"])
    fill(cluster, one, 1, ["b"])
    fill(cluster, two, 0, ["c"])
    assert sorted(values(read(broker, subscribe=f"{one},{two}"))) == ["a", "b", "c"]
    assert sorted(values(read(broker, subscribePattern=f"{name}\\..*"))) == ["a", "b", "c"]
    assert values(read(broker, subscribePattern=f"{name}.tw")) == ["c"]  # any part of a name
    assert values(read(broker, subscribePattern=f"{name}.tw$")) == []
    assert sorted(values(read(broker, assign=json.dumps({one: [1], two: [0]})))) == ["b", "c"]


def test_offsets(broker: str, cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    fill(cluster, topic, 0, "abcdef")
    fill(cluster, topic, 1, "uvwxyz")

    def between(start: object, end: object) -> str:
        asked = {"startingOffsets": json.dumps({topic: start}), "endingOffsets": json.dumps({topic: end})}
        return "".join(values(read(broker, subscribe=topic, **asked)))

    assert between({"0": 2, "1": -2}, {"0": 4, "1": 1}) == "cdu"
    assert between({"0": 6, "1": 5}, {"0": -1, "1": -1}) == "z"
    with pytest.raises(
        OptionError, match=f"'startingOffsets' does not say anything about partition {topic}-1"
    ):
        between({"0": 2}, {"0": 4, "1": 1})
    with pytest.raises(OptionError, match=f"'endingOffsets' names partition {topic}-7, which is not read"):
        between({"0": 2, "1": 0}, {"0": 4, "1": 1, "7": 0})
    with pytest.raises(PipelineError, match="offset 77 of option 'startingOffsets' is outside"):
        between({"0": 77, "1": 0}, {"0": -1, "1": 1})
    backwards = {"startingTimestamp": "3000", "endingOffsets": json.dumps({topic: {"0": 1, "1": 6}})}
    for careless in ({}, {"failOnDataLoss": "false"}):
        with pytest.raises(
            OptionError,
            match=f"{topic}-0 would be read backwards: 'startingTimestamp' is offset 3, 'endingOffsets' is 1",
        ):
            read(broker, subscribe=topic, **backwards, **careless)


def test_timestamps(broker: str, cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    fill(cluster, topic, 0, "abcdef")  # at 0, 1000, 2000, ... ms
    fill(cluster, topic, 1, "uvw")
    assert (
        "".join(values(read(broker, subscribe=topic, startingTimestamp="1500", endingTimestamp="2001")))
        == "cw"
    )
    per_partition = json.dumps({topic: {"0": 4000, "1": 1}})
    assert "".join(values(read(broker, subscribe=topic, startingOffsetsByTimestamp=per_partition))) == "efvw"
    with pytest.raises(OptionError, match=f"no record of partition {topic}-1 is as young as 5000"):
        read(broker, subscribe=topic, startingTimestamp="5000")
    late = read(
        broker, subscribe=topic, startingTimestamp="5000", startingOffsetsByTimestampStrategy="latest"
    )
    assert values(late) == ["f"]


def test_splits(broker: str, cluster: Cluster, new_topic: NewTopic) -> None:
    from millstream.spark.source import make_reader

    topic = new_topic(partitions=2)
    fill(cluster, topic, 0, map(str, range(100)))
    fill(cluster, topic, 1, map(str, range(100, 150)))
    for options, tasks in (({}, 1), ({"minPartitions": "7"}, 7), ({"maxRecordsPerPartition": "40"}, 5)):
        given = {"kafka.bootstrap.servers": broker, "subscribe": topic, **options}
        assert len(make_reader(given, SCHEMA).partitions()) == tasks
        assert sorted(map(int, values(read(broker, subscribe=topic, **options)))) == list(range(150))


def test_a_schema_of_some_columns(broker: str, cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic()
    fill(cluster, topic, 0, ["a"])
    some = StructType([SCHEMA["offset"], SCHEMA["value"]])
    assert read(broker, some, subscribe=topic) == [{"offset": 0, "value": b"a"}]
    with pytest.raises(OptionError, match="'headers': that needs the option 'includeHeaders'"):
        read(broker, WITH_HEADERS, subscribe=topic)
    wrong = StructType([SCHEMA["offset"]])
    wrong.fields[0].name = "ofset"
    try:
        with pytest.raises(OptionError, match="the schema has a column 'ofset'"):
            read(broker, wrong, subscribe=topic)
    finally:
        wrong.fields[0].name = "offset"


def test_transactions(broker: str, cluster: Cluster, new_topic: NewTopic, name: str) -> None:
    topic = new_topic()
    producer = Confluent({"bootstrap.servers": broker, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(30)
    for number, commit in enumerate([True, False, True, False]):
        producer.begin_transaction()
        for letter in "ab":
            producer.produce(topic, f"{number}{letter}".encode())
        producer.flush(30)
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
    committed = read(broker, subscribe=topic, kafka_isolation_level="read_committed")
    assert values(committed) == ["0a", "0b", "2a", "2b"]
    assert [r["offset"] for r in committed] == [0, 1, 6, 7]
    assert len(read(broker, subscribe=topic)) == 8
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(30)
    assert len(read(broker, subscribe=topic, kafka_isolation_level="read_committed")) == 4
    assert values(read(broker, subscribe=topic))[-1] == "open"
    producer.abort_transaction(30)


def test_deleted_records(broker: str, cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic()
    for letter in "abcd":
        fill(cluster, topic, 0, [letter])
    Admin(cluster).delete_records({(topic, 0): 2})
    assert values(read(broker, subscribe=topic)) == ["c", "d"]
    lost = {"startingOffsets": json.dumps({topic: {"0": 0}})}
    with pytest.raises(PipelineError, match="some data may be lost"):
        read(broker, subscribe=topic, **lost)
    assert values(read(broker, subscribe=topic, failOnDataLoss="false", **lost)) == ["c", "d"]


def test_what_is_deleted_between_planning_and_reading(
    broker: str, cluster: Cluster, new_topic: NewTopic
) -> None:
    from millstream.spark.source import make_reader

    topic = new_topic()
    for letter in "abcd":
        fill(cluster, topic, 0, [letter])
    given = {"kafka.bootstrap.servers": broker, "subscribe": topic}
    careful, careless = make_reader(given, SCHEMA), make_reader(given | {"failondataloss": "false"}, SCHEMA)
    (task,) = careful.partitions()
    Admin(cluster).delete_records({(topic, 0): 3})
    with pytest.raises(PipelineError, match=f"offset 0 of partition {topic}-0 is gone: it has 3 to 4"):
        list(careful.read(task))
    (batch,) = careless.read(task)
    assert values(batch.to_pylist()) == ["d"]  # type: ignore[union-attr]


def test_missing_topics_and_brokers(broker: str, cluster: Cluster, new_topic: NewTopic, name: str) -> None:
    topic = new_topic()
    with pytest.raises(OptionError, match=f"topic '{name}' of option 'subscribe' does not exist"):
        read(broker, subscribe=f"{topic},{name}")
    with pytest.raises(OptionError, match=f"partition {topic}-5 of option 'assign' does not exist"):
        read(broker, assign=json.dumps({topic: [0, 5]}))
    with pytest.raises(
        PipelineError,
        match=r"cannot reach a broker at .*: connection refused \(option 'kafka.bootstrap.servers'\)",
    ):
        read("127.0.0.1:1", subscribe=topic)
    assert read(broker, subscribe=topic) == []
