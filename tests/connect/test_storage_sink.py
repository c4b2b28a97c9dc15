"""The sinks that write files: names, cuts, formats, and every record once whenever a task dies."""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from millstream.connect.config.config_def import ConfigError
from millstream.connect.connectors.storage import partitioners, stores
from millstream.connect.data import logical
from millstream.connect.data.schema import (
    OPTIONAL,
    REQUIRED,
    Schema,
    Type,
    array_schema,
    map_schema,
    struct_schema,
)
from millstream.connect.data.struct import Struct
from millstream.connect.errors import ConnectError, RetriableError
from millstream.testing.connect import SinkRun
from tests.support.effort import seeds
from tests.support.waiting import wait_until

HOUR = 3_600_000
ITEM = struct_schema(
    [("id", REQUIRED[Type.INT32]), ("name", OPTIONAL[Type.STRING])], name="Item", version=1, optional=False
)


def item(number: int, name: str | None = "bell") -> Struct:
    return Struct(ITEM, [number, name])


def local(folder: Path, **more: str) -> SinkRun:
    settings = {name.replace("_", "."): value for name, value in more.items()}
    return SinkRun("FileSink", {"store.url": str(folder), "flush.size": "3", **settings})


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def numbers(folder: Path) -> list[int]:
    """What stands in JSON and Parquet files, sorted."""
    found: list[int] = []
    for name, data in files(folder).items():
        if name.endswith(".parquet"):
            found += pq.read_table(folder / name, partitioning=None)["n"].to_pylist()
        else:
            found += [json.loads(line)["n"] for line in data.splitlines()]
    return sorted(found)


# --- names and cuts -----------------------------------------------------------------------------------------


def test_files_of_so_many_records_by_kafkas_partition(tmp_path: Path) -> None:
    sink = local(tmp_path)
    for number in range(7):
        sink.send({"n": number}, topic="orders", partition=1)
    sink.run()
    assert files(tmp_path) == {
        "topics/orders/partition=1/orders+1+0000000000+0000000002.json": b'{"n":0}\n{"n":1}\n{"n":2}\n',
        "topics/orders/partition=1/orders+1+0000000003+0000000005.json": b'{"n":3}\n{"n":4}\n{"n":5}\n',
    }
    assert sink.lag == 1


def test_names_are_made_by_the_settings(tmp_path: Path) -> None:
    sink = local(tmp_path, topics_dir="data", file_delim="-", filename_offset_zero_pad_width="3")
    for number in range(3):
        sink.send({"n": number})
    sink.run()
    assert list(files(tmp_path)) == ["data/test/partition=0/test-0-000-002.json"]


def test_fields_make_folders_and_no_value_leaves_them(tmp_path: Path) -> None:
    sink = local(
        tmp_path,
        partitioner_class="io.confluent.connect.storage.partitioner.FieldPartitioner",
        partition_field_name="where,kind",
        flush_size="4",
    )
    for number, where in enumerate(("Bonn", "../../etc", None, "Bonn")):
        sink.send({"n": number, "where": where, "kind": number % 3 == 0})
    sink.run()
    assert {name: data.count(b"\n") for name, data in files(tmp_path).items()} == {
        "topics/test/where=Bonn/kind=true/test+0+0000000000+0000000003.json": 2,
        "topics/test/where=..%2F..%2Fetc/kind=false/test+0+0000000001+0000000001.json": 1,
        "topics/test/where=__HIVE_DEFAULT_PARTITION__/kind=false/test+0+0000000002+0000000002.json": 1,
    }


@pytest.mark.parametrize(
    ("settings", "folder"),
    [
        ({"partitioner_class": "DailyPartitioner"}, "year=2026/month=11/day=17"),
        ({"partitioner_class": "HourlyPartitioner"}, "year=2026/month=11/day=17/hour=23"),
        (
            {"partitioner_class": "HourlyPartitioner", "timezone": "Asia/Kolkata"},
            "year=2026/month=11/day=18/hour=04",
        ),
        (
            {
                "partitioner_class": "TimeBasedPartitioner",
                "path_format": "YYYY-MMM/dd/'h'HHmm",
                "partition_duration_ms": "600000",
            },
            "2026-Nov/17/h2310",
        ),
        (
            {
                "partitioner_class": "DailyPartitioner",
                "timestamp_extractor": "RecordField",
                "timestamp_field": "at.when",
            },
            "year=2020/month=02/day=29",
        ),
    ],
)
def test_time_makes_folders(tmp_path: Path, settings: dict[str, str], folder: str) -> None:
    sink = local(tmp_path, **{"timestamp_extractor": "Record", "flush_size": "1", **settings})
    moment = logical.to_millis(datetime(2026, 11, 17, 23, 14, 59, tzinfo=UTC))
    sink.send({"n": 1, "at": {"when": "2020-02-29T12:00:00Z"}}, timestamp=moment)
    sink.run()
    assert list(files(tmp_path)) == [f"topics/test/{folder}/test+0+0000000000+0000000000.json"]


