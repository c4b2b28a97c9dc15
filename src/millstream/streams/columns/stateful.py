"""Aggregations, sessions and joins of streams on blocks.

Their functions are the application's, and are called for every record. What a block saves is all around them:
rows of a store are looked up, read and written once per block and key, not once per record. What one record
of a block does to a row, the next one sees in memory; the store has it when all of the block has been
computed.

Values of a serde that is not `shared` are read anew for each record, as stores do it, so that an aggregator
may change what it is given.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.streams.columns.blocks import (
    Block,
    ColumnFormat,
    Shape,
    is_same,
    objects,
    stays_bytes,
    to_bytes,
)
from millstream.streams.columns.operators import MAKERS as WITHOUT_FUNCTIONS
from millstream.streams.columns.operators import (
    Later,
    Made,
    Maker,
    Updates,
    in_time_windows,
    present,
    window_count,
)
from millstream.streams.columns.outer_joins import outer_join
from millstream.streams.operators.aggregates import Aggregate, Reduce, SessionAggregate, WindowAggregate
from millstream.streams.operators.base import TaskContext, clock_of
from millstream.streams.operators.joins import KeepForJoin, StreamStreamJoin, Tracker
from millstream.streams.serdes import Serde
from millstream.streams.stores import StoreSpec
from millstream.streams.windows import Window, Windowed

_TIME = struct.Struct(">q")


def _takes_keys(spec: StoreSpec, shape: Shape) -> bool:
    return is_same(shape.key.serde, spec.key) and stays_bytes(spec.key)


class _Values:
    """How values of a store are kept within a block: as they are, or as bytes where a reader might change
    them."""

    def __init__(self, spec: StoreSpec, application: str) -> None:
        topic = spec.changelog(application)
        serde: Serde = spec.value
        self.read: Callable[[bytes | None], Any] = serde.reader(topic)
        self.write: Callable[[Any], bytes | None] = serde.writer(topic)
        self.shared = serde.shared

    def kept(self, value: Any) -> Any:
        return value if self.shared else self.write(value)

    def given(self, kept: Any) -> Any:
        return kept if self.shared else self.read(kept)

    def as_bytes(self, kept: Any) -> bytes:
        return (self.write(kept) if self.shared else kept) or b""


# Aggregations -----------------------------------------------------------------------------------------------


def _aggregate(operator: Aggregate, task: TaskContext, shape: Shape) -> Made | None:
    return _by_key(operator, task, shape, _aggregating(operator.initializer, operator.aggregator))


def _reduce(operator: Reduce, task: TaskContext, shape: Shape) -> Made | None:
    reducer = operator.reducer

    def step(_key: Any, value: Any, there: bool, before: Any) -> Any:
        return reducer(before, value) if there else value

    return _by_key(operator, task, shape, step)


Step = Callable[[Any, Any, bool, Any], Any]
"""(key, value, whether there is a row, its value) -> the row's new value."""


def _aggregating(initializer: Callable[[], Any], aggregator: Callable[[Any, Any, Any], Any]) -> Step:
    def step(key: Any, value: Any, there: bool, before: Any) -> Any:
        return aggregator(key, value, before if there else initializer())

    return step


def _by_key(operator: Any, task: TaskContext, shape: Shape, step: Step) -> Made | None:
    store = task.store(operator.store)
    if operator.send_old or store.spec.type != "key-value" or not _takes_keys(store.spec, shape):
        return None
    values = _Values(store.spec, task.application)

    def run(block: Block, later: Later) -> Block:
        wanted = present(block.keys) & present(block.values)
        dropped = len(block) - int(wanted.sum())
        block = block.choose(wanted)
        keys, given = objects(block.keys, shape.key), objects(block.values, shape.value)
        updates, stamps, write = _fold(store, values, step, block.keys, keys, given, block.stamps)

        def keep() -> None:
            task.dropped += dropped
            write()

        later.append(keep)
        return Block(block.keys, updates, stamps, block.rows)

    return Made(run, Shape(shape.key, ColumnFormat(), is_table=True), keeps_state=True)


