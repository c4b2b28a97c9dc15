"""Start and size: time from starting the process to the first acknowledged produce, memory, and 2,000
partitions.

The first produce is asked for by raw bytes in a tight loop, into a topic that the broker creates on demand.
Memory is resident memory, mapped files included: a second after the start, and after a load of every kind.
The folder of 2,000 partitions holds one message in each; it is stopped cleanly, started again, and then left
alone for a while.
"""

import itertools
import shutil
import sys
import time

from confluent_kafka import Producer

import brokers
import common
import load
from brokers import Broker
from common import Measure, Report, Workload

PARTITIONS = 2000
_numbers = itertools.count()


def _timed_start(broker: Broker) -> float:
    """Seconds from the start of the process to an acknowledged produce."""
    started = time.perf_counter()
    broker.launch()
    brokers.first_acknowledged_produce(broker.port, f"start-{next(_numbers)}")
    return time.perf_counter() - started


def _empty(broker: Broker) -> str:
    """A fresh folder, after one start that is not counted: it formats Kafka's folder, and compiles our
    sources if they are newer than their byte code."""
    broker.stop()
    shutil.rmtree(broker.log_dir, ignore_errors=True)
    brokers.start(broker)
    broker.stop()
    if broker.name == common.OURS:
        shutil.rmtree(broker.log_dir)
    return ""


def _stop(broker: Broker, _prepared: str) -> None:
    broker.stop()


def fresh_start() -> Workload:
    """An empty folder."""

    def run(broker: Broker, _prepared: str) -> common.Result:
        taken = _timed_start(broker)
        time.sleep(1)
        return {"start_s": taken, "resident_mb": brokers.resident_mb(broker.pid)}

    measures = (
        Measure(
            "start_s", "s", "to the first acknowledged produce", more_is_better=False, aim=1.0, limit=0.5
        ),
        Measure("resident_mb", "MB", "resident after it", more_is_better=False, aim=1.0, limit=60),
    )
    return Workload("start", run, measures, _empty, _stop, warm=False, starts_broker=True)


def memory_after_load(seconds: float) -> Workload:
    """Large and small batches, many connections, fetches: then look at the process."""

    def run(broker: Broker, _prepared: str) -> common.Result:
        brokers.start(broker)
        for topic, partitions in (("load", 4), ("many", 50)):
            brokers.create_topic(broker, topic, partitions)
        bound = 2_000_000_000
        four: dict[str, float] = {"connections": 4, "partitions": 4, "seconds": seconds, "max_bytes": bound}
        load.produce(broker, "load", batch_bytes=65536, **four)
        load.produce(broker, "load", batch_bytes=1 << 20, **four)
        load.produce(
            broker,
            "many",
            batch_bytes=0,
            record_bytes=100,
            in_flight=1,
            connections=50,
            partitions=50,
            seconds=seconds,
        )
        load.fetch(broker, "load", connections=4, partitions=4, seconds=seconds)
        result = {"resident_mb": brokers.resident_mb(broker.pid)}
        for topic in ("load", "many"):
            brokers.delete_topic(broker, topic)
        return result

    measures = (Measure("resident_mb", "MB", more_is_better=False, aim=1.0, limit=150),)
    return Workload("resident after load", run, measures, _empty, _stop, warm=False, starts_broker=True)


def many_partitions(idle_seconds: float) -> Workload:
    """A clean restart with 2,000 partitions, and what doing nothing costs afterwards."""

    def prepare(broker: Broker) -> str:
        if not (broker.log_dir / f"wide-{PARTITIONS - 1}").exists():
            _empty(broker)
            brokers.start(broker)
            brokers.create_topic(broker, "wide", PARTITIONS)
            producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, "acks": "all"})
            for partition in range(PARTITIONS):
                producer.produce("wide", b"x" * 100, partition=partition)
            if left := producer.flush(120):
                raise brokers.Failed(f"{broker.name}: {left} messages were not delivered")
            broker.stop()
        return "wide"

    def run(broker: Broker, topic: str) -> common.Result:
        started = time.perf_counter()
        broker.launch()
        brokers.first_acknowledged_produce(broker.port, topic)
        taken = time.perf_counter() - started
        time.sleep(3)
        before = brokers.cpu_seconds(broker.pid)
        time.sleep(idle_seconds)
        idle = (brokers.cpu_seconds(broker.pid) - before) / idle_seconds * 100
        return {
            "start_s": taken,
            "idle_percent": idle,
            "resident_mb": brokers.resident_mb(broker.pid),
            "open_files": float(brokers.open_files(broker.pid)),
        }

    measures = (
        Measure("start_s", "s", "clean restart", more_is_better=False, aim=1.0, limit=5),
        Measure("idle_percent", "% CPU", "idle", more_is_better=False, limit=5),
        Measure("resident_mb", "MB", "resident", more_is_better=False),
        Measure("open_files", "files", "open", more_is_better=False),
    )
    return Workload("2,000 partitions", run, measures, prepare, _stop, warm=False, starts_broker=True)


def measure(report: Report) -> None:
    options = report.options
    workloads = [
        fresh_start(),
        memory_after_load(options.seconds),
        many_partitions(5 if options.quick else 15),
    ]
    with common.both(options, report, running=False) as used:
        common.compare(report, workloads, used)


if __name__ == "__main__":
    sys.exit(common.main("broker_start", __doc__ or "", measure))
