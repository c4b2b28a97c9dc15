"""SQLite, by the standard library.

A column has a declared type, and each value a type of its own. Timestamps are milliseconds, Julian days or
text: they are compared as milliseconds, so `timestamp` modes cannot use an index. A file that another process
holds locked counts as unavailable for the moment.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from typing import Any, ClassVar

from millstream.connect.config.config_def import ConfigError
from millstream.connect.connectors.jdbc.columns import Column, Kind, TableId
from millstream.connect.connectors.jdbc.dialect import Dialect, Row
from millstream.connect.data.logical import DATE, TIME, TIMESTAMP, to_millis
from millstream.connect.data.schema import Schema, Type

_BUSY_SECONDS = 5.0
_DECLARED = re.compile(r"^\s*([A-Za-z][A-Za-z0-9 _]*?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?\s*$")
_KINDS = {
    "BOOLEAN": Kind.BOOLEAN,
    "BOOL": Kind.BOOLEAN,
    "TINYINT": Kind.INT8,
    "SMALLINT": Kind.INT16,
    "INT2": Kind.INT16,
    "MEDIUMINT": Kind.INT32,
    "FLOAT": Kind.FLOAT64,
    "DOUBLE": Kind.FLOAT64,
    "DOUBLE PRECISION": Kind.FLOAT64,
    "REAL": Kind.FLOAT64,
    "DATE": Kind.DATE,
    "DATETIME": Kind.TIMESTAMP,
    "TIMESTAMP": Kind.TIMESTAMP,
    "TIME": Kind.TIME,
    "DECIMAL": Kind.DECIMAL,
    "NUMERIC": Kind.DECIMAL,
    "NUMBER": Kind.DECIMAL,
}
_OF_VALUES = {int: Kind.INT64, float: Kind.FLOAT64, bytes: Kind.BYTES}


def column_kind(declared: str) -> tuple[Kind, int | None, int | None]:
    """By the words that people use; else by SQLite's rules of affinity. Integers are of 64 bits there."""
    match = _DECLARED.match(declared)
    name = (match[1] if match else declared).upper()
    precision = int(match[2]) if match and match[2] else None
    scale = int(match[3]) if match and match[3] else 0 if precision is not None else None
    if name in _KINDS:
        return _KINDS[name], precision, scale
    if "INT" in name:
        return Kind.INT64, None, None
    if any(word in name for word in ("CHAR", "CLOB", "TEXT")):
        return Kind.STRING, None, None
    if "BLOB" in name or not name:
        return Kind.BYTES if name else Kind.STRING, None, None
    if any(word in name for word in ("REAL", "FLOA", "DOUB")):
        return Kind.FLOAT64, None, None
    return Kind.STRING, None, None


