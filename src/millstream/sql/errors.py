"""What goes wrong in SQL, in two kinds.

`SqlError` is a statement that is refused. `EvaluationError` is one value for which an expression has no
result: the expression gives null and the processing log gets a line. Generated code treats every exception of
an expression as the second kind.

Texts contain what ksqlDB says in the same case, because tools and people look for it; `error_catalogue` has
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BAD_REQUEST = 40000
BAD_STATEMENT = 40001
QUERY_ENDPOINT = 40002


class SqlError(Exception):
    """`message` is for the user; `location` is (line, column) in the text, where it is known."""

    status = 400
    error_code = BAD_STATEMENT

    def __init__(self, message: str, location: Any = None, *, entry: str | None = None) -> None:
        super().__init__(message)
        self.message, self.location, self.entry = message, location, entry
        self.statement: str | None = None
        self.entities: list[dict[str, Any]] = []
        """Of the statements in front of it that were carried out."""

    def __str__(self) -> str:
        return self.message


class EvaluationError(Exception):
    """An expression has no value for this row."""


class SqlSyntaxError(SqlError):
    """The text is no statement. `detail` follows the position."""

    def __init__(self, detail: str, location: Any, expected: tuple[str, ...] = ()) -> None:
        line, column = location
        lines = [f"line {line}:{column}: Syntax Error", f"{detail} at line {line}:{column}"]
        if expected:
            lines.append(
                "Expecting " + (expected[0] if len(expected) == 1 else "{" + ", ".join(expected) + "}")
            )
        super().__init__("\n".join(lines), location, entry="syntax")


class SqlParseError(SqlError):
    """Well formed, but a literal or an element means nothing: `line 2:40: Invalid numeric literal: ...`."""

    def __init__(self, detail: str, location: Any) -> None:
        # ksqlDB counts the column of these from 2: kept, so that both say the same.
        position = f"line {location[0]}:{location[1] + 1}"
        super().__init__(f"Failed to prepare statement: {position}: {detail}", location, entry="literal")


@dataclass(frozen=True, slots=True)
class Entry:
    template: str
    located: bool = False
    prefix: str = ""
    error_code: int = BAD_STATEMENT
    status: int = 400


def join_english(items: list[str], last: str = "and") -> str:
    """a; a and b; a, b and c."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}"


def sql_error(entry: str, location: Any = None, /, **parts: Any) -> SqlError:
    """An error of the catalogue."""
    from millstream.sql.error_catalogue import CATALOGUE

    found: Entry = CATALOGUE[entry]
    message = found.template.format_map(_Parts(parts))
    if found.located and location is not None:
        message = f"Line: {location[0]}, Col: {location[1]}: {message}"
    message = found.prefix + message
    error = SqlError(message, location, entry=entry)
    error.error_code, error.status = found.error_code, found.status
    return error


class _Parts(dict[str, Any]):
    def __init__(self, parts: Mapping[str, Any]) -> None:
        super().__init__(parts)
