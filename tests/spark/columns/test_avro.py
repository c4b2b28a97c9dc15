"""The compiled Avro decoder against fastavro, an independent implementation, and against bad bytes."""

import datetime
import decimal
import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.spark.columns.avro import AvroSchemas, arrow_type
from millstream.spark.columns.avro.program import Unresolvable
from millstream.spark.columns.avro.types import Unsuitable
from tests.support.effort import examples

from .bodies import avro_body, decode_avro, record

# --- any schema, any values: what fastavro writes, both read alike ------------------------------------------

LEAVES = st.sampled_from(["boolean", "int", "long", "float", "double", "string", "bytes", "enum", "fixed"])


@st.composite
def schemas(draw: Any, depth: int = 3, names: Any = None) -> Any:
    names = names if names is not None else iter(range(10_000))
    shape = draw(st.sampled_from(["leaf", "leaf", "record", "array", "map", "optional"])) if depth else "leaf"
    if shape == "leaf":
        kind = draw(LEAVES)
        if kind == "enum":
            return {"type": "enum", "name": f"E{next(names)}", "symbols": ["A", "B", "C"]}
        if kind == "fixed":
            return {"type": "fixed", "name": f"F{next(names)}", "size": draw(st.integers(1, 6))}
        return kind
    if shape == "record":
        fields = [
            {"name": f"f{n}", "type": draw(schemas(depth - 1, names))} for n in range(draw(st.integers(1, 4)))
        ]
        return {"type": "record", "name": f"R{next(names)}", "fields": fields}
    inner = draw(schemas(depth - 1, names))
    if shape == "array":
        return {"type": "array", "items": inner}
    if shape == "map":
        return {"type": "map", "values": inner}
    if isinstance(inner, list):
        return inner
    return draw(st.sampled_from([["null", inner], [inner, "null"]]))


def values(schema: Any) -> Any:
    if isinstance(schema, list):
        return st.none() | values(next(branch for branch in schema if branch != "null"))
    kind = schema if isinstance(schema, str) else schema["type"]
    return {
        "boolean": lambda: st.booleans(),
        "int": lambda: st.integers(-(2**31), 2**31 - 1),
        "long": lambda: st.integers(-(2**63), 2**63 - 1),
        "float": lambda: st.floats(width=32, allow_nan=False),
        "double": lambda: st.floats(allow_nan=False),
        "string": lambda: st.text(max_size=8),
        "bytes": lambda: st.binary(max_size=8),
        "enum": lambda: st.sampled_from(schema["symbols"]),
        "fixed": lambda: st.binary(min_size=schema["size"], max_size=schema["size"]),
        "record": lambda: st.fixed_dictionaries({f["name"]: values(f["type"]) for f in schema["fields"]}),
        "array": lambda: st.lists(values(schema["items"]), max_size=4),
        "map": lambda: st.dictionaries(st.text(max_size=4), values(schema["values"]), max_size=3),
    }[kind]()


@given(st.data())
@settings(max_examples=examples(150), deadline=None)
def test_reads_what_fastavro_writes(data: Any) -> None:
    schema = record(
        ("a", data.draw(schemas())), ("b", data.draw(schemas(2, iter(range(20_000, 30_000))))), name="Top"
    )
    rows = data.draw(st.lists(values(schema), min_size=1, max_size=6))
    decoded = decode_avro(schema, [avro_body(schema, row) for row in rows])
    assert decoded.bad == {}
    assert decoded.array.type == arrow_type(AvroSchemas.of(json.dumps(schema)))
    assert decoded.array.to_pylist(maps_as_pydicts="strict") == rows


@given(st.data())
@settings(max_examples=examples(150), deadline=None)
def test_skips_what_the_reader_does_not_want(data: Any) -> None:
    schema = record(("a", "long"), ("b", data.draw(schemas())), ("c", "string"))
    rows = data.draw(st.lists(values(schema), min_size=1, max_size=6))
    reader = record(("c", "string"), ("a", "double"))
    decoded = decode_avro(schema, [avro_body(schema, row) for row in rows], reader)
    assert decoded.array.to_pylist() == [{"c": row["c"], "a": float(row["a"])} for row in rows]


@given(st.data())
@settings(max_examples=examples(200), deadline=None)
def test_a_bad_body_costs_only_its_own_row(data: Any) -> None:
    """Cut, changed and random bodies between good ones: no crash, and the good rows come out unharmed."""
    schema = record(("a", data.draw(schemas())), ("b", "string"))
    good = data.draw(st.lists(values(schema), min_size=2, max_size=4))
    bodies = [avro_body(schema, row) for row in good]
    bad = (
        data.draw(st.binary(max_size=40))
        if data.draw(st.booleans())
        else bodies[0][: data.draw(st.integers(0, 30))]
    )
    decoded = decode_avro(schema, [bodies[0], bad, *bodies[1:]])
    found = decoded.array.to_pylist(maps_as_pydicts="strict") if not _repeats_keys(decoded.array) else None
    if found is not None:
        assert [found[0], *found[2:]] == good
    assert set(decoded.bad) <= {1}


