"""One task of Streams on one core, against a broker: what Spark's tasks do, without Spark.

    python benchmarks/streams_tasks.py [--records 200000] [--keys 100000] [--check]

A task fetches and decodes its range, runs the operators, keeps its store (LMDB), and sends outputs and changelog in one transaction. The
processor time of this process is the measure (the broker's own is not in it), so that neighbours on the machine do not count. The last row is
the restore of a store from its changelog. --check fails when a target of the issue is missed: 150,000 records/s for map and filter,
100,000 for counts, 200,000 for the restore.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from millstream.client import Admin, ClientConfig, Cluster, NewTopic, Producer
from millstream.pipeline.streams import StreamsBuilder, TimeWindows, minutes
from millstream.pipeline.streams.runtime import Streams, worker
from millstream.testing import Broker
from millstream.wire.records import Record

SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
RANGE = 20_000


def map_and_filter(builder: StreamsBuilder) -> None:
    stream = builder.stream("large").map(lambda key, value: (key, value[:100]))
    stream.filter(lambda key, value: value[0] != "x").to("out")


def count(builder: StreamsBuilder) -> None:
    builder.stream("small").group_by_key().count().to_stream().to("out")


def windowed_count(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of_size(minutes(1)).grace(minutes(1))
    builder.stream("small").group_by_key().windowed_by(windows).count().to_stream().to("out")


CASES: list[tuple[str, str, Callable[[StreamsBuilder], None], int]] = [
    ("map and filter, 1 KB", "large", map_and_filter, 150_000),
    ("count by key, 100 B", "small", count, 100_000),
    ("count by key and minute, 100 B", "small", windowed_count, 100_000),
]


def fill(cluster: Cluster, topic: str, size: int, records: int, keys: int) -> None:
    producer, value = Producer(cluster), b"a" * size
    for start in range(0, records, 500):
        batch = [
            Record(number, start + number, b"key-%d" % ((start + number) * 7919 % keys), value)
            for number in range(500)
        ]
        producer.send(topic, 0, batch)


def run(application: Streams, topic: str, records: int) -> float:
    """Seconds of processor time for all of the topic, after a first small range."""
    application.make_topics()
    settings, topology = application.settings, application.topology
    worker.run_work(settings, topology, worker.Work(0, 0, ((topic, 0, 500),)))
    began = time.process_time()
    for start in range(500, records, RANGE):
        until = min(start + RANGE, records)
        worker.run_work(settings, topology, worker.Work(0, 0, ((topic, start, until),)))
    return time.process_time() - began


def restore(application: Streams, topic: str, records: int) -> tuple[int, float]:
    """How many records a lost store came back from, and the seconds it took."""
    forget()
    shutil.rmtree(application.settings.folder)
    runner = worker.TaskRunner(application.settings, application.topology, 0, 0)
    began = time.process_time()
    count = runner._restore()
    seconds = time.process_time() - began
    runner.close()
    return count, seconds


def forget() -> None:
    for runner in worker._runners.values():
        runner.close()
    worker._runners.clear()


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--records", type=int, default=200_000)
    arguments.add_argument("--keys", type=int, default=100_000)
    arguments.add_argument("--check", action="store_true")
    given = arguments.parse_args()
    missed = 0
    print(f"{'one task':40} {'records/s':>12} {'us/record':>10} {'target':>10}")
    with (
        Broker(SETTINGS) as broker,
        tempfile.TemporaryDirectory() as folder,
        Cluster(ClientConfig.of(broker.bootstrap_servers)) as cluster,
    ):
        Admin(cluster).create_topics([NewTopic(name, 1, 1, {}) for name in ("large", "small", "out")])
        fill(cluster, "large", 1024, given.records, given.keys)
        fill(cluster, "small", 100, given.records, given.keys)
        rows = []
        for number, (name, topic, build, target) in enumerate(CASES):
            builder = StreamsBuilder()
            build(builder)
            application = Streams(
                builder.build(),
                f"app{number}",
                bootstrap_servers=broker.bootstrap_servers,
                state=Path(folder),
            )
            rows.append((name, given.records - 500, run(application, topic, given.records), target))
            if build is count:
                found, seconds = restore(application, topic, given.records)
                rows.append((f"restore of {found:,} changelog records", found, seconds, 200_000))
            forget()
        for name, records, seconds, target in rows:
            rate = records / seconds
            missed += rate < target
            print(f"{name:40} {rate:12,.0f} {seconds / records * 1e6:10.2f} {target:10,}")
    return 1 if given.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
