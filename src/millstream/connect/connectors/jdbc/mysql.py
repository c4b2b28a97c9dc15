"""MySQL and MariaDB, by PyMySQL.

The session's time zone is UTC, so TIMESTAMP columns name moments; DATETIME columns are read in `db.timezone`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar

import pymysql
from pymysql.constants import CLIENT, FIELD_TYPE, FLAG
from pymysql.cursors import SSCursor

from millstream.connect.connectors.jdbc.columns import Column, Kind, TableId
from millstream.connect.connectors.jdbc.dialect import Dialect, Row, utc
from millstream.connect.data.logical import DATE, TIME, TIMESTAMP
from millstream.connect.data.schema import Type

CONNECT_SECONDS = 10
READ_SECONDS = 300
TRANSACTIONS_SECONDS = 0.15
_KINDS = {
    "bit": Kind.BYTES,
    "tinyint": Kind.INT8,
    "smallint": Kind.INT16,
    "mediumint": Kind.INT32,
    "int": Kind.INT32,
    "bigint": Kind.INT64,
    "year": Kind.INT32,
    "float": Kind.FLOAT32,
    "double": Kind.FLOAT64,
    "decimal": Kind.DECIMAL,
    "date": Kind.DATE,
    "time": Kind.TIME,
    "datetime": Kind.TIMESTAMP,
    "timestamp": Kind.TIMESTAMP,
    "binary": Kind.BYTES,
    "varbinary": Kind.BYTES,
    "tinyblob": Kind.BYTES,
    "blob": Kind.BYTES,
    "mediumblob": Kind.BYTES,
    "longblob": Kind.BYTES,
    "geometry": Kind.BYTES,
}
_UNSIGNED = {Kind.INT8: Kind.INT16, Kind.INT16: Kind.INT32, Kind.INT32: Kind.INT64}
_CODES = {
    FIELD_TYPE.TINY: "tinyint",
    FIELD_TYPE.SHORT: "smallint",
    FIELD_TYPE.INT24: "mediumint",
    FIELD_TYPE.LONG: "int",
    FIELD_TYPE.LONGLONG: "bigint",
    FIELD_TYPE.YEAR: "year",
    FIELD_TYPE.FLOAT: "float",
    FIELD_TYPE.DOUBLE: "double",
    FIELD_TYPE.DECIMAL: "decimal",
    FIELD_TYPE.NEWDECIMAL: "decimal",
    FIELD_TYPE.DATE: "date",
    FIELD_TYPE.TIME: "time",
    FIELD_TYPE.DATETIME: "datetime",
    FIELD_TYPE.TIMESTAMP: "timestamp",
    FIELD_TYPE.BIT: "bit",
    FIELD_TYPE.BLOB: "blob",
    FIELD_TYPE.TINY_BLOB: "blob",
    FIELD_TYPE.MEDIUM_BLOB: "blob",
    FIELD_TYPE.LONG_BLOB: "blob",
    FIELD_TYPE.STRING: "char",
    FIELD_TYPE.VAR_STRING: "varchar",
    FIELD_TYPE.VARCHAR: "varchar",
}
_BINARY_CHARSET = 63
# Access denied, unknown database; table and column errors are no connection's fault either.
_FINAL = {1044, 1045, 1049, 1698}
_UNAVAILABLE = {1040, 1053, 1077, 1079, 1080, 1205, 1213, 2002, 2003, 2006, 2013, 2055, 4031}
_MISSING = {1146, 1051}

_COLUMNS = """
SELECT column_name, data_type, column_type, is_nullable, numeric_precision, numeric_scale,
       datetime_precision, extra
