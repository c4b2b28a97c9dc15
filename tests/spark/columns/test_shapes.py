"""Frames, JSON and Protobuf bodies on plain Arrow arrays."""

import datetime
import json
import uuid
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.serdes import RegisteredSchema
from millstream.serdes.bodies import ProtobufBody
from millstream.serdes.frame import with_id
from millstream.spark.columns.avro.types import Unsuitable
from millstream.spark.columns.framing import NULL, UNFRAMED, frames
from millstream.spark.columns.json_schema import JsonDecoder
from millstream.spark.columns.json_shape import JsonShape
from millstream.spark.columns.protobuf import ProtobufDecoder, arrow_type, message_of
from tests.support.effort import examples

from .bodies import packed

GUID = uuid.UUID("12345678-1234-5678-1234-567812345678")

# --- frames -------------------------------------------------------------------------------------------------


def test_ids_guids_nulls_and_what_is_none_of_them() -> None:
    values = [
        with_id(7, b"seven"),
        None,
        b"",
        b"\x00\x01",
        b"text!",
        with_id(2**31, b""),
        b"\x01" + GUID.bytes + b"g",
        b"\x01abcdef",
    ]
    cut = frames(pa.array(values, pa.binary()))
    assert cut.schema.tolist() == [7, NULL, UNFRAMED, UNFRAMED, UNFRAMED, 2**31, -10, UNFRAMED]
    assert cut.schema_id(-10) == str(GUID)
    bodies = [cut.data[start:end].tobytes() for start, end in zip(cut.starts, cut.ends, strict=True)]
    assert (bodies[0], bodies[5], bodies[6]) == (b"seven", b"", b"g")


def test_slices_and_large_arrays() -> None:
    values = pa.array([b"x", with_id(3, b"a"), with_id(4, b"b")], pa.large_binary()).slice(1)
    assert frames(values).schema.tolist() == [3, 4]
    assert frames(pa.array([], pa.binary())).schema.tolist() == []
    assert frames(pa.array([None], pa.binary())).schema.tolist() == [NULL]


def test_headers_name_the_schema() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    name = "__value_schema_id"
    headers = pa.array(
        [
            [{"key": "other", "value": b"x"}, {"key": name, "value": b"\x01" + GUID.bytes}],
            None,
            [{"key": name, "value": b"\x00\x00\x00\x00\x09"}],
            [{"key": name, "value": b"nonsense"}],
        ],
        kind,
    )
    values = pa.array([b"whole", with_id(5, b"rest"), b"\x00\x00\x00\x00\x01x", with_id(6, b"")], pa.binary())
    cut = frames(values, headers)
    assert cut.schema.tolist() == [-10, 5, 9, 6]
    assert cut.data[cut.starts[0] : cut.ends[0]].tobytes() == b"whole"
    assert cut.data[cut.starts[2] : cut.ends[2]].tobytes() == b"\x00\x00\x00\x00\x01x"
    assert frames(values, headers, key=True).schema.tolist() == [UNFRAMED, 5, 1, 6]


# --- JSON ---------------------------------------------------------------------------------------------------

ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": "number"},
        "note": {"type": ["string", "null"]},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
    },
    "definitions": {"line": {"type": "object", "properties": {"sku": {"type": "string"}}}},
}


def decode_json(schema: Any, bodies: list[bytes]) -> Any:
    return JsonDecoder(JsonShape(json.dumps(schema))).decode(*packed(bodies))


def test_json_in_one_go_and_one_by_one_agree() -> None:
    rows = [{"id": n, "price": n / 2, "note": None, "lines": [{"sku": "a"}]} for n in range(3)]
    bodies = [json.dumps(row).encode() for row in rows]
    assert decode_json(ORDER, bodies).array.to_pylist() == rows
    pretty = [json.dumps(row, indent=1).encode() for row in rows]
    assert decode_json(ORDER, pretty).array.to_pylist() == rows


