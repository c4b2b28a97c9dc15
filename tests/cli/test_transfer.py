"""`millstream topics export` and `import`: what comes back is what went out, with Spark and without, and what
one of them has written the other can read."""

import errno
import gzip
import json
import os
import subprocess
import uuid
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet
import pytest

from millstream.cli.transfer import jobs, local_transfer
from millstream.cli.transfer.record_files import JsonWriter, instant
from millstream.client import Admin, ClientConfig, Cluster, NewTopic, Producer
from millstream.client.transactional import TransactionalProducer
from millstream.wire.records import Record, encode_batch
from millstream.wire.topic_partition import TopicPartition

from .conftest import PROGRAM, Run

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install millstream[pipelines])")

BY_SPARK = ("--master", "local[2]")
ROWS = [
    [
        Record(
            0, 1_767_225_600_000, b"k1", b'{"n": 1}', [("source", b"a"), ("raw", b"\xff\x00"), ("none", None)]
        ),
        Record(0, 1_767_225_600_001, None, "zażółć".encode(), []),
        Record(0, 1_767_225_600_002, b"k2", None, []),
    ],
    [
        Record(0, 1_767_225_600_003, b"\x00\xff", b"\xfe\xff", []),
        Record(0, 1_767_225_600_004, b"", b"", []),
        *(Record(0, 1_767_225_700_000, b"many", b"%d" % number, []) for number in range(200)),
    ],
]
RECORDS = sum(map(len, ROWS))


@pytest.fixture(scope="module")
def topic(millstream_broker: Any) -> str:
    with Cluster(ClientConfig.of(millstream_broker.bootstrap_servers)) as cluster:
        # The records are of a day in January: retention must not remove them while the tests run.
        Admin(cluster).create_topics([NewTopic("moved", 2, configs={"retention.ms": "-1"})])
        producer = Producer(cluster)
        for partition, records in enumerate(ROWS):
            producer.send("moved", partition, records)
    return "moved"


@pytest.fixture
def copy(millstream_broker: Any) -> str:
    """An empty topic for what comes back."""
    name = f"back-{uuid.uuid4().hex[:8]}"
    with Cluster(ClientConfig.of(millstream_broker.bootstrap_servers)) as cluster:
        Admin(cluster).create_topics([NewTopic(name, 2)])
    return name


def content(run: Run, bootstrap: str, topic: str, count: int = RECORDS) -> list[tuple[Any, ...]]:
    """Partition, offset and content of every record. Read to the last one, however slow the machine is."""
    done = run(
        *("console-consumer", "--topic", topic, "--bootstrap-server", bootstrap, "--from-beginning"),
        *("--max-messages", str(count), "--timeout-ms", "60000", "-o", "json"),
    )
    rows = [json.loads(line) for line in done.out.splitlines()]
    return sorted(
        (row["partition"], row["offset"], json.dumps([row["key"], row["value"], row["headers"]]))
        for row in rows
    )


