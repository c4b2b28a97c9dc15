"""Operators of tables: the source, filter, map_values, aggregation of a regrouped table, and lookups by
key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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


@dataclass(slots=True)
class StoredRows:
    """Lookup in a table that keeps its rows."""

    name: str

    def stores(self) -> list[str]:
        return [self.name]

    def build(self, task: TaskContext) -> Get:
        store = task.store(self.name)
        get, encode = store.get, store.encode
        return lambda key: get(encode(key))

    def build_as_of(self, task: TaskContext) -> GetAsOf | None:
        store = task.store(self.name)
        if store.spec.type != "versioned":
            return None
        get, encode = store.get_as_of, store.encode
        return lambda key, time: get(encode(key), time)


class WithStore:
    """An operator that keeps its rows in a store of its own: it can always send old values."""

    store: str
    send_old: bool

    def enable_sending_old_values(self, force: bool) -> bool:
        self.send_old = True
        return True

    def getter(self) -> Getter:
        return StoredRows(self.store)


@dataclass(slots=True)
class DerivedRows:
    """Lookup in a table that is computed from the rows of another."""

    parent: Getter
    derive: Callable[[Any, Any], Any]

    def stores(self) -> list[str]:
        return self.parent.stores()

    def build(self, task: TaskContext) -> Get:
        get, derive = self.parent.build(task), self.derive

        def look_up(key: Any) -> Row | None:
            row = get(key)
            if row is None:
                return None
            value = derive(key, row[0])
            return None if value is None else (value, row[1])

        return look_up

    def build_as_of(self, task: TaskContext) -> GetAsOf | None:
        get, derive = self.parent.build_as_of(task), self.derive
        if get is None:
            return None
        look_up = get

        def look_up_as_of(key: Any, time: int) -> Row | None:
            row = look_up(key, time)
            value = None if row is None else derive(key, row[0])
            return None if row is None or value is None else (value, row[1])

        return look_up_as_of


@dataclass(slots=True)
class TableSource:
    """A topic as a table. It keeps its rows only when somebody looks them up, asks for old values, or named
    the store."""

    store: str
    kept: bool = False
    send_old: bool = False

    def enable_sending_old_values(self, force: bool) -> bool:
        if not force and not self.kept:
            return False
        self.send_old = self.kept = True
        return True

    def getter(self) -> Getter:
        self.kept = True
        return StoredRows(self.store)

    def build(self, task: TaskContext, out: Out) -> Process:
        forward = out.forward
        if not self.kept:

            def pass_on(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
                if key is None:
                    task.dropped += 1
                else:
                    forward(key, (value, None), timestamp, headers)

            return pass_on

        store = task.store(self.store)
        get, encode, send_old = store.get, store.encode, self.send_old
        put, forward = keeping(store, forward)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                task.dropped += 1
                return
            encoded_key = encode(key)
            old = None
            if send_old:
                row = get(encoded_key)
                if row is not None:
                    old = row[0]
            put(encoded_key, value, timestamp)
            forward(key, (value, old), timestamp, headers)

        return process


class _Derived:
    """A table that is computed from the rows of another, and keeps them only if its store has a name."""

    parent: TableOperator
    store: str | None
    send_old: bool

    def _derive(self, key: Any, value: Any) -> Any:
        raise NotImplementedError

    def enable_sending_old_values(self, force: bool) -> bool:
        if self.store is not None or self.parent.enable_sending_old_values(force):
            self.send_old = True
        return self.send_old

    def getter(self) -> Getter:
        if self.store is not None:
            return StoredRows(self.store)
        return DerivedRows(self.parent.getter(), self._derive)


@dataclass(slots=True)
class TableFilter(_Derived):
    """Rows that do not pass become tombstones. With old values known, a row that never passed is not sent at
    all."""

    parent: TableOperator
    predicate: Callable[[Any, Any], Any]
    negate: bool = False
    store: str | None = None
    send_old: bool = False
    versioned: bool = False
    """The parent is: then what never passed is sent too, as a deletion at its time."""

    def __post_init__(self) -> None:
        self.send_old = self.parent.enable_sending_old_values(False)

    def _derive(self, key: Any, value: Any) -> Any:
        return value if bool(self.predicate(key, value)) != self.negate else None

    def build(self, task: TaskContext, out: Out) -> Process:
        skip_nothing = self.send_old and not self.versioned
        return _derived(task, out, self._derive, self.store, self.send_old, skip_nothing)


@dataclass(slots=True)
class TableMapValues(_Derived):
    parent: TableOperator
    mapper: Callable[..., Any]
    with_key: bool = False
    store: str | None = None
    send_old: bool = False

    def _derive(self, key: Any, value: Any) -> Any:
        return self.mapper(key, value) if self.with_key else self.mapper(value)

    def build(self, task: TaskContext, out: Out) -> Process:
        return _derived(task, out, self._derive, self.store, self.send_old, skip_nothing=False)


def _derived(
    task: TaskContext,
    out: Out,
    derive: Callable[[Any, Any], Any],
    store_name: str | None,
    send_old: bool,
    skip_nothing: bool,
) -> Process:
    forward = out.forward
    if store_name is None:

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            new, old = value
            if new is not None:
                new = derive(key, new)
            old = derive(key, old) if send_old and old is not None else None
            if skip_nothing and new is None and old is None:
                return
            change = (new, old)
            forward(key, change if type(value) is tuple else OutOfOrder(change), timestamp, headers)

        return process

    store = task.store(store_name)
    get, encode = store.get, store.encode
    put, forward = keeping(store, forward)

    def process_and_keep(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        new = value[0]
        if new is not None:
            new = derive(key, new)
        encoded_key = encode(key)
        old = None
        if send_old:
            row = get(encoded_key)
            old = None if row is None else row[0]
        if skip_nothing and new is None and old is None:
            return
        put(encoded_key, new, timestamp)
        forward(key, (new, old), timestamp, headers)

    return process_and_keep


_NOWHERE = (None, None)


@dataclass(slots=True)
class Regroup:
    """A table's rows under other keys, for an aggregation: the old row is taken out where it was, the new one
    put in where it belongs; in one record when that is the same key. A row for which the selector gives None
    is in no group."""

    selector: Callable[[Any, Any], tuple[Any, Any] | None]

    def build(self, task: TaskContext, out: Out) -> Process:
        forward, selector = out.forward, self.selector

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if type(value) is OutOfOrder:
                task.dropped += 1
                return
            new, old = value
            new_key, new_value = (None if new is None else selector(key, new)) or _NOWHERE
            old_key, old_value = (None if old is None else selector(key, old)) or _NOWHERE
            has_new = new_key is not None and new_value is not None
            has_old = old_key is not None and old_value is not None
            if has_new and has_old and new_key == old_key:
                forward(new_key, (new_value, old_value), timestamp, headers)
                return
            if has_old:
                forward(old_key, (None, old_value), timestamp, headers)
            if has_new:
                forward(new_key, (new_value, None), timestamp, headers)

        return process


@dataclass(slots=True)
class TableAggregate(WithStore):
    """An aggregation that can take out again what it put in."""

    store: str
    initializer: Callable[[], Any]
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any]
    send_old: bool = False

    def build(self, task: TaskContext, out: Out) -> Process:
        store = task.store(self.store)
        get, encode = store.get, store.encode
        put, forward = keeping(store, out.forward)
        initializer, adder, subtractor = self.initializer, self.adder, self.subtractor
        send_old = self.send_old

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            new, old = value
            encoded_key = encode(key)
            row = get(encoded_key)
            before = None if row is None else row[0]
            aggregate = before
            if row is not None and (old is not None or new is not None) and row[1] > timestamp:
                timestamp = row[1]
            if old is not None and before is not None:
                aggregate = subtractor(key, old, aggregate)
            if new is not None:
                aggregate = adder(key, new, initializer() if aggregate is None else aggregate)
            put(encoded_key, aggregate, timestamp)
            forward(key, (aggregate, before if send_old else None), timestamp, headers)

        return process


@dataclass(slots=True)
class TableReduce(WithStore):
    store: str
    adder: Callable[[Any, Any], Any]
    subtractor: Callable[[Any, Any], Any]
    send_old: bool = False

    def build(self, task: TaskContext, out: Out) -> Process:
        store = task.store(self.store)
        get, encode = store.get, store.encode
        put, forward = keeping(store, out.forward)
        adder, subtractor, send_old = self.adder, self.subtractor, self.send_old

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            new, old = value
            encoded_key = encode(key)
            row = get(encoded_key)
            before = None if row is None else row[0]
            aggregate = before
            if old is not None and before is not None:
                aggregate = subtractor(aggregate, old)
                timestamp = max(timestamp, row[1])
            if new is not None:
                if aggregate is None:
                    aggregate = new
                else:
                    aggregate = adder(aggregate, new)
                    timestamp = max(timestamp, row[1])
            put(encoded_key, aggregate, timestamp)
            forward(key, (aggregate, before if send_old else None), timestamp, headers)

        return process
