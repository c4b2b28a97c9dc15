"""Dead letters again, for sinks into a database, into files and to a server: each gets there once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connect.conftest import Worker
from tests.connect.test_redrive_and_preview import TOLERANT, end_offset, send
from tests.support.http_server import ScriptedServer
from tests.support.waiting import wait_until

MakeWorker = Callable[..., Worker]
SCHEMA = {
    "type": "struct",
    "optional": False,
    "fields": [
        {"field": "id", "type": "int64", "optional": False},
        {"field": "name", "type": "string", "optional": False},
    ],
}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as made:
        yield made


def with_letters(topic: str, **more: str) -> dict[str, str]:
    """Settings of a sink of this topic, with what it refuses in a topic of its own."""
    letters = {"errors.deadletterqueue.topic.name": f"{topic}-letters"}
    return {"topics": topic, **TOLERANT, **letters, **more}


def put(worker: Worker, name: str, settings: dict[str, str]) -> None:
    answer = worker.http.put(f"/connectors/{name}/config", json=settings)
    assert answer.status_code in (200, 201), answer.text


def redrive(worker: Worker, name: str) -> None:
    assert worker.http.post(f"/connectors/{name}/redrive").status_code == 202
    wait_until(lambda: worker.http.get(f"/connectors/{name}/redrive").json()["done"])


def test_a_row_that_the_database_refused(
    make_worker: MakeWorker, connect_broker: str, tmp_path: Path
) -> None:
    file = tmp_path / "shop.db"
    database = sqlite3.connect(file, isolation_level=None)
    database.execute("CREATE TABLE refused (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
    database.execute(
        "CREATE TRIGGER closed BEFORE INSERT ON refused WHEN NEW.name = 'bad' "
        "BEGIN SELECT RAISE(ABORT, 'not now'); END"
    )

    def rows() -> list[tuple[Any, ...]]:
        return database.execute("SELECT id, name FROM refused ORDER BY id").fetchall()

    values = [(1, "good"), (2, "bad"), (3, "good")]
    payloads = [{"schema": SCHEMA, "payload": {"id": number, "name": name}} for number, name in values]
    send(connect_broker, "refused", *(json.dumps(one).encode() for one in payloads))
    worker = make_worker()
    settings = with_letters("refused") | {
        "connector.class": "JdbcSink",
        "connection.url": f"jdbc:sqlite:{file}",
        "value.converter.schemas.enable": "true",
        "millstream.offsets.table": "offsets",
        "auto.create": "true",
    }
    put(worker, "rows", settings)
    wait_until(lambda: end_offset(connect_broker, "refused-letters") >= 1)
    wait_until(lambda: rows() == [(1, "good"), (3, "good")])
    database.execute("DROP TRIGGER closed")
    redrive(worker, "rows")
    assert rows() == [(1, "good"), (2, "bad"), (3, "good")]
    database.close()


def test_records_that_could_not_be_read_get_into_files(
    make_worker: MakeWorker, connect_broker: str, tmp_path: Path
) -> None:
    send(connect_broker, "filed-again", b'{"id": 1}', b"not json", b'{"id": 2}')
    worker = make_worker()
    settings = with_letters("filed-again") | {
        "connector.class": "FileSink",
        "store.url": str(tmp_path / "store"),
        "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
        "flush.size": "1",
    }

    def written() -> list[str]:
        files = (tmp_path / "store").rglob("*.json")
        return sorted(line for file in files for line in file.read_text().splitlines())

    put(worker, "files", settings)
    wait_until(lambda: end_offset(connect_broker, "filed-again-letters") >= 1)
    wait_until(lambda: written() == ['{"id":1}', '{"id":2}'])
    put(worker, "files", settings | {"value.converter": "StringConverter"})
    redrive(worker, "files")
    wait_until(lambda: written() == ['"not json"', '{"id":1}', '{"id":2}'])


def test_a_record_that_the_server_refused(
    make_worker: MakeWorker, connect_broker: str, server: ScriptedServer
) -> None:
    closed = True
    server.answer = lambda request: (422, b"not now") if closed and b"bad" in request.body else (200, b"")
    send(connect_broker, "posted", b'{"id":"good"}', b'{"id":"bad"}', b'{"id":"last"}')
    worker = make_worker()
    settings = with_letters("posted") | {
        "connector.class": "HttpSink",
        "http.url": server.url,
        "http.authorization.type": "none",
        "max.retries": "0",
    }
    put(worker, "posts", settings)
    wait_until(lambda: end_offset(connect_broker, "posted-letters") >= 1)
    wait_until(lambda: len(server.requests) >= 3)
    before = len(server.requests)
    closed = False
    redrive(worker, "posts")
    assert [one.body for one in server.requests[before:]] == [b'{"id":"bad"}']
