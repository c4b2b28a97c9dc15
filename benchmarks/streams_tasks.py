"""One task of Streams on one core, against a broker: what a lane does with it, without Spark.

    python benchmarks/streams_tasks.py [--records 200000] [--keys 100000] [--table 1000000] [--only TEXT]
    [--check]

A task fetches and decodes its input, runs the operators, keeps its store (LMDB), and sends outputs and
changelog in one transaction. The processor time of this process is the measure (the broker's own is not in
it), so that neighbours on the machine do not count; of a case that is run several times (--times), the best.
--check fails when an aim is missed: 150,000 records/s for map and filter with lambdas and 500,000 with
expressions, 100,000 for counts, 200,000 for a join with a table of a million keys and for the restore.
"""

from __future__ import annotations

import argparse
import select
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from millstream.client import Admin, ClientConfig, Cluster, NewTopic, Producer
from millstream.client.transaction_commits import commit_all
from millstream.host.fetching import LaneFetcher
from millstream.host.ownership import Claim, LaneTransactions
from millstream.host.unit import UnitId
from millstream.spark.daemon import keep_freed_memory
from millstream.streams import Streams, StreamsBuilder, TimeWindows, col, minutes
from millstream.streams.runtime.unit import StreamsUnit
from millstream.streams.serdes import JSON
from millstream.testing import Broker
from millstream.wire.records import Record

SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
FIRST = 500
"""Records before the clock runs."""


def map_and_filter(builder: StreamsBuilder) -> None:
    stream = builder.stream("large").map(lambda key, value: (key, value[:100]))
    stream.filter(lambda key, value: value[0] != "x").to("out")


def expressions(builder: StreamsBuilder) -> None:
    builder.stream("large").map_values(col("value")[:100]).filter(col("value")[:1] != "x").to("out")


def expressions_whole(builder: StreamsBuilder) -> None:
    builder.stream("large").filter(col("value").starts_with("x")).to("out")


def fields_of_json(builder: StreamsBuilder) -> None:
    stream = builder.stream("json", value=JSON).filter(col("value.status") == "CRITICAL")
    stream.map_values(col("value.text")[:100]).to("out")


def count(builder: StreamsBuilder) -> None:
    builder.stream("small").group_by_key().count().to_stream().to("out")


