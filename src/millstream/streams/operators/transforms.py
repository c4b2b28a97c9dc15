"""Tables whose values an object of the application transforms, with stores of its own.

class Numbered(ValueTransformer):
    def init(self, context):
        self.counts = context.store("counts")

    def transform(self, key, value):
        count = (self.counts.get(key) or 0) + 1
        self.counts.put(key, count)
        return f"{value} {count}"

A table that does not keep its rows computes them when they are looked up, by a transformer of its own: then
`transform` has to give the same for the same arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millstream.streams.errors import StreamsError
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
    nothing,
)
from millstream.streams.operators.processors import Context
from millstream.streams.operators.tables import StoredRows


class ValueTransformer:
    """The base of an application's transformers. One object per task."""

    context: Context

    def init(self, context: Context) -> None:
        """Called once, before the first record; `self.context` is set already."""

    def transform(self, key: Any, value: Any) -> Any:
        raise StreamsError(f"{type(self).__name__} has no transform(key, value)")

    def close(self) -> None:
        """Called once, at the end."""


Transform = Callable[[Any, Any, int], Any]
"""(key, value, the time of the record or row)."""


def _made(make: Callable[[], ValueTransformer], task: TaskContext, stores: tuple[str, ...]) -> Transform:
    transformer = make()
    context = Context(task, Out(nothing), stores, fixed_key=True, forwards=False)
    transformer.context = context
    transformer.init(context)
    task.shared.setdefault("processors", []).append(transformer)
    run = transformer.transform

    def transform(key: Any, value: Any, timestamp: int) -> Any:
        context._timestamp = timestamp
        return run(key, value)

    return transform


@dataclass(slots=True)
class TransformedRows:
    """Lookup in a table that does not keep its rows: also a key without a row may have a value."""

    parent: Getter
    make: Callable[[], ValueTransformer]
    names: tuple[str, ...]

    def stores(self) -> list[str]:
        return self.parent.stores()

    def build(self, task: TaskContext) -> Get:
        get, transform = self.parent.build(task), _made(self.make, task, self.names)

        def look_up(key: Any) -> Row | None:
            value, timestamp = get(key) or (None, -1)
            new = transform(key, value, timestamp)
            return None if new is None else (new, timestamp)

        return look_up

    def build_as_of(self, task: TaskContext) -> GetAsOf | None:
        get = self.parent.build_as_of(task)
        if get is None:
            return None
        look_up, transform = get, _made(self.make, task, self.names)

        def look_up_as_of(key: Any, time: int) -> Row | None:
            row = look_up(key, time)
            value, timestamp = (None, -1) if row is None else row[:2]
            new = transform(key, value, timestamp)
            return None if new is None else (new, timestamp)

        return look_up_as_of


@dataclass(slots=True)
class TransformValues:
    """`names` are the stores that the transformer uses; `store` keeps the result, if it is to be kept."""

    parent: TableOperator
    make: Callable[[], ValueTransformer]
    names: tuple[str, ...] = ()
    store: str | None = None
    send_old: bool = False

    def enable_sending_old_values(self, force: bool) -> bool:
        if self.store is not None or self.parent.enable_sending_old_values(force):
            self.send_old = True
        return self.send_old

    def getter(self) -> Getter:
        if self.store is not None:
            return StoredRows(self.store)
        return TransformedRows(self.parent.getter(), self.make, self.names)

    def build(self, task: TaskContext, out: Out) -> Process:
        forward, send_old = out.forward, self.send_old
        transform = _made(self.make, task, self.names)
        if self.store is None:

            def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
                new = transform(key, value[0], timestamp)
                old = transform(key, value[1], timestamp) if send_old else None
                change = (new, old)
                forward(key, change if type(value) is tuple else OutOfOrder(change), timestamp, headers)

            return process

        store = task.store(self.store)
        get, encode = store.get, store.encode
        put, forward = keeping(store, forward)

        def process_and_keep(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            new = transform(key, value[0], timestamp)
            encoded_key = encode(key)
            row = get(encoded_key) if send_old else None
            put(encoded_key, new, timestamp)
            forward(key, (new, None if row is None else row[0]), timestamp, headers)

        return process_and_keep
