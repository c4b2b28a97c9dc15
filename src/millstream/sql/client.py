"""A client of the SQL server, for the shell and for notebooks: statements in, answers out, one by one.

SET, UNSET, DEFINE and UNDEFINE stay here and go along with every statement behind them.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from millstream.sql import statements
from millstream.sql.errors import SqlError
from millstream.sql.parser import SUBSTITUTING, define, parse, split
from millstream.sql.session_properties import check_property

_POSITION = re.compile(r"[Ll]ine:? (\d+)(?::|, Col: )(\d+)")


class SqlFailed(Exception):
    """What the server, or the way to it, says. With the place in the statement shown, where it is known."""


@dataclass(frozen=True)
class Entity:
    """The answer to a statement that is no query, in ksqlDB's JSON."""

    content: dict[str, Any]


@dataclass
class Rows:
    """A query's result. Rows come as they are iterated over; that ends with the query."""

    columns: list[str]
    types: list[str]
    rows: Iterator[list[Any]]
    head: dict[str, Any] = field(default_factory=dict)

    def __iter__(self) -> Iterator[list[Any]]:
        return self.rows


@dataclass
class Lines:
    """What PRINT prints."""

    lines: Iterator[str]

    def __iter__(self) -> Iterator[str]:
        return self.lines


@dataclass(frozen=True)
class ServerInfo:
    version: str
    service_id: str


Answer = Entity | Rows | Lines


class SqlClient:
    def __init__(self, server: str, user: str = "", trusted: ssl.SSLContext | None = None) -> None:
        """`user` is `name:password`; `trusted` has the certificates to trust, the system's by default."""
        name, _, password = user.partition(":")
        self.server = server.rstrip("/")
        self._http = httpx.Client(
            base_url=self.server,
            timeout=httpx.Timeout(30, read=None),
            auth=(name, password) if user else None,
            verify=trusted or True,
        )
        self.properties: dict[str, str] = {}
        self.variables: dict[str, str] = {}

    def close(self) -> None:
        self._http.close()

    def info(self) -> ServerInfo:
        found = self._request("GET", "/info")["KsqlServerInfo"]
        return ServerInfo(str(found["version"]), str(found["ksqlServiceId"]))

    def run(self, text: str, name: str = "") -> Iterator[Answer]:
        """The statements of a text, each when the answers before it have been taken. `name` is that of the
        file, for messages."""
        at = 0
        whole, rest = split(text)
        if rest.strip():
            whole.append(rest)
        for statement in whole:
            at = text.index(statement, at)
            try:
                yield from self.execute(statement)
            except SqlFailed as error:
                line = text.count("\n", 0, at)
                raise SqlFailed(_placed(str(error), statement, name, line)) from None
            at += len(statement)

    def execute(self, text: str) -> Iterator[Answer]:
        """The answers to one statement: several entities, one result, or nothing."""
        text = text if text.rstrip().endswith(";") else text + ";"
        try:
            substituting = str(self.properties.get(SUBSTITUTING, "true")).lower() == "true"
            parsed = parse(text, self.variables, substituting=substituting)
        except SqlError as error:
            raise SqlFailed(str(error)) from None
        for statement in parsed:
            match statement:
                case statements.SetProperty():
                    _check(statement.name, statement.value)
                    self.properties[statement.name] = statement.value
                case statements.UnsetProperty(name=None):
                    self.properties.clear()
                case statements.UnsetProperty():
                    self.properties.pop(str(statement.name), None)
                case statements.Define():
                    define(self.variables, statement.name, statement.value)
                case statements.Undefine():
                    define(self.variables, statement.name, None)
                case statements.Print():
                    yield Lines(self._stream("/query", {"ksql": text, "streamsProperties": self.properties}))
                case statements.Select():
                    yield self._query(text)
                case statements.Batch() if statement.is_query:
                    yield self._query(text)
                case _:
                    body = {
                        "ksql": text,
                        "streamsProperties": self.properties,
                        "sessionVariables": self.variables,
                    }
                    yield from (Entity(one) for one in self._request("POST", "/ksql", body))

    def _query(self, text: str) -> Rows:
        body = {"sql": text, "properties": self.properties, "sessionVariables": self.variables}
        lines = self._stream("/query-stream", body)
        head = json.loads(next(lines))
        return Rows(head["columnNames"], head["columnTypes"], _rows(lines), head)

    # Requests

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        try:
            answer = self._http.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise SqlFailed(f"the server at {self.server} does not answer: {error}") from None
        return _checked(answer.status_code, answer.content)

    def _stream(self, path: str, body: Any) -> Iterator[str]:
        try:
            with self._http.stream("POST", path, json=body) as answer:
                if answer.status_code >= 400:
                    _checked(answer.status_code, answer.read())
                yield from (line for line in answer.iter_lines() if line)
        except httpx.HTTPError as error:
            raise SqlFailed(f"the server at {self.server} does not answer: {error}") from None


def _rows(lines: Iterator[str]) -> Iterator[list[Any]]:
    for line in lines:
        row = json.loads(line)
        if isinstance(row, dict):
            raise SqlFailed(row.get("message", line))
        yield row


def _checked(status: int, content: bytes) -> Any:
    try:
        found = json.loads(content)
    except ValueError:
        found = {"message": content[:300].decode(errors="replace")}
    if status >= 400:
        message = found.get("message", f"HTTP {status}") if isinstance(found, dict) else f"HTTP {status}"
        raise SqlFailed(str(message))
    return found


def _check(name: str, value: str) -> None:
    try:
        check_property(name, value)
    except SqlError as error:
        raise SqlFailed(str(error)) from None


def _placed(message: str, statement: str, name: str, before: int) -> str:
    """With the line in question and a mark below it; of a file, with the place there in front."""
    found = _POSITION.search(message)
    if found is None:
        return f"{name}:{before + 1}: {message}" if name else message
    line, column = int(found[1]), int(found[2])
    lines = statement.split("\n")
    shown = ""
    if 1 <= line <= len(lines) and column <= len(lines[line - 1]) + 1:
        shown = f"\n  {lines[line - 1]}\n  {' ' * (column - 1)}^"
    return (f"{name}:{before + line}:{column}: " if name else "") + message + shown
