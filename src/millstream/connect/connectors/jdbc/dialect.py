"""What differs between databases: how to connect, what a table looks like, what SQL they want.

The rest of the connectors speaks of tables, columns and values only.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, ClassVar, NamedTuple

from millstream.connect.config.config_def import ConfigError
from millstream.connect.connectors.jdbc.columns import Column, TableId
from millstream.connect.connectors.jdbc.url import JdbcUrl, parse_url
from millstream.connect.data.logical import DATE, DECIMAL, TIME, TIMESTAMP, scale_of
from millstream.connect.data.schema import Schema, Type
from millstream.connect.errors import ConnectError, RetriableError

Row = Sequence[Any]
BulkColumn = tuple[str, Column, Schema]
"""Its quoted name, what it is, and what goes into it."""


class Bulk(NamedTuple):
    """A statement that takes many rows, with what comes before and after it."""

    sql: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class Unavailable(RetriableError):
    """The database cannot be reached, or has closed the connection."""


class MissingTable(ConnectError):
    """There is no such table."""


class Dialect(ABC):
    """One connection to one database. Driver's errors leave it as ConnectErrors, in one line and without
    anything secret: `Unavailable` where a new connection may help, `MissingTable`, or a plain one."""

    mark: ClassVar[str] = "%s"
    """A parameter's placeholder in SQL."""
    quotes: ClassVar[str] = '"'
    typed: ClassVar[bool] = True
    """Whether each value is of its column's type."""
    error: type[Exception]
    """The base of the driver's errors."""

    def __init__(self, url: JdbcUrl, user: str | None, password: str | None, *, quote: bool = True) -> None:
        self.url = url
        self._user = user if user is not None else url.parameters.get("user")
        self._password = password if password is not None else url.parameters.get("password")
        self._quote = quote
        self.connection: Any = None

    # --- the connection -------------------------------------------------------------------------------------

    def connect(self) -> None:
        if self.connection is not None:
            return
        try:
            self.connection = self._connect()
        except self.error as error:
            raise self.failure(error) from None

    @abstractmethod
    def _connect(self) -> Any: ...

    def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            try:
                connection.close()
            except self.error:
                pass  # it was lost before

    def failure(self, error: Exception) -> ConnectError:
        """What the connectors raise for a driver's error."""
        text = f"{self.url}: {self.message(error)}"
        if self._password:
            text = text.replace(self._password, "[hidden]")
        if self.is_missing_table(error):
            return MissingTable(text)
        if self.is_unavailable(error):
            self.close()
            return Unavailable(text)
        return ConnectError(text)

    def message(self, error: Exception) -> str:
        return str(error).strip().split("\n")[0] or type(error).__name__

    @abstractmethod
    def is_unavailable(self, error: Exception) -> bool: ...

    @abstractmethod
    def is_missing_table(self, error: Exception) -> bool: ...

    @abstractmethod
    def set_isolation(self, level: str) -> None:
        """As `transaction.isolation.mode` names it."""

    # --- reading --------------------------------------------------------------------------------------------

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        try:
            cursor = self.connection.cursor()
            try:
                cursor.execute(sql, tuple(parameters))
                found: list[Row] = cursor.fetchall()
                return found
            finally:
                cursor.close()
        except self.error as error:
            raise self.failure(error) from None

    @abstractmethod
    def stream(self, sql: str, parameters: Sequence[Any], size: int) -> Iterator[list[Row]]:
        """Blocks of rows of a result that need not fit into memory. One at a time."""

    @abstractmethod
    def tables(self, kinds: Sequence[str], catalog: str | None, schema: str | None) -> list[TableId]:
        """Of these types (TABLE, VIEW), in the catalogs and schemas that match the patterns."""

    @abstractmethod
    def columns(self, table: TableId) -> list[Column]:
        """None where there is no such table."""

    @abstractmethod
    def query_columns(self, query: str) -> list[Column]: ...

    def find_table(self, name: str) -> TableId:
        """By a name of one to three parts, as it stands in a setting: catalog.schema.table. A part in quotes
        may have dots inside."""
        part = f"{self.quotes}([^{self.quotes}]+){self.quotes}|([^.{self.quotes}][^.]*)"
        match = re.fullmatch(rf"(?:{part})(?:\.(?:{part}))?(?:\.(?:{part}))?", name)
        if match is None:
            raise ConnectError(f"Invalid fully qualified name: '{name}'")
        parts = [text for text in match.groups() if text is not None]
        return TableId(*reversed(parts))

    def literal(self, query: str) -> str:
        """A user's SQL inside of one with parameters."""
        return query.replace("%", "%%") if self.mark == "%s" else query

    # --- time -----------------------------------------------------------------------------------------------

    @abstractmethod
    def now(self) -> datetime:
        """By the database's clock."""

    def oldest_writer(self) -> datetime | None:
        """When the oldest transaction began that has written and not ended; None if none is seen."""
        return None

    def timestamp_sql(self, column: str) -> str:
        """A timestamp column as something that compares with `timestamp_parameter`."""
        return column

    def timestamp_parameter(self, when: datetime, column: Column, zone: tzinfo) -> Any:
        return when if column.zoned else when.astimezone(zone).replace(tzinfo=None)

    # --- writing --------------------------------------------------------------------------------------------

    def quoted(self, name: str) -> str:
        if not self._quote:
            return name
        return f"{self.quotes}{name.replace(self.quotes, self.quotes * 2)}{self.quotes}"

    def table_sql(self, table: TableId) -> str:
        parts = [part for part in (table.catalog, table.schema, table.name) if part]
        return ".".join(map(self.quoted, parts))

    def write_many(self, sql: str, rows: Sequence[Sequence[Any]], bulk: Bulk | None = None) -> int:
        """Returns how many rows the database says were changed; -1 where it does not say. `bulk` is what
        `bulk_insert` or `bulk_upsert` has made for the same."""
        cursor = self.connection.cursor()
        try:
            cursor.executemany(sql, rows)
            return int(cursor.rowcount)
        finally:
            cursor.close()

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        cursor = self.connection.cursor()
        try:
            cursor.execute(sql, tuple(parameters))
            return int(cursor.rowcount)
        finally:
            cursor.close()

    @abstractmethod
    def begin(self) -> None: ...

    def commit(self) -> None:
        self.execute("COMMIT")

    def rollback(self) -> None:
        self.execute("ROLLBACK")

    def column_type(self, schema: Schema, *, in_key: bool) -> str:
        """Of a column that is to hold values of this schema."""
        if schema.name == DECIMAL:
            return self.decimal_type(scale_of(schema))
        name = schema.name if schema.name in (DATE, TIME, TIMESTAMP) else None
        found = self.types.get(name or schema.type)
        if found is None:
            raise ConnectError(
                f"{schema.name} ({schema.type}) type doesn't have a mapping to the SQL database column type"
            )
        return self.key_types.get(schema.type, found) if in_key and name is None else found

    types: ClassVar[dict[str | Type, str]]
    key_types: ClassVar[dict[Type, str]] = {}

    @abstractmethod
    def decimal_type(self, scale: int) -> str: ...

    def upsert_sql(self, table: str, keys: Sequence[str], others: Sequence[str]) -> str:
        """With quoted names; the values come in the order of `keys`, then `others`."""
        return f"{self.insert_sql(table, [*keys, *others])} {on_conflict(keys, others)}"

    def insert_sql(self, table: str, names: Sequence[str]) -> str:
        if not names:
            return f"INSERT INTO {table} DEFAULT VALUES"
        return f"INSERT INTO {table}({','.join(names)}) VALUES({','.join([self.mark] * len(names))})"

    def bulk_insert(self, table: str, columns: Sequence[BulkColumn]) -> Bulk | None:
        """What inserts many rows of such columns at less cost than `insert_sql` and with the same result.
        None where there is nothing like that."""
        return None

    def bulk_upsert(
        self, table: str, columns: Sequence[BulkColumn], keys: Sequence[str], others: Sequence[str]
    ) -> Bulk | None:
        """The same for `upsert_sql`, of rows that have different keys."""
        return None

    def binds(self, schema: Schema) -> bool:
        """Whether `bind` changes values of this schema."""
        return schema.name in (DATE, TIME, TIMESTAMP)

    def bind(self, schema: Schema | None, value: Any, zone: tzinfo) -> Any:
        """Connect's value as the driver wants it."""
        if value is None or schema is None:
            return value
        if schema.name == DATE:
            return value.date()
        if schema.name == TIME:
            return value.time()
        if schema.name == TIMESTAMP:
            return value.astimezone(zone).replace(tzinfo=None)
        return value