def test_record_time_ends_a_file(tmp_path: Path) -> None:
    sink = local(tmp_path, flush_size="100", rotate_interval_ms=str(HOUR), timestamp_extractor="Record")
    for number, at in enumerate((0, HOUR // 2, HOUR - 1, HOUR, 3 * HOUR)):
        sink.send({"n": number}, timestamp=at)
    sink.run()
    assert [name.rpartition("/")[2] for name in sorted(files(tmp_path))] == [
        "test+0+0000000000+0000000002.json",
        "test+0+0000000003+0000000003.json",
    ]


def test_the_time_of_a_field_ends_a_file(tmp_path: Path) -> None:
    more = {"timestamp_extractor": "RecordField", "timestamp_field": "at"}
    sink = local(tmp_path, flush_size="100", rotate_interval_ms="10", **more)
    for number, at in enumerate((5, 14, 15)):
        sink.send({"n": number, "at": at})
    sink.run()
    assert [name.rpartition("/")[2] for name in files(tmp_path)] == ["test+0+0000000000+0000000001.json"]


def test_the_clock_ends_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000_000_000_000]
    monkeypatch.setattr("millstream.connect.connectors.storage.sink.now_ms", lambda: now[0])
    sink = local(tmp_path, flush_size="100", rotate_schedule_interval_ms="60000")
    sink.send({"n": 0})
    sink.run()
    assert files(tmp_path).keys() == set()
    assert sink.task.due is not None and sink.task.due > time.monotonic()
    now[0] += 60_000
    sink.task.put([])
    sink.run()
    assert numbers(tmp_path) == [0]
    assert sink.lag == 0


def test_what_is_wrong_is_said_before_a_task_starts(tmp_path: Path) -> None:
    for settings, text in (
        ({"flush_size": "0"}, "flush.size"),
        ({"partitioner_class": "TimeBasedPartitioner"}, "partition.duration.ms"),
        ({"partitioner_class": "FieldPartitioner"}, "partition.field.name"),
        ({"format_class": "io.example.OrcFormat"}, "format.class"),
        ({"partitioner_class": "DailyPartitioner", "timezone": "Mars/Olympus"}, "timezone"),
        ({"format_class": "ParquetFormat", "compression_type": "gzip"}, "compression.type"),
    ):
        with pytest.raises(ConfigError, match=text):
            local(tmp_path, **settings)


# --- formats ------------------------------------------------------------------------------------------------


def test_parquet_holds_every_type(tmp_path: Path) -> None:
    inner = struct_schema([("x", REQUIRED[Type.INT8])], optional=True)
    schema = struct_schema(
        [
            ("small", REQUIRED[Type.INT16]),
            ("big", OPTIONAL[Type.INT64]),
            ("real", REQUIRED[Type.FLOAT64]),
            ("yes", REQUIRED[Type.BOOLEAN]),
            ("raw", OPTIONAL[Type.BYTES]),
            ("text", Schema(Type.STRING, default="none", optional=True)),
            ("price", logical.decimal_schema(2)),
            ("day", logical.DATE_SCHEMA),
            ("at", logical.TIMESTAMP_SCHEMA),
            ("list", array_schema(OPTIONAL[Type.INT32])),
            ("map", map_schema(REQUIRED[Type.STRING], REQUIRED[Type.INT32])),
            ("inner", inner),
        ]
    )
    at = datetime(2026, 11, 17, 1, 2, 3, 4000, tzinfo=UTC)
    day = datetime(2026, 11, 17, tzinfo=UTC)
    row: list[Any] = [1, None, 0.5, True, b"\x00", None, Decimal("12.30"), day, at, [1, None], {"a": 1}]
    sink = local(
        tmp_path, format_class="io.confluent.connect.s3.format.parquet.ParquetFormat", flush_size="2"
    )
    sink.send(Struct(schema, [*row, Struct(inner, [7])]), value_schema=schema)
    sink.send(Struct(schema, [*row, None]), value_schema=schema)
    sink.run()
    (name,) = files(tmp_path)
    assert name == "topics/test/partition=0/test+0+0000000000+0000000001.parquet"
    found = pq.read_table(tmp_path / name).to_pylist()
    assert found[0] == {
        "small": 1,
        "big": None,
        "real": 0.5,
        "yes": True,
        "raw": b"\x00",
        "text": "none",
        "price": Decimal("12.30"),
        "day": day.date(),
        "at": at,
        "list": [1, None],
        "map": [("a", 1)],
        "inner": {"x": 7},
    }
    assert found[1]["inner"] is None


def test_a_schema_that_changes_begins_a_file_unless_it_is_compatible(tmp_path: Path) -> None:
    newer = struct_schema(
        [("id", REQUIRED[Type.INT64]), ("name", OPTIONAL[Type.STRING]), ("size", OPTIONAL[Type.INT32])],
        name="Item",
        version=2,
    )
    rows = [(item(1), ITEM), (Struct(newer, [2, "saddle", 9]), newer), (item(3), ITEM)]
    none = local(tmp_path / "none", format_class="ParquetFormat", flush_size="2")
    back = local(
        tmp_path / "back", format_class="ParquetFormat", schema_compatibility="BACKWARD", flush_size="2"
    )
    for sink in (none, back):
        for value, schema in rows:
            sink.send(value, value_schema=schema)
        sink.run()
    assert len(files(tmp_path / "none")) == 2
    written = [
        pq.read_table(tmp_path / "back" / name).to_pylist() for name in sorted(files(tmp_path / "back"))
    ]
    assert written == [
        [{"id": 1, "name": "bell"}],
        [{"id": 2, "name": "saddle", "size": 9}, {"id": 3, "name": "bell", "size": None}],
    ]


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "bzip2", "zstandard", "xz"])
def test_avro_containers_are_read_by_fastavro(tmp_path: Path, codec: str) -> None:
    sink = local(tmp_path, format_class="AvroFormat", avro_codec=codec, flush_size="20000")
    schema = struct_schema(
        [*((field.name, field.schema) for field in ITEM.fields), ("at", logical.TIMESTAMP_SCHEMA)]
    )
    at = datetime(2026, 11, 17, tzinfo=UTC)
    for number in range(20000):
        sink.send(Struct(schema, [number, None if number % 2 else "bell", at]), value_schema=schema)
    sink.run()
    (name,) = files(tmp_path)
    assert name.endswith(".avro")
    with open(tmp_path / name, "rb") as file:
        found = list(fastavro.reader(file))
    assert found == [
        {"id": number, "name": None if number % 2 else "bell", "at": at} for number in range(20000)
    ]


