"""How fast replicas may be copied: three rates of a broker, and which replicas they are for.

    leader.replication.throttled.rate               what this broker sends to followers that catch up
    follower.replication.throttled.rate             what it fetches for replicas that catch up
    replica.alter.log.dirs.io.max.bytes.per.second  what it copies between its own data folders

The first two are for the replicas that a topic names in `leader.replication.throttled.replicas` and
`follower.replication.throttled.replicas`, and only while these are out of sync: slowing down a member of the
ISR would slow down every producer that waits for it. Who copies asks `ready` before it begins and says with
`spend` what it has transferred; a transfer is never cut, so that a large one puts the bucket into debt, and
the average stays the rate. The clock is an argument: nothing here waits.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

BURST_SECONDS: Final = 1.0  # what may be saved up; Kafka averages over windows of a second
UNLIMITED: Final = (1 << 63) - 1  # the default of the settings
EVERY: Final = "*"


class RateLimiter:
    """A token bucket: `rate` bytes a second, and as many at once after a rest of a second."""

    __slots__ = ("_as_of", "_rate", "_tokens")

    def __init__(self, rate: int = UNLIMITED) -> None:
        self._rate = rate
        self._tokens = 0.0 if rate >= UNLIMITED else rate * BURST_SECONDS
        self._as_of: float | None = None

    @property
    def rate(self) -> int:
        return self._rate

    @property
    def unlimited(self) -> bool:
        return self._rate >= UNLIMITED

    def set_rate(self, rate: int, now: float) -> None:
        """Another rate from now on. A debt of the old one is not carried into the new: it may be a thousand
        times what the new rate pays back in a second."""
        if rate == self._rate:
            return
        self._rate = rate
        self._tokens = 0.0 if rate >= UNLIMITED else rate * BURST_SECONDS
        self._as_of = now

    def ready(self, now: float) -> bool:
        """Whether something may be transferred now. Rate 0 never lets anything through."""
        return self.delay(now) <= 0

    def delay(self, now: float) -> float:
        """Seconds until it may; infinite at rate 0."""
        if self._rate >= UNLIMITED:
            return 0.0
        self._earn(now)
        if self._tokens > 0:
            return 0.0
        if self._rate <= 0:
            return float("inf")
        # A little more than nothing must be there, or the clock's own grain would let it spin.
        return max((1.0 - self._tokens) / self._rate, 0.001)

    def spend(self, size: int, now: float) -> None:
        """So many bytes were transferred."""
        if self._rate < UNLIMITED:
            self._earn(now)
            self._tokens -= size

    def _earn(self, now: float) -> None:
        if self._as_of is not None and now > self._as_of:
            earned = (now - self._as_of) * self._rate
            self._tokens = min(self._tokens + earned, self._rate * BURST_SECONDS)
        if self._as_of is None or now > self._as_of:
            self._as_of = now


@lru_cache(maxsize=4096)
def throttled_replicas(setting: str) -> frozenset[tuple[int, int]] | None:
    """What `*.replication.throttled.replicas` of a topic names: pairs of partition and broker; None for `*`,
    all of them. Its value was checked when it was set; what is no pair names nothing."""
    text = setting.strip()
    if text == EVERY:
        return None
    found = set()
    for pair in text.split(","):
        partition, colon, broker = pair.strip().partition(":")
        if colon and partition.isdecimal() and broker.isdecimal():
            found.add((int(partition), int(broker)))
    return frozenset(found)


def is_throttled(setting: str, partition: int, broker: int) -> bool:
    """Whether that setting of a topic names this replica."""
    if not setting:
        return False
    named = throttled_replicas(setting)
    return named is None or (partition, broker) in named


class ReplicationThrottles:
    """The three limiters of a broker."""

    __slots__ = ("follower", "leader", "log_dirs")

    def __init__(self) -> None:
        self.leader = RateLimiter()
        self.follower = RateLimiter()
        self.log_dirs = RateLimiter()

    def configure(self, leader: int, follower: int, log_dirs: int, now: float) -> None:
        """The rates that hold from now on."""
        self.leader.set_rate(leader, now)
        self.follower.set_rate(follower, now)
        self.log_dirs.set_rate(log_dirs, now)
