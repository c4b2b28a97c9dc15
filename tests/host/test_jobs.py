"""The jobs of Spark whose tasks are lanes: one after the other, until one fails or the host ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install millstream[pipelines])")

from py4j.protocol import Py4JJavaError
from pyspark import cloudpickle

from millstream.client import ClientConfig
from millstream.host import source
from millstream.host.planner_server import HostSettings, PlannerServer
from millstream.host.source import LaneJobs
from millstream.host.unit import Application
from tests.host.test_control import Idle
from tests.spark.conftest import spark
from tests.support.waiting import wait_until

__all__ = ["spark"]


class _Failure(Py4JJavaError):  # type: ignore[misc]
    """As py4j raises it, without a gateway to ask."""

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)
        self.java_exception = SimpleNamespace(getMessage=lambda: message)


class _Job:
    def __init__(self) -> None:
        self.done = self.cancelled = False
        self.failure: str | None = None

    def isDone(self) -> bool:
        return self.done

    def get(self) -> list[bytes]:
        if self.failure is not None:
            raise _Failure(self.failure)
        return []

    def cancel(self, _: bool) -> None:
        self.cancelled = True


@pytest.fixture
def server() -> Any:
    found = PlannerServer(
        HostSettings(lanes=1, batch_seconds=0.2, first_batch_seconds=0.2), pack=cloudpickle.dumps
    )
    yield found
    found.end(0.0)


@pytest.fixture
def begun(
    server: PlannerServer, monkeypatch: pytest.MonkeyPatch
) -> tuple[LaneJobs, list[tuple[int, int, _Job]]]:
    """Jobs that no Spark runs, and those that were begun: their number, their lanes."""
    found: list[tuple[int, int, _Job]] = []

    def submit(number: int, lanes: int) -> _Job:
        found.append((number, lanes, _Job()))
        return found[-1][2]

    jobs = LaneJobs(SimpleNamespace(sparkContext=None), server)  # type: ignore[arg-type]
    monkeypatch.setattr(jobs, "_submit", submit)
    return jobs, found


def test_a_job_follows_when_the_last_one_is_over(server: PlannerServer, begun: Any) -> None:
    jobs, found = begun
    assert jobs.run()
    assert jobs.run()
    assert [one[:2] for one in found] == [(1, 1)]
    server.settings.lanes = 3  # executors have come
    found[0][2].done = True
    assert jobs.run()
    assert [one[:2] for one in found] == [(1, 1), (2, 3)]


def test_a_failed_job_says_why_in_one_line(begun: Any) -> None:
    jobs, found = begun
    jobs.run()
    found[0][2].done, found[0][2].failure = True, "Task 0 failed 4 times\nDriver stacktrace:"
    assert not jobs.run()
    assert not jobs.run()
    assert len(found) == 1
    assert jobs.error == "Task 0 failed 4 times"


def test_no_job_follows_after_the_end(begun: Any) -> None:
    jobs, found = begun
    jobs.run()
    jobs.stop()
    assert found[0][2].cancelled
    found[0][2].done = True
    jobs.run()
    assert len(found) == 1


def test_a_task_stays_while_the_planner_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process is stopped, so that no job would follow: the lane keeps task and lease until it goes on."""
    answers = [True, True, False]
    monkeypatch.setattr(source, "is_silent", lambda _: answers.pop(0))
    monkeypatch.setattr(source, "_ASK_AGAIN", 0.0)
    lane: Any = object.__new__(source._LaneThread)
    renewed: list[float] = []
    lane._options, lane._grace = {}, 3.0
    lane._lease = SimpleNamespace(renew=renewed.append)
    lane._lane = SimpleNamespace(held=False, refused=None)
    lane._thread = SimpleNamespace(is_alive=lambda: True)
    lane.keep(0.0)
    assert answers == []
    assert max(renewed) > source.HANDSHAKE_SECONDS  # it does not end while it asks


@pytest.mark.timeout(600)
def test_the_next_job_finds_the_lane_of_the_last(spark: Any, server: PlannerServer) -> None:
    server.add(Application("app", ClientConfig.of("127.0.0.1:1"), Idle, ("one",)))
    jobs = LaneJobs(spark, server)
    try:
        wait_until(lambda: jobs.run() and server.states("app")["one"].state == "running", lambda: jobs.error)
        lane = server.states("app")["one"].lane
        first = jobs._number
        wait_until(lambda: jobs.run() and jobs._number >= first + 3, lambda: jobs.error)
        assert server.states("app")["one"].lane == lane
        # Nothing of it is a query that a user would find among theirs.
        assert not any(query.name and "millstream-host" in query.name for query in spark.streams.active)
    finally:
        server.end(30.0)
        jobs.stop()
    wait_until(lambda: jobs._job is None or jobs._job.isDone())
