"""Functions of arrays and maps, and the three that take lambdas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from millstream.sql.arithmetic import wrap32, wrap64
from millstream.sql.casts import java_text
from millstream.sql.errors import EvaluationError, SqlError
from millstream.sql.functions.table import Function, Overload, overload, scalar
from millstream.sql.types import Argument, ArrayType, Base, SqlType

_ARRAY, _MAP, _LAMBDA = "ARRAY", "MAP", "LAMBDA"


def distinct(values: Sequence[Any]) -> list[Any]:
    """Each value once, in the order of first appearance. Lists and structs cannot be hashed: they are
    compared.
    """
    try:
        return list(dict.fromkeys(values))
    except TypeError:
        found: list[Any] = []
        for value in values:
            if value not in found:
                found.append(value)
        return found


def _contained(values: list[Any]) -> Any:
    try:
        return set(values)
    except TypeError:
        return values


def _concat(left: list[Any] | None, right: list[Any] | None) -> list[Any] | None:
    if left is None and right is None:
        return None
    return [*(left or ()), *(right or ())]


def _except(left: list[Any], right: list[Any]) -> list[Any]:
    out = _contained(right)
    return [value for value in distinct(left) if value not in out]


def _intersect(left: list[Any], right: list[Any]) -> list[Any]:
    both = _contained(right)
    return [value for value in distinct(left) if value in both]


_JOINABLE = {Base.BOOLEAN, Base.INTEGER, Base.BIGINT, Base.DOUBLE, Base.DECIMAL, Base.STRING}


def _join(arguments: Sequence[Argument], result: SqlType) -> Callable[..., str | None]:
    array = arguments[0]
    if not isinstance(array, ArrayType):
        raise SqlError("ARRAY_JOIN wants an array")
    if array.item.base in _JOINABLE:
        shown = java_text(array.item)
    else:
        base = array.item.base

        def shown(value: Any) -> str:
            raise EvaluationError(f"error: hit element of type {base} which is currently not supported")

    def joined(values: list[Any] | None, delimiter: str | None = ",") -> str | None:
        if values is None:
            return None
        return (delimiter or "").join(["null" if value is None else shown(value) for value in values])

    return joined


def _extreme(choose: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    def chosen(values: list[Any]) -> Any:
        there = [value for value in values if value is not None]
        return choose(there) if there else None

    return chosen


def _sort(values: list[Any], direction: str = "ASC") -> list[Any] | None:
    upper = direction.upper()
    if upper not in ("ASC", "ASCENDING", "DESC", "DESCENDING"):
        return None
    there = sorted((value for value in values if value is not None), reverse=upper.startswith("DESC"))
    return there + [None] * (len(values) - len(there))


@lru_cache(maxsize=4096)
def _spread(key: str) -> int:
    """The hash by which java.util.HashMap places a string."""
    found = 0
    units = key.encode("utf-16-le", "surrogatepass")
    for at in range(0, len(units), 2):
        found = 31 * found + (units[at] | units[at + 1] << 8) & 0xFFFFFFFF
    return found ^ found >> 16


def in_hash_order(values: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """The entries in the order in which ksqlDB goes through a map: that of Java's table for so many."""
    if len(values) < 2 or not all(isinstance(key, str) for key in values):
        return list(values.items())
    size = 4
    while len(values) > size * 3 // 4:
        size *= 2
    return sorted(values.items(), key=lambda item: _spread(item[0]) & size - 1)


def _entries(values: dict[str, Any], in_order: bool) -> list[dict[str, Any]]:
    items = sorted(values.items(), key=lambda item: item[0]) if in_order else in_hash_order(values)
    return [{"K": key, "V": value} for key, value in items]


def _series(wrap: Callable[[int], int]) -> Callable[..., list[int]]:
    def series(start: int, end: int, step: int | None = None) -> list[int]:
        if step is None:
            step = 1 if end > start else -1
        if step == 0:
            raise EvaluationError("GENERATE_SERIES step cannot be zero")
        if (end - start) * step < 0:
            raise EvaluationError("GENERATE_SERIES step has wrong sign")
        return [wrap(value) for value in range(start, end + (1 if step > 0 else -1), step)]

    return series


