"""What the processing log says of a query, and the stream over it."""

from __future__ import annotations

import base64
from typing import Any

from millstream.sql.processing_log import QueryLog, processing_log, stream_over_it
from millstream.sql.row_functions import no_log
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
