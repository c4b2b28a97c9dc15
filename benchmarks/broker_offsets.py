"""Groups and offsets: a restart with a million committed offsets, 1,000 groups that commit, 100 members that
come at once.

The offsets are committed through the protocol, once as 1,000 groups of 1,000 offsets and once as a million
groups of one (a million batches in the log). After a clean stop the broker starts again: measured are the
time from the start of the process to the first acknowledged produce, the time until a group of every
coordinator partition can be asked for its offsets, the slowest Metadata and Produce request meanwhile, and
what the broker's memory grew by, per offset.

Then 1,000 connections commit once a second each, and the broker's CPU time is read. Last, 100 raw members
join a group over 200 partitions; the time runs from the end of the initial rebalance delay until all of them
have their partitions (in the consumer protocol, which has no such delay, from the first heartbeat on).
"""

import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence

import brokers
import common
import members
from brokers import Broker
from common import Measure, Report, Workload
from members import Line
from millstream.broker.coordinators.runtime import partition_for

MILLION = 1_000_000
SHARDS = 50
DELAY = 1.0
GROUPS = 1000
SETTINGS = {
    "group.initial.rebalance.delay.ms": str(round(DELAY * 1000)),
    "group.consumer.assignment.interval.ms": "0",
}
LOADING = 14


def _send_all(port: int, frames: Iterator[bytes]) -> None:
    """Many commits over one connection, answers read beside; all of them have to be accepted."""
    line = Line(port)
    wrong: list[bytes] = []
    sent = threading.Semaphore(0)
    done = threading.Event()

    def read() -> None:
        seen = 0
        while not (done.is_set() and seen == total):
            if sent.acquire(timeout=0.2):
                answer = line.frame()
                seen += 1
                if members.refused(answer):
                    wrong.append(answer)

    total = -1
    reader = threading.Thread(target=read)
    reader.start()
    count = 0
    for frame in frames:
        line.socket.sendall(frame)
        sent.release()
        count += 1
    total = count
    done.set()
    reader.join()
    line.close()
    if wrong:
        raise brokers.Failed(f"{len(wrong)} commits were refused, the first with {wrong[0]!r}")


