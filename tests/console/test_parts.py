"""The parts that need no cluster: masks, forms of values, differences, series, searches over batches."""

import json
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from millstream.client import Fetched
from millstream.console.batch_search import Damaged
from millstream.console.console_config import ConsoleConfig
from millstream.console.formatting import Paging, counted, number, size
from millstream.console.json_tree import parse_tree, tree_text
from millstream.console.masking import DOTS, Masks
from millstream.console.pages.schemas import pretty, side_by_side
from millstream.console.record_display import RecordRenderer, utc_timestamp
from millstream.console.search import Search
from millstream.console.search_worker import PARTS, Searcher, TextMatcher
from millstream.console.time_series import Series, SeriesTable
from millstream.serdes.json_text import check_json, laid_out, minified, one_line
from millstream.settings.values import InvalidSetting
from millstream.wire.batch import HEADER_SIZE
from millstream.wire.compression import CODEC_IDS
from millstream.wire.errors import ErrorCode
from millstream.wire.records import Record, encode_batch
from tests.support.effort import examples


def test_masks_by_path() -> None:
    rules = Masks("t* value.a.b hide\nt* value.*.c last4\nt* value.**.d hash\nu key hide\n", b"salt")
    masks = rules.of("topic")
    value = {
        "a": {"b": 1, "c": "123456789"},
        "x": [{"c": "987654321"}],
        "d": 1,
        "y": {"z": [{"d": 1}]},
        "e": 5,
    }
    found = json.loads(masks.structured(masks.value, json.dumps(value)) or "")
    assert found["a"] == {"b": DOTS, "c": DOTS + "6789"}
    assert found["x"] == [{"c": DOTS + "4321"}]
    assert found["d"] == found["y"]["z"][0]["d"]
    assert found["d"].startswith("#")
    assert found["e"] == 5
    assert masks.opaque(masks.value, b"text") == DOTS
    assert not rules.of("other")
    assert rules.of("u").opaque(rules.of("u").key, b"k") == DOTS


STORED = (
    '{"card": "4111222233334444", "c\\u0061rd": "4111222233335555", "price": 1.10, "big": 1e400, "n": %s}'
    % ("9" * 5000)
)


def test_masks_see_every_member() -> None:
    """Also the second of a name, and a name in other characters; the rest stays as it is written."""
    masks = Masks("t value.card hide\n").of("t")
    found = masks.structured(masks.value, STORED)
    assert found is not None
    assert "4111" not in found
    assert '"price": 1.10, "big": 1e400' in found
    assert "9" * 5000 in found


@pytest.mark.parametrize(
    "data",
    [
        b'{"card": "4111222233334444", "x": NaN}',
        b'{"card": "4111222233334444"} trailing',
        b"[" * 300 + b'{"card": "4111222233334444"}' + b"]" * 300,
        b'\xef\xbb\xbf{"card": "4111222233334444"}',
        '{"card": "4111222233334444"}'.encode("utf-16"),
    ],
)
def test_masks_hide_what_they_cannot_look_into(data: bytes) -> None:
    renderer = RecordRenderer(None, Masks("t value.card hide\n"), 1000)
    masks = renderer.masks("t")
    found = renderer.render_field(data, (), masks, masks.value)
    assert (found.text, found.preview, found.masked, found.json) == (DOTS, DOTS, True, "")


def test_a_rule_over_another_sees_what_that_one_leaves() -> None:
    masks = Masks("t value.a.pin hide\nt value.a last4\n").of("t")
    found = masks.structured(masks.value, '{"a": {"long": "xxxxxxxx", "pin": "1234"}}')
    assert found is not None
    assert "34" not in found


