"""Windows: which spans of time a record falls into.

    TimeWindows.of_size(minutes(5))                      tumbling
    TimeWindows.of_size(minutes(5)).advance_by(minutes(1))   hopping
    SlidingWindows.of(seconds(10))                       every pair of records at most ten seconds apart
    SessionWindows.of(minutes(30))                       as long as records keep coming
    UnlimitedWindows.of()                                one window, for ever
    JoinWindows.of(seconds(5))                           for joins of two streams

Times are milliseconds since 1970, or a `datetime.timedelta` for spans. `.grace(span)` is how long a window
stays open for late records after its end; without it a window closes at its end.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

Span = int | datetime.timedelta


def milliseconds(span: Span) -> int:
    """A span as whole milliseconds."""
    if isinstance(span, datetime.timedelta):
        return span // datetime.timedelta(milliseconds=1)
    return int(span)


def seconds(count: float) -> int:
    return int(count * 1000)


def minutes(count: float) -> int:
    return int(count * 60_000)


def hours(count: float) -> int:
    return int(count * 3_600_000)


class Window(NamedTuple):
    """A span of time. The end of a time window is its first instant outside; that of a session its last
    record."""

    start: int
    end: int


class Windowed(NamedTuple):
    """A key in one of its windows: what windowed aggregations are keyed by."""

    key: Any
    window: Window

    def __str__(self) -> str:
        return f"[{self.key}@{self.window.start}/{self.window.end}]"


def _checked(span: Span, what: str, least: int) -> int:
    value = milliseconds(span)
    if value < least:
        raise ValueError(f"{what} must be at least {least} ms, not {value}")
    return value


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Windows of one size, aligned to 1970. They overlap (hopping) when the advance is smaller than the
    size."""

    size: int
    advance: int
    grace_ms: int = 0

    @classmethod
    def of_size(cls, size: Span) -> TimeWindows:
        value = _checked(size, "a window's size", 1)
        return cls(value, value)

    def advance_by(self, advance: Span) -> TimeWindows:
        value = _checked(advance, "a window's advance", 1)
        if value > self.size:
            raise ValueError(f"windows of {self.size} ms cannot advance by {value} ms: records would be lost")
        return replace(self, advance=value)

    def grace(self, span: Span) -> TimeWindows:
        return replace(self, grace_ms=_checked(span, "grace", 0))

    def starts(self, timestamp: int) -> range:
        """The starts of the windows that this instant is in, ascending."""
        advance = self.advance
        first = max(0, timestamp - self.size + advance) // advance * advance
        return range(first, timestamp + 1, advance)


FOREVER = (1 << 63) - 1
"""The end of a window that has none."""


@dataclass(frozen=True, slots=True)
class UnlimitedWindows:
    """One window for each key, from a moment on and for ever. Records before it are left out."""

    start: int = 0

    @classmethod
    def of(cls) -> UnlimitedWindows:
        return cls()

    def start_on(self, start: int) -> UnlimitedWindows:
        """`start` in milliseconds since 1970."""
        return replace(self, start=_checked(start, "the start", 0))

    @property
    def size(self) -> int:
        return FOREVER

    @property
    def grace_ms(self) -> int:
        return 0

    @property
    def advance(self) -> int:
        return 1

    def starts(self, timestamp: int) -> range:
        return range(self.start, self.start + 1) if timestamp >= self.start else range(0)


@dataclass(frozen=True, slots=True)
class EmitStrategy:
    """When an aggregation in windows sends its results."""

    final: bool

    @classmethod
    def on_window_update(cls) -> EmitStrategy:
        """Every update. That is what happens unless something else is said."""
        return cls(False)

    @classmethod
    def on_window_close(cls) -> EmitStrategy:
        """The result of a window, once, when it has closed."""
        return cls(True)


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """A window for every set of records that lie at most this far apart. Both ends are inside."""

    difference: int
    grace_ms: int = 0

    @classmethod
    def of(cls, difference: Span) -> SlidingWindows:
        return cls(_checked(difference, "the time difference", 0))

    def grace(self, span: Span) -> SlidingWindows:
        return replace(self, grace_ms=_checked(span, "grace", 0))


@dataclass(frozen=True, slots=True)
class SessionWindows:
    """Records of a key belong to one session as long as no gap between them is larger than this."""

    gap: int
    grace_ms: int = 0

    @classmethod
    def of(cls, gap: Span) -> SessionWindows:
        return cls(_checked(gap, "the inactivity gap", 0))

    def grace(self, span: Span) -> SessionWindows:
        return replace(self, grace_ms=_checked(span, "grace", 0))


@dataclass(frozen=True, slots=True)
class JoinWindows:
    """Records of two streams meet when the other's time is within [own - before, own + after].

    unmatched_at_once   a left or outer join sends a record that has found no partner at once, and again with
                        each partner that comes later, as Kafka Streams did before it had grace for joins
    """

    before_ms: int
    after_ms: int
    grace_ms: int = 0
    unmatched_at_once: bool = False

    @classmethod
    def of(cls, difference: Span) -> JoinWindows:
        value = milliseconds(difference)
        return cls._checked(cls(value, value))

    def before(self, span: Span) -> JoinWindows:
        return self._checked(replace(self, before_ms=milliseconds(span)))

    def after(self, span: Span) -> JoinWindows:
        return self._checked(replace(self, after_ms=milliseconds(span)))

    def grace(self, span: Span) -> JoinWindows:
        return replace(self, grace_ms=_checked(span, "grace", 0))

    @property
    def size(self) -> int:
        return self.before_ms + self.after_ms

    @staticmethod
    def _checked(windows: JoinWindows) -> JoinWindows:
        if windows.before_ms + windows.after_ms < 0:
            raise ValueError("a join window cannot end before it starts")
        return windows
