"""Lanes and planner together, with units that only say what happens to them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from millstream.client import ClientConfig
from millstream.client.transaction_commits import TransactionCommit
from millstream.host.errors import FinalError
from millstream.host.local import LocalHost
from millstream.host.planner_server import HostSettings
from millstream.host.unit import Application, LaneContext, UnitId, UnitStatus
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition
from tests.support.waiting import wait_until

NOWHERE = ClientConfig.of("127.0.0.1:1")


class Recorder:
    """What happened to the units of a test, and what is to happen."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.fail: dict[str, Exception] = {}
        self.work: dict[str, int] = {}
        self.lock = threading.Lock()

    def note(self, what: str, name: str) -> None:
        with self.lock:
            self.events.append((what, name))

    def count(self, what: str, name: str | None = None) -> int:
        return sum(found == what and (name is None or of == name) for found, of in self.events)

    def application(self, *names: str, id: str = "app") -> Application:
        return Application(id, NOWHERE, lambda name, lane: FakeUnit(name, self, lane), names)


class FakeUnit:
    """Works without input: `work` turns, each with something to commit."""

    fetch_bytes = 1

    def __init__(self, name: str, recorder: Recorder, lane: LaneContext) -> None:
        self._name, self._recorder, self.machine = name, recorder, lane.machine
        self.status = UnitStatus()
        self.uncommitted = self.full = False
        self.due = 0.0
        self.thread = threading.get_ident()
        self._fail("open")
        recorder.note("open", name)

    def _fail(self, when: str) -> None:
        error = self._recorder.fail.get(f"{when} {self._name}")
        if error is not None:
            raise error

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        return {}

    def receive(self, fetched: Any) -> None:
        raise AssertionError("nothing is fetched")

    def poll(self) -> bool:
        assert threading.get_ident() == self.thread
        self._fail("poll")
        self.due = time.monotonic() + 0.01
        if self._recorder.work.get(self._name, 0) > self.status.read:
            self.status.read += 1
            self.uncommitted = True
        return False

    def prepare_commit(self) -> TransactionCommit | None:
        self._fail("commit")
        return None

    def committed(self, commit: TransactionCommit | None) -> None:
        self.uncommitted = False
        self.status.commits += 1
        self._recorder.note("commit", self._name)

    def close(self) -> None:
        self._recorder.note("close", self._name)

    def abandon(self) -> None:
        self._recorder.note("abandon", self._name)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def make_host() -> Iterator[Callable[..., LocalHost]]:
    hosts: list[LocalHost] = []

    def make(*machines: str, retries: int = 2) -> LocalHost:
        host = LocalHost(HostSettings(lanes=len(machines), unit_retries=retries), machines)
        hosts.append(host)
        wait_until(lambda: host.lane_count == len(machines))
        return host

    yield make
    for host in hosts:
        host.close()


def _no(*_: Any) -> None:
    raise AssertionError("no unit fails here")


def _running(host: LocalHost, application: str = "app") -> int:
    return sum(state == "running" for state, *_ in host.states(application).values())


def test_units_run_and_end_with_a_last_commit(
    recorder: Recorder, make_host: Callable[..., LocalHost]
) -> None:
    host = make_host("m", "m")
    recorder.work = {"0_0": 3, "0_1": 3}
    host.add(recorder.application("0_0", "0_1"), _no)
    wait_until(lambda: recorder.count("commit", "0_0") and recorder.count("commit", "0_1"))
    wait_until(lambda: {lane for _, lane, *_ in host.states("app").values()} == {"local-0", "local-1"})
    assert host.remove("app", 30)
    assert recorder.count("close") == 2
    assert host.statuses("app")["0_0"].read >= 1


