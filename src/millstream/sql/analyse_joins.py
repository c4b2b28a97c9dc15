"""Conditions of joins: which sides belong to which source, what can be joined with what, and the key of the
result."""

from __future__ import annotations

from collections.abc import Callable

from millstream.sql import ast
from millstream.sql.analysis import JoinStep
from millstream.sql.errors import sql_error
from millstream.sql.expression_text import text
from millstream.sql.names import SYNTHETIC, BoundSource, Resolver
from millstream.sql.types import SqlType, quoted

TypeOf = Callable[[ast.Expression], "SqlType | None"]

_SHOWN = {
    "INNER": "[INNER] JOIN",
    "LEFT": "LEFT [OUTER] JOIN",
    "RIGHT": "RIGHT [OUTER] JOIN",
    "OUTER": "[FULL] OUTER JOIN",
}


def analyse_joins(
    query: ast.Query, sources: tuple[BoundSource, ...], type_of: TypeOf
) -> tuple[JoinStep, ...]:
    resolver = Resolver(sources)
    seen: set[str] = set()
    for bound in sources:
        if bound.source.name in seen:
            entry = "self join" if len(sources) == 2 else "source twice"
            raise sql_error(entry, name=bound.source.name)
        seen.add(bound.source.name)
    for place, (join, bound) in enumerate(zip(query.joins, sources[1:], strict=True)):
        _sides(join, bound, sources[: place + 1], resolver)
    steps: list[JoinStep] = []
    for join, bound in zip(query.joins, sources[1:], strict=True):
        before = sources[: len(steps) + 1]
        steps.append(_step(join, bound, before, steps, resolver, type_of))
    return tuple(steps)


def _sides(
    join: ast.JoinedSource, right: BoundSource, before: tuple[BoundSource, ...], resolver: Resolver
) -> tuple[ast.Expression, ast.Expression, str]:
    """Left and right side of the condition, whatever their order, and the alias of the left one."""
    condition = join.on
    if isinstance(condition, ast.Logical):
        shown = text(resolver.qualify(condition, "JOIN ON"))
        raise sql_error("several join conditions", join.location, expression=shown)
    if not isinstance(condition, ast.Compare):
        raise sql_error("join condition", join.location, expression=text(condition))
    if condition.operator != "=":
        raise sql_error("join by order", join.location)
    compare = resolver.qualify(condition, "JOIN ON")
    assert isinstance(compare, ast.Compare)
    one, other = _side(compare.left, compare), _side(compare.right, compare)
    if one == other:
        raise sql_error("join of one source", join.location, left=quoted(one), right=quoted(other))
    if other == right.alias:
        found = (compare.left, compare.right, one)
    else:
        found = (compare.right, compare.left, other)
    if right.alias not in (one, other) or found[2] not in {bound.alias for bound in before}:
        raise sql_error(
            "join without its source",
            join.location,
            source=quoted(right.alias),
            left=quoted(one),
            right=quoted(other),
        )
    return found


def _step(
    join: ast.JoinedSource,
    right: BoundSource,
    before: tuple[BoundSource, ...],
    steps: list[JoinStep],
    resolver: Resolver,
    type_of: TypeOf,
) -> JoinStep:
    left_on, right_on, left_alias = _sides(join, right, before, resolver)
    left = next(bound for bound in before if bound.alias == left_alias)
    left_kind = "STREAM" if before[0].source.kind == "STREAM" else "TABLE"
    flipped = _side(_left_side(join, resolver), join.on) == right.alias
    one, other = (right_on, left_on) if flipped else (left_on, right_on)
    shown = f"{text(one)} = {text(other)}"
    _check_kinds(join, left_kind, before, right)
    left_type, right_type = type_of(left_on), type_of(right_on)
    foreign_key = False
    if right.source.kind == "TABLE" and not _is_key(right_on, right):
        if left_kind == "TABLE":
            raise sql_error("join on no primary key", join.location, condition=shown)
        raise sql_error("join on no table key", join.location, condition=shown)
    if left_type != right_type:
        raise sql_error(
            "join types",
            join.location,
            left=text(one),
            left_type=right_type if flipped else left_type,
            right=text(other),
            right_type=left_type if flipped else right_type,
        )
    if left_kind == "TABLE" and right.source.kind == "TABLE":
        foreign_key = not _joins_on_key(left_on, before, steps)
        if foreign_key:
            if join.type == "OUTER":
                names = f"{left.source.name} {_SHOWN[join.type]} {right.source.name}"
                raise sql_error("foreign key full join", join.location, join=names)
            if join.type == "RIGHT":
                raise sql_error("foreign key join type", join.location, type="RIGHT OUTER")
            if left.source.window is not None or right.source.window is not None:
                raise sql_error("foreign key of windows", join.location)
            if len(before) > 1:
                raise sql_error("foreign key in n-way", join.location, condition=shown)
    _check_windows(join, left, right, left_on, right_on, foreign_key)
    key, synthetic, equal = _key(join, left_on, right_on, steps, foreign_key, before)
    return JoinStep(join.type, right, left_on, right_on, join.within, foreign_key, key, synthetic, equal)


