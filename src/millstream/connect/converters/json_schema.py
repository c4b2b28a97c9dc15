"""JsonSchemaConverter: JSON with its schema in a Schema Registry, as Confluent's converter has it.

Each schema is compiled into functions: one writes JSON text directly (numbers as Java prints them), one takes
parsed JSON apart.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from json.encoder import encode_basestring as quoted
from typing import Any

from millstream.connect.config.config_def import CaseInsensitiveValidString, ConfigDef, ConfigKey
from millstream.connect.converters.json import JsonConverter
from millstream.connect.converters.json_schemas import (
    FromJsonSchema,
    JsonOptions,
    ToJsonSchema,
    has_text_keys,
    is_union,
)
from millstream.connect.converters.json_values import logical_value
from millstream.connect.converters.registry import COMMON, RegistryConverter, ValueReader, flag
from millstream.connect.data import logical
from millstream.connect.data.java_names import class_name, number_text
from millstream.connect.data.numbers import to_float, to_integer
from millstream.connect.data.schema import INTEGERS, Schema, Type
from millstream.connect.data.struct import Struct, fits
from millstream.connect.errors import DataError
from millstream.schemas.json_text import dumps, loads
from millstream.serdes.client import RegisteredSchema
from millstream.settings.config_key import Importance
from millstream.settings.values import Type as SettingType

ToText = Callable[[Any], str]
ToValue = Callable[[Any], Any]


class JsonSchemaConverter(RegistryConverter):
    language = "JSON"
    write_error = "Converting Kafka Connect data to byte[] failed due to serialization error of topic {}:"
    read_error = "Converting byte[] to Kafka Connect data failed due to serialization error of topic {}:"
    config = COMMON + ConfigDef(
        [
            flag("object.additional.properties", True, "Whether objects may have other properties too."),
            flag(
                "use.optional.for.nonrequired",
                False,
                "Whether properties that are not required are optional fields.",
                Importance.MEDIUM,
            ),
            flag("flatten.singleton.unions", True, "Whether a `oneOf` with one schema is that schema."),
            ConfigKey(
                "decimal.format",
                SettingType.STRING,
                "BASE64",
                Importance.LOW,
                "How decimals are written: BASE64 or NUMERIC.",
                CaseInsensitiveValidString(("BASE64", "NUMERIC")),
            ),
        ]
    )

    def __init__(self, settings: Any, *, is_key: bool = False) -> None:
        super().__init__(settings, is_key=is_key)
        self._options = JsonOptions(
            additional_properties=self.settings["object.additional.properties"],
            optional_for_nonrequired=self.settings["use.optional.for.nonrequired"],
            numeric_decimals=self.settings["decimal.format"].upper() == "NUMERIC",
            flatten_singletons=self.settings["flatten.singleton.unions"],
        )
        self._plain = JsonConverter({"schemas.enable": "false"})

    def _schema_text(self, schema: Schema | None) -> tuple[str, str | None]:
        if schema is None:
            return "{}", None
        document = ToJsonSchema(self._options, self._default_to_json).document(schema)
        return dumps(document), schema.name

    def _default_to_json(self, schema: Schema, value: Any) -> Any:
        return loads(self._writer_of(schema)(value))

    def _encoder(self, schema: Schema | None, target: RegisteredSchema) -> Callable[[Any], bytes]:
        if schema is None:
            return lambda value: self._plain.from_connect("", None, value) or b"null"
        write = self._or_null(schema)

        def encode(value: Any) -> bytes:
            text = write(value)
            if text is None:
                raise DataError("Found null value for non-optional schema")
            return text.encode("utf-8", "surrogatepass")

        return encode

    def _decoder(self, registered: RegisteredSchema, version: int | None) -> ValueReader:
        document = loads(registered.text)
        if document in ({}, True):
            return ValueReader(
                lambda _body: (None, lambda body: self._plain.to_connect("", bytes(body)).value)
            )
        schema = FromJsonSchema(self._options, document, registered.resolved, _default_from_json).schema(
            version
        )
        convert = _or_default(schema)
        return ValueReader(
            lambda _body: (schema, lambda body: convert(json.loads(bytes(body), parse_float=Decimal)))
        )

    # --- to JSON --------------------------------------------------------------------------------------------

    def _or_null(self, schema: Schema) -> Callable[[Any], str | None]:
        """None where a required value is missing: its property is left out."""
        write = self._writer_of(schema)
        if schema.default is not None and self._with_default:
            instead: str | None = write(schema.default)
        else:
            instead = "null" if schema.optional else None
        return lambda value: instead if value is None else write(value)

    def _writer_of(self, schema: Schema) -> ToText:
        if schema.name in logical.LOGICAL_NAMES:
            return self._logical_writer(schema)
        kind = schema.type
        if kind is Type.STRUCT:
            return self._union_writer(schema) if is_union(schema) else self._struct_writer(schema)
        if kind is Type.ARRAY:
            assert schema.value_schema is not None
            element = self._or_null(schema.value_schema)
            return lambda values: "[" + ",".join(element(one) or "null" for one in values) + "]"
        if kind is Type.MAP:
            return self._map_writer(schema)
        if kind is Type.STRING:
            return lambda value: quoted(value) if isinstance(value, str) else _wrong(schema, value)
        return _scalar_writer(schema)

    def _struct_writer(self, schema: Schema) -> ToText:
        fields = [(one.index, f"{quoted(one.name)}:", self._or_null(one.schema)) for one in schema.fields]

        def write(struct: Struct) -> str:
            if struct.schema is not schema and struct.schema != schema:
                raise DataError("Mismatching schema.")
            values = struct.values
            texts = [(name, text(values[index])) for index, name, text in fields]
            return "{" + ",".join([name + text for name, text in texts if text is not None]) + "}"

        return write

    def _union_writer(self, schema: Schema) -> ToText:
        writers = [(one.index, self._writer_of(one.schema)) for one in schema.fields]

        def write(struct: Struct) -> str:
            for index, text in writers:
                if struct.values[index] is not None:
                    return text(struct.values[index])
            return "null"

        return write

    def _map_writer(self, schema: Schema) -> ToText:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        value = self._or_null(schema.value_schema)
        if has_text_keys(schema):
            return lambda entries: (
                "{" + ",".join(f"{quoted(key)}:{value(one) or 'null'}" for key, one in entries.items()) + "}"
            )
        key = self._or_null(schema.key_schema)
        return lambda entries: (
            "["
            + ",".join(
                f'{{"key":{key(one) or "null"},"value":{value(other) or "null"}}}'
                for one, other in entries.items()
            )
            + "]"
        )

    def _logical_writer(self, schema: Schema) -> ToText:
        if schema.name == logical.DECIMAL:
            numeric = self._options.numeric_decimals

            def decimal(value: Any) -> str:
                if not isinstance(value, Decimal):
                    raise DataError(
                        f"Invalid type for Decimal, expected BigDecimal but was class {class_name(value)}"
                    )
                if numeric:
                    return number_text(value)
                return f'"{base64.b64encode(logical.decimal_to_bytes(schema, value)).decode()}"'

            return decimal
        convert = {
            logical.DATE: logical.date_to_days,
            logical.TIME: logical.time_to_millis,
            logical.TIMESTAMP: logical.to_millis,
        }[schema.name or ""]

        def moment(value: Any) -> str:
            if not isinstance(value, datetime):
                short = (schema.name or "").rpartition(".")[2]
                raise DataError(f"Invalid type for {short}, expected Date but was class {class_name(value)}")
            return str(convert(value))

        return moment


def _wrong(schema: Schema, value: Any) -> str:
    raise DataError(f"Invalid type for {schema.type}: class {class_name(value)}")


def _scalar_writer(schema: Schema) -> ToText:
    kind = schema.type

    def write(value: Any) -> str:
        if not fits(schema, value):
            return _wrong(schema, value)
        if kind is Type.BOOLEAN:
            return "true" if value else "false"
        if kind is Type.BYTES:
            return f'"{base64.b64encode(value).decode()}"'
        text = number_text(value, schema)
        return f'"{text}"' if isinstance(value, float) and not math.isfinite(value) else text

    return write


# --- from JSON ----------------------------------------------------------------------------------------------


def _default_from_json(schema: Schema, value: Any) -> Any:
    return _reader_of(schema)(json.loads(json.dumps(value), parse_float=Decimal))


def _or_default(schema: Schema) -> ToValue:
    read = _reader_of(schema)
    default, optional = schema.default, schema.optional

    def value_of(node: Any) -> Any:
        if node is not None:
            return read(node)
        if default is None and not optional:
            raise DataError(f"Invalid null value for required {schema.type} field")
        return default

    return value_of


def _reader_of(schema: Schema) -> ToValue:
    if schema.name in logical.LOGICAL_NAMES:
        return lambda node: logical_value(schema, node)
    kind = schema.type
    if kind is Type.STRUCT:
        return _union_reader(schema) if is_union(schema) else _struct_reader(schema)
    if kind is Type.ARRAY:
        assert schema.value_schema is not None
        element = _or_default(schema.value_schema)
        return lambda node: (
            [element(one) for one in node] if isinstance(node, list) else _refuse(schema, node)
        )
    if kind is Type.MAP:
        return _map_reader(schema)
    return _scalar_reader(schema)


def _refuse(schema: Schema, node: Any) -> Any:
    raise DataError(f"Invalid type for {schema.type}: found {type(node).__name__} in the JSON")


def _struct_reader(schema: Schema) -> ToValue:
    fields = [
        (one.name, _reader_of(one.schema), one.schema.default, one.schema.optional, one.schema.type)
        for one in schema.fields
    ]

    def read(node: Any) -> Struct:
        if not isinstance(node, dict):
            return _refuse(schema, node)  # type: ignore[no-any-return]
        values = []
        for name, read_one, default, optional, kind in fields:
            one = node.get(name)
            if one is not None:
                values.append(read_one(one))
            elif default is not None or optional or name not in node:
                values.append(default)
            else:
                raise DataError(f"Invalid null value for required {kind} field")
        return Struct(schema, values)

    return read


def _map_reader(schema: Schema) -> ToValue:
    assert schema.key_schema is not None
    assert schema.value_schema is not None
    value = _or_default(schema.value_schema)
    if has_text_keys(schema):
        return lambda node: (
            {key: value(one) for key, one in node.items()}
            if isinstance(node, dict)
            else _refuse(schema, node)
        )
    key = _or_default(schema.key_schema)

    def read(node: Any) -> Any:
        if not isinstance(node, list) or not all(isinstance(one, dict) for one in node):
            return _refuse(schema, node)
        return {key(one.get("key")): value(one.get("value")) for one in node}

    return read


def _union_reader(schema: Schema) -> ToValue:
    branches = [(one.index, one.schema, _reader_of(one.schema)) for one in schema.fields]
    count = len(branches)

    def read(node: Any) -> Struct:
        best: tuple[int, int, ToValue] | None = None
        for index, branch, read_one in branches:
            score = _matching(branch, node)
            if score < 0:  # a plain value of this type
                best = (0, index, read_one)
                break
            if score > (best[0] if best else 0):
                best = (score, index, read_one)
        if best is None:
            raise DataError("Did not find matching oneof field for data")
        values: list[Any] = [None] * count
        values[best[1]] = best[2](node)
        return Struct(schema, values)

    return read


def _matching(schema: Schema, node: Any) -> int:
    """-1 for a plain value of the schema's type; else how many fields of a struct are there."""
    kind = schema.type
    if kind is Type.STRUCT:
        if not isinstance(node, dict):
            return 0
        shared = [one for one in schema.fields if one.name in node]
        return len(shared) + sum(max(0, _matching(one.schema, node[one.name])) for one in shared)
    if kind is Type.BOOLEAN:
        return -1 if isinstance(node, bool) else 0
    if kind in INTEGERS:
        return -1 if type(node) is int else 0
    expected: dict[Type, Any] = {
        Type.STRING: str,
        Type.BYTES: str,
        Type.ARRAY: list,
        Type.MAP: dict | list,
        Type.FLOAT32: int | Decimal,
        Type.FLOAT64: int | Decimal,
    }
    return -1 if isinstance(node, expected[kind]) and not isinstance(node, bool) else 0


def _scalar_reader(schema: Schema) -> ToValue:
    kind = schema.type
    if kind is Type.STRING:
        return lambda node: node if isinstance(node, str) else _as_text(node)
    if kind is Type.BOOLEAN:
        return lambda node: node is True
    if kind is Type.BYTES:
        return _bytes
    if kind in INTEGERS:
        return lambda node: to_integer(node, kind) if _is_number(node) else _refuse(schema, node)
    return lambda node: to_float(node, kind) if _is_number(node) else _refuse(schema, node)


def _as_text(node: Any) -> str | None:
    """An enum may have numbers; its symbols are texts."""
    return json.dumps(node) if isinstance(node, bool | int) else str(node) if _is_number(node) else None


def _is_number(node: Any) -> bool:
    return isinstance(node, int | Decimal) and not isinstance(node, bool)


def _bytes(node: Any) -> bytes:
    try:
        return base64.b64decode(node, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise DataError("Invalid bytes field") from None
