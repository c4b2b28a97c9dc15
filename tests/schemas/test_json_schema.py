"""JSON Schema: what is a schema, its forms, references, compatibility beyond the vectors."""

import json
from typing import Any

import pytest

from millstream.schemas import InvalidSchema, Reference, parse
from millstream.schemas.json_schema import JsonSchema


def schema(value: Any, **resolved: str) -> JsonSchema:
    references = [Reference(name, name, 1) for name in resolved]
    parsed = parse("JSON", json.dumps(value), references, resolved, new=True)
    assert isinstance(parsed, JsonSchema)
    return parsed


def problems(new: Any, old: Any, **how: bool) -> list[str]:
    return schema(new).problems_reading(schema(old), **how)


def test_forms() -> None:
    parsed = parse(
        "JSON", ' {"type": "object", "properties": {"b": {"type": "number", "minimum": 1.50}, "a": true}} '
    )
    assert parsed.canonical == '{"type":"object","properties":{"b":{"type":"number","minimum":1.5},"a":true}}'
    assert (
        parsed.normalized().canonical
        == '{"properties":{"a":true,"b":{"minimum":1.5,"type":"number"}},"type":"object"}'
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "12",
        "[]",
        "null",
        '{"type": "nothing"}',
        '{"type": 1}',
        '{"properties": []}',
        '{"required": "a"}',
        '{"minLength": "x"}',
        '{"multipleOf": 0}',
        '{"$ref": "#/definitions/none"}',
        '{"$ref": "http://example.com/other.json"}',
        '{"$ref": "#anchor"}',
        '{"allOf": {}}',
        '{"a": NaN}',
        '{"x": ' * 5000,
        '{"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": "#/$defs/none"}',
    ],
)
def test_what_is_no_schema(text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse("JSON", text, new=True)


def test_names_that_confluent_reserves() -> None:
    reserved = parse("JSON", '{"properties": {"$$x": {}}}', new=True)
    with pytest.raises(InvalidSchema, match=r"\$\$x"):
        reserved.validate(strict=True)


@pytest.mark.parametrize(
    "value",
    [
        True,
        {},
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "id": "x",
            "minimum": 1,
            "exclusiveMinimum": True,
        },
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "if": {"type": "string"},
            "then": {"minLength": 1},
        },
        {
            "$schema": "https://json-schema.org/draft/2019-09/schema",
            "items": [{"type": "string"}],
            "additionalItems": False,
        },
        {"$ref": "http://json-schema.org/draft-07/schema#"},
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$ref": "https://json-schema.org/draft/2020-12/schema",
        },
        {
            "$id": "http://x.org/root.json",
            "properties": {"a": {"$ref": "#/$defs/b"}},
            "definitions": {"b": {"type": "string"}},
        },
        {
            "properties": {"a": {"$ref": "item.json"}},
            "definitions": {"i": {"$id": "item.json", "type": "string"}},
        },
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$ref": "#here",
            "$defs": {"b": {"$anchor": "here"}},
        },
        {"properties": {"self": {"$ref": "#"}}},
    ],
)
def test_what_is_a_schema(value: Any) -> None:
    assert problems(value, value) == []


DRAFTS = [
    {},
    {"$schema": "http://json-schema.org/draft-07/schema#"},
    {"$schema": "https://json-schema.org/draft/2019-09/schema"},
    {"$schema": "https://json-schema.org/draft/2020-12/schema"},
]


@pytest.mark.parametrize("draft", DRAFTS, ids=["none", "7", "2019", "2020"])
class TestRules:
    def test_open_and_closed(self, draft: dict[str, Any]) -> None:
        one = {**draft, "type": "object", "properties": {"a": {"type": "string"}}}
        two = {**draft, "type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
        closed = {"additionalProperties": False}
        assert "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL" in problems(two, one)[0]
        assert problems(two, one, lenient=True) == []
        assert problems(one, two) == []
        assert problems({**two, **closed}, {**one, **closed}) == []
        assert (
            "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL" in problems({**one, **closed}, {**two, **closed})[0]
        )

    def test_required(self, draft: dict[str, Any]) -> None:
        old = {
            **draft,
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "additionalProperties": False,
        }
        new = {**old, "properties": {**old["properties"], "b": {"type": "string"}}, "required": ["b"]}
        assert "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL" in problems(new, old)[0]
        new["properties"]["b"]["default"] = "x"
        assert problems(new, old) == []

    def test_several_types(self, draft: dict[str, Any]) -> None:
        old = {**draft, "type": "string", "maxLength": 3}
        new = {**draft, "type": ["string", "null"], "maxLength": 3}
        assert problems(new, old) == []
        assert problems(old, new) != []

    def test_type_and_enum(self, draft: dict[str, Any]) -> None:
        old = {**draft, "type": "string", "enum": ["a"]}
        assert problems({**old, "enum": ["a", "b"]}, old) == []
        assert problems(old, {**old, "enum": ["a", "b"]}) != []

    def test_recursion(self, draft: dict[str, Any]) -> None:
        def tree(kind: str) -> dict[str, Any]:
            child = {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/tree"}]}
            node = {
                "type": "object",
                "properties": {"v": {"type": kind}, "l": child, "r": child},
                "additionalProperties": False,
            }
            return {**draft, "$ref": "#/definitions/tree", "definitions": {"tree": node}}

        assert problems(tree("number"), tree("integer")) == []
        assert problems(tree("integer"), tree("number")) != []

    def test_formats_and_annotations_do_not_matter(self, draft: dict[str, Any]) -> None:
        old = {**draft, "type": "string", "title": "a", "description": "b", "format": "date"}
        assert problems({**draft, "type": "string"}, old) == []


def test_references_by_name() -> None:
    person = {"type": "object", "properties": {"address": {"$ref": "address.json"}}}
    kept = schema(
        person, **{"address.json": '{"type": "object", "properties": {"city": {"type": "string"}}}'}
    )
    changed = schema(
        person, **{"address.json": '{"type": "object", "properties": {"city": {"type": "number"}}}'}
    )
    assert kept.problems_reading(kept) == []
    assert "TYPE_CHANGED" in changed.problems_reading(kept)[0]


def test_a_matching_is_found_whatever_the_order() -> None:
    # Greedy pairing would give the number to the integer's place.
    old = {"oneOf": [{"type": "integer"}, {"type": "number"}]}
    new = {"oneOf": [{"type": "number"}, {"type": "number", "minimum": 0}, {"type": "number", "title": "x"}]}
    assert problems(new, old) == []


def test_schemas_that_would_take_for_ever_are_refused() -> None:
    names = [f"d{number}" for number in range(60)]
    choice = {"oneOf": [{"$ref": f"#/definitions/{name}"} for name in names]}
    definitions = {name: {"type": "object", "properties": {name: choice, "x": choice}} for name in names}
    tangled = {**choice, "definitions": definitions}
    with pytest.raises(InvalidSchema, match="compared"):
        problems({**tangled, "title": "new"}, tangled)


def test_a_pattern_that_cannot_be_run_in_linear_time_does_no_harm() -> None:
    old = {
        "properties": {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!": {"type": "string"}},
        "additionalProperties": False,
    }
    new = {"patternProperties": {"^(a+)+$": {"type": "string"}}, "additionalProperties": False}
    assert problems(new, old) != []