def test_bytes_and_gzip(tmp_path: Path) -> None:
    sink = local(
        tmp_path,
        format_class="ByteArrayFormat",
        compression_type="gzip",
        flush_size="2",
        format_bytearray_separator="|",
    )
    for value in (b"one", b"two"):
        sink.send(value, value_schema=REQUIRED[Type.BYTES])
    sink.run()
    ((name, data),) = files(tmp_path).items()
    assert name.endswith(".bin.gz")
    assert gzip.decompress(data) == b"one|two|"


# --- bad input ----------------------------------------------------------------------------------------------


def test_a_record_that_has_no_place_is_a_dead_letter(tmp_path: Path) -> None:
    wide = struct_schema([("price", logical.decimal_schema(0, parameters={"scale": "0"}))])
    sink = SinkRun(
        "FileSink",
        {"store.url": str(tmp_path), "flush.size": "4", "format.class": "ParquetFormat"},
        tolerate=True,
    )
    for value in (
        Struct(wide, [Decimal(1)]),
        None,
        Struct(wide, [Decimal("1" * 50)]),
        Struct(wide, [Decimal(2)]),
        {"no": "schema"},
        Struct(wide, [Decimal(3)]),
    ):
        sink.send(value, value_schema=wide if isinstance(value, Struct) else None)
    sink.run()
    assert [record.offset for record, _ in sink.rejected] == [1, 4, 2]
    (name,) = files(tmp_path)
    assert [row["price"] for row in pq.read_table(tmp_path / name).to_pylist()] == [1, 2, 3]
    strict = local(tmp_path / "strict")
    strict.send(None)
    with pytest.raises(ConnectError):
        strict.run()


