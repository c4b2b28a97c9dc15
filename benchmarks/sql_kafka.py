"""SQL on Spark against the same topologies in Kafka Streams (Java), on the same topics, in one run.

    python benchmarks/sql_kafka.py [--records 600000] [--rounds 3] [--broker millstream|kafka] [--only TEXT]

JSON of about 190 bytes, one partition, exactly once, one thread; ours is the topology of the statement in a
lane of Spark (local[1]), as the server runs it. What is measured, and how, is as in streams_kafka.py: from
the first commit past a fifth of the records to the last record; records per second, and per second of
processor time of all processes of a side.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import NamedTuple

import brokers
from apache_kafka import Unavailable
from millstream.client import Admin, ClientConfig, Cluster, NewTopic, Producer
from millstream.sql import engine
from millstream.sql.catalog import Catalog
from millstream.sql.environment import Environment
from millstream.sql.functions import FUNCTIONS
from millstream.sql.parser import parse_one
from millstream.sql.recipes import Recipe
from millstream.wire.records import Record
from streams_kafka import NO_CACHE, SETTINGS, Measured, compile_java, measure

SOURCES = """CREATE STREAM orders (k STRING KEY, id BIGINT, name STRING, region STRING, amount DOUBLE,
    quantity INT, note STRING, ts BIGINT) WITH (kafka_topic='orders', value_format='JSON', partitions=1);
CREATE TABLE customers (k STRING PRIMARY KEY, city STRING)
    WITH (kafka_topic='customers', value_format='JSON', partitions=1)"""
STATEMENTS = {
    "project": "CREATE STREAM o WITH (kafka_topic='{0}') AS SELECT k, id, UCASE(region) AS region, "
    "amount * quantity AS total, name FROM orders WHERE quantity > 70;",
    "count": "CREATE TABLE o WITH (kafka_topic='{0}') AS SELECT k, COUNT(*) AS n FROM orders GROUP BY k;",
    "join": "CREATE STREAM o WITH (kafka_topic='{0}') AS SELECT orders.k, id, amount, city FROM orders "
    "JOIN customers ON orders.k = customers.k;",
}


class Case(NamedTuple):
    name: str
    topology: str
    settings: tuple[str, ...] = ()


CASES = [
    Case("filter and projection of JSON", "project"),
    Case("count by key, Java without cache", "count", NO_CACHE),
    Case("stream-table join", "join"),
]


def serve(name: str, bootstrap: str, application: str, out: str, state: str) -> None:
    """The statement's application, in a process of its own until it is told to end."""
    from millstream.spark.session import spark
    from millstream.streams import Streams

    settings = {"auto.offset.reset": "earliest"}
    environment = Environment(FUNCTIONS, None, settings, lambda _topic: 1)
    catalog = Catalog()
    for text in SOURCES.split(";"):
        catalog = engine.apply(parse_one(text + ";"), catalog, environment).catalog
    recipe = Recipe(STATEMENTS[name].format(out), catalog, settings, client=ClientConfig.of(bootstrap))
    streams = Streams(
        recipe.topology(),
        application,
        bootstrap_servers=bootstrap,
        state=state,
        config={"commit.interval.ms": 100},
    )
    streams.start(spark(application, master="local[1]")).awaitTermination()


def fill(cluster: Cluster, records: int, keys: int) -> None:
    producer, chance = Producer(cluster), random.Random(1)
    for start in range(0, keys, 1000):
        rows = [
            Record(place, 1, b"key-%d" % (start + place), b'{"CITY":"city-%d"}' % (place % 100))
            for place in range(min(1000, keys - start))
        ]
        producer.send("customers", 0, rows)
    for start in range(0, records, 1000):
        batch = []
        for number in range(start, min(start + 1000, records)):
            value = {
                "ID": number,
                "NAME": f"customer-{number}",
                "REGION": chance.choice(["emea", "apac", "amer"]),
                "AMOUNT": round(chance.random() * 1000, 2),
                "QUANTITY": chance.randint(1, 100),
                "NOTE": f"a text that the statement does not use, {number}",
                "TS": 1_700_000_000_000 + number,
            }
            key = b"key-%d" % (number * 7919 % keys)
            batch.append(Record(number - start, 1000 + number, key, json.dumps(value).encode()))
        producer.send("orders", 0, batch)


def compare(given: argparse.Namespace, bootstrap: str, cluster: Cluster, java: str, folder: Path) -> None:
    kept = {"retention.ms": "-1"}
    Admin(cluster).create_topics([NewTopic(name, 1, 1, kept) for name in ("orders", "customers")])
    fill(cluster, given.records, given.keys)
    print(
        f"{given.records:,} records, {given.keys:,} keys, broker {given.broker}, load average "
        f"{os.getloadavg()[0]:.1f}, ours / Kafka Streams"
    )
    print(
        f"{'':34} {'ours/s':>9} {'Java/s':>9} {'ratio':>6}   {'ours/cpu s':>10} {'Java/cpu s':>10} "
        f"{'ratio':>6}"
    )
    for number, case in enumerate(one for one in CASES if given.only in one.name):
        found: dict[str, list[Measured]] = {"ours": [], "java": []}
        for turn in range(given.rounds):
            for side in ("ours", "java") if turn % 2 == 0 else ("java", "ours"):
                name = f"{side}-{number}-{turn}"
                out = f"out-{name}"
                Admin(cluster).create_topics([NewTopic(out, 1, 1, kept)])
                if side == "ours":
                    command = [sys.executable, __file__, "--serve", case.topology, bootstrap, name, out]
                    command.append(str(folder / name))
                else:
                    command = ["java", "-Xmx1g", "-cp", java, "SqlApp", bootstrap, name, case.topology]
                    command += ["orders", out, str(folder / name), *case.settings]
                found[side].append(measure(command, cluster, name, "orders", given.records))
                Admin(cluster).delete_topics([one for one in Admin(cluster).topic_names() if name in one])
                shutil.rmtree(folder / name, ignore_errors=True)
        row = []
        for figure in ("rate", "per_core"):
            ours, theirs = ([getattr(one, figure) for one in found[side]] for side in ("ours", "java"))
            row += [median(ours), median(theirs)]
            row.append(median(one / other for one, other in zip(ours, theirs, strict=True)))
        print(
            f"{case.name:34} {row[0]:9,.0f} {row[1]:9,.0f} {row[2]:6.2f}   {row[3]:10,.0f} {row[4]:10,.0f} "
            f"{row[5]:6.2f}",
            flush=True,
        )


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--records", type=int, default=600_000)
    arguments.add_argument("--keys", type=int, default=100_000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--broker", choices=("millstream", "kafka"), default="millstream")
    arguments.add_argument("--only", default="")
    arguments.add_argument("--serve", nargs=5, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.serve:
        serve(*given.serve)
        return 0
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))  # what was started is ended too
    try:
        java = compile_java("SqlApp")
    except (Unavailable, OSError, subprocess.CalledProcessError) as reason:
        print(f"Kafka Streams cannot be had here: {reason}")
        return 1
    folder = Path(tempfile.mkdtemp(prefix="millstream-bench-"))
    broker = brokers.make(given.broker, folder, SETTINGS)
    try:
        brokers.start(broker)
        with Cluster(ClientConfig.of(broker.bootstrap)) as cluster:
            compare(given, broker.bootstrap, cluster, java, folder)
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
