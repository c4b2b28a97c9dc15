"""Tags inside of schemas: the paths to records and fields in each language, adding and removing."""

import json
from typing import Any

import pytest

from millstream.schemas import InvalidSchema, ParsedSchema, Reference, parse
from millstream.schemas.tags import Entity, EntityTags, tagged_entities, with_tags


def record(path: str, *tags: str) -> EntityTags:
    return EntityTags(Entity(path, True), tags)


def field(path: str, *tags: str) -> EntityTags:
    return EntityTags(Entity(path, False), tags)


def read(text: str, schema_type: str) -> ParsedSchema:
    return parse(schema_type, text, (), {})


def check_there_and_back(text: str, schema_type: str, entities: list[EntityTags]) -> None:
    """Tags that are added are found under the paths that they were added by, and can be removed again."""
    schema = read(text, schema_type)
    assert tagged_entities(schema) == []
    tagged = read(with_tags(schema, entities), schema_type)
    assert sorted(tagged_entities(tagged)) == sorted(entities)
    assert read(with_tags(tagged, remove=entities), schema_type).canonical == schema.canonical
    overlap = [EntityTags(one.entity, ("NEW", *one.tags)) for one in entities]
    changed = read(with_tags(tagged, overlap, entities), schema_type)
    assert {tags for _, tags in tagged_entities(changed)} == {("NEW",)}, "what is added is removed, not kept"


AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "int"},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": [
                    "null",
                    {
                        "type": "record",
                        "name": "Line",
                        "namespace": "shop.inner",
                        "fields": [
                            {"name": "sku", "type": "string"},
                            {"name": "parts", "type": {"type": "map", "values": "Line"}},
                        ],
                    },
                ],
            },
        },
        {"name": "first", "type": "shop.inner.Line"},
    ],
}


def test_avro() -> None:
    check_there_and_back(
        json.dumps(AVRO),
        "AVRO",
        [
            record("shop.Order", "ORDER"),
            field("shop.Order.id", "PUBLIC", "KEY"),
            record("shop.inner.Line", "LINE"),
            field("shop.inner.Line.sku", "PII"),
            field("shop.inner.Line.parts", "PII"),
            field("shop.Order.first", "PII"),
        ],
    )


def test_avro_without_the_namespace() -> None:
    tagged = with_tags(read(json.dumps(AVRO), "AVRO"), [field("Line.sku", "PII"), record(".Order", "A")])
    assert tagged_entities(read(tagged, "AVRO")) == [
        record("shop.Order", "A"),
        field("shop.inner.Line.sku", "PII"),
    ]


def test_avro_tags_of_a_referenced_schema_are_found() -> None:
    line = {
        "type": "record",
        "name": "Line",
        "fields": [{"name": "sku", "type": "string", "confluent:tags": ["PII"]}],
    }
    order = {"type": "record", "name": "Order", "fields": [{"name": "line", "type": "Line"}]}
    reference = Reference("Line", "line-value", 1)
    schema = parse("AVRO", json.dumps(order), (reference,), {"Line": json.dumps(line)})
    assert tagged_entities(schema) == [field("Line.sku", "PII")]


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


JSON_SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    **obj(
        list={"type": "array", "items": obj(name={"type": "string"}, size={"type": "number"})},
        union={"allOf": [{"type": "string"}, obj(yes={"type": "boolean"}, no={"type": "number"})]},
        never={"not": obj(inner={"type": "string"})},
        colour={"enum": ["red", "green"]},
        some={"type": ["null", "object"], "properties": {"deep": {"type": "string"}}},
        **{"with.dot": {"type": "string"}},
    ),
    "definitions": {"Address": obj(street={"type": "string"})},
}


def test_json_schema() -> None:
    check_there_and_back(
        json.dumps(JSON_SCHEMA),
        "JSON",
        [
            record("object", "ROOT"),
            record("object.list.array.object", "ROW"),
            field("object.list", "PII"),
            field("object.list.array.object.name", "PII"),
            # Objects come before strings, however they are written.
            record("object.union.allof.0.object", "ROW"),
            field("object.union.allof.0.object.no", "PII"),
            field("object.never.not.object.inner", "PII"),
            field("object.colour", "PII"),
            field("object.some.anyof.1.object.deep", "PII"),
            field("object.with.dot", "PII"),
            record("object.definitions.Address.object", "ADDRESS"),
            field("object.definitions.Address.object.street", "PII"),
        ],
    )


@pytest.mark.parametrize("draft", ["http://json-schema.org/draft-07/schema#", None])
def test_json_schema_with_conditions(draft: str | None) -> None:
    schema = {
        **obj(country={"type": "string"}),
        "if": {"properties": {"country": {"const": "US"}}},
        "then": {"properties": {"zip": {"pattern": "[0-9]{5}"}}},
        "else": {"properties": {"zip": {"pattern": "[A-Z]"}}},
    }
    if draft:
        schema["$schema"] = draft
    check_there_and_back(
        json.dumps(schema),
        "JSON",
        [
            field("allof.0.conditional.then.object.zip", "US"),
            field("allof.0.conditional.else.object.zip", "OTHER"),
            field("allof.1.object.country", "PII"),
        ],
    )