def test_a_full_disk_delays_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "SPILL_BYTES", 10)
    real = os.replace
    left = [2]

    def full(source: Any, target: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", full)
    sink = local(tmp_path, flush_size="2")
    for number in range(4):
        sink.send({"n": number})
    failures = 0
    while True:
        try:
            if not sink.step():
                break
        except RetriableError as error:
            assert "No space left" in str(error)
            failures += 1
    assert failures == 2
    assert numbers(tmp_path) == [0, 1, 2, 3]
    assert sink.lag == 0


# --- exactly once -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["JsonFormat", "ParquetFormat"])
@pytest.mark.parametrize("seed", seeds(25))
def test_a_task_that_dies_anywhere_leaves_every_record_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, form: str
) -> None:
    """Settings that cut change with every restart, and the clock goes on: names still agree."""
    rng = random.Random(seed)
    now = [1_700_000_000_000]
    for module in ("sink", "partitioners"):
        monkeypatch.setattr(f"millstream.connect.connectors.storage.{module}.now_ms", lambda: now[0])
    settings = {
        "store.url": str(tmp_path),
        "partitioner.class": rng.choice(["Default", "Field", "Hourly"]),
        "partition.field.name": "odd",
        "timestamp.extractor": rng.choice(["Wallclock", "Record"]),
        "rotate.schedule.interval.ms": rng.choice(["-1", "1000"]),
        "rotate.interval.ms": rng.choice(["-1", "5000"]),
        "flush.size": "3",
        "behavior.on.null.values": "ignore",
        "format.class": form,
    }
    schema = struct_schema([("n", REQUIRED[Type.INT32]), ("odd", REQUIRED[Type.INT32])])
    sink = SinkRun("FileSink", settings)
    sent = 0
    for _ in range(300):
        what = rng.random()
        now[0] += rng.choice([0, 1, 400, HOUR // 2])
        if what < 0.4:
            for _ in range(rng.randrange(1, 9)):
                if rng.random() < 0.2:
                    sink.send(None, partition=sent % 2)
                value = Struct(schema, [sent, sent % 2])
                sink.send(value, partition=sent % 2, timestamp=now[0], value_schema=schema)
                sent += 1
        elif what < 0.45:
            sink = sink.restarted(**{"flush.size": str(rng.choice([2, 3, 5, 40]))})
        elif what < 0.5:
            sink.log and sink.step() and sink.task.put([])
        else:
            sink.step()
    sink = sink.restarted(**{"flush.size": "1", "rotate.interval.ms": "-1"})
    sink.run()
    assert numbers(tmp_path) == list(range(sent))
    assert sink.lag == 0


def test_two_topics_of_one_name_do_not_meet(tmp_path: Path) -> None:
    sink = local(tmp_path, flush_size="1")
    for topic in ("a", "b"):
        record = sink.send({"n": ord(topic)}, topic=topic)
        sink.log[next(which for which in sink.log if which.topic == topic)][0] = record.replace(topic="both")
    sink.run()
    assert sorted(files(tmp_path)) == [
        "topics/both/partition=0/a+0+0000000000+0000000000.json",
        "topics/both/partition=0/b+0+0000000000+0000000000.json",
    ]


def test_a_transform_cannot_lead_out_of_the_folder() -> None:
    assert partitioners.folder_name("..") == "%2E%2E"
    assert partitioners.folder_name("a/../../b") == "a%2F..%2F..%2Fb"


def test_files_of_pyarrows_file_systems(tmp_path: Path) -> None:
    """HDFS goes this way; here with the file system of this machine."""
    url = f"file://{tmp_path}"
    from millstream.connect.connectors.storage.stores import ArrowStore

    store = ArrowStore(url, "topics/+tmp/a-0")
    for _ in range(2):
        output = store.output("")
        output.write(b"x" * (stores.COPY_BYTES + 1))
        output.drain()
        output.write(b"y")
        output.commit("topics/t/partition=0/t+0+0+1.bin")
    store.close()
    assert {name: len(data) for name, data in files(tmp_path).items()} == {
        "topics/t/partition=0/t+0+0+1.bin": stores.COPY_BYTES + 2
    }


def test_a_worker_writes_files(make_worker: Any, connect_broker: str, tmp_path: Path) -> None:
    producer = Producer({"bootstrap.servers": connect_broker})
    for number in range(1000):
        producer.produce("filed", json.dumps({"n": number}), key=str(number))
    producer.flush()
    config = {
        "connector.class": "millstream.connect.FileSink",
        "topics": "filed",
        "store.url": str(tmp_path),
        "flush.size": "100",
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    first = make_worker()
    assert first.http.put("/connectors/filed/config", json=config).status_code == 201
    wait_until(lambda: len(numbers(tmp_path)) == 1000)
    first.stop()
    producer.produce("filed", b"not json")
    for number in range(1000, 1099):
        producer.produce("filed", json.dumps({"n": number}))
    producer.flush()
    second = make_worker()
    tolerant = config | {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "filed-dead",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "flush.size": "33",
    }
    assert second.http.put("/connectors/filed/config", json=tolerant).status_code == 200
    wait_until(lambda: len(numbers(tmp_path)) == 1099)
    assert numbers(tmp_path) == list(range(1099))
