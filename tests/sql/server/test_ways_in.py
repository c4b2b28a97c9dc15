"""Other ways in: HTTP/2 as ksqlDB's Java client speaks it, and websockets."""

from __future__ import annotations

import json
import socket
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, RejectConnection, Request, TextMessage

from tests.sql.server.sql_client import RunningSql


def test_statements_queries_and_inserts_over_http_2(sql: RunningSql, name: str) -> None:
    with httpx.Client(http1=False, http2=True, base_url=str(sql.http.base_url), timeout=60) as client:
        made = client.post(
            "/ksql",
            json={
                "ksql": f"CREATE STREAM {name} (k STRING KEY, v INT) WITH (kafka_topic='{name}', "
                "value_format='JSON', partitions=1);"
            },
        )
        assert (made.http_version, made.status_code) == ("HTTP/2", 200), made.text
        lines = [{"target": name}, {"K": "a", "V": 1}, {"K": "b", "V": 2}]
        acks = client.post(
            "/inserts-stream",
            content="".join(json.dumps(line) + "\n" for line in lines),
            headers={"content-type": "application/vnd.ksqlapi.delimited.v1"},
        )
        assert [json.loads(line)["status"] for line in acks.text.splitlines()] == ["ok", "ok"]
        query = {
            "sql": f"SELECT * FROM {name} EMIT CHANGES LIMIT 2;",
            "properties": {"auto.offset.reset": "earliest"},
        }
        rows = client.post("/query-stream", json=query)
        assert rows.http_version == "HTTP/2"
        assert [json.loads(line) for line in rows.text.splitlines()[1:]] == [["a", 1], ["b", 2]]


def test_requests_as_the_java_client_sends_them(sql: RunningSql, name: str) -> None:
    """Without a content type, and each line of a query has to end before the next row is there."""
    media_type = "application/vnd.ksql.v1+json"
    headers = {"accept": media_type}
    with httpx.Client(http1=False, http2=True, base_url=str(sql.http.base_url), timeout=60) as client:
        statement = (
            f"CREATE STREAM {name} (k STRING KEY, t TIMESTAMP, d ARRAY<DATE>, s STRUCT<x TIME>) "
            f"WITH (kafka_topic='{name}', value_format='JSON', partitions=1);"
        )
        made = client.post("/ksql", content=json.dumps({"ksql": statement}), headers=headers)
        assert made.status_code == 200, made.text
        row = {"K": "a", "T": "2020-01-02T03:04:05.678", "D": ["2020-01-02"], "S": {"X": "03:04:05"}}
        lines = [{"target": name}, row, {"K": "b", "T": "soon"}]
        acks = client.post("/inserts-stream", content="".join(json.dumps(line) + "\n" for line in lines))
        assert [json.loads(line)["status"] for line in acks.text.splitlines()] == ["ok", "error"]
        query = {
            "sql": f"SELECT * FROM {name} EMIT CHANGES;",
            "properties": {"auto.offset.reset": "earliest"},
        }
        with client.stream("POST", "/query-stream", content=json.dumps(query), headers=headers) as answer:
            assert answer.headers["content-type"] == media_type
            received = answer.iter_lines()
            header, first = next(received), next(received)
            query_id = json.loads(header.strip("[,"))["header"]["queryId"]
            assert json.loads(first.strip(","))["row"]["columns"] == [
                "a",
                "2020-01-02T03:04:05.678",
                ["2020-01-02"],
                {"X": "03:04:05"},
            ]
            assert client.post("/close-query", content=json.dumps({"queryId": query_id})).status_code == 200
            rest = list(received)
        assert json.loads("".join([header, first, *rest]))[-1] == {"finalMessage": "Query closed"}


def test_json_as_a_form_is_read_from_programs_only(sql: RunningSql) -> None:
    """As `curl -d` sends it, and as forms of any page could."""
    headers = {"content-type": "application/x-www-form-urlencoded"}
    body = json.dumps({"ksql": "SHOW STREAMS;"})
    assert sql.http.post("/ksql", content=body, headers=headers).status_code == 200
    for origin in ("http://evil.example", "null"):
        foreign = sql.http.post("/ksql", content=body, headers={**headers, "origin": origin})
        assert foreign.status_code == 403


def test_rows_go_in_one_by_one_while_acknowledgements_come_out(sql: RunningSql, name: str) -> None:
    sql.ksql(
        f"CREATE STREAM {name} (k STRING KEY, v INT) WITH (kafka_topic='{name}', value_format='JSON', "
        "partitions=1);"
    )
    address = sql.http.base_url
    with (
        socket.create_connection((address.host, address.port or 80), 60) as raw,
        raw.makefile("rb") as answer,
    ):
        raw.sendall(
            b"POST /inserts-stream HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n"
            b"Content-Type: application/vnd.ksqlapi.delimited.v1\r\n\r\n"
        )
        lines: list[dict[str, Any]] = [{"target": name}, *({"K": "a", "V": number} for number in range(20))]
        for number, line in enumerate(lines):
            data = json.dumps(line).encode() + b"\n"
            raw.sendall(b"%x\r\n%s\r\n" % (len(data), data))
            if number:
                # The next row only when this one is acknowledged.
                while b'"seq":%d' % (number - 1) not in (found := answer.readline()):
                    assert found
        raw.sendall(b"0\r\n\r\n")
        while answer.readline() not in (b"0\r\n", b""):
            pass


