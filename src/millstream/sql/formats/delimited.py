"""DELIMITED rows: one line of CSV without its end.

Reading takes quotes as RFC 4180 has them. Writing quotes as Apache Commons CSV does, which ksqlDB uses: a
first field that does not begin with a letter or a digit is quoted, whatever it is, so that -1 becomes "-1".
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any

from millstream.serdes.java_text import double_text
from millstream.sql.formats.json_rows import Columns, Read, Write
from millstream.sql.formats.values import (
    DoesNotFit,
    base64_text,
    checked_time,
    fit_decimal,
    parse_bytes,
    parse_decimal,
    parse_double,
    parse_integer,
    plain_text,
)
from millstream.sql.types import Base, DecimalType, SqlType


def _parser(type_: SqlType) -> Callable[[str], Any]:
    if isinstance(type_, DecimalType):
        return lambda text: fit_decimal(parse_decimal(text), type_)
    parsers: dict[Base, Callable[[str], Any]] = {
        Base.BOOLEAN: lambda text: text.lower() == "true",
        Base.INTEGER: lambda text: parse_integer(text, 32, "INTEGER"),
        Base.BIGINT: lambda text: parse_integer(text, 64, "BIGINT"),
        Base.DOUBLE: parse_double,
        Base.STRING: str,
        Base.BYTES: parse_bytes,
        Base.TIME: lambda text: checked_time(parse_integer(text, 64, "TIME")),
        Base.DATE: lambda text: parse_integer(text, 32, "DATE"),
        Base.TIMESTAMP: lambda text: parse_integer(text, 64, "TIMESTAMP"),
    }
    return parsers[type_.base]


def _split(text: str, delimiter: str) -> list[str]:
    """The first line that is not empty."""
    if '"' not in text and "\n" not in text and "\r" not in text:
        return text.split(delimiter) if text else []
    try:
        for fields in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True):
            if fields:
                return fields
    except csv.Error as error:
        raise DoesNotFit(f"not a line of CSV: {error}") from None
    return []


def reader(columns: Columns, delimiter: str) -> Read:
    parsers = [_parser(type_) for _, type_ in columns]

    def read(data: bytes) -> tuple[Any, ...]:
        fields = _split(data.decode("utf-8", "replace"), delimiter)
        if not fields:
            raise DoesNotFit("No fields in record")
        if len(fields) != len(parsers):
            raise DoesNotFit(
                f"Column count mismatch on deserialization. expected: {len(parsers)}, got: {len(fields)}"
            )
        return tuple(parse(text) if text else None for parse, text in zip(parsers, fields, strict=True))

    return read


def _printer(type_: SqlType) -> Callable[[Any], str]:
    return {
        Base.BOOLEAN: lambda value: "true" if value else "false",
        Base.DOUBLE: double_text,
        Base.BYTES: base64_text,
        Base.DECIMAL: plain_text,
    }.get(type_.base, str)


def _alphanumeric(character: str) -> bool:
    return character.isascii() and character.isalnum()


def _needs_quotes(text: str, first: bool, special: frozenset[str]) -> bool:
    if not text:
        return first
    if (first and not _alphanumeric(text[0])) or text[0] <= "#":
        return True
    return not special.isdisjoint(text) or text[-1] <= " "


def writer(columns: Columns, delimiter: str) -> Write:
    printers = [_printer(type_) for _, type_ in columns]
    special = frozenset({delimiter, '"', "\r", "\n"})

    def write(row: tuple[Any, ...]) -> bytes:
        fields = []
        for index, (printed, value) in enumerate(zip(printers, row, strict=True)):
            if value is None:
                fields.append("")
                continue
            text = printed(value)
            if _needs_quotes(text, index == 0, special):
                text = '"' + text.replace('"', '""') + '"'
            fields.append(text)
        return delimiter.join(fields).encode()

    return write
