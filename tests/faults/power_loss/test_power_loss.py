"""A short run over crash points, and proof that the checker can find something. The long
one is `make power-loss`."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from . import trace, workload
from .run import crash, first_promise

POINTS = 25


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> list[trace.Entry]:
    return trace.read(workload.record(tmp_path_factory.mktemp("recorded"), seconds=3))


def _points(entries: Sequence[trace.Entry], count: int) -> list[int]:
    return random.Random(7).sample(range(first_promise(entries), len(entries)), count)


def test_the_load_does_all_that_can_go_wrong(entries: list[trace.Entry]) -> None:
    done = [entry.what for entry in entries]
    acknowledged = {each["what"] for each in done if each["do"] == "ack"}
    assert acknowledged >= {"record", "committed", "aborted", "offset", "created", "deleted", "config"}
    names = [each["to"] for each in done if each["do"] == "rename"]
    assert any(name.endswith("metadata.log") for name in names), "no metadata snapshot was taken"
    assert any(name.endswith(".log.swap") for name in names), "nothing was compacted"
    rolled = [each for each in done if each["do"] == "create" and each["name"].endswith(".log")]
    assert len(rolled) > 3 * workload.PARTITIONS, "no segment was rolled"


def test_what_was_promised_survives_a_power_failure(entries: list[trace.Entry], tmp_path: Path) -> None:
    for number, model, problems in crash(entries, _points(entries, POINTS), 7, tmp_path):
        assert problems == [], f"power lost after entry {number}, {model} model"


def test_a_broker_that_never_synced_would_be_found_out(entries: list[trace.Entry], tmp_path: Path) -> None:
    late = [point for point in _points(entries, 60) if point > len(entries) // 2][:8]
    broken = set()
    for _, model, problems in crash(entries, late, 7, tmp_path, sync=False):
        if problems:
            broken.add(model)
        if len(broken) == 2:
            break
    assert broken == {"strict", "ordered"}