FROM information_schema.columns WHERE table_schema = coalesce(%s, database()) AND table_name = %s
ORDER BY ordinal_position
"""
_KEYS = """
SELECT column_name, ordinal_position FROM information_schema.key_column_usage
WHERE table_schema = coalesce(%s, database()) AND table_name = %s AND constraint_name = 'PRIMARY'
"""
_TABLES = """
SELECT table_schema, table_name, table_type FROM information_schema.tables
WHERE (%s IS NOT NULL AND table_schema LIKE %s OR %s IS NULL AND table_schema = database())
ORDER BY 1, 2
"""


class MySql(Dialect):
    quotes: ClassVar[str] = "`"
    error = pymysql.MySQLError
    types: ClassVar[dict[str | Type, str]] = {
        DATE: "DATE",
        TIME: "TIME(3)",
        TIMESTAMP: "DATETIME(3)",
        Type.INT8: "TINYINT",
        Type.INT16: "SMALLINT",
        Type.INT32: "INT",
        Type.INT64: "BIGINT",
        Type.FLOAT32: "FLOAT",
        Type.FLOAT64: "DOUBLE",
        Type.BOOLEAN: "TINYINT",
        Type.STRING: "TEXT",
        Type.BYTES: "VARBINARY(1024)",
    }
    key_types: ClassVar[dict[Type, str]] = {Type.STRING: "VARCHAR(256)"}

    _oldest_writer: datetime | None = None
    _asked = 0.0

    def _connect(self) -> Any:
        return pymysql.connect(
            host=self.url.host,
            port=self.url.port,
            user=self._user,
            password=self._password or "",
            database=self.url.database or None,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            write_timeout=READ_SECONDS,
            # Rows that an UPDATE found, not only those that it changed.
            client_flag=CLIENT.FOUND_ROWS,
            init_command="SET time_zone = '+00:00'",
        )

    def message(self, error: Exception) -> str:
        return str(error.args[1]) if len(error.args) > 1 else super().message(error)

    def is_unavailable(self, error: Exception) -> bool:
        if isinstance(error, pymysql.InterfaceError):
            return True
        code = error.args[0] if error.args else 0
        return code in _UNAVAILABLE and code not in _FINAL

    def is_missing_table(self, error: Exception) -> bool:
        return bool(error.args) and error.args[0] in _MISSING

    def set_isolation(self, level: str) -> None:
        self.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {level.replace('_', ' ')}")

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(sql, tuple(parameters) or None)
                return list(cursor.fetchall())
        except self.error as error:
            raise self.failure(error) from None

    def stream(self, sql: str, parameters: Sequence[Any], size: int) -> Iterator[list[Row]]:
        try:
            with self.connection.cursor(SSCursor) as cursor:
                cursor.execute(sql, tuple(parameters) or None)
                while block := cursor.fetchmany(size):
                    yield list(block)
        except self.error as error:
            raise self.failure(error) from None

    def tables(self, kinds: Sequence[str], catalog: str | None, schema: str | None) -> list[TableId]:
        """A database is JDBC's catalog."""
        wanted = {"TABLE": "BASE TABLE"}
        types = {wanted.get(kind, kind) for kind in kinds}
        found = self.rows(_TABLES, (catalog, catalog, catalog))
        return [TableId(name, None, database) for database, name, kind in found if kind in types]

    def columns(self, table: TableId) -> list[Column]:
        table_name = (table.catalog or table.schema, table.name)
        keys: dict[str, int] = {name: position for name, position in self.rows(_KEYS, table_name)}
        return [_column(row, int(keys.get(row[0], 0))) for row in self.rows(_COLUMNS, table_name)]

    def query_columns(self, query: str) -> list[Column]:
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(f"SELECT * FROM ({query}) AS millstream_query LIMIT 0")
                fields = cursor._result.fields
        except self.error as error:
            raise self.failure(error) from None
        columns = []
        for field in fields:
            native = _CODES.get(field.type_code, "varchar")
            if native in ("blob", "char", "varchar"):
                native = (
                    {"blob": "blob"}.get(native, "varbinary")
                    if field.charsetnr == _BINARY_CHARSET
                    else "varchar"
                )
            unsigned = " unsigned" if field.flags & FLAG.UNSIGNED else ""
            optional = "NO" if field.flags & FLAG.NOT_NULL else "YES"
            row = (field.name, native, f"{native}{unsigned}", optional, None, field.scale, field.scale, "")
            columns.append(_column(row, 0, precision=field.length - 2 if native == "decimal" else None))
        return columns

    def now(self) -> datetime:
        return utc(self.rows("SELECT UTC_TIMESTAMP(6)")[0][0])

    def oldest_writer(self) -> datetime | None:
        """None for a user without the privilege PROCESS. The server keeps its answer for as long as it is
        asked within 100 ms, so it is asked less often; what began after that is not in it."""
        if self._oldest_writer is not None and time.monotonic() - self._asked < TRANSACTIONS_SECONDS:
            return self._oldest_writer
        made = self.now() - timedelta(milliseconds=100)
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(
                    "SELECT min(trx_started) FROM information_schema.innodb_trx "
                    "WHERE trx_rows_modified > 0 AND trx_mysql_thread_id <> connection_id()"
                )
                found = cursor.fetchall()[0][0]
        except pymysql.OperationalError as error:
            if self.is_unavailable(error):
                raise self.failure(error) from None
            return None
        self._oldest_writer = made if found is None else min(made, utc(found))
        self._asked = time.monotonic()
        return self._oldest_writer

    def begin(self) -> None:
        self.execute("BEGIN")

    def decimal_type(self, scale: int) -> str:
        return f"DECIMAL(65,{scale})"

    def upsert_sql(self, table: str, keys: Sequence[str], others: Sequence[str]) -> str:
        changed = others or keys[:1]
        changes = ",".join(f"{one}=VALUES({one})" for one in changed)
        return f"{self.insert_sql(table, [*keys, *others])} ON DUPLICATE KEY UPDATE {changes}"

    def insert_sql(self, table: str, names: Sequence[str]) -> str:
        return super().insert_sql(table, names) if names else f"INSERT INTO {table} () VALUES ()"


def _column(row: Row, key_position: int, precision: int | None = None) -> Column:
    name, native, whole, nullable, numeric_precision, numeric_scale, time_precision, extra = row
    kind = _KINDS.get(native, Kind.STRING)
    if "unsigned" in whole:
        kind = _UNSIGNED.get(kind, kind)
    if whole == "bit(1)":
        kind = Kind.INT8
    decimal = kind is Kind.DECIMAL
    return Column(
        name,
        kind,
        optional=nullable == "YES",
        precision=(numeric_precision or precision) if decimal else None,
        scale=numeric_scale if decimal else None,
        auto_increment="auto_increment" in extra,
        key_position=key_position,
        zoned=native == "timestamp",
        resolution=10 ** (6 - (time_precision or 0)) if kind is Kind.TIMESTAMP else 1,
        native=native,
    )
