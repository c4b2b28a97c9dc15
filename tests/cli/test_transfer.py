"""`millstream topics export` and `import`: what comes back is what went out."""

import json
from pathlib import Path
from typing import Any

import pytest

from millstream.client import Admin, ClientConfig, Cluster, NewTopic, Producer
from millstream.wire.records import Record

from .conftest import Run

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install millstream[pipelines])")
pytestmark = pytest.mark.spark

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
        Admin(cluster).create_topics(
            [
                # The records are of a day in January: retention must not remove them while the tests run.
                NewTopic("moved", 2, configs={"retention.ms": "-1"}),
                *(NewTopic(f"back-{form}", 2) for form in ("parquet", "json", "avro")),
            ]
        )
        producer = Producer(cluster)
        for partition, records in enumerate(ROWS):
            producer.send("moved", partition, records)
    return "moved"


def content(run: Run, bootstrap: str, topic: str) -> list[tuple[Any, ...]]:
    """Partition, offset and content of every record. Read to the last one, however slow the machine is."""
    done = run(
        *("console-consumer", "--topic", topic, "--bootstrap-server", bootstrap, "--from-beginning"),
        *("--max-messages", str(RECORDS), "--timeout-ms", "60000", "-o", "json"),
    )
    rows = [json.loads(line) for line in done.out.splitlines()]
    return sorted(
        (row["partition"], row["offset"], json.dumps([row["key"], row["value"], row["headers"]]))
        for row in rows
    )


@pytest.mark.timeout(280)
@pytest.mark.parametrize("form", ["parquet", "json", "avro"])
def test_there_and_back(run: Run, bootstrap: str, topic: str, tmp_path: Path, form: str) -> None:
    to = ("--bootstrap-server", bootstrap, "--format", form)
    done = run("topics", "export", topic, str(tmp_path / "files"), *to)
    assert done.code == 0, done.err
    assert done.out.startswith(f"Exported {RECORDS} records of moved to {tmp_path / 'files'} ({form}, ")
    again = run("topics", "export", topic, str(tmp_path / "files"), *to)
    assert (again.code, len(again.err.splitlines())) == (1, 1)
    done = run(
        "topics", "import", f"back-{form}", str(tmp_path / "files"), "--keep-partitions", "-o", "json", *to
    )
    assert done.code == 0, done.err
    assert json.loads(done.out)["records"] == RECORDS
    assert content(run, bootstrap, f"back-{form}") == content(run, bootstrap, topic)
    if form == "json":
        lines = [json.loads(line) for file in (tmp_path / "files").glob("*.json") for line in file.open()]
        first = next(line for line in lines if line.get("key") == "k1")
        assert first["value"] == '{"n": 1}'
        assert first["timestamp"] == "2026-01-01T00:00:00.000Z"
        assert first["headers"][1] == {"key": "raw", "value_base64": "/wA="}
    if form == "parquet":  # and a part of it, by time
        to = ("--bootstrap-server", bootstrap, "--from-time", "2026-01-01T00:00:01Z", "-o", "json")
        done = run("topics", "export", topic, str(tmp_path / "part"), *to)
        assert json.loads(done.out)["records"] == 200


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
