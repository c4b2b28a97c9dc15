"""A host in another process: what a service asks of it, and what happens when one of the two goes."""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from millstream.client import ClientConfig
from millstream.client.transaction_commits import TransactionCommit
from millstream.host.control import ControlServer, RemoteHost
from millstream.host.driver import connect
from millstream.host.link import Link, LinkClosed
from millstream.host.local import LocalHost
from millstream.host.metrics import MetricsPage, render
from millstream.host.planner_server import HostSettings
from millstream.host.unit import Application, LaneContext, UnitId, UnitState, UnitStatus
from millstream.wire.topic_partition import TopicPartition
from tests.support.waiting import wait_until

NOWHERE = ClientConfig.of("127.0.0.1:1")
SECRET = b"s" * 32


class Idle:
    """A unit that does nothing; it can be pickled by name, as services hand theirs over."""

    fetch_bytes, due, uncommitted, full = 1, None, False, False
    positions: Mapping[TopicPartition, int] = {}

    def __init__(self, name: str, _lane: LaneContext) -> None:
        if name == "bad":
            raise ValueError("not this one")
        self.status = UnitStatus(read=7, lag=3, state_bytes=11)

    def receive(self, fetched: Any) -> None: ...

    def poll(self) -> bool:
        return False

    def prepare_commit(self) -> TransactionCommit | None:
        return None

    def committed(self, commit: TransactionCommit | None) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...


def application(*names: str, id: str = "app") -> Application:
    return Application(id, NOWHERE, Idle, names)


class Far:
    """A host with a control server, and a host to it."""

    def __init__(self) -> None:
        self.local = LocalHost()
        self.server = ControlServer(self.local, SECRET)
        self.links: list[Link] = []
        self.remote = RemoteHost(self.connect)

    def connect(self) -> Link:
        link = Link.connect(self.server.address, self.server.port, SECRET)
        self.links.append(link)
        return link

    def close(self) -> None:
        self.remote.close()
        self.server.close()
        self.local.close()


@pytest.fixture
def far() -> Iterator[Far]:
    made = Far()
    yield made
    made.close()


def _running(states: Mapping[str, UnitState]) -> set[str]:
    return {name for name, state in states.items() if state.state == "running"}


def test_an_application_is_run_by_another_process(far: Far) -> None:
    reports: list[tuple[str, str]] = []

    def listener(unit_id: UnitId, state: UnitState) -> None:
        assert unit_id.name in far.remote.states("app")  # it may ask
        reports.append((unit_id.name, state.state))

    far.remote.add(application("a", "b"), listener)
    wait_until(lambda: _running(far.remote.states("app")) == {"a", "b"})
    wait_until(lambda: ("a", "running") in reports)
    wait_until(lambda: far.remote.states("app")["a"].status.read == 7)
    far.remote.set_units("app", ("b", "c"))
    wait_until(lambda: _running(far.remote.states("app")) == {"b", "c"})
    far.remote.restart("app", "c")
    wait_until(lambda: reports.count(("c", "running")) == 2)
    assert far.remote.remove("app", 30)
    assert far.local.states("app") == {}


def test_several_that_are_removed_tell_what_they_have_done(far: Far) -> None:
    for id in ("one", "other"):
        far.remote.add(application("a", "b", id=id))
        wait_until(lambda id=id: _running(far.remote.states(id)) == {"a", "b"})
    ended = far.remote.remove_all(["one", "other", "nobody"], 30)
    assert [one.in_time for one in ended.values()] == [True] * 3
    assert {name: set(one.statuses) for name, one in ended.items()} == {
        "one": {"a", "b"},
        "other": {"a", "b"},
        "nobody": set(),
    }
    assert ended["one"].statuses["a"].read == 7
    assert far.local.states("one") == far.local.states("other") == {}


def test_what_fails_there_is_told_here(far: Far) -> None:
    failed: list[UnitState] = []

    def listener(_unit_id: UnitId, state: UnitState) -> None:
        if state.error:
            failed.append(state)

    far.remote.add(application("bad"), listener)
    wait_until(lambda: failed)
    assert failed[0].error == "ValueError: not this one"
    assert "not this one" in failed[0].trace
    with pytest.raises(RuntimeError, match="not an application of this connection"):
        far.remote.restart("other", "x")


def test_a_service_that_is_gone_takes_its_applications_with_it(far: Far) -> None:
    far.remote.add(application("a"))
    wait_until(lambda: _running(far.local.states("app")) == {"a"})
    far.remote.close()
    wait_until(lambda: not far.local.states("app"))
    wait_until(lambda: far.server.idle_seconds > 0)