def _slice(values: list[Any] | None, start: int | None, end: int | None) -> list[Any] | None:
    if values is None:
        return None
    first = 0 if start is None else start - 1
    last = len(values) if end is None else end
    return values[first:last] if 0 <= first <= last <= len(values) else None


def _as_map(keys: list[str], values: list[Any]) -> dict[str, Any]:
    return {key: values[at] if at < len(values) else None for at, key in enumerate(keys)}


def _map_union(left: dict[str, Any] | None, right: dict[str, Any] | None) -> dict[str, Any] | None:
    if left is None and right is None:
        return None
    return {**(left or {}), **(right or {})}


def _filter_map(values: dict[Any, Any], keep: Callable[[Any, Any], bool]) -> dict[Any, Any]:
    found = {key: value for key, value in values.items() if keep(key, value)}
    if None in found.values():
        raise EvaluationError("a map made by FILTER has no null values")
    return found


def _transform_map(
    values: dict[Any, Any], new_key: Callable[[Any, Any], Any], new_value: Callable[[Any, Any], Any]
) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key, value in values.items():
        changed = new_key(key, value)
        if changed in found:
            raise EvaluationError(f"Duplicate key {changed}")
        result = new_value(key, value)
        if result is None:
            raise EvaluationError("a map made by TRANSFORM has no null values")
        found[changed] = result
    return found


def _reduce_array(values: list[Any] | None, state: Any, step: Callable[[Any, Any], Any]) -> Any:
    if state is None:
        return None
    for value in values or ():
        state = step(state, value)
    return state


def _reduce_map(values: dict[Any, Any] | None, state: Any, step: Callable[[Any, Any, Any], Any]) -> Any:
    if state is None:
        return None
    for key, value in in_hash_order(values or {}):
        state = step(state, key, value)
    return state


def _entry_overloads() -> tuple[Overload, ...]:
    return tuple(
        overload(
            f"(MAP<VARCHAR, {name}> map, BOOLEAN sorted) -> ARRAY<STRUCT<K VARCHAR, V {name}>>", _entries
        )
        for name in ("INT", "BIGINT", "DOUBLE", "BOOLEAN", "VARCHAR")
    )


