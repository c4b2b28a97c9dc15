"""Schemas of sinks in Confluent's form, and columns from other people's schemas."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from millstream.serdes.frame import with_id
from millstream.sql.errors import SqlError
from millstream.sql.formats import DoesNotFit, format_of, row_serde
from millstream.sql.formats.schemas import infer, register
from millstream.sql.types import (
    BIGINT,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIMESTAMP,
    SqlType,
    array_type,
    decimal_type,
    map_type,
    struct_type,
)
from tests.sql.formats.registry_stub import MemoryRegistry

Columns = tuple[tuple[str, SqlType], ...]
COLUMNS: Columns = (
    ("ID", INTEGER),
    ("PRICE", decimal_type(4, 2)),
    ("DAY", DATE),
    ("TAGS", map_type(STRING, BIGINT)),
    ("AT", struct_type(("LAT", DOUBLE))),
    ("L", array_type(STRING)),
)


def _registered(name: str, columns: Columns = COLUMNS, **properties: str) -> str:
    registry = MemoryRegistry()
    format_ = format_of(name, properties)
    register(registry, format_, columns, "t", is_key=False, unwrapped=False, replace=True)
    return registry.latest("t-value").text


def test_avro_schema_of_a_sink() -> None:
    schema = json.loads(_registered("AVRO"))
    assert (schema["name"], schema["namespace"]) == ("KsqlDataSourceSchema", "io.confluent.ksql.avro_schemas")
    fields = {one["name"]: one for one in schema["fields"]}
    assert fields["ID"] == {"name": "ID", "type": ["null", "int"], "default": None}
    assert fields["PRICE"]["type"][1]["connect.parameters"] == {
        "scale": "2",
        "connect.decimal.precision": "4",
    }
    assert fields["DAY"]["type"][1]["logicalType"] == "date"
    assert fields["AT"]["type"][1]["connect.name"].endswith(".KsqlDataSourceSchema_AT")
    entry = fields["TAGS"]["type"][1]["items"]
    assert (entry["connect.internal.type"], entry["name"]) == ("MapEntry", "KsqlDataSourceSchema_TAGS")
    named = json.loads(_registered("AVRO", fullSchemaName="com.shop.Order"))
    assert (named["name"], named["namespace"]) == ("Order", "com.shop")


def test_json_schema_of_a_sink() -> None:
    schema = json.loads(_registered("JSON_SR"))
    assert schema["properties"]["ID"] == {
        "connect.index": 0,
        "oneOf": [{"type": "null"}, {"type": "integer", "connect.type": "int32"}],
    }
    assert schema["properties"]["TAGS"]["oneOf"][1]["connect.type"] == "map"


def test_protobuf_schema_of_a_sink() -> None:
    text = _registered(
        "PROTOBUF", (("ID", INTEGER), ("M", map_type(STRING, BIGINT)), ("L", array_type(STRING)))
    )
    assert text == (
        'syntax = "proto3";\n\nmessage ConnectDefault1 {\n  int32 ID = 1;\n'
        "  repeated ConnectDefault2Entry M = 2;\n  repeated string L = 3;\n\n"
        "  message ConnectDefault2Entry {\n    string key = 1;\n    int64 value = 2;\n  }\n}\n"
    )


@pytest.mark.parametrize("name", ["AVRO", "JSON_SR", "PROTOBUF"])
def test_columns_come_back_from_the_schema_of_a_sink(name: str) -> None:
    registry, format_ = MemoryRegistry(), format_of(name)
    register(registry, format_, COLUMNS, "t", is_key=False, unwrapped=False, replace=True)
    assert infer(registry, format_, "t", is_key=False, unwrapped=False).columns == COLUMNS


def test_a_source_does_not_replace_a_schema() -> None:
    registry, format_ = MemoryRegistry(), format_of("AVRO")
    for replace, expected in ((False, 1), (False, None), (True, 2)):
        columns: Columns = COLUMNS if expected == 1 else COLUMNS[:1]
        found = register(registry, format_, columns, "t", is_key=False, unwrapped=False, replace=replace)
        assert found == expected


def _read(registry: MemoryRegistry, name: str, columns: Columns, data: bytes, **properties: str) -> Any:
    return row_serde(format_of(name, properties), columns, registry=registry).read("t", data)


AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "small", "type": ["null", "float"], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "either", "type": ["null", "string", {"type": "record", "name": "Sub", "fields": [
            {"name": "n", "type": "int"}]}]},
        {"name": "hash", "type": {"type": "fixed", "name": "Md5", "size": 2}},
    ],
}  # fmt: skip


def test_avro_of_other_writers() -> None:
    registry = MemoryRegistry()
    schema_id = registry.add("t-value", json.dumps(AVRO), "AVRO")
    found = infer(registry, format_of("AVRO"), "t", is_key=False, unwrapped=False)
    assert found.name == "shop.Order"
    assert found.columns == (
        ("ID", BIGINT),
        ("SMALL", DOUBLE),
        ("STATE", STRING),
        ("TAGS", map_type(STRING, INTEGER)),
        ("PRICE", decimal_type(6, 2)),
        ("AT", TIMESTAMP),
        ("EITHER", struct_type(("STRING", STRING), ("SUB", struct_type(("N", INTEGER))))),
        ("HASH", BYTES),
    )
    out = io.BytesIO()
    value = {
        "id": 5,
        "small": 0.5,
        "state": "NEW",
        "tags": {"a": 1},
        "price": Decimal("12.30"),
        "at": 1000,
        "either": ("shop.Sub", {"n": 3}),
        "hash": b"ab",
    }
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), value)
    assert _read(registry, "AVRO", found.columns, with_id(schema_id, out.getvalue())) == (
        5,
        0.5,
        "NEW",
        {"a": 1},
        Decimal("12.30"),
        1000,
        {"STRING": None, "SUB": {"N": 3}},
        b"ab",
    )
    by_id = infer(registry, format_of("AVRO"), "t", is_key=False, unwrapped=False, schema_id=schema_id)
    assert [name for name, _ in by_id.columns][:2] == ["id", "small"]


def test_avro_types_that_do_not_fit_a_column() -> None:
    registry = MemoryRegistry()
    schema = {"type": "record", "name": "R", "fields": [{"name": "ID", "type": "long"}]}
    schema_id = registry.add("t-value", json.dumps(schema), "AVRO")
    data = with_id(schema_id, b"\x0a")
    assert _read(registry, "AVRO", (("ID", STRING), ("MORE", INTEGER)), data) == ("5", None)
    with pytest.raises(DoesNotFit, match="Cannot deserialize type int64 as type int32 for path: ->ID"):
        _read(registry, "AVRO", (("ID", INTEGER),), data)


def test_written_by_a_schema_that_somebody_else_registered() -> None:
    registry = MemoryRegistry()
    fields = [
        {"name": "more", "type": "string", "default": "none"},
        {"name": "ID", "type": "int"},
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    schema_id = registry.add("other", json.dumps(schema), "AVRO")
    format_ = format_of("AVRO", {"schemaId": str(schema_id)})
    data = row_serde(format_, (("ID", INTEGER),), registry=registry).write("t", (7,))
    assert data == with_id(schema_id, b"\x08none\x0e")


PROTO = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  uint32 id = 1; float small = 2; State state = 3; map<string, int32> tags = 4;
  oneof pay { string card = 5; int64 cash = 6; }
  google.protobuf.Timestamp at = 7; optional string note = 8;
  enum State { NEW = 0; DONE = 1; }
}
message Other { string name = 1; }
"""


