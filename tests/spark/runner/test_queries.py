"""When a pipeline is started again. No Spark: queries that fail when they are told to."""

import json
from typing import Any

import pytest

from millstream.spark.errors import PipelineError
from millstream.spark.runner import queries
from millstream.spark.runner.pipeline_file import Settings
from millstream.spark.runner.queries import GOOD_BATCHES, Listener, Queries, _CalledByJava
from millstream.spark.runner.status_records import FAILED, RUNNING, STARTING, Status

REPORT = {"batchId": 1, "numInputRows": 1}


class Query:
    """A started query."""

    def __init__(self) -> None:
        self.id, self.runId = "id", "run"
        self.error: Exception | None = None

    @property
    def isActive(self) -> bool:
        return self.error is None

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None: ...

    def awaitTermination(self) -> None: ...


class App:
    def __init__(self) -> None:
        self.query = Query()
        self.broken = False

    def build(self, spark: Any, settings: Settings) -> dict[str, Any]:
        if self.broken:
            raise PipelineError("the brokers are away")
        self.query = Query()
        return {"q": self.query}


class Spark:
    @property
    def sparkContext(self) -> "Spark":
        return self

    def setLocalProperty(self, *_: str) -> None: ...


class Pipeline:
    """A pipeline with `restarts` restarts, in its first start."""

    def __init__(self, restarts: int) -> None:
        self.app = App()
        settings = Settings("p", {}, "h:1", "", "/nowhere")
        app: Any = self.app
        self.settled: list[set[str]] = []
        self.queries = Queries(
            app,
            Spark(),
            settings,
            Status("p", "r"),
            Listener(),
            restarts=restarts,
            settle=lambda ids: self.settled.append(set(ids)),
        )
        self.queries.start()

    def batches(self, count: int) -> None:
        for _ in range(count):
            self.queries.progressed("q", REPORT)

    def fail(self) -> str:
        """The state after a failure and, if it was to be tried again, after that."""
        self.app.query.error = ValueError("boom")
        self.queries.check()
        return self.again()

    def again(self) -> str:
        if self.queries.status.state == STARTING:
            self.queries._again_at = 0
            self.queries.check()
        return self.queries.status.state


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "FIRST_PAUSE", 0.0)


def test_one_that_never_worked_is_not_started_again() -> None:
    assert Pipeline(restarts=3).fail() == FAILED


def test_one_that_has_worked_may_fail_in_its_first_batch_after_a_restart() -> None:
    pipeline = Pipeline(restarts=2)
    pipeline.batches(1)
    assert [pipeline.fail() for _ in range(3)] == [RUNNING, RUNNING, FAILED]


def test_good_batches_earn_all_restarts_again() -> None:
    pipeline = Pipeline(restarts=1)
    for _ in range(3):
        pipeline.batches(GOOD_BATCHES + 1)
        assert pipeline.fail() == RUNNING
    pipeline.batches(GOOD_BATCHES)
    assert pipeline.fail() == FAILED
    assert pipeline.queries.status.restarts == 3


def test_starts_that_fail_do_not_earn_any() -> None:
    pipeline = Pipeline(restarts=2)
    pipeline.batches(GOOD_BATCHES + 1)
    pipeline.app.broken = True
    assert pipeline.fail() == STARTING
    assert pipeline.again() == FAILED
    assert pipeline.queries.status.last_error == "the brokers are away"


def test_what_a_pipeline_left_open_is_ended_when_nobody_starts_it_again() -> None:
    pipeline = Pipeline(restarts=1)
    pipeline.batches(1)
    assert pipeline.fail() == RUNNING
    assert pipeline.settled == []
    assert pipeline.fail() == FAILED
    assert pipeline.settled == [{"id"}]
    pipeline.queries.stop(0)
    assert pipeline.settled == [{"id"}]

    lost = Pipeline(restarts=1)
    lost.queries.fail("the JVM is gone")
    assert lost.settled == [{"id"}]


def test_a_report_comes_as_the_jvm_calls_it() -> None:
    """As its JSON, and to the query whose run it is."""

    class Java:
        def __init__(self, run_id: str) -> None:
            self.run_id = run_id

        def progress(self) -> "Java":
            return self

        def json(self) -> str:
            return json.dumps({"runId": self.run_id, "batchId": 7})

    class Owner:
        def __init__(self) -> None:
            self.reported: list[tuple[str, int]] = []

        def progressed(self, name: str, progress: dict[str, Any]) -> None:
            self.reported.append((name, progress["batchId"]))

    listener, owner = Listener(), Owner()
    listener.own("run-1", owner, "audit")  # type: ignore[arg-type]
    called = _CalledByJava(listener)
    called.onQueryProgress(Java("run-1"))
    called.onQueryProgress(Java("another"))
    called.onQueryStarted(Java("run-1"))
    assert owner.reported == [("audit", 7)]
