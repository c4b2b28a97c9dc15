"""Avro: what is a schema, its canonical and normal form, compatibility beyond the vectors."""

import json
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.schemas import InvalidSchema, Reference, parse
from tests.support.effort import examples


def canonical(schema: Any) -> str:
    return parse("AVRO", schema if isinstance(schema, str) else json.dumps(schema)).canonical


def problems(new: Any, old: Any) -> list[str]:
    return parse("AVRO", json.dumps(new)).problems_reading(parse("AVRO", json.dumps(old)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"type": "string"}', '"string"'),
        ('"int"', '"int"'),
        ("int", '"int"'),
        ('["null", "int"]', '["null","int"]'),
        (
            '{"type":"bytes","logicalType":"decimal","precision":4}',
            '{"type":"bytes","logicalType":"decimal","precision":4}',
        ),
        (
            '{"name":"R","fields":[{"type":"int","name":"a","default":1}],"namespace":"n","doc":"d","type":"record","aliases":["Q"],"x":1}',
            '{"type":"record","name":"R","namespace":"n","doc":"d","fields":[{"name":"a","type":"int","default":1}],"x":1,"aliases":["Q"]}',
        ),
        (
            '{"type":"record","name":"n.R","fields":[{"name":"next","type":["null","n.R"]}]}',
            '{"type":"record","name":"R","namespace":"n","fields":[{"name":"next","type":["null","R"]}]}',
        ),
        (
            '{"type":"enum","name":"E","symbols":["A","B"],"default":"A"}',
            '{"type":"enum","name":"E","symbols":["A","B"],"default":"A"}',
        ),
        (
            '{"type":"record","name":"R","fields":[{"name":"d","type":"double","default":1e10},{"name":"o","type":"int","order":"descending"}]}',
            '{"type":"record","name":"R","fields":[{"name":"d","type":"double","default":1.0E10},{"name":"o","type":"int","order":"descending"}]}',
        ),
    ],
)
def test_canonical_form(text: str, expected: str) -> None:
    assert canonical(text) == expected
    assert canonical(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "12",
        '"unknown"',
        '{"type":"record","name":"R"}',
        '{"type":"record","fields":[]}',
        '{"type":"record","name":"R-1","fields":[]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"nope"}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"x"}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":3000000000}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":["null","int"],"default":"x"}]}',
        '{"type":"enum","name":"E","symbols":["A","A"]}',
        '{"type":"enum","name":"E","symbols":["A"],"default":"B"}',
        '{"type":"fixed","name":"F"}',
        '{"type":"array"}',
        '["int","int"]',
        '["int",["string"]]',
        '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"record","name":"R","fields":[]}}]}',
        "[" * 100_000,
    ],
)
def test_what_is_no_schema(text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse("AVRO", text, new=True)


def test_an_old_schema_with_a_bad_default_can_still_be_read() -> None:
    text = '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"x"}]}'
    assert parse("AVRO", text).canonical == text


def test_normal_form_forgets_order_and_spelling() -> None:
    first = parse(
        "AVRO",
        '{"type":"record","name":"R","namespace":"n","b":1,"a":2,"fields":[{"name":"x","type":{"type":"int"}}]}',
    )
    second = parse(
        "AVRO",
        '{"a":2,"b":1,"fields":[{"type":"int","name":"x","order":"ascending"}],"name":"n.R","type":"record"}',
    )
    assert first.canonical != second.canonical
    assert first.normalized().canonical == second.normalized().canonical
    assert first.normalized().normalized().canonical == first.normalized().canonical


def test_types_of_references_are_only_named() -> None:
    address = '{"type":"record","name":"Address","namespace":"n","fields":[{"name":"city","type":"string"}]}'
    person = '{"type":"record","name":"Person","namespace":"n","fields":[{"name":"a","type":"Address"}]}'
    schema = parse("AVRO", person, [Reference("n.Address", "address", 1)], {"n.Address": address})
    assert schema.canonical == person
    resolved = json.loads(schema.formatted("resolved"))
    assert resolved["fields"][0]["type"]["fields"][0]["name"] == "city"
    with pytest.raises(InvalidSchema):
        parse("AVRO", person)


NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"]}, {"name": "v", "type": "int"}],
}


def test_recursive_types() -> None:
    wider = json.loads(json.dumps(NODE).replace('"int"', '"long"'))
    assert problems(wider, NODE) == []
    assert "TYPE_MISMATCH" in problems(NODE, wider)[0]


def test_aliases_of_types_and_fields() -> None:
    old = {"type": "record", "name": "Old", "namespace": "n", "fields": [{"name": "a", "type": "int"}]}
    new = {
        "type": "record",
        "name": "New",
        "namespace": "n",
        "aliases": ["Old"],
        "fields": [{"name": "b", "aliases": ["a"], "type": "int"}],
    }
    assert problems(new, old) == []
    assert "NAME_MISMATCH" in problems({**new, "aliases": []}, old)[0]


def test_messages_say_where() -> None:
    old = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": {"type": "array", "items": "string"}}],
    }
    new = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": {"type": "array", "items": "int"}}],
    }
    [message] = problems(new, old)
    assert "/fields/0/type/items" in message and "STRING" in message


# Schemas and values at random: where we say that data can be read, fastavro can read it.

names = st.sampled_from(["a", "b", "c"])
simple = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "string", "bytes"])


def types() -> st.SearchStrategy[Any]:
    return st.recursive(
        simple,
        lambda inner: st.one_of(
            st.builds(lambda items: {"type": "array", "items": items}, inner),
            st.builds(lambda values: {"type": "map", "values": values}, inner),
            st.lists(simple, min_size=1, max_size=3, unique=True),
        ),
        max_leaves=3,
    )


DEFAULTS = {
    "null": None,
    "boolean": True,
    "int": 1,
    "long": 2,
    "float": 1.5,
    "double": 2.5,
    "string": "x",
    "bytes": "y",
}


@st.composite
def records(draw: Any) -> dict[str, Any]:
    fields = []
    for name in draw(st.lists(names, unique=True, min_size=1, max_size=3)):
        kind = draw(types())
        one: dict[str, Any] = {"name": name, "type": kind}
        first = kind[0] if isinstance(kind, list) else kind
        if isinstance(first, str) and draw(st.booleans()):
            one["default"] = DEFAULTS[first]
        fields.append(one)
    return {"type": "record", "name": "R", "fields": fields}


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(old=records(), new=records())
def test_readable_means_readable(old: dict[str, Any], new: dict[str, Any]) -> None:
    import io

    from fastavro.utils import generate_one

    if problems(new, old):
        return
    writer, reader = fastavro.parse_schema(old), fastavro.parse_schema(new)
    for _ in range(3):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, writer, generate_one(writer))
        buffer.seek(0)
        try:
            fastavro.schemaless_reader(buffer, writer, reader)
        except UnicodeDecodeError:
            pass  # bytes read as a string: the rules allow it, the bytes may not


@pytest.mark.parametrize(
    ("namespace", "name", "named"), [("", "str", "str"), ("a.b", "str", "a.b.str"), ("a.b", "c.str", "c.str")]
)
def test_a_type_that_is_not_there_is_named_in_full(namespace: str, name: str, named: str) -> None:
    text = {"type": "record", "name": "R", "namespace": namespace, "fields": [{"name": "f", "type": name}]}
    with pytest.raises(InvalidSchema, match=f"^Undefined schema: {named}$"):
        parse("AVRO", json.dumps(text), [], {})
