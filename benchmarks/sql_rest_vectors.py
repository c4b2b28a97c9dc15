"""ksqlDB's own REST tests against our SQL server: `python benchmarks/sql_rest_vectors.py CASES.jsonl.gz`.

A broker, and for each case a server of its own inside of this process, with tasks as threads. The statements
run as a client would send them; then the inputs are produced, the persistent queries catch up, and the
queries are asked. Compared: header, rows, final message; records that were inserted; the first line of an
expected error. ksqlDB's own runner compares the rows of an answer without their order, because nothing
promises one; so does this, and `--in-order` asks for more. Cases are as for sql_vectors.py.
"""

from __future__ import annotations

import argparse
import base64
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import orjson

from millstream.client import Admin, ClientConfig, Cluster, Fetcher, NewTopic, Producer
from millstream.client.fetch import visible_batches
from millstream.sql import statements
from millstream.sql.errors import SqlError
from millstream.sql.parser import parse_one
from millstream.sql.results import schema_text
from millstream.sql.row_json import RowWriter
from millstream.sql.server.service import SqlService
from millstream.sql.server.sql_config import SqlConfig
from millstream.testing import Broker
from millstream.wire.murmur2 import partition_for
from millstream.wire.records import Record, iter_records
from millstream.wire.topic_partition import TopicPartition
from sql_vector_records import MemoryRegistry, from_bytes, same, to_bytes
from sql_vectors import Mismatch, Outcome, first_line, judge_error, pairs, read_cases

