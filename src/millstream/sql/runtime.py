"""What generated code calls: small functions with ksqlDB's view of null."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from math import isfinite
from typing import Any

from millstream.sql.arithmetic import (
    double_divide,
    double_modulus,
    integer_divide,
    integer_modulus,
    wrap32,
    wrap64,
)
from millstream.sql.errors import EvaluationError

HELPERS = (
    "wrap32",
    "wrap64",
    "integer_divide",
    "integer_modulus",
    "double_divide",
    "double_modulus",
    "distinct",
    "any_equal",
    "like",
    "true_or_false",
    "or_null",
    "item",
    "entry",
    "decimal_of",
    "decimal_or_null",
)

__all__ = [
    *HELPERS,
    "HELPERS",
    "double_divide",
    "double_modulus",
    "integer_divide",
    "integer_modulus",
    "like_pattern",
    "wrap32",
    "wrap64",
]


def distinct(left: Any, right: Any) -> bool:
    """Null is like null, and unlike everything else."""
    if left is None or right is None:
        return left is not right
    return bool(left != right)


def any_equal(value: Any, items: tuple[Any, ...]) -> bool:
    return value in items


def true_or_false(value: Any) -> bool:
    """Null is neither: the expression has no value."""
    if value is None:
        raise EvaluationError("a condition is null")
    return bool(value)


def or_null(compute: Callable[[], Any]) -> Any:
    try:
        return compute()
    except Exception:
        return None


def decimal_of(value: float) -> Any:
    """The decimal with the digits that a double is shown with; no number stays what it is."""
    return Decimal(repr(value)) if isfinite(value) else value


def decimal_or_null(value: Any) -> Any:
    return None if value is None else decimal_of(value)


def item(array: Any, index: Any) -> Any:
    """From 1; from the end where the index is negative; null outside."""
    if array is None or index is None:
        return None
    if index > 0:
        return array[index - 1] if index <= len(array) else None
    return array[index] if index < 0 and -index <= len(array) else None


def entry(mapping: Any, key: Any) -> Any:
    return None if mapping is None else mapping.get(key)


def like_pattern(pattern: str, escape: str | None) -> Callable[[Any], bool]:
    """The test of LIKE: `%` is any text, `_` any character; null is like nothing."""
    source, at = [], 0
    while at < len(pattern):
        character = pattern[at]
        if escape is not None and character == escape and at + 1 < len(pattern):
            at += 1
            source.append(re.escape(pattern[at]))
        elif character == "%":
            source.append(".*")
        elif character == "_":
            source.append(".")
        else:
            source.append(re.escape(character))
        at += 1
    match = re.compile("".join(source), re.DOTALL).fullmatch
    return lambda value: value is not None and match(value) is not None


def like(value: Any, pattern: Any, escape: str | None) -> bool:
    return value is not None and pattern is not None and like_pattern(pattern, escape)(value)
