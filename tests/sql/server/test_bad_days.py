"""What goes wrong around a server: clients that do not read, topics and services that go away, full disks."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from millstream.client import Admin, Cluster, Producer
from millstream.client.config import ClientConfig
from millstream.sql.commands import Command, CommandTopic, CommandTopicUnusable, topic_name
from millstream.sql.views import TableView, ViewUnavailable
from millstream.wire.records import Record
from millstream.wire.topic_partition import TopicPartition
from tests.sql.server.sql_client import RunningSql
from tests.support.running import RunningRegistry
from tests.support.waiting import wait_until

CREATE = (
    "CREATE STREAM {0} (K STRING KEY, V STRING) WITH (kafka_topic='{0}', value_format='JSON', partitions=1);"
)


def _fill(bootstrap: str, topic: str, count: int) -> None:
    value = json.dumps({"V": "x" * 1000}).encode()
    with Cluster(ClientConfig.of(bootstrap)) as cluster:
        producer = Producer(cluster)
        for start in range(0, count, 500):
            rows = [Record(number, 1, b"%d" % (start + number), value) for number in range(500)]
            producer.send(topic, 0, rows)


def test_a_client_that_never_reads_holds_up_nobody(bootstrap: str, tmp_path: Path, name: str) -> None:
    with RunningSql(bootstrap, tmp_path) as sql:
        sql.ksql(CREATE.format(name))
        _fill(bootstrap, name, 40_000)
        host, port = sql.url.removeprefix("http://").split(":")
        body = json.dumps({"sql": f"SELECT * FROM {name} EMIT CHANGES;"}).encode()
        with socket.create_connection((host, int(port))) as silent:
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            silent.sendall(
                b"POST /query-stream HTTP/1.1\r\nHost: %b\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (sql.url[7:].encode(), len(body), body)
            )
            wait_until(lambda: "millstream_sql_push_queries 1.0" in sql.http.get("/metrics").text)
            assert sql.rows(f"SELECT K FROM {name} EMIT CHANGES LIMIT 1;") == [["0"]]
            assert len(sql.rows(f"SELECT K FROM {name};")) == 40_000
        wait_until(lambda: "millstream_sql_push_queries 0.0" in sql.http.get("/metrics").text)


def test_a_topic_that_is_dropped_under_a_query(bootstrap: str, tmp_path: Path, name: str) -> None:
    with RunningSql(bootstrap, tmp_path) as sql:
        sql.ksql(CREATE.format(name) + CREATE.format(f"{name}_OTHER"))
        sql.ksql(f"CREATE STREAM A AS SELECT * FROM {name}; CREATE STREAM B AS SELECT * FROM {name}_OTHER;")
        sql.ksql(f"INSERT INTO {name} VALUES ('a', 'b');")
        sql.wait_for_rows("SELECT * FROM A;", [["a", "b"]])
        with Cluster(ClientConfig.of(bootstrap)) as cluster:
            Admin(cluster).delete_topics([name])

        def error() -> str:
            (listed,) = sql.ksql("SHOW QUERIES;")
            query = next(one["id"] for one in listed["queries"] if one["sinks"] == ["A"])
            described = sql.ksql(f"EXPLAIN {query};")[0]["queryDescription"]
            return " ".join(one["errorMessage"] for one in described["queryErrors"])

        wait_until(lambda: name in error(), error)
        # The others do not mind.
        sql.ksql(f"INSERT INTO {name}_OTHER VALUES ('a', 'c');")
        sql.wait_for_rows("SELECT * FROM B;", [["a", "c"]])
        (last,) = sql.rows(f"SELECT * FROM {name};")
        assert name in last["message"]


def test_a_command_topic_that_is_deleted_under_a_server(bootstrap: str, tmp_path: Path, name: str) -> None:
    with RunningSql(bootstrap, tmp_path) as sql:
        sql.ksql(CREATE.format(name))
        with Cluster(ClientConfig.of(bootstrap)) as cluster:
            Admin(cluster).delete_topics([topic_name(sql.service_id)])
        answer = sql.post("/ksql", {"ksql": CREATE.format(f"{name}_2")})
        assert (answer.status_code, answer.json()["error_code"]) == (500, 50000)
        assert "was deleted" in answer.json()["message"] and "ksql.service.id" in answer.json()["message"]
        wait_until(lambda: sql.http.get("/healthcheck").status_code == 503)
        (listed,) = sql.ksql("SHOW STREAMS;")
        assert name in [one["name"] for one in listed["streams"]]


def test_a_registry_that_is_away_is_named(bootstrap: str, tmp_path: Path, name: str) -> None:
    with RunningRegistry(bootstrap, {"schema.registry.group.id": name}) as registry:
        registry.wait_until_leading()
        with RunningSql(bootstrap, tmp_path, {"ksql.schema.registry.url": registry.url}) as sql:
            avro = CREATE.replace("JSON", "AVRO")
            sql.ksql(avro.format(name))
            registry.kill()
            answer = sql.post("/ksql", {"ksql": avro.format(f"{name}_2")})
            assert answer.status_code == 500 and registry.url in answer.json()["message"], answer.text
            sql.ksql(CREATE.format(f"{name}_3"))
            registry.start()


def test_a_command_topic_that_is_deleted_while_it_is_followed(bootstrap: str, name: str) -> None:
    client = ClientConfig.of(bootstrap)
    commands = CommandTopic(client, name, lambda _command: None)
    commands.start()
    try:
        with commands.exclusive() as append:
            append(Command("stream/S/create", "CREATE ..."))
        with Cluster(client) as cluster:
            Admin(cluster).delete_topics([topic_name(name)])
        with (
            pytest.raises(CommandTopicUnusable, match=r"was deleted.*ksql\.service\.id"),
            commands.exclusive(),
        ):
            pass
        wait_until(lambda: commands.failure is not None)
    finally:
        commands.close()


def test_a_command_topic_that_has_lost_its_beginning_is_refused(bootstrap: str, name: str) -> None:
    client = ClientConfig.of(bootstrap)
    with Cluster(client) as cluster:
        Producer(cluster).send(topic_name(name), 0, [Record(0, 1, b"{}", b"{}", ())] * 2)
        Admin(cluster).delete_records({TopicPartition(topic_name(name), 0): 1})
    commands = CommandTopic(client, name, lambda _command: None)
    try:
        with pytest.raises(CommandTopicUnusable, match=r"begins at offset 1.*ksql\.service\.id"):
            commands.start()
    finally:
        commands.close()


def test_a_view_that_is_larger_than_its_room_says_so(bootstrap: str, tmp_path: Path, name: str) -> None:
    _fill(bootstrap, name, 5_000)
    view = TableView(tmp_path, ClientConfig.of(bootstrap), name, size=1 << 20)
    try:
        with pytest.raises(ViewUnavailable, match=f"the view of {name} is behind: .*reached its limit"):
            wait_until(lambda: view.catch_up())
    finally:
        view.close()
