"""Stateful operators of Streams on whole blocks against the same record by record: no broker, no Spark.

    python benchmarks/streams_blocks.py [--records 200000] [--keys 5000] [--pairs 3]

A task gets blocks of 4,000 records as the runtime gives them (Arrow columns), with its stores in LMDB, and
what it sends is made into record batches. Both ways run alternately in this process on the same records; the
measure is processor time. The ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.streams import JoinWindows, Materialized, SessionWindows, StreamsBuilder, TimeWindows, minutes
from millstream.streams.columns.blocks import Records
from millstream.streams.runtime.record_collector import RecordCollector
from millstream.streams.serdes import JSON, LONG, STRING
from millstream.streams.stores.lmdb import StoreFolder
from millstream.streams.task import StreamTask

BLOCK = 4000
Build = Callable[[StreamsBuilder], None]


def reduce(builder: StreamsBuilder) -> None:
    builder.stream("in").group_by_key().reduce(max).to_stream().to("out")


def aggregate(builder: StreamsBuilder) -> None:
    kept = Materialized("sums", STRING, LONG)
    sums = (
        builder.stream("in")
        .group_by_key()
        .aggregate(int, lambda _, v, total: total + len(v), materialized=kept)
    )
    sums.to_stream().to("out", value=LONG)


def aggregate_json(builder: StreamsBuilder) -> None:
    def add(_key: Any, value: str, so_far: dict[str, int]) -> dict[str, int]:
        so_far["count"] = so_far.get("count", 0) + 1
        so_far["length"] = so_far.get("length", 0) + len(value)
        return so_far

    kept = Materialized("sums", STRING, JSON)
    sums = builder.stream("in").group_by_key().aggregate(dict, add, materialized=kept)
    sums.to_stream().to("out", value=JSON)


def windowed_reduce(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of_size(minutes(1)).grace(minutes(1))
    builder.stream("in").group_by_key().windowed_by(windows).reduce(max).to_stream().to("out")


def sessions(builder: StreamsBuilder) -> None:
    windows = SessionWindows.of(200).grace(1000)
    builder.stream("in").group_by_key().windowed_by(windows).count().to_stream().to("out")


def stream_join(builder: StreamsBuilder) -> None:
    windows = JoinWindows.of(2000).grace(0)
    builder.stream("in").join(builder.stream("in2"), lambda left, _right: left, windows).to("out")


def left_join(builder: StreamsBuilder) -> None:
    windows = JoinWindows.of(500).grace(0)
    builder.stream("in").left_join(builder.stream("in2"), lambda left, _right: left, windows).to("out")


CASES: list[tuple[str, Build, tuple[str, ...]]] = [
    ("reduce by key", reduce, ("in",)),
    ("aggregate by key to a number", aggregate, ("in",)),
    ("aggregate by key to a JSON object", aggregate_json, ("in",)),
    ("reduce by key and minute", windowed_reduce, ("in",)),
    ("count by key and session", sessions, ("in",)),
    ("inner join of two streams", stream_join, ("in", "in2")),
    ("left join of two streams", left_join, ("in", "in2")),
]


def made_up(count: int, keys: int, topics: tuple[str, ...]) -> list[tuple[str, Records]]:
    chosen = random.Random(7)
    found = []
    for number, start in enumerate(range(0, count, BLOCK)):
        size = min(BLOCK, count - start)
        records = Records(
            np.arange(start, start + size),
            pa.array([b"key-%d" % chosen.randrange(keys) for _ in range(size)], pa.binary()),
            pa.array([b"%08d" % chosen.randrange(10**8) + b"v" * 92 for _ in range(size)], pa.binary()),
            np.arange(start, start + size) // 10,
            None,
        )
        found.append((topics[number % len(topics)], records))
    return found


def run(build: Build, blocks: list[tuple[str, Records]], in_blocks: bool) -> float:
    """Seconds of processor time."""
    builder = StreamsBuilder()
    build(builder)
    with tempfile.TemporaryDirectory() as path:
        folder, collector = StoreFolder(path, size=4 << 30, durable=False), RecordCollector()
        task = StreamTask(
            builder.build(),
            "benchmark",
            collector.send,
            open_store=folder.open,
            now=lambda: 0,
            collect_columns=collector.send_columns,
        )
        began = time.process_time()
        for topic, records in blocks:
            if in_blocks:
                assert task._deliver_columns(topic, 0, records), "this cannot be done in blocks"
            else:
                task.deliver_batch(topic, 0, iter(records))
            for store in task.stores.values():
                collector.send_changes(store.spec.changelog("benchmark"), store.drain(), 0)
            sum(len(batch) for _, batch in collector.batches(lambda _topic: 4, 1, True))
            collector.clear()
            folder.commit()
        seconds = time.process_time() - began
        folder.close()
    return seconds


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--records", type=int, default=200_000)
    arguments.add_argument("--keys", type=int, default=5_000)
    arguments.add_argument("--pairs", type=int, default=3)
    given = arguments.parse_args()
    print(f"{'records per second of processor time':40} {'one by one':>12} {'in blocks':>12} {'ratio':>6}")
    for name, build, topics in CASES:
        blocks = made_up(given.records, given.keys, topics)
        run(build, blocks[:4], True)  # compiled loops
        pairs = [(run(build, blocks, False), run(build, blocks, True)) for _ in range(given.pairs)]
        before, after = (given.records / statistics.median(times) for times in zip(*pairs, strict=True))
        print(f"{name:40} {before:12,.0f} {after:12,.0f} {after / before:6.2f}", flush=True)


if __name__ == "__main__":
    main()
