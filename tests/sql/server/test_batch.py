"""BATCH: Spark SQL over what topics hold, with the columns that statements have given them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from millstream.host.link import Link
from millstream.sql.batch.driver import BatchServer
from tests.sql.server.sql_client import RunningSql
from tests.support.running import RunningRegistry
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def batch(
    bootstrap: str, registry: RunningRegistry, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningSql]:
    settings = {
        "ksql.schema.registry.url": registry.url,
        "ksql.batch.external": "true",
        "ksql.batch.max.rows": 1000,
        "ksql.batch.spark.master": "local[1]",
    }
    with RunningSql(bootstrap, tmp_path_factory.mktemp("batch"), settings) as sql:
        sql.ksql(
            "CREATE STREAM RIDES (RIDER STRING KEY, KM DECIMAL(5, 2), WHEN_ TIMESTAMP, TAGS ARRAY<STRING>, "
            "PLACE STRUCT<CITY STRING, ZIP INT>) "
            "WITH (kafka_topic='batch_rides', value_format='JSON', partitions=2);"
        )
        for rider, km, city in (("ann", 3.5, "Bern"), ("bob", 2, "Basel"), ("ann", 1.25, "Bern")):
            sql.ksql(
                f"INSERT INTO RIDES (ROWTIME, RIDER, KM, WHEN_, TAGS, PLACE) VALUES (1000, '{rider}', {km}, "
                f"'2026-01-02T03:04:05.678', ARRAY['x', '{city}'], STRUCT(CITY := '{city}', ZIP := 3000));"
            )
        sql.ksql(
            "CREATE TABLE RIDERS (NAME STRING PRIMARY KEY, BORN DATE, LEVEL INT) "
            "WITH (kafka_topic='batch_riders', value_format='AVRO', partitions=2);"
        )
        for name, level in (("ann", 1), ("bob", 2), ("ann", 3), ("cid", 4)):
            sql.ksql(f"INSERT INTO RIDERS VALUES ('{name}', '1990-01-31', {level});")
        yield sql


def test_all_records_of_a_stream(batch: RunningSql) -> None:
    rows = batch.rows(
        "BATCH SELECT RIDER, KM, WHEN_, TAGS, PLACE.CITY, ROWTIME FROM RIDES ORDER BY RIDER, KM DESC;"
    )
    assert rows == [
        ["ann", 3.5, "2026-01-02T03:04:05.678", ["x", "Bern"], "Bern", 1000],
        ["ann", 1.25, "2026-01-02T03:04:05.678", ["x", "Bern"], "Bern", 1000],
        ["bob", 2, "2026-01-02T03:04:05.678", ["x", "Basel"], "Basel", 1000],
    ]


def test_subqueries_window_functions_and_joins(batch: RunningSql) -> None:
    assert batch.rows(
        "batch with sums as (select rider, sum(km) as km, rank() over (order by sum(km) desc) as place from "
        "rides group by rider) select s.place, s.rider, level from sums s join riders r on s.rider = r.name "
        "where s.km > (select min(km) from rides) order by 1;"
    ) == [[1, "ann", 3], [2, "bob", 2]]


def test_a_table_is_the_newest_row_of_each_key(batch: RunningSql) -> None:
    assert batch.rows("BATCH SELECT NAME, BORN, LEVEL FROM RIDERS ORDER BY NAME;") == [
        ["ann", "1990-01-31", 3],
        ["bob", "1990-01-31", 2],
        ["cid", "1990-01-31", 4],
    ]


def test_files_under_a_name_and_by_their_path(batch: RunningSql, tmp_path: Path) -> None:
    file = tmp_path / "cities.csv"
    file.write_text("city,canton\nBern,BE\nBasel,BS\n")
    (made,) = batch.ksql(
        f"BATCH CREATE TEMPORARY VIEW cities USING csv OPTIONS (path '{file}', header 'true');"
    )
    assert "cities" in made["message"]
    join = (
        "BATCH SELECT canton, COUNT(*) FROM rides JOIN cities c ON place.city = c.city GROUP BY 1 ORDER BY 1;"
    )
    assert batch.rows(join) == [["BE", 2], ["BS", 1]]
    assert batch.rows(f"BATCH SELECT count(*) AS n FROM csv.`{file}`;") == [[3]]
    batch.ksql("BATCH DROP VIEW cities;")
    assert "no view" in batch.refused("BATCH DROP VIEW cities;")["message"]
    assert "TABLE_OR_VIEW_NOT_FOUND" in batch.refused(join, "/query-stream")["message"]


def test_the_older_resource_has_it_too(batch: RunningSql) -> None:
    header, row = batch.post("/query", {"ksql": "BATCH SELECT COUNT(*) AS n FROM rides;"}).json()
    assert (header["header"]["schema"], row) == ("`n` BIGINT", {"row": {"columns": [3]}})


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("BATCH SELECT nothing FROM rides;", "UNRESOLVED_COLUMN"),
        ("BATCH SELECT 1 +;", "(line 1, pos 16)"),
        ("BATCH SELECT a FROM rides WHERE x & 1 = ;", "PARSE_SYNTAX_ERROR"),
        ("BATCH WITH x AS (SELECT 1) INSERT INTO y SELECT * FROM x;", "BATCH runs queries"),
    ],
)
def test_mistakes_are_told_before_rows(batch: RunningSql, statement: str, words: str) -> None:
    message = batch.refused(statement, "/query-stream")["message"]
    assert words in message and "\tat " not in message


def test_statements_that_are_no_query(batch: RunningSql) -> None:
    assert "BATCH is followed by" in batch.refused("BATCH DROP TABLE x;")["message"]
    assert "should be issued" in batch.refused("BATCH SELECT 1;")["message"]


def test_a_query_that_fails_while_it_runs_says_so_at_its_end(batch: RunningSql) -> None:
    answer = batch.post("/query-stream", {"sql": "BATCH SELECT raise_error('late') FROM rides;"})
    last = json.loads(answer.text.splitlines()[-1])
    assert "late" in last["message"] and "\tat " not in last["message"]


def test_a_client_that_goes_cancels_its_query(batch: RunningSql) -> None:
    sql = "BATCH SELECT count(*) AS n FROM range(100000000000000);"
    with batch.client().stream("POST", "/query-stream", json={"sql": sql}) as answer:
        lines = answer.iter_lines()
        assert json.loads(next(lines))["columnNames"] == ["n"]
    # Spark has one slot here: the next one would wait for the first.
    assert batch.rows("BATCH SELECT count(*) AS n FROM range(10);") == [[10]]


def test_a_result_has_a_limit(batch: RunningSql) -> None:
    answer = batch.post("/query-stream", {"sql": "BATCH SELECT id FROM range(1000000000000);"})
    *rows, last = [json.loads(line) for line in answer.text.splitlines()[1:]]
    assert (len(rows), "ksql.batch.max.rows" in last["message"]) == (1000, True)
    assert len(batch.rows("BATCH SELECT id FROM range(1000000000000) LIMIT 1000;")) == 1000


def test_files_and_programs_have_to_be_allowed(bootstrap: str, tmp_path: Path) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("a\n")
    with RunningSql(bootstrap, tmp_path / "state") as sql:
        for statement in (
            f"BATCH SELECT * FROM csv.`{file}`;",
            f"BATCH SELECT * FROM text.`{file}`;",
        ):
            assert "TABLE_OR_VIEW_NOT_FOUND" in sql.refused(statement, "/query-stream")["message"]
        for statement in (
            "BATCH SELECT reflect('java.lang.System', 'getProperty', 'user.home');",
            "BATCH SELECT * FROM (SELECT java_method('java.lang.System', 'lineSeparator'));",
            "BATCH WITH x AS (SELECT TRANSFORM(a) USING 'cat' FROM VALUES (1) AS t(a)) SELECT * FROM x;",
            "BATCH SELECT (SELECT max(try_reflect('java.lang.System', 'lineSeparator')));",
        ):
            assert "ksql.batch.external" in sql.refused(statement, "/query-stream")["message"], statement
        create = f"BATCH CREATE TEMPORARY VIEW v USING csv OPTIONS (path '{file}');"
        assert "ksql.batch.external" in sql.refused(create)["message"]


def test_a_query_that_cannot_be_cancelled_keeps_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client is gone: for the driver nobody is there any more, and it may end."""
    running, end = threading.Event(), threading.Event()

    def query(_self: BatchServer, _link: Link, _arguments: object) -> int:
        running.set()
        end.wait()
        return 0

    monkeypatch.setattr(BatchServer, "_query", query)
    server = BatchServer(MagicMock(), b"secret")
    try:
        link = Link.connect(server.address, server.port, b"secret")
        link.send({"number": 0, "call": "query", "arguments": {}})
        running.wait()
        assert server.idle_seconds == 0
        link.close()
        wait_until(lambda: server.idle_seconds > 0)
        with_another = Link.connect(server.address, server.port, b"secret")
        wait_until(lambda: server.idle_seconds == 0)
        with_another.close()
    finally:
        end.set()
        server.close()
