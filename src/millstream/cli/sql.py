"""`millstream sql`: a shell for a SQL server, as ksqlDB's own.

    millstream sql                                      the server of this machine
    millstream sql http://host:8088 --execute "SHOW STREAMS;"
    millstream sql --file setup.sql

Statements end with a semicolon and may have several lines. Queries print rows as they come; Ctrl-C ends them.
`help` lists what the shell itself knows. SET, UNSET, DEFINE and UNDEFINE hold until the shell ends.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from millstream.cli import shared_options
from millstream.cli.errors import CommandFailed

HISTORY = Path.home() / ".millstream_sql_history"
HELP = """Statements end with ';'. The shell itself knows:
  help                 this text
  run script 'FILE'    execute the statements of a file
  output json|tabular  how answers are printed
  exit                 leave (also Ctrl-D)"""
KEYWORDS = (
    "CREATE STREAM TABLE TYPE AS SELECT FROM WHERE GROUP BY HAVING PARTITION EMIT CHANGES FINAL LIMIT "
    "WINDOW TUMBLING HOPPING SESSION SIZE ADVANCE GRACE PERIOD WITH VALUES INSERT INTO JOIN LEFT RIGHT "
    "FULL OUTER INNER ON WITHIN SHOW LIST STREAMS TABLES TOPICS QUERIES FUNCTIONS TYPES PROPERTIES "
    "VARIABLES DESCRIBE EXTENDED EXPLAIN PRINT BEGINNING TERMINATE PAUSE RESUME DROP DELETE TOPIC ALTER "
    "SET UNSET DEFINE UNDEFINE "
)


def command(
    server: Annotated[
        str, typer.Argument(help="Address of the server.", metavar="URL")
    ] = "http://localhost:8088",
    execute: Annotated[
        str, typer.Option("--execute", "-e", help="Statements to execute.", metavar="SQL")
    ] = "",
    file: Annotated[str, typer.Option("--file", "-f", help="A file of statements.", metavar="FILE")] = "",
    output: Annotated[
        str, typer.Option("-o", "--output", help="tabular or json.", metavar="STYLE")
    ] = "tabular",
    user: Annotated[str, typer.Option(help="USER:PASSWORD of the server.", metavar="USER")] = "",
    version: shared_options.Version = False,
) -> int:
    """A shell for SQL."""
    if version:
        return shared_options.show_version()
    shell = Shell(server, output, user)
    if execute:
        shell.run(execute)
    elif file:
        try:
            shell.run(Path(file).read_text())
        except OSError as error:
            raise CommandFailed(f"cannot read {file}: {(error.strerror or str(error)).lower()}") from None
    elif sys.stdin.isatty():
        shell.interact()
    else:
        shell.run(sys.stdin.read())
    return 0


class Shell:
    def __init__(self, server: str, output: str, user: str = "") -> None:
        import httpx

        if output not in ("tabular", "json"):
            raise CommandFailed(f"--output is tabular or json, not {output}")
        name, _, password = user.partition(":")
        self._http = httpx.Client(
            base_url=server.rstrip("/"),
            timeout=httpx.Timeout(30, read=None),
            auth=(name, password) if user else None,
        )
        self._server, self._output = server, output
        self._properties: dict[str, str] = {}
        self._variables: dict[str, str] = {}

    # Lines

    def interact(self) -> None:
        info = self._request("GET", "/info")["KsqlServerInfo"]
        print(f"Millstream SQL at {self._server} (service {info['ksqlServiceId']}). Type help for help.")
        with _line_editing():
            pending = ""
            while True:
                try:
                    line = input("      > " if pending else "sql> ")
                except EOFError:
                    print()
                    return
                except KeyboardInterrupt:
                    print()
                    pending = ""
                    continue
                if not pending and line.strip().lower().rstrip(";") in ("exit", "quit"):
                    return
                if not pending and self._own(line.strip()):
                    continue
                pending = self._complete(pending + line + "\n")

    def _complete(self, text: str) -> str:
        """Executes the statements that are whole; the rest is returned."""
        from millstream.sql.parser import split

        whole, rest = split(text)
        for statement in whole:
            try:
                self.execute(statement)
            except CommandFailed as error:
                print(error)
            except KeyboardInterrupt:
                print("\nQuery ended")
        return rest if rest.strip() else ""

    def _own(self, line: str) -> bool:
        words = line.rstrip(";").split()
        if not words:
            return True
        first = words[0].lower()
        if first == "help":
            print(HELP)
        elif first == "output" and len(words) == 2:
            self._output = words[1].lower()
        elif first == "run" and len(words) == 3 and words[1].lower() == "script":
            try:
                self.run(Path(words[2].strip("'\"")).read_text())
            except (OSError, CommandFailed) as error:
                print(error)
        else:
            return False
        return True

    def run(self, text: str) -> None:
        from millstream.sql.parser import split

        whole, rest = split(text)
        if rest.strip():
            whole.append(rest if rest.rstrip().endswith(";") else rest + ";")
        for statement in whole:
            self.execute(statement)

    # Statements

    def execute(self, text: str) -> None:
        from millstream.sql import statements
        from millstream.sql.errors import SqlError
        from millstream.sql.parser import parse

        try:
            parsed = parse(text, self._variables)
        except SqlError as error:
            raise CommandFailed(str(error)) from None
        for statement in parsed:
            if isinstance(statement, statements.SetProperty):
                self._properties[statement.name] = statement.value
            elif isinstance(statement, statements.UnsetProperty):
                if statement.name is None:
                    self._properties.clear()
                else:
                    self._properties.pop(statement.name, None)
            elif isinstance(statement, statements.Define):
                self._variables[statement.name] = statement.value
            elif isinstance(statement, statements.Undefine):
                self._variables.pop(statement.name, None)
            elif isinstance(statement, statements.Select):
                self._query(text)
            elif isinstance(statement, statements.Print):
                self._print(text)
            else:
                self._statement(text)

    def _statement(self, text: str) -> None:
        body = {"ksql": text, "streamsProperties": self._properties, "sessionVariables": self._variables}
        for entity in self._request("POST", "/ksql", body):
            if self._output == "json":
                print(json.dumps(entity, indent=2))
            else:
                for line in render(entity):
                    print(line)

    def _query(self, text: str) -> None:
        body = {"sql": text, "properties": self._properties, "sessionVariables": self._variables}
        lines = self._stream("/query-stream", body)
        head = json.loads(next(lines))
        names = head["columnNames"]
        if self._output == "json":
            print(json.dumps(head))
        else:
            print(_row(names))
            print("+".join("-" * _WIDTH for _ in names))
        for line in lines:
            row = json.loads(line)
            if isinstance(row, dict):
                raise CommandFailed(row.get("message", line))
            print(line if self._output == "json" else _row(row), flush=True)

    def _print(self, text: str) -> None:
        for line in self._stream("/query", {"ksql": text, "streamsProperties": self._properties}):
            print(line, flush=True)

    # Requests

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        import httpx

        try:
            answer = self._http.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise CommandFailed(f"the server at {self._server} does not answer: {error}") from None
        return _checked(answer.status_code, answer.content)

    def _stream(self, path: str, body: Any) -> Iterator[str]:
        import httpx

        try:
            with self._http.stream("POST", path, json=body) as answer:
                if answer.status_code >= 400:
                    _checked(answer.status_code, answer.read())
                yield from (line for line in answer.iter_lines() if line)
        except httpx.HTTPError as error:
            raise CommandFailed(f"the server at {self._server} does not answer: {error}") from None


def _checked(status: int, content: bytes) -> Any:
    try:
        found = json.loads(content)
    except ValueError:
        found = {"message": content[:300].decode(errors="replace")}
    if status >= 400:
        message = found.get("message", f"HTTP {status}") if isinstance(found, dict) else f"HTTP {status}"
        raise CommandFailed(str(message))
    return found


_WIDTH = 20


def _row(values: list[Any]) -> str:
    return "|".join(f"{_cell(value):<{_WIDTH}}" for value in values)


def _cell(value: Any) -> str:
    if value is None:
        return "<null>"
    return value if isinstance(value, str) else json.dumps(value)


def _table(heads: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[str]:
    cells = [heads, *(tuple(_cell(value) for value in row) for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(heads))]

    def line(row: tuple[str, ...]) -> str:
        return " | ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()

    return [line(heads), "-" * (sum(widths) + 3 * (len(widths) - 1)), *map(line, cells[1:])]


def render(entity: dict[str, Any]) -> list[str]:
    """An entity of the server's answer, for people."""
    kind = entity.get("@type")
    rows: list[tuple[Any, ...]]
    if kind == "currentStatus":
        return [entity.get("commandStatus", {}).get("message", "")]
    if kind in ("streams", "tables"):
        rows = [
            (one["name"], one["topic"], one["keyFormat"], one["valueFormat"], str(one["isWindowed"]).lower())
            for one in entity[kind]
        ]
        return _table(("Name", "Kafka topic", "Key format", "Value format", "Windowed"), rows)
    if kind in ("kafka_topics", "kafka_topics_extended"):
        rows = [
            (one["name"], str(len(one["replicaInfo"])), str(max(one["replicaInfo"], default=0)))
            for one in entity["topics"]
        ]
        return _table(("Topic", "Partitions", "Replicas"), rows)
    if kind == "queries":
        rows = [
            (one["id"], one["state"], ", ".join(one["sinks"]), one["queryString"])
            for one in entity["queries"]
        ]
        return _table(("Query", "State", "Sink", "Statement"), rows)
    if kind == "function_names":
        return _table(
            ("Function", "Category"), [(one["name"], one["category"]) for one in entity["functions"]]
        )
    if kind == "properties":
        return _table(("Property", "Value"), [(one["name"], one["value"]) for one in entity["properties"]])
    if kind == "variables":
        return _table(("Variable", "Value"), [(one["name"], one["value"]) for one in entity["variables"]])
    if kind == "type_list":
        return _table(("Type", "Schema"), [(name, _type(one)) for name, one in entity["types"].items()])
    if kind == "sourceDescription":
        return _source(entity["sourceDescription"])
    if kind == "queryDescription":
        found = entity["queryDescription"]
        return [f"{found['id']} {found['state'] or ''}", found["statementText"], "", found["topology"]]
    if kind == "warning_entity":
        return [entity["message"]]
    return json.dumps(entity, indent=2).splitlines()


