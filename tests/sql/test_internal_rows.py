"""Rows in stores and repartition topics come back as they went."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from millstream.sql.internal_rows import KEYS, ROWS
from millstream.streams.windows import Window, Windowed


@pytest.mark.parametrize(
    "row",
    [
        (),
        (1, "x", None, True, 1.5),
        (Decimal("1.50"), b"\x00\xff", [1, None, Decimal(2)]),
        ({"a": 1, "b": {"c": [b"x"]}},),
        ({1: "x", None: "y"}, {"$d": "not a tag"}, {"$m": []}),
        (math.inf, -math.inf),
        (2**63 - 1, -(2**63)),
    ],
)
def test_rows(row: tuple[Any, ...]) -> None:
    data = ROWS.write("", row)
    assert data is not None
    back = ROWS.read("", data)
    assert back == row
    assert [type(value) for value in back] == [type(value) for value in row]


def test_not_a_number() -> None:
    assert math.isnan(ROWS.read("", ROWS.write("", (math.nan,)))[0])


def test_keys_in_windows() -> None:
    key = Windowed(("x", Decimal("1.0")), Window(3, 9))
    assert KEYS.read("", KEYS.write("", key)) == key
    assert KEYS.read("", KEYS.write("", ("x",))) == ("x",)


def test_other_objects_are_refused() -> None:
    with pytest.raises(TypeError, match="no place in a row"):
        ROWS.write("", (object(),))
