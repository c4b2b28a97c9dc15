"""Operators on blocks: those without state, counts, tables and their lookups; `stateful` has more. A maker
gives the function of an operator and the shape of what it gives, or None where only records one by one will
do.

A function of blocks changes nothing while it runs: it may raise, and then the records are run one by one
instead. What it has to change goes into `later`, which is run when all of the block has been computed;
nothing in there fails.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from millstream.streams.columns import loops
from millstream.streams.columns.blocks import (
    Block,
    ColumnFormat,
    NotInColumns,
    Shape,
    buffers,
    is_same,
    objects,
    stays_bytes,
    to_bytes,
    values,
)
from millstream.streams.expressions import Expression, Literal, as_list
from millstream.streams.operators.aggregates import Count, WindowAggregate, count_one
from millstream.streams.operators.base import TaskContext, clock_of
from millstream.streams.operators.joins import StreamTableJoin
from millstream.streams.operators.stateless import (
    Filter,
    FlatMap,
    FlatMapValues,
    Map,
    MapValues,
    NewValueOnly,
    NullKeys,
    PassOn,
    SelectKey,
)
from millstream.streams.operators.tables import StoredRows, TableSource
from millstream.streams.serdes import LONG, time_windowed
from millstream.streams.windows import TimeWindows

Later = list[Callable[[], None]]
Run = Callable[[Block, Later], Block]
Updates = tuple[Any, Any, Callable[[], None]]
"""Of rows of a store: the new values, their timestamps, and what writes them."""
WindowUpdate = Callable[[Block, Any, pa.Array], Updates]

_NEVER = -(1 << 63)
_MAX_WINDOWS = 64  # of one record
_TIME = struct.Struct(">q")
_ROW = np.dtype([("stamp", ">i8"), ("value", ">i8")])


class Made(NamedTuple):
    run: Run
    shape: Shape
    keeps_state: bool = False


Maker = Callable[[Any, TaskContext, Shape], Made | None]


# Without state ----------------------------------------------------------------------------------------------


def _pass_on(_operator: PassOn, _task: TaskContext, shape: Shape) -> Made:
    return Made(lambda block, later: block, shape)


def _new_value_only(_operator: NewValueOnly, _task: TaskContext, shape: Shape) -> Made | None:
    return Made(lambda block, later: block, Shape(shape.key, shape.value)) if shape.is_table else None


def _null_keys(operator: NullKeys, _task: TaskContext, shape: Shape) -> Made:
    if operator.keep:
        return Made(lambda block, later: block, shape)
    return Made(lambda block, later: block.choose(present(block.keys)), shape)


def _filter(operator: Filter, _task: TaskContext, shape: Shape) -> Made:
    wanted, answers = not operator.negate, answers_of(operator.predicate, shape)
    return Made(lambda block, later: block.choose(answers(block) == wanted), shape)


def answers_of(predicate: Any, shape: Shape) -> Callable[[Block], Any]:
    """Which records of a block a predicate holds for, as numpy's truth values."""
    evaluate = _evaluator(predicate, True, shape)

    def answers(block: Block) -> Any:
        passed = evaluate(block)
        if isinstance(passed, list) or not pa.types.is_boolean(passed.type):
            return np.array([bool(answer) for answer in as_list(passed, len(block))], np.bool_)
        return passed.fill_null(False).to_numpy(zero_copy_only=False)

    return answers


def _evaluator(function: Any, with_key: bool, shape: Shape) -> Callable[[Block], Any]:
    """What gives a column for a block: an expression on columns, or a function on each record."""
    if isinstance(function, Expression):

        def evaluate(block: Block) -> Any:
            found = function.column(
                lambda: values(block.keys, shape.key), lambda: values(block.values, shape.value)
            )
            return as_list(found, len(block)) if isinstance(found, Literal) else found

        return evaluate
    if not with_key:
        return lambda block: [function(value) for value in objects(block.values, shape.value)]

    def each(block: Block) -> Any:
        pairs = zip(objects(block.keys, shape.key), objects(block.values, shape.value), strict=True)
        return [function(key, value) for key, value in pairs]

    return each


def _map(operator: Map, _task: TaskContext, shape: Shape) -> Made:
    mapper = operator.mapper

    def run(block: Block, later: Later) -> Block:
        each = zip(objects(block.keys, shape.key), objects(block.values, shape.value), strict=True)
        pairs = [mapper(key, value) for key, value in each]
        return Block([key for key, _ in pairs], [value for _, value in pairs], block.stamps, block.rows)

    return Made(run, Shape(ColumnFormat(), ColumnFormat()))


def _select_key(operator: SelectKey, _task: TaskContext, shape: Shape) -> Made:
    evaluate = _evaluator(operator.selector, True, shape)

    def run(block: Block, later: Later) -> Block:
        return Block(evaluate(block), block.values, block.stamps, block.rows)

    return Made(run, Shape(ColumnFormat(), shape.value))


