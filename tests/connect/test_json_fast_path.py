"""The fast path of the JSON converter gives what the full path gives, or leaves the record to it."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from millstream.connect.config.connector_config import SINK_CONFIG
from millstream.connect.converters.base import Converter
from millstream.connect.converters.json import JsonConverter
from millstream.connect.converters.json_fast_path import prefix_of
from millstream.connect.data.logical import DATE_SCHEMA, decimal_schema
from millstream.connect.data.record import SchemaAndValue, SourceRecord
from millstream.connect.data.schema import OPTIONAL, REQUIRED, Schema, Type, array_schema, struct_schema
from millstream.connect.data.struct import Struct
from millstream.connect.errors import DataError
from millstream.connect.runtime.pipeline import Pipeline
from millstream.connect.runtime.source_blocks import SourceBlocks
from millstream.connect.runtime.tolerance import Tolerance
from millstream.wire.records import Record
from millstream.wire.topic_partition import TopicPartition
from tests.support.effort import seeds

SCHEMA = {
    "type": "struct",
    "optional": False,
    "name": "Order",
    "fields": [
        {"type": "int8", "optional": True, "field": "small"},
        {"type": "int64", "optional": False, "field": "id"},
        {"type": "double", "optional": False, "field": "price"},
        {"type": "string", "optional": True, "field": "name", "default": "none"},
        {"type": "boolean", "optional": True, "field": "paid"},
        {"type": "string", "optional": True, "field": "note"},
    ],
}
ODD = (
    "null", "1", "-1", "127", "128", "1.5", "1.0", "1e400", "-0.0", "NaN", "12345678901234567890", "true",
    '"x"', '"\\ud800"', '"\\u0041"', "[]", "{}", '""', "0.1", "1E2", "nonsense",
)  # fmt: skip


def message(payload: str) -> bytes:
    schema = json.dumps(SCHEMA, separators=(",", ":"))
    return f'{{"schema":{schema},"payload":{payload}}}'.encode()


def described(schema: Any, value: Any) -> Any:
    return schema, value, repr(value), [type(one) for one in getattr(value, "values", ())]


def outcome(converter: JsonConverter, data: bytes | None) -> Any:
    try:
        return described(*converter.to_connect("t", data))
    except DataError as error:
        return str(error)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("with_default", ["true", "false"])
def test_the_fast_path_equals_the_full_one(seed: int, with_default: str) -> None:
    rng = random.Random(seed)
    settings = {"replace.null.with.default": with_default}
    warm = JsonConverter(settings)
    plain = '{"small":1,"id":2,"price":0.5,"name":"a","paid":true,"note":null}'
    warm.to_connect("t", message(plain))
    payloads = [plain, plain + ",", plain + ',"payload":1', "null", "[]", "7", "", plain[:-1], "{}"]
    for _ in range(400):
        fields = {field["field"]: rng.choice(ODD) for field in SCHEMA["fields"]}  # type: ignore[index]
        if rng.random() < 0.7:
            fields |= {"id": "5", "price": "2.5", "paid": "false", "small": "null"}
        if rng.random() < 0.2:
            fields.pop(rng.choice(list(fields)))
        payloads.append("{" + ",".join(f'"{name}":{text}' for name, text in fields.items()) + "}")
    for payload in payloads:
        assert outcome(warm, message(payload)) == outcome(JsonConverter(settings), message(payload)), payload


NAMES = [field["field"] for field in SCHEMA["fields"]]  # type: ignore[index]


def hostile(rng: random.Random) -> bytes:
    """A message with one thing about it that is not as usual: another text of a value, a key twice, nesting,
    blanks, a cut, or a piece that only makes sense together with its neighbours."""
    plain = {"small": "1", "id": "2", "price": "0.5", "name": '"a"', "paid": "true", "note": "null"}
    pairs = list((plain | {rng.choice(NAMES): rng.choice((*ODD, *NESTED))}).items())
    kind = rng.randrange(7)
    if kind == 0:
        pairs.append((rng.choice(NAMES), rng.choice(ODD)))
    elif kind == 1:
        rng.shuffle(pairs)
        pairs = pairs[: rng.randrange(len(pairs) + 1)]
    elif kind == 2:
        pairs.insert(rng.randrange(6), (rng.choice(["more", "\\u0069d", "", "i d"]), rng.choice(NESTED)))
    blank = rng.choice(["", "", " ", "\n", "\t\r "])
    payload = "{" + ",".join(f'{blank}"{name}"{blank}:{text}' for name, text in pairs) + "}" + blank
    if kind == 3:
        payload = payload[: rng.randrange(len(payload))]
    elif kind == 4:
        payload = rng.choice(PIECES) % payload
    data = message(payload)
    if kind == 5:
        at = rng.randrange(len(data))
        data = data[:at] + bytes([rng.randrange(256)]) + data[at + rng.randrange(2) :]
    return data


NESTED = (
    "[null,{}]", '{"a":null}', "-0", "1e5", "2.0", "1e-400", "9223372036854775807", "-9223372036854775809",
    "0.1000000000000000055511151231257827", '"\\ud83d\\ude00"', '"\\u0000"', '"ä\u2028"', "01", "Infinity",
    "[[" * 40 + "]]" * 40, '"' + "x" * 5000 + '"', "tru", "1 2",
)  # fmt: skip
# What only makes sense beside another message: two objects in one, an array that the next one ends.
PIECES = ("%s,{}", '%s},"payload":{', '{"c":[%s', "%s]}", "%s}{", "[%s]", '"%s')


@pytest.mark.parametrize("seed", seeds(8))
@pytest.mark.parametrize("with_default", ["true", "false"])
def test_a_block_equals_its_messages_one_by_one(seed: int, with_default: str) -> None:
    rng = random.Random(seed)
    settings = {"replace.null.with.default": with_default}
    plain = message('{"small":1,"id":2,"price":0.5,"name":"a","paid":true,"note":null}')
    other = plain.replace(b'"name":"Order"', b'"name":"Other"')
    block: list[bytes | None] = [
        rng.choice([plain, plain, other, None]) if rng.random() < 0.3 else hostile(rng) for _ in range(300)
    ]
    converter = JsonConverter(settings)
    read = 0
    for begin in range(0, len(block), 50):
        part = block[begin : begin + 50]
        for data, found in zip(part, converter.to_connect_many("t", part), strict=True):
            wanted = outcome(JsonConverter(settings), data)
            if found is None:
                assert isinstance(wanted, str), data
            else:
                assert described(*found) == wanted, data
                read += 1
    assert read > 50


def test_pieces_of_neighbours_are_not_put_together() -> None:
    """As one text these would be three objects, too."""
    plain = '{"small":1,"id":2,"price":0.5,"name":"a","paid":true,"note":null}'
    converter = JsonConverter({})
    texts = [plain, f"{plain},{plain}", plain[:-1] + ',"c":[' + plain, plain + "]}"]
    found = converter.to_connect_many("t", [message(text) for text in texts])
    assert found[0] is not None and found[1:] == [None, None, None]


def test_a_block_ends_at_what_a_server_cannot_answer() -> None:
    """A converter that has to wait for somebody is asked once, not for each record of the block."""
    asked = []

    class Waiting(Converter):
        def from_connect(self, topic: str, schema: Any, value: Any) -> bytes | None:
            raise NotImplementedError

        def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:
            asked.append(data)
            if data == b"bad":
                raise DataError("no answer")
            return SchemaAndValue(None, data)

    assert Waiting({}).to_connect_many("t", [b"a", b"bad", b"b", b"c"]) == [(None, b"a"), None, None, None]
    assert asked == [b"a", b"bad"]


def test_a_block_of_records_equals_them_one_by_one() -> None:
    parsed = SINK_CONFIG.parse({"name": "b", "connector.class": "FileSink", "topics": "t"})
    own = {"key.converter": "StringConverter", "value.converter": "JsonConverter"}
    good = message('{"small":1,"id":2,"price":0.5,"name":"a","paid":true,"note":null}')
    where = TopicPartition("t", 3)
    records = [
        (Record(0, 5, b"k", good), "CreateTime"),
        (Record(1, -1, None, None), "LogAppendTime"),
        (Record(2, 7, b"\xff", good.replace(b"0.5", b"1")), "CreateTime"),
        (Record(3, 8, b"k", good, (("h", b"1"),)), "CreateTime"),
        (Record(4, 9, b"k", b"{"), "CreateTime"),
    ]
    block = Pipeline(own, {}, Tolerance(parsed, "b-0")).from_block(where, records)
    single = Pipeline(own, {}, Tolerance(parsed, "b-0"))
    assert block[3:] == [None, None]
    for (record, kind), found in zip(records[:3], block, strict=False):
        wanted = single.from_bytes(where, record, kind)
        assert found == wanted and found is not None and found.wire is record


def test_what_a_prefix_is() -> None:
    data = message("{}")
    prefix = prefix_of(data)
    assert prefix is not None and data == prefix + b"{}}"
    for other in (
        b'{"payload":1,"schema":null}',
        b'{"schema":{},"other":1}',
        b'{"schema":{',
        b"",
        b"{}",
        b"\xff",
    ):
        assert prefix_of(other) is None


def test_texts_are_escaped_as_jackson_does_it() -> None:
    short = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
    converter = JsonConverter({"schemas.enable": "false"})
    for number in (*range(0x100), 0x2028, 0xD800, 0xFFFF, 0x1F600):
        one = chr(number)
        wanted = short.get(one, f"\\u{number:04X}" if number < 0x20 else one)
        for text, expected in ((one, wanted), (f"\\u{one}\x1f", f"\\\\u{wanted}\\u001F")):
            found = converter.from_connect("t", OPTIONAL[Type.STRING], text)
            assert found == f'"{expected}"'.encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("with_default", ["true", "false"])
def test_structs_are_written_as_ever(with_default: str) -> None:
    """By the function of their schema, or by the converter where that leaves it to it."""
    short, long = (JsonConverter({"replace.null.with.default": with_default}) for _ in range(2))
    long._writer = lambda _schema: None  # type: ignore[method-assign,assignment]
    schema = short.schema_from_json(SCHEMA)
    assert schema is not None
    rng = random.Random(3)
    odd: list[Any] = [None, 1, 127, 128, -1, 1.5, 1e300, 1e-9, float("nan"), float("inf"), True, "x"]
    odd += ['a"\n\x01ä', b"b", [], 2**70]

    def written(converter: JsonConverter, value: Any) -> Any:
        try:
            return converter.from_connect("t", schema, value)
        except DataError as error:
            return str(error)

    plain: list[Any] = [1, 2, 0.5, "a", True, None]
    for _ in range(2000):
        values = [rng.choice(odd) if rng.random() < 0.2 else one for one in plain]
        value = Struct(schema, values)
        assert written(short, value) == written(long, value), values
    write = short._writers[schema]
    assert write is not None and write(Struct(schema, plain)) is not None
    for other in (None, 5, Struct(schema.replace(doc="other"), plain)):
        assert written(short, other) == written(long, other)


def nested_schema() -> Schema:
    inner = struct_schema([("id", REQUIRED[Type.INT64]), ("note", OPTIONAL[Type.STRING])], name="inner")
    return struct_schema(
        [
            ("before", inner.replace(optional=True)),
            ("after", inner),
            ("kind", Schema(Type.STRING, optional=True, default="x", name="io.debezium.data.Enum")),
            ("small", Schema(Type.INT32, name="io.debezium.time.Date")),
            ("amount", decimal_schema(2)),
            ("day", DATE_SCHEMA.replace(optional=True)),
            ("list", array_schema(OPTIONAL[Type.INT32])),
            ("ratio", OPTIONAL[Type.FLOAT32]),
            ("raw", OPTIONAL[Type.BYTES]),
        ],
        name="outer",
    )


@pytest.mark.parametrize("with_default", ["true", "false"])
@pytest.mark.parametrize("decimals", ["BASE64", "NUMERIC"])
def test_structs_in_structs_are_written_as_ever(with_default: str, decimals: str) -> None:
    """Alone, and in a loop over a source's records, whose keys are written with other settings."""
    settings = {"replace.null.with.default": with_default, "decimal.format": decimals}
    short, long = JsonConverter(settings), JsonConverter(settings)
    key = JsonConverter({"decimal.format": "NUMERIC", "schemas.enable": "false"})
    long._writer = lambda _schema: None  # type: ignore[method-assign,assignment]
    schema = nested_schema()
    inner = schema.fields[1].schema
    rng = random.Random(5)
    good = Struct(inner, [7, "n"])
    plain: list[Any] = [
        None, good, "true", 5, Decimal("1.50"), datetime(2026, 1, 2, tzinfo=UTC), [1, None], 0.1, b"\x00\xff"
    ]  # fmt: skip
    odd: list[Any] = [
        None,
        good,
        Struct(inner, [None, "n"]),
        Struct(inner, [1, 5]),
        "x",
        2**40,
        1.5,
        [],
        [2**40],
    ]

    def written(converter: JsonConverter, value: Any) -> Any:
        try:
            return converter.from_connect("t", schema, value)
        except DataError as error:
            return str(error)

    blocks, in_blocks = SourceBlocks([], key, short), 0
    for _ in range(1500):
        value = Struct(schema, [rng.choice(odd) if rng.random() < 0.15 else one for one in plain])
        wanted = written(long, value)
        assert written(short, value) == wanted, value.values
        record = SourceRecord(topic="t", key_schema=schema, key=value, value_schema=schema, value=value)
        (found,) = blocks.write([record], 5) or [None]
        if found is not None:
            in_blocks += 1
            assert found[2].value == wanted
            assert found[2].key == key.from_connect("t", schema, value)
    write = short._writers[schema]
    assert write is not None and write(Struct(schema, plain)) is not None
    assert in_blocks > 200
