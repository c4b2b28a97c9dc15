"""SQL in notebooks.

    %load_ext millstream.sql.jupyter
    %sql http://localhost:8088              where the server is; this one unless told otherwise

    %%sql
    CREATE TABLE cities AS SELECT city, COUNT(*) AS rides FROM rides GROUP BY city;

    %%sql --limit 100 busy
    SELECT * FROM cities WHERE rides > 1;

A cell is a script. A query's rows are a table, which grows while a push query runs and ends with its LIMIT,
with `--limit`, or when the kernel is interrupted. The rows of the last query are the cell's value (a
`SqlTable`: it can be iterated over, and has `to_arrow()` and `to_pandas()`), and the variable that the line
names.
"""

from __future__ import annotations

import html
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.sql.client import Rows, SqlClient

DEFAULT_SERVER = "http://localhost:8088"
SHOWN = 50
"""How many rows a notebook shows of a table."""
_REFRESH = 0.5


class SqlTable:
    """Rows that have arrived."""

    def __init__(self, columns: list[str], types: list[str]) -> None:
        self.columns, self.types = columns, types
        self.rows: list[list[Any]] = []

    def __iter__(self) -> Iterator[list[Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def to_arrow(self) -> pa.Table:
        import pyarrow as pa

        values = {name: [row[index] for row in self.rows] for index, name in enumerate(self.columns)}
        return pa.table(values)

    def to_pandas(self) -> Any:
        return self.to_arrow().to_pandas()

    def _last(self) -> list[list[Any]]:
        return self.rows[-SHOWN:]

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_cell(value))}</td>" for value in row) + "</tr>"
            for row in self._last()
        )
        more = len(self.rows) - SHOWN
        note = f"<p>{more} rows before these</p>" if more > 0 else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"

    def __repr__(self) -> str:
        from millstream.sql.entity_text import table

        return "\n".join(table(tuple(self.columns), [tuple(row) for row in self._last()]))


def _cell(value: Any) -> str:
    from millstream.sql.entity_text import cell

    return cell(value)


class Notebook:
    """The magics' state: the client, with its SET and DEFINE."""

    def __init__(self, shell: Any) -> None:
        from millstream.sql.client import SqlClient

        self._shell = shell
        self.client: SqlClient = SqlClient(DEFAULT_SERVER)

    def sql(self, line: str, cell: str | None = None) -> SqlTable | None:
        """%sql and %%sql."""
        if cell is None:
            if line.strip().startswith(("http://", "https://")):
                self._connect(line.split())
                return None
            return self._run(line, None)
        limit, name = _arguments(line)
        found = self._run(cell, limit)
        if name is not None:
            self._shell.user_ns[name] = found
        return found

    def _connect(self, words: list[str]) -> None:
        from millstream.sql.client import SqlClient

        self.client.close()
        self.client = SqlClient(words[0], words[1] if len(words) > 1 else "")
        print(f"SQL at {words[0]} (service {self.client.info().service_id})")

    def _run(self, text: str, limit: int | None) -> SqlTable | None:
        from millstream.sql.client import Entity, Lines, SqlFailed
        from millstream.sql.entity_text import render

        found: SqlTable | None = None
        try:
            for answer in self.client.run(text):
                if isinstance(answer, Entity):
                    print("\n".join(render(answer.content)))
                elif isinstance(answer, Lines):
                    for printed in answer:
                        print(printed)
                else:
                    found = self._collect(answer, limit)
        except SqlFailed as error:
            from IPython.core.error import UsageError

            raise UsageError(str(error)) from None
        return found

    def _collect(self, rows: Rows, limit: int | None) -> SqlTable:
        """Shows what is there as it grows; the finished table is shown by the notebook itself."""
        from IPython.display import display

        table = SqlTable(rows.columns, rows.types)
        handle, shown_at = None, time.monotonic()
        source = iter(rows)
        try:
            while limit is None or len(table) < limit:
                row = next(source, None)
                if row is None:
                    break
                table.rows.append(row)
                if time.monotonic() - shown_at > _REFRESH:
                    if handle is None:
                        handle = display(table, display_id=True)  # type: ignore[no-untyped-call, unused-ignore]
                    else:
                        handle.update(table)
                    shown_at = time.monotonic()
        except KeyboardInterrupt:
            print("Query ended")
        finally:
            rows.rows.close()  # type: ignore[attr-defined]  # a generator: the query ends with it
        return table


def _arguments(line: str) -> tuple[int | None, str | None]:
    """`--limit N` and the name of a variable, in any order."""
    from IPython.core.error import UsageError

    limit, name = None, None
    words = iter(line.replace("=", " ").split())
    for word in words:
        if word == "--limit":
            text = next(words, "")
            if not text.isdecimal():
                raise UsageError("--limit needs a number")
            limit = int(text)
        elif word.isidentifier() and name is None:
            name = word
        else:
            raise UsageError(f"%%sql [--limit N] [VARIABLE]: {word} is neither")
    return limit, name


def load_ipython_extension(shell: Any) -> None:
    """Called by %load_ext."""
    notebook = Notebook(shell)
    shell.register_magic_function(notebook.sql, "line_cell", "sql")
