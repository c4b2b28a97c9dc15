"""The JDBC source: tables, or a query, into topics.

Tables are dealt to tasks by name: those that are listed one after the other, others by a hash, so that a new
table disturbs no task. A task looks for its tables itself. A table that is gone is left alone until it is
back; a database that is gone is asked again and again.
"""

from __future__ import annotations

import logging
import re
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from millstream.connect.api import Settings, SourceConnector, SourceContext, SourceTask
from millstream.connect.config.config_def import ConfigValue
from millstream.connect.connectors.jdbc.columns import TableId
from millstream.connect.connectors.jdbc.dialect import Dialect, MissingTable, Unavailable, make_dialect
from millstream.connect.connectors.jdbc.source_config import SOURCE, numeric_mapping, validate_source
from millstream.connect.connectors.jdbc.source_offset import SourceOffset
from millstream.connect.connectors.jdbc.table_reader import ReadSettings, TableReader
from millstream.connect.data.logical import from_millis
from millstream.connect.data.record import SourceRecord
from millstream.connect.errors import ConnectError

log = logging.getLogger("millstream.connect")

_NUMBER, _COUNT = "millstream.task", "millstream.tasks"


class JdbcSourceTask(SourceTask):
    steady: ClassVar[bool] = True

    def __init__(self) -> None:
        self._dialect: Dialect | None = None
        self._readers: dict[str, TableReader] = {}
        self._next = 0
        self._tables_due = 0.0
        self._attempts = 0
        self._connected_before = False

    def start(self, settings: Settings, context: SourceContext) -> None:
        self._parsed = parsed = SOURCE.parse(settings)
        self._context = context
        self._number, self._count = int(settings.get(_NUMBER, "0")), int(settings.get(_COUNT, "1"))
        self._dialect = dialect_of(parsed)
        self._read_settings = ReadSettings(
            mode=parsed["mode"],
            incrementing_column=parsed["incrementing.column.name"],
            timestamp_columns=parsed["timestamp.column.name"],
            delay_ms=parsed["timestamp.delay.interval.ms"],
            gap_ms=parsed["millstream.incrementing.gap.ms"],
            max_rows=parsed["batch.max.rows"],
            numeric_mapping=numeric_mapping(parsed),
            zone=ZoneInfo(parsed["db.timezone"]),
            suffix=parsed["query.suffix"],
            must_not_be_null=parsed["validate.non.null"],
        )

    # --- polling --------------------------------------------------------------------------------------------

    def poll(self) -> Sequence[SourceRecord]:
        try:
            self._connect()
            now = time.monotonic()
            if not any(reader.reading for reader in self._readers.values()) and now >= self._tables_due:
                self._look_for_tables()
                self._tables_due = now + self._parsed["table.poll.interval.ms"] / 1000
            return self._read_some()
        except Unavailable as error:
            for reader in self._readers.values():
                reader.forget()
            if not self._connected_before:
                self._attempts += 1
                if self._attempts >= self._parsed["connection.attempts"]:
                    raise ConnectError(str(error)) from None
                log.warning("%s; tried again", error)
                self.idle_ms = self._parsed["connection.backoff.ms"]
                return []
            raise

    def _connect(self) -> None:
        assert self._dialect is not None
        if self._dialect.connection is not None:
            return
        self._dialect.connect()
        self._connected_before = True
        if self._parsed["transaction.isolation.mode"] != "DEFAULT":
            self._dialect.set_isolation(self._parsed["transaction.isolation.mode"])

    def _read_some(self) -> list[SourceRecord]:
        """Of the tables that are due, one after the other, until one has something."""
        names = list(self._readers)
        order = [*names[self._next :], *names[: self._next]]
        # A result that was begun comes first.
        order.sort(key=lambda name: not self._readers[name].reading)
        for name in order:
            reader = self._readers.get(name)
            if reader is None or (reader.due > time.monotonic() and not reader.reading):
                continue
            try:
                records, more = reader.read()
            except MissingTable as error:
                if self._parsed["query"]:
                    raise ConnectError(str(error)) from None
                log.warning("%s: left out until it is back", error)
                del self._readers[name]
                continue
            if not more:
                reader.due = time.monotonic() + self._parsed["poll.interval.ms"] / 1000
            if records:
                self._next = (names.index(name) + 1) % len(names)
                return records
        due = min([self._tables_due, *(reader.due for reader in self._readers.values())])
        self.idle_ms = max(0.0, due - time.monotonic()) * 1000
        return []

    # --- which tables ---------------------------------------------------------------------------------------

    def _look_for_tables(self) -> None:
        assert self._dialect is not None
        if self._parsed["query"]:
            if not self._readers:
                self._readers["query"] = self._reader(query=self._parsed["query"])
            return
        parsed = self._parsed
        found = self._dialect.tables(
            parsed["table.types"], parsed["catalog.pattern"], parsed["schema.pattern"]
        )
        mine = {str(table): table for table in found if self._is_mine(table)}
        for name in [name for name in self._readers if name not in mine]:
            log.warning("table %s is gone", name)
            del self._readers[name]
        for name, table in mine.items():
            if name not in self._readers:
                self._readers[name] = self._reader(table=table)

    def _is_mine(self, table: TableId) -> bool:
        if not is_wanted(self._parsed, table):
            return False
        listed = list(self._parsed["table.whitelist"])
        for number, name in enumerate(listed):
            if name in table.names:
                return number % self._count == self._number
        return zlib.crc32(str(table).encode()) % self._count == self._number

    def _reader(self, *, table: TableId | None = None, query: str = "") -> TableReader:
        assert self._dialect is not None
        topic = self._parsed["topic.prefix"] + (table.name if table is not None else "")
        reader = TableReader(self._dialect, self._read_settings, topic, table=table, query=query)
        stored = None
        for name in table.names if table is not None else [""]:
            # A Java driver may have left the catalog or the schema out.
            partition = {"protocol": "1", "table": name} if table is not None else reader.partition
            stored = stored or self._context.offset(partition)
        if stored is None and self._parsed["timestamp.initial"] is not None:
            initial = self._parsed["timestamp.initial"]
            start = self._dialect.now() if initial == -1 else from_millis(initial)
            reader.offset = SourceOffset(timestamp=start)
        else:
            reader.offset = SourceOffset.from_map(stored)
        return reader

    def stop(self) -> None:
        if self._dialect is not None:
            self._dialect.close()


