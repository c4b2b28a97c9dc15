"""Joins: rows of both sides, one after the other, in one row.

Records meet where their keys have the same bytes. So a side whose key is not the join's, or is written in
another format, goes through a repartition topic first. Formats of a schema registry always do: the same key
has other bytes under another schema. Topics and stores are called as ksqlDB calls them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.sql import ast
from millstream.sql.analysis import JoinStep
from millstream.sql.code import Names
from millstream.sql.environment import DEFAULT_KEY_FORMAT
from millstream.sql.errors import sql_error
from millstream.sql.flow import ColumnId, Flow, store_key
from millstream.sql.formats import Format, check_columns
from millstream.sql.internal_rows import ROWS
from millstream.sql.row_functions import value_function
from millstream.sql.types import SqlType, quoted
from millstream.streams.dsl.options import Materialized
from millstream.streams.serdes import Serde
from millstream.streams.windows import JoinWindows

if TYPE_CHECKING:
    from millstream.sql.plan import Planner

_DAY = 86_400_000


def joined(planner: Planner, left: Flow, step: JoinStep, right: Flow) -> Flow:
    """One join. The row is left, right, and the key where no source has it."""
    _check_partitions(planner, step)
    key_types = left.key_types if step.foreign_key else (_type(planner, left, step.left_on),)
    flow = _combined(left, right, step, key_types)
    join = _joiner(left.width, right.width, step.synthetic is not None)
    if step.foreign_key:
        return _foreign_key(planner, left, step, right, flow, join)
    _check_key(planner, step, key_types[0])
    name = "L_" * (len(planner.analysis.joins) - 1 - planner.analysis.joins.index(step))
    left, right, format_ = _aligned(planner, left, step, right, key_types, name)
    flow = flow.changed(key_format=format_, aligned=True)
    key = store_key(format_, key_types, flow.window)
    if left.table is not None and right.table is not None:
        return _tables(left, step, right, flow, join, key)
    if right.table is not None:
        return _stream_table(left, step, right, flow, join, key, name + "Join")
    return _streams(left, step, right, flow, join, key, name + "Join")


def _combined(left: Flow, right: Flow, step: JoinStep, key_types: tuple[SqlType, ...]) -> Flow:
    columns, types = dict(left.columns), dict(left.types)
    for own, index in right.columns.items():
        columns[own], types[own] = left.width + index, right.types[own]
    if step.synthetic is not None:
        own = (None, step.synthetic)
        columns[own], types[own] = left.width + right.width, key_types[0]
    return Flow(columns, types, key_types, left.key_format, window=left.window)


def _joiner(left: int, right: int, with_key: bool) -> Any:
    left_nulls, right_nulls = (None,) * left, (None,) * right

    def join(_key: Any, one: Any, other: Any) -> Any:
        return (left_nulls if one is None else one) + (right_nulls if other is None else other)

    def join_and_key(key: Any, one: Any, other: Any) -> Any:
        plain = getattr(key, "key", key)
        return join(key, one, other) + ((None,) if plain is None else plain[:1])

    return join_and_key if with_key else join


def _type(planner: Planner, flow: Flow, node: ast.Expression) -> SqlType:
    found = planner.code(flow, node, Names()).type
    if found is None:
        raise sql_error("join on null", node.location)
    return found


def _check_key(planner: Planner, step: JoinStep, type_: SqlType) -> None:
    node = step.left_on
    name = f"{node.source}_{node.name}" if isinstance(node, ast.Column) else step.synthetic or "ROWKEY"
    check_columns(Format("JSON"), ((name, type_),), is_key=True)


# Keys -----------------------------------------------------------------------------------------------------


def _aligned(
    planner: Planner, left: Flow, step: JoinStep, right: Flow, key_types: tuple[SqlType, ...], name: str
) -> tuple[Flow, Flow, Format]:
    """Both sides by the join's key, in one format."""
    left_moves = not _left_is_key(planner, step)
    right_moves = not _is_key(step.right_on, (_source_key(planner, step.right.alias),))
    format_ = right.key_format if left_moves and not right_moves else left.key_format
    if format_.name == "NONE":
        format_ = right.key_format
    if format_.name == "NONE":
        format_ = Format(str(planner.environment.setting(DEFAULT_KEY_FORMAT, "KAFKA")).upper())
    key = store_key(format_, key_types, left.window)
    left = _side(planner, left, step.left_on, left_moves, format_, key, name + "Left")
    right = _side(planner, right, step.right_on, right_moves, format_, key, name + "Right")
    return left, right, format_


def _side(
    planner: Planner, flow: Flow, node: ast.Expression, moves: bool, format_: Format, key: Serde, name: str
) -> Flow:
    registry = format_.traits.infers and not flow.aligned
    if not moves and not registry and flow.key_format.name == format_.name:
        return flow
    if flow.stream is not None:
        if not moves:
            return flow.with_stream(flow.stream.select_key(lambda own, _value: own))
        return _rekeyed(planner, flow, node)
    assert flow.table is not None
    through = flow.table.to_stream().repartition(name=f"{name}SourceKeyed-SelectKey", key=key, value=ROWS)
    table = through.to_table(materialized=Materialized(f"{name}SourceKeyed-Materialize", key, ROWS))
    return flow.with_table(table)


