"""%sql and %%sql in IPython."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from tests.sql.server.sql_client import RunningSql

CREATE = (
    "CREATE STREAM {0} (K STRING KEY, V INT) WITH (kafka_topic='{0}', value_format='JSON', partitions=1);"
)


@pytest.fixture
def notebook(sql: RunningSql, capsys: pytest.CaptureFixture[str]) -> Any:
    shell = InteractiveShell()  # type: ignore[no-untyped-call, unused-ignore]
    shell.run_line_magic("load_ext", "millstream.sql.jupyter")
    shell.run_line_magic("sql", sql.url)
    assert sql.service_id in capsys.readouterr().out
    return shell


def test_a_cell_is_a_script_and_its_rows_are_its_value(
    notebook: Any, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    script = (
        f"{CREATE.format(name)}\nINSERT INTO {name} VALUES ('a', 1); INSERT INTO {name} VALUES ('<b>', 2);"
    )
    assert notebook.run_cell_magic("sql", "", script) is None
    assert "Stream created" in capsys.readouterr().out
    found = notebook.run_cell_magic("sql", "mine", f"SELECT * FROM {name};")
    assert (found.columns, list(found)) == (["K", "V"], [["a", 1], ["<b>", 2]])
    assert notebook.user_ns["mine"] is found
    assert "<td>&lt;b&gt;</td>" in found._repr_html_() and "<b>" in repr(found)
    assert found.to_arrow().to_pydict() == {"K": ["a", "<b>"], "V": [1, 2]}


def test_a_push_query_ends_with_the_limit_of_the_cell(notebook: Any, sql: RunningSql, name: str) -> None:
    sql.ksql(CREATE.format(name) + f"INSERT INTO {name} VALUES ('a', 1); INSERT INTO {name} VALUES ('b', 2);")
    found = notebook.run_cell_magic("sql", "--limit 2", f"SELECT V FROM {name} EMIT CHANGES;")
    assert found.rows == [[1], [2]]
    assert notebook.run_line_magic("sql", f"SELECT V FROM {name} LIMIT 1;").rows == [[1]]


@pytest.mark.parametrize(
    ("line", "cell", "words"),
    [
        ("", "SELECT * FORM x;", r"line 1:10"),
        ("", "SELECT * FROM NOWHERE_AT_ALL;", "NOWHERE_AT_ALL does not exist"),
        ("--limit many", "SHOW STREAMS;", "needs a number"),
        ("two names", "SHOW STREAMS;", "names is neither"),
    ],
)
def test_mistakes_are_one_line_of_the_notebook(notebook: Any, line: str, cell: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        notebook.run_cell_magic("sql", line, cell)