def test_bad_json_costs_only_its_own_row() -> None:
    bodies = [
        b'{"id": 1}',
        b"{",
        b'{"id": "one"}',
        b"[]",
        b'{"id": 2, "more": {}}',
        b'{"id": 3}{"id": 4}',
        b"",
    ]
    decoded = decode_json(ORDER, bodies)
    found = decoded.array.to_pylist()
    assert [row and row["id"] for row in found] == [1, None, None, None, 2, None, None]
    assert sorted(decoded.bad) == [1, 2, 3, 5, 6]
    assert decoded.bad[2] == "id is not a int64"


@pytest.mark.parametrize(
    ("bodies", "ids"),
    [
        ([b"null"], [None]),  # Arrow's reader does not survive it
        ([b'{"id": 1}', b"null"], [1, None]),
        ([b'{"id": 1}{"id": 2}', b"", b'{"id": 3}'], [None, None, 3]),
        ([b'{"x": ', b'{"y": 2}}', b'{"id": 1}{"id": 2}'], [None, None, None]),
        ([b'{"id": 1}{"id": 2}', b'{"id": 3}\0}', b'{"id": 4}'], [None, None, 4]),
        ([b'{"id": 1}', b'{"id": 2, "note": "\xff"}', b'{"id": 3}'], [1, None, 3]),
        ([b'{"id": 1}', b'{"id": 2, "other": "\xff"}'], [1, None]),
        ([b' {"id": 1}', b'{"id": 2} '], [1, 2]),
    ],
)
def test_no_body_takes_from_its_neighbours(bodies: list[bytes], ids: list[int | None]) -> None:
    """What makes lines of several objects, or of none, out of a batch: every row is its own body's, or is
    bad."""
    decoded = decode_json(ORDER, bodies)
    decoded.array.validate(full=True)
    assert [row and row["id"] for row in decoded.array.to_pylist()] == ids
    assert sorted(decoded.bad) == [row for row, one in enumerate(ids) if one is None]


PIECES = [
    b'{"id": 1}',
    b'{"id": ',
    b'{"x": ',
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b"1",
    b"null",
    b",",
    b":",
    b" ",
    b"\n",
    b"\r",
    b"\0",
]
PIECES += [
    b'"note": "',
    b"\xff",
    b"\xc3\xa9",
    b"\\u00e9",
    b"\\udc00",
    b'"price": 1e3',
    b'{"id": 2, "note": "n"}',
]


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=5).map(b"".join), min_size=1, max_size=6))
@settings(max_examples=examples(400), deadline=None)
def test_a_batch_is_decoded_as_its_bodies_are_alone(bodies: list[bytes]) -> None:
    decoded = decode_json(ORDER, bodies)
    decoded.array.validate(full=True)
    decoder = JsonDecoder(JsonShape(json.dumps(ORDER)))
    alone = [decoder._one_by_one(*packed([body])) for body in bodies]  # not by Arrow's reader
    assert decoded.array.to_pylist() == [one.array.to_pylist()[0] for one in alone]
    assert set(decoded.bad) == {row for row, one in enumerate(alone) if one.bad}


def test_null_is_a_value_only_where_the_schema_allows_it() -> None:
    properties = {"id": {"type": "integer"}}
    maybe = {"anyOf": [{"type": "null"}, {"type": "object", "properties": properties}]}
    for schema in (
        {"type": ["object", "null"], "properties": properties},
        maybe,
        {"$ref": "#/definitions/m", "definitions": {"m": maybe}},
        {},
    ):
        assert decode_json(schema, [b"null"]).bad == {}
    for schema in ({"properties": properties}, {"type": "integer"}, {"enum": ["a"]}, {"allOf": [ORDER]}):
        assert "null" in decode_json(schema, [b"null"]).bad[0]


