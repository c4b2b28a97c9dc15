"""Small things that the DSL's methods take: how a store is kept, when results are sent."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from millstream.streams.graph import checked_name
from millstream.streams.serdes import Serde
from millstream.streams.stores import StoreSpec
from millstream.streams.windows import Span, milliseconds


@dataclass(frozen=True, slots=True)
class Materialized:
    """How a table's rows are kept: under which name (then they can be looked up from outside), by which
    serdes.

    retention   for windowed tables: how long windows are kept, if longer than they are open
    history     makes the table versioned: how long its old rows can be asked for
    logged      whether there is a changelog topic; without one the rows are lost with the machine
    config      settings of the changelog topic
    """

    name: str | None = None
    key: Serde | None = None
    value: Serde | None = None
    retention: Span | None = None
    history: Span | None = None
    logged: bool = True
    config: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name is not None:
            checked_name(self.name)
        if self.history is not None and (self.name is None or milliseconds(self.history) < 0):
            raise ValueError("a versioned table needs a name, and a history of 0 ms or more")

    @staticmethod
    def of(given: Materialized | str | None) -> Materialized | None:
        """A text is the name of the store."""
        return Materialized(given) if isinstance(given, str) else given

    def row_spec(self, name: str, key: Serde, value: Serde) -> StoreSpec:
        """The store of a table's rows."""
        return StoreSpec(
            name,
            "key-value" if self.history is None else "versioned",
            key,
            value,
            0 if self.history is None else milliseconds(self.history),
            logged=self.logged,
            config=dict(self.config),
        )

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
