"""Sources that have nothing cost little: those of a lane wake it together."""

from __future__ import annotations

import pytest

from millstream.connect.runtime.source_unit import next_beat


def test_tasks_with_the_same_pause_wake_at_the_same_time() -> None:
    begun = [100.0 + number * 0.0037 for number in range(50)]
    assert len({next_beat(now, 200) for now in begun if now < 100.2}) == 1


@pytest.mark.parametrize("now", [0.0, 0.05, 17.123456, 1e6 + 0.2])
def test_it_is_soon(now: float) -> None:
    assert now <= next_beat(now, 200) <= now + 0.2 + 1e-6


def test_without_a_pause_it_is_now() -> None:
    assert next_beat(5.0, 0) == 5.0
