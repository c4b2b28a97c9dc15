"""Push and pull queries over the streaming resources, and rows that clients insert."""

from __future__ import annotations

import json
import re
import threading
from typing import Any

from millstream.client import ClientConfig, Cluster, Producer
from millstream.wire.records import Record
from tests.sql.server.sql_client import RunningSql
from tests.support.waiting import wait_until


def _stream(sql: RunningSql, name: str) -> None:
    sql.ksql(
        f"CREATE STREAM {name} (K STRING KEY, V INT) WITH (kafka_topic='{name}', value_format='JSON', "
        "partitions=1);"
    )


def test_a_push_query_sees_what_comes_and_ends_with_its_limit(sql: RunningSql, name: str) -> None:
    _stream(sql, name)
    found: list[Any] = []

    def read() -> None:
        body = {"sql": f"SELECT K, V * 2 AS W FROM {name} WHERE V > 1 EMIT CHANGES LIMIT 2;"}
        body["properties"] = {"auto.offset.reset": "latest"}  # type: ignore[assignment]
        with sql.client().stream("POST", "/query-stream", json=body) as answer:
            found.extend(json.loads(line) for line in answer.iter_lines())

    reader = threading.Thread(target=read)
    reader.start()
    metric = "millstream_sql_push_queries 1.0"
    wait_until(lambda: metric in sql.http.get("/metrics").text)
    for value in (1, 2, 3, 4):
        sql.ksql(f"INSERT INTO {name} VALUES ('k{value}', {value});")
    reader.join(60)
    head, *rows = found
    assert (head["columnNames"], head["columnTypes"]) == (["K", "W"], ["STRING", "INTEGER"])
    assert rows == [["k2", 4], ["k3", 6]]


def test_the_older_resource_sends_one_array(sql: RunningSql, name: str) -> None:
    _stream(sql, name)
    sql.ksql(f"INSERT INTO {name} VALUES ('a', 1);")
    body = {
        "ksql": f"SELECT COUNT(*) AS N FROM {name} GROUP BY K EMIT CHANGES LIMIT 1;",
        "streamsProperties": {"ksql.streams.auto.offset.reset": "earliest"},
    }
    header, row, last = sql.post("/query", body).json()
    assert header["header"]["schema"] == "`N` BIGINT"
    assert (row, last) == ({"row": {"columns": [1]}}, {"finalMessage": "Limit Reached"})


def test_a_query_is_closed_by_its_id(sql: RunningSql, name: str) -> None:
    _stream(sql, name)
    with sql.client().stream(
        "POST", "/query-stream", json={"sql": f"SELECT * FROM {name} EMIT CHANGES;"}
    ) as answer:
        lines = answer.iter_lines()
        query_id = json.loads(next(lines))["queryId"]
        assert sql.post("/close-query", {"queryId": query_id}).status_code == 200
        assert list(lines) == []
    assert sql.post("/close-query", {"queryId": query_id}).status_code == 400


def test_a_pull_query_on_a_stream_reads_what_is_there(sql: RunningSql, name: str) -> None:
    _stream(sql, name)
    sql.ksql(f"INSERT INTO {name} VALUES ('a', 1); INSERT INTO {name} VALUES ('b', 2);")
    assert sql.rows(f"SELECT * FROM {name};") == [["a", 1], ["b", 2]]
    assert sql.rows(f"SELECT * FROM {name} LIMIT 1;") == [["a", 1]]


def test_windows_are_pulled_by_key_and_time(sql: RunningSql, name: str) -> None:
    _stream(sql, name)
    sql.ksql(
        f"CREATE TABLE {name}_W AS SELECT K, COUNT(*) AS N FROM {name} WINDOW TUMBLING (SIZE 10 SECONDS) "
        "GROUP BY K;"
    )
    for at in (1_000, 2_000, 11_000):
        sql.ksql(f"INSERT INTO {name} (ROWTIME, K, V) VALUES ({at}, 'a', 1);")
    query = f"SELECT * FROM {name}_W WHERE K='a';"
    sql.wait_for_rows(query, [["a", 0, 10_000, 2], ["a", 10_000, 20_000, 1]])
    assert sql.rows(f"SELECT N FROM {name}_W WHERE K='a' AND WINDOWSTART >= 5000;") == [[1]]


def test_rows_are_inserted_by_lines(sql: RunningSql, name: str) -> None:
    _stream(sql, name)
    lines = [{"target": name}, {"K": "a", "V": 1}, {"k": "b", "V": "no"}, {"V": 3}]
    answer = sql.http.post(
        "/inserts-stream",
        content="\n".join(map(json.dumps, lines)),
        headers={"content-type": "application/vnd.ksqlapi.delimited.v1"},
    )
    acks = [json.loads(line) for line in answer.text.splitlines()]
    assert [ack["status"] for ack in acks] == ["ok", "error", "ok"]
    assert [ack["seq"] for ack in acks] == [0, 1, 2]
    assert sql.rows(f"SELECT * FROM {name};") == [["a", 1], [None, 3]]


