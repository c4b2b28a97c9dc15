"""Real clients: Kafka's own ProducerPerformance (Java) and confluent-kafka's producer, against both brokers.

Here the client is part of what is measured, and often the slower part; the ratio says whether a user who
changes only the address loses anything. acks=all, idempotent, otherwise the clients' defaults. Each run is a
fresh client process; the Java client's first records are its warm-up and not counted.
"""

import itertools
import json
import re
import subprocess
import sys

import apache_kafka
import brokers
import common
from common import Measure, Report, Workload

PERFORMANCE_CLASS = "org.apache.kafka.tools.ProducerPerformance"
RATE = re.compile(r"([\d.]+) records/sec \(([\d.]+) MB/sec\)")
_numbers = itertools.count()

CONFLUENT_PROGRAM = """
import json, sys, time
from confluent_kafka import Producer
bootstrap, topic, size, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
failed = delivered = 0
def note(error, message):
    global failed, delivered
    if error is not None:
        failed += 1
    else:
        delivered += 1
producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "acks": "all",
                      "enable.idempotence": True,
                     "queue.buffering.max.messages": 100000, "on_delivery": note})
value = b"x" * size
producer.produce(topic, value)
producer.flush(30)
failed = delivered = 0
start = time.perf_counter()
end = start + seconds
sent = 0
while time.perf_counter() < end:
    for _ in range(200):
        try:
            producer.produce(topic, value)
            sent += 1
        except BufferError:
            producer.poll(0.01)
    producer.poll(0)
left = producer.flush(60)
taken = time.perf_counter() - start
print(json.dumps({"records": delivered, "failed": failed + left, "seconds": taken}))
"""


def new_topic(broker: brokers.Broker) -> str:
    brokers.require_room(broker.log_dir, 6)
    topic = f"clients-{next(_numbers)}"
    brokers.create_topic(broker, topic, 4)
    return topic


def java_producer(record_bytes: int, records: int) -> Workload:
    """kafka-producer-perf-test without a limit on the rate."""

    def run(broker: brokers.Broker, topic: str) -> common.Result:
        warm = records // 3
        done = apache_kafka.tool(
            PERFORMANCE_CLASS,
            "--bootstrap-server",
            broker.bootstrap,
            "--topic",
            topic,
            "--num-records",
            str(records + warm),
            "--warmup-records",
            str(warm),
            "--record-size",
            str(record_bytes),
            "--throughput",
            "-1",
            "--command-property",
            "acks=all",
            timeout=600,
            heap="512m",
        )
        steady = [line for line in done.stdout.splitlines() if "steady state" in line]
        rate = RATE.search(steady[-1]) if steady else None
        if done.returncode != 0 or rate is None:
            raise brokers.Failed(f"{broker.name}: ProducerPerformance: {(done.stdout + done.stderr)[-800:]}")
        return {
            "records_per_s": float(rate[1]),
            "mb_per_s": float(rate[1]) * record_bytes / 1e6,
            "bytes": float((records + warm) * record_bytes),
        }

    name = f"ProducerPerformance (Java), {record_bytes:,} B records"
    measures = (Measure("mb_per_s", "MB/s", aim=1.0),)
    return Workload(name, run, measures, new_topic, brokers.delete_topic)


def confluent_producer(record_bytes: int, seconds: float) -> Workload:
    """librdkafka through Python, as fast as a Python loop can feed it."""

    def run(broker: brokers.Broker, topic: str) -> common.Result:
        command = [sys.executable, "-c", CONFLUENT_PROGRAM, broker.bootstrap, topic, str(record_bytes)]
        done = subprocess.run([*command, str(seconds)], capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            raise brokers.Failed(f"{broker.name}: confluent-kafka: {done.stderr[-800:]}")
        answer = json.loads(done.stdout)
        if answer["failed"]:
            raise brokers.Failed(f"{broker.name}: confluent-kafka: {answer['failed']} messages failed")
        size = answer["records"] * record_bytes
        return {
            "records_per_s": answer["records"] / answer["seconds"],
            "mb_per_s": size / answer["seconds"] / 1e6,
            "bytes": float(size),
            "seconds": float(answer["seconds"]),
        }

    name = f"confluent-kafka producer, {record_bytes:,} B records"
    return Workload(name, run, (Measure("records_per_s", "rec/s", aim=1.0),), new_topic, brokers.delete_topic)


def measure(report: Report) -> None:
    options = report.options
    share = 0.3 if options.quick else 1.0
    workloads = [confluent_producer(1000, options.seconds), confluent_producer(100, options.seconds)]
    if (reason := apache_kafka.available()) is None:
        workloads += [java_producer(1000, int(1_500_000 * share)), java_producer(100, int(6_000_000 * share))]
    else:
        report.note(f"ProducerPerformance left out: {reason}")
    with common.both(options, report) as used:
        common.compare(report, workloads, used)


if __name__ == "__main__":
    sys.exit(common.main("broker_clients", __doc__ or "", measure))
