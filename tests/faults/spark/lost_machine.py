"""How long tasks stand still when a machine is lost: `python tests/faults/spark/lost_machine.py`.

A standalone cluster of two workers, each with a machine name and a folder for stores of its own. An
application counts by key, with and without standby copies. Then one worker goes with all of its processes:
killed, so that its connections end, or frozen, as when a machine loses its power and says nothing. Measured
from that moment: until its tasks run on the other machine, and until the first count of each of them has come
out. In the end every key must have been counted once for each of its records.
"""

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import psutil

from millstream.client import Admin, ClientConfig, Cluster, Fetcher, NewTopic, Producer, visible_batches
from millstream.client.fetch import next_offset
from millstream.host.host import Host
from millstream.spark.session import spark
from millstream.streams import Streams, StreamsBuilder
from millstream.streams.runtime.running import RunningStreams
from millstream.testing import Broker
from millstream.wire.records import Record, iter_records
from millstream.wire.topic_partition import TopicPartition
from tests.support.spark_cluster import SparkCluster
from tests.support.waiting import wait_until

PARTITIONS = 4
MACHINES = ("worker-1", "worker-2")
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "700m",
    "spark.millstream.host.lanes": "4",
}


class Counts(threading.Thread):
    """The newest committed count of each key, and when the last one of each input partition came."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._servers = bootstrap
        self.newest: dict[bytes, int] = {}
        self.came: dict[int, float] = {}
        self.end = threading.Event()

    def run(self) -> None:
        positions = {TopicPartition("counts", number): 0 for number in range(PARTITIONS)}
        with Cluster(ClientConfig.of(self._servers)) as cluster:
            fetcher = Fetcher(cluster, read_committed=True)
            while not self.end.is_set():
                for fetched in fetcher.poll(positions, 100):
                    which = TopicPartition(fetched.topic, fetched.partition)
                    for _, batch in visible_batches(fetched, positions[which], read_committed=True):
                        for record in iter_records(batch):
                            key = record.key or b""
                            self.newest[key] = int.from_bytes(record.value or b"", "big")
                            self.came[int(key.partition(b"-")[0])] = time.monotonic()
                    positions[which] = next_offset(fetched, positions[which])


class Input(threading.Thread):
    """A record for each partition every 20 ms."""

    def __init__(self, bootstrap: str, keys: int) -> None:
        super().__init__(daemon=True)
        self._servers, self._keys = bootstrap, keys
        self.sent: Counter[bytes] = Counter()
        self.end = threading.Event()

    def fill(self, producer: Producer) -> None:
        """Every key of every partition once."""
        for partition in range(PARTITIONS):
            for start in range(0, self._keys, 1000):
                keys = [b"%d-%d" % (partition, number) for number in range(start, start + 1000)]
                producer.send("words", partition, [Record(0, 0, key, b"x") for key in keys])
                self.sent.update(keys)

    def run(self) -> None:
        with Cluster(ClientConfig.of(self._servers)) as cluster:
            producer, number = Producer(cluster), 0
            while not self.end.wait(0.02):
                for partition in range(PARTITIONS):
                    key = b"%d-%d" % (partition, number % self._keys)
                    producer.send("words", partition, [Record(0, 0, key, b"x")])
                    self.sent[key] += 1
                number += 1


def lose(spark_cluster: SparkCluster, machine: str, how: str) -> None:
    if how == "kill":
        spark_cluster.kill_machine(machine)
        return
    process = psutil.Process(spark_cluster.pid(machine))
    for one in [*process.children(recursive=True), process]:
        os.kill(one.pid, signal.SIGSTOP)


def measure(given: argparse.Namespace, how: str, standbys: int, bootstrap: str, folder: Path) -> None:
    spark_cluster = SparkCluster(folder)
    counts, records = Counts(bootstrap), Input(bootstrap, given.keys)
    session = spark("lost-machine", CONF, master=spark_cluster.master)
    try:
        with Cluster(ClientConfig.of(bootstrap)) as cluster:
            Admin(cluster).create_topics([NewTopic(name, PARTITIONS, 1) for name in ("words", "counts")])
            cluster.wait_for_topics(["words", "counts"])
            records.fill(Producer(cluster))
        builder = StreamsBuilder()
        builder.stream("words").group_by_key().count(materialized="counts").to_stream().to("counts")
        streams = Streams(
            builder.build(),
            "counting",
            bootstrap_servers=bootstrap,
            state=folder / "state" / "{machine}",
            config={"num.standby.replicas": standbys},
        )
        running = streams.start(session)
        counts.start()
        wait_until(lambda: running.lag() == 0 and _machines(running) == set(MACHINES))
        wait_until(lambda: _copies_current(session, standbys * PARTITIONS))
        records.start()
        wait_until(lambda: len(counts.came) == PARTITIONS)
        lost = [
            int(name.partition("_")[2])
            for name, task in running.tasks().items()
            if task.machine == MACHINES[0]
        ]
        began = time.monotonic()
        lose(spark_cluster, MACHINES[0], how)
        wait_until(lambda: _machines(running) == {MACHINES[1]} and running.state == "RUNNING")
        moved = time.monotonic() - began
        wait_until(lambda: all(counts.came[partition] > began + 0.5 for partition in lost))
        through = max(counts.came[partition] for partition in lost) - began
        records.end.set()
        records.join()
        wait_until(lambda: counts.newest == records.sent, "not every record was counted once")
        restored = sum(task.status.restored for task in running.tasks().values())
        print(
            f"{how}, {standbys} standby copies, {given.keys} keys a task: {len(lost)} of {PARTITIONS} tasks "
            f"run elsewhere after {moved:.1f} s, all have counted after {through:.1f} s, {restored} records "
            f"restored, {sum(records.sent.values())} counted once",
            flush=True,
        )
        running.stop()
    finally:
        counts.end.set()
        records.end.set()
        session.stop()
        spark_cluster.close()


def _machines(running: RunningStreams) -> set[str | None]:
    return {task.machine for task in running.tasks().values()}


def _copies_current(session: object, wanted: int) -> bool:
    """There is one of each on another machine, and it has all that was committed."""
    server = Host.of(session)._server  # type: ignore[arg-type]
    found = server.standby_states("counting").values() if server is not None else ()
    return sum(copy.state == "running" and copy.status.lag == 0 for copy in found) == wanted


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--how", choices=("kill", "freeze"), nargs="+", default=["kill"])
    parser.add_argument("--standbys", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--keys", type=int, default=100_000)
    given = parser.parse_args()
    for how in given.how:
        for standbys in given.standbys:
            with tempfile.TemporaryDirectory(prefix="millstream-lost-") as folder, Broker() as broker:
                measure(given, how, standbys, broker.bootstrap_servers, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
