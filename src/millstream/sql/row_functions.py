"""Functions of rows from generated code: one call makes a whole projection, or decides a filter.

An expression that fails gives null, and a record in the processing log. Failing is caught for each expression
on its own, and only where it can fail at all; a column that is taken over costs an index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from millstream.sql.code import Code, Names

Log = Callable[[str, str, Exception, Any], None]
"""(what was computed, its text, why it failed, the row)."""


def no_log(_what: str, _text: str, _error: Exception, _row: Any) -> None:
    pass


def build(source: str, names: Names, function: str) -> Callable[..., Any]:
    """The function of that name in a source text."""
    space = dict(names.objects)
    try:
        code = compile(source, f"<sql {function}>", "exec")
    except (MemoryError, SyntaxError):
        # What Python's parser says of too many brackets or operators inside of each other.
        raise RecursionError(function) from None
    exec(code, space)  # noqa: S102 (made by codegen only)
    found: Callable[..., Any] = space[function]
    found.__source__ = source  # type: ignore[attr-defined]
    return found


def guarded(
    name: str, code: Code, what: str, shown: str, names: Names, row: str = "v", indent: str = "    "
) -> str:
    """The lines that compute one value into a variable."""
    if code.safe:
        return f"{indent}{name} = {code.text}\n"
    return (
        f"{indent}try:\n{indent}    {name} = {code.text}\n"
        f"{indent}except Exception as error:\n{indent}    {name} = None\n"
        f"{indent}    _log({what!r}, {shown!r}, error, {row})\n"
    )


def projection(
    columns: Sequence[tuple[str, Code, str]], names: Names, log: Log, arguments: str = "v"
) -> Callable[..., tuple[Any, ...]]:
    """(name, code, text) of each column; the function gives the tuple of their values."""
    names.objects["_log"] = log
    lines, values = "", []
    for index, (name, code, shown) in enumerate(columns):
        if code.safe:
            values.append(code.text)
            continue
        variable = f"c{index}"
        lines += guarded(variable, code, f"column {name}", shown, names)
        values.append(variable)
    result = f"({', '.join(values)}{',' if len(values) == 1 else ''})"
    return build(f"def project({arguments}):\n{lines}    return {result}\n", names, "project")


def condition(code: Code, shown: str, names: Names, log: Log, arguments: str = "v") -> Callable[..., bool]:
    """Whether a row passes; null does not."""
    names.objects["_log"] = log
    lines = guarded("passes", code, "filter", shown, names)
    return build(
        f"def passes_filter({arguments}):\n{lines}    return passes is True\n", names, "passes_filter"
    )


def value_function(
    code: Code, shown: str, names: Names, log: Log, arguments: str = "v"
) -> Callable[..., Any]:
    """One value of a row."""
    names.objects["_log"] = log
    lines = guarded("value", code, "expression", shown, names)
    return build(f"def compute({arguments}):\n{lines}    return value\n", names, "compute")