def test_open_fields_lose_nothing_or_are_bad() -> None:
    schema = {"type": "object", "properties": {"any": {}, "id": {"type": "integer"}}}
    deep = "[" * 300 + "]" * 300
    texts = [deep, "[1]", "[123456789012345678901234567890,-98765432109876543210]", '"é 1234567890123456789"']
    bodies = [f'{{"any":{text},"id":7}}' for text in texts]
    decoded = decode_json(schema, [body.encode() for body in bodies])
    assert decoded.array.to_pylist() == [{"any": text, "id": 7} for text in texts]
    assert decoded.bad == {}
    too_much = [
        b'{"any": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"any": [1234567890123456789, NaN]}',
        b'{"any": [1234567890123456789, 1e999]}',
        b'{"any": [1234567890123456789, "\xff"]}',
        b'{"any": [1234567890123456789, "\\ud800"]}',
        b'{"id": 12345678901234567890}',
        b'{"id": 1, "any": 1234567890123456789}{"id": 2}',
    ]
    decoded = decode_json(schema, [*too_much, b'{"id": 1}'])
    assert decoded.array.to_pylist() == [None] * len(too_much) + [{"any": None, "id": 1}]
    assert sorted(decoded.bad) == list(range(len(too_much)))


def test_what_a_json_schema_leaves_open_is_text() -> None:
    schema = {
        "type": "object",
        "properties": {
            "any": {},
            "either": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            "maybe": {"anyOf": [{"type": "null"}, {"type": "integer", "connect.type": "int32"}]},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
            "both": {
                "allOf": [
                    {"properties": {"a": {"type": "string"}}},
                    {"properties": {"b": {"type": "boolean"}}},
                ]
            },
            "self": {"$ref": "#"},
        },
    }
    shape = JsonShape(json.dumps(schema))
    assert shape.type.field("maybe").type == pa.int32()
    body = {
        "any": [1, {"x": None}],
        "either": 5,
        "maybe": 3,
        "map": {"k": 1},
        "both": {"a": "x", "b": True},
        "self": {"any": 1},
    }
    decoded = JsonDecoder(shape).decode(*packed([json.dumps(body).encode()]))
    assert decoded.array.to_pylist(maps_as_pydicts="strict") == [
        {**body, "any": '[1,{"x":null}]', "either": "5", "self": '{"any":1}'}
    ]


# --- Protobuf -----------------------------------------------------------------------------------------------

PROTO = """syntax = "proto3";
package plant;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Level { LOW = 0; HIGH = 1; }
message Other { string x = 1; }
message Event {
  string id = 1;
  uint32 small = 2;
  uint64 big = 3;
  Level level = 4;
  repeated int32 numbers = 5;
  map<string, Part> parts = 6;
  Part main = 7;
  optional string note = 8;
  google.protobuf.Timestamp at = 9;
  google.protobuf.Int32Value count = 10;
  message Part { string sku = 1; double price = 2; }
}
"""
NEWER = PROTO.replace("message Other", "message First { int32 n = 1; }\nmessage Other").replace(
    "optional string note = 8;", "optional string note = 8; string added = 11;"
)


def proto(text: str) -> ProtobufBody:
    return ProtobufBody(RegisteredSchema(1, "PROTOBUF", text))


def test_protobuf_values_and_evolution() -> None:
    writer, reader = proto(PROTO), proto(NEWER)
    writer.path = writer.path_to("plant.Event")
    moment = datetime.datetime(2026, 11, 15, 23, 0, tzinfo=datetime.UTC)
    full = {
        "id": "e1",
        "small": 2**32 - 1,
        "big": 2**64 - 1,
        "level": "HIGH",
        "numbers": [1, 2],
        "parts": {"a": {"sku": "s", "price": 1.5}},
        "main": {"sku": "m"},
        "note": "n",
        "at": moment,
        "count": 0,
    }
    bodies = [writer.encode(full), writer.encode({}), b"\x02\x02\xff", b"\x00\x0a\x01x", b"\x02\x63"]
    decoder = ProtobufDecoder(writer, message_of(reader, "Event"))
    decoded = decoder.decode(*packed(bodies))
    first, second, *rest = decoded.array.to_pylist(maps_as_pydicts="strict")
    assert first == {**full, "main": {"sku": "m", "price": 0.0}, "added": "", "big": 2**64 - 1}
    assert second == {
        **{"id": "", "small": 0, "big": 0, "level": "LOW", "numbers": [], "parts": {}, "main": None},
        **{"note": None, "at": None, "count": None, "added": ""},
    }
    assert rest == [None, None, None]
    assert sorted(decoded.bad) == [2, 3, 4]
    assert decoded.bad[3] == "the message is a plant.Other, not a plant.Event"


