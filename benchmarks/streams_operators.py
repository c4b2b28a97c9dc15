"""The operators of Streams alone, on one core: no broker, no Spark, records from memory to memory.

    python benchmarks/streams_operators.py [--records 300000] [--keys 10000] [--check]

What is measured is what a task does with records that were fetched and decoded into (key, value, timestamp,
headers) as bytes: reading them by the topic's serdes, running the operators, writing the results as bytes.
The processor time of this process is the measure, so that a neighbour on the machine does not count; the best
of three runs is shown. --check fails when an aim is missed: 150,000 records/s for map and filter, 100,000 for
counts, 200,000 for a lookup in a table of a million rows.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from millstream.streams import StreamsBuilder, TimeWindows, minutes
from millstream.streams.serdes import JSON, LONG, STRING
from millstream.streams.task import StreamTask

TABLE_ROWS = 1_000_000


def map_and_filter(builder: StreamsBuilder) -> None:
    stream = builder.stream("in").map(lambda key, value: (key, value[:100]))
    stream.filter(lambda key, value: value[0] != "x").to("out")


def json_map(builder: StreamsBuilder) -> None:
    stream = builder.stream("in", value=JSON).filter(lambda key, value: value["amount"] > 10)
    stream.map_values(lambda value: value["amount"] * 2).to("out", value=LONG)


def count(builder: StreamsBuilder) -> None:
    builder.stream("in").group_by_key().count().to_stream().to("out")


def windowed_count(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of_size(minutes(1)).grace(minutes(1))
    counts = builder.stream("in").group_by_key().windowed_by(windows).count()
    counts.to_stream().to("out")


def table_lookup(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    stream.join(builder.table("table"), lambda left, right: right).to("out")


def text_of(size: int) -> Callable[[int], bytes]:
    filler = "abcdefgh" * (size // 8)
    return lambda number: f"{number:08d}{filler}"[:size].encode()


def json_of(number: int) -> bytes:
    return b'{"id": %d, "amount": %d, "name": "%s"}' % (number, number % 100, b"n" * 100)


CASES: list[tuple[str, Callable[[StreamsBuilder], None], Callable[[int], bytes], int, int]] = [
    ("map and filter, 1 KB", map_and_filter, text_of(1024), 0, 150_000),
    ("filter and map of JSON", json_map, json_of, 0, 150_000),
    ("count by key, 100 B", count, text_of(100), 0, 100_000),
    ("count by key and minute, 100 B", windowed_count, text_of(100), 0, 100_000),
    ("lookup in a table of a million rows", table_lookup, text_of(100), TABLE_ROWS, 200_000),
]


def run(build: Callable[[StreamsBuilder], None], records: list[Any], rows: int) -> float:
    """Seconds of processor time."""
    builder = StreamsBuilder()
    build(builder)
    written: list[Any] = []
    append = written.append

    def collect(topic: str, key: Any, value: Any, timestamp: int, headers: Any, partition: Any) -> None:
        append((topic, key, value, timestamp, headers))

    task = StreamTask(builder.build(), "benchmark", collect, now=lambda: 0)
    if rows:
        table = [
            (number, STRING.plain_write(f"key-{number}"), b"row", 0, ())  # type: ignore[misc]
            for number in range(rows)
        ]
        task.deliver_batch("table", 0, table)
        for store in task.stores.values():
            store.drain()
    began = time.process_time()
    for start in range(0, len(records), 10_000):
        task.deliver_batch("in", 0, records[start : start + 10_000])
        for store in task.stores.values():
            store.drain()
        written.clear()
    return time.process_time() - began


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--records", type=int, default=300_000)
    arguments.add_argument("--keys", type=int, default=10_000)
    arguments.add_argument("--check", action="store_true")
    given = arguments.parse_args()
    chosen = random.Random(7)
    missed = 0
    print(f"{'operators':40} {'records/s':>12} {'us/record':>10} {'target':>10}")
    for name, build, value_of, rows, target in CASES:
        keys = rows or given.keys
        records = [
            (number, f"key-{chosen.randrange(keys)}".encode(), value_of(number), number // 10, ())
            for number in range(given.records)
        ]
        seconds = min(run(build, records, rows) for _ in range(3))
        rate = given.records / seconds
        missed += rate < target
        print(f"{name:40} {rate:12,.0f} {seconds / given.records * 1e6:10.2f} {target:10,}")
    return 1 if given.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
