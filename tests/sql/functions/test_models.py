"""Models as functions: scikit-learn's way, callables, files."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millstream.sql.errors import SqlError
from millstream.sql.functions import FUNCTIONS, FunctionTable, model
from millstream.sql.types import BIGINT, DOUBLE, STRING


class Linear:
    """As scikit-learn's: fitted by least squares, `predict` takes rows."""

    def fit(self, rows: list[list[float]], results: list[float]) -> Linear:
        inputs = np.column_stack([np.array(rows), np.ones(len(rows))])
        self._weights = np.linalg.lstsq(inputs, np.array(results), rcond=None)[0]
        return self

    def predict(self, rows: list[list[float]]) -> Any:
        return np.column_stack([np.array(rows), np.ones(len(rows))]) @ self._weights


def _fitted() -> Linear:
    return Linear().fit([[0, 0], [1, 0], [0, 1], [1, 1]], [1, 3, 4, 6])  # 2 a + 3 b + 1


def _called(table: FunctionTable, name: str, types: list[Any], *values: Any) -> Any:
    return table.find(name).resolve(types).bind(types)(*values)


def test_a_fitted_model_is_a_function() -> None:
    table = FUNCTIONS.copy()
    model("price", "(DOUBLE a, DOUBLE b) -> DOUBLE", _fitted(), into=table)
    found = _called(table, "price", [DOUBLE, DOUBLE], 2.0, 5.0)
    assert found == pytest.approx(20) and type(found) is float
    assert _called(table, "price", [DOUBLE, DOUBLE], 2.0, None) is None
    assert table.find("PRICE").origin == "USER"


def test_a_model_in_a_file_is_loaded_with_the_first_row(tmp_path: Path) -> None:
    table = FUNCTIONS.copy()
    file = tmp_path / "price.pkl"
    model("price", "(BIGINT a, BIGINT b) -> BIGINT", str(file), into=table)
    file.write_bytes(pickle.dumps(_fitted()))
    assert _called(table, "price", [BIGINT, BIGINT], 0, 1) in (3, 4)  # a float just below 4 is cut off


def test_a_callable_gets_the_values_and_arrays_stay_arrays() -> None:
    table = FUNCTIONS.copy()
    model("words", "(VARCHAR text) -> BIGINT", lambda text: len(text.split()), into=table)
    model("vector", "(VARCHAR text) -> ARRAY<DOUBLE>", lambda text: np.array([len(text), 0.5]), into=table)
    model("first", "(VARCHAR text) -> DOUBLE", lambda text: np.array([len(text), 0.5]), into=table)
    assert _called(table, "words", [STRING], "a b c") == 3
    assert _called(table, "vector", [STRING], "abc") == [3.0, 0.5]
    assert _called(table, "first", [STRING], "abc") == 3.0


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(SqlError, match="is no model"):
        model("x", "(DOUBLE a) -> DOUBLE", 5, into=FUNCTIONS.copy())