def _fold(
    store: Any, values: _Values, step: Step, row_keys: pa.Array, keys: Any, given: Any, stamps: Any
) -> Updates:
    """Every record's update and its time, and what writes the last row of each key."""
    coded = row_keys.cast(pa.binary()).dictionary_encode()
    names, codes = coded.dictionary.to_pylist(), coded.indices.to_pylist()
    raw = store.read_rows(names)
    times = [None if row is None else _TIME.unpack_from(row)[0] for row in raw]
    kept = [None if row is None else values.read(row[8:]) if values.shared else row[8:] for row in raw]
    last = [0] * len(names)
    updates, update_stamps = [], []
    shared, read, write_value = values.shared, values.read, values.write
    for code, key, value, stamp in zip(codes, keys, given, stamps.tolist(), strict=True):
        then, before = times[code], kept[code]
        if then is None:
            after = step(key, value, False, None)
        else:
            after = step(key, value, True, before if shared else read(before))
            if then > stamp:
                stamp = then
        times[code] = None if after is None else stamp
        kept[code] = after if shared else write_value(after)
        last[code] = stamp
        updates.append(after)
        update_stamps.append(stamp)
    rows = [
        None if at is None else _TIME.pack(at) + values.as_bytes(value)
        for at, value in zip(times, kept, strict=True)
    ]
    return updates, np.array(update_stamps, np.int64), lambda: store.write_rows(names, rows, last)


def _window_aggregate(operator: WindowAggregate, task: TaskContext, shape: Shape) -> Made | None:
    store = task.store(operator.store)
    if not _takes_keys(store.spec, shape):
        return None
    values = _Values(store.spec, task.application)
    step = _aggregating(operator.initializer, operator.aggregator)

    def update(block: Block, rows: Any, row_keys: pa.Array) -> Updates:
        keys, given = objects(block.keys, shape.key), objects(block.values, shape.value)
        picked = rows.tolist()
        return _fold(
            store,
            values,
            step,
            row_keys,
            [keys[row] for row in picked],
            [given[row] for row in picked],
            block.stamps[rows],
        )

    return in_time_windows(operator, task, update)


def _in_windows(operator: WindowAggregate, task: TaskContext, shape: Shape) -> Made | None:
    """Counts have a way of their own, without a call for each record."""
    return window_count(operator, task, shape) or _window_aggregate(operator, task, shape)


# Sessions ---------------------------------------------------------------------------------------------------


def _sessions(operator: SessionAggregate, task: TaskContext, shape: Shape) -> Made | None:
    store = task.store(operator.store)
    if operator.send_old or operator.final or not _takes_keys(store.spec, shape):
        return None
    values, clock = _Values(store.spec, task.application), clock_of(task, operator)
    gap, grace, retention = operator.windows.gap, operator.grace, store.spec.retention
    initializer, aggregator, merger = operator.initializer, operator.aggregator, operator.merger

    def run(block: Block, later: Later) -> Block:
        with_key = present(block.keys)
        dropped = len(block) - int(with_key.sum())
        block = block.choose(with_key)
        coded = block.keys.cast(pa.binary()).dictionary_encode()
        names, codes = coded.dictionary.to_pylist(), coded.indices.to_pylist()
        keys, given = objects(block.keys, shape.key), objects(block.values, shape.value)
        spans = _spans(codes, block.stamps, len(names))
        # By end and start, as the store gives them.
        known = [
            {
                (end, start): values.kept(value)
                for start, end, value in store.find(name, low - gap, high + gap)
            }
            for name, (low, high) in zip(names, spans, strict=True)
        ]
        touched: dict[tuple[int, int, int], Any] = {}
        newest, seen = store.newest, clock.seen
        out_keys: list[Windowed] = []
        out_values: list[Any] = []
        out_stamps: list[int] = []
        out_rows: list[int] = []
        rows = zip(codes, keys, given, block.stamps.tolist(), block.rows.tolist(), strict=True)
        for code, key, value, stamp, row in rows:
            seen = max(seen, stamp)
            start = end = stamp
            aggregate = initializer()
            mine = known[code]
            earliest = max(stamp - gap, newest - retention + 1)
            merged = sorted(one for one in mine if one[0] >= earliest and one[1] <= stamp + gap)
            for old_end, old_start in merged:
                aggregate = merger(key, aggregate, values.given(mine[old_end, old_start]))
                start, end = min(start, old_start), max(end, old_end)
            if end < seen - grace:
                dropped += 1
                continue
            if start != stamp or end != stamp:
                for old_end, old_start in merged:
                    del mine[old_end, old_start]
                    touched[code, old_start, old_end] = None
                    out_keys.append(Windowed(key, Window(old_start, old_end)))
                    out_values.append(None)
                    out_stamps.append(old_end)
                    out_rows.append(row)
            aggregate = aggregator(key, value, aggregate)
            kept = values.kept(aggregate)
            touched[code, start, end] = kept
            if aggregate is None:
                mine.pop((end, start), None)
            else:
                mine[end, start] = kept
            newest = max(newest, end)
            out_keys.append(Windowed(key, Window(start, end)))
            out_values.append(aggregate)
            out_stamps.append(end)
            out_rows.append(row)
        for one in touched.values():
            if one is not None:
                values.as_bytes(one)  # may raise: nothing has been kept yet

        def keep() -> None:
            task.dropped += dropped
            clock.seen = seen
            for (code, start, end), one in touched.items():
                store.put(names[code], start, end, None if one is None else values.given(one))

        later.append(keep)
        stamps, origins = np.array(out_stamps, np.int64), np.array(out_rows, np.int64)
        return Block(out_keys, out_values, stamps, origins)

    return Made(run, Shape(ColumnFormat(), ColumnFormat(), is_table=True), keeps_state=True)