def _map_values(operator: MapValues, _task: TaskContext, shape: Shape) -> Made:
    evaluate = _evaluator(operator.mapper, operator.with_key, shape)

    def run(block: Block, later: Later) -> Block:
        return Block(block.keys, evaluate(block), block.stamps, block.rows)

    return Made(run, Shape(shape.key, ColumnFormat()))


def _flat_map(operator: FlatMap, _task: TaskContext, shape: Shape) -> Made:
    evaluate = _evaluator(operator.mapper, True, shape)

    def run(block: Block, later: Later) -> Block:
        found = [list(pairs) for pairs in evaluate(block)]
        rows = np.repeat(np.arange(len(block)), [len(pairs) for pairs in found])
        flat = [(key, value) for pairs in found for key, value in pairs]
        return Block(
            [key for key, _ in flat], [value for _, value in flat], block.stamps[rows], block.rows[rows]
        )

    return Made(run, Shape(ColumnFormat(), ColumnFormat()))


def _flat_map_values(operator: FlatMapValues, _task: TaskContext, shape: Shape) -> Made:
    evaluate = _evaluator(operator.mapper, operator.with_key, shape)

    def run(block: Block, later: Later) -> Block:
        found = [list(items) for items in as_list(evaluate(block), len(block))]
        rows = np.repeat(np.arange(len(block)), [len(items) for items in found])
        keys = (
            [block.keys[row] for row in rows.tolist()]
            if isinstance(block.keys, list)
            else block.keys.take(rows)
        )
        flat = [item for items in found for item in items]
        return Block(keys, flat, block.stamps[rows], block.rows[rows])

    return Made(run, Shape(shape.key, ColumnFormat()))


# Counting ---------------------------------------------------------------------------------------------------


def _count(operator: Count, task: TaskContext, shape: Shape) -> Made | None:
    store = task.store(operator.store)
    if operator.send_old or not _counts(store.spec) or not is_same(shape.key.serde, store.spec.key):
        return None

    def run(block: Block, later: Later) -> Block:
        wanted = present(block.keys) & present(block.values)
        dropped = len(block) - int(wanted.sum())
        block = block.choose(wanted)
        updates, stamps, write = _count_up(store, block.keys, block.stamps)

        def keep() -> None:
            task.dropped += dropped
            write()

        later.append(keep)
        return Block(block.keys, updates, stamps, block.rows)

    return Made(run, Shape(shape.key, ColumnFormat(), is_table=True), keeps_state=True)


def window_count(operator: WindowAggregate, task: TaskContext, shape: Shape) -> Made | None:
    store = task.store(operator.store)
    if operator.aggregator is not count_one or operator.initializer is not int or not _counts(store.spec):
        return None
    if not is_same(shape.key.serde, store.spec.key):
        return None

    def update(block: Block, rows: Any, row_keys: pa.Array) -> Updates:
        return _count_up(store, row_keys, block.stamps[rows])

    return in_time_windows(operator, task, update)


def in_time_windows(operator: WindowAggregate, task: TaskContext, update: WindowUpdate) -> Made | None:
    """An aggregation in tumbling or hopping windows. `update` gets the block, the row behind each of its
    windows (a record may lie in several) and the keys of their rows in the store."""
    store, windows = task.store(operator.store), operator.windows
    if not isinstance(windows, TimeWindows) or operator.send_old or operator.final:
        return None
    size, advance, grace = windows.size, windows.advance, windows.grace_ms
    windows_per_record = -(-size // advance)
    if windows_per_record > _MAX_WINDOWS:
        return None
    clock = clock_of(task, operator)

    def run(block: Block, later: Later) -> Block:
        with_key = present(block.keys)
        dropped = len(block) - int(with_key.sum())
        block = block.choose(with_key)
        room = len(block) * windows_per_record
        rows, starts = np.empty(room, np.int64), np.empty(room, np.int64)
        found, seen, late = loops.windows_of(block.stamps, clock.seen, size, advance, grace, rows, starts)
        rows, starts = rows[:found], starts[:found]
        if found and int(starts.min()) < store.oldest:
            raise NotInColumns("the store has seen newer windows than this operator has")
        updates, stamps, write = update(block, rows, windowed_keys(block.keys, rows, starts, 4))

        def keep() -> None:
            task.dropped += dropped + late
            clock.seen = seen
            if found:
                write()
                store.saw(int(starts.max()))

        later.append(keep)
        return Block(windowed_keys(block.keys, rows, starts, 0), updates, stamps, block.rows[rows])

    serde = time_windowed(store.spec.key, size)
    key = ColumnFormat(serde, serde.reader(store.spec.name))
    return Made(run, Shape(key, ColumnFormat(), is_table=True), keeps_state=True)


def _counts(spec: Any) -> bool:
    return spec.type in ("key-value", "window") and spec.value is LONG and stays_bytes(spec.key)


def _count_up(store: Any, row_keys: pa.Array, stamps: Any) -> Updates:
    """Every record's count and time, and what writes the last row of each key."""
    coded = row_keys.cast(pa.binary()).dictionary_encode()
    names = coded.dictionary.to_pylist()
    rows = store.read_rows(names)
    known = np.array([row is not None for row in rows], np.bool_)
    before = np.frombuffer(b"".join([row for row in rows if row is not None]), _ROW)
    counts, newest = np.zeros(len(names), np.int64), np.full(len(names), _NEVER, np.int64)
    counts[known], newest[known] = before["value"], before["stamp"]
    updates, update_stamps = np.empty(len(stamps), np.int64), np.empty(len(stamps), np.int64)
    codes = coded.indices.to_numpy()
    loops.count_up(codes, np.ascontiguousarray(stamps), counts, newest, updates, update_stamps)

    def write() -> None:
        after = np.empty(len(names), _ROW)
        after["value"], after["stamp"] = counts, newest
        raw = after.tobytes()
        store.write_rows(names, [raw[at : at + 16] for at in range(0, len(raw), 16)], newest.tolist())

    return pa.array(updates), update_stamps, write


def windowed_keys(keys: pa.Array, rows: Any, starts: Any, zeros: int) -> pa.Array:
    """The key of each row with its window's start behind, as stores and topics have it."""
    ends, data = buffers(keys)
    lengths = np.diff(ends)[rows]
    out = np.empty(int(lengths.sum()) + (8 + zeros) * len(rows), np.uint8)
    out_ends = np.zeros(len(rows) + 1, np.int32)
    loops.put_windows(rows, starts, ends, data, zeros, out_ends, out)
    array_buffers = [None, pa.py_buffer(out_ends), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), len(rows), array_buffers, null_count=0)


