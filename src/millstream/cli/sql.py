"""`millstream sql`: a shell for a SQL server, as ksqlDB's own.

    millstream sql                                      the server of this machine
    millstream sql http://host:8088 --execute "SHOW STREAMS;"
    millstream sql --file setup.sql
    millstream -p up sql                                the server of `millstream up`, with its login

Statements end with a semicolon and may have several lines. Queries print rows as they come; Ctrl-C ends them.
`help` lists what the shell itself knows. SET, UNSET, DEFINE and UNDEFINE hold until the shell ends.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli import shared_options
from millstream.cli.errors import CommandFailed
from millstream.cli.profile_store import http_access
from millstream.cli.sql_spool import Spool

if TYPE_CHECKING:
    from ssl import SSLContext

    from millstream.sql.client import Answer, Rows, ServerInfo, SqlClient

DEFAULT_URL = "http://localhost:8088"
HISTORY = Path.home() / ".millstream_sql_history"
STYLES = ("tabular", "live", "json")
HELP = """Statements end with ';'. The shell itself knows:
  help                      this text
  run script 'FILE'         execute the statements of a file
  spool 'FILE' | spool off  write what is typed and answered to a file, too
  server [URL]              which server this is, or go to another one
  history, clear, version   lines typed so far; an empty screen; the version of the server
  output tabular|live|json  how answers are printed; live: a table in place, one row for each value of the
                            first column
  exit                      leave (also Ctrl-D)"""
KEYWORDS = (
    "CREATE STREAM TABLE TYPE AS SELECT FROM WHERE GROUP BY HAVING PARTITION EMIT CHANGES FINAL LIMIT ORDER "
    "WINDOW TUMBLING HOPPING SESSION SIZE ADVANCE GRACE PERIOD WITH VALUES INSERT INTO JOIN LEFT RIGHT "
    "FULL OUTER INNER ON WITHIN SHOW LIST STREAMS TABLES TOPICS QUERIES FUNCTIONS TYPES PROPERTIES "
    "VARIABLES DESCRIBE EXTENDED EXPLAIN PRINT BEGINNING TERMINATE PAUSE RESUME DROP DELETE TOPIC ALTER "
    "SET UNSET DEFINE UNDEFINE BATCH DISTINCT CONNECTOR CONNECTORS SOURCE SINK FUNCTION"
)


def command(
    server: Annotated[
        str,
        typer.Argument(
            help=f"Address of the server. Without it: the profile's (sql.url), or {DEFAULT_URL}.",
            metavar="URL",
            show_default=False,
        ),
    ] = "",
    execute: Annotated[
        str, typer.Option("--execute", "-e", help="Statements to execute.", metavar="SQL")
    ] = "",
    file: Annotated[str, typer.Option("--file", "-f", help="A file of statements.", metavar="FILE")] = "",
    output: Annotated[
        str, typer.Option("-o", "--output", help="tabular, live or json.", metavar="STYLE")
    ] = "tabular",
    user: Annotated[str, typer.Option(help="USER:PASSWORD of the server.", metavar="USER")] = "",
    version: shared_options.Version = False,
) -> int:
    """A shell for SQL."""
    if version:
        return shared_options.show_version()
    access = http_access("sql", server, DEFAULT_URL)
    login = user or (f"{access.user}:{access.password}" if access.user else "")
    shell = Shell(access.url, output, login, access.context())
    if execute:
        if not shell.own(execute.strip()):
            shell.run(execute)
    elif file:
        shell.run(_read(file), file)
    elif sys.stdin.isatty():
        shell.interact()
    else:
        shell.run(sys.stdin.read())
    return 0


def _read(file: str) -> str:
    try:
        return Path(file).read_text()
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {(error.strerror or str(error)).lower()}") from None


class Shell:
    def __init__(self, server: str, output: str, user: str = "", trusted: SSLContext | None = None) -> None:
        from millstream.sql.client import SqlClient

        self.client = SqlClient(server, user, trusted)
        self._access = (user, trusted)
        self._output = _style(output)
        self._spool = Spool()

    def run(self, text: str, name: str = "") -> None:
        """Statements up to the first that fails."""
        from millstream.sql.client import SqlFailed

        try:
            for answer in self.client.run(text, name):
                self._show(answer)
        except SqlFailed as error:
            raise CommandFailed(str(error)) from None
        except BrokenPipeError:
            raise SystemExit(0) from None  # whoever reads has had enough

    # Lines

    def interact(self, read: Callable[[str], str] = input) -> None:
        service = self._asked(self.client).service_id
        print(f"Millstream SQL at {self.client.server} (service {service}). Type help for help.")
        with _line_editing(Completion(self)), contextlib.closing(self._spool):
            pending = ""
            while True:
                prompt = "   > " if pending else "sql> "
                try:
                    line = read(prompt)
                except EOFError:
                    print()
                    return
                except KeyboardInterrupt:
                    print()
                    pending = ""
                    continue
                if not pending and line.strip().lower().rstrip(";") in ("exit", "quit"):
                    return
                self._spool.typed(prompt, line)
                try:
                    if not pending and self.own(line.strip()):
                        continue
                except CommandFailed as error:
                    print(error)
                    continue
                except KeyboardInterrupt:
                    print("\nScript ended")
                    continue
                pending = self._complete(pending + line + "\n")

    def _complete(self, text: str) -> str:
        """Executes the statements that are whole; the rest is returned."""
        from millstream.sql.parser import split

        whole, rest = split(text)
        for statement in whole:
            try:
                self.run(statement)
            except CommandFailed as error:
                print(error)
                return ""
            except KeyboardInterrupt:
                print("\nQuery ended")
        return rest + "\n" if rest.strip() else ""

    def own(self, line: str) -> bool:
        """Whether a line is for the shell itself; if so, that is done."""
        line = line.rstrip("; ")
        words = line.lower().split()
        if not words:
            return True
        match words:
            case ["help"]:
                print(HELP)
            case ["output", style]:
                self._output = _style(style)
            case ["run", "script", _, *_]:
                name = _unquoted(line.split(None, 2)[2])
                self.run(_read(name), name)
            case ["spool", "off"]:
                self._spool.close()
            case ["spool", _, *_]:
                self._spool.open(_unquoted(line.split(None, 1)[1]))
            case ["spool"] | ["run", "script"]:
                raise CommandFailed(f"{line} needs the name of a file, as in: {line} 'FILE'")
            case ["server", *rest] if len(rest) < 2:
                self._go_to(line.split()[1] if rest else "")
            case ["version"]:
                print(f"Server: {self._asked(self.client).version}")
            case ["clear"]:
                print("\033[H\033[2J\033[3J", end="", flush=True)
            case ["history"]:
                _show_history()
            case _:
                return False
        return True

    def _go_to(self, server: str) -> None:
        """Another server is asked first who it is: one that does not answer changes nothing."""
        from millstream.sql.client import SqlClient

        if server:
            client = SqlClient(server, *self._access)
            try:
                self._asked(client)
            except CommandFailed:
                client.close()
                raise
            client.properties, client.variables = self.client.properties, self.client.variables
            self.client.close()
            self.client = client
        print(self.client.server)

    @staticmethod
    def _asked(client: SqlClient) -> ServerInfo:
        from millstream.sql.client import SqlFailed

        try:
            return client.info()
        except SqlFailed as error:
            raise CommandFailed(str(error)) from None

    # Answers

    def _show(self, answer: Answer) -> None:
        from millstream.sql.client import Entity, Lines
        from millstream.sql.entity_text import render

        if isinstance(answer, Entity):
            as_json = self._output == "json"
            lines = [json.dumps(answer.content, indent=2)] if as_json else render(answer.content)
            for line in lines:
                print(line)
        elif isinstance(answer, Lines):
            for line in answer:
                print(line, flush=True)
        elif self._output == "json":
            print(json.dumps(answer.head))
            for row in answer:
                print(json.dumps(row, ensure_ascii=False), flush=True)
        elif self._output == "live" and sys.stdout.isatty() and not self._spool.is_open:
            _live(answer)
        else:
            _tabular(answer)


def _unquoted(name: str) -> str:
    name = name.strip()
    if len(name) > 1 and name[0] == name[-1] and name[0] in "'\"":
        return name[1:-1].replace(name[0] * 2, name[0])
    return name


def _show_history() -> None:
    try:
        import readline
    except ImportError:
        raise CommandFailed("this Python has no readline, so there is no history") from None
    for number in range(1, readline.get_current_history_length() + 1):
        print(f"{number:>5}  {readline.get_history_item(number)}")


def _style(output: str) -> str:
    if output not in STYLES:
        raise CommandFailed(f"--output is {', '.join(STYLES[:-1])} or {STYLES[-1]}, not {output}")
    return output


def _tabular(answer: Rows) -> None:
    from millstream.sql.entity_text import cell

    terminal = sys.stdout.isatty()
    count = max(1, len(answer.columns))
    width = max(8, min(40, shutil.get_terminal_size().columns // count - 1)) if terminal else 20

    def line(values: list[Any]) -> str:
        cells = [cell(value) for value in values]
        if terminal:  # elsewhere nobody can make the window wider
            cells = [one if len(one) <= width else one[: width - 1] + "…" for one in cells]
        return "|".join(f"{one:<{width}}" for one in cells)

    print(line(answer.columns))
    print("+".join("-" * width for _ in answer.columns))
    for row in answer:
        print(line(row), flush=True)


def _live(answer: Rows) -> None:
    """One table that changes in place, as long as the query runs."""
    from rich.live import Live
    from rich.table import Table

    from millstream.sql.entity_text import cell

    newest: dict[str, list[Any]] = {}

    def table() -> Table:
        made = Table(*answer.columns)
        for row in newest.values():
            made.add_row(*map(cell, row))
        return made

    with Live(get_renderable=table, refresh_per_second=4):
        for row in answer:
            newest[cell(row[0]) if row else ""] = row


class Completion:
    """Words for Tab: keywords, and what the server knows at this moment."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._columns: dict[str, list[str]] = {}
        self._found: list[str] = []

    def __call__(self, text: str, state: int) -> str | None:
        if state == 0:
            self._found = self.words(text, _line_so_far())
        return self._found[state] if state < len(self._found) else None

    def words(self, text: str, line: str) -> list[str]:
        """What can stand where `text` begins, in a line."""
        names = self._names()
        mentioned = [one for one in names["sources"] if re.search(rf"\b{re.escape(one)}\b", line, re.I)]
        known = [*KEYWORDS.split(), *names["sources"], *names["functions"], *names["queries"]]
        for source in mentioned:
            known += self._columns_of(source)
        fitting = dict.fromkeys(one for one in known if one.upper().startswith(text.upper()))
        lower = text.islower()
        return [(one.lower() if lower else one) + " " for one in fitting]

    def _names(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {"sources": [], "functions": [], "queries": []}
        for entity in self._asked("SHOW STREAMS; SHOW TABLES; SHOW FUNCTIONS; SHOW QUERIES;"):
            for kind, key, part in (
                ("sources", "streams", "name"),
                ("sources", "tables", "name"),
                ("functions", "functions", "name"),
                ("queries", "queries", "id"),
            ):
                found[kind] += [one[part] for one in entity.get(key, ())]
        return found

    def _columns_of(self, source: str) -> list[str]:
        if source not in self._columns:
            for entity in self._asked(f"DESCRIBE {source};"):
                fields = entity.get("sourceDescription", {}).get("fields", ())
                self._columns[source] = [one["name"] for one in fields]
        return self._columns.get(source, [])

    def _asked(self, text: str) -> list[dict[str, Any]]:
        from millstream.sql.client import Entity, SqlFailed

        try:
            return [one.content for one in self._shell.client.run(text) if isinstance(one, Entity)]
        except SqlFailed:  # nothing to offer is better than a message in the middle of a line
            return []


def _line_so_far() -> str:
    import readline

    return readline.get_line_buffer()


@contextlib.contextmanager
def _line_editing(completion: Completion) -> Iterator[None]:
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
    readline.set_completer_delims(" \t\n(),;=<>+*/'\"")
    readline.set_completer(completion)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            readline.write_history_file(HISTORY)