def test_print_shows_records(sql: RunningSql, name: str) -> None:
    _stream(sql, name)
    sql.ksql(f"INSERT INTO {name} VALUES ('a', 1);")
    answer = sql.post("/query", {"ksql": f"PRINT '{name}' FROM BEGINNING LIMIT 1;", "streamsProperties": {}})
    assert answer.text.splitlines()[:2] == ["Key format: KAFKA_STRING", "Value format: JSON or KAFKA_STRING"]
    assert 'key: a, value: {"V":1}, partition: 0' in answer.text


def test_print_is_lines_at_the_newer_resource(sql: RunningSql, name: str) -> None:
    _stream(sql, name)
    sql.ksql(f"INSERT INTO {name} VALUES ('a', 1);")
    body = {"sql": f"PRINT '{name}' FROM BEGINNING LIMIT 1;"}
    answer = sql.post("/query-stream", body)
    assert answer.headers["content-type"] == "application/vnd.ksqlapi.delimited.v1"
    assert answer.text.splitlines()[:2] == ["Key format: KAFKA_STRING", "Value format: JSON or KAFKA_STRING"]
    assert 'key: a, value: {"V":1}, partition: 0' in answer.text
    assert (
        sql.http.post("/query-stream", json=body, headers={"accept": "application/json"}).status_code == 406
    )


def test_tables_that_cannot_be_pulled(sql: RunningSql, name: str) -> None:
    sql.ksql(
        f"CREATE TABLE {name} (K STRING PRIMARY KEY, V INT) "
        f"WITH (kafka_topic='{name}', value_format='JSON', partitions=1);"
    )
    refused = sql.refused(f"SELECT * FROM {name};", "/query-stream")
    assert refused["message"].startswith(f"The `{name}` table isn't queryable.")
    _stream(sql, f"{name}_S")
    refused = sql.refused(f"SELECT V FROM {name}_S GROUP BY V;", "/query-stream")
    assert refused["message"].startswith("Pull queries don't support GROUP BY clauses.")


def test_lookups_that_come_again_are_answered_by_their_own_key(sql: RunningSql, name: str) -> None:
    sql.ksql(
        f"CREATE TABLE {name} (K STRING PRIMARY KEY, V INT) WITH (kafka_topic='{name}', value_format='JSON', "
        f"partitions=2); CREATE TABLE {name}_T AS SELECT K, V FROM {name};"
    )
    for key, value in (("a", 1), ("b''c", 2), ("WHERE K = ", 3)):
        sql.ksql(f"INSERT INTO {name} VALUES ('{key}', {value});")
    sql.wait_for_rows(f"SELECT V FROM {name}_T;", [[1], [2], [3]])
    lookup = f"SELECT V FROM {name}_T WHERE K = "
    for _ in range(2):
        assert sql.rows(f"{lookup}'a';") == [[1]]
        assert sql.rows(f"{lookup}'b''c'") == [[2]]
        assert sql.rows(f"{lookup}'WHERE K = ';") == [[3]]
        assert sql.rows(f"{lookup}'nobody';") == []
        assert sql.rows(f"SELECT V FROM {name}_T WHERE V = 3;") == [[3]]
        assert sql.rows(f"SELECT V FROM {name}_T WHERE V = 2;") == [[2]]
    assert "Cannot compare" in sql.refused(f"{lookup}5;", "/query-stream")["message"]
    sql.ksql(f"INSERT INTO {name} VALUES ('a', 7);")
    sql.wait_for_rows(f"{lookup}'a';", [[7]])
    sql.ksql(f"DROP TABLE {name}_T;")
    assert "does not exist" in sql.refused(f"{lookup}'a';", "/query-stream")["message"]


def test_lookups_have_the_same_form_on_the_fast_path(sql: RunningSql, name: str) -> None:
    """A lookup that comes again does not go through the application, unless its headers ask for it."""
    columns = "K STRING {} KEY, V INT, D DECIMAL(5, 2), A ARRAY<STRING>, B BYTES"
    options = f"WITH (kafka_topic='{name}', value_format='JSON', partitions=3)"
    sql.ksql(
        f"CREATE TABLE {name} ({columns.format('PRIMARY')}) {options};"
        f"CREATE SOURCE TABLE {name}_S ({columns.format('PRIMARY')}) {options};"
    )
    long_key = "k" * 600
    for key in ("a", "ä'b", long_key):
        shown = key.replace("'", "''")
        sql.ksql(
            f"INSERT INTO {name} VALUES ('{shown}', 1, 1.50, ARRAY['x', null], TO_BYTES('AQ==', 'base64'));"
        )

    def asked(key: str, path: str, **headers: str) -> tuple[str, str]:
        statement = f"SELECT K, V, D, A, B, ROWTIME > 0 AS R FROM {name}_S WHERE K = '{key}';"
        field = "sql" if path == "/query-stream" else "ksql"
        answer = sql.http.post(path, json={field: statement}, headers=headers)
        assert answer.status_code == 200
        return answer.headers["content-type"], re.sub(r"query_\d+", "query", answer.text)

    for path, media_type in (
        ("/query-stream", "application/vnd.ksqlapi.delimited.v1"),
        ("/query-stream", "application/vnd.ksql.v1+json"),
        ("/query", "application/vnd.ksql.v1+json"),
    ):
        for key in ("a", "ä''b", long_key, "nobody"):
            asked(key, path, accept=media_type)
            short = asked(key, path, accept=media_type)
            # The application alone reads qualities.
            assert short == asked(key, path, accept=f"{media_type};q=0.9")
            assert ('"1.50"' in short[1] or "1.50" in short[1]) is (key != "nobody")


