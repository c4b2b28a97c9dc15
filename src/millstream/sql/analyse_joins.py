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
    seen: set[str] = set()
    for bound in sources:
        if bound.source.name in seen:
            entry = "self join" if len(sources) == 2 else "source twice"
            raise sql_error(entry, name=bound.source.name)
        seen.add(bound.source.name)
    for index, (join, bound) in enumerate(zip(query.joins, sources[1:], strict=True)):
        # A condition sees the sources up to its own, not those that are joined behind it.
        later = frozenset(one.alias for one in sources[index + 2 :])
        seen_here = Resolver(sources[: index + 2], later=later)
        _sides(join, bound, sources[: index + 1], seen_here, windows=True)
    resolver = Resolver(sources)
    steps: list[JoinStep] = []
    for join, bound in zip(query.joins, sources[1:], strict=True):
        before = sources[: len(steps) + 1]
        steps.append(_step(join, bound, before, steps, resolver, type_of))
    for join, step in zip(reversed(query.joins), reversed(steps), strict=True):
        _check_within(join, "STREAM" if sources[0].source.kind == "STREAM" else "TABLE", step)
    for join, step in zip(query.joins, steps, strict=True):
        _check_repartition(join, step, sources)
    return tuple(steps)


def _sides(
    join: ast.JoinedSource,
    right: BoundSource,
    before: tuple[BoundSource, ...],
    resolver: Resolver,
    *,
    windows: bool = False,
) -> tuple[ast.Expression, ast.Expression, str]:
    """Left and right side of the condition, whatever their order, and the alias of the left one."""
    condition = join.on
    if not isinstance(condition, ast.Compare):
        if isinstance(condition, ast.Logical) and all(map(_is_equality, (condition.left, condition.right))):
            shown = text(resolver.qualify(condition, "JOIN ON"))
            raise sql_error("several join conditions", join.location, expression=shown)
        raise sql_error("join condition", join.location, expression=text(condition))
    if not _is_equality(condition):
        raise sql_error("join by order", join.location)
    compare = resolver.qualify(condition, "JOIN ON")
    assert isinstance(compare, ast.Compare)
    one, other = _side(compare.left, compare), _side(compare.right, compare)
    if one == other:
        raise sql_error("join of one source", join.location, left=quoted(one), right=quoted(other))
    known = {bound.alias: bound for bound in (*before, right)}
    if windows and one in known and other in known:
        _check_windows(join, known[one], known[other])
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


def _is_equality(node: ast.Expression) -> bool:
    return isinstance(node, ast.Compare) and node.operator == "="


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
    left_kind, right_kind = before[0].source.kind, right.source.kind
    flipped = _side(_left_side(join, resolver), join.on) == right.alias
    one, other = (right_on, left_on) if flipped else (left_on, right_on)
    shown = f"{text(one)} = {text(other)}"
    names = f"{left.source.name} {_SHOWN[join.type]} {right.source.name}"
    if left_kind == "TABLE" and right_kind == "STREAM":
        raise sql_error("table-stream join", join.location, join=names)
    if left_kind == "STREAM" and right_kind == "TABLE" and join.type == "OUTER":
        raise sql_error("stream-table outer join", join.location, join=names)
    if right_kind == "TABLE" and not _is_key(right_on, right):
        entry = "join on no primary key" if left_kind == "TABLE" else "join on no table key"
        raise sql_error(entry, join.location, condition=shown)
    foreign_key = left_kind == "TABLE" and not _is_key(left_on, left)
    if foreign_key:
        if join.type == "OUTER":
            raise sql_error("foreign key full join", join.location, join=names)
        if len(before) > 1:
            raise sql_error("foreign key in n-way", join.location, condition=shown)
    left_type, right_type = type_of(left_on), type_of(right_on)
    if left_type != right_type:
        if left_kind == "STREAM":
            raise sql_error("join key types", join.location, left=left_type, right=right_type)
        raise sql_error(
            "join types",
            join.location,
            left=text(one),
            left_type=right_type if flipped else left_type,
            right=text(other),
            right_type=left_type if flipped else right_type,
        )
    if foreign_key and right.source.window is not None:
        raise sql_error("foreign key of windows", join.location)
    if left_kind == "TABLE" and steps and left_on not in steps[-1].key:
        now = steps[-1].key[0]
        name = now.name if isinstance(now, ast.Column) else text(now)
        raise sql_error("repartition of a table", join.location, key=name, expression=text(left_on))
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


def _check_within(join: ast.JoinedSource, left_kind: str, step: JoinStep) -> None:
    """Streams are joined in a window, tables never."""
    right_kind = step.right.source.kind
    if left_kind == "STREAM" and right_kind == "STREAM":
        if join.within is None:
            raise sql_error("no WITHIN", join.location)
        return
    if join.within is not None:
        entry = "WITHIN of a table" if left_kind == "STREAM" else "WITHIN of tables"
        raise sql_error(entry, join.location)
    if left_kind == "STREAM" and join.type == "RIGHT":
        raise sql_error("stream-table right join", join.location, type=_SHOWN[join.type])
    if step.foreign_key and join.type == "RIGHT":
        raise sql_error("foreign key join type", join.location, type="RIGHT OUTER")


def _check_windows(join: ast.JoinedSource, left: BoundSource, right: BoundSource) -> None:
    """Which windowed sources can be joined at all."""
    one, other = left.source.window, right.source.window
    if (one is None) != (other is None):
        shown = [
            f"{quoted(bound.alias)} is {bound.source.window.type if bound.source.window else 'not'} windowed"
            for bound in (left, right)
        ]
        raise sql_error("windowed with not", join.location, left=shown[0], right=shown[1])
    if one is not None and other is not None and (one.type == "SESSION") != (other.type == "SESSION"):
        raise sql_error("joins of windows", join.location, left=one.type, right=other.type)


def _check_repartition(join: ast.JoinedSource, step: JoinStep, sources: tuple[BoundSource, ...]) -> None:
    """Windowed sources stay where they are."""
    aliases = {part.source for part in ast.walk(step.left_on) if isinstance(part, ast.Column)}
    left = next(bound for bound in sources if bound.alias in aliases)
    one, other = left.source.window, step.right.source.window
    if one is None or other is None:
        return
    for node, bound in ((step.left_on, left), (step.right_on, step.right)):
        if not _is_key(node, bound):
            raise sql_error("windowed repartition", join.location)
    by_registry = left.source.key_format.traits.infers and step.right.source.key_format.traits.infers
    if one.size != other.size and not by_registry:
        raise sql_error("windowed repartition", join.location)


def _is_key(node: ast.Expression, bound: BoundSource) -> bool:
    key = bound.schema.key
    return isinstance(node, ast.Column) and len(key) == 1 and node == ast.Column(key[0].name, bound.alias)


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
