"""Serdes of whole keys and values: a format and columns become a `Serde` of Streams whose objects are rows.

A row is a tuple with a value for each column, in their order; None is a tombstone, or a key that is not
there. A key of a windowed source is Streams' `Windowed` around the row.
"""

from __future__ import annotations

from typing import Any

from millstream.serdes.client import RegisteredSchema, SchemaRegistry
from millstream.sql.errors import SqlError
from millstream.sql.formats import delimited, json_rows, kafka
from millstream.sql.formats.json_rows import Columns, Read, Write
from millstream.sql.formats.table import DELIMITER, Format, check_columns, delimiter_of
from millstream.streams.serdes import Serde, session_windowed, time_windowed


def row_serde(
    format_: Format,
    columns: Columns,
    *,
    is_key: bool = False,
    unwrapped: bool | None = None,
    registry: SchemaRegistry | None = None,
) -> Serde:
    """`unwrapped`: a single column stands for itself; None takes the format's default."""
    if unwrapped is None:
        unwrapped = format_.unwraps_by_default(len(columns), is_key=is_key)
    return _made(format_, columns, is_key, unwrapped, registry)


def windowed_key(key: Serde, window_size: int | None) -> Serde:
    """A key with its window: of a fixed size, or a session."""
    return session_windowed(key) if window_size is None else time_windowed(key, window_size)


def _made(
    format_: Format, columns: Columns, is_key: bool, unwrapped: bool, registry: SchemaRegistry | None
) -> Serde:
    check_columns(format_, columns, is_key=is_key)
    made = (_made, format_, columns, is_key, unwrapped, registry)
    name = f"{format_.name.lower()} {'key' if is_key else 'row'}"
    if not columns or format_.name == "NONE":
        return Serde(name, lambda _topic, _row: None, lambda _topic, _data: None, True, made=made)
    if format_.traits.infers:
        if registry is None:
            raise SqlError(f"The format {format_.name} needs a schema registry: set ksql.schema.registry.url")
        from millstream.sql.formats.registry_rows import RegistryRows

        rows = RegistryRows(format_, columns, is_key=is_key, unwrapped=unwrapped, registry=registry)
        return Serde(
            name,
            lambda topic, row: None if row is None else rows.write(topic, row),
            lambda topic, data: None if data is None else rows.read(topic, data),
            made=made,
        )
    read, write = _plain(format_, columns, unwrapped)
    return Serde(
        name,
        lambda _topic, row: None if row is None else write(row),
        lambda _topic, data: None if data is None else read(data),
        format_.name == "KAFKA",
        None,
        read,
        made,
    )


def _plain(format_: Format, columns: Columns, unwrapped: bool) -> tuple[Read, Write]:
    if format_.name == "JSON":
        return json_rows.reader(columns, unwrapped=unwrapped), json_rows.writer(columns, unwrapped=unwrapped)
    if format_.name == "DELIMITED":
        delimiter = delimiter_of(format_.get(DELIMITER) or ",")
        return delimited.reader(columns, delimiter), delimited.writer(columns, delimiter)
    if format_.name == "KAFKA":
        return kafka.reader(columns), kafka.writer(columns)
    return _protobuf_without_registry(format_, columns)


def _protobuf_without_registry(format_: Format, columns: Columns) -> tuple[Read, Write]:
    from millstream.sql.formats.registry_rows import protobuf_decoder, protobuf_encoder, sink_schema

    schema = RegisteredSchema(-1, "PROTOBUF", sink_schema(format_, columns, unwrapped=False))
    decode = protobuf_decoder(schema, columns, format_, bare=True)
    encode = protobuf_encoder(schema, columns, format_, bare=True)

    def read(data: bytes) -> tuple[Any, ...]:
        return decode(memoryview(data))

    return read, encode
