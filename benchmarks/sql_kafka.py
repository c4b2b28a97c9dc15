"""SQL on Spark against the same topologies in Kafka Streams (Java), on the same topics, in one run.

    python benchmarks/sql_kafka.py [--records 600000] [--rounds 3] [--broker millstream|kafka] [--only TEXT]

JSON of about 190 bytes, one partition, exactly once, one thread; ours is the topology of the statement in a
lane of Spark (local[1]), as the server runs it. What is measured, and how, is in
kafkastreams.py.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence

import kafkastreams
from kafkastreams import KEPT, NO_CACHE, Case
from millstream.client import Admin, ClientConfig, Cluster, NewTopic, Producer
from millstream.sql import engine
from millstream.sql.catalog import Catalog
from millstream.sql.environment import Environment
from millstream.sql.functions import FUNCTIONS
from millstream.sql.parser import parse_one
from millstream.sql.recipes import Recipe
from millstream.wire.records import Record

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


CASES = [
    Case("filter and projection of JSON", "orders", "project", "project"),
    Case("count by key, Java without cache", "orders", "count", "count", NO_CACHE),
    Case("stream-table join", "orders", "join", "join"),
]


def serve(name: str, bootstrap: str, application: str, _source: str, out: str, state: str) -> None:
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


def fill(cluster: Cluster, given: argparse.Namespace, _cases: Sequence[Case]) -> None:
    records, keys = given.records, given.keys
    Admin(cluster).create_topics([NewTopic(name, 1, 1, KEPT) for name in ("orders", "customers")])
    producer, chance = Producer(cluster), random.Random(1)
    for start in range(0, keys, 1000):
        rows = [
            Record(number, 1, b"key-%d" % (start + number), b'{"CITY":"city-%d"}' % (number % 100))
            for number in range(min(1000, keys - start))
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


if __name__ == "__main__":
    sys.exit(kafkastreams.main(__file__, "SqlApp", __doc__, CASES, fill, serve, records=600_000))
