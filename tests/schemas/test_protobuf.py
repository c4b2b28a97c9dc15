"""Protobuf: what is a schema, its canonical and normal form, descriptors, compatibility beyond the
vectors."""

import base64
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from millstream.schemas import InvalidSchema, Reference, parse
from millstream.schemas.protobuf import ProtobufSchema

FULL = """
// A comment.
syntax = "proto3";
package shop.orders; /* another */

import "google/protobuf/timestamp.proto";
import public "google/protobuf/any.proto";

option java_package = "org.shop";
option optimize_for = SPEED;
option (custom).part = { a: 1, b: "x" c: [true, false] };

message Order {
  reserved 100, 200 to 299, "gone";
  option deprecated = true;
  string id = 1 [json_name = "ID", (checked) = true];
  repeated .shop.orders.Order.Line lines = 2 [deprecated = true];
  map<string, Money> prices = 3;
  optional int32 count = 4;
  google.protobuf.Timestamp at = 5;
  oneof payment {
    string card = 6;
    Money cash = 7;
  }
  enum State { option allow_alias = true; NEW = 0; FRESH = 0; DONE = 1 [deprecated = true]; }
  message Line { string sku = 1; State state = 2; }
}
message Money { sint64 cents = 1; bytes note = 2; }
enum Empty { NONE = 0; }
service Shop {
  rpc Buy (Order) returns (stream Money);
  rpc Sell (stream Order) returns (Money) { option deprecated = true; }
}
"""

CANONICAL = """syntax = "proto3";
package shop.orders;

import "google/protobuf/timestamp.proto";
import public "google/protobuf/any.proto";

option java_package = "org.shop";
option optimize_for = SPEED;
option (custom).part = {
  a: 1,
  b: "x",
  c: [
    true,
    false
  ]
};

message Order {
  reserved 100, 200 to 299, "gone";

  option deprecated = true;

  string id = 1 [
    (checked) = true,
    json_name = "ID"
  ];
  repeated .shop.orders.Order.Line lines = 2 [deprecated = true];
  map<string, Money> prices = 3;
  optional int32 count = 4;
  google.protobuf.Timestamp at = 5;

  oneof payment {
    string card = 6;
    Money cash = 7;
  }

  message Line {
    string sku = 1;
    State state = 2;
  }
  enum State {
    option allow_alias = true;
    NEW = 0;
    FRESH = 0;
    DONE = 1 [deprecated = true];
  }
}
message Money {
  sint64 cents = 1;
  bytes note = 2;
}
enum Empty {
  NONE = 0;
}

service Shop {
  rpc Buy (Order) returns (stream Money);
  rpc Sell (stream Order) returns (Money) {
    option deprecated = true;
  };
}
"""


def schema(text: str, **resolved: str) -> ProtobufSchema:
    references = [Reference(name, name, 1) for name in resolved]
    parsed = parse("PROTOBUF", text, references, resolved, new=True)
    assert isinstance(parsed, ProtobufSchema)
    return parsed


def proto3(body: str) -> str:
    return f'syntax = "proto3";\n{body}'


def test_canonical_form() -> None:
    assert schema(FULL).canonical == CANONICAL
    assert schema(CANONICAL).canonical == CANONICAL


def test_normal_form() -> None:
    first = schema(
        proto3(
            "message M { int32 b = 2; string a = 1; N n = 3; message N {} } enum E { B = 1; A = 0; }".replace(
                "B = 1; A = 0", "A = 0; B = 1"
            )
        )
    )
    second = schema(
        proto3("message M { string a = 1; .M.N n = 3; int32 b = 2; message N {} } enum E { A = 0; B = 1; }")
    )
    assert first.canonical != second.canonical
    assert first.normalized().canonical == second.normalized().canonical
    assert ".M.N n = 3" in first.normalized().canonical
    full = schema(FULL).normalized()
    assert full.normalized().canonical == full.canonical
    assert "map<string, .shop.orders.Money> prices = 3" in full.canonical


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        proto3("message M {"),
        proto3("message M { string a = 1 }"),
        proto3("message M { string a = 1; string b = 1; }"),
        proto3("message M { string a = 1; string a = 2; }"),
        proto3("message M { string a = 0; }"),
        proto3("message M { string a = 19001; }"),
        proto3("message M { Unknown a = 1; }"),
        proto3("message M {} message M {}"),
        proto3("enum E { A = 1; }"),
        proto3('import "nowhere.proto"; message M {}'),
        'syntax = "proto9"; message M {}',
        proto3("message M { oneof o { repeated string a = 1; } }"),
        proto3("message M { map<Unknown, string> a = 1; }"),
        proto3("message M {" * 1000),
        "%%%",
    ],
)
def test_what_is_no_schema(text: str) -> None:
    with pytest.raises(InvalidSchema):
        schema(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        'message M { required string a = 1 [default = "x"]; optional group G = 2 { optional int32 b = 3; '
        "} extensions 100 to max; }",
        'syntax = "proto2"; import "google/protobuf/descriptor.proto"; extend '
        "google.protobuf.FieldOptions { optional bool mark = 50000; } message M { optional int32 a = 1 "
        "[(mark) = true]; }",
        'edition = "2023"; message M { string a = 1 [features.field_presence = IMPLICIT]; }',
        proto3(
            'import "confluent/meta.proto"; import "confluent/type/decimal.proto"; message M { '
            'confluent.type.Decimal d = 1 [(confluent.field_meta) = { doc: "x" params: [ { key: "scale" '
            'value: "2" } ] }]; }'
        ),
        proto3('import "google/type/money.proto"; message M { google.type.Money m = 1; }'),
        proto3(
            "message message { string string = 1; int32 option = 2; bool reserved = 3; } enum enum { "
            "enum_A = 0; }"
        ),
    ],
)
def test_what_is_a_schema(text: str) -> None:
    parsed = schema(text)
    assert schema(parsed.canonical).canonical == parsed.canonical


