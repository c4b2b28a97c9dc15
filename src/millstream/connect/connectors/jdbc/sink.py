"""The JDBC sink: records into tables, by insert, upsert, update or delete.

What `put` is given is one transaction of the database. A record that the database refuses is looked for by
writing one after the other, and reported, so that the rest comes through. With `millstream.offsets.table` the
transaction also moves the partition's offset from where it was: a record that comes again is left out, and a
task that was given to somebody else finds the offset moved and writes nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

from millstream.connect.api import Settings, SinkConnector, SinkContext, SinkTask
from millstream.connect.config.config_def import ConfigValue
from millstream.connect.connectors.jdbc.columns import TableId
from millstream.connect.connectors.jdbc.dialect import Bulk, BulkColumn, Dialect, Unavailable
from millstream.connect.connectors.jdbc.sink_config import INSERT, SINK, UPSERT, table_name, validate_sink
from millstream.connect.connectors.jdbc.sink_fields import FieldSettings, SinkField, SinkFields
from millstream.connect.connectors.jdbc.sink_offsets import OffsetsTable
from millstream.connect.connectors.jdbc.sink_tables import SinkTables
from millstream.connect.connectors.jdbc.source import dialect_of
from millstream.connect.data.record import SinkRecord
from millstream.connect.data.schema import Schema
from millstream.connect.errors import ConnectError, DataError, RetriableError
from millstream.wire.topic_partition import TopicPartition

log = logging.getLogger("millstream.connect")

Fit = Callable[[TableId, SinkFields], Mapping[str, Any]]


@dataclass(slots=True)
class _Statement:
    """One statement with many rows."""

    sql: str
    bulk: Bulk | None = None
    records: list[SinkRecord] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is done with records of one table and one pair of schemas."""

    table: TableId
    fields: SinkFields
    write: str
    delete: str
    order: tuple[SinkField, ...]
    bulk: Bulk | None
    plain: bool  # the driver takes all values as they are


class _Refused(Exception):
    """The database does not take a record."""

    def __init__(self, error: ConnectError) -> None:
        super().__init__(str(error))
        self.error = error


