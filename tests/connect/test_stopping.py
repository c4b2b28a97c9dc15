"""A worker that stops while the servers of its connectors are away: it does not wait for each of them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.connect.herding import worker as herding
from tests.connect.conftest import Worker
from tests.support.waiting import wait_until

MakeWorker = Callable[..., Worker]
PLUGIN = '''
import threading
from millstream.connect import Source, setting

back = threading.Event()
inside, stopping = [], []

class Away(Source):
    """Neither its task nor the connector itself hears of its server."""
    number = setting(str)

    def read(self, partition, offset):
        inside.append(self.number)
        back.wait()
        return []

    def stop(self):
        stopping.append(self.number)
        back.wait()
'''
CONNECTORS = 4


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of a connector whose server comes back when the test is over."""
    (tmp_path / "away_company.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    module: Any = importlib.import_module("away_company")
    yield module
    module.back.set()
    del sys.modules["away_company"]


def started(make_worker: MakeWorker, away: Any, tmp_path: Path) -> Worker:
    """A worker with connectors that wait; tasks have half a second to end, connectors as long."""
    worker = make_worker(plugin_path=str(tmp_path), task_shutdown_graceful_timeout_ms="500")
    for number in range(CONNECTORS):
        settings = {"connector.class": "away_company.Away", "number": str(number)}
        assert worker.http.put(f"/connectors/a{number}/config", json=settings).status_code == 201
    wait_until(lambda: len(away.inside) == CONNECTORS)
    return worker


def test_a_worker_stops_all_its_connectors_in_the_time_of_one(
    make_worker: MakeWorker, away: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(herding, "CONNECTOR_STOP_SECONDS", 0.5)
    worker = started(make_worker, away, tmp_path)
    waits = counted_waits(monkeypatch, worker)
    worker.herder.worker.stop()
    assert waits == [CONNECTORS], "they had their time together"
    assert sorted(away.stopping) == [str(number) for number in range(CONNECTORS)]


def test_connectors_that_are_stopped_together_wait_together(
    make_worker: MakeWorker, away: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By requests, while the worker still waits for the first of them."""
    monkeypatch.setattr(herding, "CONNECTOR_STOP_SECONDS", 0.5)
    worker = started(make_worker, away, tmp_path)
    waits = counted_waits(monkeypatch, worker)
    for number in range(CONNECTORS):
        assert worker.http.put(f"/connectors/a{number}/stop").status_code == 204
    wait_until(lambda: all(worker.states(f"a{number}") == ["STOPPED"] for number in range(CONNECTORS)))
    assert sum(waits) == CONNECTORS
    assert len(waits) < CONNECTORS, "the first, and then all that were asked for meanwhile"


def counted_waits(monkeypatch: pytest.MonkeyPatch, worker: Worker) -> list[int]:
    """For how many connectors at a time the worker waits."""
    waits: list[int] = []
    remove = worker.host.remove_all

    def count(applications: Iterable[str], timeout: float) -> Any:
        leaving = list(applications)
        waits.append(len(leaving))
        return remove(leaving, timeout)

    monkeypatch.setattr(worker.host, "remove_all", count)
    return waits
