"""A table's changes as records in Debezium's form: key, envelope, and the tombstone behind a deletion."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.connect.connectors.jdbc.columns import Column
from millstream.connect.connectors.postgres_cdc.field_types import Convert, Modes, empty, field_type
from millstream.connect.connectors.postgres_cdc.pgoutput import UNCHANGED, Change, Value
from millstream.connect.data.record import Header, SourceRecord
from millstream.connect.data.schema import OPTIONAL, REQUIRED, Schema, Type, struct_schema
from millstream.connect.data.struct import Struct
from millstream.connect.errors import DataError

_STRING, _LONG = REQUIRED[Type.STRING], OPTIONAL[Type.INT64]
# What makes values of bytes, where that is less work than to make a text first.
_OF_BYTES: dict[Convert, Callable[[bytes], Any]] = {int: int, float: float, str: bytes.decode}
_new = object.__new__
UNAVAILABLE = "__debezium_unavailable_value"
SNAPSHOT_VALUES = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
SOURCE = struct_schema(
    [
        ("version", _STRING),
        ("connector", _STRING),
        ("name", _STRING),
        ("ts_ms", REQUIRED[Type.INT64]),
        (
            "snapshot",
            Schema(
                Type.STRING,
                optional=True,
                default="false",
                name="io.debezium.data.Enum",
                version=1,
                parameters={"allowed": SNAPSHOT_VALUES},
            ),
        ),
        ("db", _STRING),
        ("sequence", OPTIONAL[Type.STRING]),
        ("ts_us", _LONG),
        ("ts_ns", _LONG),
        ("schema", _STRING),
        ("table", _STRING),
        ("txId", _LONG),
        ("lsn", _LONG),
        ("xmin", _LONG),
    ],
    name="io.debezium.connector.postgresql.Source",
)
_TRANSACTION = struct_schema(
    [
        ("id", _STRING),
        ("total_order", REQUIRED[Type.INT64]),
        ("data_collection_order", REQUIRED[Type.INT64]),
    ],
    name="event.block",
    version=1,
    optional=True,
)


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """Where in the log a change is. `micros` is when its transaction was committed, since 1970."""

    lsn: int
    commit: int
    xid: int | None
    micros: int
    snapshot: str = "false"


class TableEvents:
    """Makes the records of one table, as its columns are now."""

    def __init__(
        self,
        prefix: str,
        database: str,
        schema: str,
        table: str,
        columns: Sequence[tuple[Column, tuple[str, ...]]],
        modes: Modes,
        version: str,
    ) -> None:
        self.topic = f"{prefix}.{schema}.{table}"
        self._about = (version, "postgresql", prefix), database, schema, table
        self._of_bytes: list[Callable[[bytes], Any]] = []
        fields = []
        for column, labels in columns:
            kind, convert = field_type(column, modes, labels)
            self._of_bytes.append(_OF_BYTES.get(convert) or _of_bytes(convert))
            fields.append((column.name, kind.replace(optional=True) if column.optional else kind))
        self._row = struct_schema(fields, name=f"{self.topic}.Value", optional=True)
        positions = sorted(
            (column.key_position, index) for index, (column, _) in enumerate(columns) if column.key_position
        )
        self._key_indexes = [index for _, index in positions]
        self._key = struct_schema([fields[index] for index in self._key_indexes], name=f"{self.topic}.Key")
        self._envelope = struct_schema(
            [
                ("before", self._row),
                ("after", self._row),
                ("source", SOURCE),
                ("op", _STRING),
                ("ts_ms", _LONG),
                ("ts_us", _LONG),
                ("ts_ns", _LONG),
                ("transaction", _TRANSACTION),
            ],
            name=f"{self.topic}.Envelope",
            version=2,
        )

    def read(self, columns: Sequence[Sequence[bytes | None]], source: SourceInfo) -> list[SourceRecord]:
        """Of a snapshot: many rows at once, column by column. Their records have one and the same source."""
        try:
            values = [
                [None if one is None else convert(one) for one in column]
                for convert, column in zip(self._of_bytes, columns, strict=True)
            ]
        except (ValueError, ArithmeticError):
            # One by one: the first that has no counterpart is named.
            return [record for row in zip(*columns, strict=True) for record in self._read_alone(row, source)]
        now = time.time_ns()
        source_struct, times = self._source_of(source), [now // 1_000_000, now // 1000, now, None]
        row_schema, key_schema, envelope = self._row, self._key, self._envelope
        records = []
        keyed = bool(self._key_indexes)
        keys = zip(*(values[index] for index in self._key_indexes), strict=True)
        # Made without constructors, which take most of the time otherwise.
        for row in zip(*values, strict=True):
            after, value, record = _new(Struct), _new(Struct), _new(SourceRecord)
            after.schema, after.values = row_schema, list(row)
            value.schema, value.values = envelope, [None, after, source_struct, "r", *times]
            record.topic, record.partition, record.timestamp, record.headers = self.topic, None, None, ()
            record.key_schema = record.key = None
            if keyed:
                key = _new(Struct)
                key.schema, key.values = key_schema, list(next(keys))
                record.key_schema, record.key = key_schema, key
            record.value_schema, record.value = envelope, value
            record.source_partition = record.source_offset = None
            records.append(record)
        return records

    def _read_alone(self, row: Sequence[bytes | None], source: SourceInfo) -> list[SourceRecord]:
        after = self._struct(row)
        return [self._record(self._key_of(after), None, after, "r", source)]

    def change(self, change: Change, source: SourceInfo, *, tombstones: bool) -> list[SourceRecord]:
        """An update of the key is a deletion and an insertion, each naming the other's key in a header."""
        after = None if change.new is None else self._struct(change.new, change.old if change.whole else None)
        before = None if change.old is None else self._struct(change.old, partial=not change.whole)
        if change.op == "d":
            assert before is not None
            return self._deletion(before, source, tombstones)
        assert after is not None
        key = self._key_of(after)
        old_key = None if before is None else self._key_of(before)
        if change.op == "u" and old_key is not None and key is not None and old_key.values != key.values:
            assert before is not None
            gone = self._deletion(before, source, tombstones)
            gone[0].headers = (Header("__debezium.newkey", self._key, key),)
            made = self._record(key, None, after, "c", source)
            made.headers = (Header("__debezium.oldkey", self._key, old_key),)
            return [*gone, made]
        # What is only the key says nothing that the row itself does not say.
        return [self._record(key, before if change.whole else None, after, change.op, source)]

    def _deletion(self, before: Struct, source: SourceInfo, tombstones: bool) -> list[SourceRecord]:
        key = self._key_of(before)
        records = [self._record(key, before, None, "d", source)]
        if tombstones and key is not None:
            records.append(SourceRecord(topic=self.topic, key_schema=self._key, key=key))
        return records

    def _key_of(self, row: Struct) -> Struct | None:
        if not self._key_indexes:
            return None
        return Struct(self._key, [row.values[index] for index in self._key_indexes])

    def _struct(
        self, row: Sequence[Value], old: Sequence[Value] | None = None, *, partial: bool = False
    ) -> Struct:
        values: list[Any] = []
        for index, value in enumerate(row):
            schema = self._row.fields[index].schema
            if value is UNCHANGED and old is not None:
                value = old[index]
            if isinstance(value, bytes):
                try:
                    values.append(self._of_bytes[index](value))
                except (ValueError, ArithmeticError):
                    name = self._row.fields[index].name
                    raise DataError(
                        f"{self.topic}: {name} has a value without a counterpart: {value!r}"
                    ) from None
            elif value is UNCHANGED:
                values.append(UNAVAILABLE if schema.type is Type.STRING else _unavailable(schema))
            else:
                values.append(empty(schema) if partial and not schema.optional else None)
        return Struct(self._row, values)

    def _record(
        self, key: Struct | None, before: Struct | None, after: Struct | None, op: str, source: SourceInfo
    ) -> SourceRecord:
        now = time.time_ns()
        value = Struct(
            self._envelope,
            [before, after, self._source_of(source), op, now // 1_000_000, now // 1000, now, None],
        )
        return SourceRecord(
            topic=self.topic,
            key_schema=None if key is None else self._key,
            key=key,
            value_schema=self._envelope,
            value=value,
        )

    def _source_of(self, source: SourceInfo) -> Struct:
        about, database, schema, table = self._about
        return Struct(
            SOURCE,
            [
                *about,
                source.micros // 1000,
                source.snapshot,
                database,
                f'["{source.commit}","{source.lsn}"]',
                source.micros,
                source.micros * 1000,
                schema,
                table,
                source.xid,
                source.lsn,
                None,
            ],
        )


def _of_bytes(convert: Convert) -> Callable[[bytes], Any]:
    return lambda data: convert(data.decode())


def _unavailable(schema: Schema) -> Any:
    if schema.type is Type.BYTES and schema.name is None:
        return UNAVAILABLE.encode()
    return None if schema.optional else empty(schema)
