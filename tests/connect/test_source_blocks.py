"""A source's records in a block are written as they are one by one, or left to that."""

from __future__ import annotations

import random
from typing import Any

import pytest

from millstream.connect.config.connector_config import SOURCE_CONFIG
from millstream.connect.data.record import Header, SourceRecord
from millstream.connect.data.schema import OPTIONAL, REQUIRED, Schema, Type, struct_schema
from millstream.connect.data.struct import Struct
from millstream.connect.runtime.pipeline import Pipeline
from millstream.connect.runtime.tolerance import Tolerance

JSON = {
    "key.converter": "JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter": "JsonConverter",
}
TEXT = {"key.converter": "StringConverter", "value.converter": "StringConverter"}
PLAIN = struct_schema(
    [
        ("id", REQUIRED[Type.INT32]),
        ("name", OPTIONAL[Type.STRING]),
        ("price", Schema(Type.FLOAT64, optional=True, default=2.5)),
        ("paid", REQUIRED[Type.BOOLEAN]),
        ("number", Schema(Type.STRING, default="17")),
        ("small", OPTIONAL[Type.INT8]),
    ]
)
GOOD = [7, 'a "quoted" \x1b ä', 1.5, True, "12", -3]
ODD: tuple[Any, ...] = (None, "x", "\ud800", 5, 2**31, 1.5, float("nan"), 1e300, True, b"b", [], object())
STEPS: list[tuple[str, dict[str, str]]] = [
    ("InsertField$Value", {"static.field": "site", "static.value": "42"}),
    ("InsertField$Value", {"topic.field": "t!", "partition.field": "p"}),
    ("ReplaceField$Value", {"exclude": "price"}),
    ("ReplaceField$Value", {"renames": "name:title,id:key"}),
    ("Cast$Value", {"spec": "id:int64,number:int32,price:string"}),
    ("Cast$Value", {"spec": "site:int32,paid:string"}),
    ("ValueToKey", {"fields": "id"}),
    ("ValueToKey", {"fields": "site"}),
    ("ExtractField$Key", {"field": "id"}),
    ("ExtractField$Value", {"field": "name"}),
    ("HoistField$Value", {"field": "line"}),
    ("HoistField$Key", {"field": "k"}),
    ("RegexRouter", {"regex": "(.*)-raw", "replacement": "$1-done"}),
]


def pipeline(settings: dict[str, str], steps: list[tuple[str, dict[str, str]]]) -> Pipeline:
    every = {"name": "x", "connector.class": "x", **settings}
    every["transforms"] = ",".join(f"t{at}" for at in range(len(steps)))
    for at, (name, own) in enumerate(steps):
        every[f"transforms.t{at}.type"] = f"org.apache.kafka.connect.transforms.{name}"
        every |= {f"transforms.t{at}.{one}": text for one, text in own.items()}
    return Pipeline(every, {}, Tolerance(SOURCE_CONFIG.parse(every), "x-0"))


def some_record(rng: random.Random) -> SourceRecord:
    values = [rng.choice(ODD) if rng.random() < 0.05 else one for one in GOOD]
    roll = rng.random()
    schema: Schema | None = PLAIN
    value: Any = Struct(PLAIN, values)
    if roll < 0.05:
        schema, value = REQUIRED[Type.STRING], "line"
    elif roll < 0.1:
        schema, value = None, {"id": 5}
    elif roll < 0.15:
        value = None
    return SourceRecord(
        topic=rng.choice(["t", "t-raw"]),
        partition=rng.choice([None, 3]),
        timestamp=rng.choice([None, -1, 1_700_000_000_000]),
        key_schema=OPTIONAL[Type.STRING],
        key=rng.choice(["k", "\x00", None]),
        value_schema=schema,
        value=value,
        headers=(Header("h", None, "x"),) if roll > 0.97 else (),
    )


@pytest.mark.parametrize("settings", [JSON, {**JSON, "value.converter.schemas.enable": "false"}, TEXT])
def test_a_block_is_written_as_its_records_are_one_by_one(settings: dict[str, str]) -> None:
    rng = random.Random(7)
    written = 0
    for _ in range(60):
        chain = pipeline(settings, [rng.choice(STEPS) for _ in range(rng.randrange(5))])
        records = [some_record(rng) for _ in range(12)]
        block = chain.block_to_bytes(records, 99)
        assert len(block) == len(records)
        for record, found in zip(records, block, strict=True):
            if found is not None:
                made = chain.transform(record)
                assert made is not None
                assert found == (made.topic, made.partition, chain.to_bytes(made, 99))  # type: ignore[arg-type]
                written += 1
    assert written > 20


def test_the_usual_chain_is_written_in_blocks() -> None:
    chain = pipeline(
        {**JSON, "value.converter.schemas.enable": "false"},
        [
            ("HoistField$Value", {"field": "line"}),
            ("InsertField$Value", {"static.field": "number", "static.value": "42"}),
            ("ReplaceField$Value", {"renames": "line:text"}),
            ("Cast$Value", {"spec": "number:int32"}),
            ("ValueToKey", {"fields": "number"}),
        ],
    )
    lines = [
        SourceRecord(topic="t", value_schema=REQUIRED[Type.STRING], value=text) for text in ("a", 'b"', "ä")
    ]
    found = [(one[0], one[2].key, one[2].value) for one in chain.block_to_bytes(lines, 1) if one is not None]
    assert found == [
        ("t", b'{"number":42}', b'{"text":"a","number":42}'),
        ("t", b'{"number":42}', b'{"text":"b\\"","number":42}'),
        ("t", b'{"number":42}', '{"text":"ä","number":42}'.encode()),
    ]


def test_predicates_and_transforms_of_others_stay_one_by_one() -> None:
    line = SourceRecord(topic="t", value_schema=REQUIRED[Type.STRING], value="a")
    settings = {**TEXT, "predicates": "p", "predicates.p.type": "RecordIsTombstone"}
    chain = pipeline(settings, [("HoistField$Value", {"field": "line", "predicate": "p"})])
    assert chain.block_to_bytes([line], 1) == [None]
    assert pipeline(TEXT, []).block_to_bytes([line], 1) == [("t", None, (0, 1, None, b"a", ()))]
