"""GROUP BY: the aggregates' states in a store, and behind it rows of the groups and results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.sql import ast
from millstream.sql.analysis import grace_of
from millstream.sql.catalog import WINDOW_BOUNDS, WindowInfo
from millstream.sql.code import Names
from millstream.sql.errors import sql_error
from millstream.sql.expression_text import text
from millstream.sql.flow import ColumnId, Flow, store_key
from millstream.sql.formats import check_columns
from millstream.sql.functions.table import Aggregate
from millstream.sql.internal_rows import ROWS
from millstream.sql.row_functions import build, guarded, projection
from millstream.sql.types import SqlType
from millstream.streams.dsl.options import Materialized
from millstream.streams.serdes import Serde
from millstream.streams.windows import SessionWindows, TimeWindows

if TYPE_CHECKING:
    from millstream.sql.plan import Planner


def aggregated(planner: Planner, flow: Flow) -> Flow:
    analysis = planner.analysis
    names = Names()
    groups = [planner.code(flow, node, names) for node in analysis.group_by]
    key_types: list[SqlType] = []
    for node, code in zip(analysis.group_by, groups, strict=True):
        if code.type is None:
            raise sql_error("GROUP BY null", node.location)
        key_types.append(code.type)
    shown = [planner.shown(node) for node in analysis.group_by]
    make_key = projection(
        [(shown[index], code, shown[index]) for index, code in enumerate(groups)], names, planner.log
    )
    aggregates = [aggregate_call(planner, flow, call) for call in analysis.aggregates]
    _check_states(planner, aggregates)
    states = States(planner, flow, aggregates)
    key = store_key(flow.key_format, tuple(key_types), None)
    if flow.table is not None:
        table = _of_table(flow, make_key, states, key)
        window = None
    else:
        table, window = _of_stream(planner, flow, make_key, states, key)
    results = states.results(window is not None, len(key_types))
    kept = table.map_values(results)
    kept._key, kept._value = table._key, ROWS
    columns: dict[ColumnId, int] = {}
    types: dict[ColumnId, SqlType] = {}
    replaced: dict[ast.Expression, ColumnId] = {}

    def add(name: ColumnId, type_: SqlType, node: ast.Expression | None = None) -> None:
        columns[name] = len(columns)
        types[name] = type_
        if node is not None:
            replaced[node] = name

    for index, (node, type_) in enumerate(zip(analysis.group_by, key_types, strict=True)):
        add((None, f"$group{index}"), type_, node)
    for index, (call, one) in enumerate(zip(analysis.aggregates, aggregates, strict=True)):
        add((None, f"$aggregate{index}"), one[0].result_type, call)
    if window is not None:
        for name, type_ in WINDOW_BOUNDS.items():
            add((None, name), type_)
    return Flow(
        columns, types, tuple(key_types), flow.key_format, table=kept, window=window, replaced=replaced
    )


Made = tuple[Aggregate, "list[tuple[Any, str]]"]
"""An aggregate with the codes of its arguments."""


def aggregate_call(planner: Planner, flow: Flow, call: ast.Call) -> tuple[Aggregate, ast.Call, int]:
    function = planner.functions.find(call.name)
    one = planner.compiler(flow, Names())
    arguments, _ = one.arguments(call)
    overload = function.resolve(arguments)
    literals: list[Any] = []
    count = len(call.arguments) - overload.literals_for(len(call.arguments))
    for argument in call.arguments[count:]:
        if not isinstance(argument, ast.Literal):
            raise sql_error(
                "aggregate literal",
                argument.location,
                name=function.name,
                parameter=count + 1,
                found=text(argument),
            )
        literals.append(argument.value)
    assert overload.aggregate is not None
    made = overload.aggregate(arguments, literals, dict(planner.environment.settings))
    if flow.table is not None and made.undo is None:
        raise sql_error("aggregate without undo", names=call.name)
    return made, call, count


def _check_states(planner: Planner, aggregates: list[tuple[Aggregate, ast.Call, int]]) -> None:
    """ksqlDB keeps states in the value format of the source; what it cannot carry there is refused here too,
    so that both accept the same statements."""
    format_ = planner.analysis.sources[0].source.value_format
    for made, _, _ in aggregates:
        try:
            check_columns(format_, (("KSQL_AGG_VARIABLE_0", made.state_type),), is_key=False)
        except Exception:
            raise sql_error("intermediate type") from None


class States:
    """The functions of one GROUP BY: the tuple of all aggregates' states is the aggregate of Streams."""

    def __init__(
        self, planner: Planner, flow: Flow, aggregates: list[tuple[Aggregate, ast.Call, int]]
    ) -> None:
        self._planner, self._aggregates = planner, aggregates
        self.made = [one[0] for one in aggregates]
        self.add = self._updater(flow, "add")
        self.undo = self._updater(flow, "undo") if all(one.undo is not None for one in self.made) else None

    def initial(self) -> tuple[Any, ...]:
        return tuple(one.initial() for one in self.made)

    def merge(self, _key: Any, one: Any, other: Any) -> tuple[Any, ...]:
        if one is None or other is None:
            return one if other is None else other  # type: ignore[no-any-return]
        return tuple(
            made.merge(first, second) for made, first, second in zip(self.made, one, other, strict=True)
        )

    def _updater(self, flow: Flow, which: str) -> Any:
        planner, names = self._planner, Names()
        names.objects["_log"] = planner.log
        lines, results = "", []
        for index, (made, call, count) in enumerate(self._aggregates):
            function = names.add(getattr(made, which))
            arguments = []
            for number, argument in enumerate(call.arguments[:count]):
                code = planner.code(flow, argument, names)
                if code.safe:
                    arguments.append(code.text)
                    continue
                variable = f"a{index}_{number}"
                lines += guarded(variable, code, f"argument of {call.name}", planner.shown(argument), names)
                arguments.append(variable)
            results.append(f"{function}({', '.join([f's[{index}]', *arguments])})")
        body = "".join(result + ", " for result in results)
        source = f"def update(k, v, s):\n{lines}    return ({body})\n"
        return build(source, names, "update")

    def results(self, windowed: bool, keys: int) -> Any:
        names = Names()
        parts = [f"k[{index}]" for index in range(keys)]
        for index, made in enumerate(self.made):
            parts.append(f"s[{index}]" if made.result is None else f"{names.add(made.result)}(s[{index}])")
        head = ""
        if windowed:
            head = "    k, w = k\n"
            parts += ["w[0]", "w[1]"]
        return build(f"def results(k, s):\n{head}    return ({', '.join(parts)},)\n", names, "results")


