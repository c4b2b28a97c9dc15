"""The sink's own offsets, in the database: a row for each partition, moved in the transaction of its rows."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.connect.connectors.jdbc.columns import TableId
from millstream.connect.connectors.jdbc.dialect import Dialect, Unavailable
from millstream.connect.data.record import SinkRecord
from millstream.connect.errors import ConnectError
from millstream.wire.topic_partition import TopicPartition


def _partition(record: SinkRecord) -> TopicPartition:
    return TopicPartition(record.original_topic or record.topic, record.original_partition or 0)


def _offset(record: SinkRecord) -> int:
    return record.offset if record.original_offset is None else record.original_offset


class OffsetsTable:
    """Columns connector, topic, part and position: the offset of the next record."""

    def __init__(self, dialect: Dialect, table: TableId, connector: str, *, create: bool) -> None:
        self._dialect, self._table, self._connector, self._create = dialect, table, connector, create
        self._ready = False
        self._positions: dict[TopicPartition, int] = {}
        self._moving: dict[TopicPartition, int] = {}

    def forget(self) -> None:
        """What is known may be wrong: the table is asked again."""
        self._positions.clear()

    def new(self, records: Sequence[SinkRecord]) -> list[SinkRecord]:
        """Those that are not in the database yet."""
        self._prepare()
        for which in {_partition(record) for record in records}:
            if which not in self._positions:
                self._positions[which] = self._read(which)
        return [record for record in records if _offset(record) >= self._positions[_partition(record)]]

    def _prepare(self) -> None:
        if self._ready:
            return
        if not self._dialect.columns(self._table):
            if not self._create:
                raise ConnectError(f'Table "{self._table}" is missing and auto-creation is disabled')
            sql = (
                f"CREATE TABLE {self._dialect.table_sql(self._table)} (connector VARCHAR(200) NOT NULL, "
                "topic VARCHAR(250) NOT NULL, part INT NOT NULL, position BIGINT NOT NULL, "
                "PRIMARY KEY(connector, topic, part))"
            )
            try:
                self._dialect.execute(sql)
            except self._dialect.error as error:
                failure = self._dialect.failure(error)
                if self._dialect.connection is None or not self._dialect.columns(self._table):
                    raise failure from None  # else another task was quicker
        self._ready = True

    def _read(self, which: TopicPartition) -> int:
        """A partition that is new has a row at once, so that there is one to move."""
        mark, table = self._dialect.mark, self._dialect.table_sql(self._table)
        key = (self._connector, which.topic, which.partition)
        sql = f"SELECT position FROM {table} WHERE connector = {mark} AND topic = {mark} AND part = {mark}"
        found = self._dialect.rows(sql, key)
        if not found:
            insert = self._dialect.insert_sql(table, ["connector", "topic", "part", "position"])
            try:
                self._dialect.execute(insert, (*key, 0))
            except self._dialect.error as error:
                failure = self._dialect.failure(error)
                if isinstance(failure, Unavailable):
                    raise failure from None
            found = self._dialect.rows(sql, key)
            if not found:
                raise ConnectError(f'Table "{self._table}" takes no row')
        return int(found[0][0])

    def move(self, records: Sequence[SinkRecord]) -> None:
        """Behind these records, inside the transaction. `Unavailable` where somebody else has moved it."""
        self._moving = {}
        for record in records:
            which = _partition(record)
            self._moving[which] = max(self._moving.get(which, 0), _offset(record) + 1)
        mark, table = self._dialect.mark, self._dialect.table_sql(self._table)
        for which, position in self._moving.items():
            moved = self._dialect.execute(
                f"UPDATE {table} SET position = {mark} WHERE connector = {mark} AND topic = {mark} "
                f"AND part = {mark} AND position = {mark}",
                (position, self._connector, which.topic, which.partition, self._positions[which]),
            )
            if moved != 1:
                raise Unavailable(f"another task has written records of {which} meanwhile")

    def moved(self) -> None:
        self._positions |= self._moving