WELL_KNOWN = """syntax = "proto3";
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
message M {
  int32 n = 1;
  google.protobuf.Timestamp at = 2;
  google.protobuf.Duration lasts = 3;
  google.protobuf.Any any = 4;
  google.protobuf.Value value = 5;
  google.protobuf.FieldMask mask = 6;
  repeated google.protobuf.Timestamp times = 7;
}
message Known { string x = 1; }
"""


def test_protobuf_values_that_are_none_cost_only_their_own_row() -> None:
    body = proto(WELL_KNOWN)
    make = message_of(body, "M")
    messages = [make(n=n) for n in range(9)]
    messages[1].at.seconds = 10**15
    messages[2].lasts.seconds = 10**17
    messages[3].lasts.seconds = 10**13  # a timedelta, but no 64 bits of microseconds
    messages[5].value.number_value = float("inf")
    messages[6].mask.paths.append("upperCase")
    messages[7].times.add().seconds = -(10**12)
    bodies = [b"\0" + one.SerializeToString() for one in messages]
    decoded = ProtobufDecoder(body, make).decode(*packed(bodies))
    assert [row and row["n"] for row in decoded.array.to_pylist()] == [0, *[None] * 3, 4, *[None] * 3, 8]
    assert sorted(decoded.bad) == [1, 2, 3, 5, 6, 7]
    assert decoded.bad[1] == "a Timestamp is out of range"


def test_an_any_of_an_unknown_type_keeps_its_bytes() -> None:
    body = proto(WELL_KNOWN)
    make = message_of(body, "M")
    unknown, known, empty = make(), make(), make()
    unknown.any.type_url, unknown.any.value = "type.googleapis.com/far.Away", b"\xff\0"
    known.any.type_url, known.any.value = "type.googleapis.com/Known", b"\x0a\x01z"
    empty.any.SetInParent()
    bodies = [b"\0" + one.SerializeToString() for one in (unknown, known, empty)]
    decoded = ProtobufDecoder(body, make).decode(*packed(bodies))
    assert decoded.bad == {}
    assert [json.loads(row["any"]) for row in decoded.array.to_pylist()] == [
        {"@type": "type.googleapis.com/far.Away", "value": "/wA="},
        {"@type": "type.googleapis.com/Known", "x": "z"},
        {},
    ]


def test_text_of_proto2_that_is_not_utf8_is_bad() -> None:
    body = proto('syntax = "proto2"; message S { optional string s = 1; }')
    bodies = [b"\0\x0a\x01x", b"\0\x0a\x01\xff"]
    decoded = ProtobufDecoder(body, message_of(body, None)).decode(*packed(bodies))
    assert decoded.array.to_pylist() == [{"s": "x"}, None]
    assert list(decoded.bad) == [1]


def test_protobuf_that_cannot_be_a_column() -> None:
    body = proto('syntax = "proto3"; message Tree { int32 n = 1; Tree left = 2; }')
    with pytest.raises(Unsuitable, match="Tree contains itself"):
        arrow_type(message_of(body, None).DESCRIPTOR)
    with pytest.raises(Unsuitable, match="no message Nothing"):
        message_of(body, "Nothing")