def test_a_lane_that_is_cut_off_loses_its_units_to_the_others(
    recorder: Recorder, make_host: Callable[..., LocalHost]
) -> None:
    host = make_host("m", "m")
    host.add(recorder.application("0_0", "0_1", "0_2"), _no)
    wait_until(lambda: _running(host) == 3)
    host.lanes.cut("local-0")
    wait_until(lambda: {lane for _, lane, *_ in host.states("app").values()} == {"local-1"})
    wait_until(lambda: _running(host) == 3)
    assert recorder.count("close") >= 1  # the lane that was cut off has noticed
    host.lanes.add("m")
    wait_until(lambda: len({lane for _, lane, *_ in host.states("app").values()}) == 2)
    wait_until(lambda: _running(host) == 3)


def test_a_failing_unit_is_tried_again_and_leaves_its_neighbours_alone(
    recorder: Recorder, make_host: Callable[..., LocalHost]
) -> None:
    host = make_host("m")
    recorder.fail["poll 0_0"] = ValueError("not now")
    host.add(recorder.application("0_0", "0_1"), _no)
    wait_until(lambda: recorder.count("abandon", "0_0") == 1)
    wait_until(lambda: host.states("app")["0_0"][2] == "ValueError: not now")
    recorder.fail.clear()
    wait_until(lambda: _running(host) == 2)
    assert recorder.count("open", "0_1") == 1


def test_a_unit_that_never_works_fails_for_good(
    recorder: Recorder, make_host: Callable[..., LocalHost]
) -> None:
    host = make_host("m", retries=1)
    failed: list[tuple[UnitId, str, str]] = []
    recorder.fail["open 0_0"] = ValueError("never")
    host.add(recorder.application("0_0"), lambda *what: failed.append(what))
    wait_until(lambda: failed)
    unit_id, error, trace = failed[0]
    assert (unit_id, error) == (UnitId("app", "0_0"), "ValueError: never")
    assert "_fail" in trace
    assert host.states("app")["0_0"][0] == "failed"


@pytest.mark.parametrize("when", ["open", "poll", "commit"])
def test_an_error_that_is_final_is_not_tried_again(
    recorder: Recorder, make_host: Callable[..., LocalHost], when: str
) -> None:
    host = make_host("m", retries=100)
    failed: list[Any] = []
    recorder.work["0_0"] = 5
    recorder.fail[f"{when} 0_0"] = FinalError("a bad record")
    host.add(recorder.application("0_0"), lambda *what: failed.append(what))
    wait_until(lambda: failed)
    assert recorder.count("open", "0_0") == (when != "open")


def test_a_fenced_unit_has_not_failed(recorder: Recorder, make_host: Callable[..., LocalHost]) -> None:
    host = make_host("m", retries=0)
    recorder.work["0_0"] = 1
    recorder.fail["commit 0_0"] = KafkaError(ErrorCode.producer_fenced, "someone else has it")
    host.add(recorder.application("0_0"), _no)
    wait_until(lambda: recorder.count("abandon", "0_0") >= 2)
    recorder.fail.clear()
    wait_until(lambda: recorder.count("commit", "0_0") == 1)


def test_two_applications_share_the_lanes(recorder: Recorder, make_host: Callable[..., LocalHost]) -> None:
    host = make_host("m")
    host.add(recorder.application("0_0"), _no)
    host.add(recorder.application("0_0", "0_1", id="other"), _no)
    wait_until(lambda: (_running(host), _running(host, "other")) == (1, 2))
    assert host.remove("app", 30)
    assert _running(host, "other") == 2
    assert recorder.count("close") == 1


def test_units_are_added_to_an_application_that_runs(
    recorder: Recorder, make_host: Callable[..., LocalHost]
) -> None:
    host = make_host("m")
    host.add(recorder.application("0_0"), _no)
    wait_until(lambda: _running(host) == 1)
    host.set_units("app", ("0_0", "0_1"), frozenset())
    wait_until(lambda: _running(host) == 2)
    assert recorder.count("open", "0_0") == 1


def test_lanes_end_with_their_planner(recorder: Recorder, make_host: Callable[..., LocalHost]) -> None:
    host = make_host("m", "m")
    host.add(recorder.application("0_0", "0_1"), _no)
    wait_until(lambda: _running(host) == 2)
    threads = [thread for _, _, thread in host.lanes.lanes.values()]
    assert host.end()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert recorder.count("close") == 2
