"""The table of functions as a page.

`python -m millstream.sql.functions.render docs/reference` writes it; a test keeps it up to date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from millstream.sql.functions import FUNCTIONS, Function, Kind, Overload
from millstream.sql.functions.signatures import ParamType

_HEAD = """\
# SQL functions

<!-- Made from src/millstream/sql/functions by `python -m millstream.sql.functions.render docs/reference`. -->

Names, parameters, null rules and rounding are ksqlDB's. Names are found in any case. A single capital
letter stands for any type, the same each time; `...` for any number of arguments. INT, BIGINT and DECIMAL
are converted silently where a wider number is wanted, VARCHAR where a DATE, TIME, TIMESTAMP or BYTES is.

A function that fails gives null, and a line in the processing log. Unless a line says otherwise, null among
the arguments gives null.

What differs from ksqlDB:
- Regular expressions run in RE2, in linear time: look-around, back-references and atomic groups are refused.
- Patterns of dates and times are English, and know all letters of `java.time.format.DateTimeFormatter` but
  B and v. Years are 1 to 9999. Full names of time zones (zzzz) are those of the better-known regions.
- COUNT_DISTINCT hashes by BLAKE2, so its estimates differ from ksqlDB's within the same error.
- Strings are counted in characters. Java counts one beyond the first 65,536 code points as two.
- Maps are shown in the order in which they were read or made; the functions that go through one (MAP_KEYS,
  MAP_VALUES, ENTRIES, REDUCE) do so in the order of a Java HashMap, as ksqlDB.
"""

_TITLES = {
    "AGGREGATE": "Aggregate functions",
    "ARRAY": "Arrays",
    "CONDITIONAL": "Nulls",
    "CONVERSIONS": "Conversions",
    "DATE / TIME": "Dates and times",
    "JSON": "JSON",
    "LAMBDA": "Lambdas",
    "MAP": "Maps",
    "MATHEMATICAL": "Mathematics",
    "OTHER": "Other",
    "REGULAR EXPRESSION": "Regular expressions",
    "STRING": "Strings and bytes",
    "TABLE": "Table functions",
    "URL": "URLs",
}
_USER = """\
## Your own, in Python

A decorator enters a function into the same table: its parameters are checked, its overloads resolved, and
it is listed and described like any other.

```python
from millstream.sql.functions import FUNCTIONS, udaf, udf, udtf

table = FUNCTIONS.copy()


@udf("(DOUBLE celsius) -> DOUBLE", into=table)
def fahrenheit(celsius):
    \"\"\"Degrees Fahrenheit.\"\"\"
    return celsius * 9 / 5 + 32


@udtf("(VARCHAR text) -> VARCHAR", into=table)
def words(text):
    return text.split()


@udaf("(DOUBLE value) -> DOUBLE", state="DOUBLE", into=table)
class product:
    def initial(self):
        return 1.0

    def add(self, state, value):
        return state if value is None else state * value

    def merge(self, one, other):
        return one * other


print(table.find("FAHRENHEIT").doc)
```

Without `into`, functions wait for the server that loads them. A state must never be changed in place. An
aggregate with a method `undo` can be used on tables, one with `result` returns that instead of its state.
`nulls=True` passes nulls to a scalar or table function.
"""


def _result(overload: Overload) -> str:
    if isinstance(overload.result, ParamType):
        return f" -> {overload.result}"
    return ""


def _calls(row: Function) -> str:
    name = row.name.upper()
    return "<br>".join(f"`{overload.text(name)}{_result(overload)}`" for overload in row.overloads)


def _doc(row: Function) -> str:
    notes = [row.doc]
    if row.kind is Kind.AGGREGATE and not any(overload.undoes for overload in row.overloads):
        notes.append("On streams only.")
    return " ".join(notes)


def reference_page() -> str:
    """docs/reference/sql-functions.md."""
    lines = [_HEAD]
    for category, title in sorted(_TITLES.items(), key=lambda item: item[1]):
        lines += [f"## {title}", "", "| Function | Meaning |", "|---|---|"]
        for row in FUNCTIONS:
            if row.category == category:
                lines.append(f"| {_calls(row)} | {_doc(row)} |".replace("\\u", "\\\\u"))
        lines.append("")
    return "\n".join(lines) + "\n" + _USER


def main(folder: str) -> None:
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    (target / "sql-functions.md").write_text(reference_page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
