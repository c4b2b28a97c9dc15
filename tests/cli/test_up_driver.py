"""`millstream up --with sql,connect`: two services, one process with Spark."""

import json
from pathlib import Path

import httpx
import pytest

from tests.support.waiting import wait_until

from .test_up import Up, alive, up  # noqa: F401 - the fixture

PATIENCE = 240.0


@pytest.mark.spark
def test_sql_and_connect_share_a_driver(up, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]  # noqa: F811
    lines = tmp_path / "lines.txt"
    lines.write_text("one\ntwo\n")
    running: Up = up(
        *("--only", "broker", "--with", "sql,connect", "--set", "connect.spark.master=local[2]"),
        *("--set", "sql.ksql.streams.auto.offset.reset=earliest"),
    ).ready()
    folder = running.home.path
    with httpx.Client(timeout=PATIENCE) as http:
        sql, connect = (running.service(name).address for name in ("sql", "connect"))
        settings = {
            "connector.class": "FileStreamSource",
            "file": str(lines),
            "topic": "lines",
            "value.converter": "StringConverter",
        }
        made = http.post(f"{connect}/connectors", json={"name": "lines", "config": settings})
        assert made.status_code == 201, made.text
        file = folder / "driver" / "driver.json"
        wait_until(file.exists, "Connect has started no driver", patience=PATIENCE)
        first = _driver(folder)
        statements = (
            "CREATE STREAM lines (line STRING) "
            "WITH (kafka_topic='lines', value_format='KAFKA', partitions=1);"
            "CREATE STREAM shouted AS SELECT UCASE(line) AS line FROM lines;"
        )
        answer = http.post(f"{sql}/ksql", json={"ksql": statements})
        assert answer.status_code == 200, answer.text
        query = {"sql": "SELECT line FROM shouted EMIT CHANGES LIMIT 2;"}
        rows = http.post(f"{sql}/query-stream", json=query).text.splitlines()[1:3]
        assert [json.loads(row) for row in rows] == [["ONE"], ["TWO"]]
    # What came out has been through both, and there is one driver.
    assert [path.relative_to(folder) for path in folder.rglob("driver.json")] == [Path("driver/driver.json")]
    assert _driver(folder) == first
    running.stop()
    wait_until(lambda: not alive_pid(first), "the driver does not end", patience=PATIENCE)


def _driver(folder: Path) -> int:
    return int(json.loads((folder / "driver" / "driver.json").read_text())["pid"])


def alive_pid(pid: int) -> bool:
    try:
        return alive(pid)
    except FileNotFoundError:
        return False