def _spans(codes: list[int], stamps: Any, size: int) -> list[tuple[int, int]]:
    """The first and the last time of each key's records."""
    low, high = np.full(size, 1 << 62, np.int64), np.full(size, -1, np.int64)
    spots = np.array(codes, np.int64)
    np.minimum.at(low, spots, stamps)
    np.maximum.at(high, spots, stamps)
    return list(zip(low.tolist(), high.tolist(), strict=True))


# Joins of streams -------------------------------------------------------------------------------------------


def _keep_for_join(operator: KeepForJoin, task: TaskContext, shape: Shape) -> Made | None:
    store = task.store(operator.store)
    # A value is kept after the join has seen it: a joiner that changes it changes what is kept.
    if not store.spec.value.shared or not _takes_keys(store.spec, shape):
        return None
    serde = store.spec.value
    write = serde.writer(store.spec.changelog(task.application))

    def run(block: Block, later: Later) -> Block:
        keys = block.keys.cast(pa.binary()).to_pylist()
        bodies, stamps = to_bytes(block.values, shape.value, serde, write).to_pylist(), block.stamps.tolist()
        later.append(lambda: store.add_rows(keys, stamps, bodies))
        return block

    return Made(run, shape)


def _stream_join(operator: StreamStreamJoin, task: TaskContext, shape: Shape) -> Made | None:
    """The other side's rows do not change while this side's records are joined with them."""
    other = task.store(operator.other)
    if not _takes_keys(other.spec, shape):
        return None
    if operator.waiting is not None:
        return outer_join(operator, task, shape)
    windows, joined = operator.windows, operator.joiner
    before, after = windows.before_ms, windows.after_ms
    if not operator.is_left:
        before, after = after, before
    is_left, shared = operator.is_left, other.spec.value.shared
    tracker: Tracker = task.shared.setdefault(("join", operator.name), Tracker())

    def run(block: Block, later: Later) -> Block:
        newest = int(block.stamps.max())
        wanted = present(block.keys) & present(block.values)
        dropped = len(block) - int(wanted.sum())

        def record() -> None:
            task.dropped += dropped
            tracker.seen = max(tracker.seen, newest)

        later.append(record)
        block = block.choose(wanted)
        coded = block.keys.cast(pa.binary()).dictionary_encode()
        names, codes = coded.dictionary.to_pylist(), coded.indices.to_pylist()
        spans = _spans(codes, block.stamps, len(names)) if shared else []
        rows = [
            other.fetch(name, max(0, low - before), max(0, high + after))
            for name, (low, high) in zip(names, spans, strict=shared)
        ]
        times = [[then for then, _ in found] for found in rows]
        keys, given = objects(block.keys, shape.key), objects(block.values, shape.value)
        picked: list[int] = []
        results: list[Any] = []
        stamps: list[int] = []
        each = zip(count(), codes, keys, given, block.stamps.tolist(), strict=False)
        for number, code, key, value, stamp in each:
            low, high = max(0, stamp - before), max(0, stamp + after)
            if shared:
                at = times[code]
                found = rows[code][bisect_left(at, low) : bisect_right(at, high)]
            else:
                found = other.fetch(names[code], low, high)
            for then, row in found:
                results.append(joined(key, value, row[0]) if is_left else joined(key, row[0], value))
                stamps.append(max(stamp, then))
                picked.append(number)
        chosen = np.array(picked, np.int64)
        return Block(block.keys.take(chosen), results, np.array(stamps, np.int64), block.rows[chosen])

    return Made(run, Shape(shape.key, ColumnFormat()), keeps_state=True)


_MAKERS: dict[type, Maker] = {
    **WITHOUT_FUNCTIONS,
    Aggregate: _aggregate,
    Reduce: _reduce,
    WindowAggregate: _in_windows,
    SessionAggregate: _sessions,
    KeepForJoin: _keep_for_join,
    StreamStreamJoin: _stream_join,
}


def made(operator: Any, task: TaskContext, shape: Shape) -> Made | None:
    """An operator on blocks, or None."""
    make = _MAKERS.get(type(operator))
    if make is not None:
        return make(operator, task, shape)
    # Operators of other packages bring their own: SQL's generated loops do.
    own: Callable[[TaskContext, Shape], Made | None] | None = getattr(operator, "blocks", None)
    return None if own is None else own(task, shape)
