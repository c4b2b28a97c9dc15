"""Whether CREATE OR REPLACE ... AS may give a query another statement: what it keeps has to stay of use.

The new query goes on where the old one was, with its stores. Conditions and projections may change. The steps
that own a store, or decide under which key records lie, have to be the same; for some of them ksqlDB allows
no change of the query at all, whatever it is about.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.sql import ast
from millstream.sql.analysis import Analysis
from millstream.sql.errors import sql_error
from millstream.sql.expression_text import text

_UNSUPPORTED = frozenset(
    {
        "StreamFlatMap",
        "StreamWindowedAggregate",
        "TableAggregate",
        "TableGroupBy",
        "TableSuppress",
        "WindowedStreamSource",
        "WindowedTableSource",
    }
)


@dataclass(frozen=True, slots=True)
class Step:
    """A step by ksqlDB's name for it, and what has to match, in the order in which it is looked at."""

    name: str
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def java_class(self) -> str:
        return f"class io.confluent.ksql.execution.plan.{self.name}"


def check_upgrade(old: Analysis, new: Analysis) -> None:
    before, after = _steps(old), _steps(new)
    for step in (*before, *after):
        if step.name in _UNSUPPORTED or step.name.endswith("Join"):
            raise sql_error("no upgrade of a step", step=step.name)
    for one, other in zip(before, after, strict=False):
        if one.name != other.name:
            if one is before[-1]:
                raise sql_error("upgrade adds a step", step=other.java_class)
            _differ(one, "class", one.java_class, other.java_class)
        for (name, was), (_, is_now) in zip(one.properties, other.properties, strict=True):
            if was != is_now:
                _differ(one, name, was, is_now)


def _differ(step: Step, name: str, was: str, is_now: str) -> None:
    raise sql_error("upgrade changes a step", step=step.name, property=name, old=was, new=is_now)


def _steps(analysis: Analysis) -> list[Step]:
    """From the sink to the source, all but projections and conditions."""
    found = []
    source = analysis.sources[0].source
    kind = "Stream" if source.kind == "STREAM" else "Table"
    if analysis.group_by:
        if analysis.query.emit == "FINAL":
            found.append(Step("TableSuppress"))
        windowed = "Windowed" if analysis.query.window is not None else ""
        functions = ("aggregate functions", _listed(analysis.aggregates))
        found.append(Step(f"{kind}{windowed}Aggregate", (functions,)))
        found.append(Step(f"{kind}GroupBy", (("group by clause", _listed(analysis.group_by)),)))
    if analysis.table_functions:
        found.append(Step("StreamFlatMap"))
    if analysis.partition_by:
        keys = ("keyExpressions", _listed(analysis.partition_by))
        found.append(Step(f"{kind}SelectKey", (keys,)))
    for step in reversed(analysis.joins):
        if step.foreign_key:
            found.append(Step("ForeignKeyTableTableJoin"))
        else:
            right = "Stream" if step.right.source.kind == "STREAM" else "Table"
            found.append(Step(f"{kind}{right}Join"))
    windowed = "Windowed" if source.window is not None else ""
    timestamp = "Optional.empty" if source.timestamp is None else source.timestamp.column
    properties = (("topicName", source.topic), ("timestampColumn", timestamp))
    found.append(Step(f"{windowed}{kind}Source", properties))
    return found


def _listed(nodes: tuple[ast.Expression, ...]) -> str:
    return f"[{', '.join(map(text, nodes))}]"