def test_header_columns_are_pulled_from_source_tables(sql: RunningSql, bootstrap: str, name: str) -> None:
    options = f"WITH (kafka_topic='{name}', value_format='JSON', partitions=2)"
    all_headers = "H ARRAY<STRUCT<KEY STRING, VALUE BYTES>> HEADERS"
    sql.ksql(
        f"CREATE TABLE {name} (K STRING PRIMARY KEY, V INT) {options};"
        f"CREATE SOURCE TABLE {name}_ALL (K STRING PRIMARY KEY, V INT, {all_headers}) {options};"
        f"CREATE SOURCE TABLE {name}_ONE (K STRING PRIMARY KEY, V INT, A BYTES HEADER('a')) {options};"
    )
    with Cluster(ClientConfig.of(bootstrap)) as cluster:
        producer = Producer(cluster)
        headers: tuple[tuple[str, bytes | None], ...] = (("a", b"old"), ("ä", None), ("a", b"new"))
        producer.send(name, 0, [Record(0, 5, b"x", b'{"V": 0}', (("gone", b"1"),))])
        producer.send(name, 0, [Record(0, 6, b"x", b'{"V": 1}', headers)])
        producer.send(name, 1, [Record(0, 7, b"y", b'{"V": 2}'), Record(0, 8, b"z", b'{"V": 3}', headers)])
        producer.send(name, 1, [Record(0, 9, b"z", None, headers)])
    old, nothing, new = (
        {"KEY": "a", "VALUE": "b2xk"},
        {"KEY": "ä", "VALUE": None},
        {"KEY": "a", "VALUE": "bmV3"},
    )
    every = [["x", 1, [old, nothing, new]], ["y", 2, []]]
    sql.wait_for_rows(f"SELECT * FROM {name}_ALL;", every)
    for _ in range(2):  # the second time on the fast path
        assert sql.rows(f"SELECT H, K, ROWTIME FROM {name}_ALL WHERE K = 'x';") == [[every[0][2], "x", 6]]
        assert sql.rows(f"SELECT * FROM {name}_ONE WHERE K = 'x';") == [["x", 1, "bmV3"]]
    assert sql.rows(f"SELECT * FROM {name}_ONE WHERE A IS NULL;") == [["y", 2, None]]
    joined = (
        f"SELECT L.K, R.A, L.H[1]->VALUE AS B FROM {name}_ALL L JOIN {name}_ONE R ON L.K = R.K ORDER BY L.K;"
    )
    assert sql.rows(joined) == [["x", "bmV3", "b2xk"], ["y", None, None]]


def test_rows_that_this_server_inserted_are_seen_at_once(sql: RunningSql, name: str) -> None:
    columns, options = (
        "K INT PRIMARY KEY, V INT",
        f"WITH (kafka_topic='{name}', value_format='JSON', partitions=2)",
    )
    sql.ksql(
        f"CREATE TABLE {name} ({columns}) {options}; CREATE SOURCE TABLE {name}_S ({columns}) {options};"
    )
    for number in range(20):
        sql.ksql(f"INSERT INTO {name} VALUES (7, {number});")
        assert sql.rows(f"SELECT V FROM {name}_S WHERE K = 7;") == [[number]]


def test_lookups_with_bad_bodies_are_refused_as_ever(sql: RunningSql) -> None:
    headers = {"content-type": "application/json"}
    for body, words in (
        (b"{", "Malformed JSON"),
        (b"[]", "an object is needed"),
        (b'{"sql": 5}', "Missing 'sql'"),
        (b'{"sql": "SELECT 1;", "properties": []}', "'properties' has to be an object"),
    ):
        answer = sql.http.post("/query-stream", content=body, headers=headers)
        assert answer.status_code == 400 and words in answer.text
    answer = sql.http.post("/query-stream", content=b"x", headers={"content-type": "text/html"})
    assert answer.status_code == 415
