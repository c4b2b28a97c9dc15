"""Datagen: what it makes up fits its schema, goes on after a restart, and ends when it was told to."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.connect.api import SourceContext
from millstream.connect.connectors.datagen.generator import build_generator
from millstream.connect.connectors.datagen.quickstarts import QUICKSTARTS
from millstream.connect.connectors.datagen.regex_text import text_by_regex
from millstream.connect.connectors.datagen.source import DatagenSource, DatagenTask
from millstream.connect.data.record import SourceRecord
from millstream.connect.data.struct import validate_value
from millstream.connect.errors import ConnectError
from tests.connect.conftest import Worker
from tests.connect.test_worker import consume
from tests.support.waiting import wait_until


def poll(settings: dict[str, str], offset: dict[str, Any] | None = None) -> list[SourceRecord]:
    task = DatagenTask()
    task.start({"kafka.topic": "t", "max.interval": "0", **settings}, SourceContext(lambda _: offset))
    return list(task.poll())


@pytest.mark.parametrize("name", QUICKSTARTS)
def test_records_of_a_quickstart_fit_their_schema(name: str) -> None:
    records = poll({"quickstart": name.lower()})
    assert len(records) == 500
    for record in records:
        assert record.value_schema is not None
        validate_value(record.value_schema, record.value)
        assert record.key == record.value.get(QUICKSTARTS[name].key)
        assert record.key_schema is not None
    assert len({str(record.value) for record in records}) > 2


def test_the_same_seed_makes_the_same_records_also_after_a_restart() -> None:
    settings = {"quickstart": "orders", "random.seed": "7"}
    whole = poll(settings)
    again = poll(settings)
    assert [one.value for one in whole] == [one.value for one in again]
    rest = poll(settings, dict(whole[99].source_offset or {}))
    assert [one.value for one in rest[:400]] == [one.value for one in whole[100:]]
    assert [header.value for header in rest[0].headers] == [1, 0, 100]
    assert poll({"quickstart": "orders", "random.seed": "8"})[0].value != whole[0].value


@given(st.integers(0, 1000))
def test_text_by_a_regular_expression(seed: int) -> None:
    from random import Random

    for pattern in (
        "User_[1-9]",
        r"\d{3}-(a|bc)+x?",
        r"[^a-y]{2,4}\.(com|org)",
        r"\w\s\S.",
        "(?:ab){2}[A-C_]*",
    ):
        assert re.fullmatch(pattern, text_by_regex(pattern)(Random(seed)))


def test_annotations_of_a_schema() -> None:
    schema = {
        "type": "record",
        "name": "all",
        "fields": [
            {"name": "down", "type": {"type": "int",
                                      "arg.properties": {"iteration": {"start": 3, "restart": 0}}}},
            {"name": "flip", "type": {"type": "boolean", "arg.properties": {"iteration": {"start": True}}}},
            {"name": "maybe", "type": ["null", "string"], "arg.properties": {"position": 0}},
            {"name": "sure", "type": {"type": "boolean", "arg.properties": {"odds": 1.0}}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal",
                                       "precision": 5, "scale": 2}},
            {"name": "day", "type": {"type": "int", "logicalType": "date",
                                     "arg.properties": {"range": {"min": 0, "max": 1}}}},
            {"name": "name", "type": {"type": "string",
                                      "arg.properties": {"prefix": "<", "suffix": ">", "length": 2}}},
            {"name": "many", "type": {"type": "array", "items": "int", "arg.properties": {"length": 3}}},
            {"name": "data", "type": {"type": "bytes", "arg.properties": {"options": ["NDI="]}}},
        ],
    }  # fmt: skip
    from random import Random

    generator = build_generator(schema)
    random = Random(1)
    made = [generator.make(random) for _ in range(7)]
    for one in made:
        validate_value(generator.schema, one)
        assert one.get("maybe") is None
        assert one.get("sure") is True
        assert one.get("price").as_tuple().exponent == -2
        assert one.get("day").year == 1970
        assert len(one.get("name")) == 4
        assert one.get("name").startswith("<")
        assert len(one.get("many")) == 3
        assert one.get("data") == b"42"
    assert [one.get("down") for one in made] == [3, 2, 1, 3, 2, 1, 3]
    assert [one.get("flip") for one in made[:3]] == [True, False, True]


@pytest.mark.parametrize(
    ("settings", "name", "error"),
    [
        ({}, "quickstart", "Exactly one of quickstart, schema.string, schema.filename has to be given"),
        ({"quickstart": "nothing"}, "quickstart", "String must be one of: clickstream"),
        ({"schema.string": "{"}, "schema.string", "the schema is not JSON"),
        ({"schema.string": '"int"'}, "schema.string", "the schema has to be that of a record"),
        ({"schema.filename": "/nowhere"}, "schema.filename", "Unable to read the '/nowhere' schema file"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, str], name: str, error: str) -> None:
    found = DatagenSource.validate({"kafka.topic": "t", **settings})
    assert any(error in one for one in found[name].errors), found[name].errors


def test_a_task_ends_when_all_its_records_are_written(
    make_worker: Callable[..., Worker], connect_broker: str
) -> None:
    worker = make_worker()
    config = {
        "connector.class": "Datagen",
        "kafka.topic": "made-up",
        "quickstart": "users",
        "max.interval": "0",
        "iterations": "20",
        "tasks.max": "2",
        "value.converter": "JsonConverter",
    }
    assert worker.http.put("/connectors/gen/config", json=config).status_code == 201
    assert len(consume(connect_broker, "made-up", 40)) == 40
    wait_until(lambda: worker.states("gen") == ["RUNNING", "FAILED", "FAILED"])
    trace = worker.http.get("/connectors/gen/status").json()["tasks"][0]["trace"]
    assert "generated the configured 20 number of messages" in trace
    offsets = worker.http.get("/connectors/gen/offsets").json()["offsets"]
    assert {one["partition"]["task.id"] for one in offsets} == {0, 1}
    assert {one["offset"]["current.iteration"] for one in offsets} == {20}


def test_iterations_end_with_an_error() -> None:
    with pytest.raises(ConnectError, match="generated the configured 5 number"):
        poll({"quickstart": "users", "iterations": "5"}, {
            "task.generation": 1, "current.iteration": 5, "random.seed": 3})  # fmt: skip