def test_json_schema_with_defs_and_circles() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **obj(next={"$ref": "#/$defs/Node"}, same={"oneOf": [{"$ref": "#"}, {"$ref": "#/$defs/Node"}]}),
        "$defs": {"Node": obj(value={"type": "string"}, next={"$ref": "#/$defs/Node"})},
    }
    check_there_and_back(
        json.dumps(schema),
        "JSON",
        [field("object.next", "LINK"), field("object.$defs.Node.object.value", "PII")],
    )


PROTO = """
syntax = "proto3";
package shop;
message Order {
  option (confluent.message_meta).doc = "an order";
  int32 id = 1;
  oneof payment {
    string iban = 2;
    string card = 3 [deprecated = true];
  }
  message Line {
    string sku = 1;
  }
}
enum Colour { RED = 0; }
"""


def test_protobuf() -> None:
    check_there_and_back(
        PROTO,
        "PROTOBUF",
        [
            field("Order.iban", "PII", "BANK"),
            field("Order.card", "PII"),
            field("Order.id", "KEY"),
            record("Order.Line", "ROW"),
            field("Order.Line.sku", "PII"),
        ],
    )


def test_protobuf_tags_join_what_the_options_say_already() -> None:
    tagged = with_tags(
        read(PROTO, "PROTOBUF"),
        [record(".Order", "A"), record("Order", "B"), field("Order.payment.iban", "PII")],
    )
    assert (
        """
  option (confluent.message_meta) = {
    doc: "an order",
    tags: [
      "A",
      "B"
    ]
  };
"""
        in tagged
    )
    assert (
        """
    string iban = 2 [(confluent.field_meta) = {
      tags: [
        "PII"
      ]
    }];
"""
        in tagged
    )


def test_protobuf_options_that_are_written_one_by_one() -> None:
    text = """
    syntax = "proto3";
    message M {
      string a = 1 [(confluent.field_meta).tags = "A", deprecated = true, (confluent.field_meta).tags = "B"];
    }
    """
    assert tagged_entities(read(text, "PROTOBUF")) == [field("M.a", "A", "B")]
    without = with_tags(read(text, "PROTOBUF"), remove=[field("M.a", "A", "B")])
    assert "confluent" not in without and "deprecated = true" in without


@pytest.mark.parametrize(
    ("text", "schema_type", "entity"),
    [
        (json.dumps(AVRO), "AVRO", record("shop.Nobody", "T")),
        (json.dumps(AVRO), "AVRO", record("other.Order", "T")),
        (json.dumps(AVRO), "AVRO", field("Order", "T")),
        (json.dumps(AVRO), "AVRO", field("Order.nothing", "T")),
        ('"string"', "AVRO", record("string", "T")),
        (json.dumps(JSON_SCHEMA), "JSON", record("object.list.not.object", "T")),
        (json.dumps(JSON_SCHEMA), "JSON", field("object", "T")),
        (json.dumps(JSON_SCHEMA), "JSON", field("object.union.allof.7.object.no", "T")),
        (json.dumps(JSON_SCHEMA), "JSON", field("object.union.allof.x", "T")),
        (json.dumps(JSON_SCHEMA), "JSON", field("what.ever", "T")),
        ("true", "JSON", record("object", "T")),
        (PROTO, "PROTOBUF", record("Nobody", "T")),
        (PROTO, "PROTOBUF", record("Colour", "T")),
        (PROTO, "PROTOBUF", field("Order", "T")),
        (PROTO, "PROTOBUF", field("Order.nothing", "T")),
        (PROTO, "PROTOBUF", field("Order.nowhere.iban", "T")),
        (PROTO, "PROTOBUF", field("Nobody.iban", "T")),
    ],
)
def test_a_path_that_leads_nowhere(text: str, schema_type: str, entity: EntityTags) -> None:
    with pytest.raises(InvalidSchema, match="No matching"):
        with_tags(read(text, schema_type), [entity])


def test_circles_of_alternatives_are_compared_in_no_time() -> None:
    """Each reference leads to two more: whoever follows them all never ends."""
    circle = {"anyOf": [{"$ref": "#/definitions/A"}, {"$ref": "#/definitions/B"}]}
    schema = {"definitions": {"A": circle, "B": circle}, **obj(a=circle), "type": "object"}
    tagged = with_tags(read(json.dumps(schema), "JSON"), [field("object.a", "PII")])
    assert tagged_entities(read(tagged, "JSON")) == [field("object.a", "PII")]