def test_json_is_shown_and_exported_as_it_is_stored() -> None:
    renderer = RecordRenderer(None, Masks(), 100_000)
    stored = '{"a":1.10,"a":1e400,\t"b":[],"c":{},"d":[1,{"e":"\\u00e9,:{"}],"x":-0.0,"y":%s}' % ("7" * 5000)
    found = renderer.render("t", 0, Record(0, 0, None, stored.encode(), ()), renderer.masks("t"))
    assert found.value.form == "json"
    assert found.value.text == (
        '{\n  "a": 1.10,\n  "a": 1e400,\n  "b": [],\n  "c": {},\n  "d": [\n    1,\n    {\n'
        '      "e": "\\u00e9,:{"\n'
        '    }\n  ],\n  "x": -0.0,\n  "y": %s\n}' % ("7" * 5000)
    )
    line = found.export()
    assert (
        '"value": {"a": 1.10, "a": 1e400, "b": [], "c": {}, "d": [1, {"e": "\\u00e9,:{"}], "x": -0.0, '
        in line
    )
    check_json(line)
    for constant in ("NaN", "Infinity", "-Infinity"):
        text = f'{{"a": {constant}}}'
        found = renderer.render("t", 0, Record(0, 0, None, text.encode(), ()), renderer.masks("t"))
        assert (found.value.form, found.value.text) == ("text", text)
        assert json.loads(check_json(found.export()))["value"] == text


JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@hypothesis.settings(max_examples=examples(200), deadline=None, derandomize=True)
@hypothesis.given(JSON_VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_laying_out_changes_white_space_only(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert laid_out(text, 1 << 30) == json.dumps(value, ensure_ascii=ascii_only, indent=2)
    assert one_line(text) == json.dumps(value, ensure_ascii=ascii_only)
    assert minified(text) == json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":"))
    assert tree_text(parse_tree(text)) == json.dumps(value, ensure_ascii=ascii_only)


def test_deep_nesting_makes_no_long_page() -> None:
    text = "[" * 900 + "1," * 100_000 + "1" + "]" * 900
    assert len(laid_out(text, 65_536)) < 70_000


@pytest.mark.parametrize(
    "line", ["orders", "orders value", "orders body.x hide", "orders header hide", "a b c d"]
)
def test_masks_that_make_no_sense(line: str) -> None:
    with pytest.raises(ValueError, match="line 2"):
        Masks(f"# first\n{line}\n")


def test_forms_of_values() -> None:
    renderer = RecordRenderer(None, Masks(), 100)
    masks = renderer.masks("t")

    def shown(data: bytes | None) -> tuple[str, str]:
        found = renderer.render_field(data, (), masks, [])
        return found.form, found.text

    assert shown(None) == ("null", "")
    assert shown(b"") == ("text", "")
    assert shown(b'{"a":1}') == ("json", '{\n  "a": 1\n}')
    assert shown(b"12") == ("text", "12")
    assert shown("grün".encode()) == ("text", "grün")
    assert shown(b"\xff\0")[0] == "hex"
    assert renderer.render_field(b"x" * 1000, (), masks, []).cut
    assert renderer.render_field(json.dumps(list(range(1000))).encode(), (), masks, []).cut
    message = renderer.render("t", 0, Record(5, -1, b"\xff", b"v", (("h\x00", b"\x01"),)), masks)
    assert message.utc_timestamp == "none"
    assert message.headers == [("h\ufffd", "0x01")]


def test_moments() -> None:
    assert utc_timestamp(0) == "1970-01-01 00:00:00.000"
    assert utc_timestamp(1_700_000_000_123) == "2023-11-14 22:13:20.123"
    assert utc_timestamp(1 << 62).endswith(" ms")


def test_numbers() -> None:
    assert number(1234567) == "1\u202f234\u202f567"
    assert number(None) == "\u2013"
    assert [counted(count, "message") for count in (0, 1, 1200)] == [
        "0 messages",
        "1 message",
        "1\u202f200 messages",
    ]
    assert size(999) == "999 B"
    assert size(1500) == "1.5 KB"
    assert size(-1) == "\u2013"


def test_paging() -> None:
    page = Paging(120, "3")
    assert (page.first, page.last, page.pages) == (100, 120, 3)
    assert Paging(0, "x").pages == 1
    assert Paging(120, "99").page == 3


def test_difference_of_texts() -> None:
    left = "\n".join(["a"] * 20 + ["old"] + ["z"] * 20)
    right = "\n".join(["a"] * 20 + ["new", "more"] + ["z"] * 20)
    rows = side_by_side(left, right)
    assert [row.change for row in rows] == ["gap", *["same"] * 3, "changed", "added", *["same"] * 3, "gap"]
    assert rows[4].left == "old"
    assert rows[4].right == "new"
    assert [row.change for row in side_by_side("same", "same")] == ["same"]


