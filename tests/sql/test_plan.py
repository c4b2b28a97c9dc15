"""Queries by what they write."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.sql import ast
from tests.sql.playing import Played

STREAM = "CREATE STREAM s (k STRING KEY, a INT, b STRING) WITH (kafka_topic='s', value_format='JSON');"
OTHER = "CREATE STREAM r (k STRING KEY, c INT) WITH (kafka_topic='r', value_format='JSON');"
TABLE = "CREATE TABLE t (k STRING PRIMARY KEY, c INT) WITH (kafka_topic='t', value_format='JSON');"
TABLE_2 = "CREATE TABLE u (k STRING PRIMARY KEY, d INT) WITH (kafka_topic='u', value_format='JSON');"


def windowed(key: str, start: int) -> bytes:
    return key.encode() + start.to_bytes(8, "big")


def session(key: str, start: int, end: int) -> bytes:
    return key.encode() + end.to_bytes(8, "big") + start.to_bytes(8, "big")


def test_projection_and_filter() -> None:
    played = Played(STREAM + "CREATE STREAM o AS SELECT k, a * 2 AS d, AS_VALUE(k) AS v FROM s WHERE a > 1;")
    played.pipe("s", "x", {"A": 1}, 5)
    played.pipe("s", "y", {"a": 2, "B": "q"}, 6)
    played.pipe("s", "z", None, 7)
    assert played.take("O") == [(b"y", {"D": 4, "V": "y"}, 6)]
    assert played.source("O").schema.text() == "`K` STRING KEY, `D` INTEGER, `V` STRING"


def test_what_is_selected_is_not_compared_with_every_part_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    equal = ast.Arithmetic.__eq__

    def counted(one: ast.Arithmetic, other: object) -> bool:
        compared.append(other)
        return equal(one, other)

    monkeypatch.setattr(ast.Arithmetic, "__eq__", counted)
    groups = [f"a + {number}" for number in range(200)]
    select = ", ".join(f"{group} AS c{number}" for number, group in enumerate(groups))
    Played(
        STREAM.replace("JSON'", "JSON', key_format='JSON'")
        + f"CREATE TABLE o AS SELECT {select}, COUNT(*) AS n FROM s GROUP BY {', '.join(groups)};"
    )
    assert len(compared) < 20 * len(groups)


def test_a_record_without_a_value_passes_through_a_projection() -> None:
    played = Played(STREAM + "CREATE STREAM o AS SELECT k, a FROM s;")
    played.pipe("s", "x", None, 5)
    assert played.take("O") == [(b"x", None, 5)]


def test_what_cannot_be_read_is_left_out_and_logged() -> None:
    played = Played(STREAM + "CREATE STREAM o AS SELECT k, a FROM s;")
    played.pipe("s", "x", b"{nonsense", 5)
    played.pipe("s", "x", {"A": 1}, 6)
    assert played.values("O") == [{"A": 1}]
    assert [(what, topic) for what, topic, _ in played.log] == [("deserialization", "s")]


def test_time_and_place_of_a_record() -> None:
    played = Played(
        STREAM + "CREATE STREAM o AS SELECT k, ROWTIME AS t, ROWPARTITION AS p, ROWOFFSET AS o FROM s;"
    )
    played.pipe("s", "x", {"A": 1}, 5)
    played.pipe("s", "x", {"A": 1}, 6)
    assert played.values("O") == [{"T": 5, "P": 0, "O": 0}, {"T": 6, "P": 0, "O": 1}]


@pytest.mark.parametrize(
    "condition",
    [
        "ROWTIME > '1970-01-02'",
        "'1970-01-02T00:00:00' < ROWTIME",
        "ROWTIME BETWEEN '1970-01-02' AND '2020-01-01'",
    ],
)
def test_text_beside_a_time_is_a_time(condition: str) -> None:
    played = Played(STREAM + f"CREATE STREAM o AS SELECT k, a FROM s WHERE {condition};")
    for time in (86_399_999, 86_400_001):
        played.pipe("s", "x", {"A": 1}, time)
    assert [time for _, _, time in played.take("O")] == [86_400_001]


def test_headers() -> None:
    played = Played(
        "CREATE STREAM s (k STRING KEY, v INT, every ARRAY<STRUCT<key STRING, value BYTES>> HEADERS)"
        " WITH (kafka_topic='s', value_format='JSON');"
        "CREATE STREAM w (k STRING KEY, one BYTES HEADER('h')) WITH (kafka_topic='s', value_format='JSON');"
        "CREATE STREAM o AS SELECT k, every[1]->key AS first FROM s;"
        "CREATE STREAM p AS SELECT k, FROM_BYTES(one, 'utf8') AS one FROM w;"
    )
    played.pipe("s", "x", {"V": 1}, 5, (("g", b"1"), ("h", b"2"), ("h", b"3")))
    assert played.values("O") == [{"FIRST": "g"}]
    assert played.values("P") == [{"ONE": "3"}]


def test_the_timestamp_of_a_column_counts_at_the_source_and_at_the_sink() -> None:
    played = Played(
        "CREATE STREAM s (k STRING KEY, a BIGINT, b BIGINT)"
        " WITH (kafka_topic='s', value_format='JSON', timestamp='a');"
        "CREATE STREAM o AS SELECT k, ROWTIME AS t, b FROM s;"
        "CREATE STREAM p WITH (timestamp='B') AS SELECT k, b FROM s;"
    )
    played.pipe("s", "x", {"A": 10, "B": 20}, 5)
    played.pipe("s", "x", {"A": -1, "B": 20}, 5)
    assert played.take("O") == [(b"x", {"T": 10, "B": 20}, 10)]
    assert played.take("P") == [(b"x", {"B": 20}, 20)]


def test_a_timestamp_may_be_text() -> None:
    played = Played(
        "CREATE STREAM s (k STRING KEY, a STRING) WITH (kafka_topic='s', value_format='JSON', timestamp='a',"
        " timestamp_format='yyyy-MM-dd');"
        "CREATE STREAM o AS SELECT k, a FROM s;"
    )
    played.pipe("s", "x", {"A": "1970-01-02"}, 5)
    assert [time for _, _, time in played.take("O")] == [86_400_000]


def test_statements_follow_each_other() -> None:
    played = Played(
        STREAM
        + "CREATE STREAM one AS SELECT k, a + 1 AS a FROM s;"
        + "CREATE STREAM two AS SELECT k, a * 10 AS a FROM one;"
    )
    played.pipe("s", "x", {"A": 1})
    assert played.values("TWO") == [{"A": 20}]


def test_partition_by() -> None:
    played = Played(STREAM + "CREATE STREAM o AS SELECT b, a, k FROM s PARTITION BY b;")
    played.pipe("s", "x", {"A": 1, "B": "q"}, 3)
    played.pipe("s", "x", {"A": 1}, 4)
    assert played.take("O") == [(b"q", {"A": 1, "K": "x"}, 3), (None, {"A": 1, "K": "x"}, 4)]


def test_partition_by_an_expression_is_a_column_of_the_star() -> None:
    played = Played(STREAM + "CREATE STREAM o AS SELECT * FROM s PARTITION BY UCASE(b);")
    assert played.source("O").schema.text() == "`KSQL_COL_0` STRING KEY, `A` INTEGER, `B` STRING, `K` STRING"
    played.pipe("s", "x", {"A": 1, "B": "q"}, 3)
    assert played.take("O") == [(b"Q", {"A": 1, "B": "q", "K": "x"}, 3)]


def test_a_table_function_may_give_arrays() -> None:
    played = Played(
        "CREATE STREAM s (k STRING KEY, a ARRAY<ARRAY<INT>>) WITH (kafka_topic='s', value_format='JSON');"
        "CREATE STREAM o AS SELECT k, EXPLODE(a) AS x FROM s;"
        "CREATE STREAM p AS SELECT k, CUBE_EXPLODE(ARRAY[1]) AS x FROM s;"
    )
    assert played.source("O").schema.text() == "`K` STRING KEY, `X` ARRAY<INTEGER>"
    assert played.source("P").schema.text() == "`K` STRING KEY, `X` ARRAY<INTEGER>"
    played.pipe("s", "x", {"A": [[1], [2, 3]]})
    assert played.values("O") == [{"X": [1]}, {"X": [2, 3]}]
    assert played.values("P") == [{"X": [None]}, {"X": [1]}]


def test_table_functions_are_zipped() -> None:
    played = Played(
        "CREATE STREAM s (k STRING KEY, a ARRAY<INT>, b ARRAY<STRING>)"
        " WITH (kafka_topic='s', value_format='JSON');"
        "CREATE STREAM o AS SELECT k, EXPLODE(a) AS x, EXPLODE(b) AS y, 1 AS z FROM s;"
    )
    played.pipe("s", "x", {"A": [1, 2], "B": ["p"]})
    played.pipe("s", "x", {"A": [], "B": None})
    assert played.values("O") == [{"X": 1, "Y": "p", "Z": 1}, {"X": 2, "Y": None, "Z": 1}]


# GROUP BY -------------------------------------------------------------------------------------------------


def test_group_by_the_key() -> None:
    played = Played(STREAM + "CREATE TABLE o AS SELECT k, COUNT(*) AS n, SUM(a) AS t FROM s GROUP BY k;")
    for key, value in (("x", 1), ("y", 5), ("x", 2)):
        played.pipe("s", key, {"A": value}, 7)
    assert played.take("O") == [
        (b"x", {"N": 1, "T": 1}, 7),
        (b"y", {"N": 1, "T": 5}, 7),
        (b"x", {"N": 2, "T": 3}, 7),
    ]
    topics = played.drivers[0][2].topology.internal
    assert not topics  # the records lie by their key already


def test_aggregates_of_nothing_are_of_rowtime() -> None:
    played = Played(
        STREAM
        + OTHER
        + "CREATE TABLE o AS SELECT k, AVG(*) AS a, MAX() AS m, COUNT(*) AS n FROM s GROUP BY k "
        + "HAVING MIN() < 100; CREATE TABLE p AS SELECT b, SUM(*) AS a FROM s JOIN r WITHIN 1 DAY "
        + "ON s.k = r.k GROUP BY b;"
    )
    played.pipe("r", "x", {"C": 1}, 5)
    played.pipe("s", "x", {"A": 1, "B": "q"}, 10)
    played.pipe("s", "x", {"A": 1, "B": "q"}, 20)
    assert played.values("O") == [{"A": 10.0, "M": 10, "N": 1}, {"A": 15.0, "M": 20, "N": 2}]
    assert played.values("P") == [{"A": 10}, {"A": 30}]


def test_group_by_an_expression_goes_through_a_repartition_topic() -> None:
    played = Played(
        STREAM + "CREATE TABLE o AS SELECT UCASE(b) AS g, COUNT(*) AS n FROM s GROUP BY UCASE(b);"
    )
    for value in ("p", "P", None):
        played.pipe("s", "x", {"B": value})
    assert played.take("O") == [(b"P", {"N": 1}, 0), (b"P", {"N": 2}, 0)]
    assert list(played.drivers[0][2].topology.internal) == ["Aggregate-GroupBy-repartition"]


def test_having() -> None:
    played = Played(STREAM + "CREATE TABLE o AS SELECT k, SUM(a) AS t FROM s GROUP BY k HAVING SUM(a) > 2;")
    for value in (1, 2, -3):
        played.pipe("s", "x", {"A": value})
    assert played.values("O") == [{"T": 3}, None]


def test_group_by_of_a_table_takes_back_what_was() -> None:
    played = Played(
        "CREATE TABLE t (k STRING PRIMARY KEY, g STRING, a INT) WITH (kafka_topic='t', value_format='JSON');"
        "CREATE TABLE o AS SELECT g, SUM(a) AS t, COUNT(*) AS n FROM t GROUP BY g;"
    )
    played.pipe("t", "x", {"G": "p", "A": 1})
    played.pipe("t", "y", {"G": "p", "A": 2})
    played.pipe("t", "x", {"G": "q", "A": 5})
    played.pipe("t", "y", None)
    assert [(key, value) for key, value, _ in played.take("O")] == [
        (b"p", {"T": 1, "N": 1}),
        (b"p", {"T": 3, "N": 2}),
        (b"p", {"T": 2, "N": 1}),
        (b"q", {"T": 5, "N": 1}),
        (b"p", {"T": 0, "N": 0}),
    ]


def test_tumbling_windows_and_their_bounds() -> None:
    played = Played(
        STREAM
        + "CREATE TABLE o AS SELECT k, WINDOWSTART AS f, WINDOWEND AS t, COUNT(*) AS n FROM s"
        + " WINDOW TUMBLING (SIZE 10 MILLISECONDS) GROUP BY k;"
    )
    for time in (3, 12, 5):
        played.pipe("s", "x", {"A": 1}, time)
    assert played.take("O") == [
        (windowed("x", 0), {"F": 0, "T": 10, "N": 1}, 3),
        (windowed("x", 10), {"F": 10, "T": 20, "N": 1}, 12),
        (windowed("x", 0), {"F": 0, "T": 10, "N": 2}, 5),
    ]


def test_grace() -> None:
    played = Played(
        STREAM
        + "CREATE TABLE o AS SELECT k, COUNT(*) AS n FROM s"
        + " WINDOW TUMBLING (SIZE 10 MILLISECONDS, GRACE PERIOD 0 MILLISECONDS) GROUP BY k;"
    )
    for time in (3, 12, 5):
        played.pipe("s", "x", {"A": 1}, time)
    assert [key for key, _, _ in played.take("O")] == [windowed("x", 0), windowed("x", 10)]


def test_hopping_windows() -> None:
    played = Played(
        STREAM
        + "CREATE TABLE o AS SELECT k, COUNT(*) AS n FROM s"
        + " WINDOW HOPPING (SIZE 10 MILLISECONDS, ADVANCE BY 5 MILLISECONDS) GROUP BY k;"
    )
    played.pipe("s", "x", {"A": 1}, 7)
    assert [key for key, _, _ in played.take("O")] == [windowed("x", 0), windowed("x", 5)]


def test_sessions_merge() -> None:
    played = Played(
        STREAM + "CREATE TABLE o AS SELECT k, SUM(a) AS t FROM s WINDOW SESSION (10 MILLISECONDS) GROUP BY k;"
    )
    for value, time in ((1, 0), (2, 18), (4, 9)):
        played.pipe("s", "x", {"A": value}, time)
    assert [(key, value) for key, value, _ in played.take("O")] == [
        (session("x", 0, 0), {"T": 1}),
        (session("x", 18, 18), {"T": 2}),
        (session("x", 0, 0), None),
        (session("x", 18, 18), None),
        (session("x", 0, 18), {"T": 7}),
    ]


def test_emit_final_sends_a_window_once() -> None:
    played = Played(
        STREAM
        + "CREATE TABLE o AS SELECT k, COUNT(*) AS n FROM s"
        + " WINDOW TUMBLING (SIZE 10 MILLISECONDS, GRACE PERIOD 0 MILLISECONDS) GROUP BY k EMIT FINAL;"
    )
    for time in (3, 5, 12):
        played.pipe("s", "x", {"A": 1}, time)
    assert played.take("O") == [(windowed("x", 0), {"N": 2}, 5)]


def test_a_windowed_table_can_be_read_again() -> None:
    played = Played(
        STREAM
        + "CREATE TABLE w AS SELECT k, COUNT(*) AS n FROM s"
        + " WINDOW TUMBLING (SIZE 10 MILLISECONDS) GROUP BY k;"
        + "CREATE TABLE o AS SELECT k, n * 10 AS m, WINDOWSTART AS f FROM w;"
    )
    played.pipe("s", "x", {"A": 1}, 13)
    assert played.take("O") == [(windowed("x", 10), {"M": 10, "F": 10}, 13)]


# Joins ----------------------------------------------------------------------------------------------------


def test_stream_stream_joins() -> None:
    played = Played(
        STREAM
        + OTHER
        + "CREATE STREAM o AS SELECT s.k, a, c FROM s JOIN r WITHIN 10 MILLISECONDS ON s.k=r.k;"
    )
    played.pipe("s", "x", {"A": 1}, 0)
    played.pipe("r", "x", {"C": 2}, 10)
    played.pipe("r", "x", {"C": 3}, 11)
    assert played.take("O") == [(b"x", {"A": 1, "C": 2}, 10)]
    assert played.source("O").schema.text() == "`S_K` STRING KEY, `A` INTEGER, `C` INTEGER"


@pytest.mark.parametrize(
    ("grace", "expected"),
    [
        ("", [{"A": 1, "C": None}, {"A": 1, "C": 2}, {"A": 5, "C": None}]),
        (" GRACE PERIOD 0 MILLISECONDS", [{"A": 1, "C": 2}]),
    ],
)
def test_without_grace_a_left_join_sends_a_record_at_once(grace: str, expected: list[Any]) -> None:
    played = Played(
        STREAM
        + OTHER
        + f"CREATE STREAM o AS SELECT s.k, a, c FROM s LEFT JOIN r WITHIN 10 MILLISECONDS{grace} ON s.k=r.k;"
    )
    played.pipe("s", "x", {"A": 1}, 0)
    played.pipe("r", "x", {"C": 2}, 3)
    played.pipe("s", "x", {"A": 5}, 20)
    assert played.values("O") == expected


def test_a_right_join_is_a_left_join_of_the_other_side() -> None:
    played = Played(
        STREAM
        + OTHER
        + "CREATE STREAM o AS SELECT r.k, a, c FROM s RIGHT JOIN r WITHIN 9 SECONDS ON s.k=r.k;"
    )
    played.pipe("r", "x", {"C": 2}, 0)
    played.pipe("s", "x", {"A": 1}, 3)
    assert played.values("O") == [{"A": None, "C": 2}, {"A": 1, "C": 2}]


def test_a_full_join_has_a_key_of_its_own() -> None:
    played = Played(
        STREAM + OTHER + "CREATE STREAM o AS SELECT * FROM s FULL JOIN r WITHIN 10 MILLISECONDS ON s.k = r.k;"
    )
    played.pipe("r", "x", {"C": 2}, 0)
    [(key, value, _)] = played.take("O")
    assert (key, value["S_K"], value["R_K"], value["R_C"]) == (b"x", None, "x", 2)
    assert played.source("O").schema.key[0].name == "ROWKEY"


def test_a_join_on_values_repartitions() -> None:
    played = Played(
        STREAM + OTHER + "CREATE STREAM o AS SELECT b, c FROM s JOIN r WITHIN 1 SECOND ON s.b = r.k;"
    )
    played.pipe("s", "x", {"B": "q"}, 0)
    played.pipe("r", "q", {"C": 2}, 3)
    assert played.take("O") == [(b"q", {"C": 2}, 3)]
    assert list(played.drivers[0][2].topology.internal) == ["Join-left-repartition"]


@pytest.mark.parametrize(("kind", "expected"), [("JOIN", [2]), ("LEFT JOIN", [None, 2, None])])
def test_stream_table_joins(kind: str, expected: list[Any]) -> None:
    played = Played(STREAM + TABLE + f"CREATE STREAM o AS SELECT s.k, a, c FROM s {kind} t ON s.k = t.k;")
    played.pipe("s", "x", {"A": 1}, 0)
    played.pipe("t", "x", {"C": 2}, 0)
    played.pipe("s", "x", {"A": 1}, 1)
    played.pipe("t", "x", None, 2)
    played.pipe("s", "x", {"A": 1}, 3)
    assert [value["C"] for value in played.values("O")] == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("JOIN", [{"C": 1, "D": 2}, None]),
        ("LEFT JOIN", [{"C": 1, "D": None}, {"C": 1, "D": 2}, {"C": 1, "D": None}]),
    ],
)
def test_table_table_joins(kind: str, expected: list[Any]) -> None:
    played = Played(TABLE + TABLE_2 + f"CREATE TABLE o AS SELECT t.k, c, d FROM t {kind} u ON t.k = u.k;")
    played.pipe("t", "x", {"C": 1})
    played.pipe("u", "x", {"D": 2})
    played.pipe("u", "x", None)
    assert played.values("O") == expected


def test_foreign_keys() -> None:
    played = Played(
        "CREATE TABLE l (k STRING PRIMARY KEY, f STRING) WITH (kafka_topic='l', value_format='JSON');"
        + TABLE
        + "CREATE TABLE o AS SELECT l.k, f, c FROM l JOIN t ON l.f = t.k;"
    )
    played.pipe("l", "x", {"F": "q"})
    played.pipe("l", "y", {"F": "q"})
    played.pipe("t", "q", {"C": 1})
    played.pipe("l", "x", {"F": "gone"})
    assert [(key, value) for key, value, _ in played.take("O")] == [
        (b"x", {"F": "q", "C": 1}),
        (b"y", {"F": "q", "C": 1}),
        (b"x", None),
    ]


def test_three_sources() -> None:
    played = Played(
        STREAM + TABLE + TABLE_2 + "CREATE STREAM o AS SELECT s.k, a, c, d FROM s JOIN t ON s.k = t.k"
        " LEFT JOIN u ON s.k = u.k;"
    )
    played.pipe("t", "x", {"C": 1})
    played.pipe("s", "x", {"A": 3})
    played.pipe("u", "x", {"D": 2})
    played.pipe("s", "x", {"A": 4})
    assert played.values("O") == [{"A": 3, "C": 1, "D": None}, {"A": 4, "C": 1, "D": 2}]


def test_insert_into_writes_the_target_topic_with_its_types() -> None:
    played = Played(
        STREAM
        + "CREATE STREAM o (k STRING KEY, a BIGINT, b STRING) WITH (kafka_topic='o', value_format='JSON');"
        + "INSERT INTO o SELECT * FROM s;"
    )
    played.pipe("s", "x", {"A": 1, "B": "q"})
    assert played.take("o") == [(b"x", {"A": 1, "B": "q"}, 0)]


def test_two_sources_of_one_topic_may_have_different_formats() -> None:
    played = Played(
        "CREATE STREAM one (k STRING KEY, a INT) WITH (kafka_topic='s', value_format='JSON');"
        "CREATE STREAM two (k STRING KEY, line STRING) WITH (kafka_topic='s', value_format='KAFKA');"
        "CREATE STREAM o WITH (value_format='JSON') AS SELECT k, LEN(line) AS n FROM two;"
        "CREATE STREAM p AS SELECT k, a FROM one;"
    )
    played.pipe("s", "x", {"A": 1})
    assert (played.values("O"), played.values("P")) == ([{"N": 8}], [{"A": 1}])
