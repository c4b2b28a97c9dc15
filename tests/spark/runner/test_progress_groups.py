"""The lag of every query as that of a consumer group."""

from types import SimpleNamespace
from typing import Any

import pytest

from millstream.client import ClientConfig
from millstream.spark.runner import progress_groups
from millstream.spark.runner.progress_groups import GroupOffsets, group_of
from millstream.spark.runner.run import Options, _Process
from millstream.spark.runner.status_records import QueryStatus, Status
from millstream.wire.errors import ErrorCode, KafkaError

REFUSED = KafkaError(ErrorCode.group_authorization_failed, "not allowed")
LOADING = KafkaError(ErrorCode.coordinator_load_in_progress, "loading")


class Coordinator:
    """Takes down what is committed, and answers with `problem`."""

    def __init__(self) -> None:
        self.committed: list[tuple[str, dict[tuple[str, int], int]]] = []
        self.problem: KafkaError | None = None

    def commit(self, group: str, offsets: dict[tuple[str, int], int]) -> dict[Any, KafkaError | None]:
        self.committed.append((group, offsets))
        if self.problem is LOADING:
            raise LOADING
        return dict.fromkeys(offsets, self.problem)


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    made = Coordinator()
    monkeypatch.setattr(progress_groups, "Groups", lambda cluster, timeout: made)
    return made


def status(offset: int) -> Status:
    queries = [
        QueryStatus("p", offsets={"a": {"0": offset, "1": 0}}),
        QueryStatus("q", offsets={"a": {"0": 1}}),
    ]
    return Status("p", "run", queries=[*queries, QueryStatus("idle")])


def test_a_group_for_each_query(coordinator: Coordinator) -> None:
    offsets = GroupOffsets(None)  # type: ignore[arg-type]
    assert offsets.commit(status(5)) == []
    assert coordinator.committed == [
        ("pipeline-p", {("a", 0): 5, ("a", 1): 0}),
        ("pipeline-p:q", {("a", 0): 1}),
    ]
    offsets.commit(status(5))
    assert len(coordinator.committed) == 2  # nothing new
    offsets.commit(status(6))
    assert coordinator.committed[2:] == [("pipeline-p", {("a", 0): 6, ("a", 1): 0})]


def test_names_do_not_meet() -> None:
    named = {group_of(p, q) for p, q in (("a", "a"), ("a", "b"), ("a-b", "a-b"), ("a", "a-b"))}
    assert len(named) == 4


@pytest.mark.parametrize(("problem", "tries"), [(REFUSED, 1), (LOADING, 3)])
def test_trouble_is_said_once(coordinator: Coordinator, problem: KafkaError, tries: int) -> None:
    coordinator.problem = problem
    offsets = GroupOffsets(None)  # type: ignore[arg-type]
    one = status(5)
    one.queries = one.queries[:1]
    said = [line for _ in range(3) for line in offsets.commit(one)]
    assert said == [f"its lag does not show as group pipeline-p: {problem.message}"]
    assert len(coordinator.committed) == tries  # what does not pass is not tried again with the same offsets


def test_the_runner_commits_with_each_report(coordinator: Coordinator) -> None:
    coordinator.problem = REFUSED
    published: list[Status] = []
    notes: list[str] = []
    status_topic: Any = SimpleNamespace(
        groups=GroupOffsets(None),  # type: ignore[arg-type]
        ends_of=lambda offsets: {("a", 0): 9, ("a", 1): 0},
        publish=published.append,
    )
    screen: Any = SimpleNamespace(message=notes.append)
    options = Options([], "h:1", ClientConfig.of("h:1"))
    _Process(options, {}, status_topic, screen)._publish(status(5))
    assert [one.queries[0].lag for one in published] == [4]
    assert [group for group, _ in coordinator.committed] == ["pipeline-p", "pipeline-p:q"]
    assert notes[0] == "Pipeline p: its lag does not show as group pipeline-p: not allowed"
