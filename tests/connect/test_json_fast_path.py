"""The fast path of the JSON converter gives what the full path gives, or leaves the record to it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from millstream.connect.converters.json import JsonConverter
from millstream.connect.converters.json_fast_path import prefix_of
from millstream.connect.data.struct import Struct
from millstream.connect.errors import DataError

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


def outcome(converter: JsonConverter, data: bytes) -> Any:
    try:
        found = converter.to_connect("t", data)
    except DataError as error:
        return str(error)
    return (
        found.schema,
        found.value,
        repr(found.value),
        [type(one) for one in getattr(found.value, "values", ())],
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("with_default", ["true", "false"])
def test_the_fast_path_equals_the_full_one(seed: int, with_default: str) -> None:
    rng = random.Random(seed)
    settings = {"replace.null.with.default": with_default}
    warm = JsonConverter(settings)
    usual = '{"small":1,"id":2,"price":0.5,"name":"a","paid":true,"note":null}'
    warm.to_connect("t", message(usual))
    payloads = [usual, usual + ",", usual + ',"payload":1', "null", "[]", "7", "", usual[:-1], "{}"]
    for _ in range(400):
        fields = {field["field"]: rng.choice(ODD) for field in SCHEMA["fields"]}  # type: ignore[index]
        if rng.random() < 0.7:
            fields |= {"id": "5", "price": "2.5", "paid": "false", "small": "null"}
        if rng.random() < 0.2:
            fields.pop(rng.choice(list(fields)))
        payloads.append("{" + ",".join(f'"{name}":{text}' for name, text in fields.items()) + "}")
    for payload in payloads:
        assert outcome(warm, message(payload)) == outcome(JsonConverter(settings), message(payload)), payload


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


@pytest.mark.parametrize("with_default", ["true", "false"])
def test_structs_are_written_as_ever(with_default: str) -> None:
    """By the function of their schema, or by the converter where that leaves it to it."""
    short, long = (JsonConverter({"replace.null.with.default": with_default}) for _ in range(2))
    long._short_text = lambda _schema, _value: None  # type: ignore[method-assign,assignment]
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

    usual: list[Any] = [1, 2, 0.5, "a", True, None]
    for _ in range(2000):
        values = [rng.choice(odd) if rng.random() < 0.2 else one for one in usual]
        value = Struct(schema, values)
        assert written(short, value) == written(long, value), values
    write = short._writers[schema]
    assert write is not None and write(Struct(schema, usual)) is not None
    for other in (None, 5, Struct(schema.replace(doc="other"), usual)):
        assert written(short, other) == written(long, other)