def _type(schema: dict[str, Any]) -> str:
    if schema["type"] == "ARRAY":
        return f"ARRAY<{_type(schema['memberSchema'])}>"
    if schema["type"] == "MAP":
        return f"MAP<STRING, {_type(schema['memberSchema'])}>"
    if schema["type"] == "STRUCT":
        inner = ", ".join(f"{one['name']} {_type(one['schema'])}" for one in schema["fields"])
        return f"STRUCT<{inner}>"
    if "parameters" in schema:
        return f"DECIMAL({schema['parameters']['precision']}, {schema['parameters']['scale']})"
    return str(schema["type"])


def _source(found: dict[str, Any]) -> list[str]:
    rows = [
        (one["name"], _type(one["schema"]) + (f" ({one['type'].lower()})" if "type" in one else ""))
        for one in found["fields"]
    ]
    lines = [f"{found['type'].capitalize()} {found['name']} (topic {found['topic']})"]
    lines += _table(("Field", "Type"), rows)
    for word in ("readQueries", "writeQueries"):
        if found[word]:
            lines.append(f"{'Read' if word == 'readQueries' else 'Written'} by:")
            lines += [f"  {one['id']} ({one['state']}): {one['queryString']}" for one in found[word]]
    return lines


@contextlib.contextmanager
def _line_editing() -> Iterator[None]:
    """History and completion, where this Python has readline."""
    try:
        import readline
    except ImportError:
        yield
        return
    with contextlib.suppress(OSError):
        readline.read_history_file(HISTORY)
    readline.set_history_length(2000)
    readline.parse_and_bind("tab: complete")

    def complete(text: str, state: int) -> str | None:
        found = [word for word in KEYWORDS.split() if word.startswith(text.upper())]
        return found[state] + " " if state < len(found) else None

    readline.set_completer(complete)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            readline.write_history_file(HISTORY)
