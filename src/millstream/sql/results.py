"""Rows on their way to a client, from whoever computes them to whoever sends them, within a bound.

The producer puts rows from its own thread and is held when the client does not read; the consumer takes what
is there. Either side may end it: the producer with a final message or an error, the consumer by closing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from millstream.sql.types import SqlType


class ResultColumn(NamedTuple):
    name: str
    type: SqlType
    is_key: bool = False


class End(NamedTuple):
    """The last thing of a result."""

    message: str | None = None
    error: str | None = None


Row = tuple[Any, ...]


class Tombstone(tuple[Any, ...]):
    """A row of a table that is gone: the columns of its key, and null for all others."""


class ResultStream:
    """`limit` rows at most, then the end with "Limit Reached". A `lasting` one has rows whenever they happen,
    and its end has a message."""

    def __init__(
        self,
        query_id: str,
        columns: tuple[ResultColumn, ...],
        *,
        limit: int | None = None,
        max_rows: int = 10_000,
        lasting: bool = False,
    ) -> None:
        self.query_id, self.columns, self.lasting = query_id, columns, lasting
        self.closed = threading.Event()
        self._left = limit
        self._max_rows = max_rows
        self._rows: deque[Row] = deque()
        self._end: End | None = None
        self._changed = threading.Condition()
        self._wake: Callable[[], None] | None = None
        self.on_close: list[Callable[[], None]] = []

    # The producer's side

    def put(self, row: Row) -> bool:
        """False if no more is wanted. Waits while the client is behind."""
        with self._changed:
            self._changed.wait_for(
                lambda: len(self._rows) < self._max_rows or self.closed.is_set() or self._end is not None
            )
            if self.closed.is_set() or self._end is not None:
                return False
            if self._left is not None:
                if self._left <= 0:
                    self._finish(End("Limit Reached"))
                    return False
                self._left -= 1
            self._rows.append(row)
            if self._left == 0:
                self._finish(End("Limit Reached"))
            self._signal()
            return self._end is None

    def end(self, message: str | None = None, error: str | None = None) -> None:
        with self._changed:
            self._finish(End(message, error))

    def _finish(self, end: End) -> None:
        if self._end is None:
            self._end = end
        self._signal()

    def _signal(self) -> None:
        self._changed.notify_all()
        if self._wake is not None:
            self._wake()

    @property
    def done(self) -> bool:
        return self._end is not None or self.closed.is_set()

    # The consumer's side

    def on_rows(self, wake: Callable[[], None]) -> None:
        """`wake` is called, from any thread, when there is something to take."""
        with self._changed:
            self._wake = wake

    def take(self, limit: int = 1000, timeout: float | None = 0) -> tuple[list[Row], End | None]:
        """What is there; the end only after all rows."""
        with self._changed:
            if timeout != 0:
                self._changed.wait_for(lambda: bool(self._rows) or self.done, timeout)
            rows = [self._rows.popleft() for _ in range(min(limit, len(self._rows)))]
            self._changed.notify_all()
            return rows, self._end if not self._rows else None

    def close(self) -> None:
        with self._changed:
            if self.closed.is_set():
                return
            self.closed.set()
            self._signal()
        for act in self.on_close:
            act()


def schema_text(columns: tuple[ResultColumn, ...]) -> str:
    return ", ".join(f"`{one.name}` {one.type}{' KEY' if one.is_key else ''}" for one in columns)
