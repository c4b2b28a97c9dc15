"""Aggregate functions that keep values: lists and sets, the first and last, the greatest, histograms,
distinct counts.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import struct
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

from millstream.sql.casts import java_text
from millstream.sql.errors import SqlError
from millstream.sql.functions.aggregates import COMPARABLE, Settings, Types, value_type
from millstream.sql.functions.table import Aggregate, Function, aggregate, aggregate_overload
from millstream.sql.types import BIGINT, BYTES, INTEGER, STRING, array_type, map_type, struct_type

_HISTOGRAM_LIMIT = 1000
# Sequence numbers order values of sessions that are merged. They begin at the time, so a restart does not go
# back.
_SEQUENCE = itertools.count(time.time_ns())


def _limit(settings: Settings, name: str) -> float:
    limit = int(settings.get(name, -1))
    return math.inf if limit < 0 else limit


def _collect_list(types: Types, literals: Sequence[Any], settings: Settings) -> Aggregate:
    limit = _limit(settings, "ksql.functions.collect_list.limit")

    def undo(state: list[Any], value: Any) -> list[Any]:
        for at in range(len(state) - 1, -1, -1):
            if state[at] == value:
                return state[:at] + state[at + 1 :]
        return state

    def merge(one: list[Any], other: list[Any]) -> list[Any]:
        room = limit - len(one)
        return one + (other if room >= len(other) else other[: int(max(room, 0))])

    type_ = array_type(value_type(types))
    return Aggregate(
        type_,
        type_,
        list,
        lambda state, value: [*state, value] if len(state) < limit else state,
        merge,
        undo=undo,
    )


def _collect_set(types: Types, literals: Sequence[Any], settings: Settings) -> Aggregate:
    limit = _limit(settings, "ksql.functions.collect_set.limit")

    def add(state: list[Any], value: Any) -> list[Any]:
        return [*state, value] if len(state) < limit and value not in state else state

    def merge(one: list[Any], other: list[Any]) -> list[Any]:
        for value in other:
            one = add(one, value)
        return one

    type_ = array_type(value_type(types))
    return Aggregate(type_, type_, list, add, merge)


def _attr(types: Types, literals: Sequence[Any], settings: Settings) -> Aggregate:
    """How often each value is there; it is the answer if it is the only one."""
    type_ = value_type(types)

    def changed(state: list[dict[str, Any]], value: Any, by: int) -> list[dict[str, Any]]:
        found = [dict(entry) for entry in state]
        for entry in found:
            if entry["VALUE"] == value:
                entry["COUNT"] = max(0, entry["COUNT"] + by)
                return found
        return [*found, {"VALUE": value, "COUNT": by}] if by > 0 else found

    def merge(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for entry in other:
            one = changed(one, entry["VALUE"], entry["COUNT"])
        return one

    def result(state: list[dict[str, Any]]) -> Any:
        there = [entry["VALUE"] for entry in state if entry["COUNT"] > 0]
        return there[0] if len(there) == 1 else None

    return Aggregate(
        array_type(struct_type(("VALUE", type_), ("COUNT", INTEGER))),
        type_,
        list,
        lambda state, value: changed(state, value, 1),
        merge,
        result,
        lambda state, value: changed(state, value, -1),
    )


def _histogram(types: Types, literals: Sequence[Any], settings: Settings) -> Aggregate:
    def changed(state: dict[Any, int], value: Any, by: int) -> dict[Any, int]:
        if value not in state and len(state) >= _HISTOGRAM_LIMIT:
            return state
        return {**state, value: state.get(value, 0) + by}

    def undo(state: dict[Any, int], value: Any) -> dict[Any, int]:
        if state[value] > 1:
            return changed(state, value, -1)
        return {key: count for key, count in state.items() if key != value}

    def merge(one: dict[Any, int], other: dict[Any, int]) -> dict[Any, int]:
        for value, count in other.items():
            one = changed(one, value, count)
        return one

    type_ = map_type(STRING, BIGINT)
    return Aggregate(type_, type_, dict, lambda state, value: changed(state, value, 1), merge, undo=undo)


# Registers of a HyperLogLog: 3 bytes (index, rank) for each that is not 0, in order, until all of them are
# shorter.
_BITS = 14
_REGISTERS = 1 << _BITS
_ALPHA = 0.7213 / (1 + 1.079 / _REGISTERS)


def _dense(state: bytes) -> bytearray:
    if len(state) == _REGISTERS:
        return bytearray(state)
    found = bytearray(_REGISTERS)
    for at in range(0, len(state), 3):
        found[state[at] << 8 | state[at + 1]] = state[at + 2]
    return found


def _packed(registers: bytearray) -> bytes:
    used = _REGISTERS - registers.count(0)
    if used * 3 >= _REGISTERS:
        return bytes(registers)
    return b"".join(struct.pack(">HB", at, rank) for at, rank in enumerate(registers) if rank)


class _Keys(Sequence[int]):
    """The indexes of a sparse state, for bisect."""

    def __init__(self, state: bytes) -> None:
        self._state = state

    def __len__(self) -> int:
        return len(self._state) // 3

    def __getitem__(self, at: Any) -> Any:
        return self._state[at * 3] << 8 | self._state[at * 3 + 1]


def _raised(state: bytes, index: int, rank: int) -> bytes:
    """The state with a register at least at `rank`."""
    if len(state) == _REGISTERS:
        return state if state[index] >= rank else state[:index] + bytes((rank,)) + state[index + 1 :]
    at = bisect_left(_Keys(state), index) * 3
    entry = struct.pack(">HB", index, rank)
    if state[at : at + 2] == entry[:2]:
        return state if state[at + 2] >= rank else state[:at] + entry + state[at + 3 :]
    grown = state[:at] + entry + state[at:]
    return grown if len(grown) < _REGISTERS else _packed(_dense(grown))


def _cardinality(state: bytes) -> int:
    registers = _dense(state)
    zeros = registers.count(0)
    estimate = _ALPHA * _REGISTERS * _REGISTERS / sum(2.0**-rank for rank in registers)
    if estimate <= 2.5 * _REGISTERS and zeros:
        return round(_REGISTERS * math.log(_REGISTERS / zeros))
    return round(estimate)


def _count_distinct(types: Types, literals: Sequence[Any], settings: Settings) -> Aggregate:
    shown = java_text(value_type(types))

    def add(state: bytes, value: Any) -> bytes:
        if value is None:
            return state
        digest = hashlib.blake2b(value if isinstance(value, bytes) else shown(value).encode(), digest_size=8)
        bits = int.from_bytes(digest.digest())
        rest = bits & (1 << (64 - _BITS)) - 1
        return _raised(state, bits >> (64 - _BITS), 64 - _BITS - rest.bit_length() + 1)

    def merge(one: bytes, other: bytes) -> bytes:
        return _packed(bytearray(map(max, _dense(one), _dense(other))))

    return Aggregate(BYTES, BIGINT, bytes, add, merge, _cardinality)


def _entry(value: Any) -> dict[str, Any]:
    return {"SEQ": next(_SEQUENCE), "VAL": value}


def _order(entry: dict[str, Any]) -> tuple[bool, int]:
    """Sequence numbers that have overflowed are the later ones."""
    return entry["SEQ"] < 0, entry["SEQ"]


def _entry_type(types: Types) -> Any:
    return struct_type(("SEQ", BIGINT), ("VAL", value_type(types)))


def _count_and_nulls(literals: Sequence[Any], name: str) -> tuple[int | None, bool]:
    """The literals are n, ignoreNulls, or both."""
    count: int | None = None
    ignore = True
    for literal in literals:
        if isinstance(literal, bool):
            ignore = literal
        else:
            count = int(literal)
    if count is not None and count <= 0:
        raise SqlError(f"{name} must be 1 or greater")
    return count, ignore


def _earliest(types: Types, literals: Sequence[Any], settings: Settings) -> Aggregate:
    _, ignore = _count_and_nulls(literals, "earliestN")

    def add(state: Any, value: Any) -> Any:
        return state if state is not None or (value is None and ignore) else _entry(value)

    def merge(one: Any, other: Any) -> Any:
        if one is None or other is None:
            return other if one is None else one
        return min(one, other, key=_order)

    return Aggregate(
        _entry_type(types),
        value_type(types),
        lambda: None,
        add,
        merge,
        lambda state: None if state is None else state["VAL"],
    )


def _latest(types: Types, literals: Sequence[Any], settings: Settings) -> Aggregate:
    _, ignore = _count_and_nulls(literals, "latestN")

    def merge(one: Any, other: Any) -> Any:
        if ignore and (one["VAL"] is None or other["VAL"] is None):
            return other if one["VAL"] is None and other["VAL"] is not None else one
        return max(one, other, key=_order)

    return Aggregate(
        _entry_type(types),
        value_type(types),
        lambda: _entry(None),
        lambda state, value: state if value is None and ignore else _entry(value),
        merge,
        lambda state: state["VAL"],
    )


def _by_offset(latest: bool) -> Callable[[Types, Sequence[Any], Settings], Aggregate]:
    """The first or last n values."""

    def made(types: Types, literals: Sequence[Any], settings: Settings) -> Aggregate:
        found, ignore = _count_and_nulls(literals, "latestN" if latest else "earliestN")
        count = found or 1

        def kept(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return entries[-count:] if latest else entries[:count]

        def add(state: list[dict[str, Any]], value: Any) -> list[dict[str, Any]]:
            if (value is None and ignore) or (not latest and len(state) >= count):
                return state
            return kept([*state, _entry(value)])

        return Aggregate(
            array_type(_entry_type(types)),
            array_type(value_type(types)),
            list,
            add,
            lambda one, other: kept(sorted([*one, *other], key=_order)),
            lambda state: [entry["VAL"] for entry in state],
        )

    return made


def _top(types: Types, literals: Sequence[Any], settings: Settings) -> Aggregate:
    """The k greatest values, or structs of them with other columns of their rows."""
    size = int(literals[0])
    columns = len(types) - 1
    if columns > 1:
        names = ("sort_col", *(f"col{at}" for at in range(columns - 1)))
        item: Any = struct_type(*((name, value_type(types, at)) for at, name in enumerate(names)))

        def entry(values: tuple[Any, ...]) -> Any:
            return dict(zip(names, values, strict=True))

        def sorted_by(each: Any) -> Any:
            return each["sort_col"]

    else:
        item = value_type(types)

        def entry(values: tuple[Any, ...]) -> Any:
            return values[0]

        def sorted_by(each: Any) -> Any:
            return each

    def best(entries: list[Any]) -> list[Any]:
        return sorted(entries, key=sorted_by, reverse=True)[:size]

    def add(state: list[Any], *values: Any) -> list[Any]:
        if values[0] is None or (len(state) >= size and state and values[0] <= sorted_by(state[-1])):
            return state
        return best([*state[: size - 1], entry(values)] if len(state) >= size else [*state, entry(values)])

    return Aggregate(array_type(item), array_type(item), list, add, lambda one, other: best([*one, *other]))


def _top_distinct(types: Types, literals: Sequence[Any], settings: Settings) -> Aggregate:
    size = int(literals[0])

    def add(state: list[Any], value: Any) -> list[Any]:
        if value is None or value in state or (len(state) >= size and value <= state[-1]):
            return state
        return sorted([*state[: size - 1], value], reverse=True)

    def merge(one: list[Any], other: list[Any]) -> list[Any]:
        return sorted({*one, *other}, reverse=True)[:size]

    type_ = array_type(value_type(types))
    return Aggregate(type_, type_, list, add, merge)


ROWS: list[Function] = [
    aggregate(
        "ATTR",
        "The value that all rows have in common; null if there are several.",
        aggregate_overload("(T val)", _attr, undoes=True),
    ),
    aggregate(
        "COLLECT_LIST",
        "All values, nulls among them, up to `ksql.functions.collect_list.limit`.",
        aggregate_overload("(T val)", _collect_list, undoes=True),
    ),
    aggregate(
        "COLLECT_SET",
        "Each value once, null too, up to `ksql.functions.collect_set.limit`.",
        aggregate_overload("(T val)", _collect_set),
    ),
    aggregate(
        "COUNT_DISTINCT",
        "About how many different values there are: a HyperLogLog with an error below 1 %.",
        aggregate_overload("(T val)", _count_distinct),
    ),
    aggregate(
        "EARLIEST_BY_OFFSET",
        "The first value, or the first n as an array; a last argument false counts nulls as values.",
        aggregate_overload("(T val)", _earliest),
        aggregate_overload("(T val, BOOLEAN ignoreNulls)", _earliest, literals=1),
        aggregate_overload("(T val, INT earliestN)", _by_offset(False), literals=1),
        aggregate_overload("(T val, INT earliestN, BOOLEAN ignoreNulls)", _by_offset(False), literals=2),
    ),
    aggregate(
        "HISTOGRAM",
        f"How often each string occurs, up to {_HISTOGRAM_LIMIT} of them.",
        aggregate_overload("(VARCHAR val)", _histogram, undoes=True),
    ),
    aggregate(
        "LATEST_BY_OFFSET",
        "The last value, or the last n as an array; a last argument false counts nulls as values.",
        aggregate_overload("(T val)", _latest),
        aggregate_overload("(T val, BOOLEAN ignoreNulls)", _latest, literals=1),
        aggregate_overload("(T val, INT latestN)", _by_offset(True), literals=1),
        aggregate_overload("(T val, INT latestN, BOOLEAN ignoreNulls)", _by_offset(True), literals=2),
    ),
    aggregate(
        "TOPK",
        "The k greatest values; with more columns, structs of the value and those columns of its row.",
        *(
            aggregate_overload(f"({type_name} val, ANY... others, INT k)", _top, literals=1)
            for type_name in ("INT", "BIGINT", "DOUBLE", "VARCHAR")
        ),
    ),
    aggregate(
        "TOPKDISTINCT",
        "The k greatest different values.",
        *(
            aggregate_overload(f"({type_name} val, INT k)", _top_distinct, literals=1)
            for type_name in COMPARABLE
        ),
    ),
]
