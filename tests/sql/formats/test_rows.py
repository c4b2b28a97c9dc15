"""Rows there and back in every format, and what each format makes of null."""

from __future__ import annotations

import pickle
from decimal import Decimal
from typing import Any

import pytest

from millstream.sql.errors import SqlError
from millstream.sql.formats import FORMATS, DoesNotFit, format_of, row_serde, windowed_key
from millstream.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    SqlType,
    array_type,
    decimal_type,
    map_type,
    struct_type,
)
from millstream.streams.windows import Window, Windowed
from tests.sql.formats.registry_stub import MemoryRegistry

FLAT: tuple[tuple[str, SqlType], ...] = (
    ("I", INTEGER),
    ("L", BIGINT),
    ("D", DOUBLE),
    ("X", decimal_type(5, 2)),
    ("S", STRING),
    ("B", BYTES),
    ("OK", BOOLEAN),
    ("DAY", DATE),
    ("CLOCK", TIME),
    ("AT", TIMESTAMP),
)
FLAT_ROW = (-7, 1 << 40, 1.5, Decimal("-12.30"), 'a "b", c', b"\x00\xff", True, -3, 86_399_999, -1)
NESTED = (
    *FLAT,
    ("A", array_type(INTEGER)),
    ("M", map_type(STRING, decimal_type(5, 2))),
    ("R", struct_type(("F", STRING), ("G", array_type(struct_type(("H", DATE)))))),
)
NESTED_ROW = (
    *FLAT_ROW,
    [1, 2],
    {"k": Decimal("1.00")},
    {"F": "x", "G": [{"H": 3}]},
)
WITH_NESTED = sorted(set(FORMATS) - {"DELIMITED", "KAFKA", "NONE"})


@pytest.mark.parametrize("name", WITH_NESTED)
def test_every_type_survives(name: str) -> None:
    serde = row_serde(format_of(name), NESTED, registry=MemoryRegistry())
    data = serde.write("t", NESTED_ROW)
    assert serde.read("t", data) == NESTED_ROW


def test_delimited_rows() -> None:
    serde = row_serde(format_of("DELIMITED"), FLAT)
    data = serde.write("t", FLAT_ROW)
    assert data == b'"-7",1099511627776,1.5,-12.30,"a ""b"", c",AP8=,true,-3,86399999,-1'
    assert serde.read("t", data) == FLAT_ROW


@pytest.mark.parametrize(
    ("type_", "value", "data"),
    [
        (INTEGER, 5, b"\0\0\0\5"),
        (BIGINT, 5, b"\0\0\0\0\0\0\0\5"),
        (DOUBLE, 1.0, b"\x3f\xf0\0\0\0\0\0\0"),
        (STRING, "é", "é".encode()),
        (BYTES, b"\1", b"\1"),
    ],
)
def test_kafka_rows_are_those_of_kafkas_serializers(type_: SqlType, value: Any, data: bytes) -> None:
    serde = row_serde(format_of("KAFKA"), (("C", type_),), is_key=True)
    assert serde.write("t", (value,)) == data
    assert serde.read("t", data) == (value,)
    assert serde.write("t", (None,)) is None


@pytest.mark.parametrize("name", ["AVRO", "JSON", "JSON_SR"])
def test_nulls_stay_null(name: str) -> None:
    serde = row_serde(format_of(name), NESTED, registry=MemoryRegistry())
    row = (None,) * len(NESTED)
    assert serde.read("t", serde.write("t", row)) == row


@pytest.mark.parametrize("name", ["PROTOBUF", "PROTOBUF_NOSR"])
def test_protobuf_has_no_null_unless_it_is_told_how(name: str) -> None:
    columns = (("I", INTEGER), ("S", STRING), ("A", array_type(INTEGER)), ("AT", TIMESTAMP))
    for nullable, expected in ((None, (0, "", [], None)), ("optional", (None, None, [], None))):
        properties = {} if nullable is None else {"nullableRepresentation": nullable}
        serde = row_serde(format_of(name, properties), columns, registry=MemoryRegistry())
        assert serde.read("t", serde.write("t", (None,) * 4)) == expected
    wrapped = row_serde(
        format_of(name, {"nullableRepresentation": "wrapper"}), columns, registry=MemoryRegistry()
    )
    assert wrapped.read("t", wrapped.write("t", (0, None, [1], 5))) == (0, None, [1], 5)


@pytest.mark.parametrize("name", ["AVRO", "JSON", "JSON_SR"])
def test_single_values_without_a_wrapper(name: str) -> None:
    serde = row_serde(
        format_of(name), (("C", array_type(INTEGER)),), unwrapped=True, registry=MemoryRegistry()
    )
    data = serde.write("t", ([1, None],))
    assert serde.read("t", data) == ([1, None],)
    assert serde.write("t", (None,)) is None


