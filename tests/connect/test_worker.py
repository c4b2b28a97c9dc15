"""A worker with file connectors, from a line in a file to a line in a file."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

from millstream.connect.herder import Herder
from millstream.connect.stores.config_state import ConfigState
from tests.connect.conftest import Worker
from tests.support.waiting import wait_until

MakeWorker = Callable[..., Worker]


def source(file: Path, topic: str, **more: str) -> dict[str, str]:
    return {"connector.class": "FileStreamSource", "file": str(file), "topic": topic, **more}


def sink(file: Path, topic: str, **more: str) -> dict[str, str]:
    return {"connector.class": "FileStreamSink", "file": str(file), "topics": topic, **more}


def consume(servers: str, topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    """By another project's client, committed records only."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"check-{uuid.uuid4()}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    found: list[tuple[bytes | None, bytes | None]] = []

    def read() -> bool:
        for message in consumer.consume(count - len(found), timeout=1):
            if message.error() is None:
                found.append((message.key(), message.value()))
        return len(found) >= count

    wait_until(read)
    consumer.close()
    return found


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def test_lines_of_a_file_become_lines_of_another(make_worker: MakeWorker, tmp_path: Path) -> None:
    worker = make_worker()
    written, copied = tmp_path / "in.txt", tmp_path / "out.txt"
    written.write_text("one\ntwo\nthree\nunfinished")
    answer = worker.http.post("/connectors", json={"name": "in", "config": source(written, "walk")})
    assert answer.status_code == 201
    assert answer.json()["type"] == "source"
    assert answer.headers["location"] == "/connectors/in"
    answer = worker.http.put("/connectors/out/config", json=sink(copied, "walk"))
    assert answer.status_code == 201
    wait_until(lambda: lines(copied) == ["one", "two", "three"])
    with written.open("a") as file:
        file.write(" no more\nna\u00efve\r\n")
    wait_until(lambda: lines(copied)[3:] == ["unfinished no more", "na\u00efve"])
    wait_until(lambda: worker.states("in") == ["RUNNING", "RUNNING"])
    assert sorted(worker.http.get("/connectors").json()) == ["in", "out"]


def test_a_worker_goes_on_where_the_last_one_was(
    make_worker: MakeWorker, connect_broker: str, tmp_path: Path
) -> None:
    written, copied = tmp_path / "in.txt", tmp_path / "out.txt"
    written.write_text("".join(f"line {number}\n" for number in range(1000)))
    first = make_worker()
    first.http.put("/connectors/a/config", json=source(written, "again"))
    first.http.put("/connectors/b/config", json=sink(copied, "again"))
    wait_until(lambda: len(lines(copied)) == 1000)
    first.stop()
    with written.open("a") as file:
        file.write("after\n")
    second = make_worker()
    wait_until(lambda: len(lines(copied)) >= 1001)
    wait_until(lambda: second.states("b") == ["RUNNING", "RUNNING"])
    assert lines(copied) == [f"line {number}" for number in range(1000)] + ["after"]
    found = consume(connect_broker, "again", 1001)
    assert [value for _, value in found][-1] == b"after"
    assert len(found) == 1001


def test_transforms_and_predicates_of_a_source(
    make_worker: MakeWorker, connect_broker: str, tmp_path: Path
) -> None:
    written = tmp_path / "in.txt"
    written.write_text("a\nb\n")
    chain = {
        "transforms": "hoist,where,key,drop",
        "transforms.hoist.type": "HoistField$Value",
        "transforms.hoist.field": "line",
        "transforms.where.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.where.static.field": "from",
        "transforms.where.static.value": "file",
        "transforms.key.type": "ValueToKey",
        "transforms.key.fields": "line",
        "transforms.drop.type": "Filter",
        "transforms.drop.predicate": "other",
        "predicates": "other",
        "predicates.other.type": "TopicNameMatches",
        "predicates.other.pattern": "nothing",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "key.converter": "JsonConverter",
        "key.converter.schemas.enable": "false",
    }
    worker = make_worker()
    assert (
        worker.http.put("/connectors/t/config", json=source(written, "chained", **chain)).status_code == 201
    )
    found = consume(connect_broker, "chained", 2)
    assert [json.loads(value or b"") for _, value in found] == [
        {"line": "a", "from": "file"},
        {"line": "b", "from": "file"},
    ]
    assert [key for key, _ in found] == [b'{"line":"a"}', b'{"line":"b"}']


