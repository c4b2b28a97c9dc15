"""Functions of the modules that `ksql.udf.module` names, beside the built-in ones."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path

from millstream.sql.errors import SqlError
from millstream.sql.functions import FUNCTIONS
from millstream.sql.functions.table import FunctionTable
from millstream.sql.functions.user import USER_FUNCTIONS


@functools.cache
def load_functions(modules: tuple[str, ...]) -> FunctionTable:
    """The built-in functions and those that these modules define with the decorators of `functions.user`. A
    module is named by its name, or by the path of its file."""
    for name in modules:
        _import(name)
    table = FUNCTIONS.copy()
    for row in USER_FUNCTIONS:
        table.add(row)
    return table


def _import(name: str) -> None:
    if not name.endswith(".py"):
        importlib.import_module(name)
        return
    path = Path(name).absolute()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.exists():
        raise SqlError(f"ksql.udf.module: there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # what is pickled in it is looked up by this name
    spec.loader.exec_module(module)