ROWS: list[Function] = [
    scalar(
        "array_concat",
        _ARRAY,
        "The elements of both arrays; null only if both are.",
        overload("(ARRAY<T> left, ARRAY<T> right) -> ARRAY<T>", _concat, own_nulls=True),
    ),
    scalar(
        "ARRAY_CONTAINS",
        _ARRAY,
        "Whether the array has the value; false for a null array.",
        overload(
            "(ARRAY<T> array, T val) -> BOOLEAN",
            lambda values, value: values is not None and value in values,
            own_nulls=True,
        ),
    ),
    scalar(
        "array_distinct",
        _ARRAY,
        "Each element once, in the order of first appearance.",
        overload("(ARRAY<T> input) -> ARRAY<T>", distinct),
    ),
    scalar(
        "array_except",
        _ARRAY,
        "The distinct elements of the first array that are not in the second.",
        overload("(ARRAY<T> left, ARRAY<T> right) -> ARRAY<T>", _except),
    ),
    scalar(
        "array_intersect",
        _ARRAY,
        "The distinct elements of the first array that are in the second, too.",
        overload("(ARRAY<T> left, ARRAY<T> right) -> ARRAY<T>", _intersect),
    ),
    scalar(
        "ARRAY_JOIN",
        _ARRAY,
        "The elements as one string with a delimiter between them, by default a comma; null is printed.",
        overload("(ARRAY<T> array) -> VARCHAR", factory=_join, own_nulls=True),
        overload("(ARRAY<T> array, VARCHAR delimiter) -> VARCHAR", factory=_join, own_nulls=True),
    ),
    scalar("ARRAY_LENGTH", _ARRAY, "The number of elements.", overload("(ARRAY<T> array) -> INT", len)),
    scalar(
        "array_max",
        _ARRAY,
        "The greatest element that is not null.",
        overload("(ARRAY<T> input) -> T", _extreme(max)),
    ),
    scalar(
        "array_min",
        _ARRAY,
        "The least element that is not null.",
        overload("(ARRAY<T> input) -> T", _extreme(min)),
    ),
    scalar(
        "array_remove",
        _ARRAY,
        "The elements that are not equal to a value.",
        overload(
            "(ARRAY<T> array, T victim) -> ARRAY<T>",
            lambda values, victim: None if values is None else [value for value in values if value != victim],
            own_nulls=True,
        ),
    ),
    scalar(
        "array_sort",
        _ARRAY,
        "The elements in order, ASC or DESC, nulls last.",
        overload("(ARRAY<T> input) -> ARRAY<T>", _sort),
        overload("(ARRAY<T> input, VARCHAR direction) -> ARRAY<T>", _sort),
    ),
    scalar(
        "array_union",
        _ARRAY,
        "The distinct elements of both arrays.",
        overload(
            "(ARRAY<T> left, ARRAY<T> right) -> ARRAY<T>", lambda left, right: distinct([*left, *right])
        ),
    ),
    scalar(
        "GENERATE_SERIES",
        _ARRAY,
        "The integers from a start to an end, both included, in steps.",
        overload("(INT start, INT end) -> ARRAY<INT>", _series(wrap32)),
        overload("(INT start, INT end, INT step) -> ARRAY<INT>", _series(wrap32)),
        overload("(BIGINT start, BIGINT end) -> ARRAY<BIGINT>", _series(wrap64)),
        overload("(BIGINT start, BIGINT end, INT step) -> ARRAY<BIGINT>", _series(wrap64)),
    ),
    scalar(
        "slice",
        _ARRAY,
        "The elements from one position to another, both included and counted from 1.",
        overload("(ARRAY<T> in, INT from, INT to) -> ARRAY<T>", _slice, own_nulls=True),
    ),
    scalar(
        "AS_MAP",
        _MAP,
        "A map from keys and values in two arrays.",
        overload("(ARRAY<VARCHAR> keys, ARRAY<T> values) -> MAP<VARCHAR, T>", _as_map),
    ),
    scalar(
        "ENTRIES",
        _MAP,
        "The entries of a map as an array of structs with K and V, in the order of keys if wanted.",
        *_entry_overloads(),
    ),
    scalar(
        "map_keys",
        _MAP,
        "The keys of a map.",
        overload(
            "(MAP<VARCHAR, T> input) -> ARRAY<VARCHAR>",
            lambda values: [key for key, _ in in_hash_order(values)],
        ),
    ),
    scalar(
        "map_union",
        _MAP,
        "The entries of both maps; the second wins. Null only if both are.",
        overload(
            "(MAP<VARCHAR, T> map1, MAP<VARCHAR, T> map2) -> MAP<VARCHAR, T>", _map_union, own_nulls=True
        ),
    ),
    scalar(
        "map_values",
        _MAP,
        "The values of a map.",
        overload(
            "(MAP<VARCHAR, T> input) -> ARRAY<T>",
            lambda values: [value for _, value in in_hash_order(values)],
        ),
    ),
    scalar(
        "filter",
        _LAMBDA,
        "The elements or entries for which a lambda is true.",
        overload(
            "(ARRAY<T> array, LAMBDA(T) => BOOLEAN function) -> ARRAY<T>",
            lambda values, keep: [value for value in values if keep(value)],
        ),
        overload("(MAP<K, V> map, LAMBDA(K, V) => BOOLEAN biFunction) -> MAP<K, V>", _filter_map),
    ),
    scalar(
        "reduce",
        _LAMBDA,
        "One value from all elements or entries: a lambda takes the value so far and the next of them.",
        overload(
            "(ARRAY<T> list, S initialState, LAMBDA(S, T) => S biFunction) -> S",
            _reduce_array,
            own_nulls=True,
        ),
        overload(
            "(MAP<K, V> map, S initialState, LAMBDA(S, K, V) => S triFunction) -> S",
            _reduce_map,
            own_nulls=True,
        ),
    ),
    scalar(
        "transform",
        _LAMBDA,
        "The results of a lambda for each element; of a map, of two lambdas for keys and values.",
        overload(
            "(ARRAY<T> array, LAMBDA(T) => R function) -> ARRAY<R>",
            lambda values, change: [change(value) for value in values],
        ),
        overload(
            "(MAP<K, V> map, LAMBDA(K, V) => R biFunction1, LAMBDA(K, V) => T biFunction2) -> MAP<R, T>",
            _transform_map,
        ),
    ),
]
