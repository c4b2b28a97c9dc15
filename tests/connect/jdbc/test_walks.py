"""Whole ways through a worker: out of a database, through transforms and converters, into another one; and
what becomes of them when the database goes away."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.connect.conftest import Worker
from tests.connect.jdbc.conftest import Database
from tests.connect.test_worker import consume
from tests.support.databases import PASSWORD, USER, PostgresServer, postgres_server
from tests.support.waiting import wait_until

MakeWorker = Callable[..., Worker]


def connection(database: Database | str) -> dict[str, str]:
    """Of a database, or of a URL."""
    if isinstance(database, Database):
        return database.settings
    return {"connection.url": database, "connection.user": USER, "connection.password": PASSWORD}


def source(database: Database | str, prefix: str, **more: str) -> dict[str, str]:
    return {
        "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
        **connection(database),
        "mode": "incrementing",
        "topic.prefix": prefix,
        "poll.interval.ms": "50",
        "value.converter": "JsonConverter",
        **more,
    }


def sink(database: Database | str, topic: str, **more: str) -> dict[str, str]:
    return {
        "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
        **connection(database),
        "topics": topic,
        "auto.create": "true",
        "insert.mode": "upsert",
        "pk.mode": "record_value",
        "pk.fields": "id",
        "retry.backoff.ms": "200",
        "value.converter": "JsonConverter",
        **more,
    }


def test_invoices_out_of_sqlite_with_avro(
    make_worker: MakeWorker, connect_broker: str, connect_registry: str, sqlite: Database
) -> None:
    sqlite.execute(
        "CREATE TABLE invoices (id INTEGER PRIMARY KEY AUTOINCREMENT, customer TEXT NOT NULL, note TEXT, "
        "total REAL NOT NULL, paid BOOLEAN NOT NULL)"
    )
    for number in range(3):
        sqlite.execute(
            "INSERT INTO invoices (customer, total, paid) VALUES (?, ?, ?)", [f"c{number}", number + 0.5, 1]
        )
    worker = make_worker()
    config = source(sqlite, "avro-") | {
        "table.whitelist": "invoices",
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": connect_registry,
    }
    assert worker.http.put("/connectors/invoices/config", json=config).status_code == 201
    found = [value for _, value in consume(connect_broker, "avro-invoices", 3)]
    client = SchemaRegistryClient({"url": connect_registry})
    decode = AvroDeserializer(client)
    values: list[Any] = [
        decode(one, SerializationContext("avro-invoices", MessageField.VALUE)) for one in found
    ]
    assert values[1] == {"id": 2, "customer": "c1", "note": None, "total": 1.5, "paid": True}
    schema = json.loads(client.get_latest_version("avro-invoices-value").schema.schema_str or "")
    assert schema["name"] == "invoices"
    assert [field["type"] for field in schema["fields"]][:3] == ["long", "string", ["null", "string"]]


def test_the_operators_table_with_a_key(
    make_worker: MakeWorker, connect_broker: str, sqlite: Database
) -> None:
    sqlite.execute("CREATE TABLE operators (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, line TEXT)")
    for name in ("Ada", "Bruno"):
        sqlite.execute("INSERT INTO operators (name, line) VALUES (?, 'L1')", [name])
    worker = make_worker()
    config = source(sqlite, "") | {
        "table.whitelist": "operators",
        "key.converter": "org.apache.kafka.connect.converters.LongConverter",
        "value.converter.schemas.enable": "false",
        "transforms": "key,id",
        "transforms.key.type": "org.apache.kafka.connect.transforms.ValueToKey",
        "transforms.key.fields": "id",
        "transforms.id.type": "org.apache.kafka.connect.transforms.ExtractField$Key",
        "transforms.id.field": "id",
    }
    assert worker.http.put("/connectors/operators/config", json=config).status_code == 201
    found = consume(connect_broker, "operators", 2)
    assert [(key, json.loads(value or b"")) for key, value in found] == [
        ((1).to_bytes(8, "big"), {"id": 1, "name": "Ada", "line": "L1"}),
        ((2).to_bytes(8, "big"), {"id": 2, "name": "Bruno", "line": "L1"}),
    ]
    offsets = worker.http.get("/connectors/operators/offsets").json()["offsets"]
    assert offsets == [{"partition": {"protocol": "1", "table": "operators"}, "offset": {"incrementing": 2}}]


def test_from_one_database_into_another(
    make_worker: MakeWorker, sqlite: Database, server_database: Database
) -> None:
    sqlite.execute("CREATE TABLE moved (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT)")
    for number in range(1200):
        sqlite.execute("INSERT INTO moved (name) VALUES (?)", [f"n{number}"])
    prefix = f"{server_database.kind}-"
    worker = make_worker()
    worker.http.put(
        "/connectors/in/config", json=source(sqlite, prefix) | {"table.whitelist": "moved"}
    ).raise_for_status()
    out = sink(server_database, f"{prefix}moved") | {
        "table.name.format": server_database.table,
        "insert.mode": "insert",
        "millstream.offsets.table": f"{server_database.table}_offsets",
    }
    worker.http.put("/connectors/out/config", json=out).raise_for_status()

    def count() -> int:
        try:
            return int(server_database.rows(f"SELECT count(*) FROM {server_database.table}")[0][0])
        except Exception:
            return 0

    wait_until(lambda: count() == 1200, lambda: worker.http.get("/connectors/out/status").text)
    worker.stop()
    sqlite.execute("INSERT INTO moved (name) VALUES ('last')")
    make_worker()
    wait_until(lambda: count() == 1201)


def test_a_poison_record_becomes_a_dead_letter(
    make_worker: MakeWorker, connect_broker: str, sqlite: Database
) -> None:
    producer = Producer({"bootstrap.servers": connect_broker})
    schema = {"type": "struct", "fields": [{"field": "id", "type": "int64"}]}
    for payload in ({"id": 1}, {"id": None}, {"id": 2}):
        producer.produce("poison-rows", json.dumps({"schema": schema, "payload": payload}))
    producer.produce("poison-rows", json.dumps({"schema": None, "payload": {"id": 3}}))
    producer.flush()
    worker = make_worker()
    config = sink(sqlite, "poison-rows") | {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "poison-letters",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "table.name.format": "rows",
    }
    worker.http.put("/connectors/p/config", json=config).raise_for_status()
    assert len(consume(connect_broker, "poison-letters", 2)) == 2
    wait_until(lambda: sqlite.rows("SELECT id FROM rows ORDER BY 1") == [(1,), (2,)])
    assert worker.states("p") == ["RUNNING", "RUNNING"]


@pytest.mark.postgres
def test_a_database_that_is_away_for_a_while(
    make_worker: MakeWorker, caplog: pytest.LogCaptureFixture
) -> None:
    with postgres_server() as server:

        def execute(sql: str) -> list[tuple[Any, ...]]:
            with contextlib.closing(psycopg.connect(server.conninfo, autocommit=True)) as connection:
                cursor = connection.execute(sql)
                return cursor.fetchall() if cursor.description else []

        def copied() -> list[Any]:
            return [row[0] for row in execute("SELECT name FROM copied ORDER BY id")]

        execute("CREATE TABLE away (id BIGSERIAL PRIMARY KEY, name TEXT)")
        execute("INSERT INTO away (name) VALUES ('before')")
        worker = make_worker()
        config = source(server.url, "pg-") | {"table.whitelist": "away"}
        worker.http.put("/connectors/in/config", json=config).raise_for_status()
        copy = sink(server.url, "pg-away") | {"table.name.format": "copied", "max.retries": "-1"}
        worker.http.put("/connectors/out/config", json=copy).raise_for_status()
        wait_until(lambda: copied() == ["before"], ignoring=psycopg.Error)
        server.stop()
        wait_until(lambda: "tried again soon" in caplog.text)
        server.start()
        execute("INSERT INTO away (name) VALUES ('after')")
        wait_until(lambda: copied() == ["before", "after"], ignoring=psycopg.Error)
        assert worker.states("in") == worker.states("out") == ["RUNNING", "RUNNING"]
        worker.stop()


def test_secrets_are_not_told(
    make_worker: MakeWorker, postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = f"not-{PASSWORD}"
    worker = make_worker()
    config = source(postgres.url, "x-") | {
        "connection.url": f"{postgres.url}?user=nobody-known&password={wrong}",
    }
    del config["connection.user"], config["connection.password"]
    caplog.set_level(logging.DEBUG, logger="millstream")
    worker.http.put("/connectors/s/config", json=config).raise_for_status()
    wait_until(lambda: worker.states("s") == ["RUNNING", "FAILED"])
    status = worker.http.get("/connectors/s/status").text
    assert "password authentication failed" in status
    assert PASSWORD not in status
    assert PASSWORD not in caplog.text
    checked = worker.http.put(
        "/connector-plugins/JdbcSource/config/validate",
        json=config | {"connection.password": wrong, "connection.url": f"jdbc:nothing:{wrong}"},
    )
    errors = [error for one in checked.json()["configs"] for error in one["value"]["errors"]]
    assert errors
    assert PASSWORD not in str(errors)
    hidden = [one for one in checked.json()["configs"] if one["value"]["name"] == "connection.password"]
    assert hidden[0]["value"]["value"] == "[hidden]"
