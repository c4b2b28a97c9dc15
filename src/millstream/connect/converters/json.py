"""JsonConverter: JSON with its schema in every message, or without one.

With `schemas.enable` a message is `{"schema": ..., "payload": ...}`. Output is byte for byte Kafka's: the
order of keys, numbers as Java prints them, bytes and decimals in base64.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from millstream.connect.config.config_def import CaseInsensitiveValidString, ConfigDef, ConfigKey
from millstream.connect.converters.base import Converted, Converter, Variables, Writing
from millstream.connect.converters.json_fast_path import (
    PayloadReader,
    Texts,
    payload_writer,
    payload_writing,
    prefix_of,
)
from millstream.connect.converters.json_values import (
    logical_value,
    node_type,
    parse_json,
    plain_value,
    primitive_value,
    quoted,
)
from millstream.connect.data import logical
from millstream.connect.data.java_names import class_name, number_text
from millstream.connect.data.logical import DATE, DECIMAL, TIME
from millstream.connect.data.record import SchemaAndValue
from millstream.connect.data.schema import Schema, Type
from millstream.connect.data.struct import Struct, fits, type_of, validate_value
from millstream.connect.errors import DataError, SchemaBuilderError
from millstream.settings.config_key import Importance
from millstream.settings.values import Type as SettingType

_TYPE_NAMES = {kind: kind.value for kind in Type} | {Type.FLOAT32: "float", Type.FLOAT64: "double"}
_TYPES = {name: kind for kind, name in _TYPE_NAMES.items()}
_ABSENT: Any = object()


class JsonConverter(Converter):
    config = ConfigDef(
        [
            ConfigKey(
                "schemas.enable",
                SettingType.BOOLEAN,
                True,
                Importance.HIGH,
                "Whether every key and value has its schema with it.",
                group="Schemas",
                order=0,
                width="MEDIUM",
                display_name="Enable Schemas",
            ),
            ConfigKey(
                "schemas.cache.size",
                SettingType.INT,
                1000,
                Importance.HIGH,
                "How many schemas are remembered.",
                group="Schemas",
                order=1,
                width="MEDIUM",
                display_name="Schema Cache Size",
            ),
            ConfigKey(
                "schema.content",
                SettingType.STRING,
                None,
                Importance.HIGH,
                "The schema of all messages that a sink reads, which then have none with them.",
                group="Schemas",
                order=2,
                width="MEDIUM",
                display_name="Schema Content",
            ),
            ConfigKey(
                "decimal.format",
                SettingType.STRING,
                "BASE64",
                Importance.LOW,
                "How decimals are written: BASE64 or NUMERIC.",
                CaseInsensitiveValidString(("NUMERIC", "BASE64")),
                group="Serialization",
                order=0,
                width="MEDIUM",
                display_name="Decimal Format",
            ),
            ConfigKey(
                "replace.null.with.default",
                SettingType.BOOLEAN,
                True,
                Importance.LOW,
                "Whether a field that is null counts as its default, where it has one.",
                group="Serialization",
                order=1,
                width="MEDIUM",
                display_name="Replace null with default",
            ),
        ]
    )

    def __init__(self, settings: Any, *, is_key: bool = False) -> None:
        super().__init__(settings, is_key=is_key)
        self._schemas_enabled = self.settings["schemas.enable"]
        self._with_default = self.settings["replace.null.with.default"]
        self._numeric = self.settings["decimal.format"].upper() == "NUMERIC"
        self._texts: dict[Schema, str] = {}
        self._writers: dict[Schema, Callable[[Any], str | None] | None] = {}
        self._last_schema: Schema | None = None
        self._last_writer: Callable[[Any], str | None] | None = None
        self._schemas: dict[str, Schema] = {}
        self._payloads: PayloadReader | None = None
        content = self.settings["schema.content"]
        self._schema = None if not content else self.schema_from_json(parse_json(content.encode()))

    # --- to JSON --------------------------------------------------------------------------------------------

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if schema is None and value is None:
            return None
        if schema is not self._last_schema:
            self._last_schema = schema
            self._last_writer = None if schema is None else self._writer(schema)
        # A struct by a function of its own; None where `_text` has to look.
        write = self._last_writer
        payload = None if write is None else write(value)
        if payload is None:
            payload = self._text(schema, value)
        if not self._schemas_enabled:
            return payload.encode("utf-8", "surrogatepass")
        envelope = f'{{"schema":{self._schema_text(schema)},"payload":{payload}}}'
        return envelope.encode("utf-8", "surrogatepass")

    def writing(self, schema: Schema | None, variables: Variables) -> Writing | None:
        if schema is None:
            return Writing((f"{variables.whole} is None",), "None", {})
        around = ("", "")
        if self._schemas_enabled:
            around = (f'{{"schema":{self._schema_text(schema)},"payload":', "}")
        return payload_writing(schema, variables, self._all_texts(), around, with_default=self._with_default)

    def _writer(self, schema: Schema) -> Callable[[Any], str | None] | None:
        try:
            return self._writers[schema]
        except KeyError:
            if len(self._writers) >= self.settings["schemas.cache.size"]:
                self._writers.clear()
            write = payload_writer(schema, self._all_texts(), with_default=self._with_default)
            self._writers[schema] = write
            return write

    def _all_texts(self) -> Texts:
        return Texts(quoted, number_text, self._text)

    def _text(self, schema: Schema | None, value: Any) -> str:
        if value is None:
            if schema is None:
                return "null"
            if schema.default is not None and self._with_default:
                return self._text(schema, schema.default)
            if schema.optional:
                return "null"
            raise DataError(
                "Conversion error: null value for field that is required and has no default value"
            )
        if schema is not None and schema.name in logical.LOGICAL_NAMES:
            return self._logical_text(schema, value)
        kind = schema.type if schema is not None else type_of(value)
        if kind is None:
            raise DataError(f"Java class class {class_name(value)} does not have corresponding schema type.")
        if schema is not None and not fits(schema, value):
            raise DataError(f"Invalid type for {schema.type}: class {class_name(value)}")
        if kind is Type.BOOLEAN:
            return "true" if value else "false"
        if kind is Type.STRING:
            return quoted(value)
        if kind is Type.BYTES:
            return f'"{base64.b64encode(value).decode()}"'
        if kind is Type.ARRAY:
            element = schema.value_schema if schema is not None else None
            return "[" + ",".join(self._text(element, one) for one in value) + "]"
        if kind is Type.MAP:
            return self._map_text(schema, value)
        if kind is Type.STRUCT:
            return self._struct_text(schema, value)
        text = number_text(value, schema)
        return f'"{text}"' if isinstance(value, float) and not math.isfinite(value) else text

    def _map_text(self, schema: Schema | None, value: dict[Any, Any]) -> str:
        key_schema, value_schema = (
            (schema.key_schema, schema.value_schema) if schema is not None else (None, None)
        )
        if schema is None:
            named = all(isinstance(key, str) for key in value)
        else:
            named = key_schema is not None and key_schema.type is Type.STRING
        if named:
            entries = (f"{quoted(key or '')}:{self._text(value_schema, one)}" for key, one in value.items())
            return "{" + ",".join(entries) + "}"
        pairs = (
            f"[{self._text(key_schema, key)},{self._text(value_schema, one)}]" for key, one in value.items()
        )
        return "[" + ",".join(pairs) + "]"

    def _struct_text(self, schema: Schema | None, value: Struct) -> str:
        if schema is None or value.schema != schema:
            raise DataError("Mismatching schema.")
        entries = (
            f"{quoted(field.name)}:{self._text(field.schema, value.values[field.index])}"
            for field in schema.fields
        )
        return "{" + ",".join(entries) + "}"

    def _logical_text(self, schema: Schema, value: Any) -> str:
        name = schema.name
        if name == DECIMAL:
            if not isinstance(value, Decimal):
                raise DataError(
                    f"Invalid type for Decimal, expected BigDecimal but was class {class_name(value)}"
                )
            if self._numeric:
                return number_text(value)
            return f'"{base64.b64encode(logical.decimal_to_bytes(schema, value)).decode()}"'
        if not isinstance(value, datetime):
            short = str(name).rpartition(".")[2]
            raise DataError(f"Invalid type for {short}, expected Date but was class {class_name(value)}")
        if name == DATE:
            return str(logical.date_to_days(value))
        return str(logical.time_to_millis(value) if name == TIME else logical.to_millis(value))

    def _schema_text(self, schema: Schema | None) -> str:
        if schema is None:
            return "null"
        text = self._texts.get(schema)
        if text is None:
            if len(self._texts) >= self.settings["schemas.cache.size"]:
                self._texts.clear()
            text = self._texts[schema] = "{" + ",".join(self._schema_entries(schema)) + "}"
        return text

    def _schema_entries(self, schema: Schema) -> list[str]:
        """In Kafka's order, which tools that compare bytes rely on."""
        entries = [f'"type":"{_TYPE_NAMES[schema.type]}"']
        if schema.type is Type.ARRAY:
            entries.append(f'"items":{self._schema_text(schema.value_schema)}')
        elif schema.type is Type.MAP:
            entries.append(f'"keys":{self._schema_text(schema.key_schema)}')
            entries.append(f'"values":{self._schema_text(schema.value_schema)}')
        elif schema.type is Type.STRUCT:
            fields = (
                "{" + ",".join([*self._schema_entries(field.schema), f'"field":{quoted(field.name)}']) + "}"
                for field in schema.fields
            )
            entries.append('"fields":[' + ",".join(fields) + "]")
        entries.append(f'"optional":{"true" if schema.optional else "false"}')
        if schema.name is not None:
            entries.append(f'"name":{quoted(schema.name)}')
        if schema.version is not None:
            entries.append(f'"version":{schema.version}')
        if schema.doc is not None:
            entries.append(f'"doc":{quoted(schema.doc)}')
        if schema.parameters is not None:
            given = (f"{quoted(name)}:{quoted(value)}" for name, value in schema.parameters.items())
            entries.append('"parameters":{' + ",".join(given) + "}")
        if schema.default is not None:
            entries.append(f'"default":{self._text(schema, schema.default)}')
        return entries

    # --- from JSON ------------------------------------------------------------------------------------------

    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:
        if data is None:
            return SchemaAndValue(None, None)
        known = self._payloads
        if known is not None and data.startswith(known.prefix):
            value = known.read(data)
            if value is not None:
                return SchemaAndValue(known.schema, value)
        document = parse_json(data)
        if not self._schemas_enabled:
            return SchemaAndValue(None, self._value(None, document))
        if self._schema is not None:
            return SchemaAndValue(self._schema, self._value(self._schema, document))
        if not isinstance(document, dict) or document.keys() != {"schema", "payload"}:
            raise DataError(
                'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not '
                "contain additional fields. If you are trying to deserialize plain JSON data, set "
                "schemas.enable=false in your converter configuration."
            )
        schema = self.schema_from_json(document["schema"])
        value = self._value(schema, document["payload"])
        if schema is not None and (known is None or not data.startswith(known.prefix)):
            self._remember(data, schema)
        return SchemaAndValue(schema, value)

    def to_connect_many(self, topic: str, many: Sequence[bytes | None]) -> list[Converted]:
        known = self._payloads
        found: list[Converted] = [None] * len(many) if known is None else known.read_many(many)
        for at, one in enumerate(found):
            if one is None:
                (found[at],) = super().to_connect_many(topic, many[at : at + 1])
                if known is None and (known := self._payloads) is not None:
                    # The first message with a schema, and most likely that of all.
                    found[at + 1 :] = known.read_many(many[at + 1 :])
        return found

    def _remember(self, data: bytes, schema: Schema) -> None:
        """For messages that begin as this one does."""
        prefix = prefix_of(data)
        if prefix is not None:
            reader = PayloadReader(prefix, schema, with_default=self._with_default)
            self._payloads = reader if reader.useful else None

    def schema_from_json(self, node: Any) -> Schema | None:
        if node is None:
            return None
        key = json.dumps(node, sort_keys=True, default=str)
        known = self._schemas.get(key)
        if known is None:
            if len(self._schemas) >= self.settings["schemas.cache.size"]:
                self._schemas.clear()
            known = self._schemas[key] = self._schema_of(node)
        return known

    def _schema_of(self, node: Any) -> Schema:
        get = node.get if isinstance(node, dict) else lambda _name: None
        type_name = get("type")
        if not isinstance(type_name, str):
            raise DataError("Schema must contain 'type' field")
        kind = _TYPES.get(type_name)
        if kind is None:
            raise DataError(f"Unknown schema type: {type_name}")
        attributes: dict[str, Any] = {"optional": get("optional") is True}
        if kind is Type.ARRAY:
            if get("items") is None:
                raise DataError("Array schema did not specify the element type")
            attributes["value"] = self.schema_from_json(get("items"))
        elif kind is Type.MAP:
            for part, name in (("key", "keys"), ("value", "values")):
                if name not in node:
                    raise DataError(f"Map schema did not specify the {part} type")
                attributes[part] = self.schema_from_json(node[name])
                if attributes[part] is None:
                    raise SchemaBuilderError(f"{part}Schema cannot be null.")
        elif kind is Type.STRUCT:
            attributes["fields"] = self._fields_of(get("fields"))
        attributes |= {
            name: get(name)
            for name, wanted in (("name", str), ("doc", str), ("version", int))
            if isinstance(get(name), wanted)
        }
        parameters = get("parameters")
        if isinstance(parameters, dict):
            if not all(isinstance(value, str) for value in parameters.values()):
                raise DataError("Schema parameters must have string values.")
            attributes["parameters"] = parameters
        schema = Schema(kind, **attributes)
        if "default" not in node:
            return schema
        default = self._value(schema, node["default"])
        try:
            validate_value(schema, default)
        except DataError:
            raise SchemaBuilderError("Invalid default value") from None
        return schema.replace(default=default)

    def _fields_of(self, nodes: Any) -> list[tuple[str, Schema]]:
        if not isinstance(nodes, list):
            raise DataError('Struct schema\'s "fields" argument is not an array.')
        fields = []
        for node in nodes:
            name = node.get("field") if isinstance(node, dict) else None
            if not isinstance(name, str):
                raise DataError("Struct schema's field name not specified properly")
            schema = self.schema_from_json({key: value for key, value in node.items() if key != "field"})
            assert schema is not None
            fields.append((name, schema))
        return fields

    def _value(self, schema: Schema | None, node: Any) -> Any:
        if schema is None:
            return plain_value(node)
        if node is None or node is _ABSENT:
            if schema.default is not None and self._with_default:
                return schema.default
            if schema.optional:
                return None
            raise DataError(f"Invalid null value for required {schema.type} field")
        if schema.name in logical.LOGICAL_NAMES:
            return logical_value(schema, node)
        kind = schema.type
        if kind is Type.STRUCT:
            if not isinstance(node, dict):
                raise DataError(f"Structs should be encoded as JSON objects, but found {node_type(node)}")
            result = Struct(schema)
            for field in schema.fields:
                result.put(field.name, self._value(field.schema, node.get(field.name, _ABSENT)))
            return result
        if kind is Type.ARRAY:
            elements = (
                node if isinstance(node, list) else list(node.values()) if isinstance(node, dict) else []
            )
            return [self._value(schema.value_schema, one) for one in elements]
        if kind is Type.MAP:
            return self._map_value(schema, node)
        return primitive_value(kind, node)

    def _map_value(self, schema: Schema, node: Any) -> dict[Any, Any]:
        key_schema, value_schema = schema.key_schema, schema.value_schema
        if key_schema is not None and key_schema.type is Type.STRING:
            if not isinstance(node, dict):
                raise DataError(
                    f"Maps with string fields should be encoded as JSON objects, but found {node_type(node)}"
                )
            return {key: self._value(value_schema, one) for key, one in node.items()}
        if not isinstance(node, list):
            raise DataError(
                "Maps with non-string fields should be encoded as JSON array of tuples, but found "
                f"{node_type(node)}"
            )
        entries = {}
        for entry in node:
            if not isinstance(entry, list):
                raise DataError(f"Found invalid map entry instead of array tuple: {node_type(entry)}")
            if len(entry) != 2:
                raise DataError(f"Found invalid map entry, expected length 2 but found :{len(entry)}")
            entries[self._value(key_schema, entry[0])] = self._value(value_schema, entry[1])
        return entries
