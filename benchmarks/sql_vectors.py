"""ksqlDB's own query tests against our SQL: `python benchmarks/sql_vectors.py CASES.jsonl.gz`.

The cases are not part of this project (Confluent Community License); give the path of a file that has them,
one JSON object a line. Each case runs in driver mode: no broker, no Spark, one record at a time through the
topology of each statement, and through those that read its output. Compared exactly: order, key, value,
timestamp, window, headers; then what the case says about sources and topics. An expected error counts if its
first line is in ours. The last column is the control: how many cases pass when nothing is ever written. Cases
that cannot run are counted as skipped, never left out.

    --only TEXT      cases whose file or name contains it; --class NAME, --formats plain|registry likewise
    --failures N     print N failures, --list prints a line for each case
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import re
import sys
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from millstream.sql import statements
from millstream.sql.catalog import Catalog, Source
from millstream.sql.engine import PersistentQuery, apply
from millstream.sql.environment import Environment
from millstream.sql.errors import SqlError
from millstream.sql.formats.schemas import register_source
from millstream.sql.insert_values import insert
from millstream.sql.parser import parse_each
from millstream.streams.task import Errors
from millstream.streams.windows import Window, Windowed
from millstream.testing.topology import RawRecord, TopologyTestDriver
from sql_vector_functions import WITHOUT_TWIN, functions
from sql_vector_records import MemoryRegistry, from_bytes, plain_json, same, to_bytes

SERVICE = "some.ksql.service.id"
CLASSES = (
    ("error", None),
    ("join", r"\bJOIN\b"),
    ("window", r"\bWINDOW\b"),
    ("group by", r"\bGROUP\s+BY\b"),
    ("partition by", r"\bPARTITION\s+BY\b"),
    ("table function", r"\b(CUBE_)?EXPLODE\s*\("),
    ("functions", r"\b(?!VARCHAR|DECIMAL|CAST|WITH|AS|IN|AND|OR|NOT|VALUES|LEFT|STRUCT|ARRAY|MAP)\w+\("),
)


class Mismatch(Exception):
    """The case expects something else."""


class Skip(Exception):
    """The case needs what we do not play."""


class Outcome(NamedTuple):
    status: str
    reason: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("cases", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--class", dest="class_", default="")
    parser.add_argument("--formats", choices=("plain", "registry"))
    parser.add_argument("--failures", type=int, default=0)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    shown = 0
    for case in read_cases(options.cases):
        if case["kind"] != "qtt":
            continue
        group = classify(case)
        if options.only.lower() not in f"{case['file']} {case['name']}".lower():
            continue
        if options.class_ and options.class_ not in group:
            continue
        outcome, control = run(case), nothing_passes(case)
        totals[group][outcome.status] += 1
        totals[group]["control"] += control
        if options.list or (outcome.status == "failed" and shown < options.failures):
            shown += outcome.status == "failed"
            print(f"{outcome.status:8} [{group}] {case['file']} / {case['name']}: {outcome.reason}")
    report(totals)


def read_cases(path: Path) -> Iterator[dict[str, Any]]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    for text in data.decode().splitlines():
        yield json.loads(text, parse_float=Decimal)


def classify(case: dict[str, Any]) -> str:
    kind = "registry" if case["needs_registry"] else "plain"
    if case["expects_error"]:
        return f"{kind} error"
    text = " ".join(case["statements"]).upper()
    for name, pattern in CLASSES[1:]:
        if pattern is not None and re.search(pattern, text):
            return f"{kind} {name}"
    return f"{kind} stateless"


def report(totals: dict[str, Counter[str]]) -> None:
    print(f"{'class':24} {'cases':>6} {'passed':>7} {'failed':>7} {'skipped':>8} {'rate':>7} {'control':>8}")
    for prefix in ("plain", "registry"):
        data: Counter[str] = Counter()
        for group in sorted(totals):
            if group.startswith(prefix):
                line(group, totals[group])
                if not group.endswith("error"):
                    data += totals[group]
        line(f"{prefix}: all data", data)
    every: Counter[str] = Counter()
    for found in totals.values():
        every += found
    line("all", every)


def line(name: str, found: Counter[str]) -> None:
    cases = found["passed"] + found["failed"] + found["skipped"]
    rate = f"{100 * found['passed'] / cases:.1f}%" if cases else "-"
    numbers = (
        f"{found['passed']:>7} {found['failed']:>7} {found['skipped']:>8} {rate:>7} {found['control']:>8}"
    )
    print(f"{name:24} {cases:>6} {numbers}")


def nothing_passes(case: dict[str, Any]) -> bool:
    """Whether a driver that accepts everything and writes nothing would pass."""
    return not case["expects_error"] and not case.get("outputs") and not case.get("post")


# One case -------------------------------------------------------------------------------------------------


def run(case: dict[str, Any]) -> Outcome:
    expected = (case.get("expectedException") or {}).get("message")
    text = " ".join(case["statements"]).upper()
    if case["needs_test_udf"] and any(f"{name}(" in text for name in WITHOUT_TWIN):
        return Outcome("skipped", "needs a Java function of ksqlDB's tests")
    try:
        played = Play(case)
        try:
            played.all()
        finally:
            played.close()
    except Skip as skipped:
        return Outcome("skipped", str(skipped))
    except SqlError as error:
        if case["expects_error"]:
            return judge_error(expected, str(error))
        return Outcome("failed", f"refused: {first_line(str(error))}")
    except Mismatch as mismatch:
        return Outcome("failed", str(mismatch))
    except Exception as error:
        # What stops a query while it runs is wrapped by Kafka Streams there; the case names the cause, too.
        cause = (case.get("expectedException") or {}).get("causeMessage")
        if case["expects_error"] and any(one and first_line(one) in str(error) for one in (expected, cause)):
            return Outcome("passed")
        where = traceback.extract_tb(error.__traceback__)[-1]
        failed_at = f"{Path(where.filename).name}:{where.lineno}"
        return Outcome("failed", f"{type(error).__name__} at {failed_at}: {first_line(str(error))}")
    return (
        Outcome("failed", f"no error; expected: {expected}") if case["expects_error"] else Outcome("passed")
    )


def first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0].strip()


def judge_error(expected: str | None, message: str) -> Outcome:
    if expected is None or first_line(expected) in message:
        return Outcome("passed")
    return Outcome("failed", f"expected {first_line(expected)!r}, got {first_line(message)!r}")


class Play:
    """A case being played: the engine, a driver for each query, and what was written to each topic."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case = case
        self.registry = MemoryRegistry()
        for topic in case.get("topics") or ():
            self.registry.add_topic(topic, case["formats"])
        config = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in (case.get("properties") or {}).items()
            if value != "{CONFIG}"
        }
        self.partitions = {one["name"]: int(one.get("partitions", 4)) for one in case.get("topics") or ()}
        self.environment = Environment(functions(), self.registry, config, self.partitions.get)
        self.catalog = Catalog()
        self.drivers: list[tuple[PersistentQuery, TopologyTestDriver]] = []
        self.written: dict[str, list[RawRecord]] = defaultdict(list)
        self.sinks: list[str] = []
        self.number = 0

    def close(self) -> None:
        for _, driver in self.drivers:
            driver.close()

    def all(self) -> None:
        inserted: list[tuple[str, RawRecord]] = []
        # One script: the lines of errors count through all statements.
        for statement in parse_each("\n".join(self.case["statements"]), {}):
            self.execute(statement, inserted)
        for topic, record in inserted:
            self.written[topic].append(record)
            self.deliver(topic, record)
        for record in self.case.get("inputs") or ():
            self.deliver(record["topic"], self.raw(record))
        self.compare()
        post = self.case.get("post") or {}
        for wanted in post.get("sources", ()):
            self.check_source(wanted)
        self.check_topics(post.get("topics") or {})

    def execute(self, statement: statements.Statement, inserted: list[tuple[str, RawRecord]]) -> None:
        if isinstance(statement, statements.InsertValues):
            one = insert(statement, self.catalog, self.environment)
            inserted.append((one.topic, RawRecord(one.key, one.value, one.timestamp, ())))
            return
        outcome = apply(statement, self.catalog, self.environment, number=self.number)
        self.catalog = outcome.catalog
        if outcome.source is not None and not isinstance(statement, statements.DropSource):
            register_source(self.registry, outcome.source, replace=outcome.query is not None)
        if outcome.query is not None:
            self.number += 1
            self.start(outcome.query)

    def start(self, query: PersistentQuery) -> None:
        driver = TopologyTestDriver(
            query.topology(),
            application=f"_confluent-ksql-{SERVICE}query_{query.id}",
            start=0,
            errors=Errors(reading="continue", processing="fail"),
        )
        self.drivers.append((query, driver))
        self.sinks.append(query.sink.topic)

    # Records in and out

    def source_of(self, topic: str) -> Source | None:
        found = [one for one in self.catalog.sources.values() if one.topic == topic]
        return found[0] if found else None

    def raw(self, record: dict[str, Any]) -> RawRecord:
        topic = record["topic"]
        source = self.source_of(topic)
        if source is None:
            return RawRecord(None, None, 0, ())
        key = to_bytes(
            self.registry, source.key_format, pairs(source.schema.key), topic, record.get("key"), True
        )
        window = record.get("window")
        if window is not None and key is not None:
            if window["type"].lower() == "session":
                key += int(window["end"]).to_bytes(8, "big") + int(window["start"]).to_bytes(8, "big")
            else:
                key += int(window["start"]).to_bytes(8, "big")
        value = to_bytes(
            self.registry, source.value_format, pairs(source.schema.value), topic, record.get("value"), False
        )
        headers = tuple(
            (one["KEY"], None if one["VALUE"] is None else base64.b64decode(one["VALUE"]))
            for one in record.get("headers") or ()
        )
        return RawRecord(key, value, int(record.get("timestamp", 0)), headers)

    def deliver(self, topic: str, record: RawRecord) -> None:
        """Through every query that reads the topic, and then through those that read what they wrote."""
        for query, driver in self.drivers:
            if all(source.topic != topic for source in query.sources):
                continue
            driver.pipe_raw(topic, *record)
            for output in driver.read_raw(query.sink.topic):
                self.written[query.sink.topic].append(output)
                self.deliver(query.sink.topic, output)

    def compare(self) -> None:
        expected: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for record in self.case.get("outputs") or ():
            expected[record["topic"]].append(record)
        if not expected and self.sinks:
            expected[self.sinks[-1]] = []
        for topic, records in expected.items():
            actual = [self.spec(topic, one) for one in self.written[topic]]
            for index, (wanted, got) in enumerate(zip(records, actual, strict=False)):
                problem = difference(wanted, got)
                if problem:
                    raise Mismatch(f"{topic}[{index}]: {problem}")
            if len(records) != len(actual):
                got_text = "; ".join(shown(one) for one in actual[len(records) :][:2])
                raise Mismatch(f"{topic}: {len(records)} records expected, {len(actual)} written {got_text}")

    def spec(self, topic: str, raw: RawRecord) -> dict[str, Any]:
        source = self.source_of(topic)
        if source is None:
            raise Mismatch(f"no source has topic {topic}")
        key, window = raw.key, None
        if source.window is not None and key is not None:
            if source.window.type == "SESSION":
                end, start = int.from_bytes(key[-16:-8], "big"), int.from_bytes(key[-8:], "big")
                key, window = key[:-16], Windowed(None, Window(start, end))
            else:
                start = int.from_bytes(key[-8:], "big")
                key, window = key[:-8], Windowed(None, Window(start, start + (source.window.size or 0)))
        return {
            "key": from_bytes(self.registry, source.key_format, pairs(source.schema.key), key),
            "value": from_bytes(self.registry, source.value_format, pairs(source.schema.value), raw.value),
            "timestamp": raw.timestamp,
            "window": None if window is None else (window.window.start, window.window.end),
            "headers": raw.headers,
        }

    # What the case says about the catalog

    def check_source(self, wanted: dict[str, Any]) -> None:
        name = wanted["name"]
        source = self.catalog.source(name)
        if source is None:
            raise Mismatch(f"there is no source {name}")
        if wanted["type"].upper() != source.kind:
            raise Mismatch(f"{name} is a {source.kind}")
        if wanted.get("schema") is not None:
            schema = normal_schema(wanted["schema"])
            if schema != normal_schema(source.schema.text()):
                raise Mismatch(f"{name} has the schema {source.schema.text()}, not {wanted['schema']}")
        for side, format_ in (("keyFormat", source.key_format), ("valueFormat", source.value_format)):
            if side in wanted:
                self.check_format(
                    f"{name}.{side}", wanted[side], format_, source if side == "keyFormat" else None
                )
        if "isSource" in wanted and wanted["isSource"] != source.read_only:
            raise Mismatch(f"{name}: read only is {source.read_only}")

    @staticmethod
    def check_format(what: str, wanted: Any, format_: Any, windowed: Source | None) -> None:
        if isinstance(wanted, str):
            wanted = {"format": wanted}
        if wanted["format"] != format_.name:
            raise Mismatch(f"{what} is {format_.name}, not {wanted['format']}")
        window = windowed.window if windowed is not None else None
        if wanted.get("windowType") is not None and (window is None or window.type != wanted["windowType"]):
            raise Mismatch(f"{what}: the window is {window}")
        if wanted.get("windowSize") is not None and (window is None or window.size != wanted["windowSize"]):
            raise Mismatch(f"{what}: the window is {window}")

    def check_topics(self, wanted: dict[str, Any]) -> None:
        names = set()
        for query, driver in self.drivers:
            names |= {query.sink.topic} | driver.produced_topics
            topology, application = driver.topology, driver.application
            names |= {topology.internal_name(topic, application) for topic in topology.internal}
            names |= {spec.changelog(application) for spec in topology.stores.values() if spec.logged}
        names |= {source.topic for source in self.catalog.sources.values()}
        blacklist = wanted.get("blacklist")
        if blacklist:
            found = [name for name in names if re.fullmatch(blacklist, name)]
            if found:
                raise Mismatch(f"there should be no topic {found[0]}")
        shapes = {numberless(name) for name in names}
        for topic in wanted.get("topics", ()):
            if numberless(topic["name"]) not in shapes:
                raise Mismatch(f"there is no topic {topic['name']}; there are {sorted(names)}")
            self.check_topic(topic)

    def check_topic(self, topic: dict[str, Any]) -> None:
        for side in ("key", "value"):
            schema = topic.get(f"{side}Schema")
            subject = f"{topic['name']}-{side}"
            if schema is None:
                continue
            if subject not in self.registry.versions:
                raise Mismatch(f"nothing is registered under {subject}")
            text = self.registry.latest(subject).text
            if isinstance(schema, str) and schema.lstrip().startswith("syntax"):
                if " ".join(schema.split()) != " ".join(text.split()):
                    raise Mismatch(f"{subject} is {text!r}")
            elif without_namespaces(json.loads(text)) != without_namespaces(json.loads(plain_json(schema))):
                raise Mismatch(f"{subject} is {text}, not {plain_json(schema)}")