def dialect_of(parsed: Mapping[str, Any]) -> Dialect:
    password = parsed["connection.password"]
    return make_dialect(
        parsed["connection.url"],
        parsed["connection.user"],
        None if password is None else password.value,
        name=parsed["dialect.name"],
        quote=parsed["quote.sql.identifiers"] == "always" and parsed["sql.quote.identifiers"],
    )


def is_wanted(parsed: Mapping[str, Any], table: TableId) -> bool:
    names = table.names
    if parsed["table.whitelist"]:
        return any(name in names for name in parsed["table.whitelist"])
    if any(name in names for name in parsed["table.blacklist"]):
        return False
    included = parsed["table.include.list"]
    if included and not any(re.fullmatch(one, name) for one in included for name in names):
        return False
    return not any(re.fullmatch(one, name) for one in parsed["table.exclude.list"] for name in names)


class JdbcSource(SourceConnector):
    task = JdbcSourceTask
    config = SOURCE

    def task_settings(self, max_tasks: int) -> list[Settings]:
        parsed = SOURCE.parse(self.settings)
        count = max_tasks
        if parsed["query"]:
            count = 1
        elif parsed["table.whitelist"]:
            count = min(max_tasks, len(parsed["table.whitelist"]))
        return [{**self.settings, _NUMBER: str(number), _COUNT: str(count)} for number in range(count)]

    @classmethod
    def validate(cls, settings: Settings) -> dict[str, ConfigValue]:
        return validate_source(settings)

    def alter_offsets(self, offsets: Sequence[Mapping[str, Any]]) -> bool:
        for entry in offsets:
            partition = entry.get("partition")
            if not isinstance(partition, dict) or not ("table" in partition or "query" in partition):
                raise ConnectError("Partition objects should contain the key 'table' or 'query'")
            offset = entry.get("offset")
            if offset is None:
                continue
            numbers = ("incrementing", "timestamp", "timestamp_nanos")
            if not isinstance(offset, dict) or not any(name in offset for name in numbers):
                raise ConnectError("Offset objects should contain the key 'incrementing' or 'timestamp'")
            if any(type(offset[name]) is not int for name in numbers if name in offset):
                raise ConnectError("Offsets of tables are numbers")
        return True
