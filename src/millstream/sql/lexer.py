"""Text into tokens, each with its place.

Names are folded to upper case unless they stand in back quotes (or double quotes). Which words are reserved
is ksqlDB's list, so that a statement which is accepted there is accepted here, and one that is refused there
is refused. Comments are dropped; a line that begins with `--@` is a directive (`--@test: ...`), kept apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

from millstream.sql.errors import SqlSyntaxError

Kind = Literal["word", "quoted", "string", "integer", "decimal", "float", "variable", "symbol", "end"]


class Location(NamedTuple):
    """Line and column, both from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Token:
    """`text` is as written; `value` is the name, the text of a string, or the upper-case word."""

    kind: Kind
    text: str
    value: str
    start: int
    location: Location

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class Directive(NamedTuple):
    name: str
    value: str
    location: Location


# Words that are names as well. All other words of the grammar have to be quoted to be names.
NON_RESERVED = frozenset(
    [
        "SHOW",
        "TABLES",
        "COLUMNS",
        "COLUMN",
        "PARTITIONS",
        "PARTITION",
        "FUNCTIONS",
        "FUNCTION",
        "SESSION",
        "STRUCT",
        "MAP",
        "ARRAY",
        "INTEGER",
        "DATE",
        "TIME",
        "TIMESTAMP",
        "INTERVAL",
        "ZONE",
        "YEAR",
        "MONTH",
        "DAY",
        "HOUR",
        "MINUTE",
        "SECOND",
        "MILLISECOND",
        "YEARS",
        "MONTHS",
        "DAYS",
        "HOURS",
        "MINUTES",
        "SECONDS",
        "MILLISECONDS",
        "EXPLAIN",
        "ANALYZE",
        "TYPE",
        "TYPES",
        "SET",
        "RESET",
        "IF",
        "SOURCE",
        "SINK",
        "PRIMARY",
        "KEY",
        "EMIT",
        "CHANGES",
        "FINAL",
        "ESCAPE",
        "REPLACE",
        "ASSERT",
        "ALTER",
        "ADD",
        "TIMEOUT",
        "SCHEMA",
        "SUBJECT",
        "ID",
        "QUERY",
        "QUERIES",
        "PLUGINS",
        "HEADERS",
        "HEADER",
        "SYSTEM",
        "PAUSE",
        "RESUME",
    ]
)

RESERVED = frozenset(
    [
        "SELECT",
        "FROM",
        "AS",
        "DISTINCT",
        "WHERE",
        "WITHIN",
        "WINDOW",
        "GROUP",
        "BY",
        "HAVING",
        "LIMIT",
        "AT",
        "OR",
        "AND",
        "IN",
        "NOT",
        "EXISTS",
        "BETWEEN",
        "LIKE",
        "IS",
        "NULL",
        "TRUE",
        "FALSE",
        "CASE",
        "WHEN",
        "THEN",
        "ELSE",
        "END",
        "JOIN",
        "FULL",
        "OUTER",
        "INNER",
        "LEFT",
        "RIGHT",
        "ON",
        "WITH",
        "VALUES",
        "CREATE",
        "TABLE",
        "TOPIC",
        "TOPICS",
        "STREAM",
        "STREAMS",
        "INSERT",
        "DELETE",
        "INTO",
        "DESCRIBE",
        "EXTENDED",
        "PRINT",
        "CAST",
        "LIST",
        "TERMINATE",
        "LOAD",
        "RENAME",
        "TO",
        "CLUSTER",
        "HOPPING",
        "TUMBLING",
        "SIZE",
        "ADVANCE",
        "RETENTION",
        "GRACE",
        "PERIOD",
        "DROP",
        "DEFINE",
        "UNDEFINE",
        "VARIABLES",
        "RUN",
        "SCRIPT",
        "PROPERTIES",
        "BEGINNING",
        "UNSET",
        "CONNECTOR",
        "CONNECTORS",
        "EXPORT",
        "CATALOG",
    ]
)

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<directive>--@[^\r\n]*)
  | (?P<comment>--[^\r\n]*|/\*.*?\*/)
  | (?P<string>'(?:[^']|'')*')
  | (?P<backquoted>`(?:[^`]|``)*`)
  | (?P<doublequoted>"(?:[^"]|"")*")
  | (?P<variable>\$\{[A-Za-z_][A-Za-z0-9_@]*\})
  | (?P<float>(?:\d+(?:\.\d*)?|\.\d+)[eE][+-]?\d+)
  | (?P<decimal>\d+\.\d*|\.\d+)
  | (?P<digits>\d[A-Za-z0-9_@]*)
  | (?P<word>[A-Za-z_][A-Za-z0-9_@]*)
  | (?P<symbol>(?!/\*)(?:<>|!=|<=|>=|=>|:=|->|\|\||[=<>+\-*/%(){}\[\],.;:]))
    """,
    re.VERBOSE | re.DOTALL,
)
_INTEGER = re.compile(r"\d+\Z")
_DIRECTIVE = re.compile(r"--@\s*([\w.]+)\s*:?\s*(.*)")


def tokens(text: str) -> tuple[list[Token], list[Directive]]:
    """All tokens of a text, an `end` token last, and the directives among its comments."""
    found: list[Token] = []
    directives: list[Directive] = []
    position, line, line_start = 0, 1, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        here = Location(line, position - line_start + 1)
        if match is None:
            raise _not_a_token(text, position, here)
        group, raw = match.lastgroup, match.group()
        if group == "directive":
            parts = _DIRECTIVE.match(raw)
            if parts is not None:
                directives.append(Directive(parts[1], parts[2].strip(), here))
        elif group not in ("space", "comment"):
            kind, value = _kind(str(group), raw)
            found.append(Token(kind, raw, value, position, here))
        breaks = raw.count("\n")
        if breaks:
            line += breaks
            line_start = position + raw.rindex("\n") + 1
        position = match.end()
    found.append(Token("end", "", "<EOF>", position, Location(line, position - line_start + 1)))
    return found, directives


def _kind(group: str, raw: str) -> tuple[Kind, str]:
    match group:
        case "string":
            return "string", raw[1:-1].replace("''", "'")
        case "backquoted":
            return "quoted", raw[1:-1].replace("``", "`")
        case "doublequoted":
            return "quoted", raw[1:-1].replace('""', '"')
        case "digits":
            return ("integer", raw) if _INTEGER.match(raw) else ("word", raw.upper())
        case "word":
            return "word", raw.upper()
        case "float":
            return "float", raw
        case "decimal":
            return "decimal", raw
        case "variable":
            return "variable", raw[2:-1]
    return "symbol", raw


def _not_a_token(text: str, position: int, here: Location) -> SqlSyntaxError:
    at = text[position]
    if at in "'`\"" or text.startswith("/*", position):
        what = {"'": "text", "`": "name", '"': "name"}.get(at, "comment")
        return SqlSyntaxError(f"Syntax error at or near '{at}': the {what} that begins here has no end", here)
    return SqlSyntaxError(f"Syntax error at or near '{at}'", here)


def is_reserved(word: str) -> bool:
    return word.upper() in RESERVED


_PLAIN = re.compile(r"[A-Z_][A-Z0-9_@]*\Z")


def needs_quotes(name: str) -> bool:
    """Whether a name has to stand in back quotes to be read as itself."""
    return not _PLAIN.match(name) or name in RESERVED


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def name_text(name: str) -> str:
    """A name as it is shown in expressions: in back quotes only where it needs them."""
    return quoted(name) if needs_quotes(name) else name
