"""Small things that the DSL's methods take: how a store is kept, when results are sent, how many arguments a
function has."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.streams.expressions import Expression
from millstream.streams.graph import checked_name
from millstream.streams.serdes import Serde
from millstream.streams.windows import Span, milliseconds


@dataclass(frozen=True, slots=True)
class Materialized:
    """How a table's rows are kept: under which name (then they can be looked up from outside), by which
    serdes.

    retention   for windowed tables: how long windows are kept, if longer than they are open
    logged      whether there is a changelog topic; without one the rows are lost with the machine
    config      settings of the changelog topic
    """

    name: str | None = None
    key: Serde | None = None
    value: Serde | None = None
    retention: Span | None = None
    logged: bool = True
    config: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name is not None:
            checked_name(self.name)

    @staticmethod
    def of(given: Materialized | str | None) -> Materialized | None:
        """A text is the name of the store."""
        return Materialized(given) if isinstance(given, str) else given

    def retained(self, least: int) -> int:
        if self.retention is None:
            return least
        kept = milliseconds(self.retention)
        if kept < least:
            raise ValueError(f"windows are open for {least} ms: a retention of {kept} ms is too short")
        return kept


@dataclass(frozen=True, slots=True)
class Buffer:
    """The room for rows that are held back. When it is full the oldest row leaves early, or the application
    stops."""

    records: int | None = None
    size: int | None = None
    stop: bool = False

    @classmethod
    def unbounded(cls) -> Buffer:
        return cls(stop=True)

    @classmethod
    def max_records(cls, count: int) -> Buffer:
        return cls(records=count)

    @classmethod
    def max_bytes(cls, count: int) -> Buffer:
        return cls(size=count)

    def with_max_records(self, count: int) -> Buffer:
        return replace(self, records=count)

    def with_max_bytes(self, count: int) -> Buffer:
        return replace(self, size=count)

    def shut_down_when_full(self) -> Buffer:
        return replace(self, stop=True)

    def emit_early_when_full(self) -> Buffer:
        return replace(self, stop=False)


@dataclass(frozen=True, slots=True)
class Suppressed:
    """When a table's updates are sent on."""

    wait: int | None
    buffer: Buffer
    name: str | None = None

    @classmethod
    def until_window_closes(cls, buffer: Buffer | None = None, *, name: str | None = None) -> Suppressed:
        """Each window once, with its final result. The buffer must not let rows go early."""
        buffer = buffer if buffer is not None else Buffer.unbounded()
        if not buffer.stop:
            raise ValueError(
                "a final result cannot leave early: use Buffer.unbounded() or shut_down_when_full()"
            )
        return cls(None, buffer, name)

    @classmethod
    def until_time_limit(
        cls, wait: Span, buffer: Buffer | None = None, *, name: str | None = None
    ) -> Suppressed:
        """Each key at most once per `wait`, with its newest value."""
        return cls(milliseconds(wait), buffer if buffer is not None else Buffer.unbounded(), name)


def positional(function: Callable[..., Any], default: int) -> int:
    """How many positional arguments a function needs; `default` where Python cannot tell (some built-ins)."""
    if isinstance(function, Expression):
        return 2  # key and value
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return default
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return default
    return sum(
        1
        for parameter in parameters
        if parameter.kind in positional and parameter.default is inspect.Parameter.empty
    )


def with_key(function: Callable[..., Any]) -> bool:
    """Whether a function of a value wants the key too: f(value) or f(key, value)."""
    return positional(function, 1) >= 2


def joiner_of(function: Callable[..., Any]) -> Callable[[Any, Any, Any], Any]:
    """A joiner f(left, right) or f(key, left, right) as the latter."""
    if positional(function, 2) >= 3:
        return function
    return lambda _key, left, right: function(left, right)
