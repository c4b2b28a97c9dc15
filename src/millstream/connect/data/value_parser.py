"""What a text is: `Values.parseString`, by which headers without a schema get one.

`1` is an INT8, `1.5` a FLOAT32, `[1,2]` an array, `{"a":1}` a map, `2020-01-01` a Date; what is none of these
is a string. The text is cut into tokens at `: , { } [ ] "` where no backslash stands before them, and blank
tokens are passed over. What does not hold together as an array or a map is a string as a whole.
"""

from __future__ import annotations

import math
import re
from typing import Any

from millstream.connect.data.logical import (
    DATE_SCHEMA,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    decimal_scale,
    decimal_schema,
)
from millstream.connect.data.numbers import parse_decimal, to_float
from millstream.connect.data.record import SchemaAndValue
from millstream.connect.data.schema import INTEGERS, REQUIRED, Schema, Type, array_schema, map_schema
from millstream.connect.data.values import ISO_DATE, ISO_TIME, ISO_TIMESTAMP, convert_to
from millstream.connect.errors import DataError
from millstream.serdes.java_text import to_float32

_STRING = REQUIRED[Type.STRING]
_NOTHING = SchemaAndValue(None, None)
_TOKEN = re.compile(r'[:,{}\[\]"]|(?:\\.|[^:,{}\[\]"\\]|\\$)+', re.DOTALL)
_WIDER = (Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64)


def parse_string(text: str | None) -> SchemaAndValue:
    if text is None:
        return _NOTHING
    if not text:
        return SchemaAndValue(_STRING, text)
    return _Parser(text).parse(embedded=False) or _NOTHING


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _TOKEN.findall(text)
        self._at = 0

    # --- tokens ---------------------------------------------------------------------------------------------

    def _more(self) -> bool:
        return self._at < len(self._tokens)

    def _next(self) -> str:
        self._at += 1
        return str(self._tokens[self._at - 1])

    def _take(self, expected: str) -> bool:
        """Whether this is the next token that is not blank, which is taken then."""
        if not self._more():
            return False
        while self._at + 1 < len(self._tokens) and not self._tokens[self._at].strip():
            self._at += 1
        if self._tokens[self._at].strip() != expected:
            return False
        self._at += 1
        return True

    def _take_literal(self, expected: str, embedded: bool) -> bool:
        start = self._at
        if self._take(expected) and (embedded or not self._more()):
            return True
        self._at = start
        return False

    # --- values ---------------------------------------------------------------------------------------------

    def parse(self, *, embedded: bool) -> SchemaAndValue | None:
        """None for null."""
        if not self._more():
            return None
        if embedded and self._take('"'):
            return self._quoted()
        if self._take_literal("null", embedded):
            return None
        for literal, value in (("true", True), ("false", False)):
            if self._take_literal(literal, embedded):
                return SchemaAndValue(REQUIRED[Type.BOOLEAN], value)
        start = self._at
        try:
            if self._take("["):
                return self._array()
            if self._take("{"):
                return self._map()
        except DataError:
            self._at = start
        token = self._next()
        if not token.strip():
            return SchemaAndValue(_STRING, token)
        return self._scalar(token.strip(), embedded)

    def _scalar(self, token: str, embedded: bool) -> SchemaAndValue:
        if token[0].isdigit():
            moment = self._moment(token)
            if moment is not None:
                return moment
        if token[0].isdigit() or token[0] in "+-":
            try:
                return _number(token)
            except ValueError:
                pass
        if embedded:
            raise DataError("Failed to parse embedded value")
        return SchemaAndValue(_STRING, self._text)

    def _moment(self, token: str) -> SchemaAndValue | None:
        """The colons of a time cut it into five tokens."""
        if self._at + 4 <= len(self._tokens):
            whole = token + "".join(self._tokens[self._at : self._at + 4])
            moment = _moment(whole)
            if moment is not None:
                self._at += 4
                return moment
        return _moment(token)

    def _quoted(self) -> SchemaAndValue:
        text = ""
        while self._more():
            if self._take('"'):
                break
            text += self._next()
        return _moment(text) or SchemaAndValue(_STRING, text)

    def _array(self) -> SchemaAndValue:
        values: list[Any] = []
        common = _CommonSchema()
        while self._more():
            if self._take("]"):
                element = common.schema
                if element is not None:
                    values = [convert_to(element, value) for value in values]
                return SchemaAndValue(array_schema(element), values)
            if self._take(","):
                raise DataError(f"Unable to parse an empty array element: {self._text}")
            element_value = self.parse(embedded=True)
            common.add(element_value)
            values.append(element_value.value if element_value is not None else None)
            start = self._at
            if self._take("]"):
                self._at = start
            elif not self._take(","):
                raise DataError("Array elements missing ',' delimiter")
        raise DataError(f"Array is missing terminating ']': {self._text}")

    def _map(self) -> SchemaAndValue:
        entries: dict[Any, Any] = {}
        keys, values = _CommonSchema(), _CommonSchema()
        while self._more():
            if self._take("}"):
                return _map_of(keys.schema, values.schema, entries)
            if self._take(","):
                raise DataError(f"Unable to parse a map entry with no key or value: {self._text}")
            key = self.parse(embedded=True)
            if key is None or key.value is None:
                raise DataError(f"Map entry may not have a null key: {self._text}")
            if not self._take(":"):
                raise DataError(f"Map entry is missing ':' in {self._text}")
            value = self.parse(embedded=True)
            if isinstance(key.value, list | dict):
                raise DataError(f"A map's key is a list or a map: {self._text}")
            entries[key.value] = value.value if value is not None else None
            self._take(",")
            keys.add(key)
            values.add(value)
        raise DataError(f"Map is missing terminating '}}': {self._text}")


