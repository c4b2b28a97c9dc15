"""How many lanes a host has: room for jobs of Spark beside them, on this machine and on a cluster."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.host.host import lanes_for


def _session(master: str, slots: int, given: str | None = None) -> Any:
    conf = {} if given is None else {"spark.millstream.host.lanes": given}
    context = SimpleNamespace(master=master, defaultParallelism=slots, getConf=lambda: conf)
    return SimpleNamespace(sparkContext=context)


@pytest.mark.parametrize(
    ("master", "slots", "lanes"),
    [
        ("local[1]", 1, 1),
        ("local[2]", 2, 1),
        ("spark://one:7077", 2, 1),
        ("spark://one:7077", 4, 3),
        ("yarn", 8, 6),
        ("k8s://https://one", 40, 30),
        ("spark://one:7077", 1, 1),
    ],
)
def test_some_slots_are_left_to_spark(master: str, slots: int, lanes: int) -> None:
    assert lanes_for(_session(master, slots)) == lanes


def test_no_more_lanes_than_cores_on_this_machine() -> None:
    cores = os.cpu_count() or 1
    assert lanes_for(_session("local[100]", 100)) == min(50, cores)


def test_the_setting_wins() -> None:
    assert lanes_for(_session("spark://one:7077", 8, "8")) == 8
