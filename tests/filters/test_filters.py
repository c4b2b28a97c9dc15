"""The expression language: what it means, what it says about mistakes, and that no input breaks it."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.filters import BadTime, FilterError, compile_filter, parse_time
from millstream.filters.syntax import DEEPEST, FUNCTIONS, LONGEST, OPERATORS, ROOTS
from millstream.filters.times import parse_duration
from tests.support.effort import examples


class Sample(NamedTuple):
    topic: str = "orders"
    partition: int = 3
    offset: int = 42
    timestamp: int = 1_767_225_600_000  # 2026-01-01T00:00Z
    key: Any = b"eu-17"
    value: Any = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


ORDER = {
    "status": "CRITICAL",
    "amount": 12.5,
    "count": 3,
    "paid": True,
    "note": None,
    "zip": "00501",
    "items": [{"name": "bell", "price": 7}, {"name": "frame", "price": 250}],
    "tags": ["new", "eu", 5],
    "odd name": "x",
    "in": {"or": 1},
}
RECORD = Sample(
    value=json.dumps(ORDER).encode(),
    headers=(("source", b"test"), ("trace-id", b"1"), ("source", b"live"), ("none", None)),
)

TRUE = [
    'value.status == "CRITICAL"',
    "value.status = 'CRITICAL'",
    'value.status != "OK"',
    "value.amount > 12 and value.amount < 13",
    "12 < value.amount && 13 >= value.amount",
    "value.count == 3 and value.count == 3.0 and value.count == '3'",
    "value.zip == 501",
    "value.zip == '00501'",
    "value.paid",
    "value.paid == true",
    "not value.paid == false",
    "!(value.paid == false)",
    "value.note == null",
    "value.missing == null",
    "value.missing != 1",
    "not exists(value.missing.deeper)",
    "exists(value.items[0].name)",
    'value.items[0].name == "bell"',
    "value.items[-1].price >= 250",
    "value.items[7] == null",
    'value["odd name"] == "x"',
    "value.in.or == 1",
    'value.status in ["CRITICAL", "BAD"]',
    'value.status not in ["OK"]',
    'value.count in [1, 2, 3] and value.count in ["3"]',
    '"eu" in value.tags and 5 in value.tags',
    'value.tags contains "new"',
    'value.tags not contains "old"',
    'value contains "CRITICAL"',
    'value.status startswith "CRIT" and value.status endswith "CAL"',
    'value.status matches "^CR.T"',
    "value.status not matches 'ok'",
    'value.amount matches "^12[.]5$"',
    "len(value.tags) == 3 and len(value.status) == 8 and len(value.items[0]) == 2",
    'lower(value.status) == "critical" and upper("a") == "A"',
    'number(value.zip) == 501 and number("x") == null',
    'text(value.paid) == "true"',
    'key == "eu-17" and key startswith "eu-" and key matches "[0-9]+$"',
    'headers.source == "live" and headers["trace-id"] == 1',
    "headers.none == null and headers.absent == null",
    'topic == "orders" and partition == 3 and offset >= 42',
    "timestamp == 1767225600000",
    'timestamp >= "2026-01-01T00:00Z" and timestamp < "2026-01-01T00:00:01Z"',
    '"2025-12-31" < timestamp',
    'timestamp < time("2026-01-02") and timestamp > ago("2d")',
    "offset == 42 or offset == 1",
    'value.status == "\\u0043RITICAL"',
    "value.count > -4 and value.count < 1e3",
]
FALSE = [
    'value.status == "OK"',
    "value.status > 5 or value.status < 5 or value.status == 5",
    "value.missing > 1 or value.missing < 1 or value.missing == 0",
    "value.paid == 1 or value.paid > 0",
    "value.note > 0",
    'value.missing contains "a" or value.missing matches ".*" or value.missing startswith ""',
    "value.items == 3",
    "value.status.deeper == null and false",
    'topic == "orders" and false',
]


@pytest.mark.parametrize("text", TRUE)
def test_true(text: str) -> None:
    assert compile_filter(text, now_ms=RECORD.timestamp + 3_600_000)(RECORD) is True


@pytest.mark.parametrize("text", FALSE)
def test_false(text: str) -> None:
    assert compile_filter(text)(RECORD) is False


def test_values_that_are_not_json() -> None:
    for raw in (b"plain text", b"\xff\x00", b"", b'{"a":', b"[" * 100_000, None, b"3", b"[1,2]"):
        record = Sample(value=raw)
        assert compile_filter("value.a == 1")(record) is False
        assert compile_filter("value.a == null")(record) is True
        assert compile_filter("exists(value)")(record) is (raw is not None)
    assert compile_filter('value == "plain text"')(Sample(value=b"plain text"))
    assert compile_filter("value > 2")(Sample(value=b"3"))
    assert compile_filter("value[1] == 2")(Sample(value=b"[1,2]"))
    assert compile_filter('value contains "\u00e9"')(Sample(value="caf\u00e9".encode()))


def test_values_that_were_decoded_before() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    record = Sample(value={"price": Decimal("9.5"), "raw": b"abc", "at": moment, "who": "ann"}, key=7)
    for text in (
        "value.price > 9 and value.price == 9.5",
        'value.raw == "abc" and value.raw contains "b"',
        'value.at startswith "2026-01-01"',
        'value.at == "2026-01-01T00:00:00+00:00"',
        'value contains "ann" and value matches "pri.e"',
        "key == 7",
    ):
        assert compile_filter(text)(record) is True, text


def test_own_decoders_are_asked_only_when_needed() -> None:
    asked = []

    def read(data: bytes) -> Any:
        asked.append(data)
        return {"n": len(data)}

    def refuse(data: bytes) -> Any:
        raise ValueError("no")

    assert compile_filter("value.n == 4 and value.n < 5", read_value=read)(Sample(value=b"four"))
    assert asked == [b"four"]
    assert not compile_filter("offset == 1 and value.n == 4", read_value=read)(Sample(value=b"four"))
    assert asked == [b"four"]
    assert compile_filter("key.n == null", read_key=refuse)(Sample())
    assert compile_filter('value.a == 1 or headers.b == "c"').uses == {"value", "headers"}


@pytest.mark.parametrize(
    ("text", "says", "position"),
    [
        ("", "the expression is empty", 0),
        ("   ", "the expression is empty", 0),
        ("value.", "a name is expected after the dot", 6),
        ("vaule.x == 1", "did you mean 'value'?", 0),
        ("status == 1", "value.status", 0),
        ("value.x == ", "ends too soon", 10),
        ('value.x == "abc', "no closing quote", 11),
        ("(value.x", "')' is expected here, not the end", 8),
        ("value.x == 1 == 2", "one comparison at a time", 13),
        ("value.x == 1 2", "'2' is not expected here", 13),
        ('key matches "("', "not a regular expression", 12),
        ("key matches value.x", "a regular expression in quotes", 4),
        ("headers == 1", "name one header", 0),
        ("headers.a.b == 1", "name one header", 0),
        ("offset.x == 1", "there is nothing inside offset", 0),
        ("eval(1)", "there is no function 'eval'", 0),
        ("exists(1)", "exists takes a field", 0),
        ("ago(5)", "ago takes a text", 0),
        ('ago("soon")', "not a length of time", 4),
        ('timestamp > "yesterday"', "is not a time", 12),
        ("value.x ~ 3", "'~' means nothing here", 8),
        ("value.x[1.5] == 1", "whole number", 8),
        ('"\\q" == key', "means nothing in text", 1),
        ("[value.x] == 1", "a list holds numbers and texts", 0),
        ("value.x in [1, [2]]", "a list holds numbers and texts", 11),
        ("and", "'and' is not expected here", 0),
        ("not", "ends too soon", 3),
        ("__import__('os')", "there is no function", 0),
        ("value.__class__.x()", "is not expected here", 17),
    ],
)
def test_mistakes(text: str, says: str, position: int) -> None:
    with pytest.raises(FilterError) as found:
        compile_filter(text)
    assert says in found.value.message
    assert found.value.position == position
    assert says in found.value.pointing()


def test_limits() -> None:
    for text in ("a" * (LONGEST + 1), "(" * (DEEPEST + 1) + "1", "not " * (DEEPEST + 1) + "1", "len(" * 100):
        with pytest.raises(FilterError):
            compile_filter(text)
    many = " or ".join(f"offset == {n}" for n in range(400))
    assert compile_filter(many)(Sample(offset=399))


def test_a_hard_regular_expression_takes_no_time() -> None:
    assert not compile_filter('value matches "(a+)+$"')(Sample(value=b"a" * 50_000 + b"!"))


# --- times --------------------------------------------------------------------------------------------------


def test_times() -> None:
    assert parse_time("2026-01-01T00:00Z") == 1_767_225_600_000
    assert parse_time("2026-01-01") == parse_time("2026-01-01T01:00+01:00") == 1_767_225_600_000
    assert parse_time("2026-01-01T00:00:00.250Z") == 1_767_225_600_250
    assert parse_time("1767225600000") == 1_767_225_600_000
    assert parse_time("-1h", 10_000_000) == 6_400_000
    assert parse_time("now", 5) == 5
    assert parse_duration("1h30m") == 5_400_000
    assert parse_duration("1.5s") == 1_500
    for bad in ("", "soon", "-", "-1y", "1h", "2026-13-01", "-1h-2m"):
        with pytest.raises(BadTime):
            parse_time(bad)


# --- any input ----------------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
records = st.builds(
    Sample,
    key=st.none() | st.binary(max_size=6) | st.sampled_from([b"1", b"abc", b"{}"]),
    value=st.none()
    | st.binary(max_size=8)
    | json_values.map(lambda tree: json.dumps(tree).encode())
    | json_values,
    headers=st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.binary(max_size=3)), max_size=3).map(
        tuple
    ),
)
literals = st.one_of(
    st.integers(-1000, 1000).map(str),
    st.floats(-1000, 1000).map(repr),
    st.text(max_size=4).map(json.dumps),
    st.sampled_from(["true", "false", "null", "[]", '[1, "a"]', '["a", "b"]']),
)
operands = st.one_of(
    literals,
    st.sampled_from(
        ["value", "key", "value.a", "value.a.b", "value[0]", "key.a", "headers.a", "partition", "offset"]
    ),
    st.sampled_from(["len(value.a)", "lower(value.b)", "number(key)", "text(value.a)", "exists(value.c)"]),
)
operators = st.sampled_from(
    ["==", "!=", "<", "<=", ">", ">=", "in", "contains", "startswith", "endswith", "not in"]
)
comparisons = st.builds("{} {} {}".format, operands, operators, operands)
expressions = st.recursive(
    comparisons | operands | st.builds('{} matches "a+|^[0-9]"'.format, operands),
    lambda inner: (
        st.builds("({}) and ({})".format, inner, inner)
        | st.builds("({}) or ({})".format, inner, inner)
        | st.builds("not ({})".format, inner)
    ),
    max_leaves=4,
)


@settings(max_examples=examples(300), deadline=None)
@given(expressions, records)
def test_every_expression_answers_yes_or_no_for_every_record(text: str, record: Sample) -> None:
    answer = compile_filter(text)(record)
    assert answer is True or answer is False
    assert compile_filter(f"not ({text})")(record) is not answer


@settings(max_examples=examples(300), deadline=None)
@given(operands, operands, records)
def test_comparisons_agree_with_each_other(a: str, b: str, record: Sample) -> None:
    def answer(operator: str, left: str = a, right: str = b) -> bool:
        return compile_filter(f"{left} {operator} {right}")(record)

    assert answer("==") is answer("==", b, a)
    assert answer("!=") is not answer("==")
    assert answer("<") is answer(">", b, a)
    assert answer("<=") is answer(">=", b, a)
    assert not (answer("<") and answer(">"))


words = st.sampled_from(
    [*ROOTS, *FUNCTIONS, *OPERATORS, "(", ")", "[", "]", ".", ",", "==", "<", '"a"', "1", "-2.5", "!", "&&"]
)


@settings(max_examples=examples(500), deadline=None)
@given(st.lists(words, max_size=12).map(" ".join) | st.text(max_size=30))
def test_any_text_is_understood_or_refused(text: str) -> None:
    try:
        found = compile_filter(text)
    except FilterError as error:
        assert 0 <= error.position <= len(text)
        assert error.pointing()
    else:
        assert found(RECORD) in (True, False)


@settings(max_examples=examples(200), deadline=None)
@given(st.text(max_size=20))
def test_text_in_quotes_is_that_text(text: str) -> None:
    assert compile_filter(f"value.a == {json.dumps(text)}")(Sample(value={"a": text}))


@given(st.floats(allow_infinity=False, allow_nan=False))
def test_numbers_are_those_numbers(number: float) -> None:
    assert compile_filter(f"value.a == {number!r}")(Sample(value={"a": number}))
