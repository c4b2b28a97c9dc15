"""Transactions: confluent-kafka commits 100 records of 100 bytes a transaction, one after the other, against
both brokers.

The client waits for each commit before it begins the next transaction, so this is about the time a
transaction takes: partition added, records written, decision logged, markers written. Once to one partition
and once to ten, where each transaction leaves ten markers.
"""

import itertools
import json
import subprocess
import sys

import brokers
import common
from common import Measure, Report, Workload

RECORDS = 100
_numbers = itertools.count()

PROGRAM = """
import json, sys, time
from confluent_kafka import Producer
bootstrap, topic, partitions, count, seconds = sys.argv[1], sys.argv[2], *map(float, sys.argv[3:])
producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "transactional.id": topic,
                     "linger.ms": 0})
producer.init_transactions(60)
value = b"x" * 100
def transaction():
    producer.begin_transaction()
    for n in range(int(count)):
        producer.produce(topic, value, partition=n % int(partitions))
    producer.commit_transaction(60)
for _ in range(10):
    transaction()
took = []
start = now = time.perf_counter()
while now < start + seconds:
    transaction()
    took.append(-now + (now := time.perf_counter()))
took.sort()
print(json.dumps({"count": len(took), "seconds": now - start, "p99": took[len(took) * 99 // 100]}))
"""


def workload(partitions: int, seconds: float) -> Workload:
    def prepare(broker: brokers.Broker) -> str:
        brokers.require_room(broker.log_dir, 2)
        topic = f"transactions-{next(_numbers)}"
        brokers.create_topic(broker, topic, partitions)
        return topic

    def run(broker: brokers.Broker, topic: str) -> common.Result:
        command = [sys.executable, "-c", PROGRAM, broker.bootstrap, topic]
        done = subprocess.run(
            [*command, str(partitions), str(RECORDS), str(seconds)],
            capture_output=True,
            text=True,
            timeout=seconds + 240,
        )
        if done.returncode:
            raise brokers.Failed(f"{broker.name}: transactional producer: {done.stderr[-800:]}")
        found = json.loads(done.stdout)
        return {
            "requests": found["count"],
            "transactions_per_s": found["count"] / found["seconds"],
            "p99_us": found["p99"] * 1e6,
        }

    label = "one partition" if partitions == 1 else f"{partitions} partitions"
    return Workload(
        f"transactions of {RECORDS} records, {label}",
        run,
        (
            Measure("transactions_per_s", "txn/s", aim=1.0),
            Measure("p99_us", "us", "p99", more_is_better=False),
        ),
        prepare,
        brokers.delete_topic,
    )


def measure(report: Report) -> None:
    with common.both(report.options, report) as used:
        seconds = report.options.seconds
        common.compare(report, [workload(partitions, seconds) for partitions in (1, 10)], used)


if __name__ == "__main__":
    sys.exit(common.main("broker_transactions", __doc__ or "", measure))
