"""`millstream sql` as its users meet it: scripts, statements, a terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.cli.errors import CommandFailed
from millstream.cli.sql import Completion, Shell
from tests.sql.server.sql_client import RunningSql
from tests.support.waiting import wait_until

CREATE = (
    "CREATE STREAM {0} (K STRING KEY, V INT) WITH (kafka_topic='{0}', value_format='JSON', partitions=1);"
)


def _run(sql: RunningSql, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "millstream", "sql", sql.url, *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)


def test_a_file_runs_up_to_its_first_mistake_and_says_where_it_is(
    sql: RunningSql, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "setup.sql"
    file.write_text(
        "-- a comment\nDEFINE v = '7';\n"
        + CREATE.format(name)
        + f"\nINSERT INTO {name} VALUES ('a', ${{v}});\n"
        f"SELECT *\n  FORM {name};\nSHOW STREAMS;\n"
    )
    done = _run(sql, "--file", str(file))
    assert done.returncode == 1 and "Stream created" in done.stdout
    assert f"{file}:6:3: line 2:3: Syntax Error" in done.stderr
    assert f"    FORM {name};\n    ^" in done.stderr
    done = _run(sql, "--execute", f"SELECT V FROM {name};")
    assert [line.split("|")[0].strip() for line in done.stdout.splitlines()][2:] == ["7"]


def test_mistakes_that_the_server_finds_have_their_place_too(sql: RunningSql, name: str) -> None:
    sql.ksql(CREATE.format(name))
    done = _run(sql, "--execute", f"SELECT K,\n  NOPE FROM {name} EMIT CHANGES;")
    assert "\n    NOPE FROM" in done.stderr and done.stderr.rstrip().endswith("^")


def test_json_is_for_programs(sql: RunningSql, name: str) -> None:
    sql.ksql(CREATE.format(name) + f"INSERT INTO {name} VALUES ('ä', 1);")
    done = _run(sql, "--output", "json", text=f"SELECT * FROM {name};")
    assert done.stdout.splitlines()[1] == '["ä", 1]'


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--file", "no/such/file"), "cannot read no/such/file"),
        (("--output", "xml", "-e", "SHOW STREAMS;"), "--output is"),
        (("--execute", "SHOW NOTHING;"), "Syntax"),
    ],
)
def test_what_cannot_be_done_is_one_message(sql: RunningSql, arguments: tuple[str, ...], words: str) -> None:
    done = _run(sql, *arguments)
    assert done.returncode != 0 and words in done.stderr and "Traceback" not in done.stderr


def test_run_script_is_for_execute_too_and_fails_with_its_script(
    sql: RunningSql, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "two words.sql"
    file.write_text(CREATE.format(name) + "\nSHOW NOTHING;")
    done = _run(sql, "--execute", f"RUN SCRIPT '{file}';")
    assert "Stream created" in done.stdout
    assert done.returncode == 1 and f"{file}:2:" in done.stderr
    done = _run(sql, "--execute", "run script")
    assert done.returncode == 1 and "needs the name of a file" in done.stderr


def test_spool_has_what_was_typed_and_answered_until_it_is_off(
    sql: RunningSql, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sql.ksql(CREATE.format(name))
    shell, file = Shell(sql.url, "tabular"), tmp_path / "it's.log"
    lines = iter(
        [
            "SHOW TYPES;",
            "spool '" + str(file).replace("'", "''") + "';",
            f"DESCRIBE {name}",
            ";",
            "SHOW NOTHING;",
            "SPOOL OFF",
            "SHOW TABLES;",
        ]
    )
    shell.interact(lambda _: next(lines, "exit"))
    spooled = file.read_text()
    assert spooled.startswith(f"sql> DESCRIBE {name}\n   > ;\n")
    assert "INTEGER" in spooled and "Syntax" in spooled
    assert "SHOW TYPES" not in spooled and "SHOW TABLES" not in spooled
    shown = capsys.readouterr().out
    assert f"spooled to {file}" in shown and f"Spool written to {file}" in shown and "INTEGER" in shown


def test_a_spool_is_whole_when_the_shell_ends_without_spool_off(sql: RunningSql, tmp_path: Path) -> None:
    before, file = sys.stdout, tmp_path / "spool"
    lines = iter([f"SPOOL {file}", "SHOW VARIABLES;"])
    Shell(sql.url, "tabular").interact(lambda _: next(lines, "exit"))
    assert file.read_text().startswith("sql> SHOW VARIABLES;\n") and sys.stdout is before


def test_a_spool_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=r"cannot spool to .*: is a directory"):
        Shell("http://127.0.0.1:1", "tabular").own(f"spool '{tmp_path}'")


def test_the_shell_goes_to_another_server_only_if_that_answers(
    sql: RunningSql, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(sql.url, "tabular")
    with pytest.raises(CommandFailed, match="does not answer"):
        shell.own("server http://127.0.0.1:1")
    assert shell.own("server;") and shell.own(f"SERVER {sql.url}") and shell.own("version")
    shown = capsys.readouterr().out.splitlines()
    assert shown[:2] == [sql.url, sql.url] and shown[2].startswith("Server: ")


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(CommandFailed, match="does not answer"):
        Shell("http://127.0.0.1:1", "tabular").run("SHOW STREAMS;")


def test_tab_knows_sources_columns_and_functions(sql: RunningSql, name: str) -> None:
    sql.ksql(CREATE.format(name).replace("V INT", "VELOCITY INT"))
    completion = Completion(Shell(sql.url, "tabular"))
    assert completion.words(name[:5], "SELECT * FROM ") == [f"{name} "]
    assert "VELOCITY " in completion.words("VEL", f"SELECT VEL FROM {name}")
    assert "velocity " in completion.words("vel", f"select vel from {name.lower()}")
    assert "UCASE " in completion.words("UCA", "SELECT ")
    assert completion.words("SHO", "") == ["SHOW "]


def test_a_terminal_keeps_history_and_shows_tables_in_place(
    sql: RunningSql, name: str, tmp_path: Path
) -> None:
    sql.ksql(CREATE.format(name) + f"INSERT INTO {name} VALUES ('a', 1); INSERT INTO {name} VALUES ('a', 2);")
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(
        [sys.executable, "-m", "millstream", "sql", sql.url],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "HOME": str(tmp_path), "TERM": "xterm", "COLUMNS": "80"},
    )
    os.close(theirs)
    seen = b""

    def until(words: bytes) -> None:
        nonlocal seen

        def there() -> bool:
            nonlocal seen
            if select.select([ours], [], [], 0.1)[0]:
                seen += os.read(ours, 65536)
            return words in seen

        wait_until(there, lambda: seen.decode(errors="replace"))
        seen = seen.partition(words)[2]

    try:
        until(b"sql> ")
        os.write(ours, b"output live\n")
        until(b"sql> ")
        os.write(ours, f"SELECT K, V\nFROM {name} EMIT CHANGES LIMIT 2;\n".encode())
        until("│ 2 ".encode())
        until(b"sql> ")
        os.write(ours, b"exit\n")
        assert shell.wait(60) == 0
    finally:
        shell.kill()
        os.close(ours)
    assert f"FROM {name} EMIT CHANGES LIMIT 2;" in (tmp_path / ".millstream_sql_history").read_text()
