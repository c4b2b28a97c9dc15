"""The token bucket of replication, and which replicas it is for."""

from __future__ import annotations

import random

import pytest

from millstream.broker.replication.throttle import (
    UNLIMITED,
    RateLimiter,
    ReplicationThrottles,
    is_throttled,
)


def test_without_a_rate_nothing_waits() -> None:
    limiter = RateLimiter()
    assert limiter.unlimited
    limiter.spend(1 << 40, 0.0)
    assert limiter.ready(0.0)


def test_a_debt_is_waited_for() -> None:
    limiter = RateLimiter(1000)
    assert limiter.ready(5.0)
    limiter.spend(4000, 5.0)  # a second's worth was saved up
    assert not limiter.ready(5.0)
    assert limiter.delay(5.0) == pytest.approx(3.0, abs=0.01)
    assert not limiter.ready(7.9)
    assert limiter.ready(8.01)


def test_rest_saves_up_one_second_and_no_more() -> None:
    limiter = RateLimiter(1000)
    limiter.spend(1000, 0.0)
    limiter.spend(0, 1000.0)
    limiter.spend(999, 1000.0)
    assert limiter.ready(1000.0)
    limiter.spend(1, 1000.0)
    assert not limiter.ready(1000.0)


def test_rate_zero_stops_everything() -> None:
    limiter = RateLimiter(0)
    assert limiter.delay(0.0) == float("inf")
    assert limiter.delay(1e9) == float("inf")
    limiter.set_rate(UNLIMITED, 1e9)
    assert limiter.ready(1e9)


def test_another_rate_begins_without_the_old_debt() -> None:
    limiter = RateLimiter(1_000_000)
    limiter.spend(50_000_000, 0.0)
    limiter.set_rate(1000, 0.0)
    assert limiter.ready(0.0)
    limiter.set_rate(1000, 0.0)
    limiter.spend(1500, 0.0)
    limiter.set_rate(1000, 0.1)  # the same rate again changes nothing
    assert not limiter.ready(0.1)


def test_a_clock_that_goes_back_pays_nothing_twice() -> None:
    limiter = RateLimiter(1000)
    limiter.spend(3000, 10.0)
    assert not limiter.ready(1.0)
    assert not limiter.ready(11.9)
    assert limiter.ready(12.01)


@pytest.mark.parametrize("seed", range(20))
def test_the_average_is_the_rate(seed: int) -> None:
    """Whoever asks before each transfer moves rate x time, one burst and one transfer more at most."""
    chance = random.Random(seed)
    rate = chance.randrange(100, 1_000_000)
    limiter = RateLimiter(rate)
    now = moved = 0.0
    largest = 0
    while now < 60.0:
        if limiter.ready(now):
            size = chance.randrange(1, rate)
            limiter.spend(size, now)
            moved += size
            largest = max(largest, size)
            now += chance.random() * 0.01
        else:
            now += limiter.delay(now)
    assert rate * 58 <= moved <= rate * (now + 1) + largest


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("", False),
        ("*", True),
        ("0:1", True),
        ("1:1,0:1", True),
        (" 0:1 , 2:2", True),
        ("0:2,1:1", False),
        ("0:11", False),
        ("nonsense", False),
        ("0:", False),
    ],
)
def test_which_replicas(setting: str, named: bool) -> None:
    assert is_throttled(setting, 0, 1) is named


def test_all_three() -> None:
    throttles = ReplicationThrottles()
    throttles.configure(10, 20, 30, 0.0)
    assert (throttles.leader.rate, throttles.follower.rate, throttles.log_dirs.rate) == (10, 20, 30)