def test_keys_of_one_column_stand_for_themselves() -> None:
    assert row_serde(format_of("JSON"), (("K", INTEGER),), is_key=True).write("t", (1,)) == b"1"
    two = row_serde(format_of("JSON"), (("K", INTEGER), ("L", STRING)), is_key=True)
    assert two.write("t", (1, "x")) == b'{"K":1,"L":"x"}'


def test_windowed_keys_are_those_of_kafka_streams() -> None:
    key = row_serde(format_of("KAFKA"), (("K", STRING),), is_key=True)
    tumbling, session = windowed_key(key, 10), windowed_key(key, None)
    data = tumbling.write("t", Windowed(("a",), Window(20, 30)))
    assert data == b"a" + (20).to_bytes(8, "big")
    assert tumbling.read("t", data) == Windowed(("a",), Window(20, 30))
    data = session.write("t", Windowed(("a",), Window(20, 37)))
    assert data == b"a" + (37).to_bytes(8, "big") + (20).to_bytes(8, "big")


def test_a_serde_goes_to_another_process() -> None:
    for name in WITH_NESTED:
        serde = row_serde(format_of(name), NESTED, registry=None if name == "JSON" else MemoryRegistry())
        copy = pickle.loads(pickle.dumps(serde))  # noqa: S301  # our own
        assert copy.read("t", copy.write("t", NESTED_ROW)) == NESTED_ROW


def test_none_is_nothing() -> None:
    serde = row_serde(format_of("NONE"), (), is_key=True)
    assert serde.write("t", ()) is None
    assert serde.read("t", b"whatever") is None


# JSON -------------------------------------------------------------------------------------------------------


def _json(columns: tuple[tuple[str, SqlType], ...], text: str) -> Any:
    return row_serde(format_of("JSON"), columns).read("t", text.encode())


def test_fields_are_found_without_regard_to_case_exact_names_first() -> None:
    columns = (("A", INTEGER), ("b", INTEGER))
    assert _json(columns, '{"a":1,"b":2}') == (1, 2)
    assert _json(columns, '{"a":1,"A":3,"B":2}') == (3, None)


@pytest.mark.parametrize(
    ("type_", "text", "expected"),
    [
        (INTEGER, '"12"', 12),
        (INTEGER, "1.9", 1),
        (INTEGER, "2147483648", -2147483648),
        (BIGINT, '"-5"', -5),
        (DOUBLE, "1", 1.0),
        (DOUBLE, '"1e3"', 1000.0),
        (STRING, "1.10", "1.10"),
        (STRING, "true", "true"),
        (STRING, '{"x": [1, 2.50]}', '{"x":[1,2.50]}'),
        (STRING, '[1, null, "a"]', "[1, null, a]"),
        (decimal_type(4, 2), "1.1", Decimal("1.10")),
        (decimal_type(4, 2), '"1.1"', Decimal("1.10")),
        (BYTES, '"AP8="', b"\x00\xff"),
        (TIMESTAMP, '"17"', 17),
        (struct_type(("F", INTEGER)), '{"f": 1, "g": 2}', {"F": 1}),
        (map_type(STRING, DOUBLE), '{"f": 1, "g": null}', {"f": 1.0, "g": None}),
    ],
)
def test_json_values_are_converted(type_: SqlType, text: str, expected: Any) -> None:
    assert _json((("C", type_),), f'{{"c": {text}}}') == (expected,)


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (INTEGER, "true"),
        (INTEGER, '"1.5"'),
        (INTEGER, '" 1"'),
        (BOOLEAN, '"true"'),
        (DOUBLE, '"x"'),
        (decimal_type(4, 2), "1.111"),
        (decimal_type(4, 2), "100"),
        (BYTES, '"?"'),
        (TIME, "86400001"),
        (array_type(INTEGER), "{}"),
        (map_type(STRING, INTEGER), "[]"),
        (struct_type(("F", INTEGER)), "1"),
    ],
)
def test_json_values_that_do_not_fit(type_: SqlType, text: str) -> None:
    with pytest.raises(DoesNotFit):
        _json((("C", type_),), f'{{"c": {text}}}')


@pytest.mark.parametrize("text", ["", "{", "1", "null", "[1]", '{"A": NaN}'])
def test_what_is_no_json_row(text: str) -> None:
    with pytest.raises(DoesNotFit):
        _json((("A", DOUBLE),), text)