@pytest.mark.parametrize("form", ["parquet", "json", "avro"])
def test_there_and_back(
    run: Run,
    bootstrap: str,
    topic: str,
    copy: str,
    tmp_path: Path,
    form: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A few records need no Spark."""
    monkeypatch.setattr(jobs, "run", lambda *_: pytest.fail("Spark was started"))
    files = tmp_path / "files"
    to = ("--bootstrap-server", bootstrap, "--format", form)
    done = run("topics", "export", topic, str(files), *to)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"Exported {RECORDS} records of moved to {files} ({form}, 2 files, ")
    again = run("topics", "export", topic, str(files), *to)
    assert (again.code, len(again.err.splitlines())) == (1, 1)
    done = run("topics", "import", copy, str(files), "--keep-partitions", "-o", "json", *to)
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["records"] == RECORDS
    assert content(run, bootstrap, copy) == content(run, bootstrap, topic)


@pytest.mark.spark
@pytest.mark.timeout(280)
@pytest.mark.parametrize("form", ["parquet", "json", "avro"])
def test_both_ways_write_and_read_the_same_files(
    run: Run,
    bootstrap: str,
    topic: str,
    copy: str,
    tmp_path: Path,
    form: str,
) -> None:
    to = ("--bootstrap-server", bootstrap, "--format", form)
    for words, name in (((), "alone"), (BY_SPARK, "spark")):
        done = run("topics", "export", topic, str(tmp_path / name), *to, *words)
        assert done.code == 0, done.err
        assert done.out.startswith(f"Exported {RECORDS} records of moved to {tmp_path / name} ({form}, ")
        assert done.err == ""
    assert rows_of(tmp_path / "alone", form) == rows_of(tmp_path / "spark", form)
    for words, name in ((BY_SPARK, "alone"), ((), "spark")):
        done = run("topics", "import", copy, str(tmp_path / name), "--keep-partitions", *to, *words)
        assert done.code == 0, done.err
    expected = content(run, bootstrap, topic)
    assert content(run, bootstrap, copy, 2 * RECORDS) == twice(expected)


@pytest.mark.spark
@pytest.mark.timeout(280)
def test_what_spark_logs_is_not_printed(bootstrap: str, topic: str, tmp_path: Path) -> None:
    words = ("topics", "export", topic, str(tmp_path / "files"), "--bootstrap-server", bootstrap, *BY_SPARK)
    done = subprocess.run(
        [*PROGRAM, *words],
        capture_output=True,
        text=True,
        timeout=250,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Exported {RECORDS} records of moved to ")
    assert list(tmp_path.glob("millstream-spark-*.log")) == []


def rows_of(folder: Path, form: str) -> list[Any]:
    """What is in the files, by a reader that is neither ours nor Spark's."""
    files = [file for file in sorted(folder.iterdir()) if not file.name.startswith(("_", "."))]
    if form == "json":
        rows = [json.loads(line) for file in files for line in file.open()]
    elif form == "avro":
        rows = [dict(row) for file in files for row in fastavro.reader(file.open("rb"))]
    else:
        table = pyarrow.parquet.read_table(folder)
        rows = [{"schema": str(table.schema.remove_metadata())}, *table.to_pylist()]
    return sorted(rows, key=lambda row: (row.get("partition", -1), row.get("offset", -1)))


def twice(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The same records once more behind themselves, in each partition."""
    counts = [len(records) for records in ROWS]
    more = [(partition, offset + counts[partition], *rest) for partition, offset, *rest in rows]
    return sorted([*rows, *more])


def test_json_lines_are_readable(run: Run, bootstrap: str, topic: str, tmp_path: Path) -> None:
    files = tmp_path / "files"
    assert (
        run("topics", "export", topic, str(files), "--format", "json", "--bootstrap-server", bootstrap).code
        == 0
    )
    lines = [json.loads(line) for file in sorted(files.glob("*.json")) for line in file.open()]
    assert lines[0] == {
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "key": "k1",
        "value": '{"n": 1}',
        "headers": [
            {"key": "source", "value": "a"},
            {"key": "raw", "value_base64": "/wA="},
            {"key": "none"},
        ],
    }


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (("--from-time", "2026-01-01T00:00:01Z"), 200),
        (("--to-time", "2026-01-01T00:00:01Z"), 5),
        (("--from-time", "2026-01-01T00:00:00.001Z", "--to-time", "2026-01-01T00:00:00.004Z"), 3),
        (("--from-time", "2030-01-01"), 0),
    ],
)
def test_a_part_by_time(
    run: Run, bootstrap: str, topic: str, tmp_path: Path, words: tuple[str, ...], count: int
) -> None:
    done = run(
        "topics",
        "export",
        topic,
        str(tmp_path / "part"),
        *words,
        "--bootstrap-server",
        bootstrap,
        "-o",
        "json",
    )
    assert json.loads(done.out)["records"] == count
    assert len(rows_of(tmp_path / "part", "parquet")) == 1 + count
    assert (tmp_path / "part" / "_SUCCESS").exists()


def test_only_what_was_committed(run: Run, bootstrap: str, tmp_path: Path) -> None:
    name = f"committed-{uuid.uuid4().hex[:8]}"
    with Cluster(ClientConfig.of(bootstrap)) as cluster:
        Admin(cluster).create_topics([NewTopic(name, 1, configs={"retention.ms": "-1"})])
        producer = TransactionalProducer(cluster, name)
        for text, commit in ((b"yes", True), (b"no", False)):
            producer.begin()
            batch = encode_batch([Record(0, 1_767_225_600_000, None, text, [])], transactional=True)
            producer.send_batches({TopicPartition(name, 0): batch})
            producer.commit() if commit else producer.abort()
    for level, values in (("read_committed", ["yes"]), ("read_uncommitted", ["yes", "no"])):
        words = ("--isolation-level", level, "--format", "json", "--bootstrap-server", bootstrap)
        assert run("topics", "export", name, str(tmp_path / level), *words).code == 0
        assert [row["value"] for row in rows_of(tmp_path / level, "json")] == values


def test_the_border(
    run: Run, bootstrap: str, topic: str, copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More records, or larger ones, are Spark's; so is all that --master is given for."""
    to = ("--bootstrap-server", bootstrap, "--format", "avro")
    files = tmp_path / "files"
    assert run("topics", "export", topic, str(files), *to).code == 0
    started: list[str] = []

    def spark(what: str, *_: Any) -> int:
        started.append(what)
        return 0

    monkeypatch.setattr(jobs, "run", spark)
    for change in ({"MAX_RECORDS": RECORDS - 1}, {"MAX_BYTES": 100}, {}):
        with monkeypatch.context() as limits:
            for name, value in change.items():
                limits.setattr(local_transfer, name, value)
            more = () if change else BY_SPARK
            run("topics", "export", topic, str(tmp_path / "more" / str(len(started))), *to, *more)
            run("topics", "import", copy, str(files), *to, *more)
    assert started == ["exporting", "importing", "importing", "exporting", "importing"]


def test_files_of_other_programs(run: Run, bootstrap: str, copy: str, tmp_path: Path) -> None:
    """The value as it was written, whatever JSON it is, and in the order of the lines."""
    lines = ['{"value": "text"}', '{ "value" : {"b": 1.50, "a": 1e400}, "key": 7 }', '{"value": [1,  2]}']
    with gzip.open(tmp_path / "lines.json.gz", "wt") as out:
        out.write("\n".join(lines))
    to = ("--bootstrap-server", bootstrap)
    assert run("topics", "import", copy, str(tmp_path), "--format", "json", *to).code == 0
    values = {json.loads(row[2])[1] for row in content(run, bootstrap, copy, len(lines))}
    assert values == {"text", '{"b": 1.50, "a": 1e400}', "[1,  2]"}
    done = run("topics", "import", copy, str(tmp_path), "--format", "json", "--keep-partitions", *to)
    assert (done.code, done.err) == (1, "--keep-partitions needs the columns 'partition' and 'offset'\n")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.json", '{"value": "x"}\n{"value": \n', "a.json, line 2 is not a record in JSON"),
        ("a.json", '["value"]\n', "a.json, line 1 is not a record in JSON"),
        ("a.json", '{"value": "x"} {"value": "y"}\n', "a.json, line 1 is not a record in JSON"),
        ("a.json", '{"id": 1}\n', "have no column 'value'; they have id"),
        ("a.json", '{"value": "x", "partition": 9, "offset": 0}\n', "a record is of partition 9, and topic"),
        ("a.parquet", "not Parquet", "cannot read"),
        ("a.avro", "not Avro", "a.avro is not an Avro file"),
    ],
)
def test_files_that_cannot_be_imported(
    run: Run, bootstrap: str, copy: str, tmp_path: Path, name: str, text: str, says: str
) -> None:
    (tmp_path / name).write_text(text)
    words = ("--format", name.partition(".")[2], "--keep-partitions", "--bootstrap-server", bootstrap)
    done = run("topics", "import", copy, str(tmp_path), *words)
    assert (done.code, done.out, len(done.err.splitlines())) == (1, "", 1)
    assert says in done.err


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1_767_225_600_004, "2026-01-01T00:00:00.004Z"),
        (253_402_300_800_000, "+10000-01-01T00:00:00.000Z"),
    ],
)
def test_times_in_json(milliseconds: int, text: str) -> None:
    assert instant(milliseconds) == text


def test_an_export_that_fails_leaves_nothing(
    run: Run, bootstrap: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: JsonWriter, record: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(JsonWriter, "write", broken)
    words = ("--format", "json", "--bootstrap-server", bootstrap)
    done = run("topics", "export", topic, str(tmp_path / "files"), *words)
    assert (done.code, done.err) == (1, "No space left on device\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["export", "moved"], 2, "Missing argument 'FOLDER'"),
        (["export", "moved", "x", "--format", "csv"], 2, "use one of parquet, json, avro"),
        (["export", "moved", "x", "--from-time", "noon"], 2, "is not a time"),
        (["export", "absent", "{folder}/new"], 1, "topic absent: "),
        (["export", "moved", "{folder}"], 1, "is there already"),
        (["import", "moved", "{folder}/absent"], 1, "is not there"),
    ],
)
def test_misuse(
    run: Run, bootstrap: str, topic: str, tmp_path: Path, words: list[str], code: int, says: str
) -> None:
    (tmp_path / "file").write_text("")
    done = run("topics", *(word.format(folder=tmp_path) for word in words), "--bootstrap-server", bootstrap)
    assert (done.code, done.out, len(done.err.splitlines())) == (code, "", 1)
    assert says in done.err