def test_schemas_are_laid_out_where_that_can_be_done() -> None:
    deep = '{"items": ' * 20_000 + "{}" + "}" * 20_000
    assert pretty('{"type":"long"}', "AVRO") == '{\n  "type": "long"\n}'
    for text, schema_type in ((deep, "JSON"), ("{", "AVRO"), ('syntax = "proto3";', "PROTOBUF")):
        assert pretty(text, schema_type) == text


def test_series_forget_what_is_old() -> None:
    line = Series(limit=10)
    for i in range(200):
        line.add(i, i * 2)
    times, values = line.points()
    assert times == [float(i) for i in range(190, 200)]
    assert values[-1] == 398
    table = SeriesTable(2)
    for name in ("a", "b", "a", "c"):
        table.add(name, 1.0, 1.0)
    assert sorted(table.names()) == ["a", "c"]


@pytest.mark.parametrize("codec", sorted(CODEC_IDS))
def test_search_opens_only_what_may_match(codec: str) -> None:
    batches = [
        encode_batch(
            [Record(0, 0, b"k", f"value {b}-{i}".encode(), (("h", b"x"),)) for i in range(50)],
            CODEC_IDS[codec],
            base_offset=b * 50,
        )
        for b in range(20)
    ]
    records = memoryview(b"".join(bytes(batch) for batch in batches))
    answer = Fetched("t", 0, ErrorCode.none, 1000, 1000, 0, (), records)
    searcher = Searcher("t", TextMatcher("value 7-3", ["value"], False), None, None)
    assert [record.offset for record in searcher.hits(answer, 0)] == [353, *range(380, 390)]
    assert searcher.scanned == 1000
    later = Searcher("t", TextMatcher("VALUE 7-3", ["value"], True), None, None)
    assert [record.offset for record in later.hits(answer, 381)] == list(range(381, 390))
    other = Searcher("t", TextMatcher("value 7-3", ["key", "header"], False), None, None)
    assert list(other.hits(answer, 0)) == []


PIECE = st.one_of(st.none(), st.binary(max_size=6), st.sampled_from([b"", b"ab", b"xAb", b"aab" * 50]))
HEADERS = st.lists(st.tuples(st.sampled_from(["ab", "a", "Abc"]), PIECE), max_size=2).map(tuple)


@hypothesis.settings(max_examples=examples(150), deadline=None, derandomize=True)
@hypothesis.given(
    st.lists(st.tuples(PIECE, PIECE, HEADERS), min_size=1, max_size=8),
    st.sampled_from(["a", "ab", "b", "aab"]),
    st.sets(st.sampled_from(PARTS), min_size=1),
    st.booleans(),
)
def test_scanning_finds_what_opening_each_record_does(
    pieces: list[tuple[Any, Any, Any]], text: str, parts: set[str], any_case: bool
) -> None:
    records = [Record(n, 7, key, value, headers) for n, (key, value, headers) in enumerate(pieces)]
    data = bytes(encode_batch(records, CODEC_IDS["none"]))[HEADER_SIZE:]
    test = TextMatcher(text, sorted(parts), any_case)
    assert test.matching_indexes(data, len(records)) == [
        n for n, record in enumerate(records) if test(record)
    ]
    for cut in (data[:-1], data[1:], b"ab" + data):  # damage is said, or finds something else; it never hangs
        try:
            test.matching_indexes(cut, len(records))
        except Damaged:
            pass


@pytest.mark.parametrize(
    "given",
    [
        {"listeners": "ftp://x:1"},
        {"metrics.urls": "nothing"},
        {"search.max.hits": "0"},
        {"read.only": "perhaps"},
        {"sample.interval.ms": "-5"},
    ],
)
def test_settings_that_make_no_sense(given: dict[str, str]) -> None:
    with pytest.raises(InvalidSetting):
        ConsoleConfig(given)


async def test_the_end_of_a_search_is_seen_by_who_is_busy() -> None:
    search = Search({}, "me")
    seen = []
    async for _ in search.changes():
        seen.append(search.ended)
        search.ended = True
        search._notify()
    assert seen == [False, True]
