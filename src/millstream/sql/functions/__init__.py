"""ksqlDB's functions, and those of users, as one table.

`FUNCTIONS` is the table of what is built in. A server takes a copy and adds its users' functions (`user.py`).
"""

from __future__ import annotations

from millstream.sql.functions import (
    aggregates,
    arrays_maps,
    collecting,
    datetimes,
    encodings,
    general,
    json_text,
    mathematical,
    regexes,
    tables,
    text,
    urls,
)
from millstream.sql.functions.models import model
from millstream.sql.functions.table import Aggregate, Function, FunctionTable, Kind, Overload
from millstream.sql.functions.user import udaf, udf, udtf

_MODULES = (
    aggregates,
    arrays_maps,
    collecting,
    datetimes,
    encodings,
    general,
    json_text,
    mathematical,
    regexes,
    tables,
    text,
    urls,
)

FUNCTIONS = FunctionTable(row for module in _MODULES for row in module.ROWS)

__all__ = [
    "FUNCTIONS",
    "Aggregate",
    "Function",
    "FunctionTable",
    "Kind",
    "Overload",
    "model",
    "udaf",
    "udf",
    "udtf",
]
