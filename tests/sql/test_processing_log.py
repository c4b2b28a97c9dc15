"""What the processing log says of a query, and the stream over it."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from millstream.sql.processing_log import QueryLog, processing_log, stream_over_it
from millstream.sql.recipes import Recipe
from millstream.sql.row_functions import no_log
from millstream.streams.task import Errors
from millstream.testing.topology import TopologyTestDriver
from tests.sql.playing import Played


def _entries(rows: bool) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    log = QueryLog(found.append, "CSAS_A_1", rows=rows)
    log("column X", "A / B", ValueError("/ by zero"), (1, 0))
    log("filter", "A", ValueError("no"), (1, 0))
    log("deserialization", "orders", ValueError("not JSON"), b"{")
    return found


def test_an_entry_names_its_query_and_step_but_no_data() -> None:
    found = _entries(rows=False)
    assert [entry["logger"] for entry in found] == [
        "processing.CSAS_A_1.Project",
        "processing.CSAS_A_1.WhereFilter",
        "processing.CSAS_A_1.KsqlTopic.Source.deserializer",
    ]
    first, _, last = (entry["message"] for entry in found)
    assert first["type"] == 1
    assert first["recordProcessingError"] == {
        "errorMessage": "Error computing column X: A / B: / by zero",
        "record": None,
        "cause": ["/ by zero"],
    }
    assert last["deserializationError"]["topic"] == "orders"
    assert last["deserializationError"]["recordB64"] is None


def test_rows_are_there_when_they_are_wanted() -> None:
    first, _, last = (entry["message"] for entry in _entries(rows=True))
    assert first["recordProcessingError"]["record"] == "[1, 0]"
    assert base64.b64decode(last["deserializationError"]["recordB64"]) == b"{"


def test_without_a_topic_nothing_is_kept() -> None:
    assert processing_log(None, "t", {}) is no_log


def test_the_stream_over_it_reads_every_entry() -> None:
    played = Played(
        stream_over_it("PROCESSING_LOG", "log", 1, 1)
        + "CREATE STREAM o AS SELECT logger, message->`recordProcessingError`->`errorMessage` AS why, "
        "message->`deserializationError`->`topic` AS origin FROM processing_log;"
    )
    for entry in _entries(rows=False):
        played.pipe("log", None, entry)
    assert [(row["WHY"], row["ORIGIN"]) for row in played.values("O")] == [
        ("Error computing column X: A / B: / by zero", None),
        ("Error computing filter: A: no", None),
        (None, "orders"),
    ]


@pytest.mark.parametrize("select", ["K, T", "K, T, ROWPARTITION AS P"])
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("ksql.fail.on.deserialization.error", b"{"),
        ("ksql.timestamp.throw.on.invalid", b'{"t": -5}'),
    ],
)
def test_settings_that_end_a_query_at_its_first_bad_record(select: str, setting: str, value: bytes) -> None:
    made = Played(
        "CREATE STREAM s (k STRING KEY, t BIGINT) WITH (kafka_topic='s', value_format='JSON'"
        + (", timestamp='t');" if "timestamp" in setting else ");")
    )
    statement = f"CREATE STREAM o AS SELECT {select} FROM s;"
    for settings in ({}, {setting: "false"}, {setting: "true"}):
        query = Recipe(statement, made.catalog, settings).query()
        driver = TopologyTestDriver(query.topology(), start=0, errors=Errors(reading="continue"))
        if settings.get(setting) == "true":
            with pytest.raises(Exception, match=f"{setting} is true, and a record of s has this error"):
                driver.pipe_raw("s", b"k", value, 0)
            continue
        driver.pipe_raw("s", b"k", value, 0)
        driver.pipe_raw("s", b"k", b'{"t": 5}', 0)
        assert len(driver.read_raw("O")) == 1
