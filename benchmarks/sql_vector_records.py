"""Records of ksqlDB's test cases: from their JSON to bytes by format and schema, and back.

The cases write a record's key and value as JSON and leave the bytes to the format of the topic. Avro,
Protobuf and JSON Schema go by the newest schema of the topic's subject in a registry in memory, not by the
columns of a source: that is how a case brings fields that no column has.
"""

from __future__ import annotations

import base64
import json
import re
from decimal import Decimal
from typing import Any

from millstream.schemas import Reference
from millstream.serdes.bodies import ProtobufBody
from millstream.serdes.client import RegisteredSchema, RegistryRefused, SchemaRegistry
from millstream.serdes.frame import path_bytes, split, split_path, with_id
from millstream.sql.formats import Format, format_of, row_serde
from millstream.sql.formats.avro import AvroType, parsed
from millstream.sql.formats.connect import DECIMAL, ConnectType
from millstream.sql.formats.json_sr import JsonSchemaType
from millstream.sql.formats.protobuf import ProtobufType
from millstream.sql.formats.registry_rows import LANGUAGES, sink_schema, subject_of
from millstream.sql.formats.table import FULL_SCHEMA_NAME

Columns = tuple[tuple[str, Any], ...]


class MemoryRegistry(SchemaRegistry):
    """Ids and subjects, no server, no compatibility rules."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1")
        self.schemas: dict[int, RegisteredSchema] = {}
        self.versions: dict[str, list[RegisteredSchema]] = {}

    def put(
        self, subject: str, text: str, language: str, schema_id: int | None, resolved: dict[str, str]
    ) -> int:
        references = tuple(Reference(name, name, 1) for name in resolved)
        for known in self.schemas.values():
            if (known.text, known.type) == (text, language) and schema_id in (None, known.id):
                break
        else:
            number = schema_id if schema_id is not None else max(self.schemas, default=0) + 1
            known = self.schemas[number] = RegisteredSchema(number, language, text, references, resolved)
        self.versions.setdefault(subject, []).append(known)
        return known.id

    def register(
        self,
        subject: str,
        text: str,
        schema_type: str = "AVRO",
        references: tuple[Reference, ...] = (),
        *,
        normalize: bool = False,
    ) -> int:
        return self.put(subject, text, schema_type, None, {})

    def schema(self, schema_id: int, subject: str = "") -> RegisteredSchema:
        if schema_id not in self.schemas:
            raise RegistryRefused(404, 40403, "Schema not found")
        return self.schemas[schema_id]

    def latest(self, subject: str) -> RegisteredSchema:
        if subject not in self.versions:
            raise RegistryRefused(404, 40401, f"Subject '{subject}' not found.")
        return self.versions[subject][-1]

    def add_topic(self, topic: dict[str, Any], formats: list[str]) -> None:
        """The schemas that a case registers before its first statement. A topic that does not say its format
        has that of the case."""
        known = [one for one in formats if one in ("AVRO", "JSON_SR", "PROTOBUF")]
        default = topic.get("format") or (known[0] if len(known) == 1 else None)
        for side in ("key", "value"):
            schema = topic.get(f"{side}Schema", topic.get("schema") if side == "value" else None)
            if schema is None:
                continue
            language = {**LANGUAGES, "JSON": "JSON"}.get(
                topic.get(f"{side}Format") or default or "AVRO", "AVRO"
            )
            if isinstance(schema, str) and schema.lstrip().startswith("syntax"):
                language = "PROTOBUF"
            text = schema if isinstance(schema, str) and language == "PROTOBUF" else plain_json(schema)
            resolved = {
                one["name"]: one["schema"]
                if isinstance(one["schema"], str) and one.get("format") == "PROTOBUF"
                else plain_json(one["schema"])
                for one in topic.get(f"{side}SchemaReferences", ())
            }
            self.put(
                subject_of(topic["name"], is_key=side == "key"),
                text,
                language,
                topic.get(f"{side}SchemaId"),
                resolved,
            )


class _Plain(json.JSONEncoder):
    """Decimals with their own digits."""

    def iterencode(self, o: Any, _one_shot: bool = False) -> Any:
        import orjson

        def default(value: Any) -> Any:
            if isinstance(value, Decimal):
                return orjson.Fragment(str(value))
            raise TypeError(type(value).__name__)

        yield orjson.dumps(o, default).decode()


def plain_json(value: Any) -> str:
    return _Plain().encode(value)


# To bytes -------------------------------------------------------------------------------------------------


def to_bytes(
    registry: MemoryRegistry, format_: Format, columns: Columns, topic: str, value: Any, is_key: bool
) -> bytes | None:
    if value is None or format_.name == "NONE":
        return None
    if format_.name == "DELIMITED":
        return str(value).encode()
    if format_.name == "KAFKA":
        return _kafka_bytes(columns, value)
    if format_.name == "JSON":
        return plain_json(value).encode()
    if format_.name == "PROTOBUF_NOSR":
        schema = RegisteredSchema(-1, "PROTOBUF", sink_schema(format_, columns, unwrapped=False))
        return _protobuf_bytes(schema, format_, value)
    schema = registry.latest(subject_of(topic, is_key=is_key))
    if schema.type == "AVRO":
        return with_id(schema.id, _avro_bytes(schema, value))
    if schema.type == "JSON":
        return with_id(schema.id, plain_json(_entries(JsonSchemaType(schema).type, value)).encode())
    return with_id(
        schema.id, path_bytes(_message_path(schema, format_)) + _protobuf_bytes(schema, format_, value)
    )


def _kafka_bytes(columns: Columns, value: Any) -> bytes | None:
    if not columns:
        return str(value).encode()
    base = columns[0][1].base.value
    if base in ("INTEGER", "BIGINT"):
        if isinstance(value, str):
            return value.encode()
        value = int(value)
    elif base == "DOUBLE":
        if isinstance(value, str):
            return value.encode()
        value = float(value)
    elif base == "BYTES":
        value = base64.b64decode(value)
    else:
        value = str(value) if not isinstance(value, bool) else str(value).lower()
    return row_serde(format_of("KAFKA"), columns, unwrapped=True).write("", (value,))


def _avro_bytes(schema: RegisteredSchema, value: Any) -> bytes:
    import io

    import fastavro

    resolved = [json.loads(text) for text in schema.resolved.values()]
    program = parsed(json.loads(schema.text), resolved)
    out = io.BytesIO()
    fastavro.schemaless_writer(
        out, program, _avro_value(AvroType(schema).type, value, json.loads(schema.text))
    )
    return out.getvalue()


def _find(schema: Any, kind: str) -> Any:
    """The branch of a union, or the type inside, that has that kind."""
    if isinstance(schema, list):
        found = [one for one in schema if one != "null"]
        return _find(found[0], kind) if len(found) == 1 else schema
    if isinstance(schema, dict) and isinstance(schema["type"], dict | list):
        return _find(schema["type"], kind)
    return schema


def _avro_value(type_: ConnectType, value: Any, schema: Any) -> Any:
    """A case's JSON as fastavro takes it. Unions of several types say their branch by the field that is
    set."""
    if value is None:
        return None
    schema = _find(schema, type_.kind)
    if type_.name == DECIMAL:
        number = Decimal(str(value)).scaleb(type_.scale)
        unscaled = int(number)
        return unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)
    if type_.kind == "STRUCT":
        if isinstance(schema, list):
            for one in type_.fields:
                if value.get(one.name) is not None:
                    return _avro_value(one.type, value[one.name], None)
            return None
        types = {one["name"]: one for one in schema["fields"]} if isinstance(schema, dict) else {}
        found = {}
        for one in type_.fields:
            own, given = types.get(one.name, {}), own_name(value, one.name)
            if given in value:
                found[one.name] = _avro_value(one.type, value[given], own.get("type"))
            elif "default" not in own:
                found[one.name] = None
        return found
    if type_.kind == "ARRAY":
        items = schema["items"] if isinstance(schema, dict) else None
        return [_avro_value(type_.value, one, items) for one in value]  # type: ignore[arg-type]
    if type_.kind == "MAP":
        assert type_.value is not None
        if isinstance(schema, dict) and schema["type"] == "map":
            return {key: _avro_value(type_.value, one, schema["values"]) for key, one in value.items()}
        inner = None
        if isinstance(schema, dict):
            inner = next(one["type"] for one in schema["items"]["fields"] if one["name"] == "value")
        return [{"key": key, "value": _avro_value(type_.value, one, inner)} for key, one in value.items()]
    if type_.kind == "BYTES":
        return base64.b64decode(value)
    if type_.kind in ("FLOAT32", "FLOAT64"):
        return float(value)
    if type_.kind in ("INT8", "INT16", "INT32", "INT64"):
        return int(value)
    if type_.kind == "STRING" and not isinstance(value, str):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return value


def _entries(type_: ConnectType, value: Any) -> Any:
    """Maps with keys that may be null are arrays of key and value in JSON Schema."""
    if value is None:
        return None
    if type_.kind == "MAP" and type_.value is not None and isinstance(value, dict):
        if type_.key is not None and type_.key.optional:
            return [{"key": key, "value": _entries(type_.value, one)} for key, one in value.items()]
        return {key: _entries(type_.value, one) for key, one in value.items()}
    if type_.kind == "ARRAY" and type_.value is not None and isinstance(value, list):
        return [_entries(type_.value, one) for one in value]
    if type_.kind == "STRUCT" and isinstance(value, dict):
        kinds = {one.name: one.type for one in type_.fields}
        named = {own_name(kinds, key): one for key, one in value.items()}
        return {key: _entries(kinds[key], one) if key in kinds else one for key, one in named.items()}
    return value


def _message_path(schema: RegisteredSchema, format_: Format) -> Any:
    body, name = ProtobufBody(schema), format_.get(FULL_SCHEMA_NAME)
    return body.path if name is None else body.path_to(name)


def _protobuf_bytes(schema: RegisteredSchema, format_: Format, value: Any) -> bytes:
    message = ProtobufBody(schema).message_class(_message_path(schema, format_))()
    _fill(message, value)
    return bytes(message.SerializeToString())


def _fill(message: Any, value: Any) -> None:
    descriptor = message.DESCRIPTOR
    for name, item in value.items():
        if item is None:
            continue
        one = descriptor.fields_by_name.get(own_name(descriptor.fields_by_name, name))
        if one is None:
            if isinstance(item, dict) and name.rpartition("_")[0] in descriptor.oneofs_by_name:
                _fill(message, item)
            continue
        name = one.name
        if one.is_repeated and isinstance(item, dict):
            target = getattr(message, name)
            inner = one.message_type.fields_by_name["value"]
            for key, entry in item.items():
                if not one.message_type.GetOptions().map_entry:
                    made = target.add()
                    _fill(made, {"key": key, "value": entry})
                elif inner.message_type is not None:
                    _put(target[key], entry)
                else:
                    target[key] = _scalar(inner, entry)
        elif one.is_repeated:
            target = getattr(message, name)
            for entry in item:
                if one.message_type is not None:
                    _put(target.add(), entry)
                else:
                    target.append(_scalar(one, entry))
        elif one.message_type is not None:
            getattr(message, name).SetInParent()
            _put(getattr(message, name), item)
        else:
            setattr(message, name, _scalar(one, item))


def _put(target: Any, value: Any) -> None:
    from millstream.sql.formats import protobuf

    name = target.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        protobuf._put_timestamp(target, int(value))
    elif name == "google.type.Date":
        protobuf._put_date(target, int(value))
    elif name == "google.type.TimeOfDay":
        protobuf._put_time(target, int(value))
    elif name == "confluent.type.Decimal":
        protobuf._put_decimal(target, Decimal(str(value)))
    elif isinstance(value, dict):
        _fill(target, value)
    else:
        target.value = _scalar(target.DESCRIPTOR.fields_by_name["value"], value)


def _scalar(one: Any, value: Any) -> Any:
    if one.enum_type is not None and isinstance(value, str):
        return one.enum_type.values_by_name[value].number
    if one.type == one.TYPE_BYTES:
        return base64.b64decode(value)
    if one.type in (one.TYPE_DOUBLE, one.TYPE_FLOAT):
        return float(value)
    if one.type == one.TYPE_STRING:
        return str(value).lower() if isinstance(value, bool) else str(value)
    return value if isinstance(value, bool) else int(value)


# From bytes -----------------------------------------------------------------------------------------------


def from_bytes(registry: MemoryRegistry, format_: Format, columns: Columns, data: bytes | None) -> Any:
    """What a case would write for these bytes."""
    if data is None or format_.name == "NONE":
        return None
    if format_.name == "DELIMITED":
        return data.decode()
    if format_.name == "KAFKA":
        value = row_serde(format_of("KAFKA"), columns, unwrapped=True).read("", data)[0]
        return base64.b64encode(value).decode() if isinstance(value, bytes) else value
    if format_.name == "JSON":
        return json.loads(data, parse_float=Decimal)
    if format_.name == "PROTOBUF_NOSR":
        schema = RegisteredSchema(-1, "PROTOBUF", sink_schema(format_, columns, unwrapped=False))
        return _protobuf_spec(schema, [0], data)
    schema_id, body = split(data)
    schema = registry.schema(int(schema_id))
    if schema.type == "AVRO":
        return _plain(AvroType(schema).decode(body))
    if schema.type == "JSON":
        return _plain(JsonSchemaType(schema).decode(json.loads(bytes(body), parse_float=Decimal)))
    path, rest = split_path(body)
    return _protobuf_spec(schema, path, bytes(rest))


def _protobuf_spec(schema: RegisteredSchema, path: list[int], data: bytes) -> Any:
    made = ProtobufBody(schema).message_class(path)
    return _plain(ProtobufType(made.DESCRIPTOR, schema.parsed).decode(made.FromString(data)))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


# Comparing ------------------------------------------------------------------------------------------------


def own_name(names: Any, name: str) -> str:
    """The field that is meant: by its exact name, or without regard to case."""
    if name in names:
        return name
    return next((one for one in names if one.upper() == name.upper()), name)


def same(expected: Any, actual: Any) -> bool:
    """Numbers by value, whatever their digits; names of fields without regard to case; a field that is
    expected nowhere has to be null."""
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, int | float | Decimal):
        if isinstance(actual, str):
            return False
        if isinstance(actual, int | float | Decimal):
            return bool(_number(expected) == _number(actual))
        return False
    if isinstance(expected, str) and isinstance(actual, Decimal):
        return Decimal(expected) == actual if re.fullmatch(r"-?[0-9.]+", expected) else False
    if isinstance(expected, str) and isinstance(actual, float):
        return expected == {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(actual))
    if isinstance(expected, dict):
        if not isinstance(actual, dict):
            return False
        expected = {own_name(actual, str(name)): value for name, value in expected.items()}
        return all(same(expected.get(name), actual.get(name)) for name in {*expected, *actual})
    if isinstance(expected, list):
        if not isinstance(actual, list) or len(expected) != len(actual):
            return False
        return all(map(same, expected, actual))
    return bool(expected == actual)


def _number(value: Any) -> Any:
    if isinstance(value, float):
        return Decimal(repr(value)) if value - value == 0 else value
    return value
