"""So many bytes a second, read and written together, and no more (`log.cleaner.io.max.bytes.per.second`).

What was spent is weighed against the time since the last look; whoever is ahead sleeps. Looks are at least a
tenth of a second apart, so an unthrottled cleaning costs an addition a call.
"""

from __future__ import annotations

import time
from collections.abc import Callable

LOOK_EVERY = 0.1
MAX_SLEEP = 1.0  # seconds slept in one go, so that a change of mind does not come too late
UNLIMITED = 1e18


class Throttle:
    __slots__ = ("_clock", "_since", "_sleep", "_spent", "limit", "slept")

    def __init__(
        self,
        limit: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.limit = limit
        self.slept = 0.0
        self._clock = clock
        self._sleep = sleep
        self._since = clock()
        self._spent = 0

    def spend(self, count: int) -> None:
        """`count` bytes were read or written; returns when that is within the limit."""
        if self.limit >= UNLIMITED:
            return
        self._spent += count
        now = self._clock()
        if now - self._since < LOOK_EVERY and self._spent < self.limit * LOOK_EVERY:
            return
        ahead = self._spent / self.limit - (now - self._since)
        while ahead > 0:
            nap = min(ahead, MAX_SLEEP)
            self._sleep(nap)
            self.slept += nap
            ahead -= nap
        self._since = self._clock()
        self._spent = 0