# Tables -----------------------------------------------------------------------------------------------------


def _table(operator: TableSource, task: TaskContext, shape: Shape) -> Made | None:
    """The last record of each key in the block is its row."""
    if operator.send_old or not operator.kept:
        return None
    store = task.store(operator.store)
    if store.spec.type != "key-value":
        return None
    if not is_same(shape.key.serde, store.spec.key) or not stays_bytes(store.spec.key):
        return None
    serde, write = store.spec.value, store.spec.value.writer(store.spec.changelog(task.application))

    def run(block: Block, later: Later) -> Block:
        with_key = present(block.keys)
        dropped = len(block) - int(with_key.sum())
        block = block.choose(with_key)
        row_keys = block.keys.cast(pa.binary()).to_pylist()
        bodies = to_bytes(block.values, shape.value, serde, write).to_pylist()
        raw = block.stamps.astype(">i8").tobytes()
        fronts = [raw[at : at + 8] for at in range(0, len(raw), 8)]
        rows = [None if body is None else front + body for front, body in zip(fronts, bodies, strict=True)]

        def keep() -> None:
            task.dropped += dropped
            store.write_rows(row_keys, rows, block.stamps.tolist())

        later.append(keep)
        return block

    return Made(run, Shape(shape.key, shape.value, is_table=True), keeps_state=True)


# Joining ----------------------------------------------------------------------------------------------------


def _join(operator: StreamTableJoin, task: TaskContext, shape: Shape) -> Made | None:
    """With the stored rows of a table, by the record's key."""
    if operator.selector is not None or not isinstance(operator.table, StoredRows):
        return None
    store = task.store(operator.table.name)
    if store.spec.type != "key-value":
        return None
    if not is_same(shape.key.serde, store.spec.key) or not stays_bytes(store.spec.key):
        return None
    read = store.spec.value.reader(store.spec.changelog(task.application))
    joiner, left = operator.joiner, operator.left

    def run(block: Block, later: Later) -> Block:
        wanted = present(block.values)
        if not left:
            wanted &= present(block.keys)
        dropped = len(block) - int(wanted.sum())
        block = block.choose(wanted)
        row_keys = block.keys.cast(pa.binary()).to_pylist()
        if left and block.keys.null_count:
            raise NotInColumns("a record without a key")
        rows = store.read_rows(row_keys)
        if not left:
            found = np.array([row is not None for row in rows], np.bool_)
            block = block.choose(found)
            rows = [row for row in rows if row is not None]
        each = zip(objects(block.keys, shape.key), objects(block.values, shape.value), rows, strict=True)
        joined = [joiner(key, value, None if row is None else read(row[8:])) for key, value, row in each]

        def count() -> None:
            task.dropped += dropped

        later.append(count)
        return Block(block.keys, joined, block.stamps, block.rows)

    return Made(run, Shape(shape.key, ColumnFormat()))


def present(column: Any) -> Any:
    """Which are not None."""
    if isinstance(column, list):
        return np.array([item is not None for item in column], np.bool_)
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    return column.is_valid().to_numpy(zero_copy_only=False)


MAKERS: dict[type, Maker] = {
    PassOn: _pass_on,
    NewValueOnly: _new_value_only,
    NullKeys: _null_keys,
    Filter: _filter,
    Map: _map,
    SelectKey: _select_key,
    FlatMap: _flat_map,
    FlatMapValues: _flat_map_values,
    MapValues: _map_values,
    Count: _count,
    WindowAggregate: window_count,
    TableSource: _table,
    StreamTableJoin: _join,
}
