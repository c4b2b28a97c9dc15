"""Avro, JSON Schema and Protobuf with a registry: schemas as Confluent's converters make them, values both
ways, bytes that other projects' clients read."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from millstream.connect.converters.base import Converter
from millstream.connect.converters.plugins import make_converter
from millstream.connect.data import logical
from millstream.connect.data.schema import (
    OPTIONAL,
    REQUIRED,
    Schema,
    Type,
    array_schema,
    map_schema,
    struct_schema,
)
from millstream.connect.data.struct import Struct
from millstream.connect.errors import DataError, RetriableError
from millstream.serdes import SchemaRegistry

LANGUAGES = {
    "AVRO": "io.confluent.connect.avro.AvroConverter",
    "JSON": "io.confluent.connect.json.JsonSchemaConverter",
    "PROTOBUF": "io.confluent.connect.protobuf.ProtobufConverter",
}
INNER = struct_schema([("city", REQUIRED[Type.STRING]), ("zip", OPTIONAL[Type.INT32])], name="shop.Address")
ORDER = struct_schema(
    [
        ("id", REQUIRED[Type.INT64]),
        ("tiny", REQUIRED[Type.INT8]),
        ("small", REQUIRED[Type.INT16]),
        ("count", REQUIRED[Type.INT32]),
        ("weight", REQUIRED[Type.FLOAT32]),
        ("total", REQUIRED[Type.FLOAT64]),
        ("paid", REQUIRED[Type.BOOLEAN]),
        ("note", OPTIONAL[Type.STRING]),
        ("raw", REQUIRED[Type.BYTES]),
        ("price", logical.decimal_schema(2)),
        ("day", logical.DATE_SCHEMA),
        ("time", logical.TIME_SCHEMA),
        ("at", logical.TIMESTAMP_SCHEMA),
        ("tags", array_schema(REQUIRED[Type.STRING])),
        ("counts", map_schema(REQUIRED[Type.STRING], REQUIRED[Type.INT32])),
        ("where", INNER.replace(optional=True)),
    ],
    name="shop.Order",
)
VALUES: list[Any] = [
    1 << 40,
    -7,
    300,
    70000,
    0.5,
    1.0e7,
    True,
    "naïve",
    b"\x00\xff",
    Decimal("-12.30"),
    datetime(2020, 10, 29, tzinfo=UTC),
    datetime(1970, 1, 1, 13, 30, 0, 250000, tzinfo=UTC),
    datetime(2020, 10, 29, 19, 33, 20, 123000, tzinfo=UTC),
    ["a", "b"],
    {"x": 1},
]


def order(schema: Schema = ORDER, where: Struct | None = None) -> Struct:
    inner = next(field.schema for field in schema.fields if field.name == "where")
    address = Struct(inner, ["Köln", None]) if where is None else where
    return Struct(schema, [*VALUES, address])


@pytest.fixture
def converter(connect_registry: str) -> Any:
    def make(language: str, *, is_key: bool = False, **settings: str) -> Converter:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return make_converter(
            LANGUAGES[language], {"schema.registry.url": connect_registry, **named}, is_key=is_key
        )

    return make


def plain(value: Any) -> Any:
    """Structs as dicts, for schemas that differ in what Connect cannot keep."""
    if isinstance(value, Struct):
        return {field.name: plain(one) for field, one in zip(value.schema.fields, value.values, strict=True)}
    return [plain(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("language", ["AVRO", "JSON"])
def test_a_struct_comes_back_as_it_was(converter: Any, language: str) -> None:
    writer, reader = converter(language), converter(language)
    topic = f"orders-{language}"
    found = reader.to_connect(topic, writer.from_connect(topic, ORDER, order()))
    assert found.schema.version == 1
    assert [field.name for field in found.schema.fields] == [field.name for field in ORDER.fields]
    for field in ORDER.fields:
        assert found.schema.field(field.name).schema == field.schema, field.name
    assert plain(found.value) == plain(order())


def test_a_struct_comes_back_from_protobuf(converter: Any) -> None:
    writer, reader = converter("PROTOBUF"), converter("PROTOBUF")
    found = reader.to_connect("orders-proto", writer.from_connect("orders-proto", ORDER, order()))
    # proto3 cannot tell a number that is not set from a zero, unless it is asked to.
    expected = plain(order()) | {"where": {"city": "Köln", "zip": 0}}
    assert plain(found.value) == expected
    kinds = {field.name: field.schema.type for field in found.schema.fields}
    assert kinds == {field.name: field.schema.type for field in ORDER.fields}
    assert found.schema.field("price").schema.parameters["scale"] == "2"
    assert found.schema.field("at").schema.name == logical.TIMESTAMP
    # What was read can be written again, under the same numbers.
    again = writer.from_connect("again-proto", found.schema, found.value)
    assert plain(reader.to_connect("again-proto", again).value) == expected


@pytest.mark.parametrize("setting", ["optional_for_nullables", "wrapper_for_nullables"])
def test_null_in_protobuf(converter: Any, setting: str) -> None:
    both = converter("PROTOBUF", **{setting: "true"})
    schema = struct_schema([("a", OPTIONAL[Type.INT64]), ("b", OPTIONAL[Type.STRING])], name="Maybe")
    for values in ([None, "x"], [0, ""], [5, None]):
        data = both.from_connect(f"maybe-{setting}", schema, Struct(schema, list(values)))
        assert both.to_connect(f"maybe-{setting}", data).value.values == values


def test_avro_schemas_are_confluents(converter: Any, connect_registry: str) -> None:
    converter("AVRO").from_connect("texts", ORDER, order())
    text = SchemaRegistry(connect_registry).latest("texts-value").text
    fields = {field["name"]: field["type"] for field in json.loads(text)["fields"]}
    assert json.loads(text)["namespace"] == "shop"
    assert json.loads(text)["connect.name"] == "shop.Order"
    assert fields["tiny"] == {"type": "int", "connect.type": "int8"}
    assert fields["note"] == ["null", "string"]
    assert fields["price"] == {
        "type": "bytes",
        "scale": 2,
        "precision": 64,
        "connect.version": 1,
        "connect.parameters": {"scale": "2"},
        "connect.name": "org.apache.kafka.connect.data.Decimal",
        "logicalType": "decimal",
    }
    assert fields["day"] == {
        "type": "int",
        "connect.version": 1,
        "connect.name": "org.apache.kafka.connect.data.Date",
        "logicalType": "date",
    }
    assert fields["where"][0] == "null"
    assert fields["where"][1]["name"] == "Address"


def test_another_client_reads_and_writes_avro(converter: Any, connect_registry: str) -> None:
    client = SchemaRegistryClient({"url": connect_registry})
    context = SerializationContext("others", MessageField.VALUE)
    ours = converter("AVRO")
    read = AvroDeserializer(client)(ours.from_connect("others", ORDER, order()), context)
    assert read["price"] == Decimal("-12.30")
    assert read["where"] == {"city": "Köln", "zip": None}
    assert read["at"] == datetime(2020, 10, 29, 19, 33, 20, 123000, tzinfo=UTC)
    text = json.dumps(
        {
            "type": "record",
            "name": "Reading",
            "doc": "a reading",
            "fields": [
                {"name": "value", "type": ["null", "int", "long", "string"], "default": None},
                {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["ON", "OFF"]}},
                {"name": "unit", "type": "string", "default": "K", "doc": "its unit"},
                {"name": "digest", "type": {"type": "fixed", "name": "Digest", "size": 2}},
            ],
        }
    )
    write = AvroSerializer(client, text)
    context = SerializationContext("readings", MessageField.VALUE)
    # fastavro writes a whole number as the first branch that takes it.
    for value, member in ((None, None), (5, "int"), (1 << 40, "long"), ("x", "string")):
        data = write({"value": value, "state": "ON", "unit": "m", "digest": b"ab"}, context)
        found = ours.to_connect("readings", data)
        union = found.value.get("value")
        assert (None if union is None else union.get(member)) == value
        assert found.value.get("state") == "ON"
        assert found.value.get("digest") == b"ab"
    unit = found.schema.field("unit").schema
    assert unit.default == "K"
    assert found.schema.field("value").schema.name == "io.confluent.connect.avro.Union"
    assert found.schema.field("state").schema.parameters["io.confluent.connect.avro.Enum"] == "State"
    assert found.schema.parameters["io.confluent.connect.avro.record.doc"] == "a reading"
    enhanced = converter("AVRO", enhanced_avro_schema_support="true")
    again = enhanced.from_connect("copied", found.schema, found.value)
    copied = json.loads(SchemaRegistry(connect_registry).latest("copied-value").text)
    assert copied["fields"][1]["type"]["type"] == "enum"
    assert copied["fields"][0]["type"][1:] == ["int", "long", "string"]
    assert plain(enhanced.to_connect("copied", again).value) == plain(found.value)


@pytest.mark.parametrize("language", ["AVRO", "JSON"])
def test_maps_with_other_keys_and_defaults(converter: Any, language: str) -> None:
    schema = struct_schema(
        [
            ("by", map_schema(REQUIRED[Type.INT32], OPTIONAL[Type.STRING])),
            ("level", Schema(Type.INT32, optional=True, default=3)),
        ]
    )
    both = converter(language)
    value = Struct(schema, [{1: "a", 2: None}, None])
    found = both.to_connect(f"maps-{language}", both.from_connect(f"maps-{language}", schema, value))
    assert found.value.values == [{1: "a", 2: None}, 3]
    assert found.schema.field("level").schema.default == 3
    keeps = converter(language, ignore_default_for_nullables="true")
    data = keeps.from_connect(f"kept-{language}", schema, value)
    if language == "AVRO":
        assert both.to_connect(f"kept-{language}", data).value.values[1] is None


@pytest.mark.parametrize("language", ["AVRO", "JSON"])
@pytest.mark.parametrize("value", [{"a": [1, 2.5, None], "b": {"c": "x"}}, "text", 5, True, [1]])
def test_values_without_a_schema(converter: Any, language: str, value: Any) -> None:
    both = converter(language)
    topic = f"free-{language}"
    data = both.from_connect(topic, None, value)
    assert both.to_connect(topic, data) == (None, value)
    assert both.from_connect(topic, None, None) is None


@pytest.mark.parametrize("language", list(LANGUAGES))
@pytest.mark.parametrize(
    ("kind", "value"), [(Type.STRING, "k"), (Type.INT32, 7), (Type.INT64, -1), (Type.BYTES, b"\x01")]
)
def test_plain_keys(converter: Any, language: str, kind: Type, value: Any) -> None:
    both = converter(language, is_key=True)
    topic = f"plain-{language}-{kind.value}"
    found = both.to_connect(topic, both.from_connect(topic, REQUIRED[kind], value))
    assert found.value == value
    assert found.schema.type is kind


def test_a_oneof_is_a_struct(converter: Any, connect_registry: str) -> None:
    text = """
        syntax = "proto3"; package p;
        message Event { oneof what { string name = 1; int64 number = 2; } State state = 3;
          map<string, int32> m = 4;
          enum State { UNKNOWN = 0; ON = 1; } }
    """
    registry = SchemaRegistry(connect_registry)
    from millstream.serdes import Encoder

    data = Encoder(registry, text, "PROTOBUF").encode("events", {"number": 9, "state": "ON", "m": {"a": 1}})
    both = converter("PROTOBUF")
    found = both.to_connect("events", data)
    assert plain(found.value) == {
        "what_0": {"name": None, "number": 9},
        "state": "ON",
        "m": {"a": 1},
    }
    copy = both.to_connect("copies", both.from_connect("copies", found.schema, found.value))
    assert plain(copy.value) == plain(found.value)


def test_the_newest_schema_of_a_subject(converter: Any, connect_registry: str) -> None:
    registry = SchemaRegistry(connect_registry)
    target = {
        "type": "record",
        "name": "Line",
        "fields": [
            {"name": "extra", "type": "string", "default": "none"},
            {"name": "text", "type": "string"},
        ],
    }
    known = registry.register("fixed-value", json.dumps(target))
    schema = struct_schema([("text", REQUIRED[Type.STRING])], name="Line")
    latest = converter("AVRO", auto_register_schemas="false", use_latest_version="true")
    data = latest.from_connect("fixed", schema, Struct(schema, ["hello"]))
    assert int.from_bytes(data[1:5], "big") == known
    assert plain(latest.to_connect("fixed", data).value) == {"extra": "none", "text": "hello"}
    other = struct_schema([("number", REQUIRED[Type.INT32])], name="Line")
    with pytest.raises(DataError, match=r"latest.compatibility.strict"):
        latest.from_connect("fixed", other, Struct(other, [1]))
    strict = converter("AVRO", auto_register_schemas="false")
    with pytest.raises(DataError, match=r"Failed to serialize Avro data from topic fixed"):
        strict.from_connect("fixed", schema, Struct(schema, ["hello"]))


def test_names_that_avro_does_not_have(converter: Any) -> None:
    schema = struct_schema(
        [("a b", REQUIRED[Type.STRING]), ("1st", REQUIRED[Type.INT32])], name="my-shop.Ord er"
    )
    both = converter("AVRO", scrub_invalid_names="true")
    found = both.to_connect("odd", both.from_connect("odd", schema, Struct(schema, ["x", 1])))
    assert [field.name for field in found.schema.fields] == ["a_b", "x1st"]
    assert found.schema.name == "my-shop.Ord er"


def test_what_is_wrong_is_said(converter: Any) -> None:
    both = converter("AVRO")
    with pytest.raises(DataError, match="Unknown magic byte"):
        both.to_connect("t", b"{}")
    with pytest.raises(DataError, match="Found null value for non-optional schema"):
        both.from_connect("t", REQUIRED[Type.STRING], None)
    with pytest.raises(DataError, match=r"Invalid type for INT32: class java.lang.String"):
        both.from_connect("u", REQUIRED[Type.INT32], "x")
    gone = make_converter(LANGUAGES["AVRO"], {"schema.registry.url": "http://127.0.0.1:9"})
    with pytest.raises(RetriableError):
        gone.from_connect("t", REQUIRED[Type.STRING], "x")
    assert both.to_connect("t", None) == (None, None)
