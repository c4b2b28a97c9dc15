"""Streams on Spark against Kafka Streams (Java) on the same topologies, topics and broker, in one run.

    python benchmarks/streams_kafka.py [--records 1000000] [--rounds 3] [--broker millstream|kafka] [--only
    TEXT]

Ours runs with Spark (local[1]). Kafka Streams runs with its own defaults (cache of 10 MB, which swallows
updates of keys that come again) and, for counts, with its cache off, which is what ours does: every update is
sent. How both are measured is in kafkastreams.py. The ratio is ours / Kafka Streams, of records per second;
and of records per second of processor time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

import kafkastreams
from kafkastreams import KEPT, NO_CACHE, Case
from millstream.client import Admin, Cluster, NewTopic, Producer
from millstream.streams import StreamsBuilder, TimeWindows, col, minutes
from millstream.wire.records import Record

SIZES = {"large": 1024, "small": 100}


def map_lambda(builder: StreamsBuilder, source: str, out: str) -> None:
    stream = builder.stream(source).map_values(lambda value: value[:100])
    stream.filter(lambda key, value: value[0] != "x").to(out)


def map_columns(builder: StreamsBuilder, source: str, out: str) -> None:
    builder.stream(source).map_values(col("value")[:100]).filter(col("value")[:1] != "x").to(out)


def count(builder: StreamsBuilder, source: str, out: str) -> None:
    builder.stream(source).group_by_key().count().to_stream().to(out)


def windows(builder: StreamsBuilder, source: str, out: str) -> None:
    spans = TimeWindows.of_size(minutes(1)).grace(minutes(1))
    builder.stream(source).group_by_key().windowed_by(spans).count().to_stream().to(out)


OURS: dict[str, Callable[[StreamsBuilder, str, str], None]] = {
    "map_lambda": map_lambda,
    "map_columns": map_columns,
    "count": count,
    "windows": windows,
}

CASES = [
    Case("map and filter, 1 KB, lambdas", "large", "map_lambda", "map"),
    Case("map and filter, 1 KB, expressions", "large", "map_columns", "map"),
    Case("count by key, Java without cache", "small", "count", "count", NO_CACHE),
    Case("count by key, Java with cache", "small", "count", "count"),
    Case("count by key and minute, Java without cache", "small", "windows", "windows", NO_CACHE),
]


def fill(cluster: Cluster, given: argparse.Namespace, cases: Sequence[Case]) -> None:
    producer = Producer(cluster)
    for topic in dict.fromkeys(case.source for case in cases):
        Admin(cluster).create_topics([NewTopic(topic, 1, 1, KEPT)])
        value = b"a" * SIZES[topic]
        for start in range(0, given.records, 1000):
            batch = [
                Record(number, start + number, b"key-%d" % ((start + number) * 7919 % given.keys), value)
                for number in range(min(1000, given.records - start))
            ]
            producer.send(topic, 0, batch)


def serve(name: str, bootstrap: str, application: str, source: str, out: str, state: str) -> None:
    """Our application, in a process of its own until it is told to end."""
    from millstream.spark.session import spark
    from millstream.streams import Streams

    builder = StreamsBuilder()
    OURS[name](builder, source, out)
    streams = Streams(builder.build(), application, bootstrap_servers=bootstrap, state=state)
    streams.start(spark(application, master="local[1]")).awaitTermination()


if __name__ == "__main__":
    sys.exit(kafkastreams.main(__file__, "StreamsApp", __doc__, CASES, fill, serve, records=1_000_000))
