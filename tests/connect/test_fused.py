"""Transforms that became one function do what they do one by one: the same records, the same errors."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from millstream.connect.data.logical import TIMESTAMP_SCHEMA, decimal_schema
from millstream.connect.data.record import SinkRecord, SourceRecord
from millstream.connect.data.schema import OPTIONAL, REQUIRED, Schema, Type, struct_schema
from millstream.connect.data.struct import Struct
from millstream.connect.errors import ConnectError
from millstream.connect.transforms.base import Transform
from millstream.connect.transforms.fused import SLOW, FusedSteps
from millstream.connect.transforms.plugins import make_transform

INNER = struct_schema([("x", REQUIRED[Type.INT32])])
SCHEMA = struct_schema(
    [
        ("id", REQUIRED[Type.INT32]),
        ("name", OPTIONAL[Type.STRING]),
        ("price", Schema(Type.FLOAT64, optional=True, default=2.5)),
        ("paid", REQUIRED[Type.BOOLEAN]),
        ("number", Schema(Type.STRING, default="17")),
        ("at", TIMESTAMP_SCHEMA),
        ("amount", decimal_schema(2)),
        ("list", Schema(Type.ARRAY, optional=True, value=OPTIONAL[Type.INT64])),
        ("inner", INNER),
    ],
    name="Order",
    version=3,
)
GOOD = [7, "a", 1.5, True, "12", datetime(2026, 1, 2, tzinfo=UTC), Decimal("1.25"), [1, None], None]
ODD: tuple[Any, ...] = (None, "x", 5, 2**31, 1.5, True, b"b", [], ["x"], {}, Decimal("3"), object())

STEPS: list[tuple[str, dict[str, str]]] = [
    ("InsertField$Value", {"static.field": "site", "static.value": "42"}),
    ("InsertField$Value", {"topic.field": "t!", "partition.field": "p", "timestamp.field": "ts?"}),
    ("InsertField$Value", {"partition.field": "must!"}),
    ("InsertField$Value", {"offset.field": "o"}),
    ("InsertField$Key", {"static.field": "site", "static.value": "x"}),
    ("ReplaceField$Value", {"exclude": "list,inner"}),
    ("ReplaceField$Value", {"include": "id,name,site,number", "renames": "name:title,id:key"}),
    ("ReplaceField$Value", {"renames": "id:name2,number:n", "replace.null.with.default": "false"}),
    ("ReplaceField$Value", {"renames": "id:paid"}),
    ("Cast$Value", {"spec": "id:int64,number:int32,price:string"}),
    ("Cast$Value", {"spec": "site:int32,paid:string"}),
    ("Cast$Value", {"spec": "id:int8,amount:float64,at:int64"}),
    ("Cast$Key", {"spec": "id:string"}),
    ("ValueToKey", {"fields": "id"}),
    ("ValueToKey", {"fields": "price,number", "replace.null.with.default": "false"}),
    ("ValueToKey", {"fields": "nowhere"}),
    ("ExtractField$Key", {"field": "id"}),
    ("ExtractField$Key", {"field": "price"}),
    ("ExtractField$Value", {"field": "name"}),
    ("ExtractField$Value", {"field": "inner.x", "field.syntax.version": "V2"}),
    ("HoistField$Value", {"field": "line"}),
    ("HoistField$Key", {"field": "k"}),
    ("RegexRouter", {"regex": "(.*)-raw", "replacement": "$1-done"}),
]


def one_by_one(transforms: list[Transform], record: Any) -> Any:
    for transform in transforms:
        record = transform.apply(record)
    return record


def outcome(act: Any, record: Any) -> Any:
    try:
        made = act(record)
    except ConnectError as error:
        return type(error), str(error)
    except (TypeError, AttributeError) as error:  # of a value that no schema has
        return type(error)
    return (
        made,
        repr(made),
        [type(one) for one in made.value.values] if isinstance(made.value, Struct) else None,
    )


def some_record(rng: random.Random) -> Any:
    values = [Struct(INNER, [1]) if one is None else one for one in GOOD]
    for at in range(len(values)):
        if rng.random() < 0.05:
            values[at] = rng.choice(ODD)
    value: Any = Struct(SCHEMA, values)
    schema: Schema | None = SCHEMA
    roll = rng.random()
    if roll < 0.05:
        value = None
    elif roll < 0.1:
        schema, value = REQUIRED[Type.STRING], "line"
    elif roll < 0.15:
        schema, value = None, {"id": 5, "name": "x"}
    elif roll < 0.2:
        value = Struct(SCHEMA.replace(doc="another"), values)
    shared = {
        "topic": rng.choice(["t", "t-raw"]),
        "partition": rng.choice([None, 3]),
        "timestamp": rng.choice([None, 1_700_000_000_000]),
        "key_schema": OPTIONAL[Type.STRING],
        "key": rng.choice(["k", None]),
        "value_schema": schema,
        "value": value,
    }
    if rng.random() < 0.5:
        return SourceRecord(**shared, source_partition={"f": "x"}, source_offset={"at": 1})
    return SinkRecord(**shared, offset=9, original_topic="t", wire=b"w")


@pytest.mark.parametrize("seed", range(20))
def test_the_function_does_what_the_steps_do(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(30):
        chain = [make_transform(*rng.choice(STEPS)) for _ in range(rng.randrange(1, 6))]
        fused = FusedSteps(chain)
        for _ in range(8):
            record = some_record(rng)
            expected = outcome(lambda one, chain=chain: one_by_one(chain, one), record)
            assert outcome(fused.apply, record) == expected, [type(one) for one in chain]


def test_usual_chains_do_become_functions() -> None:
    line = SourceRecord(topic="t", value_schema=REQUIRED[Type.STRING], value="text")
    order = SourceRecord(
        topic="t",
        value_schema=SCHEMA,
        value=Struct(SCHEMA, [*GOOD[:-1], Struct(INNER, [1])]),
    )
    chains = (
        (
            line,
            ("HoistField$Value", {"field": "line"}),
            ("InsertField$Value", {"static.field": "number", "static.value": "42"}),
            ("ReplaceField$Value", {"renames": "line:text"}),
            ("Cast$Value", {"spec": "number:int32"}),
            ("ValueToKey", {"fields": "number"}),
        ),
        (
            order,
            ("RegexRouter", {"regex": "t", "replacement": "u"}),
            ("Cast$Value", {"spec": "number:int32"}),
            ("ValueToKey", {"fields": "id"}),
            ("ExtractField$Key", {"field": "id"}),
        ),
    )
    for record, *steps in chains:
        chain = [make_transform(name, settings) for name, settings in steps]
        fused = FusedSteps(chain)
        made = fused.apply(record)
        (function,) = fused._functions.values()
        assert function is not None and function(record) is not SLOW
        assert made == one_by_one(chain, record)
