"""Connectors from SQL, with our own Connect worker over HTTP."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from millstream.connect.rest.app import make_app
from tests.connect.conftest import Worker
from tests.sql.server.sql_client import RunningSql
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def worker_url(bootstrap: str) -> Iterator[str]:
    group = f"connect-{uuid.uuid4().hex[:8]}"
    worker = Worker(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "key.converter": "StringConverter",
            "value.converter": "StringConverter",
        },
        {what: f"{group}-{what}" for what in ("config", "offset", "status")},
    )
    config = uvicorn.Config(make_app(worker.herder, worker.config), port=0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(10)
    worker.stop()


@pytest.fixture(scope="module")
def connected(
    bootstrap: str, worker_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningSql]:
    folder = tmp_path_factory.mktemp("connected")
    with RunningSql(bootstrap, folder, {"ksql.connect.url": worker_url}) as sql:
        yield sql


def test_from_a_file_to_a_stream(connected: RunningSql, name: str, tmp_path: Path) -> None:
    sql, file = connected, tmp_path / "in.txt"
    file.write_text("one\ntwo\n")
    create = (
        f"CREATE SOURCE CONNECTOR {{0}} {name} WITH ('connector.class'='FileStreamSource', 'file'='{file}', "
        f"'topic'='{name}', 'tasks.max'=1);"
    )
    (made,) = sql.ksql(create.format(""))
    assert (made["@type"], made["info"]["name"]) == ("connector_info", name)
    assert made["info"]["config"]["tasks.max"] == "1"
    assert "already exists" in sql.refused(create.format(""))["message"]
    (again,) = sql.ksql(create.format("IF NOT EXISTS"))
    assert (again["@type"], again["message"]) == ("warning_entity", f"Connector {name} already exists")

    def state() -> str:
        (listed,) = sql.ksql("SHOW SOURCE CONNECTORS;")
        return next(str(one["state"]) for one in listed["connectors"] if one["name"] == name)

    wait_until(lambda: state() == "RUNNING (1/1 tasks RUNNING)")
    (sinks,) = sql.ksql("SHOW SINK CONNECTORS;")
    assert name not in [one["name"] for one in sinks["connectors"]]
    sql.ksql(
        f"CREATE STREAM {name}_S (LINE STRING) WITH (kafka_topic='{name}', value_format='KAFKA', "
        "partitions=1);"
    )
    sql.wait_for_rows(f"SELECT LINE FROM {name}_S;", [["one"], ["two"]])
    # The worker notes which topics a connector writes to after it has written.
    wait_until(lambda: sql.ksql(f"DESCRIBE CONNECTOR {name};")[0]["sources"])
    (described,) = sql.ksql(f"DESCRIBE CONNECTOR {name};")
    assert described["connectorClass"] == "FileStreamSource"
    assert described["status"]["connector"]["state"] == "RUNNING"
    assert [one["name"] for one in described["sources"]] == [f"{name}_S"]
    (dropped,) = sql.ksql(f"DROP CONNECTOR {name};")
    assert dropped["connectorName"] == name
    assert "not found" in sql.refused(f"DROP CONNECTOR {name};")["message"]
    (gone,) = sql.ksql(f"DROP CONNECTOR IF EXISTS {name};")
    assert gone["message"] == f"Connector '{name}' does not exist."


def test_what_the_worker_refuses_is_told(connected: RunningSql, name: str) -> None:
    message = connected.refused(
        f"CREATE SINK CONNECTOR {name} WITH ('connector.class'='NoSuchConnector', 'topics'='x');"
    )["message"]
    assert message.startswith("Failed to create connector: ") and "NoSuchConnector" in message
    assert name in connected.refused(f"DESCRIBE CONNECTOR {name};")["message"]


def test_plugins_are_listed(connected: RunningSql) -> None:
    (listed,) = connected.ksql("SHOW CONNECTOR PLUGINS;")
    assert {"SOURCE", "SINK"} <= {one["type"] for one in listed["connectorsPlugins"]}


def test_a_worker_that_is_away_is_named(bootstrap: str, tmp_path: Path) -> None:
    with RunningSql(bootstrap, tmp_path, {"ksql.connect.url": "http://127.0.0.1:1"}) as sql:
        assert "ksql.connect.url" in sql.refused("SHOW CONNECTORS;")["message"]