def _of_stream(
    planner: Planner, flow: Flow, make_key: Any, states: States, key: Serde
) -> tuple[Any, WindowInfo | None]:
    assert flow.stream is not None
    analysis = planner.analysis

    def key_of(_key: Any, value: Any) -> Any:
        found = make_key(value)
        return None if any(part is None for part in found) else found

    stream = flow.stream.filter(lambda _key, value: value is not None)
    if _groups_by_key(planner):
        grouped = stream.filter(lambda _key, value: not any(part is None for part in make_key(value)))
        groups = grouped.group_by_key(key=key, value=ROWS)
    else:
        groups = stream.select_key(key_of).group_by_key(name="Aggregate-GroupBy", key=key, value=ROWS)
    kept = Materialized("Aggregate-Aggregate-Materialize", key, ROWS)
    window = analysis.query.window
    if window is None:
        return groups.aggregate(states.initial, states.add, materialized=kept), None
    size = window.size.milliseconds
    grace = grace_of(window, analysis.query.emit)
    if window.retention is not None:
        kept = Materialized(
            "Aggregate-Aggregate-Materialize", key, ROWS, retention=window.retention.milliseconds
        )
    if window.type == "SESSION":
        sessions = groups.windowed_by(SessionWindows.of(size).grace(grace))
        if analysis.query.emit == "FINAL":
            sessions = sessions.emit_final()
        return sessions.aggregate(
            states.initial, states.add, states.merge, materialized=kept
        ), analysis.window
    windows = TimeWindows.of_size(size).grace(grace)
    if window.advance is not None:
        windows = windows.advance_by(window.advance.milliseconds)
    times = groups.windowed_by(windows)
    if analysis.query.emit == "FINAL":
        times = times.emit_final()
    return times.aggregate(states.initial, states.add, materialized=kept), analysis.window


def _groups_by_key(planner: Planner) -> bool:
    """Whether the rows lie by their group already."""
    analysis = planner.analysis
    if analysis.joins or analysis.sources[0].source.window is not None:
        return False
    bound = analysis.sources[0]
    key = tuple(ast.Column(column.name, bound.alias) for column in bound.schema.key)
    return analysis.group_by == key


def _of_table(flow: Flow, make_key: Any, states: States, key: Serde) -> Any:
    assert flow.table is not None

    def regroup(_key: Any, value: Any) -> Any:
        found = make_key(value)
        return None if any(part is None for part in found) else (found, value)

    groups = flow.table.group_by(regroup, name="Aggregate-GroupBy", key=key, value=ROWS)
    kept = Materialized("Aggregate-Aggregate-Materialize", key, ROWS)
    assert states.undo is not None
    return groups.aggregate(states.initial, states.add, states.undo, materialized=kept)