def _map_of(key: Schema | None, value: Schema | None, entries: dict[Any, Any]) -> SchemaAndValue:
    if key is None:
        return SchemaAndValue(map_schema(None, None), entries)
    converted = {
        convert_to(key, one): entry if value is None else convert_to(value, entry)
        for one, entry in entries.items()
    }
    return SchemaAndValue(map_schema(key, value), converted)


class _CommonSchema:
    """The schema that all elements have, or the wider one of numbers; None once they do not go together."""

    def __init__(self) -> None:
        self.schema: Schema | None = None
        self._mixed = False

    def add(self, element: SchemaAndValue | None) -> None:
        if element is None or element.schema is None or self._mixed:
            return
        if self.schema is None:
            self.schema = element.schema
        else:
            self.schema = _merged(self.schema, element.schema)
            self._mixed = self.schema is None


def _merged(first: Schema, second: Schema) -> Schema | None:
    if first.type is second.type:
        if first.optional == second.optional:
            return first if first.optional else second
        return first if first == second else None
    if first.type not in _WIDER or second.type not in _WIDER:
        return None
    return max(first, second, key=lambda schema: _WIDER.index(schema.type))


def _number(token: str) -> SchemaAndValue:
    """The narrowest type that holds it. ValueError where it is no number."""
    number = parse_decimal(token)
    whole = number == number.to_integral_value()
    if whole and (number == 0 or abs(number) >= 1):
        integer = int(number) if abs(number) <= 1 << 64 else 1 << 64
        for kind, bits in INTEGERS.items():
            if -(1 << (bits - 1)) <= integer < 1 << (bits - 1):
                return SchemaAndValue(REQUIRED[kind], integer)
    double = to_float(number, Type.FLOAT64)
    if decimal_scale(number) != 0 and math.isfinite(to_float32(double)):
        return SchemaAndValue(REQUIRED[Type.FLOAT32], to_float32(double))
    if decimal_scale(number) != 0 and math.isfinite(double):
        return SchemaAndValue(REQUIRED[Type.FLOAT64], double)
    return SchemaAndValue(decimal_schema(decimal_scale(number)), number)


_MOMENTS = {
    len("HH:mm:ss.SSSZ"): (TIME_SCHEMA, ISO_TIME),
    len("yyyy-MM-ddTHH:mm:ss.SSSZ"): (TIMESTAMP_SCHEMA, ISO_TIMESTAMP),
    len("yyyy-MM-dd"): (DATE_SCHEMA, ISO_DATE),
}


def _moment(token: str) -> SchemaAndValue | None:
    token = token.replace("\\:", ":")
    found = _MOMENTS.get(len(token))
    if found is None:
        return None
    schema, pattern = found
    try:
        return SchemaAndValue(schema, pattern.parse(token))
    except (ValueError, DataError):
        return None
