"""Left and outer joins of streams on blocks.

Which records stay alone, and when they leave, depends on what came before them, record by record. So the
operator itself runs, one record after the other, but on a copy of what it knows of time and on an overlay
over the store of waiting records: nothing has changed if a joiner raises, and what has changed is applied
when all of the block has been computed.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from typing import Any

import numpy as np

from millstream.streams.columns.blocks import Block, ColumnFormat, Shape, objects
from millstream.streams.columns.operators import Later, Made
from millstream.streams.operators.base import Headers, Out, TaskContext
from millstream.streams.operators.joins import StreamStreamJoin, Tracker
from millstream.streams.stores.layout import side_key, split_side_key


class _Waiting:
    """The store of waiting records, with changes that are not applied yet."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.encode, self.decode = store.encode, store.decode
        self.forget()

    def forget(self) -> None:
        self._changes: list[tuple[Any, ...]] = []
        self._added: dict[bytes, list[bytes]] = {}
        self._removed: set[bytes] = set()

    def add(self, timestamp: int, is_left: bool, key: bytes, value: Any) -> None:
        body = self._store.body_of(is_left, value)
        self._changes.append((self._store.add_body, timestamp, is_left, key, body))
        self._added.setdefault(side_key(timestamp, is_left, key), []).append(body)

    def remove(self, timestamp: int, is_left: bool, key: bytes) -> None:
        self._changes.append((self._store.remove, timestamp, is_left, key))
        row_key = side_key(timestamp, is_left, key)
        self._removed.add(row_key)
        self._added.pop(row_key, None)

    def waiting(self) -> Iterator[tuple[int, bool, bytes, list[Any]]]:
        """As the store's, in its order."""
        there = {side_key(*row[:3]): row[3] for row in self._store.waiting()}
        rows = {row_key: values for row_key, values in there.items() if row_key not in self._removed}
        order = list(rows)
        for row_key, bodies in self._added.items():
            if row_key not in rows:
                insort(order, row_key)
            _, is_left, _ = split_side_key(row_key)
            values = [self._store.value_of(is_left, body) for body in bodies]
            rows[row_key] = [*rows.get(row_key, []), *values]
        for row_key in order:
            yield *split_side_key(row_key), rows[row_key]

    def apply(self) -> None:
        for change, *given in self._changes:
            change(*given)


class _Trial:
    """What the operator sees of its task while a block is computed."""

    def __init__(self, task: TaskContext, operator: StreamStreamJoin) -> None:
        self._task, self._name = task, operator.waiting
        self.waiting = _Waiting(task.store(operator.waiting or ""))
        self.tracker = Tracker()
        self.shared = {("join", operator.name): self.tracker}
        self.config, self.now, self.dropped = task.config, task.now, 0

    def store(self, name: str) -> Any:
        return self.waiting if name == self._name else self._task.store(name)


def outer_join(operator: StreamStreamJoin, task: TaskContext, shape: Shape) -> Made:
    trial = _Trial(task, operator)
    tracker: Tracker = task.shared.setdefault(("join", operator.name), Tracker())
    keys: list[Any] = []
    values: list[Any] = []
    stamps: list[int] = []

    def forward(key: Any, value: Any, timestamp: int, _headers: Headers) -> None:
        keys.append(key)
        values.append(value)
        stamps.append(timestamp)

    process = operator.build(trial, Out(forward))  # type: ignore[arg-type]

    def run(block: Block, later: Later) -> Block:
        nonlocal keys, values, stamps
        keys, values, stamps = [], [], []
        trial.waiting.forget()
        trial.dropped = 0
        for name in Tracker.__slots__:
            setattr(trial.tracker, name, getattr(tracker, name))
        rows: list[int] = []
        given = zip(
            objects(block.keys, shape.key),
            objects(block.values, shape.value),
            block.stamps.tolist(),
            block.rows.tolist(),
            strict=True,
        )
        for key, value, stamp, row in given:
            process(key, value, stamp, ())
            rows.extend([row] * (len(keys) - len(rows)))
        dropped, found = trial.dropped, {name: getattr(trial.tracker, name) for name in Tracker.__slots__}

        def keep() -> None:
            task.dropped += dropped
            for name, number in found.items():
                setattr(tracker, name, number)
            trial.waiting.apply()
            trial.waiting.forget()

        later.append(keep)
        return Block(keys, values, np.array(stamps, np.int64), np.array(rows, np.int64))

    return Made(run, Shape(ColumnFormat(), ColumnFormat()), keeps_state=True)