class Sqlite(Dialect):
    mark: ClassVar[str] = "?"
    typed: ClassVar[bool] = False
    error = sqlite3.Error
    types: ClassVar[dict[str | Type, str]] = {
        DATE: "DATE",
        TIME: "TIME",
        TIMESTAMP: "TIMESTAMP",
        Type.INT8: "INTEGER",
        Type.INT16: "INTEGER",
        Type.INT32: "INTEGER",
        Type.INT64: "INTEGER",
        Type.FLOAT32: "REAL",
        Type.FLOAT64: "REAL",
        Type.BOOLEAN: "INTEGER",
        Type.STRING: "TEXT",
        Type.BYTES: "BLOB",
    }

    def _connect(self) -> Any:
        if self.url.database in ("", ":memory:"):
            raise ConfigError("jdbc:sqlite: needs the name of a file")
        # Units move between threads, one at a time.
        connection = sqlite3.connect(
            self.url.database, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        return connection

    def is_unavailable(self, error: Exception) -> bool:
        text = str(error)
        return isinstance(error, sqlite3.OperationalError) and any(
            word in text for word in ("locked", "busy", "unable to open", "disk I/O", "full")
        )

    def is_missing_table(self, error: Exception) -> bool:
        return "no such table" in str(error)

    def set_isolation(self, level: str) -> None:
        if level == "READ_UNCOMMITTED":
            self.execute("PRAGMA read_uncommitted = true")

    def stream(self, sql: str, parameters: Sequence[Any], size: int) -> Iterator[list[Row]]:
        try:
            cursor = self.connection.execute(sql, tuple(parameters))
            while block := cursor.fetchmany(size):
                yield block
        except self.error as error:
            raise self.failure(error) from None

    def tables(self, kinds: Sequence[str], catalog: str | None, schema: str | None) -> list[TableId]:
        wanted = [kind.lower() for kind in kinds]
        found = self.rows("SELECT name, type FROM sqlite_master WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!'")
        return [TableId(str(name)) for name, kind in found if kind in wanted]

    def columns(self, table: TableId) -> list[Column]:
        where = (table.name,) if table.schema is None else (table.name, table.schema)
        described = self.rows(
            f'SELECT name, type, "notnull", pk FROM pragma_table_info({", ".join("?" * len(where))})', where
        )
        master = self.table_sql(TableId("sqlite_master", table.schema))
        text = self.rows(f"SELECT sql FROM {master} WHERE name = ?", (table.name,)) if described else []
        counts_up = bool(text) and "AUTOINCREMENT" in str(text[0][0]).upper()
        keys = sum(bool(row[3]) for row in described)
        columns = []
        for name, declared, required, position in described:
            kind, precision, scale = column_kind(declared)
            # INTEGER PRIMARY KEY is SQLite's row id: never null, although the table does not say so.
            row_id = keys == 1 and position == 1 and declared.upper() == "INTEGER"
            columns.append(
                Column(
                    name,
                    kind,
                    optional=not required and not row_id,
                    precision=precision,
                    scale=scale,
                    auto_increment=row_id and counts_up,
                    key_position=position,
                    resolution=1_000_000,
                    native=declared,
                )
            )
        return columns

    def query_columns(self, query: str) -> list[Column]:
        """By a temporary view, which knows the declared types of what it selects."""
        view = "millstream_query_columns"
        try:
            self.execute(f"CREATE TEMP VIEW {view} AS {query}")
            try:
                found = self.rows("SELECT name, type FROM pragma_table_info(?)", (view,))
                kinds = [column_kind(declared) for _, declared in found]
                computed = [number for number, (_, declared) in enumerate(found) if not declared]
                first = self.rows(f"SELECT * FROM {view} LIMIT 1") if computed else []
                for number in computed:
                    # An expression has no declared type: that of its first value.
                    value = first[0][number] if first else None
                    kinds[number] = (_OF_VALUES.get(type(value), Kind.STRING), None, None)
                return [
                    Column(name, kind, True, precision, scale, resolution=1_000_000, native=declared)
                    for (name, declared), (kind, precision, scale) in zip(found, kinds, strict=True)
                ]
            finally:
                self.execute(f"DROP VIEW temp.{view}")
        except self.error as error:
            raise self.failure(error) from None

    def now(self) -> datetime:
        return datetime.now(UTC)

    def timestamp_sql(self, column: str) -> str:
        text = (
            f"CAST(strftime('%s', {column}) AS INTEGER) * 1000"
            f" + CAST(substr(strftime('%f', {column}), 4) AS INTEGER)"
        )
        julian = f"CAST(round(({column} - 2440587.5) * 86400000.0) AS INTEGER)"
        return (
            f"(CASE typeof({column}) WHEN 'integer' THEN {column} WHEN 'real' THEN {julian} ELSE {text} END)"
        )

    def timestamp_parameter(self, when: datetime, column: Column, zone: tzinfo) -> Any:
        offset = when.astimezone(zone).utcoffset()
        return to_millis(when) + (0 if offset is None else int(offset.total_seconds() * 1000))

    def begin(self) -> None:
        self.execute("BEGIN IMMEDIATE")

    def decimal_type(self, scale: int) -> str:
        return "NUMERIC"

    def binds(self, schema: Schema) -> bool:
        return schema.name is not None

    def bind(self, schema: Schema | None, value: Any, zone: tzinfo) -> Any:
        bound = super().bind(schema, value, zone)
        if isinstance(bound, Decimal):
            return str(bound)
        if isinstance(bound, datetime):
            return bound.isoformat(" ", "milliseconds")
        return bound.isoformat() if hasattr(bound, "isoformat") else bound
