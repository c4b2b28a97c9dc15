"""A segment that ends before acknowledged data: no kill does that, a broken disk or a hand does. The broker
starts, says what is lost, keeps what is whole, and leaves all other partitions alone."""

import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as Position

from millstream.testing import Broker
from millstream.wire.topic_partition import TopicPartition
from tests.support.waiting import wait_until

from .chaos import cut
from .checker import LOST, check
from .history import History, Records, key
from .rounds import read_all
from .test_kill import WAIT, new_topic
from .workload import value_of

COUNT = 300
PARTITIONS = 3
VICTIM = TopicPartition("log", 1)


def write(broker: Broker, history: History, first: int, count: int) -> None:
    """Records of one writer in turn into all partitions, a batch each."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "linger.ms": 0,
            "batch.num.messages": 1,
            "enable.idempotence": True,
        }
    )
    for number in range(first, first + count):
        record_key = key(1, number)
        producer.produce(
            "log",
            value_of(record_key),
            partition=number % PARTITIONS,
            on_delivery=lambda error, m, k=record_key: history.acked["log", m.partition()].add(m.offset(), k),
        )
    assert producer.flush(WAIT) == 0


def wait_for_checkpoint(folder: Path, topic_partition: TopicPartition, offset: int) -> None:
    """The broker writes down every few seconds how far the partitions have come."""
    line = f"{topic_partition[0]} {topic_partition[1]} {offset}"
    file = folder / "replication-offset-checkpoint"
    wait_until(lambda: file.exists() and line in file.read_text().splitlines(), "no checkpoint")


def ends(broker: Broker) -> dict[TopicPartition, int]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "none", "enable.auto.commit": False}
    )
    try:
        return {
            ("log", n): consumer.get_watermark_offsets(Position("log", n), timeout=WAIT)[1]
            for n in range(PARTITIONS)
        }
    finally:
        consumer.close()


def error_at(broker: Broker, topic_partition: TopicPartition, offset: int) -> KafkaError | None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "none",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([Position(*topic_partition, offset)])
        message = consumer.poll(WAIT)
        assert message is not None
        return message.error()
    finally:
        consumer.close()


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.glob("log-*/*.log"))}


@pytest.mark.parametrize("way", ["kill", "stop"])
def test_a_segment_cut_below_acknowledged_data(tmp_path: Path, way: str) -> None:
    history = History(acked={("log", n): Records() for n in range(PARTITIONS)})
    with Broker(data_dir=tmp_path) as broker:
        new_topic(broker, "log", PARTITIONS)
        write(broker, history, 0, COUNT)
        end = COUNT // PARTITIONS
        if way == "kill":
            wait_for_checkpoint(tmp_path, VICTIM, end)
            broker.kill()
        else:
            broker.stop()
        victim = sorted((tmp_path / "log-1").glob("*.log"))[-1]
        cut(victim, victim.stat().st_size * 2 // 3 + 5)
        before = files(tmp_path)
        logged_before = len(broker.log)
        broker.start()
        after = files(tmp_path)
        logged = broker.log[logged_before:]

        kept = ends(broker)[VICTIM]
        assert 0 < kept < end
        assert re.search(rf"log-1: offsets {kept} to {end - 1} are lost", logged), logged
        assert not re.search(r"log-[02]: (cut|offsets)", logged), logged
        name = str(victim.relative_to(tmp_path))
        assert before.pop(name).startswith(after.pop(name))
        assert after == before

        assert ends(broker) == {("log", 0): end, VICTIM: kept, ("log", 2): end}
        error = error_at(broker, VICTIM, end - 1)
        assert error is not None and error.code() in (
            KafkaError._AUTO_OFFSET_RESET,
            KafkaError.OFFSET_OUT_OF_RANGE,
        )

        history.final = read_all(broker.bootstrap_servers, ends(broker))
        found = check(history)
        assert [(v.kind, v.topic_partition, v.offset) for v in found] == [
            (LOST, VICTIM, n) for n in range(kept, end)
        ]

        # And life goes on, from the end of what is left.
        fresh = History(acked={("log", n): Records() for n in range(PARTITIONS)})
        write(broker, fresh, COUNT, PARTITIONS)
        assert fresh.acked[VICTIM].offsets[0] == kept
