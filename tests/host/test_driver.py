"""A driver child with Spark in it: started by the first application, gone when nobody needs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from millstream.host import driver as module
from millstream.host.call_server import CallServer
from millstream.host.driver import driver_host, wait_until_unneeded
from millstream.host.unit import UnitId, UnitState
from tests.host.test_control import application
from tests.support.waiting import wait_until


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_driver_ends_with_its_jvm() -> None:
    """Services are connected, and would wait for ever for a driver that cannot run anything."""
    server = cast(CallServer, SimpleNamespace(idle_seconds=0.0))
    jvm = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    found: list[int | None] = []
    waiting = threading.Thread(target=lambda: found.append(wait_until_unneeded(server, jvm, [])))
    waiting.start()
    try:
        assert not found
    finally:
        jvm.kill()
        jvm.wait()
    waiting.join(60)
    assert found == [-signal.SIGKILL]
    assert wait_until_unneeded(server, None, [signal.SIGTERM]) is None
    idle = cast(CallServer, SimpleNamespace(idle_seconds=module.IDLE_SECONDS))
    assert wait_until_unneeded(idle, None, []) is None


@pytest.mark.spark
def test_a_driver_child(tmp_path: Path) -> None:
    settings = {"spark.master": "local[2]", "spark.driver.memory": "512m", "spark.millstream.host.lanes": "1"}
    reports: list[tuple[str, str]] = []

    def listener(unit_id: UnitId, state: UnitState) -> None:
        reports.append((unit_id.name, state.state))

    host = driver_host(tmp_path, settings)
    assert not (tmp_path / "driver.json").exists()
    try:
        host.add(application("a"), listener)
        wait_until(lambda: ("a", "running") in reports, patience=120)
        first = json.loads((tmp_path / "driver.json").read_text())["pid"]
        os.kill(first, signal.SIGKILL)
        reports.clear()
        wait_until(lambda: ("a", "running") in reports, "the application does not run again", patience=120)
        second = json.loads((tmp_path / "driver.json").read_text())["pid"]
        assert second != first
        assert host.states("app")["a"].state == "running"
    finally:
        host.close()
    wait_until(lambda: not _alive(second), "the driver does not end", patience=module.IDLE_SECONDS + 60)
    assert not (tmp_path / "driver.json").exists()
