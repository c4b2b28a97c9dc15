"""The status topic: what is written of connectors that come, change and go."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.connect.herding import worker as herding
from millstream.connect.herding.statuses import StatusWriter
from millstream.connect.stores.config_state import Pair
from millstream.connect.stores.status_state import Status, StatusState, connector_status, task_status
from millstream.connect.stores.topic_store import TopicStore
from tests.connect.conftest import Worker
from tests.connect.test_worker import consume, source
from tests.support.waiting import wait_until

MakeWorker = Callable[..., Worker]


class Appended:
    def __init__(self) -> None:
        self.pairs: list[Pair] = []

    def append(self, pairs: list[Pair]) -> None:
        self.pairs += pairs


def status_topic(worker: Worker) -> dict[str, Any]:
    """The newest record of each key."""
    found: dict[str, Any] = {}

    def apply(key: bytes | None, value: bytes | None) -> None:
        found[(key or b"").decode()] = None if value is None else json.loads(value)

    store = TopicStore(worker.config.client, worker.topics["status"], apply)
    store.start()
    store.close()
    return found


def test_a_tombstone_of_another_worker_does_not_hide_what_this_one_says_after_it() -> None:
    """It hears of the connector's end late: it has said RUNNING, which the other's tombstone has overtaken in
    its view, not in the topic."""
    state, appended = StatusState(), Appended()
    writer = StatusWriter(state, appended, "here:1", lambda: 0, lambda: None)
    writer.connector("gone", "RUNNING")
    writer.task("gone", 0, "RUNNING")
    for key, value in (connector_status("gone", None), task_status("gone", 0, None)):
        state.apply(key, value)
    writer.flush()
    writer.forget("gone")
    writer.flush()
    assert dict(appended.pairs) == {b"status-connector-gone": None, b"status-task-gone-0": None}
    writer.forget("gone")
    writer.flush()
    assert len(appended.pairs) == 4, "nothing is left to be said"


def test_a_connector_that_ended_while_no_worker_was_there(make_worker: MakeWorker, tmp_path: Path) -> None:
    worker = make_worker()
    left = Status("RUNNING", "elsewhere:8083", 7)
    store = TopicStore(worker.config.client, worker.topics["status"], lambda _key, _value: None)
    store.start()
    worker.stop()
    store.append([connector_status("ghost", left), task_status("ghost", 0, left)])
    store.close()
    again = make_worker()
    wait_until(lambda: set(status_topic(again).values()) == {None})
    assert set(status_topic(again)) == {"status-connector-ghost", "status-task-ghost-0"}


def test_tasks_that_a_connector_has_no_more(make_worker: MakeWorker) -> None:
    worker = make_worker()
    config = {
        "connector.class": "Datagen",
        "quickstart": "users",
        "kafka.topic": "few",
        "max.interval": "60000",
    }
    for count in (3, 1):
        answer = worker.http.put("/connectors/g/config", json={**config, "tasks.max": str(count)})
        assert answer.status_code in (200, 201)
        wait_until(lambda count=count: worker.states("g") == ["RUNNING"] * (count + 1))
    wait_until(lambda: status_topic(worker)["status-task-g-2"] is None)
    found = status_topic(worker)
    assert found["status-task-g-1"] is None
    assert found["status-task-g-0"]["state"] == "RUNNING"


def test_a_task_that_ends_before_anybody_has_looked_at_its_topics(
    make_worker: MakeWorker, connect_broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(herding, "WATCH_SECONDS", 1e9)
    worker = make_worker()
    (tmp_path / "in.txt").write_text("one\n")
    settings = source(tmp_path / "in.txt", "soon-over")
    assert worker.http.put("/connectors/s/config", json=settings).status_code == 201
    assert len(consume(connect_broker, "soon-over", 1)) == 1
    assert worker.http.put("/connectors/s/stop").status_code == 204
    wait_until(lambda: worker.states("s") == ["STOPPED"])
    assert worker.http.get("/connectors/s/topics").json() == {"s": {"topics": ["soon-over"]}}
    assert worker.http.delete("/connectors/s").status_code == 204
    wait_until(lambda: set(status_topic(worker).values()) == {None})
    assert "status-topic-soon-over:connector-s" in status_topic(worker)


def test_topics_that_are_reset_come_back_with_the_next_record(
    make_worker: MakeWorker, connect_broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(herding, "WATCH_SECONDS", 0.05)
    worker = make_worker()
    file = tmp_path / "in.txt"
    file.write_text("one\n")
    assert worker.http.put("/connectors/r/config", json=source(file, "reset")).status_code == 201
    known = {"r": {"topics": ["reset"]}}
    wait_until(lambda: worker.http.get("/connectors/r/topics").json() == known)
    looks = counted(monkeypatch, worker)
    assert worker.http.put("/connectors/r/topics/reset").status_code == 202
    wait_until(lambda: looks["now"] > 5)
    assert worker.http.get("/connectors/r/topics").json() == {"r": {"topics": []}}
    with file.open("a") as more:
        more.write("two\n")
    wait_until(lambda: worker.http.get("/connectors/r/topics").json() == known)


def counted(monkeypatch: pytest.MonkeyPatch, worker: Worker) -> dict[str, int]:
    """How often the worker looks at what its tasks have done, from now on."""
    looks = {"now": 0}
    look = worker.herder.worker.tasks.all_states

    def count() -> Any:
        looks["now"] += 1
        return look()

    monkeypatch.setattr(worker.herder.worker.tasks, "all_states", count)
    return looks
