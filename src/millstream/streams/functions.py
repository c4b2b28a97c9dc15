"""How many arguments a function of the application takes: it is given what it asks for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from millstream.streams.expressions import Expression


def positional(function: Callable[..., Any], default: int) -> int:
    """How many positional arguments a function needs; `default` where Python cannot tell (some built-ins)."""
    if isinstance(function, Expression):
        return 2  # key and value
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return default
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return default
    return sum(
        1
        for parameter in parameters
        if parameter.kind in positional and parameter.default is inspect.Parameter.empty
    )


def with_key(function: Callable[..., Any]) -> bool:
    """Whether a function of a value wants the key too: f(value) or f(key, value)."""
    return positional(function, 1) >= 2


def joiner_of(function: Callable[..., Any]) -> Callable[[Any, Any, Any], Any]:
    """A joiner f(left, right) or f(key, left, right) as the latter."""
    if positional(function, 2) >= 3:
        return function
    return lambda _key, left, right: function(left, right)
