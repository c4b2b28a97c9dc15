"""Lines into records and records into lines, without a broker."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.message_formatter import (
    ConsumerRecord,
    DefaultMessageFormatter,
    deserializer,
    record_facts,
)
from millstream.cli.record_reader import LineMessageReader

KEYED = {"parse.key": "true"}
HEADED = {"parse.key": "true", "parse.headers": "true"}


def shown(**changes):
    plain = ConsumerRecord("t", 2, 7, 3, 1_700_000_000_000, "CreateTime", b"k", b"v", ())
    return plain._replace(**changes)


# --- in -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "line", "expected"),
    [
        ({}, b"any\ttext", (None, b"any\ttext", ())),
        ({}, b"", (None, b"", ())),
        (KEYED, b"k\tv", (b"k", b"v", ())),
        (KEYED, b"k\tv\tw", (b"k", b"v\tw", ())),
        (KEYED, b"\tv", (b"", b"v", ())),
        ({**KEYED, "key.separator": "=>"}, b"k=>v", (b"k", b"v", ())),
        ({**KEYED, "null.marker": "-"}, b"-\t-", (None, None, ())),
        ({"parse.headers": "TRUE"}, b"a:1,b:2\tv", (None, b"v", (("a", b"1"), ("b", b"2")))),
        (HEADED, b"a:1\tk\tv", (b"k", b"v", (("a", b"1"),))),
        ({**HEADED, "null.marker": "-"}, b"-\tk\tv", (b"k", b"v", ())),
        ({**HEADED, "null.marker": "-"}, b"a:-\tk\tv", (b"k", b"v", (("a", None),))),
        (
            {**HEADED, "headers.separator": ";", "headers.key.separator": "="},
            b"a=1;b=2\tk\tv",
            (b"k", b"v", (("a", b"1"), ("b", b"2"))),
        ),
        (HEADED, b"a:1,,\tk\tv", (b"k", b"v", (("a", b"1"),))),
        (HEADED, b",\tk\tv", (b"k", b"v", ())),
        (HEADED, b":\t\t", (b"", b"", (("", b""),))),
        ({**KEYED, "ignore.error": "true"}, b"no separator", (None, b"no separator", ())),
        ({**HEADED, "ignore.error": "true"}, b"bare\tk\tv", (b"k", b"v", (("bare", None),))),
        ({}, b"\xff\xfe", (None, b"\xff\xfe", ())),
    ],
)
def test_lines_become_records(properties, line, expected):
    assert LineMessageReader(properties).parse(line) == expected


@pytest.mark.parametrize(
    ("properties", "line", "words"),
    [
        (KEYED, b"no separator", "No key separator found on line number 2: 'no separator'"),
        (HEADED, b"no delimiter", "No headers delimiter found on line number 2"),
        (HEADED, b"\tk\tv", "No header key separator found in pair '' on line number 2"),
        (HEADED, b"nokey\tk\tv", "No header key separator found in pair 'nokey' on line number 2"),
        ({**HEADED, "null.marker": "-"}, b"-:v\tk\tv", "cannot be null"),
    ],
)
def test_bad_lines_are_named(properties, line, words):
    reader = LineMessageReader(properties)
    reader.parse(b"a:1\tk\tv")
    with pytest.raises(CommandFailed, match=words):
        reader.parse(line)


@pytest.mark.parametrize(
    "properties",
    [
        {"parse.keys": "true"},
        {"key.separator": ""},
        {"null.marker": "\t"},
        {"headers.separator": ":"},
        {"headers.delimiter": ","},
        {"headers.delimiter": ":"},
    ],
)
def test_bad_reader_properties(properties):
    with pytest.raises(UsageError):
        LineMessageReader(properties)


@settings(deadline=None)
@given(line=st.binary(max_size=60))
def test_any_line_is_a_record_or_a_clear_error(line):
    for properties in ({}, KEYED, HEADED, {**HEADED, "null.marker": "x", "ignore.error": "true"}):
        try:
            LineMessageReader(properties).parse(line)
        except CommandFailed:
            pass


# --- out ----------------------------------------------------------------------------------------------------

EVERYTHING = {
    f"print.{name}": "true"
    for name in ("timestamp", "partition", "offset", "epoch", "headers", "key", "value")
}


@pytest.mark.parametrize(
    ("properties", "record", "expected"),
    [
        ({}, shown(), b"v\n"),
        ({}, shown(value=None), b"null\n"),
        ({}, shown(value=b"\xff\x00"), b"\xff\x00\n"),
        (
            EVERYTHING,
            shown(),
            b"CreateTime:1700000000000\tPartition:2\tOffset:7\tEpoch:3\tNO_HEADERS\tk\tv\n",
        ),
        ({"print.value": "false"}, shown(), b""),
        (
            EVERYTHING,
            shown(epoch=-1, timestamp=-1),
            b"CreateTime:-1\tPartition:2\tOffset:7\tEpoch:NOT_PRESENT\tNO_HEADERS\tk\tv\n",
        ),
        ({"print.headers": "true"}, shown(headers=(("a", b"1"), ("b", None))), b"a:1,b:null\tv\n"),
        (
            {"print.headers": "true", "headers.separator": ";", "null.literal": "~"},
            shown(headers=(("a", b"1"), ("b", None)), value=None),
            b"a:1;b:~\t~\n",
        ),
        ({"print.key": "true", "key.separator": "=", "line.separator": "|"}, shown(), b"k=v|"),
        ({"print.key": "true", "print.value": "false"}, shown(key=None), b"null\n"),
        ({"print.headers": "true"}, shown(headers=(("\udcff", b"\xfe"),)), b"\xff:\xfe\tv\n"),
        (
            {"value.deserializer": "org.apache.kafka.common.serialization.LongDeserializer"},
            shown(value=struct.pack(">q", -5)),
            b"-5\n",
        ),
        (
            {"key.deserializer": "IntegerDeserializer", "print.key": "true"},
            shown(key=struct.pack(">i", 9)),
            b"9\tv\n",
        ),
        ({"value.deserializer": "StringDeserializer"}, shown(value=b"\xff"), "\ufffd\n".encode()),
        ({"value.deserializer": "BooleanDeserializer"}, shown(value=b"\1"), b"true\n"),
        ({"value.deserializer": "DoubleDeserializer"}, shown(value=struct.pack(">d", 1.5)), b"1.5\n"),
    ],
)
def test_records_become_lines(properties, record, expected):
    assert DefaultMessageFormatter(properties).line(record) == expected


def test_what_cannot_be_read_or_is_unknown():
    with pytest.raises(ValueError, match="8 bytes expected, 1 found"):
        DefaultMessageFormatter({"value.deserializer": "LongDeserializer"}).line(shown())
    with pytest.raises(UsageError, match="IntegerDeserializer"):
        deserializer("com.example.Mine")
    with pytest.raises(UsageError, match=r"print\.timestamp"):
        DefaultMessageFormatter({"print.everything": "true"})
    DefaultMessageFormatter({"value.deserializer.some.setting": "1"})


def test_records_for_programs():
    facts = record_facts(shown(value=b"\xff", headers=(("h", None), ("\udcff", b"x"))))
    assert facts["key"] == "k"
    assert facts["value"] == {"base64": "/w=="}
    assert facts["headers"] == [{"name": "h", "value": None}, {"name": "\ufffd", "value": "x"}]
