"""The broker at work: produce and consume, kill -9 in the middle, start again, and count what came through.

A producer thread writes numbered records with acks=all and idempotence; a consumer thread reads them as they
come. Twice the broker is killed without warning and started again on the same folder. At the end every
acknowledged record must be there, once and in order, or the demo fails.

    python examples/broker_demo.py [--seconds 12]
"""

from __future__ import annotations

import argparse
import sys
import threading
import time

from millstream.client.admin import Admin, NewTopic
from millstream.client.cluster import Cluster
from millstream.client.config import ClientConfig
from millstream.client.fetch import Fetcher
from millstream.client.producer import Producer
from millstream.testing import Broker
from millstream.wire.batch import read_header
from millstream.wire.errors import KafkaError
from millstream.wire.records import Record, iter_records

TOPIC, PARTITIONS, BATCH = "demo", 3, 200


class Workload:
    """Who writes and who reads; both go on through restarts, by the client's own retries."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.stop = threading.Event()
        self.all_written = threading.Event()  # the writer has had its last acknowledgement
        self.acknowledged = [0] * PARTITIONS
        self.read: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._run, args=(work,)) for work in (self.produce, self.consume)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _run(self, work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as error:
            self.failure = error
            self.stop.set()
            self.all_written.set()

    def produce(self) -> None:
        with Cluster(ClientConfig.of(self.servers)) as cluster:
            producer = Producer(cluster)
            while not self.stop.is_set():
                for partition in range(PARTITIONS):
                    first = self.acknowledged[partition]
                    now = int(time.time() * 1000)
                    rows = [
                        Record(0, now, None, b"%d" % number, ()) for number in range(first, first + BATCH)
                    ]
                    producer.send(TOPIC, partition, rows)
                    self.acknowledged[partition] = first + BATCH
        self.all_written.set()

    def consume(self) -> None:
        positions = {(TOPIC, partition): 0 for partition in range(PARTITIONS)}
        with Cluster(ClientConfig.of(self.servers)) as cluster:
            fetcher = Fetcher(cluster)
            while not (self.all_written.is_set() and (self.caught_up() or self.failure)):
                try:
                    answers = fetcher.poll(positions, max_wait_ms=200)
                except KafkaError:
                    time.sleep(0.1)  # the broker is away; it comes back
                    continue
                for answer in answers:
                    positions[answer.topic, answer.partition] = self._take(answer.partition, answer.records)

    def _take(self, partition: int, data: memoryview) -> int:
        numbers = self.read[partition]
        at, after = 0, len(numbers)
        while len(data) - at >= 61 and len(data) - at >= (header := read_header(data, at)).size:
            for record in iter_records(data[at : at + header.size]):
                if record.offset >= after:
                    numbers.append(int(record.value or b"-1"))
                    after = record.offset + 1
            at += header.size
        return after

    def caught_up(self) -> bool:
        return all(len(numbers) >= count for numbers, count in zip(self.read, self.acknowledged, strict=True))


def say(text: str) -> None:
    print(text, flush=True)


def watch(workload: Workload, seconds: float) -> None:
    """A line of live figures every half second."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not workload.stop.is_set():
        before, began = sum(workload.acknowledged), time.monotonic()
        time.sleep(0.5)
        written, seen = sum(workload.acknowledged), sum(map(len, workload.read))
        rate = (written - before) / (time.monotonic() - began)
        say(f"  acknowledged {written:>9,}   consumed {seen:>9,}   {rate:>9,.0f} records/s")


def verdict(workload: Workload) -> bool:
    """Every acknowledged record was read back once, in order, with nothing between."""
    good = True
    for partition, numbers in enumerate(workload.read):
        count = workload.acknowledged[partition]
        if numbers[:count] != list(range(count)):
            say(
                f"  partition {partition}: {count:,} acknowledged, but what was read is not 0..{count - 1} "
                f"in order"
            )
            good = False
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=12.0, help="how long to write")
    seconds: float = parser.parse_args().seconds
    began = time.monotonic()
    with Broker() as broker:
        say(
            f"Broker ready on {broker.bootstrap_servers} after {time.monotonic() - began:.2f} s, pid "
            f"{broker.pid}."
        )
        with Cluster(ClientConfig.of(broker.bootstrap_servers)) as cluster:
            Admin(cluster).create_topics([NewTopic(TOPIC, partitions=PARTITIONS)])
        say(f"Topic '{TOPIC}' has {PARTITIONS} partitions. A producer and a consumer start.")
        workload = Workload(broker.bootstrap_servers)
        workload.start()
        for round_number in (1, 2):
            watch(workload, seconds / 3)
            say(f"kill -9 {broker.pid} (number {round_number}), in the middle of writing.")
            broker.kill()
            away = time.monotonic()
            broker.start()
            say(
                f"Started again on the same folder, pid {broker.pid}, ready after "
                f"{time.monotonic() - away:.2f} s."
            )
        watch(workload, seconds / 3)
        workload.stop.set()
        workload.join()
    if workload.failure is not None:
        say(f"FAILED: {workload.failure!r}")
        return 1
    total = sum(workload.acknowledged)
    if not verdict(workload):
        say("FAILED: acknowledged records are missing, repeated or out of order.")
        return 1
    say(
        f"Every one of {total:,} acknowledged records was read back once and in order, across two kill -9. "
        f"Nothing lost."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