def _repeats_keys(array: pa.Array) -> bool:
    """Random bytes may make a map with a key twice, which no dict can hold."""
    try:
        array.to_pylist(maps_as_pydicts="strict")
    except (KeyError, ValueError):
        return True
    return False


# --- resolution ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrote", "value", "reads", "expected"),
    [
        ("int", 7, "long", 7),
        ("int", 7, "float", 7.0),
        ("int", -7, "double", -7.0),
        ("long", 2**40, "double", float(2**40)),
        ("long", 5, "float", 5.0),
        ("float", 0.5, "double", 0.5),
        ("string", "x", "bytes", b"x"),
        ("bytes", b"x", "string", "x"),
        ("int", 7, ["null", "long"], 7),
        (["null", "int"], None, ["null", "long"], None),
        (["null", "int", "string"], "x", ["null", "string"], "x"),
        ({"type": "array", "items": "int"}, [1, 2], {"type": "array", "items": "long"}, [1, 2]),
    ],
)
def test_promotion(wrote: Any, value: Any, reads: Any, expected: Any) -> None:
    writer, reader = record(("a", wrote)), record(("a", reads))
    decoded = decode_avro(writer, [avro_body(writer, {"a": value})], reader)
    assert decoded.bad == {}
    assert decoded.array.to_pylist() == [{"a": expected}]


def test_fields_by_alias_defaults_and_enum_defaults() -> None:
    enum = {"type": "enum", "name": "E", "symbols": ["A", "B", "NEW"]}
    writer = record(("old", "int"), ("kind", enum))
    reader = record(
        ("new", "long", {"aliases": ["old"]}),
        ("kind", {"type": "enum", "name": "E", "symbols": ["OTHER", "B", "A"], "default": "OTHER"}),
        ("text", "string", {"default": "none"}),
        ("maybe", ["null", "int"], {"default": None}),
        ("raw", "bytes", {"default": "\u00ff"}),
        ("many", {"type": "map", "values": "double"}, {"default": {"x": 1}}),
        ("when", {"type": "long", "logicalType": "timestamp-millis"}, {"default": 1000}),
    )
    bodies = [avro_body(writer, {"old": n, "kind": kind}) for n, kind in enumerate(["A", "NEW"])]
    decoded = decode_avro(writer, bodies, reader)
    filled = {
        "text": "none",
        "maybe": None,
        "raw": b"\xff",
        "many": [("x", 1.0)],
        "when": datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC),
    }
    assert decoded.array.to_pylist() == [
        {"new": 0, "kind": "A", **filled},
        {"new": 1, "kind": "OTHER", **filled},
    ]


def test_what_cannot_be_resolved_says_which_field() -> None:
    writer = record(("a", "string"))
    with pytest.raises(Unresolvable, match="field 'a' was written as string and cannot be read as int"):
        decode_avro(writer, [], record(("a", "int")))
    with pytest.raises(Unresolvable, match="field 'b' was not written"):
        decode_avro(writer, [], record(("b", "int")))


def test_bad_rows_name_their_reason() -> None:
    writer = record(("a", ["null", "string"]), ("e", {"type": "enum", "name": "E", "symbols": ["A"]}))
    reader = record(("a", "string"), ("e", {"type": "enum", "name": "E", "symbols": ["A"]}))
    bodies = [
        b"\x02\x02x\x00",
        b"\x00\x00",
        b"\x02\x02x\x04",
        b"\x06",
        b"\x02\x7fx",
        b"\x02\x02x\x00\x00",
        b"\x02\x02\xff\x00",
    ]
    decoded = decode_avro(writer, bodies, reader)
    assert decoded.array.to_pylist() == [{"a": "x", "e": "A"}] + [None] * 6
    assert sorted(decoded.bad) == [1, 2, 3, 4, 5, 6]
    assert "null" in decoded.bad[1] and "enum" in decoded.bad[2] and "branch" in decoded.bad[3]
    assert "early" in decoded.bad[4] and "left over" in decoded.bad[5] and "UTF-8" in decoded.bad[6]


def test_an_absurd_count_is_refused_at_once() -> None:
    writer = record(("a", {"type": "array", "items": "null"}), ("b", {"type": "array", "items": "long"}))
    body = io.BytesIO()
    fastavro.schemaless_writer(body, {"type": "long", "name": "x"}, 2**61)
    reader = record(("b", {"type": "array", "items": "long"}))
    decoded = decode_avro(writer, [body.getvalue() + b"\0\0"], reader)
    assert list(decoded.bad) == [0]


