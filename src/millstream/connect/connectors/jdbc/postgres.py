"""PostgreSQL, by psycopg 3.

Types that Connect has no words for (arrays, intervals, addresses, JSON, UUIDs, enums) come as PostgreSQL's
own text of them. Timestamps without a zone are read in `db.timezone`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar

import psycopg
from psycopg.types.string import TextLoader

from millstream.connect.connectors.jdbc.columns import Column, Kind, TableId
from millstream.connect.connectors.jdbc.dialect import Bulk, BulkColumn, Dialect, Row, on_conflict, utc
from millstream.connect.data.logical import DATE, DECIMAL, TIME, TIMESTAMP
from millstream.connect.data.schema import Schema, Type

CONNECT_SECONDS = 10
_KINDS = {
    "bool": Kind.BOOLEAN,
    "int2": Kind.INT16,
    "int4": Kind.INT32,
    "int8": Kind.INT64,
    "oid": Kind.INT64,
    "float4": Kind.FLOAT32,
    "float8": Kind.FLOAT64,
    "numeric": Kind.DECIMAL,
    "bytea": Kind.BYTES,
    "date": Kind.DATE,
    "time": Kind.TIME,
    "timestamp": Kind.TIMESTAMP,
    "timestamptz": Kind.TIMESTAMP,
}
_TEXTS = {"text", "varchar", "bpchar", "name", "char"}
_RELATIONS = {"TABLE": ("r", "p"), "VIEW": ("v",), "MATERIALIZED VIEW": ("m",), "FOREIGN TABLE": ("f",)}
# What the server says of a user or database that it does not let in. Anything else may be better later.
_FINAL = (
    "authentication failed",
    "does not exist",
    "no pg_hba.conf entry",
    "permission denied",
    "must be superuser",
)

_COLUMNS = """
SELECT a.attname, t.typname, a.atttypmod, a.attnotnull,
       a.attidentity <> '' OR coalesce(pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%%', false),
       coalesce(array_position(i.indkey::int2[], a.attnum), -1) + 1, b.typname, t.typtypmod
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_type b ON b.oid = t.typbasetype
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
_TABLES = """
SELECT current_database(), n.nspname, c.relname
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind::text = ANY(%s) AND n.nspname NOT IN ('pg_catalog', 'information_schema')
  AND n.nspname NOT LIKE 'pg!_toast%%' ESCAPE '!'
  AND (%s::text IS NULL OR n.nspname LIKE %s) AND (%s::text IS NULL OR current_database() LIKE %s)
ORDER BY 2, 3
"""
COPY_ROWS = 20
"""So many rows are worth two more statements around them."""
# What COPY stores as INSERT does: Connect's types, and the columns that they go into as they are.
_COPIED: dict[str | Type, set[str]] = {
    Type.INT8: {"int2", "int4", "int8"},
    Type.INT16: {"int2", "int4", "int8"},
    Type.INT32: {"int4", "int8"},
    Type.INT64: {"int8"},
    Type.FLOAT32: {"float4", "float8"},
    Type.FLOAT64: {"float8"},
    Type.BOOLEAN: {"bool"},
    Type.STRING: {"text", "varchar"},
    Type.BYTES: {"bytea"},
    DECIMAL: {"numeric"},
    DATE: {"date"},
    TIME: {"time"},
    TIMESTAMP: {"timestamp"},
}
_PLAIN_TABLE = """
SELECT relkind IN ('r', 'p') AND NOT relhasrules FROM pg_class WHERE oid = to_regclass(%s)
"""
_OLDEST_WRITER = """
SELECT min(xact_start) FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()
  AND datname = current_database()
"""


def _column(name: str, native: str, modifier: int, optional: bool, **more: Any) -> Column:
    kind = _KINDS.get(native, Kind.STRING)
    precision = scale = None
    resolution = 1
    if native == "numeric" and modifier >= 4:
        precision, scale = ((modifier - 4) >> 16) & 0xFFFF, (modifier - 4) & 0x7FF
        scale = scale - 2048 if scale > 1023 else scale
    if native in ("timestamp", "timestamptz") and 0 <= modifier < 6:
        resolution = 10 ** (6 - modifier)
    return Column(
        name,
        kind,
        optional,
        precision,
        scale,
        zoned=native == "timestamptz",
        resolution=resolution,
        native=native,
        **more,
    )


class Postgres(Dialect):
    error = psycopg.Error
    types: ClassVar[dict[str | Type, str]] = {
        DATE: "DATE",
        TIME: "TIME",
        TIMESTAMP: "TIMESTAMP",
        Type.INT8: "SMALLINT",
        Type.INT16: "SMALLINT",
        Type.INT32: "INT",
        Type.INT64: "BIGINT",
        Type.FLOAT32: "REAL",
        Type.FLOAT64: "DOUBLE PRECISION",
        Type.BOOLEAN: "BOOLEAN",
        Type.STRING: "TEXT",
        Type.BYTES: "BYTEA",
    }

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._not_copied: set[Bulk] = set()

    def parameters(self) -> dict[str, Any]:
        """For psycopg. What else stands in the URL is libpq's (`sslmode`), or pgjdbc's and left out."""
        given = self.url.parameters
        known = {"sslmode", "sslrootcert", "sslcert", "sslkey", "options", "application_name"}
        more: dict[str, Any] = {name: value for name, value in given.items() if name in known}
        if "ApplicationName" in given:
            more["application_name"] = given["ApplicationName"]
        if "currentSchema" in given:
            more["options"] = f"{more.get('options', '')} -c search_path={given['currentSchema']}".strip()
        return {
            "host": self.url.host,
            "port": self.url.port,
            "dbname": self.url.database or self._user,
            "user": self._user,
            "password": self._password,
            "connect_timeout": CONNECT_SECONDS,
            "keepalives_idle": 30,
            **more,
        }

    def _connect(self) -> Any:
        connection = psycopg.connect(**self.parameters(), autocommit=True)
        connection.execute("SET datestyle = 'ISO'")
        for known in connection.adapters.types:
            if known.name not in _KINDS and known.name not in _TEXTS:
                connection.adapters.register_loader(known.oid, TextLoader)
            if known.array_oid:
                connection.adapters.register_loader(known.array_oid, TextLoader)
        return connection

    def message(self, error: Exception) -> str:
        primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
        return primary or super().message(error)

    def is_unavailable(self, error: Exception) -> bool:
        if isinstance(error, psycopg.errors.DeadlockDetected | psycopg.errors.SerializationFailure):
            return True
        lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return lost and not any(text in str(error) for text in _FINAL)

    def is_missing_table(self, error: Exception) -> bool:
        return isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.InvalidSchemaName)

    def set_isolation(self, level: str) -> None:
        name = level.replace("_", " ")
        self.execute(f"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {name}")

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        try:
            cursor = self.connection.execute(sql, parameters or None)
            found: list[Row] = cursor.fetchall()
            return found
        except self.error as error:
            raise self.failure(error) from None

    def stream(self, sql: str, parameters: Sequence[Any], size: int) -> Iterator[list[Row]]:
        try:
            block: list[Row] = []
            for row in self.connection.cursor().stream(sql, parameters or None, size=size):
                block.append(row)
                if len(block) == size:
                    yield block
                    block = []
            if block:
                yield block
        except self.error as error:
            raise self.failure(error) from None

    def tables(self, kinds: Sequence[str], catalog: str | None, schema: str | None) -> list[TableId]:
        relations = [one for kind in kinds for one in _RELATIONS.get(kind, ())]
        found = self.rows(_TABLES, (relations, schema, schema, catalog, catalog))
        return [TableId(name, schema_name, database) for database, schema_name, name in found]

    def columns(self, table: TableId) -> list[Column]:
        # The catalog can only be the database that one is connected to.
        named = ".".join(map(self.quoted, [part for part in (table.schema, table.name) if part]))
        return [
            _column(
                name,
                base or native,
                base_modifier if base else modifier,
                not required,
                auto_increment=counts_up,
                key_position=position,
            )
            for name, native, modifier, required, counts_up, position, base, base_modifier in self.rows(
                _COLUMNS, (named,)
            )
        ]

    def query_columns(self, query: str) -> list[Column]:
        try:
            cursor = self.connection.execute(f"SELECT * FROM ({query}) AS millstream_query LIMIT 0")
            described = cursor.description or []
            names = dict(
                self.connection.execute(
                    "SELECT oid::int8, typname FROM pg_type WHERE oid = ANY(%s)",
                    ([one.type_code for one in described],),
                ).fetchall()
            )
            return [
                _column(one.name, names[one.type_code], cursor.pgresult.fmod(number), True)
                for number, one in enumerate(described)
            ]
        except self.error as error:
            raise self.failure(error) from None

    def table_sql(self, table: TableId) -> str:
        """With a catalog only where it is another one: the server says what it thinks of that."""
        catalog = table.catalog if table.catalog != self.url.database else None
        return super().table_sql(replace(table, catalog=catalog))

    def now(self) -> datetime:
        return utc(self.rows("SELECT clock_timestamp()")[0][0])

    def oldest_writer(self) -> datetime | None:
        found = self.rows(_OLDEST_WRITER)[0][0]
        return None if found is None else utc(found)

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        return int(self.connection.execute(sql, parameters or None).rowcount)

    def begin(self) -> None:
        self.execute("BEGIN")

    def bulk_insert(self, table: str, columns: Sequence[BulkColumn]) -> Bulk | None:
        """COPY, where it stores what INSERT would: it reads texts and casts nothing (1.5 for an integer is an
        error), overwrites generated identities and passes by rules."""
        for _, column, schema in columns:
            if column.auto_increment or column.native not in _COPIED.get(schema.name or schema.type, ()):
                return None
        found = self.rows(_PLAIN_TABLE, (table,))
        if not columns or not found or not found[0][0]:
            return None
        return Bulk(f"COPY {table}({','.join(name for name, _, _ in columns)}) FROM STDIN")

    def bulk_upsert(
        self, table: str, columns: Sequence[BulkColumn], keys: Sequence[str], others: Sequence[str]
    ) -> Bulk | None:
        """COPY into a table of this connection, and from there by one statement. It is made once: its rows go
        with the transaction."""
        if self.bulk_insert(table, columns) is None:
            return None
        names = ",".join(name for name, _, _ in columns)
        digest = hashlib.sha256(f"{table}({names})".encode()).hexdigest()[:16]
        staged = f"pg_temp.millstream_{digest}"
        made = (
            f"CREATE TEMP TABLE IF NOT EXISTS {staged} ON COMMIT DELETE ROWS AS "
            f"SELECT {names} FROM {table} WITH NO DATA"
        )
        upsert = f"INSERT INTO {table}({names}) SELECT {names} FROM {staged} {on_conflict(keys, others)}"
        return Bulk(f"COPY {staged}({names}) FROM STDIN", (made, f"DELETE FROM {staged}"), (upsert,))

    def write_many(self, sql: str, rows: Sequence[Sequence[Any]], bulk: Bulk | None = None) -> int:
        if bulk is None or len(rows) < COPY_ROWS or bulk in self._not_copied:
            return super().write_many(sql, rows)
        self.execute("SAVEPOINT millstream_copy")
        try:
            with self.connection.cursor() as cursor:
                for statement in bulk.before:
                    cursor.execute(statement)
                with cursor.copy(bulk.sql) as copy:
                    for row in rows:
                        copy.write_row(row)
                for statement in bulk.after:
                    cursor.execute(statement)
                changed = int(cursor.rowcount)
        except psycopg.Error as error:
            if self.is_unavailable(error):
                raise
            self.execute("ROLLBACK TO millstream_copy")
            changed = super().write_many(sql, rows)
            # It was not the rows that were refused, but COPY: by row security, for example.
            self._not_copied.add(bulk)
            return changed
        self.execute("RELEASE millstream_copy")
        return changed

    def decimal_type(self, scale: int) -> str:
        return "DECIMAL"

    def column_type(self, schema: Schema, *, in_key: bool) -> str:
        if schema.type is Type.ARRAY and schema.value_schema is not None:
            return f"{self.column_type(schema.value_schema, in_key=in_key)}[]"
        return super().column_type(schema, in_key=in_key)
