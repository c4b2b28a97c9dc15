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
from millstream.host.unit import Application, LaneContext, UnitId, UnitState, UnitStatus
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
        self.hold: dict[str, threading.Event] = {}
        self.threads: dict[str, set[int]] = {}
        self.lock = threading.Lock()

    def note(self, what: str, name: str) -> None:
        with self.lock:
            self.events.append((what, name))

    def count(self, what: str, name: str | None = None) -> int:
        return sum(found == what and (name is None or of == name) for found, of in self.events)

    def application(self, *names: str, id: str = "app", **more: Any) -> Application:
        return Application(id, NOWHERE, lambda name, lane: FakeUnit(name, self, lane), names, **more)


class FakeUnit:
    """Works without input: `work` turns, each with something to commit."""

    fetch_bytes = 1

    def __init__(self, name: str, recorder: Recorder, lane: LaneContext) -> None:
        self._name, self._recorder, self.machine = name, recorder, lane.machine
        self.status = UnitStatus()
        self.uncommitted = self.full = False
        self.due = 0.0
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
        self._recorder.threads.setdefault(self._name, set()).add(threading.get_ident())
        self._fail("poll")
        if self._name in self._recorder.hold:
            self._recorder.note("hold", self._name)
            self._recorder.hold[self._name].wait(60)
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

    def make(*machines: str, retries: int = 2, unit_timeout: float = 30.0) -> LocalHost:
        settings = HostSettings(lanes=len(machines), unit_retries=retries, unit_timeout=unit_timeout)
        host = LocalHost(settings, machines)
        hosts.append(host)
        wait_until(lambda: host.lane_count == len(machines))
        return host

    yield make
    for host in hosts:
        host.close()


def _no(unit_id: UnitId, state: UnitState) -> None:
    if state.state == "failed":
        pytest.fail(f"{unit_id}: {state.error}")