def test_what_a_sink_cannot_read_becomes_a_dead_letter(
    make_worker: MakeWorker, connect_broker: str, tmp_path: Path
) -> None:
    producer = Producer({"bootstrap.servers": connect_broker})
    for value in (b'{"a": 1}', b"not json", b'{"a": 2}'):
        producer.produce("poisoned", value)
    producer.flush()
    copied = tmp_path / "out.txt"
    worker = make_worker()
    strict = sink(
        copied,
        "poisoned",
        **{"value.converter": "JsonConverter", "value.converter.schemas.enable": "false"},
    )
    worker.http.put("/connectors/p/config", json=strict)
    wait_until(lambda: worker.states("p") == ["RUNNING", "FAILED"])
    task = worker.http.get("/connectors/p/tasks/0/status").json()
    assert "Tolerance exceeded in error handler" in task["trace"]
    tolerant = strict | {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "letters",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    assert worker.http.put("/connectors/p/config", json=tolerant).status_code == 200
    wait_until(lambda: lines(copied) == ["{a=1}", "{a=2}"])
    consumer = Consumer(
        {"bootstrap.servers": connect_broker, "group.id": "letters", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["letters"])
    dead_letters = wait_until(lambda: consumer.consume(1, timeout=1))
    consumer.close()
    assert dead_letters[0].value() == b"not json"
    headers = dict(dead_letters[0].headers())
    assert headers["__connect.errors.topic"] == b"poisoned"
    assert headers["__connect.errors.offset"] == b"1"
    assert headers["__connect.errors.stage"] == b"VALUE_CONVERTER"
    assert (
        headers["__connect.errors.exception.class.name"] == b"org.apache.kafka.connect.errors.DataException"
    )


def test_pause_stop_resume_restart_delete(make_worker: MakeWorker, tmp_path: Path) -> None:
    written = tmp_path / "in.txt"
    written.write_text("one\n")
    worker = make_worker()
    worker.http.put("/connectors/s/config", json=source(written, "states"))
    wait_until(lambda: worker.states("s") == ["RUNNING", "RUNNING"])
    assert worker.http.put("/connectors/s/pause").status_code == 202
    wait_until(lambda: worker.states("s") == ["PAUSED", "PAUSED"])
    assert worker.http.put("/connectors/s/resume").status_code == 202
    wait_until(lambda: worker.states("s") == ["RUNNING", "RUNNING"])
    assert worker.http.post("/connectors/s/restart").status_code == 204
    assert worker.http.post("/connectors/s/tasks/0/restart").status_code == 204
    wait_until(lambda: worker.states("s") == ["RUNNING", "RUNNING"])
    answer = worker.http.post("/connectors/s/restart?includeTasks=true&onlyFailed=false")
    assert answer.status_code == 202
    wait_until(lambda: worker.states("s") == ["RUNNING", "RUNNING"])
    assert worker.http.put("/connectors/s/stop").status_code == 204
    wait_until(lambda: worker.states("s") == ["STOPPED"])
    assert worker.http.get("/connectors/s").json()["tasks"] == []
    assert worker.http.delete("/connectors/s").status_code == 204
    wait_until(lambda: worker.http.get("/connectors/s").status_code == 404)


def test_errors_as_kafka_words_them(make_worker: MakeWorker, tmp_path: Path) -> None:
    worker = make_worker()
    http = worker.http
    assert http.get("/connectors/x").json() == {"error_code": 404, "message": "Connector x not found"}
    assert http.get("/connectors/x/status").json()["message"] == "No status found for connector x"
    assert http.put("/connectors/x/pause").json()["message"] == "Unknown connector x"
    assert http.post("/connectors/x/restart").json()["message"] == "Unknown connector: x"
    assert http.post("/connectors/x/tasks/0/restart").json()["message"] == "Unknown connector: x"
    assert http.get("/nothing").json() == {"error_code": 404, "message": "HTTP 404 Not Found"}
    wrong = {"connector.class": "FileStreamSource", "tasks.max": "none"}
    answer = http.post("/connectors", json={"name": "x", "config": wrong})
    assert answer.status_code == 400
    assert answer.json()["message"].startswith(
        "Connector configuration is invalid and contains the following 3 error(s):\n"
        "Invalid value none for configuration tasks.max: Not a number of type INT\n"
        "Invalid value null for configuration tasks.max: Value must be non-null\n"
        'Missing required configuration "topic" which has no default value.'
    )
    answer = http.post("/connectors", json={"name": "x", "config": {"connector.class": "No.Such"}})
    assert answer.status_code == 400
    assert "which name matches No.Such" in answer.json()["message"]
    checked = http.put("/connector-plugins/FileStreamSource/config/validate", json={"topic": "t"})
    assert checked.status_code == 400
    assert checked.json()["message"] == "Connector config {topic=t} contains no connector type"
    good = source(tmp_path / "f", "t")
    for state in ("STARTED", "", "gone"):
        answer = http.post("/connectors", json={"name": "x", "config": good, "initial_state": state})
        assert (answer.status_code, answer.json()["message"]) == (400, f"Unknown initial state {state}")
    assert http.post("/connectors", json={"name": "x", "config": good}).status_code == 201
    again = http.post("/connectors", json={"name": "x", "config": good})
    assert (again.status_code, again.json()["message"]) == (409, "Connector x already exists")
    answer = http.put("/connectors/x/config", json=good | {"name": "y"})
    assert answer.status_code == 400
    patched = http.patch("/connectors/x/config", json={"batch.size": "7"})
    assert patched.json()["config"]["batch.size"] == "7"
    assert "batch.size" not in http.patch("/connectors/x/config", json={"batch.size": None}).json()["config"]
    assert (
        http.post("/connectors", content="x", headers={"content-type": "application/json"}).status_code == 400
    )
    assert http.post("/connectors", content="{}").status_code == 415


def test_settings_that_are_null(make_worker: MakeWorker, tmp_path: Path) -> None:
    """As in Kafka: refused where they are common or unknown, not given where they are the connector's own."""
    worker = make_worker()
    null = "Null value can not be supplied as the configuration value."
    (tmp_path / "in.txt").write_text("")
    settings: dict[str, Any] = dict(source(tmp_path / "in.txt", "nulls"))
    for name in ("tasks.max", "unknown", "key.converter.schemas.enable"):
        answer = worker.http.put("/connectors/n/config", json={**settings, name: None})
        assert answer.status_code == 400
        assert null in answer.json()["message"]
    checked = worker.http.put(
        "/connector-plugins/FileStreamSource/config/validate", json={**settings, "name": "n", "unknown": None}
    )
    assert checked.json()["error_count"] == 1
    answer = worker.http.put("/connectors/n/config", json={**settings, "batch.size": None, "name": None})
    assert answer.status_code == 201
    assert worker.http.get("/connectors/n/config").json() == {**settings, "name": "n"}
    answer = worker.http.patch("/connectors/n/config", json={"batch.size": "7", "unknown": None})
    assert answer.json()["config"]["batch.size"] == "7"
    answer = worker.http.patch("/connectors/n/config", json={"batch.size": None})
    assert "batch.size" not in answer.json()["config"]


def test_a_java_workers_nulls_are_no_settings() -> None:
    state = ConfigState()
    state.apply(b"connector-x", b'{"properties":{"a":"1","b":null}}')
    assert state.connectors["x"] == {"a": "1"}


def test_paths_and_methods_as_kafkas_server_takes_them(make_worker: MakeWorker, tmp_path: Path) -> None:
    http = make_worker().http
    assert http.get("/connectors/").json() == []
    head = http.head("/connectors")
    assert (head.status_code, head.content, head.headers["content-type"]) == (200, b"", "application/json")
    options = http.options("/connectors/x/config")
    assert options.status_code == 200
    assert set(options.text.split(", ")) == {"GET", "HEAD", "OPTIONS", "PATCH", "PUT"}
    refused = http.delete("/connectors")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET,HEAD,OPTIONS,POST")
    settings = source(tmp_path / "f", "t")
    made = http.post("/connectors", json={"name": " two words\n", "config": settings})
    assert (made.status_code, made.json()["name"]) == (201, "two words")
    assert made.headers["location"] == "/connectors/two%20words"
    nameless = http.post("/connectors", json={"config": settings}).json()["message"]
    assert "Invalid value  for configuration name: String may not be empty" in nameless
    typo = http.post("/connectors", json={"name": "x", "config": settings, "initialState": "PAUSED"})
    assert (typo.status_code, "initialState" in typo.json()["message"]) == (400, True)
    assert http.get("/connectors").json() == ["two words"]


def test_a_file_has_one_task_whatever_is_allowed(make_worker: MakeWorker, tmp_path: Path) -> None:
    worker = make_worker()
    worker.http.put("/connectors/o/config", json=sink(tmp_path / "out", "t", **{"tasks.max": "3"}))
    wait_until(lambda: worker.states("o") == ["RUNNING", "RUNNING"])


def test_a_connector_at_rest_shows_its_version(make_worker: MakeWorker, tmp_path: Path) -> None:
    worker = make_worker()
    body = {"name": "s", "config": source(tmp_path / "f", "t"), "initial_state": "stopped"}
    assert worker.http.post("/connectors", json=body).status_code == 201
    wait_until(lambda: worker.states("s") == ["STOPPED"])
    assert worker.http.get("/connectors/s/status").json()["connector"]["version"] == "4.3.1"


def test_settings_of_every_kind_of_plugin(make_worker: MakeWorker) -> None:
    http = make_worker().http

    def names(plugin: str) -> list[str]:
        return [one["name"] for one in http.get(f"/connector-plugins/{plugin}/config").json()]

    assert names("org.apache.kafka.connect.json.JsonConverter")[:2] == ["converter.type", "schemas.enable"]
    assert names("SimpleHeaderConverter") == []
    assert names("org.apache.kafka.connect.transforms.HoistField$Value") == ["field"]
    assert names("org.apache.kafka.connect.transforms.predicates.HasHeaderKey") == ["name"]
    assert http.get("/connector-plugins/FileStreamSink/config?version=[4.0,5.0)").status_code == 200
    other = http.get("/connector-plugins/FileStreamSink/config?version=1.0")
    assert (other.status_code, other.json()["message"]) == (
        400,
        "Plugin org.apache.kafka.connect.file.FileStreamSinkConnector not found that matches the version "
        "range [1.0,1.0], available versions: [4.3.1]",
    )


def test_plugins_and_validation(make_worker: MakeWorker) -> None:
    http = make_worker().http
    listed = http.get("/connector-plugins").json()
    assert {
        "class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "type": "sink",
        "version": "4.3.1",
    } in listed
    everything = http.get("/connector-plugins?connectorsOnly=false").json()
    assert any(one["class"].endswith("Cast$Value") for one in everything)
    wanted = {"connector.class": "FileStreamSink", "name": "n", "topics": "t", "topics.regex": "t.*"}
    wanted |= {"transforms": "c", "transforms.c.type": "Cast$Value"}
    body = http.put("/connector-plugins/FileStreamSink/config/validate", json=wanted).json()
    assert body["name"] == "org.apache.kafka.connect.file.FileStreamSinkConnector"
    errors = {
        one["value"]["name"]: one["value"]["errors"] for one in body["configs"] if one["value"]["errors"]
    }
    exclusive = "topics and topics.regex are mutually exclusive options, but both are set."
    assert errors["topics"] == errors["topics.regex"] == [exclusive]
    assert errors["transforms.c.spec"][0].startswith("Missing required configuration")
    assert body["error_count"] == 4  # two for the spec: it is missing, and it may not be empty
    assert http.get("/connector-plugins/Nothing/config").status_code == 404
    names = [one["name"] for one in http.get("/connector-plugins/FileStreamSource/config").json()]
    assert names[:4] == ["file", "topic", "batch.size", "name"]
    assert "transaction.boundary" in names


def test_standalone_keeps_its_offsets_in_a_file(
    standalone: Callable[[], Herder], connect_broker: str, tmp_path: Path
) -> None:
    written = tmp_path / "in.txt"
    written.write_text("one\n")
    first = standalone()
    first.create("s", source(written, "alone"))
    consume(connect_broker, "alone", 1)
    wait_until(lambda: (tmp_path / "offsets").exists())
    first.stop()
    with written.open("a") as file:
        file.write("two\n")
    second = standalone()
    second.create("s", source(written, "alone"))
    found = consume(connect_broker, "alone", 2)
    assert [value for _, value in found] == [b"one", b"two"]


def test_secrets_are_resolved_where_the_task_runs(make_worker: MakeWorker, tmp_path: Path) -> None:
    secrets, copied = tmp_path / "secrets.properties", tmp_path / "out.txt"
    secrets.write_text(f"path={tmp_path / 'in.txt'}\n")
    (tmp_path / "in.txt").write_text("hidden\n")
    worker = make_worker(
        config_providers="file",
        config_providers_file_class="org.apache.kafka.common.config.provider.FileConfigProvider",
    )
    reference = f"${{file:{secrets}:path}}"
    config = source(Path("x"), "secret") | {"file": reference}
    assert worker.http.put("/connectors/s/config", json=config).status_code == 201
    worker.http.put("/connectors/o/config", json=sink(copied, "secret"))
    wait_until(lambda: lines(copied) == ["hidden"])
    assert worker.http.get("/connectors/s").json()["config"]["file"] == reference
    assert worker.http.get("/connectors/s/tasks").json()[0]["config"]["file"] == reference


def test_offsets_are_shown_altered_and_reset(
    make_worker: MakeWorker, connect_broker: str, tmp_path: Path
) -> None:
    written, copied = tmp_path / "in.txt", tmp_path / "out.txt"
    written.write_text("one\ntwo\n")
    worker = make_worker()
    http = worker.http
    http.put("/connectors/i/config", json=source(written, "moved"))
    http.put("/connectors/o/config", json=sink(copied, "moved"))
    wait_until(lambda: lines(copied) == ["one", "two"])
    entry = {"partition": {"filename": str(written)}, "offset": {"position": 8}}
    assert http.get("/connectors/i/offsets").json() == {"offsets": [entry]}
    refused = http.patch("/connectors/i/offsets", json={"offsets": [entry]})
    assert (refused.status_code, "STOPPED state" in refused.json()["message"]) == (400, True)
    for name in ("i", "o"):
        http.put(f"/connectors/{name}/stop")
        wait_until(lambda name=name: worker.states(name) == ["STOPPED"])
    wrong = http.patch("/connectors/i/offsets", json={"offsets": [entry | {"offset": {"position": -1}}]})
    needed = "The value for the 'position' key in the offset should be a non-negative value"
    assert wrong.json()["message"] == needed
    moved = http.patch("/connectors/i/offsets", json={"offsets": [entry | {"offset": {"position": 4}}]})
    assert moved.json() == {"message": "The offsets for this connector have been altered successfully"}
    committed = http.get("/connectors/o/offsets").json()["offsets"]
    assert sum(one["offset"]["kafka_offset"] for one in committed) >= 2
    kept = http.get("/connectors/o/offsets").json()
    wrong = {**committed[0], "offset": {"kafka_offset": -1}}
    refused = http.patch("/connectors/o/offsets", json={"offsets": [wrong]})
    assert refused.json()["message"] == "Failed to modify offsets for sink connector o"
    unknown = {"partition": {"kafka_topic": "none", "kafka_partition": 0}, "offset": {"kafka_offset": 1}}
    refused = http.patch("/connectors/o/offsets", json={"offsets": [unknown]})
    assert refused.json()["message"].startswith("Failed to alter consumer group offsets for connector o")
    assert http.get("/connectors/o/offsets").json() == kept
    typo = {"offsets": [{**committed[0], "ofset": {"kafka_offset": 0}}]}
    assert http.patch("/connectors/o/offsets", json=typo).status_code == 400
    reset = http.delete("/connectors/o/offsets").json()["message"]
    assert reset == "The offsets for this connector have been reset successfully"
    assert http.get("/connectors/o/offsets").json() == {"offsets": []}
    for name in ("i", "o"):
        http.put(f"/connectors/{name}/resume")
    # The source sends its second line again; the sink begins anew.
    wait_until(lambda: sorted(lines(copied)) == sorted(["one", "two", "one", "two", "two"]))


def test_every_line_is_there_once_though_lanes_are_lost(
    make_worker: MakeWorker, connect_broker: str, tmp_path: Path
) -> None:
    """From a file through a topic into a file, while lanes that run the tasks are cut off now and then."""
    written, copied = tmp_path / "in.txt", tmp_path / "out.txt"
    expected = [f"line {number}" for number in range(6000)]
    written.write_text("")
    worker = make_worker()
    worker.http.put("/connectors/i/config", json=source(written, "once", **{"batch.size": "50"}))
    worker.http.put("/connectors/o/config", json=sink(copied, "once"))
    with written.open("a") as file:
        # Twice: a unit that is in its turn each time its lane goes is soon held to be the reason.
        for start in range(0, len(expected), 3000):
            file.write("".join(f"{line}\n" for line in expected[start : start + 3000]))
            file.flush()
            wait_until(lambda start=start: len(lines(copied)) >= start)
            lost = next(iter(worker.host.lanes.lanes))
            worker.host.lanes.cut(lost)
            worker.host.lanes.add("here")
    wait_until(lambda: len(lines(copied)) >= len(expected))
    wait_until(lambda: worker.states("o") == ["RUNNING", "RUNNING"])
    assert [
        value.decode() for _, value in consume(connect_broker, "once", len(expected)) if value
    ] == expected
    assert lines(copied) == expected
