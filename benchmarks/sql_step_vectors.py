"""ksqlDB's query tests through real runs: `python benchmarks/sql_step_vectors.py CASES.jsonl.gz [--batch]`.

The cases of sql_vectors.py, but with a broker, a SQL server and its persistent queries as tasks on the local
host, instead of the test driver. Topics have one partition, so that there is one order.

step (the default): one input at a time, the next when all queries have committed it; compared exactly.
batch (--batch): all inputs at once. A topic of a stream has the expected records of each key in their order.
    Of a table, for each key and window the records are some of the expected ones, in their order, and the
    last one is the last; a tombstone that nothing preceded may be missing. Cases whose inputs come from
    several topics without strictly rising times have no defined order there: they are left out, and counted.

Expected errors need no run, and Java functions of ksqlDB's tests are not there: see sql_vectors.py for both.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from millstream.client import Admin, ClientConfig, Cluster, Fetcher, NewTopic, Producer
from millstream.client.fetch import next_offset, visible_batches
from millstream.sql import statements
from millstream.sql.errors import SqlError
from millstream.sql.server.service import SqlService
from millstream.sql.server.sql_config import SqlConfig
from millstream.testing import Broker
from millstream.testing.topology import RawRecord
from millstream.wire.records import Record, iter_records
from millstream.wire.topic_partition import TopicPartition
from sql_vectors import (
    Mismatch,
    Outcome,
    Play,
    Skip,
    classify,
    difference,
    first_line,
    read_cases,
    report,
)

SECONDS = 20.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("cases", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--batch", action="store_true")
    parser.add_argument("--every", type=int, default=1, help="each N-th case")
    parser.add_argument("--seconds", type=float, default=1e9, help="end after so long, with what has run")
    options = parser.parse_args()
    cases = [
        case
        for case in read_cases(options.cases)
        if case["kind"] == "qtt" and not case["expects_error"] and not case["needs_test_udf"]
        if options.only.lower() in f"{case['file']} {case['name']}".lower()
    ][:: options.every]
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    settings = {
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "log.retention.ms": -1,
    }
    until = time.monotonic() + options.seconds
    with Broker(settings) as broker:
        for number, case in enumerate(itertools.takewhile(lambda _: time.monotonic() < until, cases)):
            outcome = run(case, broker.bootstrap_servers, number, options.batch)
            totals[classify(case)][outcome.status] += 1
            if outcome.status == "failed":
                print(f"failed   {case['file']} / {case['name']}: {outcome.reason}", flush=True)
    report(totals)


def run(case: dict[str, Any], bootstrap: str, number: int, batch: bool) -> Outcome:
    if batch and not _has_one_order(case):
        return Outcome("skipped", "the order of its inputs is not defined")
    with tempfile.TemporaryDirectory() as folder:
        played = Real(case, bootstrap, Path(folder), number, batch)
        try:
            played.all()
        except Skip as skipped:
            return Outcome("skipped", str(skipped))
        except SqlError as error:
            return Outcome("failed", f"refused: {first_line(str(error))}")
        except Mismatch as mismatch:
            return Outcome("failed", str(mismatch))
        except Exception as error:
            return Outcome("failed", f"{type(error).__name__}: {first_line(str(error))}")
        finally:
            played.close()
    return Outcome("passed")


def _has_one_order(case: dict[str, Any]) -> bool:
    inputs = case.get("inputs") or []
    if len({one["topic"] for one in inputs}) < 2:
        return True
    times = [int(one.get("timestamp", 0)) for one in inputs]
    return all(one < other for one, other in itertools.pairwise(times))


class Real(Play):
    """A case on a broker. What the parent asks of its engine and drivers is asked of a server here."""

    def __init__(self, case: dict[str, Any], bootstrap: str, folder: Path, number: int, batch: bool) -> None:
        super().__init__(case)
        self._batch = batch
        self._properties = {
            name: str(value) for name, value in (case.get("properties") or {}).items() if value != "{CONFIG}"
        }
        given = {
            "bootstrap.servers": bootstrap,
            "ksql.service.id": f"step{number}_",
            "ksql.streams.state.dir": str(folder),
            "ksql.streams.auto.offset.reset": "earliest",
            "ksql.host.local": "true",
        }
        self.service = SqlService(SqlConfig(given))
        self.service.registry = self.registry
        self._cluster = Cluster(ClientConfig.of(bootstrap))
        self._before = set(Admin(self._cluster).topic_names())
        self._producer = Producer(self._cluster)
        for topic in case.get("topics") or ():
            self._make(topic["name"])
        self.service.start()

    def close(self) -> None:
        self.service.stop()
        names = set(Admin(self._cluster).topic_names()) - self._before
        Admin(self._cluster).delete_topics([one for one in names if not one.startswith("__")])
        self._cluster.close()

    def _make(self, topic: str) -> None:
        if self.service.partitions_of(topic) is None:
            Admin(self._cluster).create_topics([NewTopic(topic, 1, 1)])
            self._cluster.wait_for_topics([topic])

    def execute(self, statement: statements.Statement, inserted: list[tuple[str, RawRecord]]) -> None:
        if isinstance(statement, statements.CreateSource) and "KAFKA_TOPIC" in statement.properties:
            self._make(statement.properties["KAFKA_TOPIC"].value)  # type: ignore[attr-defined]
        self.service.execute(f"{statement.text};", {"auto.offset.reset": "earliest", **self._properties}, {})
        self.catalog = self.service.catalog
        self.sinks = [
            self.catalog.sources[one.sink].topic for one in self.catalog.queries.values() if one.sink
        ]

    def deliver(self, topic: str, record: RawRecord) -> None:
        self._make(topic)
        one = Record(0, record.timestamp, record.key, record.value, tuple(record.headers))
        self._producer.send(topic, 0, [one])
        if not self._batch:
            self._catch_up()

    def _catch_up(self) -> None:
        deadline = time.monotonic() + SECONDS
        for query_id in list(self.catalog.queries):
            self.service.persistent.wait_running(query_id, SECONDS)
            running = self.service.persistent.running(query_id)
            while running is not None and running.lag() > 0:
                error = self.service.persistent.error(query_id)
                if error is not None:
                    raise Mismatch(error)
                if time.monotonic() > deadline:
                    raise Mismatch(f"{query_id} has not caught up")
                time.sleep(0.005)

    def check_topics(self, wanted: Any) -> None:
        """Internal topics have the names and settings of a server of its own."""

    def compare(self) -> None:
        self._catch_up()
        wanted: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for record in self.case.get("outputs") or ():
            wanted[record["topic"]].append(record)
        for topic in {*wanted, *self.sinks[-1:]}:
            self.written[topic] = self._read(topic)
        if not self._batch:
            super().compare()
            return
        for topic, records in wanted.items():
            self._compare_batch(topic, records)

    def _read(self, topic: str) -> list[RawRecord]:
        found: list[RawRecord] = []
        which, at = TopicPartition(topic, 0), 0
        fetcher = Fetcher(self._cluster, read_committed=True)
        while True:
            before = at
            for fetched in fetcher.poll({which: at}, 100):
                for _, batch in visible_batches(fetched, at, read_committed=True):
                    found += [
                        RawRecord(one.key, one.value, one.timestamp, tuple(one.headers))
                        for one in iter_records(batch)
                        if one.offset >= at
                    ]
                at = next_offset(fetched, at)
            if at == before:
                return found

    def _compare_batch(self, topic: str, records: list[dict[str, Any]]) -> None:
        source = self.source_of(topic)
        is_table = source is not None and source.kind == "TABLE"
        actual: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for raw in self.written[topic]:
            spec = self.spec(topic, raw)
            actual[f"{spec.get('key')} {spec.get('window')}"].append(spec)
        expected: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for one in records:
            names = [key for key, specs in actual.items() if _same_key(one, specs[0])]
            name = names[0] if names else f"missing {one.get('key')} {one.get('window')}"
            expected[name].append(one)
        for name, specs in expected.items():
            got = actual.get(name, [])
            left = iter(specs)
            for spec in got:
                if not any(not difference(one, spec) for one in left):
                    raise Mismatch(f"{topic}: {spec} is not expected there")
            if not got and specs[-1].get("value") is None and is_table:
                continue
            if not got or difference(specs[-1], got[-1]) or not (is_table or len(got) == len(specs)):
                raise Mismatch(f"{topic}: {len(got)} of {len(specs)} records of {name}, the last {got[-1:]}")


def _same_key(wanted: dict[str, Any], got: dict[str, Any]) -> bool:
    shown = {**got, "value": None, "timestamp": int(wanted.get("timestamp", 0))}
    return not difference({**wanted, "value": None}, shown)


if __name__ == "__main__":
    main()
