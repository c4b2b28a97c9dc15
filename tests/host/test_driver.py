"""A driver child with Spark in it: started by the first application, gone when nobody needs it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from millstream.host import driver as module
from millstream.host.driver import driver_host
from millstream.host.unit import UnitId, UnitState
from tests.host.test_control import application
from tests.support.waiting import wait_until


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


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