class Messages:
    """A websocket, message by message."""

    def __init__(self, sql: RunningSql, target: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        address = sql.http.base_url
        self._socket = socket.create_connection((address.host, address.port or 80), 60)
        self._ws = WSConnection(ConnectionType.CLIENT)
        host = f"{address.host}:{address.port}"
        self._socket.sendall(self._ws.send(Request(host=host, target=target, extra_headers=list(headers))))
        self._events = iter(())

    def __next__(self) -> object:
        while True:
            for event in self._events:
                return event
            data = self._socket.recv(65536)
            if not data:
                return None
            self._ws.receive_data(data)
            self._events = self._ws.events()

    def close(self) -> None:
        self._socket.close()


def address_of(statement: str) -> str:
    request = json.dumps({"ksql": statement, "streamsProperties": {"auto.offset.reset": "earliest"}})
    return f"/ws/query?request={quote(request)}"


def test_a_query_over_a_websocket(sql: RunningSql, name: str) -> None:
    sql.ksql(
        f"CREATE STREAM {name} (k STRING KEY, v INT) WITH (kafka_topic='{name}', value_format='JSON', "
        "partitions=1);"
    )
    sql.ksql(f"INSERT INTO {name} VALUES ('a', 1); INSERT INTO {name} VALUES ('b', 2);")
    messages = Messages(sql, address_of(f"SELECT k, v * 2 AS twice FROM {name} EMIT CHANGES LIMIT 2;"))
    assert isinstance(next(messages), AcceptConnection)
    found = []
    while isinstance(event := next(messages), TextMessage):
        found.append(json.loads(event.data))
    assert isinstance(event, CloseConnection)
    assert (event.code, event.reason) == (1000, "done")
    types = [(one["name"], one["schema"]["type"]) for one in found[0]]
    assert types == [("K", "STRING"), ("TWICE", "INTEGER")]
    assert found[1:] == [{"row": {"columns": ["a", 2]}}, {"row": {"columns": ["b", 4]}}]
    messages.close()


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (address_of("SELECT * FROM nowhere EMIT CHANGES;"), "NOWHERE does not exist"),
        ("/ws/query", "missing request parameter"),
        ("/ws/query?request=%7B", "Error parsing request"),
    ],
)
def test_what_is_wrong_closes_the_websocket_with_the_reason(sql: RunningSql, target: str, words: str) -> None:
    messages = Messages(sql, target)
    assert isinstance(next(messages), AcceptConnection)
    event = next(messages)
    assert isinstance(event, CloseConnection)
    assert event.code == 1003
    assert words in (event.reason or "")
    messages.close()


def test_pages_of_other_sites_and_other_paths_get_no_websocket(sql: RunningSql) -> None:
    foreign = Messages(sql, address_of("SHOW STREAMS;"), ((b"Origin", b"http://evil.example"),))
    assert isinstance(next(foreign), RejectConnection)
    foreign.close()
    elsewhere = Messages(sql, "/ws/other")
    assert isinstance(next(elsewhere), RejectConnection)
    elsewhere.close()


def test_tombstones_and_one_group(sql: RunningSql, name: str) -> None:
    sql.ksql(
        f"CREATE STREAM {name} (k STRING KEY, v INT) WITH (kafka_topic='{name}', value_format='JSON', "
        "partitions=1);"
        f"CREATE TABLE {name}T AS SELECT k, SUM(v) AS s FROM {name} GROUP BY k HAVING SUM(v) > 0;"
    )
    for value in (3, -5, 4):
        sql.ksql(f"INSERT INTO {name} VALUES ('a', {value});")
    body = {
        "ksql": f"SELECT k, s FROM {name}T EMIT CHANGES LIMIT 3;",
        "streamsProperties": {"auto.offset.reset": "earliest"},
    }
    answer = json.loads(sql.post("/query", body).text)
    assert [one["row"] for one in answer if "row" in one] == [
        {"columns": ["a", 3]},
        {"columns": ["a", None], "tombstone": True},
        {"columns": ["a", 2]},
    ]
    # A row that the condition leaves out was never shown: it does not go, either.
    sql.ksql(f"INSERT INTO {name} VALUES ('b', 9);")
    body["ksql"] = f"SELECT k, s FROM {name}T WHERE k = 'b' EMIT CHANGES LIMIT 1;"
    answer = json.loads(sql.post("/query", body).text)
    assert [one["row"] for one in answer if "row" in one] == [{"columns": ["b", 9]}]
    counted = f"SELECT COUNT(*) AS n, SUM(v) AS s FROM {name} EMIT CHANGES LIMIT 3;"
    assert sql.rows(counted, **{"auto.offset.reset": "earliest"}) == [[1, 3], [2, -2], [3, 2]]


def test_who_the_server_is(sql: RunningSql) -> None:
    found = sql.http.get("/v1/metadata").json()
    assert found["clusterId"]["scope"]["clusters"]["ksql-cluster"] == sql.service_id
    assert sql.http.get("/v1/metadata/id").json() == found["clusterId"]
