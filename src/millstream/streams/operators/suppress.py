"""Holding a table's updates back: until the window closes, for some time, or as long as there is room."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.streams.errors import BufferFull
from millstream.streams.operators.base import (
    Get,
    GetAsOf,
    Getter,
    Headers,
    Out,
    Process,
    Row,
    TableOperator,
    TaskContext,
    clock_of,
)


@dataclass(slots=True)
class SuppressedRows:
    """Lookup behind a suppression: while a row is held back, what was sent of it before."""

    buffer: str
    parent: Getter

    def stores(self) -> list[str]:
        return [self.buffer, *self.parent.stores()]

    def build(self, task: TaskContext) -> Get:
        buffer, get = task.store(self.buffer), self.parent.build(task)

        def look_up(key: Any) -> Row | None:
            held, value = buffer.prior(buffer.encode(key))
            if held:
                return None if value is None else (value, -1)
            return get(key)

        return look_up

    def build_as_of(self, task: TaskContext) -> GetAsOf | None:
        return None


@dataclass(slots=True)
class Suppress:
    """wait       how long a row is held back, by the newest timestamp seen
    by_window  counted from the end of the row's window, not from its first update; tombstones are dropped
    then
    records, size, stop_when_full    the limits of the buffer, and what happens there: stop, or let the oldest
                                     row go
    """

    parent: TableOperator
    buffer: str
    wait: int
    by_window: bool
    records: int | None = None
    size: int | None = None
    stop_when_full: bool = False

    def __post_init__(self) -> None:
        self.parent.enable_sending_old_values(True)

    def enable_sending_old_values(self, force: bool) -> bool:
        return self.parent.enable_sending_old_values(force)

    def getter(self) -> Getter:
        return SuppressedRows(self.buffer, self.parent.getter())

    def build(self, task: TaskContext, out: Out) -> Process:
        buffer, forward, wait, by_window = task.store(self.buffer), out.forward, self.wait, self.by_window
        records, size, stop_when_full = self.records, self.size, self.stop_when_full
        put, encode, least_time = buffer.put, buffer.encode, buffer.least_time
        clock = clock_of(task, self)

        def send_first() -> None:
            # It is held until it was sent: who looks the key up meanwhile finds what was sent before.
            row = buffer.first()
            try:
                if row.new is not None or not by_window:
                    origin, task.origin = task.origin, row.context
                    try:
                        forward(buffer.decode(row.key), (row.new, row.old), row.timestamp, row.headers)
                    finally:
                        task.origin = origin
            finally:
                buffer.remove_first()

        def over() -> bool:
            return (records is not None and len(buffer) > records) or (
                size is not None and buffer.bytes_held > size
            )

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if timestamp > clock.seen:
                clock.seen = timestamp
            put(
                key.window.end if by_window else timestamp,
                encode(key),
                value,
                timestamp,
                headers,
                task.origin,
            )
            expired = clock.seen - wait
            least = least_time()
            while least is not None and least <= expired:
                send_first()
                least = least_time()
            if over():
                if stop_when_full:
                    raise BufferFull(
                        f"{self.buffer} holds {len(buffer)} rows of {records} and {buffer.bytes_held} bytes "
                        f"of {size}"
                    )
                while over():
                    send_first()

        return process
