"""The clocks of one machine: none agrees with another's, and the time of day is set now and then.

Durations go by the monotonic clock, whose pace is off by less than the lease allows for (CLOCK_MARGIN).
"""

from __future__ import annotations

import random

PACE = 0.07  # fast or slow by so much at most
HOURS = 2.0  # by which the time of day may be wrong


class MachineClock:
    def __init__(self, seeded: random.Random, now: float) -> None:
        self._random = seeded
        self._began = now
        self._booted = seeded.uniform(0.0, 1e6)  # seconds ago
        self.pace = 1.0 + seeded.uniform(-PACE, PACE)
        self._wrong = seeded.uniform(-HOURS, HOURS) * 3600

    def monotonic(self, now: float) -> float:
        return self._booted + (now - self._began) * self.pace

    def time(self, now: float) -> float:
        return now + 1e9 + self._wrong

    def set(self) -> float:
        """Somebody sets the time of day, or NTP does."""
        before, self._wrong = self._wrong, self._random.uniform(-HOURS, HOURS) * 3600
        return self._wrong - before