class Watch(threading.Thread):
    """Metadata and Produce, again and again, as another client would; remembers the slowest."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.line = Line(port)
        self.slowest = {"metadata": 0.0, "produce": 0.0}
        self.count = 0
        self.stopping = False

    def run(self) -> None:
        batch = brokers._batch()
        name = struct.pack(">h", 5) + b"other"
        produce = struct.pack(">hhihhhii", 0, 7, 1, -1, -1, -1, 30000, 1)
        produce += name + struct.pack(">iii", 1, 0, len(batch)) + batch
        metadata = struct.pack(">hhihi", 3, 4, 1, -1, 1) + name + b"\0"
        while not self.stopping:
            for kind, request in (("metadata", metadata), ("produce", produce)):
                began = time.perf_counter()
                self.line.socket.sendall(struct.pack(">i", len(request)) + request)
                self.line.frame()
                self.slowest[kind] = max(self.slowest[kind], time.perf_counter() - began)
                self.count += 1
            time.sleep(0.002)


def _until_loaded(port: int, groups: Sequence[str]) -> None:
    """Until each of these groups can be asked for its offsets."""
    line = Line(port)
    left = list(groups)
    while left:
        answer = line.ask("offset_fetch", 5, group_id=left[-1], topics=None)
        if answer.error_code == LOADING:
            time.sleep(0.02)
        elif answer.error_code or not answer.topics:
            raise brokers.Failed(f"group {left[-1]} has lost its offsets: {answer!r}")
        else:
            left.pop()
    line.close()


def restart(groups: int, each: int) -> Workload:
    """`groups` groups with `each` offsets."""
    topics = [f"topic-{number}" for number in range(max(1, each // 250))]
    width = min(each, 250)
    base = 0.0

    def prepare(broker: Broker) -> str:
        """The first time: fill the log. The broker is stopped afterwards."""
        nonlocal base
        if base:
            return ""
        brokers.start(broker)
        for topic in (*topics, "other"):
            brokers.create_topic(broker, topic, width if topic in topics else 1)
        partitions = [(topic, range(width)) for topic in topics]
        members.find_coordinator(broker)
        broker.stop()
        brokers.start(broker)
        time.sleep(2)
        base = brokers.resident_mb(broker.pid)
        _send_all(
            broker.port, (members.commit_frame(f"group-{n}", partitions, 1000 + n) for n in range(groups))
        )
        broker.stop()
        return ""

    def run(broker: Broker, _prepared: str) -> common.Result:
        names = [f"group-{n}" for n in range(min(groups, 10_000))]
        samples = {partition_for(name, SHARDS): name for name in names}  # one for each coordinator partition
        started = time.perf_counter()
        broker.launch()
        brokers.first_acknowledged_produce(broker.port, "other")
        first = time.perf_counter() - started
        watch = Watch(broker.port)
        watch.start()
        _until_loaded(broker.port, list(samples.values()))
        loaded = time.perf_counter() - started
        watch.stopping = True
        watch.join()
        time.sleep(1)
        resident = brokers.resident_mb(broker.pid)
        broker.stop()
        return {
            "first_s": first,
            "loaded_s": loaded,
            "slowest_s": max(watch.slowest.values()),
            "served": watch.count,
            "bytes_each": (resident - base) * 1e6 / (groups * each),
        }

    measures = (
        Measure("first_s", "s", "first produce after the start", more_is_better=False, limit=0.5),
        Measure("loaded_s", "s", "all loaded", more_is_better=False, limit=10),
        Measure("slowest_s", "s", "slowest request meanwhile", more_is_better=False, limit=0.5),
        Measure("bytes_each", "B", "memory an offset", more_is_better=False, limit=400),
    )
    name = f"restart with {groups:,} groups of {each:,} offset{'s' if each > 1 else ''}"
    return Workload(name, run, measures, prepare, warm=False, starts_broker=True, only_ours=True)


def committing(partitions: int, seconds: float) -> Workload:
    """1,000 groups, each on a connection of its own, each commits once a second."""

    def prepare(broker: Broker) -> str:
        topic = f"committed-{partitions}"
        brokers.create_topic(broker, topic, partitions)
        members.find_coordinator(broker)
        return topic

    def run(broker: Broker, topic: str) -> common.Result:
        lines = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(GROUPS)]
        frames = [members.commit_frame(f"g-{n}", [(topic, range(partitions))], n) for n in range(GROUPS)]
        began = time.perf_counter()
        cpu = brokers.cpu_seconds(broker.pid)
        count = 0
        while (now := time.perf_counter() - began) < seconds:
            due = int(now * GROUPS)
            if count >= due:
                time.sleep(0.001)
            for number in range(count, due):
                line = lines[number % GROUPS]
                if number >= GROUPS:
                    line.recv(65536)
                line.sendall(frames[number % GROUPS])
            count = due
        used = brokers.cpu_seconds(broker.pid) - cpu
        for line in lines:
            line.close()
        return {"cores": used / seconds, "requests": count, "seconds": seconds}

    name = f"1,000 groups commit {partitions} offset{'s' if partitions > 1 else ''} a second"
    return Workload(
        name,
        run,
        (Measure("cores", "cores", more_is_better=False, limit=0.5),),
        prepare,
        brokers.delete_topic,
    )


def settling(consumer: bool) -> Workload:
    def prepare(broker: Broker) -> str:
        topic = f"settled-{time.monotonic_ns()}"
        brokers.create_topic(broker, topic, 200)
        members.find_coordinator(broker)
        return topic

    def run(broker: Broker, topic: str) -> common.Result:
        if consumer:
            return {"settled_s": members.settle_consumer(broker, topic, 200, 100)}
        return {"settled_s": members.settle_classic(broker, topic, 200, 100, DELAY)}

    kind = "consumer" if consumer else "classic"
    name = f"100 members settle over 200 partitions, {kind} protocol"
    measure = Measure("settled_s", "s", more_is_better=False, limit=1.0)
    return Workload(name, run, (measure,), prepare, brokers.delete_topic)


def measure(report: Report) -> None:
    options = report.options
    options.settings.update(SETTINGS)
    share = 10 if options.quick else 1
    with common.both(options, report) as used:
        both = [
            committing(1, options.seconds),
            committing(10, options.seconds),
            settling(False),
            settling(True),
        ]
        common.compare(report, both, used)
    for groups, each in ((1000, 1000 // share), (MILLION // share, 1)):
        with common.both(options, report, running=False) as used:
            common.compare(report, [restart(groups, each)], used)


if __name__ == "__main__":
    sys.exit(common.main("broker_offsets", __doc__ or "", measure))