def pairs(columns: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((column.name, column.type) for column in columns)


def numberless(name: str) -> str:
    """Kafka Streams numbers its nodes; our topologies have other numbers."""
    return re.sub(r"\d{10}", "N", name)


def without_namespaces(schema: Any) -> Any:
    """Avro repeats no namespace in nested types when it prints a schema."""
    if isinstance(schema, dict):
        return {key: without_namespaces(value) for key, value in schema.items() if key != "namespace"}
    return [without_namespaces(one) for one in schema] if isinstance(schema, list) else schema


def normal_schema(text: str) -> str:
    """Types by one name, without quotes and spaces that make no difference."""
    found = re.sub(r"\s+", " ", text.replace("`", "").upper()).strip()
    found = re.sub(r"\bINT\b", "INTEGER", found)
    found = re.sub(r"\bVARCHAR\b", "STRING", found)
    found = found.replace(" PRIMARY KEY", " KEY")
    return re.sub(r"\s*([,<>()])\s*", r"\1", found)


def difference(wanted: dict[str, Any], got: dict[str, Any]) -> str:
    for part in ("key", "value"):
        if part in wanted and not same(wanted[part], got[part]):
            return f"{part} {plain(wanted[part])} expected, {plain(got[part])} written"
    if wanted.get("timestamp") is not None and wanted["timestamp"] != got["timestamp"]:
        return f"timestamp {wanted['timestamp']} expected, {got['timestamp']} written"
    window = wanted.get("window")
    if window is not None:
        bounds = (window["start"], window["end"])
        if got["window"] is None or got["window"] != bounds:
            return f"window {bounds} expected, {got['window']} written"
    if wanted.get("headers"):
        headers = [(one["KEY"], one["VALUE"]) for one in wanted["headers"]]
        actual = [
            (name, None if data is None else base64.b64encode(data).decode()) for name, data in got["headers"]
        ]
        if headers != actual:
            return f"headers {headers} expected, {actual} written"
    return ""


def plain(value: Any) -> str:
    return json.dumps(value, default=str)[:200]


def shown(record: dict[str, Any]) -> str:
    return f"{plain(record['key'])}={plain(record['value'])}@{record['timestamp']}"


if __name__ == "__main__":
    sys.setrecursionlimit(10_000)
    main()
