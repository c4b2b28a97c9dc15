"""The sink's tables: what columns they have, and those that have to be created or added."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import tzinfo
from decimal import Decimal
from typing import Any

from millstream.connect.connectors.jdbc.columns import Column, TableId
from millstream.connect.connectors.jdbc.dialect import Dialect
from millstream.connect.connectors.jdbc.sink_fields import SinkField, SinkFields
from millstream.connect.errors import ConnectError

log = logging.getLogger("millstream.connect")


class SinkTables:
    def __init__(self, dialect: Dialect, *, create: bool, evolve: bool, zone: tzinfo) -> None:
        self._dialect, self._create, self._evolve, self._zone = dialect, create, evolve, zone
        self._known: dict[TableId, dict[str, Column]] = {}

    def forget(self) -> None:
        self._known.clear()

    def make_fit(self, table: TableId, fields: SinkFields) -> dict[str, Column]:
        """Create or change the table where it has to be and may be. Returns its columns by name."""
        columns = self._known.get(table) or self._columns(table)
        if not columns:
            self._make(table, fields)
            columns = self._columns(table)
        missing = [field for field in fields.all if field.name not in columns]
        # Names that differ in upper and lower case only are the same to the database.
        lowered = {name.lower() for name in columns}
        missing = [field for field in missing if field.name.lower() not in lowered]
        if missing:
            self._add(table, missing)
            columns = self._columns(table)
        self._known[table] = columns
        return columns

    def _columns(self, table: TableId) -> dict[str, Column]:
        return {column.name: column for column in self._dialect.columns(table)}

    def _make(self, table: TableId, fields: SinkFields) -> None:
        if not self._create:
            raise ConnectError(f'Table "{table}" is missing and auto-creation is disabled')
        lines = [self._definition(field) for field in fields.all]
        if fields.keys:
            names = ",".join(self._dialect.quoted(field.name) for field in fields.keys)
            lines.append(f"PRIMARY KEY({names})")
        inside = ",\n".join(lines)
        self._change(f"CREATE TABLE {self._dialect.table_sql(table)} (\n{inside})", table)

    def _add(self, table: TableId, missing: Sequence[SinkField]) -> None:
        names = ", ".join(field.name for field in missing)
        if not self._evolve:
            raise ConnectError(
                f'Table "{table}" is missing fields ([{names}]) and auto-evolution is disabled'
            )
        for field in missing:
            if not field.optional and field.schema.default is None:
                raise ConnectError(
                    f'Cannot ALTER TABLE "{table}" to add missing field {field.name}, as the field is not '
                    "optional and does not have a default value"
                )
        for field in missing:
            self._change(f"ALTER TABLE {self._dialect.table_sql(table)} ADD {self._definition(field)}", table)

    def _change(self, sql: str, table: TableId) -> None:
        log.info("%s", sql)
        try:
            self._dialect.execute(sql)
        except self._dialect.error as error:
            # Another task may have done the same at this moment.
            failure = self._dialect.failure(error)
            if self._dialect.connection is None or not self._columns(table):
                raise failure from None

    def _definition(self, field: SinkField) -> str:
        kind = self._dialect.column_type(field.schema, in_key=field.in_key)
        text = f"{self._dialect.quoted(field.name)} {kind}"
        if field.schema.default is not None:
            bound = self._dialect.bind(field.schema, field.schema.default, self._zone)
            return f"{text} DEFAULT {_literal(bound)}"
        return f"{text} NULL" if field.optional else f"{text} NOT NULL"


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float | Decimal):
        return str(value)
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    text = str(value).replace("'", "''")
    return f"'{text}'"
