"""Tokens and their places."""

from __future__ import annotations

import pytest

from millstream.sql.errors import SqlSyntaxError
from millstream.sql.lexer import name_text, tokens


def kinds(text: str) -> list[tuple[str, str]]:
    return [(token.kind, token.value) for token in tokens(text)[0][:-1]]


def test_words_are_upper_case_and_quoted_names_are_not() -> None:
    assert kinds('select `a``b` "C""d"') == [("word", "SELECT"), ("quoted", "a`b"), ("quoted", 'C"d')]


def test_numbers() -> None:
    assert kinds("1 1.5 .5 1e3 1.5E-2 1st") == [
        ("integer", "1"),
        ("decimal", "1.5"),
        ("decimal", ".5"),
        ("float", "1e3"),
        ("float", "1.5E-2"),
        ("word", "1ST"),
    ]


def test_text_and_symbols() -> None:
    assert kinds("'it''s' <> != => := -> ||") == [
        ("string", "it's"),
        ("symbol", "<>"),
        ("symbol", "!="),
        ("symbol", "=>"),
        ("symbol", ":="),
        ("symbol", "->"),
        ("symbol", "||"),
    ]


def test_comments_are_dropped_and_directives_kept() -> None:
    found, directives = tokens("--@expected.error: x\n-- no\nA /* b\nc */ D")
    assert [token.value for token in found[:-1]] == ["A", "D"]
    assert [(one.name, one.value) for one in directives] == [("expected.error", "x")]


def test_places_count_from_one() -> None:
    found, _ = tokens("a\n  bb 'x\ny' c")
    assert [token.location for token in found[:-1]] == [(1, 1), (2, 3), (2, 6), (3, 4)]


@pytest.mark.parametrize("text", ["'no end", "`no end", "/* no end", "a ? b"])
def test_what_is_no_token(text: str) -> None:
    with pytest.raises(SqlSyntaxError, match=r"line 1:\d+: Syntax Error"):
        tokens(text)


@pytest.mark.parametrize(
    ("name", "shown"), [("A_1", "A_1"), ("a", "`a`"), ("SELECT", "`SELECT`"), ("A B", "`A B`")]
)
def test_names_are_quoted_where_they_have_to_be(name: str, shown: str) -> None:
    assert name_text(name) == shown