def test_descriptors_go_both_ways() -> None:
    parsed = schema(FULL)
    encoded = parsed.formatted("serialized")
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(encoded))
    order = file.message_type[0]
    assert file.package == "shop.orders"
    assert [one.name for one in order.field] == ["id", "lines", "prices", "count", "at", "card", "cash"]
    assert order.field[1].type_name == ".shop.orders.Order.Line"
    assert order.nested_type[0].options.map_entry
    assert [one.name for one in order.oneof_decl] == ["payment", "_count"]
    again = schema(encoded)
    assert again.problems_reading(parsed) == []
    assert parsed.problems_reading(again) == []
    assert schema(again.canonical).canonical == again.canonical


def test_in_normal_form_all_options_of_a_field_are_in_order() -> None:
    text = (
        'syntax = "proto2"; message M { optional bool f = 1 '
        '[retention = RETENTION_SOURCE, json_name = "g", deprecated = true, default = false]; }'
    )
    lines = [line.strip(" ,") for line in schema(text).normalized().canonical.splitlines()]
    options = ["default = false", "deprecated = true", 'json_name = "g"', "retention = RETENTION_SOURCE"]
    assert lines[3 : 3 + len(options)] == options, lines


CUSTOM = """
import "confluent/meta.proto";
import "google/protobuf/descriptor.proto";
option (confluent.file_meta) = { doc: "a \\"file\\"" params: [ { key: "k" value: "v" } ] };
extend google.protobuf.FieldOptions { repeated string mark = 50001; int32 weight = 50002; }
message M {
  option (confluent.message_meta).doc = "ö";
  string f = 1 [(confluent.field_meta).tags = "PII", (confluent.field_meta).tags = "X",
    (mark) = "a", (mark) = "b", (.weight) = -3, (unknown) = 1];
  map<string, int32> counts = 2 [(confluent.field_meta) = { tags: ["T"] }];
  oneof o { string g = 3 [deprecated = true, (confluent.field_meta).doc = "g"]; }
  enum E { Z = 0 [(confluent.enum_value_meta).doc = "z"]; }
  message Inner { string h = 1 [(confluent.field_meta) = { rules: [ { name: "r" expr: "true" } ] }]; }
}
"""


def test_custom_options_are_in_descriptors() -> None:
    encoded = schema(proto3(CUSTOM)).formatted("serialized")
    text = schema(encoded).canonical
    for line in (
        'doc: "a \\"file\\""',
        'key: "k"',
        'doc: "ö"',
        '"PII"',
        '"T"',
        'doc: "g"',
        'doc: "z"',
        'expr: "true"',
    ):
        assert line in text, text
    # Those of other files are fields that a reader without them does not know: numbers 50001 and 50002.
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(encoded))
    options = file.message_type[0].field[0].options.SerializeToString()
    assert b"\x8a\xb5\x18\x01a\x8a\xb5\x18\x01b" in options and b"\x90\xb5\x18\xfd\xff" in options
    assert schema(schema(text).formatted("serialized")).canonical == text


def test_strictly_a_type_comes_from_an_import() -> None:
    other = proto3("message Other { string s = 1; }")
    reference = Reference("other.proto", "other", 1)
    public = proto3('import public "other.proto";')
    resolved = {"other.proto": other, "public.proto": public}

    def using(imports: str) -> ProtobufSchema:
        text = proto3(f"{imports} message M {{ map<string, Other> others = 1; }}")
        return ProtobufSchema(text, [reference], resolved)

    using('import "other.proto";').validate(strict=True)
    using('import "public.proto";').validate(strict=True)
    using("").validate()
    with pytest.raises(InvalidSchema, match="Other"):
        using("").validate(strict=True)


