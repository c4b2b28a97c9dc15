"""Which conditions of pull queries are lookups, which are scans, and how the others are refused."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.sql.errors import SqlError
from millstream.sql.parser import parse_one
from millstream.sql.pull import PullQuery, check_pull, plan_pull
from millstream.sql.statements import Select
from tests.sql.playing import Played

STREAM = (
    "CREATE STREAM s (k INT KEY, name STRING, a INT) WITH (kafka_topic='s', value_format='JSON', "
    "partitions=1);"
)
TABLES = (
    STREAM
    + "CREATE TABLE t AS SELECT k, LATEST_BY_OFFSET(name) AS name, COUNT(*) AS n FROM s GROUP BY k;"
    + "CREATE TABLE two WITH (key_format='JSON') AS SELECT k, a, COUNT(*) AS n FROM s GROUP BY k, a;"
    + "CREATE TABLE w AS SELECT k, COUNT(*) AS n FROM s WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY k;"
)
NO_SCANS = {"ksql.query.pull.table.scan.enabled": "false"}


def planned(where: str, table: str = "t", **settings: Any) -> PullQuery:
    played = Played(TABLES, **settings)
    statement = parse_one(f"SELECT * FROM {table} WHERE {where};")
    assert isinstance(statement, Select)
    source = check_pull(statement.query, played.catalog, played.environment)
    return plan_pull(statement.query, source, played.catalog, played.environment)


@pytest.mark.parametrize(
    ("where", "table", "keys"),
    [
        ("k = 1", "t", 1),
        ("1 = k", "t", 1),
        ("k IN (3, 1, 2)", "t", 3),
        ("k = 1 AND n > 3", "t", 1),
        ("k = 1 OR k = 2", "t", 2),
        ("k = 1 AND a = 2", "two", 1),
        ("k = 1 AND WINDOWSTART > 5", "w", 1),
    ],
)
def test_a_fixed_key_is_looked_up(where: str, table: str, keys: int) -> None:
    found = planned(where, table, **NO_SCANS).keys
    assert found is not None
    assert len(found) == keys


@pytest.mark.parametrize(
    "where", ["k > 1", "k BETWEEN 1 AND 3", "n = 1", "name LIKE 'a%'", "name IS NULL", "NOT (k = 1)"]
)
def test_all_else_is_a_scan(where: str) -> None:
    assert planned(where).keys is None


@pytest.mark.parametrize(
    ("where", "table", "message"),
    [
        ("n > 1", "t", "WHERE clause missing key column for disjunct: (N > 1)"),
        ("k = 1 OR n = 2", "t", "WHERE clause missing key column for disjunct: (N = 2)"),
        ("k + 1 = 2", "t", "A comparison must directly reference a key column"),
        ("k = n", "t", "A comparison must be between a key column and a resolvable expression"),
        ("k <> 1", "t", "Bound on key columns '[`K` INTEGER KEY]' must currently be '='"),
        ("0 < k AND k < 9", "t", "A comparison condition on the key column cannot be combined with other"),
        ("k = 1", "two", "Multi-column sources must specify every key in the WHERE clause. Specified: [`K`]"),
        ("'a' LIKE 'a'", "t", "Like condition must be between strings"),
        ("name IS NULL", "t", "Unsupported expression in WHERE clause: (NAME IS NULL)"),
        ("WINDOWSTART > 5", "w", "WHERE clause missing key column for disjunct"),
        ("k = 1 AND WINDOWSTART <> 5", "w", "Unsupported `WINDOWSTART` bounds"),
    ],
)
def test_without_scans_what_needs_one_is_refused(where: str, table: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        planned(where, table, **NO_SCANS)
    assert message in str(caught.value)
    assert "Add EMIT CHANGES if you intended to issue a push query." in str(caught.value)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("k LIKE 'a'", "The column type for Like condition must be VARCHAR. The column type is INTEGER"),
        ("name BETWEEN 1 AND 2", "Invalid expression: Cannot compare NAME (STRING) to 1 (INTEGER)"),
        ("name = 1", "Error in WHERE expression: Cannot compare NAME (STRING) to 1 (INTEGER) with EQUAL."),
        ("k IN ('x')", "'x' can not be converted to the type of the key column: K INTEGER KEY"),
        ("k IN (NULL)", "Primary key columns can not be NULL: (K = null)"),
    ],
)
def test_what_no_scan_can_answer_is_refused_too(where: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        planned(where)
    assert message in str(caught.value)


def test_no_condition_needs_a_scan() -> None:
    played = Played(TABLES, **NO_SCANS)
    statement = parse_one("SELECT * FROM t;")
    assert isinstance(statement, Select)
    source = check_pull(statement.query, played.catalog, played.environment)
    with pytest.raises(SqlError, match="Missing WHERE clause"):
        plan_pull(statement.query, source, played.catalog, played.environment)


def test_midnight_may_be_the_end_of_a_day() -> None:
    assert planned("k = 1 AND WINDOWSTART < '2020-02-24T24'", "w").keys is not None
    with pytest.raises(SqlError, match="Failed to parse timestamp"):
        planned("k = 1 AND WINDOWSTART < '2020-02-24T24:01'", "w")