def test_large_arrays_make_room() -> None:
    schema = record(("a", {"type": "array", "items": {"type": "map", "values": "int"}}))
    rows = [{"a": [{str(k): k for k in range(n % 7)} for n in range(500)]} for _ in range(3)]
    decoded = decode_avro(schema, [avro_body(schema, row) for row in rows])
    assert decoded.array.to_pylist(maps_as_pydicts="strict") == rows


# --- types --------------------------------------------------------------------------------------------------


def test_logical_types() -> None:
    schema = record(
        ("date", {"type": "int", "logicalType": "date"}),
        ("millis", {"type": "long", "logicalType": "timestamp-millis"}),
        ("micros", ["null", {"type": "long", "logicalType": "timestamp-micros"}]),
        ("local", {"type": "long", "logicalType": "local-timestamp-millis"}),
        ("money", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}),
        (
            "fixed",
            {"type": "fixed", "name": "D", "size": 20, "logicalType": "decimal", "precision": 10, "scale": 1},
        ),
        ("id", {"type": "string", "logicalType": "uuid"}),
        ("time", {"type": "int", "logicalType": "time-millis"}),
    )
    moment = datetime.datetime(2026, 11, 15, 23, 0, 1, 5000, tzinfo=datetime.UTC)
    raw = {
        "date": datetime.date(2026, 11, 15),
        "millis": moment,
        "micros": moment,
        "local": moment.replace(tzinfo=None),
        "money": decimal.Decimal("-123456789012345.67"),
        "fixed": decimal.Decimal("7.5"),
        "id": "12345678-1234-5678-1234-567812345678",
        "time": datetime.time(0, 0, 1),
    }
    decoded = decode_avro(schema, [avro_body(schema, raw)])
    assert decoded.bad == {}
    assert decoded.array.to_pylist() == [{**raw, "time": 1000}]


def test_unions_of_several_types_are_members() -> None:
    inner = record(("x", "int"), name="Inner")
    schema = record(("u", ["null", "int", "string", inner]))
    rows = [{"u": None}, {"u": 5}, {"u": "text"}, {"u": {"x": 1}}]
    decoded = decode_avro(schema, [avro_body(schema, row) for row in rows] + [b"\x63"])
    empty = {"member0": None, "member1": None, "member2": None}
    assert decoded.array.to_pylist() == [
        {"u": None},
        {"u": {**empty, "member0": 5}},
        {"u": {**empty, "member1": "text"}},
        {"u": {**empty, "member2": {"x": 1}}},
        None,
    ]
    assert list(decoded.bad) == [4]


@pytest.mark.parametrize(
    ("union", "kind", "values"),
    [
        (["int", "long"], pa.int64(), [5, 2**31, -(2**63)]),
        (["null", "int", "long"], pa.int64(), [None, 5, 2**40]),
        (["long", "null", "int"], pa.int64(), [None, 2**40]),
        (["float", "double"], pa.float64(), [0.1, 1e300]),
        (["null", "double", "float"], pa.float64(), [0.1, None]),
    ],
)
def test_a_union_of_two_sizes_of_number_is_the_larger(union: Any, kind: Any, values: Any) -> None:
    """As in Spark's from_avro."""
    schema = record(("u", union))
    decoded = decode_avro(schema, [avro_body(schema, {"u": value}) for value in values])
    assert decoded.bad == {}
    assert decoded.array.type.field("u").type == kind
    assert [row["u"] for row in decoded.array.to_pylist()] == values
    wider = record(("u", ["null", "long" if pa.types.is_integer(kind) else "double"]))
    again = decode_avro(schema, [avro_body(schema, {"u": value}) for value in values], wider)
    assert again.array.to_pylist() == decoded.array.to_pylist()


def test_such_a_union_holds_numbers_whatever_they_stand_for() -> None:
    day, moment = {"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-millis"}
    decoded = decode_avro(record(("u", [day, moment])), [b"\x00\x0a", b"\x02\x0a"])
    assert decoded.array.to_pylist() == [{"u": 5}, {"u": 5}]


def test_members_of_like_types_are_those_that_were_written() -> None:
    schema = record(("u", ["int", "long", "float", "double", "string"]))
    written = [("int", 5), ("long", 5), ("long", 2**40), ("float", 0.5), ("double", 0.5), ("double", 0.1)]
    decoded = decode_avro(schema, [avro_body(schema, {"u": one}) for one in [*written, ("string", "s")]])
    members = [{k: v for k, v in row["u"].items() if v is not None} for row in decoded.array.to_pylist()]
    position = {"int": "member0", "long": "member1", "float": "member2", "double": "member3"}
    assert members == [{position[kind]: value} for kind, value in written] + [{"member4": "s"}]