def test_what_does_not_fit_is_named_by_its_path() -> None:
    columns = (("S", struct_type(("F", array_type(struct_type(("G", INTEGER)))))),)
    serde = row_serde(format_of("JSON"), columns)
    with pytest.raises(DoesNotFit, match=r"requiredType: INTEGER, path: \$\.S\.F\.G$"):
        serde.read("t", b'{"S": {"F": [{"G": true}]}}')


@pytest.mark.parametrize("type_", [INTEGER, decimal_type(3, 1)])
def test_json_reads_what_has_a_schema_id_in_front(type_: SqlType) -> None:
    header = b"\0\0\0\1\xff"
    serde = row_serde(format_of("JSON"), (("A", type_), ("S", STRING)))
    assert serde.read("t", header + b'{"a": 1, "s": "x"}') == (1, "x")
    assert serde.read("t", header + b'{"A": 1, "S": 1.50}') == (1, "1.50")
    key = row_serde(format_of("JSON"), (("A", type_),), is_key=True)
    assert key.read("t", header + b"7") == (7,)
    for wrong in (header, header * 1000, header[:3], header + b"{"):
        with pytest.raises(DoesNotFit):
            serde.read("t", wrong)


def test_json_has_no_infinity_so_it_is_text() -> None:
    serde = row_serde(format_of("JSON"), (("A", DOUBLE), ("B", array_type(DOUBLE))))
    row = (float("-inf"), [float("nan"), 2.5])
    assert serde.write("t", row) == b'{"A":"-Infinity","B":["NaN",2.5]}'


# DELIMITED ------------------------------------------------------------------------------------------------


def test_delimiters() -> None:
    columns = (("A", STRING), ("B", STRING))
    for name, delimiter in (("TAB", b"\t"), ("SPACE", b" "), ("$", b"$")):
        serde = row_serde(format_of("DELIMITED", {"delimiter": name}), columns)
        assert serde.write("t", ("x", "y")) == b"x" + delimiter + b"y"
        assert serde.read("t", b'"x' + delimiter + b'"' + delimiter + b"y") == ("x" + delimiter.decode(), "y")
    for bad in ("", "ab"):
        with pytest.raises(SqlError):
            format_of("DELIMITED", {"delimiter": bad})


def test_delimited_nulls_and_quotes() -> None:
    serde = row_serde(format_of("DELIMITED"), (("A", STRING), ("B", INTEGER), ("C", STRING)))
    assert serde.write("t", (None, None, None)) == b",,"
    assert serde.read("t", b",,") == (None, None, None)
    assert serde.write("t", ("", 1, "#x")) == b'"",1,"#x"'
    assert serde.read("t", b'"a\nb",+1,"c ""d"""') == ("a\nb", 1, 'c "d"')


@pytest.mark.parametrize("text", ["", "a", "a,b,c,d", "a,x,c", 'a,"1"x,c', 'a,"1,c'])
def test_what_is_no_delimited_row(text: str) -> None:
    serde = row_serde(format_of("DELIMITED"), (("A", STRING), ("B", INTEGER), ("C", STRING)))
    with pytest.raises(DoesNotFit):
        serde.read("t", text.encode())


# What a format cannot carry -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "columns", "is_key", "message"),
    [
        ("KAFKA", (("A", INTEGER), ("B", INTEGER)), False, "only supports a single field"),
        ("KAFKA", (("A", INTEGER), ("B", INTEGER)), True, "KEY_FORMAT='JSON'"),
        ("KAFKA", (("A", BOOLEAN),), False, "does not support type 'BOOLEAN'"),
        ("DELIMITED", (("A", array_type(INTEGER)),), False, "does not support type 'ARRAY', column: `A`"),
        ("NONE", (("A", INTEGER),), True, "can only be used when no columns are defined"),
        ("JSON", (("A", map_type(INTEGER, STRING)),), False, "JSON only supports MAP types with STRING keys"),
        ("JSON", (("A", map_type(STRING, STRING)),), True, "Map keys, including types that contain maps"),
    ],
)
def test_columns_that_a_format_refuses(
    name: str, columns: tuple[tuple[str, SqlType], ...], is_key: bool, message: str
) -> None:
    with pytest.raises(SqlError, match=message):
        row_serde(format_of(name), columns, is_key=is_key, registry=MemoryRegistry())


def test_formats_and_properties_that_do_not_exist() -> None:
    with pytest.raises(SqlError, match="Unknown format: CSV"):
        format_of("csv")
    with pytest.raises(SqlError, match=r"JSON does not support the following configs: \[delimiter\]"):
        format_of("JSON", {"delimiter": ","})
