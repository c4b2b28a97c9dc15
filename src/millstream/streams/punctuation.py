"""Punctuation: timers of a task, by stream time or by the wall clock.

A timer that is late fires once, and goes on from the next multiple of its interval. Which timers a task
begins with follows from its topology, so their times can go with its offsets to the process that continues
the task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millstream.streams.errors import StreamsError
from millstream.streams.operators.processors import STREAM_TIME, WALL_CLOCK


@dataclass(slots=True)
class Timer:
    every: int
    next: int
    punctuate: Callable[[int], Any]
    ended: bool = False


class Punctuations:
    """The timers of one task."""

    def __init__(self) -> None:
        self._timers: dict[str, list[Timer]] = {}

    @property
    def by_stream_time(self) -> bool:
        """Whether there is any timer by stream time, which every record may make fire."""
        return STREAM_TIME in self._timers

    @property
    def next_wall_clock(self) -> int | None:
        """When the next timer by the wall clock is due."""
        timers = self._timers.get(WALL_CLOCK, ())
        return min((timer.next for timer in timers if not timer.ended), default=None)

    def all(self) -> list[Timer]:
        return [
            timer
            for punctuation_type in (STREAM_TIME, WALL_CLOCK)
            for timer in self._timers.get(punctuation_type, ())
        ]

    def schedule(
        self, every: int, punctuation_type: str, punctuate: Callable[[int], Any], start: int | None, now: int
    ) -> Callable[[], None]:
        """Returns a function that ends the timer."""
        if every < 1:
            raise StreamsError("a timer's interval must be at least a millisecond")
        if start is None:
            first = 0 if punctuation_type == STREAM_TIME else now + every
        elif start < 0:
            raise StreamsError(f"a timer cannot start before 1970: {start}")
        else:
            first = start if start >= now else start + ((now - start) // every + 1) * every
        timer = Timer(every, first, punctuate)
        self._timers.setdefault(punctuation_type, []).append(timer)

        def end() -> None:
            timer.ended = True

        return end

    def punctuate(self, punctuation_type: str, now: int, fire: Callable[[Timer, int], None]) -> bool:
        """Fires what is due. A timer that another one schedules may be due at once."""
        timers = self._timers.get(punctuation_type)
        if not timers or now < 0:
            return False
        fired = False
        while due := [timer for timer in timers if timer.next <= now and not timer.ended]:
            timer = min(due, key=lambda timer: timer.next)
            fire(timer, now)
            fired = True
            timer.next += timer.every
            if timer.next <= now:
                timer.next = now - (now - timer.next) % timer.every + timer.every
        self._timers[punctuation_type] = [timer for timer in timers if not timer.ended]
        return fired