def test_a_host_that_is_gone_is_started_again_with_everything(far: Far) -> None:
    far.remote.add(application("a"))
    far.remote.add(application("b", id="other"))
    far.links[0].shut()
    wait_until(lambda: len(far.links) == 2)
    wait_until(lambda: _running(far.local.states("app")) == {"a"})
    wait_until(lambda: _running(far.local.states("other")) == {"b"})


def test_an_application_can_be_asked_for_and_removed_while_its_host_is_away(far: Far) -> None:
    assert far.remote.states("app") == {}
    far.remote.add(application("a"))
    wait_until(lambda: _running(far.remote.states("app")) == {"a"})
    refused = threading.Event()

    def away() -> Link:
        refused.set()
        raise LinkClosed("it does not start")

    far.remote._connect = away
    far.links[0].shut()
    wait_until(refused.is_set)
    assert far.remote.states("app") == {}
    assert far.remote.remove("app", 30)
    assert far.remote.states("app") == {}
    far.remote._connect = far.connect
    far.remote.add(application("b", id="other"))
    wait_until(lambda: _running(far.local.states("other")) == {"b"})
    assert far.remote.states("app") == far.local.states("app") == {}


def test_two_services_share_one_driver(tmp_path: Path, far: Far) -> None:
    """The second finds what the first has started: here, a process that only says where the host is."""
    (tmp_path / "where").write_bytes(pickle.dumps((far.server.address, far.server.port)))
    code = (
        "import pathlib, pickle, sys, time, types\n"
        "from millstream.host.driver import publish\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "address, port = pickle.loads((folder / 'where').read_bytes())\n"
        f"publish(folder, types.SimpleNamespace(address=address, port=port), {SECRET!r})\n"
        "(folder / 'started').open('a').write('x')\n"
    )
    command = (sys.executable, "-c", code)
    links: list[Link] = []
    threads = [threading.Thread(target=lambda: links.append(connect(tmp_path, command))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(links) == 3
    wait_until(lambda: (tmp_path / "started").exists())
    assert (tmp_path / "started").read_text() == "x"
    assert (tmp_path / "driver.json").stat().st_mode & 0o077 == 0
    for link in links:
        link.close()


def test_a_driver_that_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError, match=r"the driver has ended with 3: see .*driver\.log"):
        connect(tmp_path, (sys.executable, "-c", "raise SystemExit(3)"))


def test_metrics_of_units(far: Far) -> None:
    import urllib.request

    far.local.add(application("a"))
    wait_until(lambda: far.local.states("app")["a"].status.read == 7)
    page = MetricsPage("127.0.0.1:0", far.local)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{page.port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
    finally:
        page.close()
    assert text == render(far.local)
    assert 'millstream_host_unit_lag_records{application="app",unit="a"} 3' in text
    assert 'millstream_host_unit_state_bytes{application="app",unit="a"} 11' in text
    assert "millstream_host_lanes 2" in text


def test_many_applications_are_asked_with_one_call(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    far.remote.add(application("a"))
    far.remote.add(application("b", "c", id="other"))
    far.local.add(application("d", id="of somebody else"))
    sent = Link.send

    def send(link: Link, message: dict[str, Any]) -> None:
        if link is far.links[0] and "call" in message:
            calls.append(message["call"])
        sent(link, message)

    monkeypatch.setattr(Link, "send", send)
    found = far.remote.states_of(["app", "other", "of somebody else", "none"])
    assert {one: set(states) for one, states in found.items()} == {
        "app": {"a"},
        "other": {"b", "c"},
        "of somebody else": set(),
        "none": set(),
    }
    assert calls == ["states_of"]


def test_a_unit_that_does_nothing_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And again when it has done something."""
    units: dict[str, Idle] = {}
    reported: list[str] = []

    def open_unit(name: str, lane: LaneContext) -> Idle:
        units[name] = Idle(name, lane)
        return units[name]

    monkeypatch.setattr("millstream.host.lane.STATUS_EVERY", 0.02)
    host = LocalHost(HostSettings(lanes=1))
    update = host._update_status

    def note(unit: Any, status: dict[str, Any]) -> None:
        reported.append(unit[1])
        update(unit, status)

    monkeypatch.setattr(host, "_update_status", note)
    try:
        host.add(Application("app", NOWHERE, open_unit, ("a", "b")))
        wait_until(lambda: {"a", "b"} <= set(reported))
        reported.clear()
        units["b"].status.read += 1
        wait_until(lambda: host.states("app")["b"].status.read == 8)
        units["b"].status.metrics["more"] = 1.0
        wait_until(lambda: host.states("app")["b"].status.metrics == {"more": 1.0})
        assert (reported.count("a"), reported.count("b")) == (0, 2)
    finally:
        host.close()
