"""Nulls, keys as values, distances."""

from __future__ import annotations

import math
from typing import Any

from millstream.sql.errors import EvaluationError
from millstream.sql.functions.table import Function, overload, scalar

_CONDITIONAL, _OTHER = "CONDITIONAL", "OTHER"
_MILES = ("mi", "mile", "miles")
_KILOMETRES = ("km", "kilometer", "kilometers", "kilometre", "kilometres")


def _coalesce(*values: Any) -> Any:
    for value in values:
        if value is not None:
            return value
    return None


def _null_if(value: Any, other: Any) -> Any:
    return None if value == other else value


def _radius(units: str | None) -> float:
    chosen = (units or "").strip().lower()
    if chosen in _MILES:
        return 3959.0
    if not chosen or chosen in _KILOMETRES:
        return 6371.0
    raise EvaluationError(
        "GeoDistance function units parameter must be one of "
        f"{', '.join((*_MILES, *_KILOMETRES[:-1]))} or {_KILOMETRES[-1]}. Values are case-insensitive."
    )


def _radians(degrees: float) -> float:
    """As Java 8 computes it: the last digit of a distance shows the difference."""
    return degrees / 180.0 * math.pi


def _geo_distance(
    lat1: float | None, lon1: float | None, lat2: float | None, lon2: float | None, units: str | None = "km"
) -> float | None:
    """Haversine."""
    if lat1 is None or lon1 is None or lat2 is None or lon2 is None:
        return None
    if abs(lat1) > 90 or abs(lat2) > 90:
        raise EvaluationError(
            "valid latitude values for GeoDistance function are in the range of -90 to 90 decimal degrees"
        )
    if abs(lon1) > 180 or abs(lon2) > 180:
        raise EvaluationError(
            "valid longitude values for GeoDistance function are in the range of -180 to +180 decimal degrees"
        )
    radius = _radius(units)
    dlat, dlon = _radians(lat2 - lat1), _radians(lon2 - lon1)
    squared = math.sin(dlat / 2) ** 2
    squared += math.sin(dlon / 2) ** 2 * math.cos(_radians(lat1)) * math.cos(_radians(lat2))
    return 2 * math.asin(math.sqrt(squared)) * radius


_POINTS = "(DOUBLE lat1, DOUBLE lon1, DOUBLE lat2, DOUBLE lon2"

ROWS: list[Function] = [
    scalar(
        "AS_VALUE",
        _OTHER,
        "In a projection: a key column copied into the value. Anywhere else it changes nothing.",
        overload("(T keyColumn) -> T", lambda value: value),
    ),
    scalar(
        "COALESCE",
        _CONDITIONAL,
        "The first argument that is not null.",
        overload("(T first, T... others) -> T", _coalesce, own_nulls=True),
    ),
    scalar(
        "IFNULL",
        _CONDITIONAL,
        "The first argument, or the second if that is null.",
        overload("(T expression, T altValue) -> T", _coalesce, own_nulls=True),
    ),
    scalar(
        "NULLIF",
        _CONDITIONAL,
        "Null if both arguments are equal, otherwise the first.",
        overload("(T expr1, T expr2) -> T", _null_if, own_nulls=True),
    ),
    scalar(
        "geo_distance",
        _OTHER,
        "The distance of two points on the earth, in kilometres, or in miles with 'MI' as a fifth argument.",
        overload(f"{_POINTS}, VARCHAR units) -> DOUBLE", _geo_distance, own_nulls=True),
        overload(f"{_POINTS}) -> DOUBLE", _geo_distance, own_nulls=True),
    ),
]