def make_dialect(
    url: str, user: str | None, password: str | None, *, name: str = "", quote: bool = True
) -> Dialect:
    """By the URL; `name` is `dialect.name`, which has to agree with it."""
    parsed = parse_url(url)
    if name and name.removesuffix("DatabaseDialect").lower() not in _dialect_names(parsed.kind):
        raise ConfigError.of("dialect.name", name, f"the URL is one of {parsed.kind}")
    if parsed.kind == "sqlite":
        from millstream.connect.connectors.jdbc.sqlite import Sqlite

        return Sqlite(parsed, user, password, quote=quote)
    extra = "postgres" if parsed.kind == "postgresql" else "mysql"
    try:
        if extra == "postgres":
            from millstream.connect.connectors.jdbc.postgres import Postgres

            return Postgres(parsed, user, password, quote=quote)
        from millstream.connect.connectors.jdbc.mysql import MySql

        return MySql(parsed, user, password, quote=quote)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{parsed.kind} needs {error.name}: pip install 'millstream[{extra}]'") from None


def on_conflict(keys: Sequence[str], others: Sequence[str]) -> str:
    """What makes an INSERT an upsert, in PostgreSQL and SQLite."""
    changes = ", ".join(f"{one}=EXCLUDED.{one}" for one in others)
    return f"ON CONFLICT ({','.join(keys)}) DO {f'UPDATE SET {changes}' if changes else 'NOTHING'}"


def _dialect_names(kind: str) -> tuple[str, ...]:
    return {
        "sqlite": ("sqlite",),
        "postgresql": ("postgresql", "postgres", "postgressql"),
        "mysql": ("mysql", "mariadb"),
        "mariadb": ("mysql", "mariadb"),
    }[kind] + ("generic",)


def utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