class JdbcSinkTask(SinkTask):
    def __init__(self) -> None:
        self._dialect: Dialect | None = None
        self._failures = 0
        self._not_before = 0.0
        self._plans: dict[tuple[str, Schema | None, Schema | None, bool], _Plan] = {}

    def start(self, settings: Settings, context: SinkContext) -> None:
        self._parsed = parsed = SINK.parse(settings)
        self._context = context
        self._dialect = dialect = dialect_of(parsed)
        self._zone = ZoneInfo(parsed["db.timezone"])
        self._mode = parsed["insert.mode"].lower()
        self._fields = FieldSettings(
            settings.get("name", ""),
            parsed["pk.mode"].lower(),
            parsed["pk.fields"],
            parsed["fields.whitelist"],
            parsed["delete.enabled"],
            parsed["replace.null.with.default"],
        )
        self._tables = SinkTables(
            dialect, create=parsed["auto.create"], evolve=parsed["auto.evolve"], zone=self._zone
        )
        self._offsets: OffsetsTable | None = None
        if parsed["millstream.offsets.table"]:
            table = dialect.find_table(parsed["millstream.offsets.table"])
            self._offsets = OffsetsTable(
                dialect, table, settings.get("name", ""), create=parsed["auto.create"]
            )

    # --- one transaction ------------------------------------------------------------------------------------

    def put(self, records: Sequence[SinkRecord]) -> None:
        if time.monotonic() < self._not_before:
            raise RetriableError("the database is given time to recover")
        try:
            self._connect()
            self._write(records)
            self._failures = 0
        except Unavailable as error:
            self._forget()
            self._failures += 1
            limit = self._parsed["max.retries"]
            if 0 <= limit < self._failures:
                raise ConnectError(f"Exceeded max.retries ({limit}): {error}") from None
            self._not_before = time.monotonic() + self._parsed["retry.backoff.ms"] / 1000
            raise

    def _connect(self) -> None:
        assert self._dialect is not None
        if self._dialect.connection is None:
            self._forget()
            self._dialect.connect()

    def _forget(self) -> None:
        """Tables may have been changed while the connection was lost."""
        self._tables.forget()
        self._plans.clear()
        if self._offsets is not None:
            self._offsets.forget()

    def _write(self, records: Sequence[SinkRecord]) -> None:
        assert self._dialect is not None
        new = records if self._offsets is None else self._offsets.new(records)
        if not new:
            return
        planned: list[tuple[SinkRecord, _Plan]] = []
        for record in new:
            try:
                planned.append((record, self._plan(record)))
            except DataError as error:
                self._context.report(record, error)
        try:
            self._transaction(new, planned)
        except _Refused as refused:
            if len(planned) == 1:
                self._context.report(planned[0][0], refused.error)
                self._transaction(new, [])
                return
            log.warning("%s: records are written one by one", refused)
            self._one_by_one(planned)

    def _one_by_one(self, planned: Sequence[tuple[SinkRecord, _Plan]]) -> None:
        for one in planned:
            try:
                self._transaction([one[0]], [one])
            except _Refused as refused:
                self._context.report(one[0], refused.error)
                self._transaction([one[0]], [])

    def _transaction(
        self, records: Sequence[SinkRecord], planned: Sequence[tuple[SinkRecord, _Plan]]
    ) -> None:
        """Rows and the offsets behind `records`, or nothing."""
        dialect = self._dialect
        assert dialect is not None
        if not planned and self._offsets is None:
            return
        try:
            dialect.begin()
            try:
                for statement in self._statements(planned):
                    dialect.write_many(statement.sql, statement.rows, statement.bulk)
                if self._offsets is not None:
                    self._offsets.move(records)
                dialect.commit()
            except dialect.error as error:
                self._roll_back()
                failure = dialect.failure(error)
                if isinstance(failure, RetriableError):
                    raise failure from None
                raise _Refused(failure) from None
            except ConnectError:
                self._roll_back()
                raise
        except dialect.error as error:
            raise dialect.failure(error) from None
        if self._offsets is not None:
            self._offsets.moved()

    def _roll_back(self) -> None:
        assert self._dialect is not None
        try:
            self._dialect.rollback()
        except self._dialect.error:
            self._dialect.close()

    # --- statements -----------------------------------------------------------------------------------------

    def _plan(self, record: SinkRecord) -> _Plan:
        assert self._dialect is not None
        known = (record.topic, record.key_schema, record.value_schema, record.value is None)
        plan = self._plans.get(known)
        if plan is None:
            plan = self._plans[known] = self._make_plan(record)
        return plan

    def _make_plan(self, record: SinkRecord, fit: Fit | None = None) -> _Plan:
        """`fit` gives the columns of a table; without it the table is made to fit the record, and asked."""
        dialect = self._dialect
        assert dialect is not None
        table = dialect.find_table(table_name(self._parsed, record.topic))
        fields = self._fields.fields(str(table), record)
        columns = (fit or self._tables.make_fit)(table, fields)
        lowered = {column.lower(): column for column in columns}

        def quoted(one: SinkField) -> str:
            return dialect.quoted(one.name if one.name in columns else lowered[one.name.lower()])

        def bulk_columns() -> list[BulkColumn]:
            known = [columns.get(one.name) or columns[lowered[one.name.lower()]] for one in fields.all]
            schemas = [one.schema for one in fields.all]
            return list(zip(keys + others, known, schemas, strict=True))

        keys, others = [quoted(one) for one in fields.keys], [quoted(one) for one in fields.others]
        table_sql = dialect.table_sql(table)
        where = " AND ".join(f"{key} = {dialect.mark}" for key in keys)
        delete = f"DELETE FROM {table_sql} WHERE {where}"
        order, bulk = fields.all, None
        if self._mode == INSERT:
            write = dialect.insert_sql(table_sql, keys + others)
            bulk = dialect.bulk_insert(table_sql, bulk_columns()) if fit is None else None
        elif self._mode == UPSERT:
            write = dialect.upsert_sql(table_sql, keys, others)
            bulk = dialect.bulk_upsert(table_sql, bulk_columns(), keys, others) if fit is None else None
        else:
            order = fields.others + fields.keys
            changes = ", ".join(f"{one} = {dialect.mark}" for one in others or keys)
            order = order if others else fields.keys + fields.keys
            write = f"UPDATE {table_sql} SET {changes} WHERE {where}"
        plain = not any(dialect.binds(one.schema) for one in fields.all)
        return _Plan(table, fields, write, delete, order, bulk, plain)

    def _statements(self, planned: Sequence[tuple[SinkRecord, _Plan]]) -> Iterator[_Statement]:
        """In the order of the records. Of several changes of one row by upsert only the last counts: a
        statement must not meet a key twice."""
        if self._mode == UPSERT:
            planned = self._last_of_each_key(planned)
        current: _Statement | None = None
        for record, plan in planned:
            deletes = record.value is None
            sql = plan.delete if deletes else plan.write
            if current is None or current.sql != sql or len(current.rows) >= self._parsed["batch.size"]:
                if current is not None:
                    yield current
                current = _Statement(sql, None if deletes else plan.bulk)
            current.records.append(record)
            current.rows.append(
                self._row(record, plan.fields.keys if deletes else plan.order, plain=plan.plain)
            )
        if current is not None:
            yield current

    def _last_of_each_key(
        self, planned: Sequence[tuple[SinkRecord, _Plan]]
    ) -> list[tuple[SinkRecord, _Plan]]:
        """Ordered by statement, too: one for all rows of a kind."""
        last: dict[Any, tuple[SinkRecord, _Plan]] = {}
        for record, plan in planned:
            key = (plan.table, *(_hashable(one.get(record)) for one in plan.fields.keys))
            last.pop(key, None)
            last[key] = (record, plan)
        groups: dict[str, list[tuple[SinkRecord, _Plan]]] = {}
        for record, plan in last.values():
            groups.setdefault(plan.delete if record.value is None else plan.write, []).append((record, plan))
        return [one for group in groups.values() for one in group]

    def _row(self, record: SinkRecord, order: Sequence[SinkField], *, plain: bool = False) -> list[Any]:
        assert self._dialect is not None
        if plain:
            return [one.get(record) for one in order]
        bind, zone = self._dialect.bind, self._zone
        return [bind(one.schema, one.get(record), zone) for one in order]

    def preview(self, records: Sequence[SinkRecord], settings: Settings) -> list[str]:
        """The statements with their first row, for tables that have the columns of the records."""
        said: list[str] = []
        self.start(
            settings, SinkContext(lambda record, error: said.append(f"refuse {record.offset}: {error}"))
        )
        planned: list[tuple[SinkRecord, _Plan]] = []
        for record in records:
            try:
                planned.append((record, self._make_plan(record, _as_the_record)))
            except DataError as error:
                self._context.report(record, error)
        for statement in self._statements(planned):
            shown = ", ".join(repr(value) for value in statement.rows[0])
            more = f" and {len(statement.rows) - 1} more" if len(statement.rows) > 1 else ""
            said.append(f"{statement.sql} with ({shown}){more}")
        return said

    def open(self, positions: Mapping[TopicPartition, str]) -> None:
        if self._offsets is not None:
            self._offsets.forget()

    def stop(self) -> None:
        if self._dialect is not None:
            self._dialect.close()


def _as_the_record(_table: TableId, fields: SinkFields) -> dict[str, Any]:
    return {one.name: one for one in fields.all}


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class JdbcSink(SinkConnector):
    task = JdbcSinkTask
    config = SINK

    @classmethod
    def validate(cls, settings: Settings) -> dict[str, ConfigValue]:
        return validate_sink(settings)
