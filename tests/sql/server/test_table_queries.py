"""Pull queries with ORDER BY, GROUP BY, DISTINCT and joins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.sql.server.sql_client import RunningSql

RIDERS = [
    ("ann", "Bern", 3, 1.5),
    ("bob", "Basel", 5, 2.0),
    ("cid", "Bern", 4, None),
    ("dan", None, 1, 0.5),
]
CITIES = [("Bern", "BE"), ("Basel", "BS"), ("Chur", "GR")]


@pytest.fixture(scope="module")
def tables(sql: RunningSql) -> RunningSql:
    for table, columns in (
        ("RIDERS", "NAME STRING PRIMARY KEY, CITY STRING, RIDES INT, KM DOUBLE"),
        ("CITIES", "CITY STRING PRIMARY KEY, CANTON STRING"),
    ):
        sql.ksql(
            f"CREATE TABLE {table}_IN ({columns}) WITH (kafka_topic='{table}_PULLED', value_format='JSON', "
            f"partitions=2); CREATE TABLE {table} AS SELECT * FROM {table}_IN;"
        )
    for row in RIDERS:
        shown = ", ".join("NULL" if value is None else repr(value) for value in row)
        sql.ksql(f"INSERT INTO RIDERS_IN VALUES ({shown});")
    for row in CITIES:
        sql.ksql(f"INSERT INTO CITIES_IN VALUES {row!r};")
    sql.wait_for_rows("SELECT NAME FROM RIDERS;", [["ann"], ["bob"], ["cid"], ["dan"]])
    sql.wait_for_rows("SELECT CITY FROM CITIES;", [["Bern"], ["Basel"], ["Chur"]])
    return sql


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT NAME FROM RIDERS ORDER BY RIDES;", [["dan"], ["ann"], ["cid"], ["bob"]]),
        ("SELECT NAME, RIDES * 2 AS N FROM RIDERS ORDER BY N DESC LIMIT 2;", [["bob", 10], ["cid", 8]]),
        (
            "SELECT NAME, CITY FROM RIDERS ORDER BY 2, NAME DESC;",
            [["dan", None], ["bob", "Basel"], ["cid", "Bern"], ["ann", "Bern"]],
        ),
        ("SELECT NAME FROM RIDERS WHERE RIDES > 3 ORDER BY NAME DESC;", [["cid"], ["bob"]]),
        ("SELECT RIDES FROM RIDERS WHERE NAME IN ('cid', 'ann') ORDER BY RIDES;", [[3], [4]]),
        ("SELECT DISTINCT CITY FROM RIDERS ORDER BY CITY;", [[None], ["Basel"], ["Bern"]]),
        ("SELECT COUNT(*) AS N, SUM(RIDES) AS RIDES FROM RIDERS;", [[4, 13]]),
        ("SELECT COUNT(*) FROM RIDERS WHERE RIDES > 99;", [[0]]),
        (
            "SELECT CITY, COUNT(*) AS N, MAX(KM) AS KM FROM RIDERS GROUP BY CITY ORDER BY N DESC, CITY;",
            [["Bern", 2, 1.5], [None, 1, 0.5], ["Basel", 1, 2.0]],
        ),
        ("SELECT CITY FROM RIDERS GROUP BY CITY HAVING COUNT(*) > 1;", [["Bern"]]),
        ("SELECT UCASE(CITY) AS C, TOPK(RIDES, 1) AS T FROM RIDERS WHERE CITY = 'Bern' GROUP BY CITY;",
         [["BERN", [4]]]),
        (
            "SELECT R.NAME, C.CANTON FROM RIDERS R JOIN CITIES C ON R.CITY = C.CITY ORDER BY R.NAME;",
            [["ann", "BE"], ["bob", "BS"], ["cid", "BE"]],
        ),
        (
            "SELECT C.CITY, R.NAME FROM CITIES C LEFT JOIN RIDERS R ON R.CITY = C.CITY AND R.RIDES > 3 "
            "ORDER BY C.CITY;",
            [["Basel", "bob"], ["Bern", "cid"], ["Chur", None]],
        ),
        (
            "SELECT R.NAME, C.CITY FROM RIDERS R FULL OUTER JOIN CITIES C ON R.CITY = C.CITY "
            "ORDER BY R.NAME, C.CITY;",
            [[None, "Chur"], ["ann", "Bern"], ["bob", "Basel"], ["cid", "Bern"], ["dan", None]],
        ),
        (
            "SELECT C.CANTON, SUM(R.RIDES) AS N FROM CITIES C JOIN RIDERS R ON C.CITY = R.CITY "
            "GROUP BY C.CANTON ORDER BY N;",
            [["BS", 5], ["BE", 7]],
        ),
        (
            "SELECT A.NAME, B.NAME FROM RIDERS A JOIN RIDERS B ON A.CITY = B.CITY WHERE A.NAME < B.NAME;",
            [["ann", "cid"]],
        ),
        ("SELECT R.NAME FROM RIDERS R JOIN CITIES C ON R.CITY = C.CITY WHERE R.NAME = 'ann';", [["ann"]]),
    ],
)  # fmt: skip
def test_rows(tables: RunningSql, query: str, rows: list[Any]) -> None:
    assert tables.rows(query) == rows


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT NAME FROM RIDERS GROUP BY CITY;", "NAME is neither grouped"),
        ("SELECT NAME, COUNT(*) FROM RIDERS;", "NAME is neither grouped"),
        ("SELECT NAME FROM RIDERS ORDER BY 2;", "has 1 columns"),
        ("SELECT NAME FROM RIDERS ORDER BY AS_ARRAY(NAME);", "AS_ARRAY"),
        ("SELECT NAME FROM RIDERS ORDER BY ARRAY[NAME];", "has no order"),
        ("SELECT * FROM RIDERS R JOIN CITIES C ON R.RIDES = C.CITY;", "RIDES"),
        ("SELECT * FROM RIDERS R JOIN CITIES C ON R.RIDES > 3;", "needs an equality"),
        ("SELECT * FROM RIDERS JOIN RIDERS ON RIDERS.CITY = RIDERS.CITY;", "another alias"),
        ("SELECT * FROM RIDERS R JOIN CITIES C WITHIN 1 HOUR ON R.CITY = C.CITY;", "WITHIN"),
        ("SELECT * FROM RIDERS_IN ORDER BY NAME;", "isn't queryable"),
        ("SELECT NAME FROM RIDERS ORDER BY NAME EMIT CHANGES;", "need all rows"),
        ("CREATE TABLE X AS SELECT NAME, RIDES FROM RIDERS ORDER BY RIDES;", "need all rows"),
    ],
)
def test_what_is_refused(tables: RunningSql, query: str, words: str) -> None:
    path = "/ksql" if query.startswith("CREATE") else "/query-stream"
    assert words in tables.refused(query, path)["message"]


def test_streams_keep_ksqldbs_words(tables: RunningSql, name: str) -> None:
    tables.ksql(
        f"CREATE STREAM {name} (K STRING KEY, V INT) WITH (kafka_topic='{name}', value_format='JSON', "
        "partitions=1);"
    )
    for query, clause in (
        (f"SELECT V, COUNT(*) FROM {name} GROUP BY V;", "GROUP BY"),
        (f"SELECT * FROM RIDERS R JOIN {name} S ON R.NAME = S.K;", "JOIN"),
    ):
        message = tables.refused(query, "/query-stream")["message"]
        assert message.startswith(f"Pull queries don't support {clause} clauses.")


def test_rows_held_are_limited(bootstrap: str, tmp_path: Path, name: str) -> None:
    with RunningSql(bootstrap, tmp_path, {"ksql.query.pull.max.rows": 2}) as sql:
        sql.ksql(
            f"CREATE TABLE A (K STRING PRIMARY KEY, V INT) WITH (kafka_topic='{name}', value_format='JSON', "
            f"partitions=1); CREATE TABLE T WITH (kafka_topic='{name}_T') AS SELECT * FROM A;"
        )
        for key in "abc":
            sql.ksql(f"INSERT INTO A VALUES ('{key}', 1);")
        sql.wait_for_rows("SELECT K FROM T;", [["a"], ["b"], ["c"]])
        answer = sql.post("/query-stream", {"sql": "SELECT K FROM T ORDER BY K;"})
        last = json.loads(answer.text.splitlines()[-1])
        assert "ksql.query.pull.max.rows" in last["message"]
        assert sql.rows("SELECT V, COUNT(*) AS N FROM T GROUP BY V;") == [[1, 3]]
