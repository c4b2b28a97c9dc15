"""The key of a result: which columns of the projection it is made of, and what is wrong when they are missing
or there twice. Queries whose rows go to a client need none."""

from __future__ import annotations

from dataclasses import replace

from millstream.sql import ast
from millstream.sql.analysis import Analysis
from millstream.sql.errors import join_english, sql_error
from millstream.sql.expression_text import text
from millstream.sql.names import unqualified
from millstream.sql.types import quoted


def with_keys(analysis: Analysis, sink: str | None) -> Analysis:
    """The analysis with the places of key columns."""
    slots = key_slots(analysis)
    if sink is None:
        return replace(analysis, key_expressions=slots)
    select = list(analysis.select)
    places: dict[ast.Expression, list[int]] = {}
    for place, column in enumerate(select):
        places.setdefault(column.expression, []).append(place)
    missing: list[int] = []
    for slot, viable in enumerate(slots):
        index = _find(analysis, places, viable)
        if index is None:
            missing.append(slot)
        else:
            select[index] = replace(select[index], key=slot)
    if missing:
        raise _missing(analysis, slots, missing, sink)
    if all(column.key is not None for column in select):
        raise sql_error("no value columns")
    return replace(analysis, select=tuple(select), key_expressions=slots)


def key_slots(analysis: Analysis) -> tuple[tuple[ast.Expression, ...], ...]:
    """For each column of the key the expressions that select it."""
    if analysis.group_by:
        return tuple((node,) for node in analysis.group_by)
    if analysis.partition_by:
        return tuple(
            (node,)
            for node in analysis.partition_by
            if not (isinstance(node, ast.Literal) and node.value is None)
        )
    if analysis.joins:
        last = analysis.joins[-1]
        if last.foreign_key:
            return tuple((node,) for node in last.key)
        return (last.key,)
    bound = analysis.sources[0]
    return tuple((ast.Column(column.name, bound.alias),) for column in bound.schema.key)


def _find(
    analysis: Analysis, places: dict[ast.Expression, list[int]], viable: tuple[ast.Expression, ...]
) -> int | None:
    """`places`: where in the projection an expression is. Columns and parts of a key may be thousands."""
    for node in viable:
        indexes = places.get(node, [])
        if len(indexes) > 1:
            names = sorted(analysis.select[index].name for index in indexes)
            if analysis.group_by:
                raise sql_error("key twice in groups", names=join_english([quoted(name) for name in names]))
            raise sql_error(
                "key twice", key=quoted(_internal_name(analysis, node)), names=join_english(names)
            )
        if indexes:
            return indexes[0]
    return None


def _internal_name(analysis: Analysis, node: ast.Expression) -> str:
    if isinstance(node, ast.Column):
        return node.name if not analysis.joins or node.source is None else f"{node.source}_{node.name}"
    if isinstance(node, ast.Field):
        return node.name
    return "KSQL_COL_0"


def _missing(
    analysis: Analysis, slots: tuple[tuple[ast.Expression, ...], ...], missing: list[int], sink: str
) -> Exception:
    if analysis.joins and not analysis.group_by and not analysis.partition_by:
        last = analysis.joins[-1]
        if last.foreign_key:
            names = [
                quoted(node.name) for slot in missing for node in slots[slot] if isinstance(node, ast.Column)
            ]
            return sql_error(
                "foreign key missing",
                what="column" if len(names) == 1 else "columns",
                source=quoted(analysis.sources[0].alias),
                names=", ".join(names),
            )
        shown = [text(node) for node in slots[0]]
        noun = "join expression" if len(shown) == 1 else "join expressions"
        extra = ""
        if last.synthetic is not None:
            extra = (
                f"\n{last.synthetic} was added as a synthetic key column because the join criteria did not "
                "match any source column. This expression must be included in the projection and may be "
                "aliased."
            )
        return sql_error(
            "key missing",
            sink=quoted(sink),
            noun=noun,
            names=join_english(shown, "or"),
            example=shown[0],
            extra=extra,
        )
    if analysis.group_by:
        noun = "grouping expression"
        nodes: list[ast.Expression] = [slots[slot][0] for slot in missing]
    elif analysis.partition_by:
        noun = "partitioning expression"
        nodes = [slots[slot][0] for slot in missing]
    else:
        noun = "key column"
        nodes = [slots[slot][0] for slot in missing]
    shown = [text(_as_shown(analysis, node, noun)) for node in nodes]
    return sql_error(
        "key missing",
        sink=quoted(sink),
        noun=noun if len(shown) == 1 else noun + "s",
        names=join_english(shown),
        example=", ".join(shown),
        extra="",
    )


def _as_shown(analysis: Analysis, node: ast.Expression, noun: str) -> ast.Expression:
    """Columns of a query's one source are shown by name alone; inside expressions they keep the source."""
    if analysis.joins:
        return node
    return unqualified(node) if isinstance(node, ast.Column) or noun != "partitioning expression" else node
