"""Reads one table, or one query, in one of the modes, from an offset on.

A read returns the rows of one statement with the offset behind them. Nothing is remembered that is not in the
offset, so whoever reads on from there reads what comes next:

- *incrementing*: ids above the highest one, and those that were missing below it a while ago.
- *timestamp*: rows later than the last one and earlier than now, where now is rounded down to what the column
  can tell apart, and no later than the start of a transaction that is still open. Rows with the same
  timestamp are returned together: none is left behind when the offset has passed it.
- *timestamp+incrementing*: the same, and ids tell rows with the same timestamp apart.
- *bulk*: all rows, in blocks. It has no offset and begins again each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from millstream.connect.connectors.jdbc.columns import Column, RowFormat, TableId, moment, row_format
from millstream.connect.connectors.jdbc.dialect import Dialect, MissingTable, Row
from millstream.connect.connectors.jdbc.source_config import BOTH, BULK, INCREMENTING, TIMESTAMP
from millstream.connect.connectors.jdbc.source_offset import SourceOffset
from millstream.connect.data.logical import EPOCH, to_millis
from millstream.connect.data.record import SourceRecord
from millstream.connect.data.struct import Struct
from millstream.connect.errors import ConnectError


@dataclass(frozen=True, slots=True)
class ReadSettings:
    mode: str
    incrementing_column: str
    timestamp_columns: tuple[str, ...]
    delay_ms: int
    gap_ms: int
    max_rows: int
    numeric_mapping: str
    zone: tzinfo
    suffix: str
    must_not_be_null: bool


class TableReader:
    """`due` is for its owner: when it is to be asked again."""

    def __init__(
        self,
        dialect: Dialect,
        settings: ReadSettings,
        topic: str,
        *,
        table: TableId | None = None,
        query: str = "",
    ) -> None:
        self._dialect, self._settings, self._topic = dialect, settings, topic
        self._table, self._query = table, query
        self.partition = {"protocol": "1", "table": str(table)} if table is not None else {"query": "query"}
        self.offset = SourceOffset()
        self.due = 0.0
        self._format: RowFormat | None = None
        self._blocks: Iterator[list[Row]] | None = None

    @property
    def name(self) -> str:
        return str(self._table) if self._table is not None else "the query"

    @property
    def reading(self) -> bool:
        """In the middle of a result: no other statement before its end."""
        return self._blocks is not None

    def forget(self) -> None:
        """The connection is another one: what was being read is read again, what the table is asked again."""
        self._blocks, self._format = None, None

    def read(self) -> tuple[list[SourceRecord], bool]:
        """Records, and whether there may be more at once."""
        rows_format = self._row_format()
        if self._settings.mode == BULK:
            records, more = self._read_blocks(rows_format)
        elif self._settings.mode == INCREMENTING:
            records, more = self._read_incrementing(rows_format)
        else:
            records, more = self._read_timestamps(rows_format)
        if not more:
            self._format = None  # the table may have other columns the next time
        return records, more

    # --- what is read ---------------------------------------------------------------------------------------

    def _row_format(self) -> RowFormat:
        if self._format is None:
            if self._table is None:
                columns = self._dialect.query_columns(self._query)
            else:
                columns = self._dialect.columns(self._table)
                if not columns:
                    raise MissingTable(f"{self._table}: there is no such table")
            settings = self._settings
            name = self._table.name if self._table is not None else None
            self._format = row_format(
                name, columns, settings.numeric_mapping, settings.zone, typed=self._dialect.typed
            )
            if settings.must_not_be_null and self._table is not None:
                self._check_nulls(self._format)
        return self._format

    def _check_nulls(self, rows_format: RowFormat) -> None:
        settings = self._settings
        if settings.mode in (INCREMENTING, BOTH):
            column = self._incrementing(rows_format)
            if column.optional:
                raise ConnectError(
                    f"Cannot make incremental queries using incrementing column {column.name} on {self.name} "
                    "because this column is nullable."
                )
        if settings.mode in (TIMESTAMP, BOTH) and all(
            column.optional for column in self._timestamps(rows_format)
        ):
            raise ConnectError(
                f"Cannot make incremental queries using timestamp columns "
                f"[{', '.join(settings.timestamp_columns)}] on {self.name} because all of these columns "
                "nullable."
            )

    def _incrementing(self, rows_format: RowFormat) -> Column:
        if self._settings.incrementing_column:
            return self._column(rows_format, self._settings.incrementing_column)
        counting = [column for column in rows_format.columns if column.auto_increment]
        if not counting:
            raise ConnectError(f"{self.name} has no column that counts up: set incrementing.column.name")
        return counting[0]

    def _timestamps(self, rows_format: RowFormat) -> list[Column]:
        return [self._column(rows_format, name) for name in self._settings.timestamp_columns]

    def _column(self, rows_format: RowFormat, name: str) -> Column:
        index = rows_format.index(name)
        if index is None:
            raise ConnectError(f"{self.name} has no column {name}")
        return rows_format.columns[index]

    def _select(self, rows_format: RowFormat) -> str:
        """By their names: a column that is added later does not move the others."""
        names = ", ".join(self._dialect.quoted(column.name) for column in rows_format.columns)
        if self._table is not None:
            return f"SELECT {names} FROM {self._dialect.table_sql(self._table)}"
        return f"SELECT * FROM ({self._dialect.literal(self._query)}) AS millstream_query"

    # --- bulk -----------------------------------------------------------------------------------------------

    def _read_blocks(self, rows_format: RowFormat) -> tuple[list[SourceRecord], bool]:
        if self._blocks is None:
            sql = self._query if self._table is None else self._select(rows_format)
            sql = f"{sql} {self._settings.suffix}".strip()
            self._blocks = self._dialect.stream(sql, (), self._settings.max_rows)
        rows = next(self._blocks, None)
        if rows is None:
            self._blocks = None
            return [], False
        return [self._record(rows_format, row, None) for row in rows], True

    # --- ids ------------------------------------------------------------------------------------------------

    def _read_incrementing(self, rows_format: RowFormat) -> tuple[list[SourceRecord], bool]:
        where, parameters = self._where(rows_format, None)
        rows = self._statement(rows_format, where, parameters)
        return self._records(rows_format, rows), self._is_full(rows)

    def _statement(self, rows_format: RowFormat, where: str, parameters: Sequence[Any]) -> list[Row]:
        sql = f"{self._select(rows_format)}{where}"
        if self._settings.suffix:
            return self._dialect.rows(f"{sql} {self._dialect.literal(self._settings.suffix)}", parameters)
        return self._dialect.rows(f"{sql} LIMIT {self._settings.max_rows}", parameters)

    def _is_full(self, rows: Sequence[Row]) -> bool:
        return not self._settings.suffix and len(rows) == self._settings.max_rows

    def _where(self, rows_format: RowFormat, end: datetime | None) -> tuple[str, list[Any]]:
        """Conditions and order."""
        mark, mode = self._dialect.mark, self._settings.mode
        if mode == INCREMENTING:
            self.offset = self.offset.without_old_gaps(_now_ms() - self._settings.gap_ms)
            column = self._dialect.quoted(self._incrementing(rows_format).name)
            if self.offset.incrementing is None:
                return f" ORDER BY {column}", []
            parts, parameters = [f"{column} > {mark}"], [self.offset.incrementing]
            for gap in self.offset.gaps:
                parts.append(f"{column} BETWEEN {mark} AND {mark}")
                parameters += [gap.first, gap.last]
            return f" WHERE {' OR '.join(parts)} ORDER BY {column}", parameters
        assert end is not None
        when = self._timestamp_sql(rows_format)
        sql, values = f" WHERE {when} < {mark}", [self._moment(rows_format, end)]
        begin = self.offset.timestamp
        if mode == TIMESTAMP:
            if begin is not None:
                sql += f" AND {when} > {mark}"
                values.append(self._moment(rows_format, begin))
            return f"{sql} ORDER BY {when}", values
        column = self._dialect.quoted(self._incrementing(rows_format).name)
        if begin is not None:
            last = self._moment(rows_format, begin)
            if self.offset.incrementing is None:
                sql += f" AND {when} > {mark}"
                values.append(last)
            else:
                sql += f" AND ({when} > {mark} OR ({when} = {mark} AND {column} > {mark}))"
                values += [last, last, self.offset.incrementing]
        return f"{sql} ORDER BY {when}, {column}", values

    # --- timestamps -----------------------------------------------------------------------------------------

    def _timestamp_sql(self, rows_format: RowFormat) -> str:
        parts = [
            self._dialect.timestamp_sql(self._dialect.quoted(column.name))
            for column in self._timestamps(rows_format)
        ]
        return parts[0] if len(parts) == 1 else f"COALESCE({', '.join(parts)})"

    def _moment(self, rows_format: RowFormat, when: datetime) -> Any:
        column = self._timestamps(rows_format)[0]
        return self._dialect.timestamp_parameter(when, column, self._settings.zone)

    def _end(self, rows_format: RowFormat) -> datetime:
        """Rows from here on may not be all there yet."""
        end = self._dialect.now() - timedelta(milliseconds=self._settings.delay_ms)
        writer = self._dialect.oldest_writer()
        if writer is not None:
            end = min(end, writer)
        step = timedelta(microseconds=max(column.resolution for column in self._timestamps(rows_format)))
        return EPOCH + (end - EPOCH) // step * step

    def _read_timestamps(self, rows_format: RowFormat) -> tuple[list[SourceRecord], bool]:
        where, parameters = self._where(rows_format, self._end(rows_format))
        rows = self._statement(rows_format, where, parameters)
        full = self._is_full(rows)
        if full and self._settings.mode == TIMESTAMP:
            rows = self._whole_groups(rows_format, rows)
        return self._records(rows_format, rows), full

    def _whole_groups(self, rows_format: RowFormat, rows: list[Row]) -> list[Row]:
        """Without those of the last timestamp, of which there may be more; all if it is the only one."""
        last = self._time_of(rows_format, rows[-1])
        earlier = [row for row in rows if self._time_of(rows_format, row) != last]
        if earlier:
            return earlier
        sql = f"{self._select(rows_format)} WHERE {self._timestamp_sql(rows_format)} = {self._dialect.mark}"
        return self._dialect.rows(sql, [self._moment(rows_format, last)])

    def _time_of(self, rows_format: RowFormat, row: Row) -> datetime:
        for column in self._timestamps(rows_format):
            value = row[rows_format.columns.index(column)]
            if value is not None:
                return moment(value, UTC if column.zoned else self._settings.zone)
        raise ConnectError(f"{self.name} has a row without a timestamp")

    # --- records --------------------------------------------------------------------------------------------

    def _records(self, rows_format: RowFormat, rows: Sequence[Row]) -> list[SourceRecord]:
        """All with the offset behind the last one: they are written together."""
        if not rows:
            return []
        mode = self._settings.mode
        if mode == INCREMENTING:
            index = rows_format.columns.index(self._incrementing(rows_format))
            ids = [int(row[index]) for row in rows]
            keep = self._settings.gap_ms > 0
            self.offset = self.offset.after_ids(ids, _now_ms(), keep_gaps=keep)
        else:
            last = rows[-1]
            number = None
            if mode == BOTH:
                number = int(last[rows_format.columns.index(self._incrementing(rows_format))])
            self.offset = SourceOffset(number, self._time_of(rows_format, last))
        offset = self.offset.to_map()
        return [self._record(rows_format, row, offset) for row in rows]

    def _record(self, rows_format: RowFormat, row: Row, offset: Mapping[str, Any] | None) -> SourceRecord:
        schema = rows_format.schema
        return SourceRecord(
            topic=self._topic,
            value_schema=schema,
            value=Struct(schema, rows_format.values(row)),
            source_partition=None if offset is None else self.partition,
            source_offset=offset,
        )


def _now_ms() -> int:
    return to_millis(datetime.now(UTC))
