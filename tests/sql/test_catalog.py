"""Statements that change the catalog."""

from __future__ import annotations

import pytest

from millstream.sql.catalog import Catalog
from millstream.sql.engine import Outcome, apply
from millstream.sql.environment import Environment
from millstream.sql.functions import FUNCTIONS
from millstream.sql.parser import parse_one
from tests.sql.playing import Played

STREAM = "CREATE STREAM s (k STRING KEY, a INT) WITH (kafka_topic='t', value_format='JSON');"
ENVIRONMENT = Environment(FUNCTIONS)


def after(text: str, catalog: Catalog | None = None) -> Outcome:
    return apply(parse_one(text), catalog or Catalog(), ENVIRONMENT)


def test_a_snapshot_does_not_change() -> None:
    before = Catalog()
    outcome = after(STREAM, before)
    assert before.source("S") is None
    source = outcome.catalog.source("S")
    assert source is not None
    assert source.schema.text() == "`K` STRING KEY, `A` INTEGER"
    assert (source.key_format.name, source.value_format.name, source.topic) == ("KAFKA", "JSON", "t")


def test_if_not_exists_and_if_exists() -> None:
    there = after(STREAM).catalog
    again = after(STREAM.replace("STREAM s", "STREAM IF NOT EXISTS s"), there)
    assert again.catalog is there
    assert "already exists" in again.message
    assert "does not exist" in after("DROP STREAM IF EXISTS q;", there).message


def test_drop() -> None:
    outcome = after("DROP STREAM s DELETE TOPIC;", after(STREAM).catalog)
    assert (outcome.catalog.source("S"), outcome.delete_topic) == (None, "t")


def test_alter_and_replace_add_columns() -> None:
    altered = after("ALTER STREAM s ADD COLUMN b STRING;", after(STREAM).catalog).catalog
    assert altered.sources["S"].schema.text() == "`K` STRING KEY, `A` INTEGER, `B` STRING"
    wider = STREAM.replace("CREATE", "CREATE OR REPLACE").replace("a INT", "a INT, b STRING, c INT")
    assert after(wider, altered).catalog.sources["S"].schema.value[-1].name == "C"


def test_types() -> None:
    named = after("CREATE TYPE address AS STRUCT<street STRING, number INT>;").catalog
    made = after(
        "CREATE STREAM s (a ADDRESS, b ARRAY<address>) WITH (kafka_topic='t', format='json');", named
    )
    address = "STRUCT<`STREET` STRING, `NUMBER` INTEGER>"
    assert made.catalog.sources["S"].schema.text() == f"`A` {address}, `B` ARRAY<{address}>"
    assert after("DROP TYPE address;", made.catalog).catalog.type("ADDRESS") is None


def test_a_query_is_known_with_its_sources_and_its_sink() -> None:
    played = Played(STREAM + "CREATE STREAM o AS SELECT k, a FROM s; INSERT INTO o SELECT k, a FROM s;")
    assert {query.id for query in played.catalog.readers("S")} == {"CSAS_O_1", "INSERTQUERY_2"}
    assert {query.kind for query in played.catalog.writers("O")} == {"CREATE_AS", "INSERT"}


@pytest.mark.parametrize(
    ("with_", "key", "value", "topic"),
    [
        ("", "KAFKA", "JSON", "O"),
        ("WITH (format='JSON', kafka_topic='x')", "JSON", "JSON", "x"),
        ("WITH (value_format='DELIMITED')", "KAFKA", "DELIMITED", "O"),
    ],
)
def test_a_sink_takes_over_formats(with_: str, key: str, value: str, topic: str) -> None:
    sink = Played(STREAM + f"CREATE STREAM o {with_} AS SELECT k, a FROM s;").source("O")
    assert (sink.key_format.name, sink.value_format.name, sink.topic) == (key, value, topic)


def test_settings() -> None:
    played = Played(
        "CREATE STREAM s (k STRING KEY, a INT) WITH (kafka_topic='t');CREATE STREAM o AS SELECT k, a FROM s;",
        **{
            "ksql.persistence.default.format.key": "JSON",
            "ksql.persistence.default.format.value": "DELIMITED",
            "ksql.output.topic.name.prefix": "p-",
            "ksql.persistence.wrap.single.values": "false",
        },
    )
    source, sink = played.source("S"), played.source("O")
    assert (source.key_format.name, source.value_format.name) == ("JSON", "DELIMITED")
    assert sink.topic == "p-O"


@pytest.mark.parametrize(
    ("select", "names"),
    [
        ("*", ["K", "A"]),
        ("k, a + 1, a * 2", ["K", "KSQL_COL_0", "KSQL_COL_1"]),
        ("k, a AS `a`, a AS b", ["K", "a", "B"]),
        ("k, STRUCT(x := a)->x, STRUCT(x := a)->x", ["K", "X", "X_1"]),
        ("k, STRUCT(x := a, y := k)->*", ["K", "X", "Y"]),
        ("k, STRUCT(a := 1)->*", ["K", "A"]),
        ("k, STRUCT(a := 1)->a", ["K", "A_1"]),
        ("q.k, q.a AS KSQL_COL_0, a + 1", ["K", "KSQL_COL_0", "KSQL_COL_1"]),
    ],
)
def test_names_of_columns(select: str, names: list[str]) -> None:
    played = Played(STREAM + f"CREATE STREAM o AS SELECT {select} FROM s q;")
    assert [column.name for column in played.source("O").schema.columns] == names