def test_protobuf_of_other_writers() -> None:
    registry = MemoryRegistry()
    schema_id = registry.add("t-value", PROTO, "PROTOBUF")
    with pytest.raises(SqlError, match="Value schema has multiple schema definitions"):
        infer(registry, format_of("PROTOBUF"), "t", is_key=False, unwrapped=False)
    format_ = format_of("PROTOBUF", {"fullSchemaName": "shop.Order"})
    found = infer(registry, format_, "t", is_key=False, unwrapped=False)
    assert found.columns == (
        ("PAY_0", struct_type(("CARD", STRING), ("CASH", BIGINT))),
        ("ID", BIGINT),
        ("SMALL", DOUBLE),
        ("STATE", STRING),
        ("TAGS", map_type(STRING, INTEGER)),
        ("AT", TIMESTAMP),
        ("NOTE", STRING),
    )
    # id 5, tags {a: 1}, cash 9, at 1.5 s; the first message of the file
    body = bytes.fromhex("0805 2205 0a01611001 3009 3a08 080110 80cab5ee01".replace(" ", ""))
    row = _read(registry, "PROTOBUF", found.columns, with_id(schema_id, b"\0" + body))
    assert row == ({"CARD": None, "CASH": 9}, 5, 0.0, "NEW", {"a": 1}, 1500, None)


def test_json_schema_of_other_writers() -> None:
    registry = MemoryRegistry()
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "at": {"$ref": "#/definitions/place"},
            "tags": {"type": "object", "additionalProperties": {"type": "number"}},
            "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        },
        "definitions": {"place": {"type": "object", "properties": {"lat": {"type": "number"}}}},
    }
    schema_id = registry.add("t-value", json.dumps(schema), "JSON")
    found = infer(registry, format_of("JSON_SR"), "t", is_key=False, unwrapped=False)
    assert found.columns == (
        ("ID", BIGINT),
        ("AT", struct_type(("LAT", DOUBLE))),
        ("TAGS", map_type(STRING, DOUBLE)),
        ("NOTE", STRING),
    )
    data = with_id(schema_id, b'{"id": 1, "at": {"lat": 2}, "tags": {"x": 1.5}}')
    assert _read(registry, "JSON_SR", found.columns, data) == (1, {"LAT": 2.0}, {"x": 1.5}, None)


def test_what_cannot_be_inferred() -> None:
    registry = MemoryRegistry()
    with pytest.raises(SqlError, match="Schema for message values on topic 't' does not exist"):
        infer(registry, format_of("AVRO"), "t", is_key=False, unwrapped=False)
    registry.add("t-value", '"int"', "AVRO")
    with pytest.raises(SqlError, match="Value schema is not in the expected format"):
        infer(registry, format_of("PROTOBUF"), "t", is_key=False, unwrapped=False)
    with pytest.raises(SqlError, match="set 'WRAP_SINGLE_VALUE=false'"):
        infer(registry, format_of("AVRO"), "t", is_key=False, unwrapped=False)
    single = infer(registry, format_of("AVRO"), "t", is_key=False, unwrapped=True)
    assert single.columns == (("ROWVAL", INTEGER),)


def test_bytes_without_a_schema_id() -> None:
    registry = MemoryRegistry()
    for name in ("AVRO", "JSON_SR", "PROTOBUF"):
        with pytest.raises(DoesNotFit):
            _read(registry, name, (("A", INTEGER),), b"{}")
