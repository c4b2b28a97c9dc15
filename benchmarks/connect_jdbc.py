"""Databases: our JDBC connectors and change capture against Debezium's, on one PostgreSQL and one broker.

    python benchmarks/connect_jdbc.py [--rows 100000] [--only source,capture,insert,upsert] [--side ours|java]

Both workers are whole, as in connect_worker.py, with exactly-once sources. There is no JDBC source on Maven
Central, so `source` (ours: JdbcSource, incrementing, JSON without schemas) has the initial snapshot of
Debezium's PostgreSQL connector beside it, as has `capture`, where ours makes the same envelopes. The sinks
read the same topic of JSON with schemas: `insert` into a table without a key and `upsert` by one, 3,000
records a batch. Each load runs once before it counts, into a table or topic of its own. `fsync` of the
database is off.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from confluent_kafka import Producer

from connect_worker import ROOT, Worker, until

sys.path.insert(0, str(ROOT))

from tests.support.databases import PASSWORD, USER, PostgresServer, postgres_server

from millstream.client import LATEST, ClientConfig, Cluster, list_offsets
from millstream.testing import Broker
from millstream.wire.topic_partition import TopicPartition

JSON = "org.apache.kafka.connect.json.JsonConverter"
PLAIN = {
    f"{what}.converter{more}": text
    for what in ("key", "value")
    for more, text in (("", JSON), (".schemas.enable", "false"))
}
FIELDS = [
    ("id", "int64"),
    ("name", "string"),
    ("amount", "double"),
    ("quantity", "int32"),
    ("note", "string"),
    ("paid", "boolean"),
]


class Bench:
    def __init__(self, database: PostgresServer, bootstrap: str, rows: int) -> None:
        self._database, self._rows = database, rows
        self._cluster = Cluster(ClientConfig.of(bootstrap, {}, "bench"))
        self._sql = psycopg.connect(database.conninfo, autocommit=True)
        self._count = 0
        self._sql.execute(
            "CREATE TABLE orders (id BIGINT PRIMARY KEY, name TEXT NOT NULL, "
            "amount DOUBLE PRECISION NOT NULL, quantity INTEGER NOT NULL, note TEXT, paid BOOLEAN NOT NULL)"
        )
        self._sql.execute(
            "INSERT INTO orders SELECT n, 'customer ' || n %% 1000, n * 0.25, n %% 7, repeat('x', 40), "
            "n %% 2 = 0 FROM generate_series(1, %s) AS n",
            [rows],
        )
        self._fill(bootstrap)

    def _fill(self, bootstrap: str) -> None:
        schema = {
            "type": "struct",
            "optional": False,
            "fields": [{"field": name, "type": kind, "optional": False} for name, kind in FIELDS],
        }
        head = '{"schema":' + json.dumps(schema, separators=(",", ":")) + ',"payload":'
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "batch.size": 500_000})
        for number in range(self._rows):
            payload = {
                "id": number,
                "name": f"customer {number % 1000}",
                "amount": number * 0.25,
                "quantity": number % 7,
                "note": "x" * 40,
                "paid": number % 2 == 0,
            }
            producer.produce("rows", head + json.dumps(payload, separators=(",", ":")) + "}")
            if number % 10_000 == 0:
                producer.flush()
        producer.flush()

    def _name(self, what: str, side: str) -> str:
        self._count += 1
        return f"{what}_{side}_{self._count}"

    @contextmanager
    def _measured(self, worker: Worker, name: str, settings: dict[str, str]) -> Iterator[list[float]]:
        """Rows a second, and seconds of processor time for 100,000; the connector is deleted afterwards."""
        found: list[float] = []
        cpu, began = worker.cpu, time.monotonic()
        worker.put(name, settings)
        yield found
        seconds, used = time.monotonic() - began, worker.cpu - cpu
        found += [self._rows / seconds, used / self._rows * 100_000]
        worker.delete(name)

    def _committed(self, topic: str) -> int:
        which = TopicPartition(topic, 0)
        if topic in self._cluster.refresh({topic}):
            return 0
        return list_offsets(self._cluster, {which: LATEST}, read_committed=True)[which].offset

    def source(self, worker: Worker, capture: bool) -> list[float]:
        name = self._name("source", worker.side)
        if worker.side == "ours" and not capture:
            topic = f"{name}.orders"
            settings = {
                "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
                "connection.url": self._database.url,
                "connection.user": USER,
                "connection.password": PASSWORD,
                "mode": "incrementing",
                "incrementing.column.name": "id",
                "table.whitelist": "orders",
                "topic.prefix": f"{name}.",
                "poll.interval.ms": "1000",
            }
        else:
            topic = f"{name}.public.orders"
            settings = {
                "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
                "database.hostname": "127.0.0.1",
                "database.port": str(self._database.port),
                "database.user": USER,
                "database.password": PASSWORD,
                "database.dbname": "postgres",
                "topic.prefix": name,
                "slot.name": name,
                "publication.name": name,
                "plugin.name": "pgoutput",
                "table.include.list": "public.orders",
                "snapshot.mode": "initial",
            }
        with self._measured(worker, name, settings | PLAIN) as found:
            until(lambda: self._committed(topic) >= self._rows, pause=0.02)
        self._drop_slot(name)
        return found

    def _drop_slot(self, name: str) -> None:
        def dropped() -> bool:
            rows = self._sql.execute("SELECT active FROM pg_replication_slots WHERE slot_name = %s", [name])
            slot = rows.fetchone()
            if slot is not None and not slot[0]:
                self._sql.execute("SELECT pg_drop_replication_slot(%s)", [name])
            return slot is None

        until(dropped, pause=0.1)

    def sink(self, worker: Worker, mode: str) -> list[float]:
        name = self._name(mode, worker.side)
        key = ", PRIMARY KEY (id)" if mode == "upsert" else ""
        self._sql.execute(
            f"CREATE TABLE {name} (id BIGINT, name TEXT, amount DOUBLE PRECISION, quantity INTEGER, "
            f"note TEXT, paid BOOLEAN{key})"
        )
        settings = {
            "topics": "rows",
            "connection.url": self._database.url,
            "connection.password": PASSWORD,
            "insert.mode": mode,
            "batch.size": "3000",
            "value.converter": JSON,
            "consumer.override.max.poll.records": "3000",
        }
        if worker.side == "ours":
            settings |= {
                "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
                "connection.user": USER,
                "table.name.format": name,
                **({"pk.mode": "record_value", "pk.fields": "id"} if key else {}),
            }
        else:
            settings |= {
                "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
                "connection.username": USER,
                "collection.name.format": name,
                **({"primary.key.mode": "record_value", "primary.key.fields": "id"} if key else {}),
            }
        with self._measured(worker, name, settings) as found:
            until(lambda: self._written(name), pause=0.05)
        return found

    def _written(self, table: str) -> bool:
        counted = self._sql.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 - ours
        return counted is not None and counted[0] >= self._rows


def measure(bench: Bench, worker: Worker, wanted: list[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for what in wanted:
        for counts in (False, True):
            if what in ("source", "capture"):
                rate, cpu = bench.source(worker, capture=what == "capture")
            else:
                rate, cpu = bench.sink(worker, what)
            if counts:
                found[f"{what} rows/s"], found[f"{what} CPU s per 100,000"] = rate, cpu
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--only", default="source,capture,insert,upsert")
    parser.add_argument("--side", choices=("ours", "java"))
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="connect-bench-"))
    jars = folder / "class-path"
    sides = [given.side] if given.side else ["ours", "java"]
    if "java" in sides:
        pom = Path(__file__).with_name("debezium_pom.xml")
        command = ["mvn", "-B", "-q", "-f", str(pom), "dependency:build-classpath"]
        subprocess.run([*command, f"-Dmdep.outputFile={jars}"], check=True)
    class_path = jars.read_text() if jars.exists() else ""
    found: dict[str, dict[str, float]] = {}
    try:
        with postgres_server() as database, Broker() as broker:
            bench = Bench(database, broker.bootstrap_servers, given.rows)
            for side in sides:
                worker = Worker(side, broker.bootstrap_servers, folder, class_path)
                try:
                    found[side] = measure(bench, worker, given.only.split(","))
                finally:
                    worker.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{'':32}" + "".join(f"{side:>12}" for side in sides) + ("   ours/java" if len(sides) == 2 else ""))
    for name in found[sides[0]]:
        values = [found[side][name] for side in sides]
        ratio = f"{values[0] / values[1]:12.2f}" if len(values) == 2 and values[1] else ""
        print(f"{name:32}" + "".join(f"{value:12,.2f}" for value in values) + ratio)


if __name__ == "__main__":
    main()
