"""One set of facts in four styles: Kafka's own lines, json, yaml, or a table for eyes."""

import io
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.cli.errors import UsageError

STYLES = ("lines", "json", "yaml", "table")
PIPE_WIDTH = 10_000  # a table that goes into a file or a pipe is as wide as it needs to be


@dataclass(slots=True)
class Report:
    """What a tool has to say: `lines` for the default style, `data` for programs, `columns` and `rows` for a
    table."""

    lines: Iterable[str] = ()
    data: Any = None
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = field(default_factory=list)


def check_style(style: str) -> str:
    if style not in STYLES:
        raise UsageError(f"-o {style}: use one of {', '.join(STYLES)}")
    return style


def emit(report: Report, style: str) -> None:
    if style == "json":
        print_json(report.data)
    elif style == "yaml":
        print_yaml(report.data)
    elif style == "table":
        print_table(report.columns, report.rows)
    else:
        for line in report.lines:
            print(line)


def print_json(data: Any, indent: int | None = 2) -> None:
    import json

    print(json.dumps(data, indent=indent, ensure_ascii=False))


def print_yaml(data: Any, separate: bool = False) -> None:
    import yaml

    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, default_flow_style=False, width=100)
    print(f"---\n{text}" if separate else text, end="")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for number, column in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[number], int) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    if sys.stdout.isatty():
        Console(markup=False, highlight=False).print(table)
        return
    text = io.StringIO()
    Console(file=text, width=PIPE_WIDTH, markup=False, highlight=False).print(table)
    for line in text.getvalue().splitlines():
        print(line.rstrip())
