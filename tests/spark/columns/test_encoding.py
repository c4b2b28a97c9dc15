"""Columns into bodies and back, on plain Arrow arrays: what is written is what was there, or is refused with
a reason."""

import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millstream.spark.columns.decoding import Access, Reader, decoder_of
from millstream.spark.columns.encoding import BatchEncoder, Writing, input_type
from millstream.spark.errors import PipelineError

from .bodies import packed, record

NOWHERE = Access("http://127.0.0.1:1")


def encoded(reader: Reader, rows: list[Any]) -> tuple[list[bytes | None], list[Any]]:
    """The bodies, and what is wrong with those that are not."""
    values = pa.array(rows, input_type(reader))
    made = BatchEncoder(Writing(NOWHERE, 1, reader, "_corrupt")).encode(values)
    bodies = [data and data[5:] for data in made.field("data").to_pylist()]
    return bodies, made.field("_corrupt").to_pylist()


def there_and_back(kind: str, text: str, rows: list[Any]) -> None:
    reader = Reader(kind, text)
    bodies, bad = encoded(reader, rows)
    assert bad == [None] * len(rows)
    decoded = decoder_of(reader, reader.schema).decode(*packed([body or b"" for body in bodies]))
    assert decoded.bad == {}
    assert decoded.array.to_pylist() == pa.array(rows, input_type(reader)).to_pylist()


# --- Avro ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [None, 20])
def test_decimals_keep_all_their_digits(size: int | None) -> None:
    logical = {"logicalType": "decimal", "precision": 38, "scale": 10}
    kind = {"type": "bytes"} if size is None else {"type": "fixed", "name": "F", "size": size}
    numbers = ["1234567890123456789012345678.1234567891", "-9999999999999999999999999999.9999999999", "0E-10"]
    text = json.dumps(record(("d", {**kind, **logical})))
    there_and_back("AVRO", text, [{"d": Decimal(number)} for number in numbers])


def test_unions_keep_their_branch_and_their_value() -> None:
    uuid = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
    text = json.dumps(
        record(
            ("u", ["int", "long", "string", "float", "double", uuid]),
            ("w", ["null", "float", "double"]),
            ("x", ["long", "int"]),
        )
    )
    members = [
        {"member0": 5},
        {"member1": 5},
        {"member2": "t"},
        {"member3": 0.5},
        {"member4": 0.5},
        {"member5": "00010203-0405-0607-0809-0a0b0c0d0e0f"},
    ]
    rows = [
        {"u": member, "w": w, "x": x}
        for member, w, x in zip(members, [0.1, None] * 3, [2**40, 1] * 3, strict=True)
    ]
    there_and_back("AVRO", text, rows)


# --- JSON ---------------------------------------------------------------------------------------------------

OPEN = {
    "type": "object",
    "properties": {
        "must": {"type": ["string", "null"]},
        "may": {"type": ["string", "null"]},
        "only": {"type": "string"},
        "any": {},
        "map": {"type": "object", "additionalProperties": {"type": ["integer", "null"]}},
        "both": {
            "allOf": [{"properties": {"a": {"type": ["string", "null"]}}}, {"properties": {"b": {}}}],
            "required": ["a"],
        },
        "number": {"type": "number"},
    },
    "required": ["must"],
}


def test_a_null_is_written_where_the_property_is_required() -> None:
    bodies, bad = encoded(
        Reader("JSON", json.dumps(OPEN)), [{"must": None, "may": None, "both": {"a": None, "b": None}}]
    )
    assert bad == [None]
    assert json.loads(bodies[0] or b"") == {"must": None, "both": {"a": None}}


def test_what_is_kept_as_json_text_is_written_as_what_it_says() -> None:
    row = {
        "must": "m",
        "any": '{"x":[1,null,"y"]}',
        "map": [("k", None), ("l", 1)],
        "both": {"a": "x", "b": "5"},
    }
    bodies, _ = encoded(Reader("JSON", json.dumps(OPEN)), [row])
    assert json.loads(bodies[0] or b"") == {
        "must": "m",
        "any": {"x": [1, None, "y"]},
        "map": {"k": None, "l": 1},
        "both": {"a": "x", "b": 5},
    }
    there_and_back(
        "JSON", json.dumps(OPEN), [row, {"must": None, "any": '"text"'}, {"must": "", "any": "[]"}]
    )
    there_and_back("JSON", "{}", ['{"a":1}', "5"])


def test_values_that_json_cannot_be_are_refused() -> None:
    rows = [
        {"must": "m", "any": "no json"},
        {"must": "m", "number": float("nan")},
        {"must": "m", "map": [("k", 1), ("k", 2)]},
        {"must": "m", "any": '{"x": NaN}'},
        {"must": "m", "number": 1.5},
    ]
    bodies, bad = encoded(Reader("JSON", json.dumps(OPEN)), rows)
    assert [body is None for body in bodies] == [True] * 4 + [False]
    assert (
        "any is not JSON text" in bad[0]["error"]
        and "nan" in bad[1]["error"]
        and "duplicate" in bad[2]["error"]
    )
    assert json.loads(bad[2]["data"])["map"] == [["k", 1], ["k", 2]]


# --- Protobuf -----------------------------------------------------------------------------------------------

PROTO = """syntax = "proto3";
import "google/protobuf/duration.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/wrappers.proto";
message M {
  uint64 big = 1;
  google.protobuf.UInt64Value maybe = 2;
  google.protobuf.Value value = 3;
  google.protobuf.Struct object = 4;
  google.protobuf.FieldMask mask = 5;
  map<uint64, N> parts = 6;
  repeated google.protobuf.Value values = 7;
  google.protobuf.Duration lasts = 8;
}
message N { fixed64 f = 1; google.protobuf.Struct s = 2; }
"""


def test_protobuf_with_unsigned_numbers_and_json_text() -> None:
    row = {
        "big": 2**64 - 1,
        "maybe": 5,
        "value": '{"a": "b"}',
        "object": '{"x": null}',
        "mask": '"a,b"',
        "parts": [(2**63, {"f": 7, "s": '{"y": true}'})],
        "values": ["1.5", '"text"'],
        "lasts": datetime.timedelta(seconds=1.5),
    }
    empty = {"big": 0, "parts": [], "values": []}
    there_and_back("PROTOBUF", PROTO, [row, empty])


def test_text_that_is_no_json_does_not_become_a_value() -> None:
    bodies, bad = encoded(Reader("PROTOBUF", PROTO), [{"value": "no json"}])
    assert bodies == [None] and "value is not JSON text" in bad[0]["error"]


# --- what Python does not have ------------------------------------------------------------------------------


def test_a_time_after_all_calendars_is_refused_alone() -> None:
    reader = Reader("AVRO", json.dumps(record(("t", {"type": "long", "logicalType": "timestamp-micros"}))))
    bodies, bad = encoded(reader, [{"t": 1}, {"t": 2**62}])
    assert bodies[0] == b"\x02" and bodies[1] is None
    assert "does not fit" in bad[1]["error"]
    values = pa.array([{"t": 2**62}], input_type(reader))
    with pytest.raises(PipelineError, match="does not fit its schema"):
        BatchEncoder(Writing(NOWHERE, 1, reader)).encode(values)