class Listener:
    """What was reported of the units of an application."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, str]] = []
        self.failed: list[tuple[UnitId, UnitState]] = []

    def __call__(self, unit_id: UnitId, state: UnitState) -> None:
        self.reports.append((unit_id.name, state.state))
        if state.state == "failed":
            self.failed.append((unit_id, state))


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
    listener = Listener()
    recorder.fail["open 0_0"] = ValueError("never")
    host.add(recorder.application("0_0"), listener)
    wait_until(lambda: listener.failed)
    unit_id, state = listener.failed[0]
    assert (unit_id, state.error) == (UnitId("app", "0_0"), "ValueError: never")
    assert "_fail" in state.trace
    assert host.states("app")["0_0"].state == "failed"
    recorder.fail.clear()
    host.restart("app", "0_0")
    wait_until(lambda: listener.reports[-1] == ("0_0", "running"))


@pytest.mark.parametrize("when", ["open", "poll", "commit"])
def test_an_error_that_is_final_is_not_tried_again(
    recorder: Recorder, make_host: Callable[..., LocalHost], when: str
) -> None:
    host = make_host("m", retries=100)
    listener = Listener()
    recorder.work["0_0"] = 5
    recorder.fail[f"{when} 0_0"] = FinalError("a bad record")
    host.add(recorder.application("0_0"), listener)
    wait_until(lambda: listener.failed)
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


def test_a_unit_has_all_its_turns_in_one_thread(
    recorder: Recorder, make_host: Callable[..., LocalHost]
) -> None:
    host = make_host("m")
    recorder.work["0_0"] = 20
    host.add(recorder.application("0_0"), _no)
    wait_until(lambda: recorder.count("commit", "0_0") >= 2)
    assert len(recorder.threads["0_0"]) == 1


def test_a_unit_that_waits_holds_up_nobody(recorder: Recorder, make_host: Callable[..., LocalHost]) -> None:
    """It is opened, works, commits and ends in threads beside the loop; while one of its turns takes long,
    the other unit of the lane goes on."""
    host, gate = make_host("m"), threading.Event()
    recorder.work, recorder.hold = {"slow": 2, "quick": 1000}, {"slow": gate}
    host.add(recorder.application("slow", "quick", waiting=frozenset({"slow"})), _no)
    wait_until(lambda: recorder.count("hold", "slow") == 1)
    before = recorder.count("commit", "quick")
    wait_until(lambda: recorder.count("commit", "quick") > before + 2)
    assert recorder.count("commit", "slow") == 0
    gate.set()
    wait_until(lambda: recorder.count("commit", "slow") >= 1)
    assert not recorder.threads["slow"] & recorder.threads["quick"]
    assert host.remove("app", 30)
    assert recorder.count("close", "slow") == 1


@pytest.mark.parametrize("when", ["open", "poll", "commit"])
def test_what_goes_wrong_in_a_thread_is_the_units_own(
    recorder: Recorder, make_host: Callable[..., LocalHost], when: str
) -> None:
    host, listener = make_host("m"), Listener()
    recorder.work = {"slow": 5, "quick": 5}
    recorder.fail[f"{when} slow"] = FinalError("the server says no")
    host.add(recorder.application("slow", "quick", waiting=frozenset({"slow"})), listener)
    wait_until(lambda: listener.failed)
    assert listener.failed[0][1].error == "the server says no"
    assert recorder.count("open", "quick") == 1
    assert recorder.count("abandon", "slow") == (when != "open")


def test_a_waiting_unit_is_taken_away_while_it_has_a_turn(
    recorder: Recorder, make_host: Callable[..., LocalHost]
) -> None:
    host, gate = make_host("m"), threading.Event()
    recorder.work, recorder.hold = {"slow": 1}, {"slow": gate}
    host.add(recorder.application("slow", waiting=frozenset({"slow"})), _no)
    wait_until(lambda: recorder.count("hold", "slow") == 1)
    host.set_units("app", ())
    gate.set()
    wait_until(lambda: recorder.count("close", "slow") == 1)
    assert recorder.count("commit", "slow") == 1  # the last one


def test_a_new_version_replaces_all_units_of_its_application_and_no_others(
    recorder: Recorder, make_host: Callable[..., LocalHost]
) -> None:
    host, second = make_host("m", "m"), Recorder()
    host.add(recorder.application("0_0", "0_1"), _no)
    host.add(recorder.application("0_0", id="other"), _no)
    wait_until(lambda: (_running(host), _running(host, "other")) == (2, 1))
    host.add(second.application("0_0", "0_1", "0_2"), _no)
    wait_until(lambda: second.count("open") == 3 and _running(host) == 3)
    assert recorder.count("close") == 2
    assert recorder.count("open") == 3
    assert _running(host, "other") == 1


def test_one_unit_is_started_again(recorder: Recorder, make_host: Callable[..., LocalHost]) -> None:
    host, listener = make_host("m"), Listener()
    host.add(recorder.application("0_0", "0_1"), listener)
    wait_until(lambda: _running(host) == 2)
    host.restart("app", "0_1")
    wait_until(lambda: recorder.count("open", "0_1") == 2)
    assert recorder.count("open", "0_0") == 1
    wait_until(lambda: [state for name, state in listener.reports if name == "0_1"][-1] == "running")


@pytest.mark.parametrize("beside", [False, True])
def test_a_unit_that_does_not_come_back_is_run_alone_and_then_fails(
    recorder: Recorder, make_host: Callable[..., LocalHost], beside: bool
) -> None:
    host, listener, gate = make_host("m", "m", unit_timeout=0.2), Listener(), threading.Event()
    recorder.work, recorder.hold = {"quick": 10_000}, {"hangs": gate}
    waiting = frozenset({"hangs"}) if beside else frozenset()
    host.add(recorder.application("hangs", "quick", "too", waiting=waiting), listener)
    lanes = 2

    def failed() -> bool:
        nonlocal lanes
        if host.lane_count < 2 and lanes < 8:
            lanes += 1
            host.lanes.add("m")  # as Spark starts another worker
        return bool(listener.failed)

    try:
        wait_until(failed)
        assert "did not come back" in (listener.failed[0][1].error or "")
        assert recorder.count("hold", "hangs") == 3
        before = recorder.count("commit", "quick")
        wait_until(lambda: recorder.count("commit", "quick") > before + 2)
        assert {name for name, _ in listener.reports if (name, "failed") in listener.reports} == {"hangs"}
    finally:
        gate.set()


def test_a_lane_of_which_nothing_is_heard_is_gone(
    recorder: Recorder, make_host: Callable[..., LocalHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when its machine loses power: no connection ends then."""
    monkeypatch.setattr("millstream.host.planner_server.SILENCE", 2.0)
    monkeypatch.setattr("millstream.host.lane.PING_EVERY", 0.05)
    host = make_host("one", "two")
    host.add(recorder.application("0_0", "0_1"), _no)
    wait_until(lambda: _running(host) == 2)
    _, link, _ = host.lanes.lanes["local-0"]
    monkeypatch.setattr(link, "send", lambda _message: None)
    wait_until(lambda: {state.lane for state in host.states("app").values()} == {"local-1"})
    wait_until(lambda: _running(host) == 2)