def _rekeyed(planner: Planner, flow: Flow, node: ast.Expression) -> Flow:
    assert flow.stream is not None
    names = Names()
    code = planner.code(flow, node, names)
    compute = value_function(code, planner.shown(node), names, planner.log)

    def key_of(_key: Any, value: Any) -> Any:
        found = compute(value)
        return None if found is None else (found,)

    return flow.with_stream(flow.stream.filter(_has_value).select_key(key_of))


def _has_value(_key: Any, value: Any) -> bool:
    return value is not None


def _is_key(node: ast.Expression, keys: tuple[tuple[ColumnId, ...], ...]) -> bool:
    return isinstance(node, ast.Column) and ((node.source, node.name),) in keys


def _source_key(planner: Planner, alias: str) -> tuple[ColumnId, ...]:
    bound = next(one for one in planner.analysis.sources if one.alias == alias)
    return tuple((alias, column.name) for column in bound.schema.key)


def _left_keys(planner: Planner, step: JoinStep) -> tuple[tuple[ColumnId, ...], ...]:
    """The columns that are the key of the left side, in all their names."""
    index = planner.analysis.joins.index(step)
    if index == 0:
        return (_source_key(planner, planner.analysis.sources[0].alias),)
    before = planner.analysis.joins[index - 1]
    return tuple(((node.source, node.name),) for node in before.key if isinstance(node, ast.Column))


def _left_is_key(planner: Planner, step: JoinStep) -> bool:
    index = planner.analysis.joins.index(step)
    if index and step.left_on in planner.analysis.joins[index - 1].equal:
        return True
    return _is_key(step.left_on, _left_keys(planner, step))


# Joins ----------------------------------------------------------------------------------------------------


def _streams(left: Flow, step: JoinStep, right: Flow, flow: Flow, join: Any, key: Serde, name: str) -> Flow:
    within = step.within
    assert within is not None and left.stream is not None and right.stream is not None
    before, after = within.before.milliseconds, within.after.milliseconds
    grace = _DAY if within.grace is None else within.grace.milliseconds
    at_once = within.grace is None
    serdes: dict[str, Any] = {"key_serde": key, "value_serde": ROWS, "other_serde": ROWS, "name": name}
    one, other = left.stream, right.stream
    windows = JoinWindows(before, after, grace, at_once)
    if step.type == "RIGHT":
        windows = JoinWindows(after, before, grace, at_once)
        stream = other.left_join(one, lambda key, second, first: join(key, first, second), windows, **serdes)
    elif step.type == "INNER":
        stream = one.join(other, join, windows, **serdes)
    elif step.type == "LEFT":
        stream = one.left_join(other, join, windows, **serdes)
    else:
        stream = one.outer_join(other, join, windows, **serdes)
    stream._key, stream._value = key, ROWS
    return flow.with_stream(stream)


def _stream_table(
    left: Flow, step: JoinStep, right: Flow, flow: Flow, join: Any, key: Serde, name: str
) -> Flow:
    assert left.stream is not None and right.table is not None
    serdes: dict[str, Any] = {"key_serde": key, "value_serde": ROWS, "name": name}
    how = left.stream.left_join if step.type == "LEFT" else left.stream.join
    stream = how(right.table, join, **serdes)
    stream._key, stream._value = key, ROWS
    return flow.with_stream(stream)


def _tables(left: Flow, step: JoinStep, right: Flow, flow: Flow, join: Any, key: Serde) -> Flow:
    assert left.table is not None and right.table is not None
    if step.type == "INNER":
        table = left.table.join(right.table, join)
    elif step.type == "LEFT":
        table = left.table.left_join(right.table, join)
    elif step.type == "RIGHT":
        table = right.table.left_join(left.table, lambda key, second, first: join(key, first, second))
    else:
        table = left.table.outer_join(right.table, join)
    table._key, table._value = key, ROWS
    return flow.with_table(table)


def _foreign_key(planner: Planner, left: Flow, step: JoinStep, right: Flow, flow: Flow, join: Any) -> Flow:
    assert left.table is not None and right.table is not None
    names = Names()
    code = planner.code(left, step.left_on, names)
    compute = value_function(code, planner.shown(step.left_on), names, planner.log)

    def foreign(_key: Any, value: Any) -> Any:
        found = compute(value)
        return None if found is None else (found,)

    key = store_key(left.key_format, left.key_types, left.window)
    kept = Materialized(None, key, ROWS)
    how = left.table.left_join if step.type == "LEFT" else left.table.join
    return flow.with_table(how(right.table, join, foreign_key=foreign, materialized=kept))


def _check_partitions(planner: Planner, step: JoinStep) -> None:
    """Sides that are not repartitioned have to have as many partitions as each other."""
    if step.foreign_key:
        return
    left = planner.analysis.sources[0]
    count = planner.environment.partitions_of
    one = left.source.partitions or count(left.source.topic)
    other = step.right.source.partitions or count(step.right.source.topic)
    if one is None or other is None or one == other:
        return
    if _left_is_key(planner, step) and _is_key(step.right_on, (_source_key(planner, step.right.alias),)):
        raise sql_error(
            "partitions",
            left=quoted(left.source.name),
            right=quoted(step.right.source.name),
            left_count=one,
            right_count=other,
        )
