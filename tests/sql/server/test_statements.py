"""Statements over REST: what they answer, what they make, what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from tests.sql.server.sql_client import RunningSql
from tests.support.running import RunningRegistry
from tests.support.waiting import wait_until


def _orders(sql: RunningSql, name: str) -> None:
    sql.ksql(
        f"CREATE STREAM {name} (ID INT KEY, ITEM STRING, PRICE DOUBLE) "
        f"WITH (kafka_topic='{name}', value_format='JSON', partitions=2);"
    )


def test_a_created_stream_is_answered_listed_and_described(sql: RunningSql, name: str) -> None:
    (made,) = sql.ksql(
        f"CREATE STREAM {name} (ID INT KEY, V STRUCT<A ARRAY<INT>>) "
        f"WITH (kafka_topic='{name}', value_format='JSON', partitions=2);"
    )
    assert made["@type"] == "currentStatus"
    assert made["commandId"] == f"stream/{name}/create"
    assert made["commandStatus"] == {"status": "SUCCESS", "message": "Stream created", "queryId": None}
    status = sql.http.get(f"/status/stream/{name}/create").json()
    assert status["status"] == "SUCCESS"
    (listed,) = sql.ksql("SHOW STREAMS;")
    entry = next(one for one in listed["streams"] if one["name"] == name)
    assert entry == {
        "type": "STREAM",
        "name": name,
        "topic": name,
        "keyFormat": "KAFKA",
        "valueFormat": "JSON",
        "isWindowed": False,
    }
    (described,) = sql.ksql(f"DESCRIBE {name} EXTENDED;")
    source = described["sourceDescription"]
    assert source["partitions"] == 2
    assert source["fields"][0] == {
        "name": "ID",
        "schema": {"type": "INTEGER", "fields": None, "memberSchema": None},
        "type": "KEY",
    }
    assert source["fields"][1]["schema"]["fields"][0]["schema"]["memberSchema"]["type"] == "INTEGER"


def test_a_persistent_query_runs_until_it_is_terminated(sql: RunningSql, name: str) -> None:
    _orders(sql, name)
    (made,) = sql.ksql(
        f"CREATE TABLE {name}_T AS SELECT ITEM, SUM(PRICE) AS TOTAL, COUNT(*) AS N FROM {name} GROUP BY ITEM;"
    )
    query = made["commandStatus"]["queryId"]
    assert query.startswith(f"CTAS_{name}_T_")
    for number, item, price in ((1, "a", 1.5), (2, "b", 2.0), (3, "a", 0.5)):
        sql.ksql(f"INSERT INTO {name} VALUES ({number}, '{item}', {price});")
    sql.wait_for_rows(f"SELECT * FROM {name}_T;", [["a", 2.0, 2], ["b", 2.0, 1]])
    assert sql.rows(f"SELECT TOTAL FROM {name}_T WHERE ITEM='b';") == [[2.0]]
    assert sql.rows(f"SELECT TOTAL FROM {name}_T WHERE ITEM IN ('b', 'x');") == [[2.0]]
    (queries,) = sql.ksql("SHOW QUERIES;")
    entry = next(one for one in queries["queries"] if one["id"] == query)
    assert (entry["sinks"], entry["state"], entry["queryType"]) == ([f"{name}_T"], "RUNNING", "PERSISTENT")
    assert f"read from this source: [{name}_T]" in sql.refused(f"DROP STREAM {name};")["message"]
    sql.ksql(f"TERMINATE {query};")
    (queries,) = sql.ksql("SHOW QUERIES;")
    assert query not in [one["id"] for one in queries["queries"]]
    sql.ksql(f"DROP TABLE {name}_T DELETE TOPIC; DROP STREAM {name};")
    (topics,) = sql.ksql("SHOW TOPICS;")
    assert f"{name}_T" not in [one["name"] for one in topics["topics"]]


def test_a_paused_query_waits(sql: RunningSql, name: str) -> None:
    _orders(sql, name)
    (made,) = sql.ksql(f"CREATE TABLE {name}_T AS SELECT ITEM, COUNT(*) AS N FROM {name} GROUP BY ITEM;")
    query = made["commandStatus"]["queryId"]
    sql.ksql(f"PAUSE {query};")
    sql.ksql(f"INSERT INTO {name} VALUES (1, 'a', 1.0);")
    (queries,) = sql.ksql("SHOW QUERIES;")
    assert next(one for one in queries["queries"] if one["id"] == query)["state"] == "PAUSED"
    assert sql.rows(f"SELECT * FROM {name}_T;") == []
    sql.ksql(f"RESUME {query};")
    sql.wait_for_rows(f"SELECT * FROM {name}_T;", [["a", 1]])


def test_avro_sinks_are_registered_and_read_back(sql: RunningSql, name: str) -> None:
    _orders(sql, name)
    sql.ksql(f"CREATE STREAM {name}_A WITH (value_format='AVRO') AS SELECT ID, ITEM FROM {name};")
    sql.ksql(f"CREATE STREAM {name}_B (ID INT KEY) WITH (kafka_topic='{name}_A', value_format='AVRO');")
    sql.ksql(f"INSERT INTO {name} VALUES (1, 'a', 1.0);")
    sql.wait_for_rows(f"SELECT * FROM {name}_B;", [[1, "a"]])


def test_errors_have_ksqldbs_shape(sql: RunningSql, name: str) -> None:
    syntax = sql.refused(f"CREATE STREEM {name};")
    assert (syntax["@type"], syntax["error_code"]) == ("statement_error", 40001)
    assert syntax["message"].startswith("line 1:8: Syntax Error")
    unknown = sql.refused(f"SELECT * FROM NOT_{name} EMIT CHANGES;", "/query-stream")
    assert unknown["error_code"] == 40001
    missing = sql.refused(
        f"CREATE STREAM {name} (A INT) WITH (kafka_topic='none_{name}', value_format='JSON');"
    )
    assert missing["message"].startswith(f"Topic 'none_{name}' does not exist.")
    assert (
        sql.http.post("/ksql", content=b"{", headers={"content-type": "application/json"}).status_code == 400
    )


def test_a_very_long_statement_is_refused(sql: RunningSql, name: str) -> None:
    """Not by its characters: a text may have any number of them."""
    columns = ", ".join(f"c{number} INT" for number in range(7000))
    last = f"DEFINE a = '{'x' * 30_000}'; CREATE STREAM {name} ({columns}) WITH (kafka_topic='{name}');"
    for statement in (last, "SELECT " + "a," * 12_000 + "b FROM s EMIT CHANGES;"):
        refused = sql.refused(statement, "/ksql" if statement is last else "/query-stream")
        assert "words and symbols. The most that one may have is 20000" in refused["message"]
    assert not sql.ksql(f"DEFINE a = '{'x' * 100_000}';")


def test_functions_properties_types_and_variables(sql: RunningSql, name: str) -> None:
    (functions,) = sql.ksql("SHOW FUNCTIONS;")
    assert {"name": "SUBSTRING", "type": "SCALAR"}.items() <= next(
        one for one in functions["functions"] if one["name"] == "SUBSTRING"
    ).items()
    (described,) = sql.ksql("DESCRIBE FUNCTION LCASE;")
    assert described["@type"] == "describe_function"
    sql.ksql(f"CREATE TYPE {name} AS STRUCT<A INT>;")
    (types,) = sql.ksql("SHOW TYPES;")
    assert types["types"][name]["type"] == "STRUCT"
    entities = sql.ksql("DEFINE v = 'x'; SHOW VARIABLES; SHOW PROPERTIES;")
    assert entities[0]["variables"] == [{"name": "v", "value": "x"}]
    assert "ksql.service.id" in [one["name"] for one in entities[1]["properties"]]


def test_explain_shows_the_topology(sql: RunningSql, name: str) -> None:
    _orders(sql, name)
    (made,) = sql.ksql(f"CREATE STREAM {name}_S AS SELECT ID, UCASE(ITEM) AS U FROM {name};")
    query = made["commandStatus"]["queryId"]

    def topology() -> str:
        (found,) = sql.ksql(f"EXPLAIN {query};")
        text: str = found["queryDescription"]["topology"]
        return text

    wait_until(lambda: name in topology())
    (found,) = sql.ksql(f"EXPLAIN SELECT ITEM FROM {name} EMIT CHANGES;")
    assert found["queryDescription"]["sources"] == [name]


def test_what_a_server_says_about_itself(sql: RunningSql) -> None:
    info = sql.http.get("/info").json()["KsqlServerInfo"]
    assert (info["ksqlServiceId"], info["serverStatus"]) == (sql.service_id, "RUNNING")
    health = sql.http.get("/healthcheck").json()
    assert health["isHealthy"] is True
    assert len(sql.http.get("/clusterStatus").json()["clusterStatus"]) == 1
    assert sql.http.get("/is_valid_property/ksql.streams.num.stream.threads").json() is True
    assert sql.http.get("/is_valid_property/nonsense").status_code == 400


def test_explain_says_what_a_running_query_reads_keeps_and_writes(sql: RunningSql, name: str) -> None:
    sql.ksql(
        f"CREATE STREAM {name} (K STRING KEY, V INT) WITH (kafka_topic='{name}', value_format='JSON', "
        f"partitions=2); CREATE TABLE {name}_T AS SELECT V, COUNT(*) AS N FROM {name} GROUP BY V;"
    )
    for value in (1, 2, 1):
        sql.ksql(f"INSERT INTO {name} VALUES ('k', {value});")
    sql.wait_for_rows(f"SELECT * FROM {name}_T;", [[1, 2], [2, 1]])
    (listed,) = sql.ksql("SHOW QUERIES;")
    query = next(one["id"] for one in listed["queries"] if one["sinks"] == [f"{name}_T"])

    def statistics() -> dict[str, Any]:
        found: dict[str, Any] = sql.ksql(f"EXPLAIN {query};")[0]["queryDescription"]["statistics"]
        return found

    wait_until(lambda: statistics()["rates"]["read"] == 6)  # from the topic, and behind the repartition
    found = statistics()
    roles = {one["role"]: one for one in found["topics"]}
    assert (roles["source"]["name"], roles["source"]["endOffsets"]) == (name, 3)
    assert (roles["sink"]["name"], roles["sink"]["partitions"]) == (f"{name}_T", 2)
    assert roles["repartition"]["endOffsets"] >= 3 and roles["changelog"]["name"].endswith("-changelog")
    assert [one["type"] for one in found["stores"]] == ["key-value"]
    assert found["rates"]["lag"] == 0 and found["rates"]["readPerSecond"] >= 0


def test_assertions_about_topics_and_schemas(sql: RunningSql, registry: RunningRegistry, name: str) -> None:
    _orders(sql, name)
    (found,) = sql.ksql(f"ASSERT TOPIC {name} WITH (PARTITIONS=2, REPLICAS=1);")
    assert (found["@type"], found["topicName"], found["exists"]) == ("assert_topic", name, True)
    schemas = [
        registry.http.post(
            f"/subjects/{name}/versions",
            json={"schema": f'{{"type": "enum", "name": "e", "symbols": ["A"{more}]}}'},
            headers={"content-type": "application/vnd.schemaregistry.v1+json"},
        ).json()["id"]
        for more in ("", ', "B"')
    ]
    for schema in schemas:
        sql.ksql(f"ASSERT SCHEMA SUBJECT '{name}' ID {schema}; ASSERT SCHEMA ID {schema};")
    for statement, message in (
        (f"TOPIC {name} WITH (PARTITIONS=9)", f"topic {name}: For config partitions, expected 9 got 2"),
        (f"TOPIC {name} WITH (REPLICAS=3)", "For config replicas, expected 3 got 1"),
        (f"TOPIC {name} WITH (COLOUR='red')", "Cannot assert unknown topic property: COLOUR"),
        (f"NOT EXISTS TOPIC {name}", f"Topic {name} exists."),
        ("TOPIC nowhere", "Topic nowhere does not exist."),
        (f"SCHEMA SUBJECT '{name}' ID 99999", f"Schema with subject name {name} id 99999 does not exist."),
        ("SCHEMA ID 99999", "Schema with id 99999 does not exist."),
    ):
        assert message in sql.refused(f"ASSERT {statement} TIMEOUT 100 MILLISECONDS;")["message"]


def test_explained_statements_and_results_of_aggregates(sql: RunningSql, name: str) -> None:
    _orders(sql, name)
    for statement, kind in (
        (f"SELECT ITEM FROM {name} EMIT CHANGES", "PUSH"),
        (f"SELECT ITEM FROM {name}", "PULL"),
        (f"CREATE STREAM {name}_C AS SELECT * FROM {name}", "PERSISTENT"),
    ):
        found = sql.ksql(f"EXPLAIN {statement};")[0]["queryDescription"]
        assert (found["statementText"], found["queryType"]) == (statement, kind)
    for function, results in (
        ("COUNT", ["BIGINT", "BIGINT"]),
        ("COLLECT_LIST", ["ARRAY<T>"]),
        ("HISTOGRAM", ["MAP<VARCHAR, BIGINT>"]),
    ):
        described = sql.ksql(f"DESCRIBE FUNCTION {function};")[0]["functions"]
        assert [one["returnType"] for one in described] == results


def test_alter_system_says_what_to_do(sql: RunningSql) -> None:
    assert "SET" in sql.refused("ALTER SYSTEM 'auto.offset.reset' = 'earliest';")["message"]


def test_settings_that_nobody_knows_are_refused(sql: RunningSql) -> None:
    assert (
        sql.refused("SET 'auto.ofset.reset'='earliest';")["message"] == "Unknown property: auto.ofset.reset"
    )
    assert sql.refused("UNSET 'nonsense';")["message"] == "Unknown property: nonsense"
    assert "latest, earliest, none" in sql.refused("SET 'auto.offset.reset'='begin';")["message"]
    assert sql.ksql("SET 'auto.offset.reset'='earliest'; UNSET 'auto.offset.reset';") == []


def test_limits_of_the_servers_settings(bootstrap: str, tmp_path: Path, name: str) -> None:
    settings = {
        "ksql.query.persistent.active.limit": 1,
        "ksql.properties.overrides.denylist": "ksql.streams.num.standby.replicas",
    }
    with RunningSql(bootstrap, tmp_path, settings) as sql:
        _orders(sql, name)
        sql.ksql(f"CREATE STREAM {name}_A AS SELECT * FROM {name};")
        refused = sql.refused(f"CREATE STREAM {name}_B AS SELECT * FROM {name};")
        assert refused["error_code"] == 40000
        assert "Current persistent query count: 1. Configured limit: 1." in refused["message"]
        # A query that takes another's place is not one more.
        sql.ksql(f"CREATE OR REPLACE STREAM {name}_A AS SELECT * FROM {name} WHERE ID > 1;")
        refused = sql.refused("SET 'num.standby.replicas'='1';")
        assert refused["message"] == "Cannot override property 'num.standby.replicas'"
        body = {"ksql": "SHOW STREAMS;", "streamsProperties": {"ksql.streams.num.standby.replicas": 1}}
        answer = sql.post("/ksql", body)
        assert answer.status_code == 400, answer.text
        assert answer.json()["message"] == "Cannot override property 'ksql.streams.num.standby.replicas'"
        answer = sql.http.get("/is_valid_property/ksql.streams.num.standby.replicas")
        assert answer.status_code == 400, answer.text


def test_a_syntax_error_anywhere_keeps_the_whole_request_from_running(sql: RunningSql, name: str) -> None:
    create = f"CREATE STREAM {name} (A INT) WITH (kafka_topic='{name}', value_format='JSON', partitions=1);"
    refused = sql.refused(f"{create} CREATE STREAM {name}_B AS SELEC * FROM {name};")
    assert "SELEC" in refused["message"]
    (listed,) = sql.ksql("SHOW STREAMS;")
    assert name not in [one["name"] for one in listed["streams"]]
    sql.ksql(f"DEFINE format='JSON'; {create.replace('JSON', '${format}')}")


def test_a_request_with_a_mistake_is_refused_as_a_whole(sql: RunningSql, name: str) -> None:
    create = f"CREATE STREAM {name} (A INT) WITH (kafka_topic='{name}', value_format='JSON', partitions=1);"
    refused = sql.refused(
        f"{create} CREATE STREAM {name}_B AS SELECT A, A + 1 AS B FROM {name}; "
        f"SET 'auto.offset.reset'='latest'; INSERT INTO {name} VALUES (1); "
        f"CREATE STREAM {name}_C AS SELECT B, NOPE FROM {name}_B;"
    )
    assert "'NOPE' cannot be resolved" in refused["message"]
    assert refused["statementText"].startswith(f"CREATE STREAM {name}_C")
    assert refused["entities"] == []
    (listed,) = sql.ksql("SHOW STREAMS;")
    assert not [one["name"] for one in listed["streams"] if one["name"].startswith(name)]


def test_what_was_done_in_front_of_a_mistake_is_told(sql: RunningSql, name: str) -> None:
    """A value that does not fit shows only when it is inserted."""
    create = f"CREATE STREAM {name} (A INT) WITH (kafka_topic='{name}', value_format='JSON', partitions=1);"
    refused = sql.refused(f"{create} INSERT INTO {name} VALUES ('x');")
    assert [one["commandId"] for one in refused["entities"]] == [f"stream/{name}/create"]


def test_statements_of_one_request_use_each_other(sql: RunningSql, name: str) -> None:
    make = (
        f"CREATE TYPE {name}_T AS STRUCT<X INT>;"
        f"CREATE STREAM {name} (A INT, B {name}_T) "
        f"WITH (kafka_topic='{name}', value_format='AVRO', partitions=1);"
        f"CREATE STREAM {name}_B AS SELECT A, B->X FROM {name};"
        f"CREATE STREAM {name}_C WITH (kafka_topic='{name}_B', value_format='AVRO');"
        f"CREATE STREAM {name}_D AS SELECT X FROM {name}_C;"
    )
    assert len(sql.ksql(make)) == 5
    drop = "".join(f"DROP STREAM {name}{part};" for part in ("_D", "_C", "_B", "")) + f"DROP TYPE {name}_T;"
    assert len(sql.ksql(f"SHOW STREAMS; {drop} SHOW STREAMS;")) == 7
    assert len(sql.ksql(make.replace("AVRO", "JSON").replace("_C WITH (", "_C (A INT, X INT) WITH ("))) == 5


def test_topics_know_their_consumers(sql: RunningSql, bootstrap: str, name: str) -> None:
    _orders(sql, name)
    settings = {"bootstrap.servers": bootstrap, "group.id": name, "enable.auto.commit": False}
    one, other = Consumer(settings), Consumer(settings)
    try:
        for consumer in (one, other):
            consumer.subscribe([name])

        def counted() -> dict[str, Any]:
            for consumer in (one, other):
                consumer.poll(0)
            (listed,) = sql.ksql("SHOW TOPICS EXTENDED;")
            found: dict[str, Any] = next(each for each in listed["topics"] if each["name"] == name)
            return found

        wait_until(lambda: counted()["consumerCount"] == 2)
        assert counted() == {
            "name": name,
            "replicaInfo": [1, 1],
            "consumerCount": 2,
            "consumerGroupCount": 1,
        }
    finally:
        one.close()
        other.close()


def test_a_stream_over_the_processing_log(bootstrap: str, tmp_path: Path, name: str) -> None:
    settings = {
        "ksql.logging.processing.stream.auto.create": "true",
        "ksql.logging.processing.stream.name": f"{name}_LOG",
        "ksql.logging.processing.topic.name": f"{name}_log",
    }
    with RunningSql(bootstrap, tmp_path, settings) as sql:
        _orders(sql, name)
        (made,) = sql.ksql(f"CREATE STREAM {name}_A AS SELECT ID, CAST(ITEM AS INT) AS N FROM {name};")
        sql.ksql(f"INSERT INTO {name} VALUES (1, 'none', 1.0);")
        logger = f"processing.{made['commandStatus']['queryId']}.Project"
        sql.wait_for_rows(
            f"SELECT logger, message->`recordProcessingError`->`record` AS data FROM {name}_LOG;",
            [[logger, None]],
        )