def test_lanes_are_held_while_spark_waits_for_one_that_is_lost(
    recorder: Recorder, make_host: Callable[..., LocalHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task ends no batch, so there is no next one to renew the leases of the others."""
    monkeypatch.setattr("millstream.host.planner_server.SILENCE", 3.0)
    monkeypatch.setattr("millstream.host.planner_server.QUIET", 1.0)
    monkeypatch.setattr("millstream.host.lane.PING_EVERY", 0.05)
    host = make_host("one", "two")
    host.add(recorder.application("0_0", "0_1"), _no)
    wait_until(lambda: _running(host) == 2)
    _, link, _ = host.lanes.lanes["local-0"]
    other, _, thread = host.lanes.lanes["local-1"]
    assert not host.holds_lanes
    monkeypatch.setattr(link, "send", lambda _message: None)
    wait_until(lambda: other.held)
    other.lease.until = time.monotonic() + 0.2  # its task has ended
    wait_until(lambda: {state.lane for state in host.states("app").values()} == {"local-1"})
    wait_until(lambda: _running(host) == 2)
    assert other.lease.left > 0 and thread.is_alive()
    assert host.holds_lanes
    host.release_lanes(running_tasks=2)
    assert host.holds_lanes
    host.release_lanes(running_tasks=1)  # Spark has given the other one up
    wait_until(lambda: not other.held)
    host.lanes.add("three")
    wait_until(lambda: host.lane_count == 2)


def test_a_planner_that_was_stopped_keeps_its_lanes(
    recorder: Recorder, make_host: Callable[..., LocalHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has heard of no lane for longer than it waits for one, because it could not listen."""
    host = make_host("one", "two")
    host.add(recorder.application("0_0", "0_1"), _no)
    wait_until(lambda: _running(host) == 2)
    lanes = {state.lane for state in host.states("app").values()}
    heard, late, looks = host._heard, 0.0, 0

    class Clock:
        @staticmethod
        def monotonic() -> float:
            nonlocal looks
            looks += threading.current_thread().name == "host-planner_keep_time"
            return time.monotonic() + late

    monkeypatch.setattr(host, "_heard", lambda _lane, _message: None)
    monkeypatch.setattr("millstream.host.planner_server.time", Clock)
    late, before = 60.0, looks
    wait_until(lambda: looks >= before + 2)
    monkeypatch.setattr(host, "_heard", heard)
    assert host.lane_count == 2
    assert {state.lane for state in host.states("app").values()} == lanes


def test_a_lane_with_other_software_is_refused(
    recorder: Recorder, make_host: Callable[..., LocalHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on an executor where another version is installed. The others go on."""
    host = make_host("m")
    monkeypatch.setattr("millstream.host.lane.SOFTWARE", "Millstream 0.0.1 on Python 2.7")
    name = host.lanes.add("elsewhere")
    lane, _, thread = host.lanes.lanes[name]
    thread.join(30)
    assert lane.refused is not None
    assert lane.refused.startswith("elsewhere has Millstream 0.0.1 on Python 2.7, the driver has Millstream ")
    assert host.lane_count == 1
