"""Joins of two tables by their keys. Each side looks up the other's row; a merger makes one table of both
sides' results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from millstream.streams.operators.base import (
    Get,
    GetAsOf,
    Getter,
    Headers,
    Out,
    OutOfOrder,
    Process,
    Row,
    TableOperator,
    TaskContext,
    keeping,
)
from millstream.streams.operators.tables import StoredRows

Side = Literal["inner", "left", "right", "outer"]
"""inner and outer: both sides alike. In a left join the left side is "left", the right one is "right"."""


@dataclass(slots=True)
class JoinedRows:
    """Lookup in a join whose rows nobody keeps: looks up both sides."""

    side: Side
    own: Getter
    other: Getter
    joiner: Callable[[Any, Any, Any], Any]

    def stores(self) -> list[str]:
        return [*self.own.stores(), *self.other.stores()]

    def build(self, task: TaskContext) -> Get:
        own, other, joiner, side = self.own.build(task), self.other.build(task), self.joiner, self.side

        def look_up(key: Any) -> Row | None:
            mine, theirs = own(key), other(key)
            if (
                (mine is None and theirs is None)
                or (mine is None and side in ("inner", "left"))
                or (theirs is None and side in ("inner", "right"))
            ):
                return None
            value = joiner(key, mine[0] if mine else None, theirs[0] if theirs else None)
            newest = max(mine[1] if mine else -1, theirs[1] if theirs else -1)
            return None if value is None else (value, newest)

        return look_up

    def build_as_of(self, task: TaskContext) -> GetAsOf | None:
        return None


@dataclass(slots=True)
class TableJoin:
    """One side. The joiner takes (key, own, other)."""

    side: Side
    own: TableOperator
    other: TableOperator
    joiner: Callable[[Any, Any, Any], Any]
    send_old: bool = False

    def enable_sending_old_values(self, force: bool) -> bool:
        self.own.enable_sending_old_values(True)
        self.other.enable_sending_old_values(True)
        self.send_old = True
        return True

    def getter(self) -> Getter:
        return JoinedRows(self.side, self.own.getter(), self.other.getter(), self.joiner)

    def build(self, task: TaskContext, out: Out) -> Process:
        get, joiner, forward = self.other.getter().build(task), self.joiner, out.forward
        side, send_old = self.side, self.send_old
        needs_other = side in ("inner", "right")

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                task.dropped += 1
                return
            if type(value) is OutOfOrder:
                task.dropped += 1
                return
            new, old = value
            row = get(key)
            other = None
            if row is None:
                if needs_other or (new is None and old is None):
                    return
            else:
                other = row[0]
                if row[1] > timestamp:
                    timestamp = row[1]
            if side == "right" or (side == "outer" and other is not None):
                joined = joiner(key, new, other)
                before = joiner(key, old, other) if send_old else None
            else:
                joined = None if new is None else joiner(key, new, other)
                before = None if old is None or not send_old else joiner(key, old, other)
            forward(key, (joined, before), timestamp, headers)

        return process


@dataclass(slots=True)
class JoinMerger:
    """Makes one table of both sides; keeps its rows if it was given a store."""

    first: TableJoin
    second: TableJoin
    store: str | None = None
    send_old: bool = False

    def enable_sending_old_values(self, force: bool) -> bool:
        self.first.enable_sending_old_values(True)
        self.second.enable_sending_old_values(True)
        self.send_old = True
        return True

    def getter(self) -> Getter:
        return StoredRows(self.store) if self.store is not None else self.first.getter()

    def build(self, task: TaskContext, out: Out) -> Process:
        forward, send_old = out.forward, self.send_old
        put = encode = None
        if self.store is not None:
            store = task.store(self.store)
            put, forward = keeping(store, forward)
            encode = store.encode

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if put is not None and encode is not None:
                put(encode(key), value[0], timestamp)
            forward(key, value if send_old else (value[0], None), timestamp, headers)

        return process