def _left_side(join: ast.JoinedSource, resolver: Resolver) -> ast.Expression:
    """The side of the condition that is written first."""
    assert isinstance(join.on, ast.Compare)
    return resolver.qualify(join.on.left, "JOIN ON")


def _side(node: ast.Expression, compare: ast.Expression) -> str:
    aliases = {part.source for part in ast.walk(node) if isinstance(part, ast.Column) and part.source}
    if len(aliases) != 1:
        raise sql_error("join side", node.location, side=text(node), condition=text(compare))
    return str(next(iter(aliases)))


def _check_kinds(
    join: ast.JoinedSource, left_kind: str, before: tuple[BoundSource, ...], right: BoundSource
) -> None:
    left = before[-1] if len(before) == 1 else before[0]
    names = f"{left.source.name} {_SHOWN[join.type]} {right.source.name}"
    right_kind = right.source.kind
    if left_kind == "TABLE" and right_kind == "STREAM":
        raise sql_error("table-stream join", join.location, join=names)
    if left_kind == "STREAM" and right_kind == "STREAM" and join.within is None:
        raise sql_error("no WITHIN", join.location)
    if left_kind == "STREAM" and right_kind == "TABLE":
        if join.type == "OUTER":
            raise sql_error("stream-table outer join", join.location, join=names, type="full-outer")
        if join.type == "RIGHT":
            raise sql_error("stream-table outer join", join.location, join=names, type="right-outer")
    if join.within is not None and not (left_kind == "STREAM" and right_kind == "STREAM"):
        raise sql_error(
            "WITHIN of a table", join.location, left=left_kind.capitalize(), right=right_kind.capitalize()
        )


def _check_windows(
    join: ast.JoinedSource,
    left: BoundSource,
    right: BoundSource,
    left_on: ast.Expression,
    right_on: ast.Expression,
    foreign_key: bool,
) -> None:
    one, other = left.source.window, right.source.window
    if (one is None) != (other is None):
        shown = [
            f"{quoted(bound.source.name)} is {'not ' if bound.source.window is None else ''}windowed"
            for bound in (left, right)
        ]
        raise sql_error("windowed with not", join.location, left=shown[0], right=shown[1])
    if one is None or other is None:
        return
    for node, bound in ((left_on, left), (right_on, right)):
        if not _is_key(node, bound):
            raise sql_error("windowed repartition", join.location)
    if (one.type == "SESSION") != (other.type == "SESSION"):
        raise sql_error("joins of windows", join.location, left=one.type, right=other.type)
    by_registry = left.source.key_format.traits.infers and right.source.key_format.traits.infers
    if one.size != other.size and not by_registry:
        raise sql_error("windowed repartition", join.location)


def _is_key(node: ast.Expression, bound: BoundSource) -> bool:
    key = bound.schema.key
    return isinstance(node, ast.Column) and len(key) == 1 and node == ast.Column(key[0].name, bound.alias)


def _joins_on_key(left_on: ast.Expression, before: tuple[BoundSource, ...], steps: list[JoinStep]) -> bool:
    """Whether the left side of a table-table join is the key of what has been joined so far."""
    if not steps:
        return _is_key(left_on, before[0])
    return left_on in steps[-1].key


def _key(
    join: ast.JoinedSource,
    left_on: ast.Expression,
    right_on: ast.Expression,
    steps: list[JoinStep],
    foreign_key: bool,
    before: tuple[BoundSource, ...],
) -> tuple[tuple[ast.Expression, ...], str | None, tuple[ast.Expression, ...]]:
    """How the key of the result can be selected, and its name where it is no column, and all expressions that
    are equal to it."""
    if foreign_key:
        first = before[0]
        return tuple(ast.Column(column.name, first.alias) for column in first.schema.key), None, ()
    viable: list[ast.Expression] = []
    if steps and left_on in steps[-1].equal:
        viable.extend(steps[-1].equal)
    if left_on not in viable:
        viable.append(left_on)
    viable.append(right_on)
    columns = tuple(node for node in viable if isinstance(node, ast.Column) and node.source is not None)
    if join.type == "OUTER" or not columns:
        name = _synthetic_name(before, steps)
        # In a full outer join either side may be null: neither is the key.
        equal = (ast.Column(name),) if join.type == "OUTER" else (ast.Column(name), *viable)
        return (ast.Column(name),), name, equal
    return columns, None, tuple(viable)


def _synthetic_name(before: tuple[BoundSource, ...], steps: list[JoinStep]) -> str:
    taken = {column.name for bound in before for column in bound.schema.columns}
    taken |= {step.right.schema.find(SYNTHETIC).name for step in steps if step.right.schema.find(SYNTHETIC)}  # type: ignore[union-attr]
    name, number = SYNTHETIC, 0
    while name in taken:
        number += 1
        name = f"{SYNTHETIC}_{number}"
    return name
