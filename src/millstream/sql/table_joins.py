"""Joins of rows that are at hand: an equality is looked up in a hash table, other conditions filter.

A row of a join is the rows of its sources one behind the other; a source without a match gives nulls. Null
equals nothing. Everything is held in memory, within a budget of rows that the whole query shares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from millstream.sql.ast import JoinType
from millstream.sql.errors import SqlError
from millstream.sql.results import Row

Key = Callable[[Row], Row]
LIMIT_SETTING = "ksql.query.pull.max.rows"


class Budget:
    """How many rows a query may hold at a time."""

    def __init__(self, rows: int) -> None:
        self._rows = self._left = rows

    def hold(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            self._left -= 1
            if self._left < 0:
                raise SqlError(
                    f"This query has to hold more than {self._rows} rows at a time. Narrow it down by WHERE, "
                    f"raise {LIMIT_SETTING}, or run it as BATCH SELECT"
                )
            yield row


@dataclass(frozen=True)
class HashJoin:
    """left_key, right_key   the sides of all equalities; the right one is of a row of the right source alone
    passes                   what else has to hold, of a joined row
    left_width, right_width  how many columns each side has
    """

    type: JoinType
    left_key: Key
    right_key: Key
    passes: Callable[[Row], bool] | None
    left_width: int
    right_width: int

    def rows(self, left: Iterable[Row], right: Iterable[Row]) -> Iterator[Row]:
        table: dict[Any, list[list[Any]]] = {}
        entries: list[list[Any]] = []
        for row in right:
            entry: list[Any] = [row, False]  # whether it has found a partner
            if self.type in ("RIGHT", "OUTER"):
                entries.append(entry)
            key = hashable(self.right_key(row))
            if None not in key:
                table.setdefault(key, []).append(entry)
        nothing = (None,) * self.right_width
        for row in left:
            found = False
            for entry in table.get(hashable(self.left_key(row)), ()):
                joined = row + entry[0]
                if self.passes is None or self.passes(joined):
                    found = entry[1] = True
                    yield joined
            if not found and self.type in ("LEFT", "OUTER"):
                yield row + nothing
        blank = (None,) * self.left_width
        for row, matched in entries:
            if not matched:
                yield blank + row


def hashable(row: Row) -> Row:
    """A row as a key of a dict: arrays and maps as tuples."""
    try:
        hash(row)
    except TypeError:
        return tuple(_frozen(value) for value in row)
    return row


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_frozen(one) for one in value)
    if isinstance(value, dict):
        return frozenset((name, _frozen(one)) for name, one in value.items())
    return value


def ordered(
    rows: Iterable[tuple[Row, Row]], descending: tuple[bool, ...], limit: int | None
) -> Iterator[Row]:
    """Rows by the values beside them; null is before everything else, as in Spark."""
    held = list(rows)
    for index in reversed(range(len(descending))):
        held.sort(
            key=lambda one, at=index: (one[1][at] is not None, one[1][at]),  # type: ignore[misc]
            reverse=descending[index],
        )
    for row, _ in held if limit is None else held[:limit]:
        yield row
