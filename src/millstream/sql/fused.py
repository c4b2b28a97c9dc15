"""Filter and projection of one stream in one operator: bytes in, bytes out, many records a call.

A query that only filters and projects needs no rows between its parts. One generated loop reads each value,
decides, computes and writes; KAFKA keys pass as bytes, because the result has the source's key in the
source's format. The task gives it whole blocks where it can (`blocks`), single records otherwise (`build`):
both are generated from the same lines. All columns are read, also those that nobody asks for: a record with a
value that does not fit its column is no record of the source, as in ksqlDB.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.sql import ast
from millstream.sql.analysis import Analysis, SelectColumn
from millstream.sql.catalog import PSEUDO_COLUMNS, Column, Schema, Source
from millstream.sql.code import Code, Names
from millstream.sql.codegen import Compiler
from millstream.sql.formats import json_rows, row_serde
from millstream.sql.plan_sources import needed_columns
from millstream.sql.row_functions import Log, build, guarded
from millstream.sql.types import SqlType
from millstream.streams.operators.base import Out, Process, TaskContext
from millstream.streams.serdes import BYTES, Serde

if TYPE_CHECKING:
    from millstream.sql.plan import Planner

Loop = Callable[[Any, Any, Any, Callable[[Exception, Any], None]], tuple[list[Any], list[Any], list[int]]]
"""(keys, values, timestamps, what to do with one that cannot be read) -> keys, values, and which records they
are from."""


def can_fuse(analysis: Analysis, sink: Source) -> bool:
    """Whether a query is nothing but filter and projection, and keeps its key."""
    query, source = analysis.query, analysis.sources[0].source
    if analysis.joins or analysis.group_by or analysis.partition_by or analysis.table_functions:
        return False
    if analysis.kind != "STREAM" or query.limit is not None or source.window is not None:
        return False
    if source.timestamp is not None or sink.timestamp is not None or not source.schema.value:
        return False
    if (source.key_format, source.unwrap_key) != (sink.key_format, sink.unwrap_key):
        return False
    if [one.type for one in source.schema.key] != [one.type for one in sink.schema.key]:
        return False
    # Keys of several columns carry their names, and so do records.
    if len(source.schema.key) > 1 and [one.name for one in source.schema.key] != [
        one.name for one in sink.schema.key
    ]:
        return False
    used = needed_columns(analysis)[analysis.sources[0].alias]
    known = {one.name for one in (*source.schema.key, *source.schema.value)} | {"ROWTIME"}
    return used <= known and not source.key_format.traits.infers


class _Scope:
    """Columns in the loop: `v` is the value's row, `k` the key's, `t` the time."""

    def __init__(self, key: tuple[Column, ...], value: tuple[Column, ...]) -> None:
        self._codes: dict[str, Code] = {
            name: Code("t", type_, safe=True, never_null=True)
            for name, type_ in PSEUDO_COLUMNS.items()
            if name == "ROWTIME"
        }
        for index, column in enumerate(value):
            self._codes[column.name] = Code(f"v[{index}]", column.type, safe=True)
        for index, column in enumerate(key):
            self._codes[column.name] = Code(f"(None if k is None else k[{index}])", column.type, safe=True)
        self.keys = {column.name for column in key}

    def column(self, node: ast.Column) -> Code:
        return self._codes[node.name]


@dataclass(slots=True)
class FilterAndProject:
    """`loop` takes a block; `make` makes the function that takes one record. Both are generated."""

    topic: str
    loop: Loop
    make: Callable[[Process, Callable[[Exception, Any], None]], Process]
    log: Log

    def _drop(self, task: TaskContext) -> Callable[[Exception, Any], None]:
        log, topic = self.log, self.topic

        def drop(error: Exception, raw: Any) -> None:
            task.dropped += 1
            log("deserialization", topic, error, raw)

        return drop

    def build(self, task: TaskContext, out: Out) -> Process:
        return self.make(out.forward, self._drop(task))

    def blocks(self, task: TaskContext, shape: Any) -> Any:
        """The same on blocks of bytes."""
        import numpy as np
        import pyarrow as pa

        from millstream.streams.columns.blocks import Block, ColumnFormat, Shape
        from millstream.streams.columns.operators import Made

        if shape.key.serde is not BYTES or shape.value.serde is not BYTES:
            return None
        loop, drop = self.loop, self._drop(task)
        layout = ColumnFormat(BYTES)

        def run(block: Block, _later: Any) -> Block:
            keys, values, rows = loop(
                block.keys.to_pylist(), block.values.to_pylist(), block.stamps.tolist(), drop
            )
            chosen = np.asarray(rows, np.int64)
            return Block(
                pa.array(keys, pa.binary()),
                pa.array(values, pa.binary()),
                block.stamps[chosen],
                block.rows[chosen],
            )

        return Made(run, Shape(layout, layout))


def fused(planner: Planner, columns: list[SelectColumn], sink: Source) -> FilterAndProject:
    """The operator of a query for which `can_fuse` holds."""
    analysis = planner.analysis
    source = analysis.sources[0].source
    needed = needed_columns(analysis)[analysis.sources[0].alias]
    value = source.schema.value
    names = Names()
    names.objects["_log"] = planner.log
    scope = _Scope(source.schema.key, value)
    compiler = Compiler(scope, planner.functions, planner.resolve, names, shown=planner.shown)
    names.objects["_read"] = _reader(source, value, planner)
    names.objects["_write"] = _writer(sink, planner)
    has_filter = analysis.where is not None
    body = ""
    if analysis.where is not None:
        code = compiler.compile(analysis.where)
        body += guarded("passes", code, "filter", planner.shown(analysis.where), names, indent=" " * 8)
        body += "        if passes is not True:\n            continue\n"
    parts = []
    for index, (column, target) in enumerate(zip(columns, sink.schema.value, strict=True)):
        code = compiler.converted(compiler.compile(column.expression), target.type)
        if code.safe:
            parts.append(code.text)
            continue
        parts.append(f"c{index}")
        shown = planner.shown(column.expression)
        body += guarded(f"c{index}", code, f"column {column.name}", shown, names, indent=" " * 8)
    key_line = ""
    if needed & scope.keys or not _any_bytes(source.schema.key, source.key_format.name):
        key = _key_serde(source, planner)
        names.objects["_read_key"], names.objects["_write_key"] = key.reader(source.topic), key.writer("")
        key_line = "            k = _read_key(raw_key)\n"
        if source.key_format.name not in ("KAFKA", "NONE"):
            key_line += "            raw_key = _write_key(k)\n"
    row = "".join(part + ", " for part in parts)
    nothing = "continue" if has_filter else "keep_key(raw_key); keep_value(None); keep_row(i); continue"
    reading = (
        "        try:\n"
        f"{key_line}            v = None if raw is None else _read(raw)\n"
        "        except Exception as error:\n"
        "            drop(error, raw)\n"
    )
    result = f"_write(({row}))"
    loop = (
        "def loop(keys, values, stamps, drop):\n"
        "    found_keys, found_values, rows = [], [], []\n"
        "    keep_key, keep_value, keep_row = found_keys.append, found_values.append, rows.append\n"
        "    i = -1\n"
        "    for raw_key, raw, t in zip(keys, values, stamps):\n"
        "        i += 1\n"
        f"{reading}            continue\n"
        f"        if v is None:\n            {nothing}\n"
        f"{body}"
        f"        keep_key(raw_key); keep_value({result}); keep_row(i)\n"
        "    return found_keys, found_values, rows\n"
    )
    no_value = "return" if has_filter else "return forward(raw_key, None, t, headers)"
    single = (
        "def make(forward, drop):\n"
        "    def process(raw_key, raw, t, headers):\n"
        f"{reading}            return\n"
        f"        if v is None:\n            {no_value}\n"
        f"{body.replace('            continue', '            return')}"
        f"        forward(raw_key, {result}, t, headers)\n"
        "    return process\n"
    )
    return FilterAndProject(
        source.topic, build(loop, names, "loop"), build(single, names, "make"), planner.log
    )


def _unwrapped(source: Source) -> bool:
    if source.unwrap is not None:
        return source.unwrap
    return source.value_format.unwraps_by_default(len(source.schema.value), is_key=False)


def _any_bytes(key: tuple[Column, ...], format_: str) -> bool:
    """Whether every key can be read: then it need not be tried."""
    return (
        not key or format_ == "NONE" or (format_ == "KAFKA" and key[0].type.base.value in ("STRING", "BYTES"))
    )


def _reader(source: Source, value: tuple[Column, ...], planner: Planner) -> Callable[[bytes], Any]:
    pairs: tuple[tuple[str, SqlType], ...] = Schema.pairs(value)
    if source.value_format.name == "JSON":
        return json_rows.reader(pairs, unwrapped=_unwrapped(source))
    serde: Serde = row_serde(
        source.value_format, pairs, unwrapped=_unwrapped(source), registry=planner.environment.registry
    )
    return serde.reader(source.topic)


def _key_serde(source: Source, planner: Planner) -> Serde:
    return row_serde(
        source.key_format,
        Schema.pairs(source.schema.key),
        is_key=True,
        unwrapped=source.unwrap_key,
        registry=planner.environment.registry,
    )


def _writer(sink: Source, planner: Planner) -> Callable[[Any], bytes | None]:
    pairs = Schema.pairs(sink.schema.value)
    if sink.value_format.name == "JSON":
        return json_rows.writer(pairs, unwrapped=_unwrapped(sink))
    serde = row_serde(
        sink.value_format, pairs, unwrapped=_unwrapped(sink), registry=planner.environment.registry
    )
    return serde.writer(sink.topic)
