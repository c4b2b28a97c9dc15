"""Encoding and decoding by a running registry."""

import datetime
import json
import pickle
import uuid
from typing import Any

import pytest

from millstream.schemas import Reference
from millstream.serdes import (
    Decoder,
    Encoder,
    RegistryRefused,
    RegistryUnreachable,
    SchemaRegistry,
    SerdeError,
    to_json,
)
from tests.support.running import RunningRegistry

ORDER_1 = json.dumps(
    {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]}
)
ORDER_2 = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }
)
PROTO = """
syntax = "proto3"; package shop;
message Order { int64 id = 1; repeated string tags = 2; map<string, int32> counts = 3; Kind kind = 4;
  message Line { string sku = 1; } }
message Other { string a = 1; }
enum Kind { NONE = 0; BIG = 1; }
"""
JSON_SCHEMA = json.dumps(
    {"type": "object", "title": "Order", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
)


@pytest.fixture
def schemas(registry: RunningRegistry) -> SchemaRegistry:
    return SchemaRegistry(registry.url)


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def test_avro_and_evolution(schemas: SchemaRegistry, topic: str) -> None:
    old = Encoder(schemas, ORDER_1).encode(topic, {"id": 1})
    new = Encoder(schemas, ORDER_2).encode(topic, {"id": 2, "note": "x"})
    assert old is not None and old[:1] == b"\0"
    decoder = Decoder(schemas)
    assert decoder.decode(old) == {"id": 1}
    assert decoder.decode(new) == {"id": 2, "note": "x"}
    newest = Decoder(schemas, reader=ORDER_2)
    assert newest.decode(old) == {"id": 1, "note": None}
    assert Decoder(schemas, reader=ORDER_1).decode(new) == {"id": 2}
    assert decoder.decode(None) is None and Encoder(schemas, ORDER_1).encode(topic, None) is None


def test_logical_types(schemas: SchemaRegistry, topic: str) -> None:
    schema = json.dumps(
        {
            "type": "record",
            "name": "L",
            "fields": [
                {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
                {"name": "raw", "type": "bytes"},
            ],
        }
    )
    value = {
        "at": datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC),
        "id": uuid.UUID(int=5),
        "raw": b"\xff\xfe",
    }
    found = Decoder(schemas).decode(Encoder(schemas, schema).encode(topic, value))
    assert found == value
    assert json.loads(to_json(found)) == {
        "at": "2024-01-02T00:00:00+00:00",
        "id": "00000000-0000-0000-0000-000000000005",
        "raw": "//4=",
    }


def test_json(schemas: SchemaRegistry, topic: str) -> None:
    encoder = Encoder(schemas, JSON_SCHEMA, "JSON")
    data = encoder.encode(topic, {"id": 1, "more": "é"})
    assert Decoder(schemas).decode(data) == {"id": 1, "more": "é"}
    with pytest.raises(SerdeError):
        encoder.encode(topic, {"id": "no"})
    lax = Encoder(schemas, JSON_SCHEMA, "JSON", validate=False).encode(topic, {"id": "no"})
    assert Decoder(schemas).decode(lax) == {"id": "no"}
    with pytest.raises(SerdeError):
        Decoder(schemas, validate=True).decode(lax)


def test_protobuf(schemas: SchemaRegistry, topic: str) -> None:
    value = {"id": 5, "tags": ["a"], "counts": {"x": 1}, "kind": "BIG"}
    data = Encoder(schemas, PROTO, "PROTOBUF").encode(topic, value)
    assert data is not None and data[5:6] == b"\0"
    assert Decoder(schemas).decode(data) == value
    other = Encoder(schemas, PROTO, "PROTOBUF", message="shop.Other").encode(topic, {"a": "x"})
    assert other is not None and other[5:7] == b"\2\2"
    assert Decoder(schemas).decode(other) == {"a": "x"}
    line = Encoder(schemas, PROTO, "PROTOBUF", message="Line").encode(topic, {"sku": "s"})
    assert Decoder(schemas).decode(line) == {"sku": "s"}
    with pytest.raises(SerdeError):
        Encoder(schemas, PROTO, "PROTOBUF").encode(topic, {"nothing": 1})


@pytest.mark.parametrize(
    ("kind", "common", "name", "text", "value"),
    [
        (
            "AVRO",
            '{"type":"record","name":"Name","fields":[{"name":"first","type":"string"}]}',
            "Name",
            '{"type":"record","name":"Person","fields":[{"name":"name","type":"Name"}]}',
            {"name": {"first": "Ada"}},
        ),
        (
            "JSON",
            '{"type":"object","properties":{"first":{"type":"string"}}}',
            "name.json",
            '{"type":"object","properties":{"name":{"$ref":"name.json"}}}',
            {"name": {"first": "Ada"}},
        ),
        (
            "PROTOBUF",
            'syntax = "proto3"; package common; message Name { string first = 1; }',
            "name.proto",
            'syntax = "proto3"; import "name.proto"; message Person { common.Name name = 1; }',
            {"name": {"first": "Ada"}},
        ),
    ],
)
def test_references(
    schemas: SchemaRegistry, topic: str, kind: str, common: str, name: str, text: str, value: Any
) -> None:
    schemas.register(f"{topic}-common", common, kind)
    references = (Reference(name, f"{topic}-common", 1),)
    data = Encoder(schemas, text, kind, references=references).encode(topic, value)
    fresh = SchemaRegistry(schemas._addresses[0].geturl())
    assert Decoder(fresh).decode(data) == value


def test_protobuf_values(schemas: SchemaRegistry, topic: str) -> None:
    text = """
    syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
      import "google/protobuf/struct.proto";
    message M {
      bytes raw = 1; google.protobuf.Timestamp at = 2; google.protobuf.StringValue text = 3;
        google.protobuf.Struct any = 4;
      optional int32 maybe = 5; oneof o { string a = 6; M inner = 7; } map<string, M> all = 8;
        repeated M list = 9; uint64 big = 10;
    }
    """
    value = {
        "raw": b"\xff",
        "at": datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        "text": "t",
        "any": {"x": [1.0, "y"]},
        "maybe": 0,
        "inner": {"raw": b"", "all": {}, "list": [], "big": 2**63},
        "all": {"k": {"raw": b"x", "all": {}, "list": [], "big": 0}},
        "list": [],
        "big": 1,
    }
    assert Decoder(schemas).decode(Encoder(schemas, text, "PROTOBUF").encode(topic, value)) == value
    for wrong in ({"raw": 5}, {"maybe": "x"}, {"inner": 5}, {"none": 1}, {"big": -1}, "text"):
        with pytest.raises(SerdeError):
            Encoder(schemas, text, "PROTOBUF").encode(topic, wrong)


def test_strategies_and_lookups(schemas: SchemaRegistry, topic: str) -> None:
    with pytest.raises(RegistryRefused) as refused:
        Encoder(schemas, ORDER_1, auto_register=False).encode(topic, {"id": 1})
    assert refused.value.code == 40401
    name = f"R{topic[2:]}"
    text = json.dumps({"type": "record", "name": name, "fields": [{"name": "id", "type": "int"}]})
    for strategy, subject in (
        ("topic", f"{topic}-key"),
        ("record", name),
        ("topic-record", f"{topic}-{name}"),
    ):
        Encoder(schemas, text, strategy=strategy).encode(topic, {"id": 1}, key=True)
        assert subject in schemas.subjects()
    assert Encoder(schemas, text, auto_register=False, strategy="record").encode(topic, {"id": 1})
    latest = Encoder(schemas, use_latest=True).encode(topic, {"id": 2}, key=True)
    assert Decoder(schemas).decode(latest, key=True) == {"id": 2}


def test_guid_in_a_header(schemas: SchemaRegistry, topic: str) -> None:
    data = Encoder(schemas, ORDER_1).encode(topic, {"id": 7})
    assert data is not None
    guid = uuid.UUID(
        json.loads(json.dumps(schemas._request("GET", f"/subjects/{topic}-value/versions/1")))["guid"]
    )
    headers = [("other", None), ("__value_schema_id", b"\1" + guid.bytes)]
    assert Decoder(schemas).decode(data[5:], headers) == {"id": 7}


def test_schemas_are_asked_for_once(
    schemas: SchemaRegistry, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, decoder = Encoder(schemas, ORDER_1), Decoder(schemas)
    decoder.decode(encoder.encode(topic, {"id": 1}))
    monkeypatch.setattr(schemas, "_request", None)
    assert decoder.decode(encoder.encode(topic, {"id": 2})) == {"id": 2}
    assert Decoder(schemas).decode(encoder.encode(topic, {"id": 3})) == {"id": 3}


@pytest.mark.parametrize(
    "data", [b"", b"hello world", b"\0\0\0\0", b"\0\x7f\xff\xff\xff1", b"\0\xff\xff\xff\xffx"]
)
def test_bytes_that_are_something_else(schemas: SchemaRegistry, data: bytes) -> None:
    with pytest.raises((SerdeError, RegistryRefused)):
        Decoder(schemas).decode(data)


def test_a_body_cut_off(schemas: SchemaRegistry, topic: str) -> None:
    for kind, text, value in (
        ("AVRO", ORDER_2, {"id": 9, "note": "long enough"}),
        ("PROTOBUF", PROTO, {"id": 300, "tags": ["abc"]}),
    ):
        data = Encoder(schemas, text, kind).encode(f"{topic}-{kind}", value)
        assert data is not None
        with pytest.raises(SerdeError):
            Decoder(schemas).decode(data[:-2])


def test_no_registry_there() -> None:
    with pytest.raises(RegistryUnreachable):
        SchemaRegistry("http://127.0.0.1:1").subjects()
    with pytest.raises(ValueError, match="address"):
        SchemaRegistry("localhost:8081")


def test_several_addresses_and_pickling(registry: RunningRegistry, topic: str) -> None:
    both = SchemaRegistry(f"http://127.0.0.1:1,{registry.url}")
    data = Encoder(both, ORDER_1).encode(topic, {"id": 1})
    decoder = pickle.loads(pickle.dumps(both))  # noqa: S301
    assert Decoder(decoder).decode(data) == {"id": 1}