SECONDS = 20.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("cases", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--most", type=int, default=10_000)
    parser.add_argument("--in-order", action="store_true")
    options = parser.parse_args()
    totals: dict[str, Counter[str]] = {}
    settings = {
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "log.retention.ms": -1,
        "log.message.timestamp.type": "CreateTime",
    }
    cases = [case for case in read_cases(options.cases) if case["kind"] == "rest"]
    cases = [one for one in cases if options.only.lower() in f"{one['file']} {one['name']}".lower()]
    with Broker(settings) as broker:
        for number, case in enumerate(cases[options.skip : options.skip + options.most]):
            outcome = run(case, broker.bootstrap_servers, number, options.in_order)
            totals.setdefault(case["file"], Counter())[outcome.status] += 1
            if outcome.status != "passed":
                print(f"{outcome.status:8} {case['file']} / {case['name']}: {outcome.reason}", flush=True)
    every: Counter[str] = Counter()
    for name, found in sorted(totals.items()):
        every += found
        print(f"{name:56} {found['passed']:>4} of {sum(found.values()):>4}")
    print(f"{'all':56} {every['passed']:>4} of {sum(every.values()):>4}")


def run(case: dict[str, Any], bootstrap: str, number: int, in_order: bool) -> Outcome:
    expected = (case.get("expectedError") or {}).get("message")
    with tempfile.TemporaryDirectory() as folder:
        played = Rest(case, bootstrap, Path(folder), number, in_order)
        try:
            played.all()
        except SqlError as error:
            if expected is not None:
                return judge_error(expected, str(error))
            return Outcome("failed", f"refused: {first_line(str(error))}")
        except Mismatch as mismatch:
            if expected is not None and first_line(expected) in str(mismatch):
                return Outcome("passed")
            return Outcome("failed", str(mismatch))
        except Exception as error:
            return Outcome("failed", f"{type(error).__name__}: {first_line(str(error))}")
        finally:
            played.close()
    return Outcome("failed", f"no error; expected: {expected}") if expected else Outcome("passed")


class Rest:
    def __init__(
        self, case: dict[str, Any], bootstrap: str, folder: Path, number: int, in_order: bool
    ) -> None:
        self.case, self.in_order = case, in_order
        properties = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in (case.get("properties") or {}).items()
        }
        given = {
            "bootstrap.servers": bootstrap,
            "ksql.service.id": f"v{number}_",
            "ksql.streams.state.dir": str(folder),
            "ksql.streams.auto.offset.reset": "earliest",
            "ksql.host.local": "true",
            **properties,
        }
        self.service = SqlService(SqlConfig(given))
        self.registry = MemoryRegistry()
        self.service.registry = self.registry
        self.cluster = Cluster(ClientConfig.of(bootstrap))
        self.before = set(Admin(self.cluster).topic_names())
        for topic in case.get("topics") or ():
            self.registry.add_topic(topic, case["formats"])
            self.make_topic(topic["name"], int(topic.get("partitions", 4)))
        self.service.start()
        self.properties = {"auto.offset.reset": "earliest", **properties}

    def close(self) -> None:
        self.service.stop()
        names = set(Admin(self.cluster).topic_names()) - self.before
        Admin(self.cluster).delete_topics([one for one in names if not one.startswith("__")])
        self.cluster.close()

    def make_topic(self, name: str, partitions: int) -> None:
        Admin(self.cluster).create_topics([NewTopic(name, partitions, 1)])
        self.cluster.wait_for_topics([name])

    def all(self) -> None:
        texts = self.case["statements"]
        responses = list(self.case.get("responses") or ())
        queries = []
        inputs_done = False
        for index, text in enumerate(texts):
            asks = text.lstrip().upper().startswith("SELECT")
            if asks and not inputs_done:
                self.inputs()
                inputs_done = True
            if asks:
                expected = responses[index] if index < len(responses) else None
                queries.append(text)
                self.ask(text, expected)
                continue
            statement = parse_one(text)
            if isinstance(statement, statements.CreateSource) and "KAFKA_TOPIC" in statement.properties:
                topic = statement.properties["KAFKA_TOPIC"].value  # type: ignore[attr-defined]
                if "PARTITIONS" not in statement.properties and self.service.partitions_of(topic) is None:
                    self.make_topic(topic, 4)
            self.service.execute(text, self.properties, {})
        if not inputs_done:
            self.inputs()
        self.outputs()

    def source_of(self, topic: str) -> Any:
        found = [one for one in self.service.catalog.sources.values() if one.topic == topic]
        return found[0] if found else None

    def inputs(self) -> None:
        producer = Producer(self.cluster)
        for record in self.case.get("inputs") or ():
            topic = record["topic"]
            source = self.source_of(topic)
            if source is None:
                continue
            key = to_bytes(
                self.registry, source.key_format, pairs(source.schema.key), topic, record.get("key"), True
            )
            partitions = self.service.partitions_of(topic) or 1
            partition = 0 if key is None else partition_for(key, partitions)
            window = record.get("window")
            if window is not None and key is not None:
                if window["type"].lower() == "session":
                    key += int(window["end"]).to_bytes(8, "big") + int(window["start"]).to_bytes(8, "big")
                else:
                    key += int(window["start"]).to_bytes(8, "big")
            value = to_bytes(
                self.registry,
                source.value_format,
                pairs(source.schema.value),
                topic,
                record.get("value"),
                False,
            )

            headers = tuple(
                (one["KEY"], None if one["VALUE"] is None else base64.b64decode(one["VALUE"]))
                for one in record.get("headers") or ()
            )
            at = int(record.get("timestamp", 0))
            producer.send(topic, partition, [Record(0, at, key, value, headers)])
        deadline = time.monotonic() + SECONDS
        for query_id in list(self.service.catalog.queries):
            self.service.persistent.wait_running(query_id, SECONDS)
            error = self.service.persistent.error(query_id)
            if error is not None:
                raise Mismatch(error)
            running = self.service.persistent.running(query_id)
            while running is not None and running.lag() > 0:
                if time.monotonic() > deadline:
                    raise Mismatch(f"{query_id} has not caught up")
                time.sleep(0.05)

    def ask(self, text: str, expected: Any) -> None:
        result = self.service.query(text, self.properties, {})
        rows: list[Any] = []
        writer = RowWriter(result.columns)
        deadline = time.monotonic() + SECONDS
        end = None
        while end is None and time.monotonic() < deadline:
            found, end = result.take(timeout=0.5)
            rows += [orjson.loads(writer.array(row)) for row in found]
        result.close()
        if end is None:
            raise Mismatch(f"{text}: no end after rows {rows[:5]}")
        if end.error is not None:
            raise Mismatch(end.error)
        if expected is None or "query" not in expected:
            return
        wanted = expected["query"]
        schema = wanted[0]["header"]["schema"]
        if schema != schema_text(result.columns):
            raise Mismatch(f"{text}: header {schema_text(result.columns)}, not {schema}")
        wanted_rows = [one["row"]["columns"] for one in wanted if "row" in one]
        if not (self.in_order or "EMIT" in text.upper()):
            rows = _as_wanted(rows, wanted_rows)
        if len(rows) != len(wanted_rows) or not all(map(same, wanted_rows, rows)):
            raise Mismatch(f"{text}: rows {rows[:6]}, not {wanted_rows[:6]}")
        final = next((one["finalMessage"] for one in wanted if "finalMessage" in one), None)
        if final is not None and final != end.message:
            raise Mismatch(f"{text}: ended with {end.message}, not {final}")

    def outputs(self) -> None:
        topics: dict[str, list[Any]] = {}
        for record in self.case.get("outputs") or ():
            topics.setdefault(record["topic"], []).append(record)
        for topic, wanted in topics.items():
            source = self.source_of(topic)
            found = []
            for number in self.cluster.topic(topic).partitions:
                which = TopicPartition(topic, number)
                for fetched in Fetcher(self.cluster).poll({which: 0}, 100):
                    for _, batch in visible_batches(fetched, 0):
                        found += list(iter_records(batch))
            if len(found) != len(wanted):
                raise Mismatch(f"{topic}: {len(found)} records, not {len(wanted)}")
            left = list(found)
            for record in wanted:
                for one in left:
                    key = from_bytes(self.registry, source.key_format, pairs(source.schema.key), one.key)
                    value = from_bytes(
                        self.registry, source.value_format, pairs(source.schema.value), one.value
                    )
                    fits = same(record.get("key"), key) and same(record["value"], value)
                    if fits and record.get("timestamp") in (None, one.timestamp):
                        left.remove(one)
                        break
                else:
                    raise Mismatch(f"{topic}: no record {record}")


def _as_wanted(rows: list[Any], wanted: list[Any]) -> list[Any]:
    """The rows in the order in which the case lists them; those that it does not list, behind."""
    left, found = list(rows), []
    for one in wanted:
        index = next((at for at, row in enumerate(left) if same(one, row)), None)
        if index is not None:
            found.append(left.pop(index))
    return found + left


if __name__ == "__main__":
    main()