def test_descriptors_are_those_of_protoc(tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools is not installed")
    text = """syntax = "proto3"; package a.b; import "google/protobuf/timestamp.proto";
    message M { string s = 1 [deprecated = true]; repeated int32 n = 2 [packed = false];
      map<string, N> m = 3; optional bool o = 4;
      google.protobuf.Timestamp t = 5; oneof u { N x = 6; E e = 7; } N.Deep deep = 8;
        reserved 20, 30 to 40, 50 to max; reserved "old";
      message N { Deep d = 1; message Deep { M up = 1; } } enum E { A = 0; B = 5; reserved 2 to 4; } }
    enum Top { option allow_alias = true; Z = 0; Y = 0; NEGATIVE = -1; }
    service S { rpc One (M) returns (stream M.N); }
    """
    (tmp_path / "f.proto").write_text(text)
    include = Path(protoc.__file__).parent / "_proto"
    arguments = ["", f"-I{tmp_path}", f"-I{include}", f"-o{tmp_path / 'out'}", "f.proto"]
    assert protoc.main(arguments) == 0
    [expected] = descriptor_pb2.FileDescriptorSet.FromString((tmp_path / "out").read_bytes()).file
    made = schema(text).descriptor("f.proto")

    def plain(message: descriptor_pb2.DescriptorProto) -> None:
        for field in message.field:
            field.ClearField("json_name")
        # protoc has map entries where the map's field is, we have them before the other nested types
        ordered = sorted(message.nested_type, key=lambda one: one.name)
        del message.nested_type[:]
        message.nested_type.extend(ordered)
        for nested in message.nested_type:
            plain(nested)

    for file in (expected, made):
        for message in file.message_type:
            plain(message)
            fields = sorted(message.field, key=lambda one: one.number)
            del message.field[:]
            message.field.extend(fields)
    assert made == expected


def test_imports_by_reference() -> None:
    user = proto3('import "common.proto"; package app; message User { common.Name name = 1; }')
    common = proto3("package common; message Name { string first = 1; string last = 2; }")
    parsed = schema(user, **{"common.proto": common})
    assert parsed.descriptor().message_type[0].field[0].type_name == ".common.Name"
    changed = proto3("package common; message Name { int32 first = 1; string last = 2; }")
    newer = parse("PROTOBUF", user, [Reference("common.proto", "common", 2)], {"common.proto": changed})
    older = parse("PROTOBUF", user, [Reference("common.proto", "common", 1)], {"common.proto": common})
    kinds = " ".join(newer.problems_reading(older))
    assert "FIELD_SCALAR_KIND_CHANGED" in kinds and "FIELD_NAMED_TYPE_CHANGED" in kinds


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("message A { string a = 1; } message B {}", "message A { string a = 1; }", "MESSAGE_REMOVED"),
        ("message A { string a = 1; } enum E { X = 0; }", "message A { string a = 1; }", None),
        ("message A { string a = 1; string b = 2; }", "message A { string a = 1; }", None),
        ("message A { string a = 1; }", "message A { string renamed = 1; }", None),
        ("message A { int32 a = 1; }", "message A { bool a = 1; }", None),
        ("message A { int32 a = 1; }", "message A { fixed32 a = 1; }", "FIELD_SCALAR_KIND_CHANGED"),
        (
            "message A { int32 a = 1; int32 b = 2; }",
            "message A { oneof o { int32 a = 1; int32 b = 2; } }",
            "MULTIPLE_FIELDS_MOVED_TO_ONEOF",
        ),
        (
            "message A { map<string, int32> a = 1; }",
            "message A { map<string, string> a = 1; }",
            "FIELD_SCALAR_KIND_CHANGED",
        ),
        ("message A { map<string, int32> a = 1; }", "message A { map<string, int64> a = 1; }", None),
        ("message A { map<string, int32> a = 1; }", "message A { string a = 1; }", "FIELD_KIND_CHANGED"),
        (
            "message A { N a = 1; message N { int32 x = 1; } }",
            "message A { N a = 1; message N { string x = 1; } }",
            "FIELD_SCALAR_KIND_CHANGED",
        ),
        ("message A { A a = 1; int32 x = 2; }", "message A { A a = 1; int64 x = 2; }", None),
    ],
)
def test_rules(old: str, new: str, kind: str | None) -> None:
    found = schema(proto3(new)).problems_reading(schema(proto3(old)))
    assert (found == []) if kind is None else (kind in found[0])


def test_required_fields() -> None:
    without = schema("message A { optional int32 a = 1; }")
    with_required = schema("message A { optional int32 a = 1; required int32 b = 2; }")
    assert "REQUIRED_FIELD_ADDED" in with_required.problems_reading(without)[0]
    assert "REQUIRED_FIELD_REMOVED" in without.problems_reading(with_required)[0]