def test_members_hold_their_values_exactly_when_read_by_another_schema() -> None:
    writer = record(("u", ["long", "double", "string"]))
    reader = record(("u", ["null", "int", "long", "float", "double", "string"]))
    values = [2**40, 0.1, "s"]
    decoded = decode_avro(writer, [avro_body(writer, {"u": value}) for value in values], reader)
    assert decoded.bad == {}
    found = [[v for v in row["u"].values() if v is not None] for row in decoded.array.to_pylist()]
    assert found == [[value] for value in values]


def test_unions_are_read_as_strictly_as_everything_else() -> None:
    enum = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    schema = record(("u", ["int", "string"]), ("e", enum), ("n", {"type": "array", "items": ["int", "null"]}))
    good = b"\x00\x02\x00\x02\x00\x04\x00"
    bodies = [
        good,
        b"\x03" + good[1:],
        b"\x04" + good[1:],
        good[:2] + b"\x01" + good[3:],
        good + b"x",
        good[:-1],
        b"",
    ]
    decoded = decode_avro(schema, bodies)
    assert decoded.array.to_pylist() == [
        {"u": {"member0": 1, "member1": None}, "e": "A", "n": [2]},
        *[None] * 6,
    ]
    assert "branch" in decoded.bad[1] and "branch" in decoded.bad[2] and "symbol" in decoded.bad[3]
    assert "left over" in decoded.bad[4] and "early" in decoded.bad[5] and "early" in decoded.bad[6]


def test_logical_types_inside_unions() -> None:
    money = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
    schema = record(
        ("m", ["int", money]),
        ("u", ["int", {"type": "fixed", "size": 16, "name": "U", "logicalType": "uuid"}]),
        ("t", ["string", {"type": "long", "logicalType": "timestamp-millis"}]),
    )
    rest = b"\x02" + bytes(range(16)) + b"\x02\xd0\x0f"
    far = b"\x02" + bytes(16) + b"\x02" + b"\xfe" + b"\xff" * 8 + b"\x01"
    bodies = [
        b"\x02\x04\x30\x39" + rest,
        b"\x02\x06\x7f\xff\xff" + rest,
        b"\x00\x02" + rest,
        b"\x00\x02" + far,
    ]
    decoded = decode_avro(schema, bodies)
    first, _, third, _ = decoded.array.to_pylist()
    assert first["m"] == {"member0": None, "member1": decimal.Decimal("123.45")}
    assert first["u"]["member1"] == "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert first["t"]["member1"] == datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)
    assert third["m"] == {"member0": 1, "member1": None}
    assert decoded.bad == {1: "a decimal is longer than its type allows", 3: "a timestamp is out of range"}


def test_what_no_decimal_and_no_timestamp_can_be_is_bad() -> None:
    money = {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 0}
    schema = record(("m", money), ("t", {"type": "long", "logicalType": "timestamp-millis"}))
    bodies = [b"\x02\x01\x02", b"\x04\x7f\xff\x02", b"\x02\x01\xfe" + b"\xff" * 8 + b"\x01"]
    decoded = decode_avro(schema, bodies)
    assert [row and int(row["m"]) for row in decoded.array.to_pylist()] == [1, None, None]
    assert decoded.bad == {1: "a decimal is longer than its type allows", 2: "a timestamp is out of range"}


def test_a_type_that_contains_itself_is_refused_but_can_be_read_past() -> None:
    tree = record(("n", "int"), ("next", ["null", "Tree"]), name="Tree")
    with pytest.raises(Unsuitable, match="contains itself"):
        arrow_type(AvroSchemas.of(json.dumps(tree)))
    rows = [{"n": 1, "next": {"n": 2, "next": None}}]
    decoded = decode_avro(tree, [avro_body(tree, row) for row in rows], record(("n", "int"), name="Tree"))
    assert decoded.array.to_pylist() == [{"n": 1}]


def test_names_and_references() -> None:
    other = json.dumps(
        {"type": "record", "name": "Item", "namespace": "shop", "fields": [{"name": "id", "type": "int"}]}
    )
    text = json.dumps(
        {
            "type": "record",
            "name": "Order",
            "namespace": "shop",
            "fields": [
                {"name": "first", "type": "Item"},
                {"name": "rest", "type": {"type": "array", "items": "shop.Item"}},
            ],
        }
    )
    kind = arrow_type(AvroSchemas.of(text, {"item": other}))
    item = pa.struct([("id", pa.int32())])
    assert kind == pa.struct([("first", item), ("rest", pa.list_(pa.field("element", item)))])
