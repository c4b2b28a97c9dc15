"""Which task a worker goes on with."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.client import ClientConfig
from millstream.streams import StreamsBuilder, Topology
from millstream.streams.runtime import worker
from millstream.streams.runtime.assignments import StreamsConfig, TaskAssignment, TaskResult
from millstream.streams.task import Errors


class Runner:
    """A task that does nothing."""

    is_current = True
    made: list[Runner]

    def __init__(self, settings: StreamsConfig, topology: Topology, *_: int) -> None:
        self.settings, self.topology, self.closed = settings, topology, False
        self.made.append(self)

    def run(self, _assignment: TaskAssignment) -> TaskResult:
        assert not self.closed
        return TaskResult(0, 0)

    def close(self) -> None:
        self.closed = True


def _settings() -> StreamsConfig:
    return StreamsConfig("app", ClientConfig.of("127.0.0.1:1"), "/nowhere", Errors())


def _topology(target: str) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").to(target)
    return builder.build()


def test_a_new_topology_gets_a_new_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's Python workers outlive a query: the next start of the application may be another version of
    it."""
    made: list[Any] = []
    monkeypatch.setattr(Runner, "made", made, raising=False)
    monkeypatch.setattr(worker, "TaskRunner", Runner)
    monkeypatch.setattr(worker, "_runners", {})
    settings, old, new, assignment = _settings(), _topology("a"), _topology("b"), TaskAssignment(0, 0, ())
    for _ in range(2):
        worker.run_assignment(settings, old, assignment)
    assert len(made) == 1
    worker.run_assignment(settings, new, assignment)
    assert [(runner.topology, runner.closed) for runner in made] == [(old, True), (new, False)]
    # Another way to reach the cluster, other errors to go on after.
    worker.run_assignment(_settings(), new, assignment)
    assert [runner.closed for runner in made] == [True, True, False]
    made[-1].is_current = False
    worker.run_assignment(made[-1].settings, new, assignment)
    assert [runner.closed for runner in made] == [True, True, True, False]
    monkeypatch.undo()
