"""Converters without schemas of their own: text, bytes, numbers, and headers by what they look like."""

from __future__ import annotations

import codecs
import struct
from collections.abc import Sequence
from typing import Any

from millstream.connect.config.config_def import ConfigDef, ConfigKey
from millstream.connect.converters.base import Converted, Converter, Variables, Writing
from millstream.connect.data.java_names import class_name, to_string
from millstream.connect.data.record import SchemaAndValue
from millstream.connect.data.schema import OPTIONAL, REQUIRED, Schema, Type
from millstream.connect.data.struct import fits
from millstream.connect.data.value_parser import parse_string
from millstream.connect.data.values import convert_to_string
from millstream.connect.errors import DataError
from millstream.settings.config_key import Importance
from millstream.settings.values import Type as SettingType

_OPTIONAL_STRING = OPTIONAL[Type.STRING]


class StringConverter(Converter):
    config = ConfigDef(
        [
            ConfigKey(
                "converter.encoding",
                SettingType.STRING,
                "UTF-8",
                Importance.HIGH,
                "The encoding of the text, by the names that Java and Python share.",
                width="MEDIUM",
                display_name="Encoding",
            )
        ]
    )

    def __init__(self, settings: Any, *, is_key: bool = False) -> None:
        super().__init__(settings, is_key=is_key)
        encoding = self.settings["converter.encoding"].upper()
        self._utf8 = encoding in ("UTF-8", "UTF8")
        # Java's has the mark of its order, and is big-endian without one; Python's is the machine's.
        self._utf16 = encoding in ("UTF-16", "UTF16", "UTF_16")

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None
        if type(value) is str and self._utf8:
            return value.encode("utf-8", "replace")
        try:
            text = to_string(value, schema)
            if self._utf16:
                return codecs.BOM_UTF16_BE + text.encode("utf-16-be", "replace") if text else b""
            return text.encode(self.settings["converter.encoding"], "replace")
        except LookupError:
            raise DataError("Failed to serialize to a string: ") from None

    def writing(self, schema: Schema | None, variables: Variables) -> Writing | None:
        if not self._utf8 or variables.fields is not None:
            return None
        name = variables.whole
        text = f"(None if {name} is None else {name}.encode('utf-8', 'replace'))"
        return Writing((f"{name} is None or type({name}) is str",), text, {})

    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:
        try:
            text = None if data is None else data.decode(self._encoding_of(data), "replace")
        except LookupError:
            raise DataError("Failed to deserialize string: ") from None
        return SchemaAndValue(_OPTIONAL_STRING, text)

    def _encoding_of(self, data: bytes) -> str:
        if self._utf16 and not data.startswith((codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE)):
            return "utf-16-be"
        return str(self.settings["converter.encoding"])

    def to_connect_many(self, topic: str, many: Sequence[bytes | None]) -> list[Converted]:
        if not self._utf8:
            return super().to_connect_many(topic, many)
        return [
            (_OPTIONAL_STRING, None if data is None else data.decode("utf-8", "replace")) for data in many
        ]


class ByteArrayConverter(Converter):
    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if schema is not None and schema.type is not Type.BYTES:
            raise DataError(f"Invalid schema type for ByteArrayConverter: {schema.type}")
        if value is not None and not isinstance(value, bytes):
            raise DataError(
                f"ByteArrayConverter is not compatible with objects of type class {class_name(value, schema)}"
            )
        return value

    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:
        return SchemaAndValue(OPTIONAL[Type.BYTES], data)


class BooleanConverter(Converter):
    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if schema is not None and schema.type is not Type.BOOLEAN:
            raise DataError(f"Invalid schema type for BooleanConverter: {schema.type}")
        if value is None:
            return None
        if not isinstance(value, bool):
            raise DataError(
                f"BooleanConverter is not compatible with objects of type class {class_name(value, schema)}"
            )
        return b"\x01" if value else b"\x00"

    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:
        if data is not None and data not in (b"\x00", b"\x01"):
            raise DataError("Failed to deserialize boolean: ")
        return SchemaAndValue(OPTIONAL[Type.BOOLEAN], None if data is None else data == b"\x01")


class NumberConverter(Converter):
    """A number in a fixed count of bytes, as Kafka's serializers write it."""

    kind: Type
    type_name: str
    layout: struct.Struct

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None
        own = REQUIRED[self.kind]
        known = schema is None or schema.type is self.kind
        if not fits(own, value) or not known:
            raise DataError(
                f"Failed to serialize to {self.type_name} (was class {class_name(value, schema)}): "
            )
        return self.layout.pack(value)

    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:
        if data is not None and len(data) != self.layout.size:
            raise DataError(f"Failed to deserialize {self.type_name}: ")
        return SchemaAndValue(OPTIONAL[self.kind], None if data is None else self.layout.unpack(data)[0])


class ShortConverter(NumberConverter):
    kind, type_name, layout = Type.INT16, "short", struct.Struct(">h")


class IntegerConverter(NumberConverter):
    kind, type_name, layout = Type.INT32, "integer", struct.Struct(">i")


class LongConverter(NumberConverter):
    kind, type_name, layout = Type.INT64, "long", struct.Struct(">q")


class FloatConverter(NumberConverter):
    kind, type_name, layout = Type.FLOAT32, "float", struct.Struct(">f")


class DoubleConverter(NumberConverter):
    kind, type_name, layout = Type.FLOAT64, "double", struct.Struct(">d")


class SimpleHeaderConverter(Converter):
    """The default for headers: text out, and in by what the text looks like."""

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        text = convert_to_string(value, schema)
        return None if text is None else text.encode()

    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:
        return parse_string(None if data is None else data.decode("utf-8", "replace"))
