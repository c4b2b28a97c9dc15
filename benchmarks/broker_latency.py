"""Latency: one 100-byte message at a time, and end to end at 1,000 messages a second.

The round trip is the generator's: one connection, one idempotent produce in flight, acks=all. End to end is
what an application sees: confluent-kafka's producer sends a message of 100 bytes every millisecond (linger
0), confluent-kafka's consumer polls the same partition; the time between is taken on one clock.
"""

import itertools
import struct
import sys
import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition

import brokers
import common
import load
from common import Measure, Report, Workload

RATE = 1000
STAMP = struct.Struct(">d")
_numbers = itertools.count()


def new_topic(broker: brokers.Broker) -> str:
    topic = f"latency-{next(_numbers)}"
    brokers.create_topic(broker, topic)
    return topic


def round_trip(seconds: float) -> Workload:
    """One message, wait for the answer, the next."""

    def run(broker: brokers.Broker, topic: str) -> common.Result:
        return load.produce(broker, topic, batch_bytes=0, record_bytes=100, in_flight=1, seconds=seconds)

    measures = (
        Measure("p50_us", "us", "p50", more_is_better=False, aim=1.0),
        Measure("p99_us", "us", "p99", more_is_better=False, aim=1.0),
    )
    return Workload("round trip of 100 bytes", run, measures, new_topic, brokers.delete_topic)


def _listen(consumer: Consumer, expected: int, found: list[float], deadline: float) -> None:
    while len(found) < expected and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(time.perf_counter() - STAMP.unpack_from(message.value() or b"")[0])


def _talk(producer: Producer, topic: str, count: int) -> None:
    padding = b"x" * (100 - STAMP.size)
    start = time.perf_counter()
    for number in range(count):
        ahead = start + number / RATE - time.perf_counter()
        if ahead > 0:
            time.sleep(ahead)
        producer.produce(topic, STAMP.pack(time.perf_counter()) + padding, partition=0)
        producer.poll(0)
    producer.flush(30)


def end_to_end(seconds: float) -> Workload:
    """Producer and consumer in this process, at a steady rate."""

    def run(broker: brokers.Broker, topic: str) -> common.Result:
        common_settings = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
        producer = Producer({**common_settings, "linger.ms": 0, "acks": "all", "enable.idempotence": True})
        consumer = Consumer({**common_settings, "group.id": "latency", "enable.auto.commit": False})
        count = int(seconds * RATE)
        try:
            # Both ends are connected and have met before the clock starts.
            producer.produce(topic, STAMP.pack(0), partition=0)
            if producer.flush(30):
                raise brokers.Failed(f"{broker.name}: the first message was not delivered")
            consumer.assign([TopicPartition(topic, 0, 0)])
            met: list[float] = []
            _listen(consumer, 1, met, time.monotonic() + 30)
            if not met:
                raise brokers.Failed(f"{broker.name}: the first message did not arrive")
            found: list[float] = []
            listener = threading.Thread(
                target=_listen, args=(consumer, count, found, time.monotonic() + seconds + 30)
            )
            listener.start()
            _talk(producer, topic, count)
            listener.join()
        finally:
            consumer.close()
        if len(found) < count:
            raise brokers.Failed(f"{broker.name}: {count - len(found)} of {count} messages did not arrive")
        found.sort()
        return {
            "p50_us": found[len(found) // 2] * 1e6,
            "p99_us": found[int(len(found) * 0.99)] * 1e6,
            "max_us": found[-1] * 1e6,
            "requests": float(count),
            "seconds": seconds,
        }

    measures = (
        Measure("p50_us", "us", "p50", more_is_better=False, aim=1.0),
        Measure("p99_us", "us", "p99", more_is_better=False, aim=1.0),
    )
    return Workload("end to end at 1,000 msg/s", run, measures, new_topic, brokers.delete_topic)


def measure(report: Report) -> None:
    with common.both(report.options, report) as used:
        seconds = report.options.seconds
        common.compare(report, [round_trip(seconds), end_to_end(seconds)], used)


if __name__ == "__main__":
    sys.exit(common.main("broker_latency", __doc__ or "", measure))
