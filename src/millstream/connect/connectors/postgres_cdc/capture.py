"""Reads rows of a snapshot, then every change, from PostgreSQL's own log.

A record's offset names its transaction, by the LSN of its commit, and how many changes of it are done. The
slot is confirmed up to a transaction only when all of it is in Kafka; what the server sends again after a
crash is recognised by its LSN and left out. So each change is there once, also those of one transaction
that was cut in two. A snapshot that was interrupted is taken again.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg

from millstream.connect.api import SourceContext
from millstream.connect.connectors.jdbc.columns import Column, Kind, TableId
from millstream.connect.connectors.jdbc.postgres import Postgres
from millstream.connect.connectors.jdbc.url import JdbcUrl
from millstream.connect.connectors.postgres_cdc import pgoutput
from millstream.connect.connectors.postgres_cdc.envelope import SourceInfo, TableEvents
from millstream.connect.connectors.postgres_cdc.field_types import Modes
from millstream.connect.connectors.postgres_cdc.replication import Replication, lsn_number
from millstream.connect.data.record import SourceRecord
from millstream.connect.data.struct import Struct
from millstream.connect.errors import ConnectError, RetriableError

log = logging.getLogger("millstream.connect")

_COMMIT, _EVENT = "millstream.commit", "millstream.event"
_MICROS_TO_2000 = 946_684_800_000_000
_ENUMS = """
SELECT t.typname, e.enumlabel FROM pg_enum e JOIN pg_type t ON t.oid = e.enumtypid ORDER BY e.enumsortorder
"""


class Capture:
    def __init__(self, parsed: Mapping[str, Any], context: SourceContext, version: str) -> None:
        """`parsed` settings; `version` is what the records say of their connector."""
        self._parsed, self._context, self._version = parsed, context, version
        self._partition = {"server": parsed["topic.prefix"]}
        self._modes = Modes(
            parsed["decimal.handling.mode"], parsed["time.precision.mode"], parsed["binary.handling.mode"]
        )
        url = JdbcUrl(
            "postgresql",
            parsed["database.dbname"],
            parsed["database.hostname"],
            parsed["database.port"],
            {"sslmode": parsed["database.sslmode"]},
        )
        password = parsed["database.password"]
        self._database = Postgres(url, parsed["database.user"], None if password is None else password.value)
        self._replication: Replication | None = None
        self._tables: dict[int, TableEvents | None] = {}
        self._indexes: dict[int, list[int]] = {}
        self._snapshot: Iterator[list[SourceRecord]] | None = None
        self._began = self._over = self._uncommitted = False
        self._in_snapshot = False
        # The transaction that is being read, how many changes of it there were, and what is done.
        self._source: SourceInfo | None = None
        self._event = 0
        self._done = (0, 0)
        # Where the last whole transaction ends, and what the server knows of that.
        self._ended = self._confirmed = 0

    # --- polling --------------------------------------------------------------------------------------------

    def poll(self) -> Sequence[SourceRecord]:
        try:
            if self._replication is None and not self._over:
                self._begin()
            if self._over:
                return []
            records = self._changes() if self._snapshot is None else next(self._snapshot, None)
            if records is None:
                self._snapshot, self._in_snapshot, records = None, False, []
                self._stream()
        except psycopg.Error as error:
            self._close()
            raise self._database.failure(error) from None
        except ConnectError:
            self._close()
            raise
        self._uncommitted = self._uncommitted or bool(records)
        return records

    def _begin(self) -> None:
        """At the start, or after the connection was lost."""
        database, parsed = self._database, self._parsed
        database.connect()
        offset = self._offset() if self._began else self._context.offset(self._partition)
        found = offset or {}
        self._done = (int(found.get(_COMMIT, 0)), int(found.get(_EVENT, 0)))
        interrupted = bool(found.get("snapshot"))
        mode = parsed["snapshot.mode"]
        wanted = interrupted
        if not self._began:
            wanted = wanted or mode == "always" or (offset is None and mode not in ("never", "no_data"))
        self._publish(database)
        self._replication = Replication(database.parameters())
        position, snapshot = self._slot(interrupted, known=offset is not None)
        self._began = True
        self._ended = self._confirmed = position
        self._in_snapshot = wanted
        if wanted:
            self._snapshot = self._read_snapshot(database, snapshot, position)
        else:
            self._stream()

    def _slot(self, interrupted: bool, *, known: bool) -> tuple[int, str | None]:
        """Where the slot is; and the name of the snapshot at its beginning, if it is a new one."""
        assert self._replication is not None
        database, name = self._database, self._parsed["slot.name"]
        found = database.rows(
            "SELECT confirmed_flush_lsn::text, active FROM pg_replication_slots WHERE slot_name = %s", (name,)
        )
        if found and found[0][1]:
            self._close()
            raise RetriableError(f"replication slot {name} is in use by somebody else")
        if found and interrupted:
            # The rest of that snapshot cannot be read any more: a new one, from a new slot.
            database.rows("SELECT pg_drop_replication_slot(%s)::text", (name,))
            found = []
        if found:
            return lsn_number(found[0][0]), None
        if known and not interrupted:
            log.warning("slot %s is gone: changes may be missing", name)
        slot = self._replication.create_slot(name)
        return slot.position, slot.snapshot

    def _publish(self, database: Postgres) -> None:
        parsed = self._parsed
        name = database.quoted(parsed["publication.name"])
        if database.rows("SELECT 1 FROM pg_publication WHERE pubname = %s", (parsed["publication.name"],)):
            return
        mode = parsed["publication.autocreate.mode"]
        if mode == "disabled":
            raise ConnectError(
                f"publication {parsed['publication.name']} is missing, and publication.autocreate.mode "
                "says that it is not to be made"
            )
        tables = "ALL TABLES"
        if mode == "filtered":
            listed = [database.table_sql(table) for table in self._wanted_tables(database)]
            if not listed:
                raise ConnectError("no table matches the filters: there is nothing to publish")
            tables = f"TABLE {', '.join(listed)}"
        database.execute(f"CREATE PUBLICATION {name} FOR {tables}")

    def _stream(self) -> None:
        assert self._replication is not None
        if self._parsed["snapshot.mode"] == "initial_only":
            self._over = True
        else:
            self._replication.start(self._parsed["slot.name"], self._parsed["publication.name"])

    # --- which tables ---------------------------------------------------------------------------------------

    def _is_wanted(self, schema: str, table: str) -> bool:
        full = f"{schema}.{table}"
        for what, name in (("schema", schema), ("table", full)):
            included = self._parsed[f"{what}.include.list"]
            if included and not any(re.fullmatch(one, name) for one in included):
                return False
            if any(re.fullmatch(one, name) for one in self._parsed[f"{what}.exclude.list"]):
                return False
        return True

    def _wanted_tables(self, database: Postgres) -> list[TableId]:
        return [
            table
            for table in database.tables(("TABLE",), None, None)
            if self._is_wanted(table.schema or "", table.name)
        ]

    def _events(self, schema: str, table: str, names: Sequence[str]) -> tuple[TableEvents, list[int]]:
        """What makes the records of a table, and which of its columns they have."""
        labels: dict[str, tuple[str, ...]] = {}
        for kind, label in self._database.rows(_ENUMS):
            labels[kind] = (*labels.get(kind, ()), label)
        known = {column.name: column for column in self._database.columns(TableId(table, schema))}
        left_out = self._parsed["column.exclude.list"]
        indexes = [
            index
            for index, name in enumerate(names)
            if not any(re.fullmatch(one, f"{schema}.{table}.{name}") for one in left_out)
        ]
        columns = [known.get(names[index]) or _unknown(names[index]) for index in indexes]
        events = TableEvents(
            self._parsed["topic.prefix"],
            self._parsed["database.dbname"],
            schema,
            table,
            [(column, labels.get(column.native, ())) for column in columns],
            self._modes,
            self._version,
        )
        return events, indexes

    # --- the snapshot ---------------------------------------------------------------------------------------

    def _read_snapshot(self, database: Postgres, name: str | None, lsn: int) -> Iterator[list[SourceRecord]]:
        """All rows as they were when the slot began, so that the first change behind them is the next."""
        database.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if name is not None:
            database.execute(f"SET TRANSACTION SNAPSHOT '{name}'")
        source = SourceInfo(lsn, lsn, None, int(database.now().timestamp() * 1_000_000), "true")
        last: list[SourceRecord] = []
        for order, table in enumerate(self._wanted_tables(database)):
            begun = False
            for records in self._rows(database, table, source):
                offset = self._position(source, snapshot=True)
                for record in records:
                    record.source_partition, record.source_offset = self._partition, offset
                if not begun:
                    begun = True
                    for record in last:  # of the table before; a table of one row has its first alone
                        if _marker(record) != "first":
                            _mark(record, "last_in_data_collection")
                    _mark(records[0], "first" if order == 0 else "first_in_data_collection")
                yield [*last, *records[:-1]]
                last = records[-1:]
        database.execute("COMMIT")
        for record in last:
            # It says that the snapshot is complete.
            _mark(record, "last")
            self._stamp(record, source, snapshot=False)
        yield last

    def _rows(self, database: Postgres, table: TableId, source: SourceInfo) -> Iterator[list[SourceRecord]]:
        columns = [column.name for column in database.columns(table)]
        events, indexes = self._events(table.schema or "", table.name, columns)
        names = ", ".join(database.quoted(columns[index]) for index in indexes)
        database.execute(
            f"DECLARE millstream_snapshot CURSOR FOR SELECT {names} FROM {database.table_sql(table)}"
        )
        fetch = f"FETCH {self._parsed['snapshot.fetch.size']} FROM millstream_snapshot"
        while (result := database.connection.execute(fetch).pgresult).ntuples:
            get, rows = result.get_value, range(result.ntuples)
            yield events.read([[get(row, column) for row in rows] for column in range(len(indexes))], source)
        database.execute("CLOSE millstream_snapshot")

    def _stamp(self, record: SourceRecord, source: SourceInfo, *, snapshot: bool) -> None:
        record.source_partition = self._partition
        record.source_offset = self._position(source, snapshot=snapshot)

    def _position(self, source: SourceInfo, *, snapshot: bool) -> dict[str, Any]:
        offset: dict[str, Any] = {
            "lsn": source.lsn,
            "lsn_proc": source.lsn,
            "lsn_commit": source.commit,
            "txId": source.xid,
            "ts_usec": source.micros,
            _COMMIT: self._done[0],
            _EVENT: self._done[1],
        }
        if snapshot:
            offset |= {"snapshot": True, "last_snapshot_record": False}
        return offset

    # --- the stream -----------------------------------------------------------------------------------------

    def _changes(self) -> list[SourceRecord]:
        assert self._replication is not None
        records: list[SourceRecord] = []
        while len(records) < self._parsed["max.batch.size"]:
            found = self._replication.next()
            if found is None:
                if not records and not self._uncommitted and self._source is None:
                    # Nothing of what was written elsewhere concerns us: the server need not keep it.
                    self._confirm(max(self._ended, self._replication.seen))
                break
            self._take(*found, records)
        return records

    def _take(self, lsn: int, data: bytes, records: list[SourceRecord]) -> None:
        message = pgoutput.parse(data)
        if isinstance(message, pgoutput.Begin):
            self._source = SourceInfo(lsn, message.final, message.xid, message.time + _MICROS_TO_2000)
            self._event = 0
        elif isinstance(message, pgoutput.Commit):
            self._source, self._ended = None, message.end
        elif isinstance(message, pgoutput.Relation):
            self._learn(message)
        elif isinstance(message, pgoutput.Change):
            records += self._change(message, lsn)

    def _learn(self, relation: pgoutput.Relation) -> None:
        if not self._is_wanted(relation.schema, relation.name):
            self._tables[relation.oid] = None
            return
        events, indexes = self._events(relation.schema, relation.name, relation.columns)
        self._tables[relation.oid], self._indexes[relation.oid] = events, indexes

    def _change(self, change: pgoutput.Change, lsn: int) -> list[SourceRecord]:
        """Nothing for a change that is in Kafka already."""
        events, source = self._tables.get(change.oid), self._source
        if events is None or source is None:
            return []
        self._event += 1
        if (source.commit, self._event) <= self._done:
            return []
        self._done = (source.commit, self._event)
        indexes = self._indexes[change.oid]
        picked = change._replace(
            old=None if change.old is None else [change.old[index] for index in indexes],
            new=None if change.new is None else [change.new[index] for index in indexes],
        )
        at = SourceInfo(lsn, source.commit, source.xid, source.micros)
        records = events.change(picked, at, tombstones=self._parsed["tombstones.on.delete"])
        for record in records:
            self._stamp(record, at, snapshot=False)
        return records

    def _offset(self) -> dict[str, Any]:
        return {_COMMIT: self._done[0], _EVENT: self._done[1], "snapshot": self._in_snapshot}

    def committed(self) -> None:
        """All that was polled is in Kafka."""
        self._uncommitted = False
        if self._snapshot is None and self._replication is not None and not self._over:
            self._confirm(self._ended)

    def _confirm(self, lsn: int) -> None:
        assert self._replication is not None
        if lsn <= self._confirmed:
            return
        self._confirmed = lsn
        try:
            self._replication.confirm(lsn)
        except psycopg.Error:
            self._close()  # the next poll connects again

    def _close(self) -> None:
        if self._replication is not None:
            self._replication.close()
            self._replication = None
        self._snapshot = self._source = None
        self._tables.clear()
        self._database.close()

    def stop(self) -> None:
        self._close()
        if self._parsed["slot.drop.on.stop"]:
            try:
                self._database.connect()
                self._database.rows("SELECT pg_drop_replication_slot(%s)::text", (self._parsed["slot.name"],))
            except ConnectError as error:
                log.warning("slot %s stays: %s", self._parsed["slot.name"], error)
            self._database.close()


def _unknown(name: str) -> Column:
    """A column that the table had when the change was made, and has no more."""
    return Column(name, Kind.STRING, native="text")


def _marker(record: SourceRecord) -> str:
    return str(record.value.get("source").get("snapshot"))


def _mark(record: SourceRecord, marker: str) -> None:
    """Where it stands in the snapshot. It shares its source with the rest of its block until then."""
    source = record.value.get("source")
    changed = Struct(source.schema, list(source.values))
    changed.put("snapshot", marker)
    record.value.put("source", changed)
