"""Servers that end, start again, and share a service."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.client import Cluster, Producer
from millstream.client.config import ClientConfig
from millstream.sql.commands import CommandTopic, CommandTopicUnusable, topic_name
from millstream.sql.server.query_assignment import Claim, deal, decode_assignment, least_loaded
from millstream.wire.records import Record
from tests.sql.server.sql_client import RunningSql
from tests.support.waiting import wait_until

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


def test_servers_share_the_queries_and_take_over_those_of_a_killed_one(
    bootstrap: str, tmp_path: Path, name: str
) -> None:
    def runs_at(sql: RunningSql, query: str) -> str:
        described = sql.ksql(f"EXPLAIN {query};")[0]["queryDescription"]
        ((address, state),) = described["ksqlHostQueryStatus"].items()
        return str(address) if state == "RUNNING" else ""

    with RunningSql(bootstrap, tmp_path / "one") as one:
        one.ksql(CREATE.format(name) + COUNT.format(name))
        one.ksql(f"CREATE STREAM U WITH (kafka_topic='{name}_U') AS SELECT K, V + 1 AS W FROM S;")
        one.ksql("INSERT INTO S VALUES ('a', 1);")
        one.wait_for_rows("SELECT * FROM T;", [["a", 1]])
        (listed,) = one.ksql("SHOW QUERIES;")
        queries = [query["id"] for query in listed["queries"]]
        with RunningSql(bootstrap, tmp_path / "two", {"ksql.service.id": one.service_id}) as two:
            addresses = sorted(server.url.removeprefix("http://") for server in (one, two))
            # The second one gets a part of the queries, and either says where each of them runs.
            for server in (one, two):
                wait_until(lambda: sorted(runs_at(server, query) for query in queries) == addresses)  # noqa: B023
            # A new query goes to one of them; nobody can make it twice.
            two.ksql(f"CREATE STREAM X WITH (kafka_topic='{name}_X') AS SELECT * FROM S;")
            assert "already exists" in one.refused(COUNT.format(name))["message"]
            one.ksql("INSERT INTO S VALUES ('a', 2);")
            for server in (one, two):
                server.wait_for_rows("SELECT * FROM T;", [["a", 2]])
                server.wait_for_rows("SELECT W FROM U;", [[2], [3]])
            one.kill()
            (listed,) = two.ksql("SHOW QUERIES;")
            assert {query["state"] for query in listed["queries"]} <= {"RUNNING", "UNRESPONSIVE"}
            two.ksql("INSERT INTO S VALUES ('a', 3);")
            two.wait_for_rows("SELECT * FROM T;", [["a", 3]])
            two.wait_for_rows("SELECT W FROM U;", [[2], [3], [4]])
            two.wait_for_rows("SELECT V FROM X;", [[1], [2], [3]])


def test_queries_are_dealt_evenly_and_stay_where_they_are() -> None:
    first = deal([Claim("a", 0, ()), Claim("b", 0, ())], ["1", "2", "3", "4"])
    assert sorted(first.queries.values()) == ["a", "a", "b", "b"]
    held = {server: tuple(sorted(q for q, at in first.queries.items() if at == server)) for server in "ab"}
    third = deal([Claim(server, 1, held.get(server, ())) for server in "cba"], first.queries)
    assert sorted(map(list(third.queries.values()).count, "abc")) == [1, 1, 2]
    moved = [query for query, at in third.queries.items() if at != first.queries[query]]
    assert len(moved) == 1
    # What the dead one had goes to the others; what nobody claims, too.
    rest = deal([Claim("b", 2, held["b"])], [*first.queries, "5"])
    assert set(rest.queries) == {"1", "2", "3", "4", "5"} and set(rest.queries.values()) == {"b"}
    assert decode_assignment(rest.encode()) == rest


def test_a_server_that_was_away_has_no_right_to_what_it_had() -> None:
    dealt = deal([Claim("away", 3, ("q",)), Claim("here", 7, ("q",))], ["q", "r"])
    assert dealt.queries == {"q": "here", "r": "away"}
    # A query that is newer than the generation is where its command says, or where all agree.
    assert dealt.owner("new", "here") == "here"
    assert dealt.owner("new", "gone") == dealt.owner("new", None) in dealt.servers
    assert least_loaded(("away", "here"), ["here", None, "gone"]) == "away"


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
