"""Servers that end, start again, and share a service."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.client import Cluster, Producer
from millstream.client.config import ClientConfig
from millstream.sql.commands import CommandTopic, CommandTopicUnusable, topic_name
from millstream.wire.records import Record
from tests.sql.server.sql_client import RunningSql

CREATE = "CREATE STREAM S (K STRING KEY, V INT) WITH (kafka_topic='{0}', value_format='JSON', partitions=1);"
KEY = b'{"type":"stream","entity":"S","operation":"create"}'
COUNT = "CREATE TABLE T WITH (kafka_topic='{0}_T') AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;"


def test_a_killed_server_goes_on_where_it_was(bootstrap: str, tmp_path: Path, name: str) -> None:
    with RunningSql(bootstrap, tmp_path) as sql:
        sql.ksql(CREATE.format(name) + COUNT.format(name))
        sql.ksql("INSERT INTO S VALUES ('a', 1); INSERT INTO S VALUES ('a', 2);")
        sql.wait_for_rows("SELECT * FROM T;", [["a", 2]])
        sql.kill()
        sql.start()
        (listed,) = sql.ksql("SHOW TABLES;")
        assert [one["name"] for one in listed["tables"]] == ["T"]
        sql.ksql("INSERT INTO S VALUES ('a', 3);")
        sql.wait_for_rows("SELECT * FROM T;", [["a", 3]])


def test_two_servers_share_statements_and_one_takes_over(bootstrap: str, tmp_path: Path, name: str) -> None:
    with (
        RunningSql(bootstrap, tmp_path / "one") as one,
        RunningSql(bootstrap, tmp_path / "two", {"ksql.service.id": one.service_id}) as two,
    ):
        two.ksql(CREATE.format(name))
        one.ksql(COUNT.format(name))
        assert "already exists" in two.refused(COUNT.format(name))["message"]
        one.ksql("INSERT INTO S VALUES ('a', 1);")
        two.wait_for_rows("SELECT * FROM T;", [["a", 1]])
        one.kill()
        two.ksql("INSERT INTO S VALUES ('a', 2);")
        two.wait_for_rows("SELECT * FROM T;", [["a", 2]])


def test_headless_from_a_file(bootstrap: str, tmp_path: Path, name: str) -> None:
    file = tmp_path / "queries.sql"
    file.write_text(
        "SET 'auto.offset.reset' = 'earliest';\n"
        + CREATE.format(name)
        + "\nINSERT INTO S VALUES ('a', 1);\n"
        + COUNT.format(name)
    )
    with RunningSql(bootstrap, tmp_path, {"ksql.queries.file": file}) as headless:
        assert headless.http.get("/info").status_code == 200
        assert headless.post("/ksql", {"ksql": "SHOW STREAMS;"}).status_code == 404
        with RunningSql(bootstrap, tmp_path / "reader") as reader:
            reader.ksql(
                f"CREATE SOURCE TABLE T (K STRING PRIMARY KEY, N BIGINT) "
                f"WITH (kafka_topic='{name}_T', value_format='JSON', partitions=1);"
            )
            reader.wait_for_rows("SELECT * FROM T;", [["a", 1]])


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (KEY, b'{"statement":"x","plan":{"@type":"ksqlPlanV1"}}', "written by ksqlDB"),
        (b"?", b"?", "no command"),
        (KEY, b'{"statement":"x","plan":{"@type":"millstreamPlan","version":99}}', "newer version"),
    ],
)
def test_command_topics_that_are_refused(
    bootstrap: str, name: str, key: bytes, value: bytes, words: str
) -> None:
    client = ClientConfig.of(bootstrap)
    with Cluster(client) as cluster:
        Producer(cluster).send(topic_name(name), 0, [Record(0, 1, key, value, ())])
    topic = CommandTopic(client, name, lambda _command: None)
    try:
        with pytest.raises(CommandTopicUnusable, match=f"(?s){words}.*ksql.service.id"):
            topic.start()
    finally:
        topic.close()
