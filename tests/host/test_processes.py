"""Lanes in processes of their own, and a unit that ends them."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.client import ClientConfig
from millstream.host.planner_server import HostSettings, PlannerServer
from millstream.host.unit import Application, LaneContext, UnitId, UnitState
from tests.host.test_control import Idle
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
_LANE = """
import sys
from millstream.host.lane import Lane, Lease
from millstream.host.link import Link

link = Link.connect("127.0.0.1", int(sys.argv[1]), bytes.fromhex(sys.argv[2]))
Lane(link, "here", Lease(1e9)).run(sys.argv[3])
"""


class Quick(Idle):
    """A unit that is polled again and again; the bad one ends its process."""

    def __init__(self, name: str, lane: LaneContext) -> None:
        super().__init__(name, lane)
        self._name = name

    due = 0.0  # type: ignore[assignment]

    def poll(self) -> bool:
        if self._name == "deadly":
            os._exit(9)
        threading.Event().wait(0.001)
        return False


class Lanes:
    """Processes that are started again when they end, as Spark's workers are."""

    def __init__(self, server: PlannerServer, count: int) -> None:
        self._server = server
        self._numbers = itertools.count(1)
        self.started = 0
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._keep) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _keep(self) -> None:
        while not self._ended.is_set():
            self.started = number = next(self._numbers)
            arguments = [str(self._server.port), self._server.secret.hex(), f"lane-{number}"]
            process = subprocess.Popen([sys.executable, "-c", _LANE, *arguments], cwd=ROOT)
            while process.poll() is None and not self._ended.wait(0.01):
                pass
            process.kill()
            process.wait()

    def close(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def server() -> Iterator[PlannerServer]:
    found = PlannerServer(HostSettings(lanes=2))
    yield found
    found.end(0.0)


@pytest.mark.parametrize("waiting", [frozenset(), frozenset({"deadly"})])
def test_a_unit_that_ends_its_process_again_and_again(server: PlannerServer, waiting: frozenset[str]) -> None:
    """It is found out, run alone, and has failed; whoever happened to be its neighbour runs on."""
    reports: list[tuple[str, UnitState]] = []

    def listener(unit_id: UnitId, state: UnitState) -> None:
        reports.append((unit_id.name, state))

    names = ("deadly", "one", "two", "three")
    lanes = Lanes(server, 2)
    try:
        server.add(
            Application("app", ClientConfig.of("127.0.0.1:1"), Quick, names, waiting=waiting), listener
        )
        wait_until(lambda: any(state.state == "failed" for _, state in reports))
        (failed,) = {name for name, state in reports if state.state == "failed"}
        assert failed == "deadly"
        assert "its process has ended in its turn" in (server.states("app")["deadly"].error or "")
        wait_until(
            lambda: all(
                state.state == "running" for name, state in server.states("app").items() if name != "deadly"
            )
        )
        assert 2 + 4 <= lanes.started <= 2 + 7
    finally:
        lanes.close()
