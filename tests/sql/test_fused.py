"""Filter and projection in one loop give what single operators give, by record and by block."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millstream.sql import engine
from millstream.sql.fused import FilterAndProject
from millstream.streams.columns.blocks import Records
from millstream.streams.task import StreamTask
from tests.sql.playing import Played

COLUMNS = "a INT, b STRING, c DOUBLE, d DECIMAL(5, 2)"
ROWS: list[tuple[bytes | None, bytes | None]] = [
    (b"x", b'{"a": 1, "B": "q", "c": 1.5, "D": 2.25}'),
    (b"y", b'{"A": 5, "b": null}'),
    (b"z", b'{"A": "not a number"}'),
    (b"z", b"nonsense"),
    (b"z", b"null"),
    (b"z", None),
    (None, b'{"A": 7, "C": 2}'),
    *((f"k{i}".encode(), json.dumps({"A": i, "B": str(i), "C": i / 4}).encode()) for i in range(20)),
]
QUERIES = [
    "SELECT k, a, b FROM s",
    "SELECT k, a + 1 AS x, UCASE(b) AS y, ROWTIME AS t FROM s WHERE a > 2 AND c IS NOT NULL",
    "SELECT k, AS_VALUE(k) AS v, CAST(b AS INT) AS n, d FROM s WHERE a > 0",
    "SELECT k, 10 / (a - 5) AS x FROM s",
]


def script(query: str, key: str = "STRING", format_: str = "KAFKA") -> str:
    return (
        f"CREATE STREAM s (k {key} KEY, {COLUMNS}) WITH (kafka_topic='s', key_format='{format_}',"
        f" value_format='JSON'); CREATE STREAM o AS {query};"
    )


def outputs(played: Played, rows: list[tuple[bytes | None, bytes | None]] = ROWS) -> Any:
    for time, (key, value) in enumerate(rows):
        played._deliver("s", key, value, time, ())
    return played.take("O"), [(what, text) for what, text, _ in played.log]


def is_fused(played: Played) -> bool:
    nodes = played.drivers[0][2].topology.nodes.values()
    return any(isinstance(node.operator, FilterAndProject) for node in nodes)


@pytest.mark.parametrize("query", QUERIES)
def test_the_loop_gives_what_single_operators_give(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fused = Played(script(query))
    assert is_fused(fused)
    monkeypatch.setattr(engine, "can_fuse", lambda *_: False)
    apart = Played(script(query))
    assert not is_fused(apart)
    assert outputs(fused) == outputs(apart)


@pytest.mark.parametrize("query", QUERIES)
def test_blocks_give_what_records_give(query: str) -> None:
    played = Played(script(query))
    expected, log = outputs(played)
    written: list[Any] = []
    played.log.clear()

    def collect(_topic: str, key: Any, value: Any, timestamp: int, _headers: Any, _partition: Any) -> None:
        written.append((key, None if value is None else json.loads(value), timestamp))

    task = StreamTask(played.drivers[0][2].topology, "app", collect, now=lambda: 0)
    keys, values = ([row[side] for row in ROWS] for side in (0, 1))
    stamps = np.arange(len(ROWS))
    records = Records(stamps, pa.array(keys, pa.binary()), pa.array(values, pa.binary()), stamps, None)
    assert task._deliver_columns("s", 0, records)
    assert written == expected
    assert [(what, text) for what, text, _ in played.log] == log


@pytest.mark.parametrize(
    ("key", "format_", "given", "expected"),
    [
        ("INT", "KAFKA", b"\x00\x00\x00\x05", [b"\x00\x00\x00\x05"]),
        ("INT", "KAFKA", b"\x05", []),
        ("INT", "JSON", b" 5 ", [b"5"]),
        ("STRING", "DELIMITED", b'"x"', [b"x"]),
        ("STRING", "KAFKA", b"\xff", [b"\xff"]),
    ],
)
def test_keys_are_checked_and_written_as_the_format_does(
    key: str, format_: str, given: bytes, expected: list[bytes]
) -> None:
    played = Played(script("SELECT k, a FROM s", key, format_))
    assert is_fused(played)
    found, _ = outputs(played, [(given, b'{"A": 1}')])
    assert [one for one, _, _ in found] == expected


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, ROWOFFSET AS o FROM s",
        "SELECT a, k FROM s PARTITION BY a",
        "SELECT k, EXPLODE(ARRAY[a]) AS x FROM s",
    ],
)
def test_what_needs_more_is_not_fused(query: str) -> None:
    assert not is_fused(Played(script(query)))