def windowed_count(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of_size(minutes(1)).grace(minutes(1))
    builder.stream("small").group_by_key().windowed_by(windows).count().to_stream().to("out")


def windowed_count_rekeyed(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of_size(minutes(1)).grace(minutes(1))
    counts = builder.stream("small").group_by_key().windowed_by(windows).count()
    counts.to_stream(lambda windowed, _: windowed.key).to("out")


def join(builder: StreamsBuilder) -> None:
    stream = builder.stream("wide")
    stream.join(builder.table("table"), lambda left, right: right).to("out")


class Case(NamedTuple):
    name: str
    topic: str
    build: Callable[[StreamsBuilder], None]
    target: int


CASES = [
    Case("map and filter, 1 KB, lambdas", "large", map_and_filter, 150_000),
    Case("map and filter, 1 KB, expressions", "large", expressions, 500_000),
    Case("filter, 1 KB, nothing passes, expression", "large", expressions_whole, 500_000),
    Case("filter and map of 1 KB JSON, expressions", "json", fields_of_json, 0),
    Case("count by key, 100 B", "small", count, 100_000),
    Case("count by key and minute, 100 B", "small", windowed_count, 100_000),
    Case("the same, then a lambda for the key", "small", windowed_count_rekeyed, 100_000),
    Case("join with a table of {table:,} keys, 100 B", "wide", join, 200_000),
]

JSON_VALUE = (
    b'{"id": 12345, "status": "%s", "text": "' + b"a" * 900 + b'", "amount": 12.5, "tags": ["a", "b"]}'
)


def fill(
    cluster: Cluster,
    topic: str,
    records: int,
    keys: int,
    value: Callable[[int], bytes],
    scatter: int = 7919,
    begin: int = 0,
) -> None:
    producer = Producer(cluster)
    for start in range(0, records, 1000):
        batch = [
            Record(
                number,
                begin + start + number,
                b"key-%d" % ((start + number) * scatter % keys),
                value(start + number),
            )
            for number in range(min(1000, records - start))
        ]
        producer.send(topic, 0, batch)


def fill_topics(cluster: Cluster, topics: set[str], records: int, keys: int, table: int) -> None:
    large, small = b"a" * 1024, b"a" * 100
    if "large" in topics:
        fill(cluster, "large", records, keys, lambda _: large)
    if "small" in topics:
        fill(cluster, "small", records, keys, lambda _: small)
    if "json" in topics:
        fill(
            cluster,
            "json",
            records,
            keys,
            lambda number: JSON_VALUE % (b"CRITICAL" if number % 10 else b"OK"),
        )
    if "wide" in topics:
        fill(cluster, "table", table, table, lambda _: b"a row of the table", 1)
        fill(cluster, "wide", records, table, lambda _: small, begin=table)


class OneUnit:
    """The lane of a single unit, whose turns are driven here."""

    machine = "here"

    def __init__(self, application: Streams) -> None:
        self._cluster, self._transactions = Cluster(application.settings.client), LaneTransactions()
        application.make_topics()
        self.unit = StreamsUnit(application.settings, application.topology, 0, 0, self)
        self._fetcher = LaneFetcher(application.settings.client)

    def cluster(self, _config: ClientConfig) -> Cluster:
        return self._cluster

    def shared(self, _key: Any, make: Callable[[], Any]) -> Any:
        return make()

    def claim(self, config: ClientConfig, application: str, name: str, timeout_ms: int) -> Claim:
        return self._transactions.claim(config, self._cluster, UnitId(application, name), timeout_ms)

    def run(self, until: Callable[[StreamsUnit], bool], interval: float = 0.05) -> float:
        """Fetch, work and commit until then; the seconds of processor time that it took."""
        began, committed_at, more = time.process_time(), time.monotonic(), False
        while not until(self.unit):
            size = self.unit.fetch_bytes
            self._fetcher.send({which: {offset: size} for which, offset in self.unit.positions.items()})
            ready, _, _ = select.select(self._fetcher.connections(), [], [], 0 if more else 1)
            for fetched, _ in self._fetcher.receive(ready):
                self.unit.receive(fetched)
            more = self.unit.poll()
            if self.unit.uncommitted and time.monotonic() > committed_at + interval:
                self.commit()
                committed_at = time.monotonic()
        return time.process_time() - began

    def commit(self) -> None:
        commit = self.unit.prepare_commit()
        assert commit is not None
        for error in commit_all(self._cluster, [commit]).values():
            raise error
        self.unit.committed(commit)

    def close(self) -> None:
        if self.unit.uncommitted:
            self.commit()
        self.unit.close()
        self._transactions.release_all()
        self._fetcher.close()
        self._cluster.close()


def run(application: Streams) -> tuple[int, float]:
    """Records and seconds of processor time for what is left of a topic, after a first small part."""
    lane = OneUnit(application)
    lane.run(lambda unit: unit.status.read >= FIRST)
    begin = lane.unit.status.read
    seconds = lane.run(lambda unit: unit.status.lag == 0)
    read = lane.unit.status.read - begin
    lane.close()
    return read, seconds


def load_table(application: Streams, rows: int) -> None:
    """The table's topic is older than the other one, so it comes first."""
    lane = OneUnit(application)
    lane.run(lambda unit: unit.status.read >= rows)
    lane.close()


def restore(application: Streams) -> tuple[int, float]:
    """How many records a lost store came back from, and the seconds it took."""
    shutil.rmtree(application.settings.folder)
    lane = OneUnit(application)
    seconds = lane.run(lambda unit: unit.restored)
    found = lane.unit.status.restored
    lane.close()
    return found, seconds


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--records", type=int, default=200_000)
    arguments.add_argument("--keys", type=int, default=100_000)
    arguments.add_argument("--table", type=int, default=1_000_000)
    arguments.add_argument("--times", type=int, default=1)
    arguments.add_argument("--only", default="")
    arguments.add_argument("--check", action="store_true")
    given = arguments.parse_args()
    chosen = [case for case in CASES if given.only in case.name]
    missed = 0
    keep_freed_memory()  # as the parent of Spark's workers does
    print(f"{'one task':44} {'records/s':>12} {'us/record':>10} {'target':>10}")
    with (
        Broker(SETTINGS) as broker,
        tempfile.TemporaryDirectory() as folder,
        Cluster(ClientConfig.of(broker.bootstrap_servers)) as cluster,
    ):
        names = ("large", "small", "json", "wide", "table", "out")
        Admin(cluster).create_topics([NewTopic(name, 1, 1, {"retention.ms": "-1"}) for name in names])
        fill_topics(cluster, {case.topic for case in chosen}, given.records, given.keys, given.table)
        for number, case in enumerate(chosen):
            rows, best = [], 0.0
            for turn in range(given.times):
                builder = StreamsBuilder()
                case.build(builder)
                application = Streams(
                    builder.build(),
                    f"app{number}-{turn}",
                    bootstrap_servers=broker.bootstrap_servers,
                    state=Path(folder),
                )
                if case.build is join:
                    load_table(application, given.table)
                done, seconds = run(application)
                best = min(best or seconds / done, seconds / done)
                if case.build is count and turn == 0:
                    found, spent = restore(application)
                    rows.append((f"restore of {found:,} changelog records", found, spent, 200_000))
                shutil.rmtree(application.settings.folder)
            name = case.name.format(table=given.table)
            rows.insert(0, (name, given.records, best * given.records, case.target))
            for name, records, seconds, target in rows:
                rate = records / seconds
                missed += rate < target
                print(f"{name:44} {rate:12,.0f} {seconds / records * 1e6:10.2f} {target:10,}", flush=True)
    return 1 if given.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
