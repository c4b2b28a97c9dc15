"""Statements and what they become."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from millstream.sql import ast, statements
from millstream.sql.ast import Arithmetic, Call, Case, Cast, Column, Compare, Literal, Logical, Not
from millstream.sql.errors import SqlError, SqlSyntaxError
from millstream.sql.parser import directives, parse, parse_each, parse_one, split, substitute


def expression(text: str) -> ast.Expression:
    statement = parse_one(f"SELECT {text} FROM s EMIT CHANGES;")
    assert isinstance(statement, statements.Select)
    found = statement.query.select[0].expression
    assert found is not None
    return found


def query(text: str) -> ast.Query:
    statement = parse_one(text)
    assert isinstance(statement, statements.Select)
    return statement.query


A, B, C = Column("A"), Column("B"), Column("C")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a + b * c", Arithmetic("+", A, Arithmetic("*", B, C))),
        ("a - b - c", Arithmetic("-", Arithmetic("-", A, B), C)),
        ("(a + b) * c", Arithmetic("*", Arithmetic("+", A, B), C)),
        ("a || b", Call("CONCAT", (A, B))),
        ("a OR b AND NOT c", Logical("OR", A, Logical("AND", B, Not(C)))),
        ("a = b AND c", Logical("AND", Compare("=", A, B), C)),
        ("a != b", Compare("<>", A, B)),
        ("a IS NOT DISTINCT FROM b", Not(Compare("IS DISTINCT FROM", A, B))),
        ("a IS NULL", ast.IsNull(A)),
        ("a NOT IN (b, c)", Not(ast.In(A, (B, C)))),
        ("a LIKE 'x!%' ESCAPE '!'", ast.Like(A, Literal("x!%"), "!")),
        ("a BETWEEN b AND c", ast.Between(A, B, C)),
        ("-1", Literal(-1)),
        ("- a", ast.Signed("-", A)),
        ("3000000000", Literal(3000000000, long=True)),
        ("1.50", Literal(Decimal("1.50"))),
        ("1e2", Literal(100.0)),
        ("TRUE", Literal(True)),
        ("NULL", Literal(None)),
        ("s.a->b[1]", ast.Subscript(ast.Field(Column("A", "S"), "B"), Literal(1))),
        ("ARRAY[a, b]", ast.MakeArray((A, B))),
        ("MAP('x' := a)", ast.MakeMap(((Literal("x"), A),))),
        ("STRUCT(x := a, y := b)", ast.MakeStruct((("X", A), ("Y", B)))),
        ("COUNT(*)", Call("COUNT", ())),
        ("DATEADD(DAYS, a, b)", Call("DATEADD", (ast.Interval("DAY"), A, B))),
        ("DATEADD(DAY, a, b)", Call("DATEADD", (ast.Interval("DAY"), A, B))),
        ("F(SECOND)", Call("F", (ast.Column("SECOND"),))),
        ("F(SECONDS)", Call("F", (ast.Interval("SECOND"),))),
        (
            "TRANSFORM(a, x => x + 1)",
            Call("TRANSFORM", (A, ast.Lambda(("X",), Arithmetic("+", Column("X"), Literal(1))))),
        ),
        ("REDUCE(a, 0, (x, y) => y)", Call("REDUCE", (A, Literal(0), ast.Lambda(("X", "Y"), Column("Y"))))),
        ("CASE a WHEN 1 THEN b ELSE c END", Case(A, ((Literal(1), B),), C)),
        ("CASE WHEN a THEN b END", Case(None, ((A, B),), None)),
        ("CAST(a AS DECIMAL(4, 2))", Cast(A, ast.TypeName("DECIMAL", ("4", "2")))),
        (
            "CAST(a AS MAP<STRING, ARRAY<INT>>)",
            Cast(
                A,
                ast.TypeName(
                    "MAP",
                    arguments=(
                        ast.TypeName("STRING"),
                        ast.TypeName("ARRAY", arguments=(ast.TypeName("INT"),)),
                    ),
                ),
            ),
        ),
    ],
)
def test_expressions(text: str, expected: ast.Expression) -> None:
    assert expression(text) == expected


def test_every_node_knows_its_place() -> None:
    found = query("SELECT a,\n  b + c AS d FROM s\nJOIN t WITHIN 1 HOUR ON s.a = t.a EMIT CHANGES;")
    assert found.select[1].location == (2, 3)
    second = found.select[1].expression
    assert isinstance(second, Arithmetic)
    assert second.right.location == (2, 7)
    assert found.joins[0].location == (3, 1)
    assert found.joins[0].source.location == (3, 6)


def test_a_query_with_every_clause() -> None:
    found = query(
        "SELECT x.*, y.a AS b, y.s->* FROM x"
        " LEFT OUTER JOIN y WITHIN (1 SECOND, 2 MINUTES) GRACE PERIOD 3 HOURS ON x.a = y.a"
        " WINDOW HOPPING (SIZE 10 SECONDS, ADVANCE BY 5 SECONDS, RETENTION 1 DAY, GRACE PERIOD 0 SECONDS)"
        " WHERE y.a > 1 GROUP BY y.a, x.b HAVING COUNT(*) > 1 EMIT FINAL LIMIT 7;"
    )
    assert [(item.star, item.source, item.alias) for item in found.select] == [
        (True, "X", None),
        (False, None, "B"),
        (True, None, None),
    ]
    within = found.joins[0].within
    assert within is not None and within.grace is not None
    assert (found.joins[0].type, within.before.milliseconds, within.after.milliseconds) == (
        "LEFT",
        1000,
        120_000,
    )
    assert within.grace.milliseconds == 3 * 3_600_000
    window = found.window
    assert window is not None and window.advance is not None and window.retention is not None
    assert (window.type, window.size.milliseconds, window.advance.milliseconds) == ("HOPPING", 10_000, 5_000)
    assert window.retention.milliseconds == 86_400_000
    assert found.group_by == (Column("A", "Y"), Column("B", "X"))
    assert (found.emit, found.limit) == ("FINAL", 7)


@pytest.mark.parametrize("keys", ["(a, b)", "a, b"])
def test_keys_may_stand_in_parentheses(keys: str) -> None:
    assert query(f"SELECT * FROM s PARTITION BY {keys}").partition_by == (A, B)


def test_a_parenthesis_may_begin_an_expression() -> None:
    assert query("SELECT 1 FROM s GROUP BY (a + b) * c;").group_by == (
        Arithmetic("*", Arithmetic("+", A, B), C),
    )


def test_create() -> None:
    found = parse_one(
        "CREATE OR REPLACE STREAM IF NOT EXISTS s (k STRING KEY, v STRUCT<`a` INT, b ARRAY<VARCHAR>>,"
        " h BYTES HEADER('x'), hs ARRAY<STRUCT<key STRING, value BYTES>> HEADERS)"
        " WITH (KAFKA_TOPIC='t', PARTITIONS=3, WRAP_SINGLE_VALUE=false);"
    )
    assert isinstance(found, statements.CreateSource)
    assert (found.kind, found.name, found.or_replace, found.if_not_exists) == ("STREAM", "S", True, True)
    assert [(one.name, one.constraint, one.header) for one in found.elements] == [
        ("K", "KEY", None),
        ("V", None, None),
        ("H", "HEADERS", "x"),
        ("HS", "HEADERS", ""),
    ]
    assert [name for name, _ in found.elements[1].type.fields] == ["a", "B"]
    assert found.properties == {
        "KAFKA_TOPIC": Literal("t"),
        "PARTITIONS": Literal(3),
        "WRAP_SINGLE_VALUE": Literal(False),
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE TABLE t AS SELECT * FROM s;", statements.CreateAs),
        (
            "CREATE SOURCE TABLE t (k INT PRIMARY KEY) WITH (kafka_topic='t', format='json');",
            statements.CreateSource,
        ),
        ("INSERT INTO s SELECT * FROM t;", statements.InsertInto),
        ("INSERT INTO s (a, b) VALUES (1, ARRAY[2]);", statements.InsertValues),
        ("DROP STREAM IF EXISTS s DELETE TOPIC;", statements.DropSource),
        ("ALTER TABLE t ADD COLUMN c INT, ADD d STRING;", statements.AlterSource),
        ("ALTER SYSTEM 'a' = 'b';", statements.AlterSystem),
        ("CREATE TYPE IF NOT EXISTS a AS STRUCT<x INT>;", statements.CreateType),
        ("DROP TYPE IF EXISTS a;", statements.DropType),
        ("SET 'a' = 'b';", statements.SetProperty),
        ("UNSET 'a';", statements.UnsetProperty),
        ("DEFINE a = 'b';", statements.Define),
        ("UNDEFINE a;", statements.Undefine),
        ("TERMINATE ALL;", statements.Terminate),
        ("PAUSE CSAS_A_1;", statements.Pause),
        ("RESUME CSAS_A_1;", statements.Resume),
        ("SHOW ALL TOPICS EXTENDED;", statements.Show),
        ("LIST SOURCE CONNECTORS;", statements.Show),
        ("DESCRIBE s EXTENDED;", statements.Describe),
        ("DESCRIBE FUNCTION sum;", statements.Describe),
        ("DESCRIBE CONNECTOR c;", statements.Describe),
        ("EXPLAIN SELECT * FROM s EMIT CHANGES;", statements.Explain),
        ("EXPLAIN CSAS_A_1;", statements.Explain),
        ("CREATE SINK CONNECTOR IF NOT EXISTS c WITH ('a.b'='c');", statements.CreateConnector),
        ("DROP CONNECTOR c;", statements.DropConnector),
        ("ASSERT NOT EXISTS TOPIC t WITH (PARTITIONS=1) TIMEOUT 3 SECONDS;", statements.AssertTopic),
        ("ASSERT SCHEMA SUBJECT 'a' ID 3;", statements.AssertSchema),
    ],
)
def test_statements(text: str, expected: type) -> None:
    assert type(parse_one(text)) is expected


@pytest.mark.parametrize(
    ("text", "topic", "beginning", "interval", "limit"),
    [
        ("PRINT 'a.b';", "a.b", False, None, None),
        ("PRINT my-topic.x FROM BEGINNING INTERVAL 2 LIMIT 3;", "my-topic.x", True, 2, 3),
    ],
)
def test_print(text: str, topic: str, beginning: bool, interval: int | None, limit: int | None) -> None:
    found = parse_one(text)
    assert isinstance(found, statements.Print)
    assert (found.topic, found.from_beginning, found.interval, found.limit) == (
        topic,
        beginning,
        interval,
        limit,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELEKT 1;", "line 1:1: Syntax Error\nUnknown statement 'SELEKT'"),
        ("SELECT size FROM s;", '"size" is a reserved keyword'),
        ("SELECT a b c FROM s;", "line 1:12: Syntax Error"),
        ("SELECT a\nFROM;", "line 2:5: Syntax Error"),
        ("CREATE VIEW v;", "Expecting {'STREAM', 'TABLE'"),
        ("SELECT * FROM s WHERE a = b = c;", "Syntax error at or near '=' at line 1:29"),
        ("SELECT * FROM s GROUP BY a AND b;", "line 1:28: Syntax Error"),
        ("SELECT 9223372036854775808 FROM s;", "Invalid numeric literal: 9223372036854775808"),
        ("SELECT 1e999 FROM s;", "Number overflows DOUBLE: 1e999"),
        ("CREATE TABLE t (a INT KEY);", "Line: 1, Col: 17: Column `A` is a 'KEY' column"),
        ("CREATE STREAM s (a INT PRIMARY KEY);", "please use 'KEY' for streams"),
        ("SELECT * FROM s LIMIT 1.5;", "Value must be integer for command: LIMIT"),
        ("SELECT a LIKE 'b' ESCAPE 'cc' FROM s;", "Expected single character escape but got: cc"),
        ("SELECT " + "(" * 400 + "1" + ")" * 400 + " FROM s;", "nested more than"),
        ("SELECT " + "-+" * 400 + "a FROM s;", "nested more than"),
        ("SELECT ${missing} FROM s;", "the variable is not defined"),
    ],
)
def test_errors_name_the_place(text: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse(text)
    assert message in str(caught.value)


def test_lines_count_through_a_script() -> None:
    with pytest.raises(SqlSyntaxError, match="line 2:8"):
        parse("SHOW STREAMS;\nSELECT ;")


def test_variables_are_text() -> None:
    found = parse("DEFINE name = 'a, b'; SELECT ${NAME} FROM ${t}; UNDEFINE name;", {"t": "`x`"})
    select = found[1]
    assert isinstance(select, statements.Select)
    assert [item.expression for item in select.query.select] == [A, B]
    assert select.query.source.name == "x"
    assert select.text == "SELECT a, b FROM `x`"
    assert substitute("${a} ${b} $${a} $${b}", {"A": "1"}) == "1 ${b} ${a} ${b}"


def test_variables_are_left_alone_where_a_setting_says_so() -> None:
    setting = "'ksql.variable.substitution.enable'"
    text = (
        f"SELECT '${{a}}' FROM s; SET {setting} = 'false'; SELECT '${{a}}' FROM s; SET {setting} = 'true'; "
    )
    found = parse(text + "SELECT '${a}' FROM s;", {"a": "1"})
    assert [one.text for one in found if one.text.startswith("SELECT")] == [
        "SELECT '1' FROM s",
        "SELECT '${a}' FROM s",
        "SELECT '1' FROM s",
    ]
    assert parse_one("SELECT '${a}' FROM s;", {"a": "1"}, substituting=False).text == "SELECT '${a}' FROM s"


def test_any_word_is_a_variable_and_it_has_no_case() -> None:
    variables: dict[str, str] = {}
    list(parse_each("DEFINE topic = '1'; DEFINE Topic = '2'; DEFINE other = '3'; UNDEFINE OTHER;", variables))
    assert variables == {"Topic": "2"}


def test_months_and_years_are_no_units_of_functions() -> None:
    select = parse_one("SELECT DATEADD(DAYS, 1, a), DATEADD(YEARS, 1, a) FROM s;")
    assert isinstance(select, statements.Select)
    first, second = (item.expression for item in select.query.select)
    assert isinstance(first, ast.Call) and isinstance(first.arguments[0], ast.Interval)
    assert isinstance(second, ast.Call) and isinstance(second.arguments[0], ast.Column)


def test_a_text_is_split_at_the_semicolons_that_end_statements() -> None:
    assert split("a 'x;y'; -- no;\nb `;`; c 'unfinished ;") == (
        ["a 'x;y';", "-- no;\nb `;`;"],
        "c 'unfinished ;",
    )


def test_directives() -> None:
    assert [one.name for one in directives("--@test: a\nSHOW STREAMS;")] == ["test"]


def test_one_statement_only() -> None:
    with pytest.raises(SqlError, match="exactly one"):
        parse_one("SHOW STREAMS; SHOW TABLES;")


def test_rewriting_and_walking() -> None:
    found: Any = expression("CASE WHEN a THEN b ELSE ARRAY[c] END")
    assert [one.name for one in ast.walk(found) if isinstance(one, Column)] == ["A", "B", "C"]
    changed = ast.rewrite(found, lambda one: Literal(1) if one == C else None)
    assert changed == Case(None, ((A, B),), ast.MakeArray((Literal(1),)))
    assert ast.rewrite(found, lambda one: None) is found


def test_where_ksqldb_has_no_such_word() -> None:
    """Behind a source it takes ORDER for an alias, so that BY is the mistake."""
    for sql, column in (
        ("SELECT a FROM s ORDER BY a;", 23),
        ("SELECT a FROM s x ORDER BY a;", 19),
        ("SELECT a FROM s WHERE a > 1 ORDER BY a;", 29),
        ("SELECT DISTINCT a FROM s ORDER BY a;", 8),
    ):
        select = parse_one(sql)
        assert isinstance(select, statements.Select)
        assert select.query.beyond == (1, column)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT a + {} FROM s EMIT CHANGES;",
        "SELECT a FROM s EMIT CHANGES LIMIT {};",
        "CREATE STREAM o AS SELECT * FROM s JOIN r WITHIN {} DAYS ON s.a = r.a;",
    ],
)
def test_a_number_of_very_many_digits_is_refused(statement: str) -> None:
    with pytest.raises(SqlError, match="Invalid numeric literal: 999"):
        parse(statement.format("9" * 5000))
