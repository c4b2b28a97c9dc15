"""Lookups by key that come again and again: planned once, whatever the key.

A client that asks for `... WHERE id = 'a'` will ask for 'b' next. The text in front of the last literal is
the name of a plan; a text that has such a name is neither parsed nor compiled. Only what the full path has
understood as "the key column equals this literal" gets a name, so both give the same rows. A plan is good for
one catalog, and for one set of properties.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from millstream.sql import ast
from millstream.sql.catalog import Catalog
from millstream.sql.pull import PullQuery, row_reader
from millstream.sql.results import Row, schema_text
from millstream.sql.row_json import RowWriter
from millstream.sql.types import Base
from millstream.sql.views import TableView
from millstream.streams.views.snapshot import ViewRow

# The last condition: an equality with a text or a whole number, and nothing behind it.
_LOOKUP = re.compile(r"(.*=)\s*('(?:[^']|'')*'|-?\d{1,18})\s*;?\s*", re.DOTALL)
_KEPT = 1000


@dataclass(frozen=True)
class Lookup:
    """A plan: everything but the key."""

    catalog: Catalog
    query: PullQuery
    write: Any
    kind: type
    read: Callable[[ViewRow], Row]
    to_json: RowWriter
    metadata: bytes
    """The first line of /query-stream, behind the query's id."""
    header: bytes
    """The first element of /query, behind the query's id."""

    def row(self, view: TableView, key: bytes) -> bytes | None:
        """The JSON of a row, as an array."""
        found = view.get(key)
        return None if found is None else self.to_json.array(self.query.project(self.read(found)))


class PreparedPulls:
    def __init__(self) -> None:
        self._found: OrderedDict[tuple[str, str], Lookup] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, sql: str, properties: Mapping[str, Any], catalog: Catalog) -> PullQuery | None:
        found = self.find(sql, properties, catalog)
        return None if found is None else replace(found[0].query, keys=[found[1]])

    def find(self, sql: str, properties: Mapping[str, Any], catalog: Catalog) -> tuple[Lookup, bytes] | None:
        """The plan of a text, and the bytes of the key that it asks for."""
        match = _LOOKUP.fullmatch(sql.strip())
        if match is None:
            return None
        name = (match[1], _shown(properties))
        with self._lock:
            prepared = self._found.get(name)
            if prepared is None:
                return None
            if prepared.catalog is not catalog:
                del self._found[name]
                return None
            self._found.move_to_end(name)
        value = _value(match[2])
        if type(value) is not prepared.kind or (isinstance(value, int) and abs(value) >= 2**31):
            return None
        return prepared, prepared.write(prepared.query.source.topic, (value,))

    def put(
        self, sql: str, properties: Mapping[str, Any], catalog: Catalog, query: ast.Query, planned: PullQuery
    ) -> None:
        """What the full path has made of a text, if it is a lookup."""
        match = _LOOKUP.fullmatch(sql)
        if match is None or "${" in sql or planned.write_key is None or query.limit is not None:
            return
        where, key = query.where, planned.source.schema.key
        value = _value(match[2])
        if (
            len(key) != 1
            or not isinstance(where, ast.Compare)
            or where.operator != "="
            or not isinstance(where.left, ast.Column)
            or where.left.name != key[0].name
            or _literal(where.right) != value
        ):
            return
        kind = {Base.STRING: str, Base.INTEGER: int, Base.BIGINT: int}.get(key[0].type.base)
        if kind is None or type(value) is not kind:
            return
        # A row that is found under the key has the key: nothing is left to check.
        columns = planned.columns
        names = {
            "columnNames": [one.name for one in columns],
            "columnTypes": [str(one.type) for one in columns],
        }
        prepared = Lookup(
            catalog,
            replace(planned, passes=None),
            planned.write_key,
            kind,
            row_reader(planned.source, planned.key_serde, planned.value_serde),
            RowWriter(columns),
            b"," + orjson.dumps(names)[1:],
            b"," + orjson.dumps({"schema": schema_text(columns)})[1:],
        )
        with self._lock:
            self._found[match[1], _shown(properties)] = prepared
            while len(self._found) > _KEPT:
                self._found.popitem(last=False)


def _value(text: str) -> str | int:
    return text[1:-1].replace("''", "'") if text.startswith("'") else int(text)


def _literal(node: ast.Expression) -> Any:
    if isinstance(node, ast.Signed) and node.sign == "-" and isinstance(node.operand, ast.Literal):
        return -node.operand.value if isinstance(node.operand.value, int) else None
    return node.value if isinstance(node, ast.Literal) else None


def _shown(properties: Mapping[str, Any]) -> str:
    return json.dumps(properties, sort_keys=True, default=str) if properties else ""
