"""Trained models as functions of SQL.

    model("risk", "(DOUBLE age, DOUBLE km) -> DOUBLE", "risk.pkl")
    model("risk", "(DOUBLE age, DOUBLE km) -> DOUBLE", fitted)
    model("topic", "(VARCHAR text) -> VARCHAR", classifier, method="classify")

in a module that `ksql.udf.module` names; then `SELECT risk(age, km) FROM ...`. A model is an object with
scikit-learn's `predict`, which gets a list of rows and returns a result for each; or any callable, which gets
the values of one row. A file is unpickled (`.joblib`: by joblib) in every process that scores, at the first
row.

Only the first of several outputs is taken unless the signature returns an ARRAY. Null arguments give null;
what the model raises is null and a record in the processing log, as with every function.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from millstream.sql.errors import SqlError
from millstream.sql.functions.table import FunctionTable
from millstream.sql.functions.user import udf


def model(
    name: str,
    signature: str,
    source: Any,
    *,
    method: str = "predict",
    doc: str = "",
    version: str = "",
    into: FunctionTable | None = None,
) -> None:
    """Makes a model a scalar function. `source` is the model, or the path of its file."""
    score = _Scoring(source, method, signature.rpartition("->")[2].strip().upper())
    shown = doc or f"The model {source}." if isinstance(source, str | Path) else doc or "A trained model."
    udf(signature, name=name, doc=shown, version=version, into=into)(score)


class _Scoring:
    """One row through the model."""

    def __init__(self, source: Any, method: str, returns: str) -> None:
        self._source, self._method = source, method
        self._is_list = returns.startswith("ARRAY")
        self._convert = _CONVERSIONS.get(returns)
        self._loading = threading.Lock()
        self._score: Callable[..., Any] | None = None
        if not isinstance(source, str | Path):
            self._score = _scorer(source, method)

    def __call__(self, *values: Any) -> Any:
        score = self._score or self._load()
        found = _plain(score(values))
        if isinstance(found, list) and not self._is_list:
            found = found[0] if found else None
        return found if self._convert is None or found is None else self._convert(found)

    def _load(self) -> Callable[..., Any]:
        with self._loading:
            if self._score is None:
                self._score = _scorer(_loaded(Path(self._source)), self._method)
            return self._score


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "DOUBLE": float,
    "INT": int,
    "INTEGER": int,
    "BIGINT": int,
    "VARCHAR": str,
    "STRING": str,
    "BOOLEAN": bool,
}


def _scorer(found: Any, method: str) -> Callable[[Any], Any]:
    predict = getattr(found, method, None)
    if predict is not None:
        return lambda values: predict([list(values)])[0]
    if callable(found):
        return lambda values: found(*values)
    raise SqlError(f"{type(found).__name__} is no model: it has no {method} and cannot be called")


def _loaded(path: Path) -> Any:
    if path.suffix == ".joblib":
        import joblib  # type: ignore[import-untyped, import-not-found, unused-ignore]

        return joblib.load(path)
    with path.open("rb") as file:
        return pickle.load(file)  # noqa: S301 - named by the server's own configuration


def _plain(value: Any) -> Any:
    """NumPy's and PyTorch's values as Python's."""
    for name in ("detach", "tolist"):
        if hasattr(value, name):
            value = getattr(value, name)()
    return value
