"""Statements of ksqlDB's language: `parse(text)` gives the nodes of all statements in a text.

Written by hand, recursive descent: errors name the place and what was expected, and a statement takes well
under a millisecond. `${name}` is replaced by the text of a variable before anything is read, as ksqlDB does
it, so a variable can be a name, a value or a piece of a statement; `DEFINE` among the statements takes effect
on those behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from millstream.sql import ast, statements
from millstream.sql.ast import NOWHERE
from millstream.sql.errors import SqlSyntaxError, sql_error
from millstream.sql.lexer import Directive, Location, Token, tokens
from millstream.sql.parse_admin import AdminParser
from millstream.sql.statements import CreateSource, Element, Statement

SUBSTITUTING = "ksql.variable.substitution.enable"
_BATCH = re.compile(r"\s*BATCH\b", re.IGNORECASE)
_VARIABLE = re.compile(r"(\$?)\$\{([A-Za-z_][A-Za-z0-9_@]*)\}")


def parse(
    text: str, variables: Mapping[str, str] | None = None, *, substituting: bool = True
) -> list[Statement]:
    """All statements of a text. A text without any gives none."""
    return list(parse_each(text, dict(variables or {}), substituting=substituting))


def parse_each(text: str, variables: dict[str, str], *, substituting: bool = True) -> Iterator[Statement]:
    """As `parse`, but one by one; DEFINE and UNDEFINE change `variables`. The next statement is not looked at
    before it is asked for, so that those in front of a wrong one can be carried out. `substituting` is the
    setting at the beginning, which SET can change."""
    try:
        found, _ = tokens(text)
    except SqlSyntaxError:
        if not _BATCH.match(text):
            raise
        # Spark's language has symbols that ksqlDB's has not. Then the text is one statement.
        yield _batch(substitute(text.strip().rstrip(";"), variables if substituting else None))
        return
    for piece in _pieces(found):
        statement = _parse_piece(piece, text, variables, substituting)
        if isinstance(statement, statements.SetProperty) and statement.name == SUBSTITUTING:
            substituting = statement.value.lower() == "true"
        yield statement


def parse_one(
    text: str, variables: Mapping[str, str] | None = None, *, substituting: bool = True
) -> Statement:
    found = parse(text, variables, substituting=substituting)
    if len(found) != 1:
        raise sql_error("one statement", found=len(found))
    return found[0]


def directives(text: str) -> list[Directive]:
    """The directives (`--@name: value`) of a text."""
    return tokens(text)[1]


def split(text: str) -> tuple[list[str], str]:
    """The complete statements of a text, each with its semicolon, and the rest behind the last one: for a
    shell that reads line by line. A semicolon within text, names or comments ends nothing."""
    complete: list[str] = []
    start = 0
    try:
        found, _ = tokens(text)
    except SqlSyntaxError as error:
        found = _tokens_before(text, error)
    for token in found:
        if token.kind == "symbol" and token.value == ";":
            complete.append(text[start : token.end].strip())
            start = token.end
    return complete, text[start:].strip()


def _tokens_before(text: str, error: SqlSyntaxError) -> list[Token]:
    """What came before text that has no end yet."""
    line, column = error.location
    lines = text.splitlines(keepends=True)
    return tokens("".join(lines[: line - 1]) + lines[line - 1][: column - 1])[0]


def _pieces(found: list[Token]) -> Iterator[list[Token]]:
    piece: list[Token] = []
    for token in found:
        piece.append(token)
        if token.kind == "end" or (token.kind == "symbol" and token.value == ";"):
            if len(piece) > 1:
                yield piece
            piece = []


def _parse_piece(piece: list[Token], text: str, variables: dict[str, str], substituting: bool) -> Statement:
    raw = text[piece[0].start : piece[-1].start]
    filled = substitute(raw, variables if substituting else None)
    if filled != raw:
        piece = _moved(tokens(filled)[0], piece[0])
        raw = filled
    elif piece[-1].kind != "end":
        last = piece[-1]
        piece = [*piece[:-1], Token("end", "", "<EOF>", last.start, last.location)]
    if _BATCH.match(raw):
        return _batch(raw, piece[0].location)
    found = Parser(piece, raw).statement()
    if isinstance(found, statements.Define):
        define(variables, found.name, found.value)
    elif isinstance(found, statements.Undefine):
        define(variables, found.name, None)
    return replace(found, text=raw.strip())


def _batch(raw: str, location: Location = NOWHERE) -> Statement:
    sql = _BATCH.sub(lambda word: " " * len(word[0]), raw, count=1)
    return statements.Batch(sql, location=location, text=raw.strip())


def _moved(found: list[Token], first: Token) -> list[Token]:
    """Tokens of a statement that was read on its own, placed where it stands."""
    line, column = first.location
    moved = []
    for token in found:
        own_line, own_column = token.location
        location = type(first.location)(
            own_line + line - 1, own_column + (column - 1 if own_line == 1 else 0)
        )
        moved.append(replace(token, location=location))
    return moved


def define(variables: dict[str, str], name: str, value: str | None) -> None:
    """None takes a variable away. It is shown as it was written, and has no case otherwise."""
    for same in [one for one in variables if one.upper() == name.upper()]:
        del variables[same]
    if value is not None:
        variables[name] = value


def substitute(text: str, variables: Mapping[str, str] | None) -> str:
    """`${name}` by the variable's text, `$${name}` by `${name}`. Names have no case; unknown ones stay as
    they are, and everything does without variables."""
    if variables is None or "${" not in text:
        return text
    known = {name.upper(): value for name, value in variables.items()}

    def value(match: re.Match[str]) -> str:
        return match[0][1:] if match[1] else known.get(match[2].upper(), match[0])

    return _VARIABLE.sub(value, text)


class Parser(AdminParser):
    def statement(self) -> Statement:
        found = self._statement()
        if self.token.kind != "end":
            self.fail("<EOF>")
        return found

    def _statement(self) -> Statement:
        location = self.here
        if self.is_word("SELECT"):
            return statements.Select(self.query(), location=location)
        if self.word("CREATE"):
            return self._create(location)
        if self.word("INSERT"):
            self.need_word("INTO")
            return self._insert(location)
        if self.word("DROP"):
            return self._drop(location)
        if self.word("ALTER"):
            return self._alter(location)
        found = self.admin_statement(location)
        if found is None:
            token = self.token
            raise SqlSyntaxError(
                f"Unknown statement '{token.text}'\nSyntax error at or near '{token.text}'", token.location
            )
        return found

    # CREATE ------------------------------------------------------------

    def _create(self, location: Any) -> Statement:
        or_replace = self.word("OR", "REPLACE")
        if not or_replace and (self.is_word("SOURCE", "CONNECTOR") or self.is_word("SINK", "CONNECTOR")):
            return self.create_connector(location)
        if not or_replace and self.word("TYPE"):
            if_not_exists = self.word("IF", "NOT", "EXISTS")
            name = self.identifier()
            self.need_word("AS")
            return statements.CreateType(name, self.type_name(), if_not_exists, location=location)
        read_only = self.word("SOURCE")
        if not self.is_word("STREAM") and not self.is_word("TABLE"):
            self.fail("'STREAM'", "'TABLE'", "'TYPE'", "'SOURCE'", "'SINK'", "'OR'")
        kind = cast(statements.SourceKind, self.take().value)
        if_not_exists = self.word("IF", "NOT", "EXISTS")
        name = self.identifier()
        elements: tuple[Element, ...] = ()
        if self.symbol("("):
            found = [self._element(kind)]
            while self.symbol(","):
                found.append(self._element(kind))
            if not self.symbol(")"):
                self.fail("','", "')'")
            elements = tuple(found)
        properties = self.properties() if self.word("WITH") else {}
        if not elements and not read_only and self.word("AS"):
            return statements.CreateAs(
                kind, name, self.query(), properties, or_replace, if_not_exists, location=location
            )
        return CreateSource(
            kind, name, elements, properties, or_replace, if_not_exists, read_only, location=location
        )

    def _element(self, kind: str) -> Element:
        location = self.here
        name = self.identifier()
        type_name = self.type_name()
        constraint: Any = None
        header = None
        if self.word("PRIMARY", "KEY"):
            constraint = "PRIMARY KEY"
        elif self.word("KEY"):
            constraint = "KEY"
        elif self.word("HEADERS"):
            constraint, header = "HEADERS", ""
        elif self.word("HEADER"):
            self.need_symbol("(")
            constraint, header = "HEADERS", self.string()
            self.need_symbol(")")
        if constraint == "KEY" and kind == "TABLE":
            raise sql_error("KEY in a table", location, name=name)
        if constraint == "PRIMARY KEY" and kind == "STREAM":
            raise sql_error("PRIMARY KEY in a stream", location, name=name)
        return Element(name, type_name, constraint, header, location=location)

    # INSERT, DROP, ALTER ------------------------------------------------------------

    def _insert(self, location: Any) -> Statement:
        target = self.identifier()
        columns: list[str] = []
        if self.symbol("("):
            columns = [self.identifier()]
            while self.symbol(","):
                columns.append(self.identifier())
            self.need_symbol(")")
        if self.word("VALUES"):
            self.need_symbol("(")
            values = [self.expression()]
            while self.symbol(","):
                values.append(self.expression())
            self.need_symbol(")")
            return statements.InsertValues(target, tuple(columns), tuple(values), location=location)
        if columns:
            self.fail("'VALUES'")
        properties = self.properties() if self.word("WITH") else {}
        if not self.is_word("SELECT"):
            self.fail("'VALUES'", "'WITH'", "'SELECT'")
        return statements.InsertInto(target, self.query(), properties, location=location)

    def _drop(self, location: Any) -> Statement:
        if self.word("CONNECTOR"):
            if_exists = self.word("IF", "EXISTS")
            return statements.DropConnector(self.identifier(), if_exists, location=location)
        if self.word("TYPE"):
            if_exists = self.word("IF", "EXISTS")
            return statements.DropType(self.identifier(), if_exists, location=location)
        if not self.is_word("STREAM") and not self.is_word("TABLE"):
            self.fail("'STREAM'", "'TABLE'", "'CONNECTOR'", "'TYPE'")
        kind = cast(statements.SourceKind, self.take().value)
        if_exists = self.word("IF", "EXISTS")
        name = self.identifier()
        return statements.DropSource(kind, name, if_exists, self.word("DELETE", "TOPIC"), location=location)

    def _alter(self, location: Any) -> Statement:
        if self.word("SYSTEM"):
            name = self.string()
            self.need_symbol("=")
            return statements.AlterSystem(name, self.string(), location=location)
        if not self.is_word("STREAM") and not self.is_word("TABLE"):
            self.fail("'STREAM'", "'TABLE'", "'SYSTEM'")
        kind = cast(statements.SourceKind, self.take().value)
        name = self.identifier()
        columns: list[tuple[str, ast.TypeName]] = []
        while True:
            self.need_word("ADD")
            self.word("COLUMN")
            column = self.identifier()
            columns.append((column, self.type_name()))
            if not self.symbol(","):
                break
        return statements.AlterSource(kind, name, tuple(columns), location=location)
