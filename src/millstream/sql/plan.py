"""From an analysis to a Streams topology: the planner.

A query becomes calls of the Streams DSL in the order in which ksqlDB makes them: sources, joins, WHERE, table
functions, PARTITION BY or GROUP BY with aggregates, HAVING, the projection, the sink. Everything between a
source and the projection carries rows with exactly the columns that are still needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from millstream.sql import ast
from millstream.sql.analysis import Analysis, SelectColumn
from millstream.sql.catalog import Catalog, Schema, Source
from millstream.sql.code import Code, Names
from millstream.sql.environment import Environment
from millstream.sql.errors import SqlError, sql_error
from millstream.sql.expression_text import text
from millstream.sql.flow import Flow, compiler
from millstream.sql.formats import row_serde, windowed_key
from millstream.sql.fused import fused
from millstream.sql.names import internal, unqualified
from millstream.sql.operators import KeepNullRows, Limit, StampFromColumn
from millstream.sql.plan_aggregates import aggregated
from millstream.sql.plan_joins import joined
from millstream.sql.plan_sources import needed_columns, read_source, stamp_reader
from millstream.sql.row_functions import Log, condition, no_log, projection
from millstream.sql.type_names import resolver
from millstream.sql.types import Base, SqlType
from millstream.streams.dsl.builder import StreamsBuilder
from millstream.streams.serdes import BYTES, Serde
from millstream.streams.topology import Topology


@dataclass
class Planner:
    """Plans one query. `log` gets what fails while it runs."""

    analysis: Analysis
    catalog: Catalog
    environment: Environment
    log: Log = no_log
    builder: StreamsBuilder = field(default_factory=StreamsBuilder)
    target: Schema | None = None
    """Of the sink, where there is one already: it gives NULL a type."""

    def __post_init__(self) -> None:
        self.resolve = resolver(self.catalog)
        self.functions = self.environment.functions

    # Parts that other modules use ---------------------------------------------------------------------------

    def compiler(self, flow: Flow, names: Names | None = None) -> Any:
        return compiler(flow, self.functions, self.resolve, names, self.shown)

    def code(self, flow: Flow, node: ast.Expression, names: Names) -> Code:
        found: Code = self.compiler(flow, names).compile(node)
        return found

    def shown(self, node: ast.Expression) -> str:
        return text(unqualified(node) if len(self.analysis.sources) == 1 else internal(node))

    def filtered(self, flow: Flow, node: ast.Expression, clause: str) -> Flow:
        names = Names()
        try:
            code = self.code(flow, node, names)
        except SqlError as error:
            raise _in_clause(clause, error, node, self) from None
        if code.type is None or code.type.base is not Base.BOOLEAN:
            raise sql_error(
                "filter type", node.location, clause=clause, expression=self.shown(node), type=code.type
            )
        passes = condition(code, self.shown(node), names, self.log)
        if flow.stream is not None:
            kept = flow.stream.filter(lambda _key, value: value is not None and passes(value))
            return flow.with_stream(kept)
        assert flow.table is not None
        return flow.with_table(flow.table.filter(lambda _key, value: passes(value)))

    # The whole ----------------------------------------------------------------------------------------------

    def rows(self) -> tuple[Flow, list[tuple[SelectColumn, SqlType]]]:
        """The flow before the projection, and the columns of the projection with their types."""
        analysis = self.analysis
        needed = needed_columns(analysis)
        flow = read_source(self, analysis.sources[0], needed)
        for step in analysis.joins:
            flow = joined(self, flow, step, read_source(self, step.right, needed))
        if analysis.where is not None:
            flow = self.filtered(flow, analysis.where, "WHERE")
        if analysis.table_functions:
            flow = self._exploded(flow)
        if analysis.group_by:
            flow = aggregated(self, flow)
            if analysis.having is not None:
                flow = self.filtered(flow, analysis.having, "HAVING")
        elif analysis.partition_by:
            flow = self._partitioned(flow)
        types = []
        for column in analysis.select:
            type_ = self.code(flow, column.expression, Names()).type
            if type_ is None and self.target is not None:
                known = self.target.find(column.name)
                type_ = None if known is None else known.type
            if type_ is None:
                raise sql_error("select of null", column.location, name=column.name)
            types.append((column, type_))
        return flow, types

    def _exploded(self, flow: Flow) -> Flow:
        """Table functions: as many rows as the longest of them gives, the shorter ones filled with null."""
        calls = self.analysis.table_functions
        names = Names()
        one = self.compiler(flow, names)
        codes, types = [], []
        for call in calls:
            arguments, texts = one.arguments(call)
            overload = self.functions.find(call.name).resolve(arguments)
            type_ = overload.result_type(arguments)
            types.append(type_)
            codes.append(Code(f"{names.add(overload.bind(arguments))}({', '.join(texts)})", type_))
        shown = [self.shown(call) for call in calls]
        lists = projection(
            [(shown[index], code, shown[index]) for index, code in enumerate(codes)], names, self.log
        )

        def explode(value: Any) -> list[Any]:
            if value is None:
                return []
            found = [each or () for each in lists(value)]
            longest = max(map(len, found))
            return [
                value + tuple(each[index] if index < len(each) else None for each in found)
                for index in range(longest)
            ]

        assert flow.stream is not None
        columns, all_types, replaced = dict(flow.columns), dict(flow.types), dict(flow.replaced)
        for index, (call, type_) in enumerate(zip(calls, types, strict=True)):
            own = (None, f"${index}")
            columns[own], all_types[own], replaced[call] = flow.width + index, type_, own
        stream = flow.stream.flat_map_values(explode)
        return flow.with_stream(stream, columns=columns, types=all_types, replaced=replaced)

    def _partitioned(self, flow: Flow) -> Flow:
        assert flow.stream is not None
        if flow.window is not None:
            raise sql_error("PARTITION BY of windows")
        nodes = [
            node
            for node in self.analysis.partition_by
            if not (isinstance(node, ast.Literal) and node.value is None)
        ]
        names = Names()
        codes = [self.code(flow, node, names) for node in nodes]
        types = tuple(code.type for code in codes if code.type is not None)
        if not nodes:
            return flow.with_stream(
                flow.stream.select_key(lambda _key, _value: None), key_types=(), key_columns=()
            )
        shown = [self.shown(node) for node in nodes]
        make = projection(
            [(shown[index], code, shown[index]) for index, code in enumerate(codes)], names, self.log
        )
        single = len(nodes) == 1

        def key_of(key: Any, value: Any) -> Any:
            found = make(flow.row_of_key(key) if value is None else value)
            return None if single and found[0] is None else found

        # A column that is computed for the key is not computed again for the projection.
        return flow.with_stream(flow.stream.select_key(key_of), key_types=types, key_columns=())

    def fused_into(self, sink: Source) -> Topology:
        """Filter and projection in one operator, for a query that is nothing else."""
        source = self.analysis.sources[0].source
        columns = [column for column in self.analysis.select if column.key is None]
        stream = self.builder.stream(source.topic, key=BYTES, value=BYTES)
        found = stream._then("KSTREAM-TRANSFORM-", None, fused(self, columns, sink))
        found.to(sink.topic, key=BYTES, value=BYTES)
        return self.builder.build()

    # Into a topic -------------------------------------------------------------------------------------------

    def into(self, flow: Flow, types: list[tuple[SelectColumn, SqlType]], sink: Source) -> Topology:
        """The projection, and the sink's topic behind it."""
        values = [(column, type_) for column, type_ in types if column.key is None]
        self.project_into(flow, [column for column, _ in values], sink)
        return self.builder.build()

    def project_into(self, flow: Flow, columns: list[SelectColumn], sink: Source) -> None:
        names = Names()
        one = self.compiler(flow, names)
        coded = [
            (
                column.name,
                one.converted(one.compile(column.expression), target.type),
                self.shown(column.expression),
            )
            for column, target in zip(columns, sink.schema.value, strict=True)
        ]
        make = projection(coded, names, self.log)
        if flow.stream is not None:
            stream = flow.stream._then(
                "KSTREAM-MAPVALUES-", None, KeepNullRows(lambda _key, value: make(value)), keeps_value=False
            )
        else:
            assert flow.table is not None
            stream = flow.table.map_values(make).to_stream()
        stamp = stamp_reader(sink)
        if stamp is not None:
            stream = stream._then("KSTREAM-PROCESSVALUES-", None, StampFromColumn(stamp, self.log))
        if self.analysis.query.limit is not None:
            stream = stream._then("KSTREAM-LIMIT-", None, Limit(self.analysis.query.limit))
        key, value = serdes_of(sink, self.environment)
        stream.to(sink.topic, key=key, value=value)


def serdes_of(source: Source, environment: Environment) -> tuple[Serde, Serde]:
    """The serdes of a source's topic."""
    key_columns = Schema.pairs(source.schema.key)
    key = row_serde(
        source.key_format,
        key_columns,
        is_key=True,
        unwrapped=source.unwrap_key,
        registry=environment.registry,
    )
    if source.window is not None:
        key = windowed_key(key, source.window.size)
    value = row_serde(
        source.value_format,
        Schema.pairs(source.schema.value),
        unwrapped=source.unwrap,
        registry=environment.registry,
    )
    return key, value


def _in_clause(clause: str, error: SqlError, node: ast.Expression, planner: Planner) -> SqlError:
    if error.entry in ("no boolean",):
        return error
    return sql_error("in clause", error.location, clause=clause, why=str(error))
