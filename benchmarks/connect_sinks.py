"""How fast records become files, and what a sink that is stuck costs the others.

    python benchmarks/connect_sinks.py [--rows 200000] [--rounds 5] [--only files|stuck]

files   rows per second of processor time, without a broker: structs of five columns into files in a folder
        (`structs`), and the same from the bytes of JSON with its schema, through the converter (`bytes`)
stuck   20 sinks that take a record every 50 ms each: from the record's time to `put`, p50 and p99, alone and
        beside one that sleeps for 20 s in every put; lanes are threads of one process, the broker another
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from millstream.connect import Sink
from millstream.connect.config.connector_config import SINK_CONFIG
from millstream.connect.data.schema import OPTIONAL, REQUIRED, Type, struct_schema
from millstream.connect.data.struct import Struct
from millstream.connect.runtime.pipeline import Pipeline
from millstream.connect.runtime.tolerance import Tolerance
from millstream.host.lane import collect_seldom
from millstream.testing.connect import SinkRun
from millstream.wire.records import Record
from millstream.wire.topic_partition import TopicPartition

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
SCHEMA = struct_schema(
    [
        ("id", REQUIRED[Type.INT64]),
        ("name", OPTIONAL[Type.STRING]),
        ("price", REQUIRED[Type.FLOAT64]),
        ("count", REQUIRED[Type.INT32]),
        ("paid", REQUIRED[Type.BOOLEAN]),
    ],
    name="Order",
)
WHERE = TopicPartition("test", 0)
LATENCIES: list[float] = []


def row(number: int) -> list[Any]:
    return [number, f"customer {number % 1000}", number * 0.25, number % 7, number % 2 == 0]


def settings(folder: str, form: str, rows: int) -> dict[str, str]:
    return {"store.url": folder, "flush.size": str(rows), "format.class": form}


def files(form: str, rows: int, *, from_bytes: bool) -> float:
    """Rows per second of processor time."""
    folder = tempfile.mkdtemp()
    run = SinkRun("FileSink", settings(folder, form, rows))
    if from_bytes:
        parsed = SINK_CONFIG.parse({"name": "b", "connector.class": "FileSink", "topics": "test"})
        own = {"key.converter": "StringConverter", "value.converter": "JsonConverter"}
        pipeline = Pipeline(own, {}, Tolerance(parsed, "b-0"))
        envelope = SCHEMA_TEXT
        wire = [
            Record(
                number, 0, None, envelope % json.dumps(dict(zip(NAMES, row(number), strict=True))).encode()
            )
            for number in range(rows)
        ]
    else:
        for number in range(rows):
            run.send(Struct(SCHEMA, row(number)), value_schema=SCHEMA)
    begin = time.process_time()
    if from_bytes:
        run.log[WHERE] = []
        run.step()
        for at in range(0, rows, 500):
            # As a sink's task reads what it has fetched.
            read = pipeline.from_block(WHERE, [(one, "CreateTime") for one in wire[at : at + 500]])
            run.log[WHERE] += [one for one in read if one is not None]
            run.step()
    run.run()
    took = time.process_time() - begin
    assert run.lag == 0
    shutil.rmtree(folder)
    return rows / took


NAMES = [field.name for field in SCHEMA.fields]
SCHEMA_TEXT = (
    b'{"schema":{"type":"struct","fields":[{"type":"int64","optional":false,"field":"id"},'
    b'{"type":"string","optional":true,"field":"name"},{"type":"double","optional":false,"field":"price"},'
    b'{"type":"int32","optional":false,"field":"count"},{"type":"boolean","optional":false,"field":"paid"}],'
    b'"optional":false,"name":"Order"},"payload":%b}'
)


class Timed(Sink):
    def write(self, records: Any) -> None:
        now = time.time() * 1000
        LATENCIES.extend(now - record.timestamp for record in records)


class Sleeper(Sink):
    def write(self, records: Any) -> None:
        time.sleep(20)


def stuck(seconds: float) -> None:
    from confluent_kafka import Producer
    from tests.connect.conftest import Worker

    from millstream.testing import Broker

    with Broker() as broker:
        for beside in (False, True):
            worker = Worker(
                {
                    "bootstrap.servers": broker.bootstrap_servers,
                    "group.id": f"bench-{beside}",
                    "key.converter": "StringConverter",
                    "value.converter": "StringConverter",
                },
                {what: f"{what}-{beside}" for what in ("config", "offset", "status")},
            )
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
            producer.produce("slow", b"x")
            topics = [f"timed-{number}" for number in range(20)]
            for topic in topics:
                producer.produce(topic, b"first")
            producer.flush()
            if beside:
                config = {"connector.class": f"{__name__}.Sleeper", "topics": "slow"}
                worker.http.put("/connectors/slow/config", json=config)
            for topic in topics:
                config = {"connector.class": f"{__name__}.Timed", "topics": topic}
                worker.http.put(f"/connectors/{topic}/config", json=config)
            while len(LATENCIES) < len(topics):
                time.sleep(0.1)
            LATENCIES.clear()
            ended = threading.Event()
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                for topic in topics:
                    producer.produce(topic, b"x")
                    producer.poll(0)
                producer.produce("slow", b"x")
                ended.wait(0.05)
            producer.flush()
            time.sleep(1)
            found = statistics.quantiles(LATENCIES, n=100)
            what = "beside a sink that sleeps" if beside else "alone"
            print(
                f"{what}: {len(LATENCIES)} records, p50 {found[49]:.1f} ms, p99 {found[98]:.1f} ms",
                flush=True,
            )
            LATENCIES.clear()
            threading.Thread(target=worker.stop, daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--only", choices=["files", "stuck"])
    given = parser.parse_args()
    if given.only != "stuck":
        collect_seldom()  # as in the process of a task
        for form in ("ParquetFormat", "AvroFormat", "JsonFormat"):
            for from_bytes in (False, True):
                rates = [files(form, given.rows, from_bytes=from_bytes) for _ in range(given.rounds)]
                what = "bytes" if from_bytes else "structs"
                print(
                    f"{form} from {what}: {statistics.median(rates):,.0f} rows per CPU-s "
                    f"({min(rates):,.0f}..{max(rates):,.0f})",
                    flush=True,
                )
    if given.only != "files":
        stuck(given.seconds)


if __name__ == "__main__":
    sys.modules["connect_sinks"] = sys.modules["__main__"]
    __name__ = "connect_sinks"
    main()
