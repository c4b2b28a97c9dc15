"""Regular expressions of clients, for subscriptions and filters: RE2 runs them in linear time whatever they
say.

The library is loaded when the first expression comes: most brokers never see one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from millstream.wire.errors import ErrorCode, KafkaError

MAX_LENGTH = 32_767  # as a string of the protocol's older versions


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:
    """KafkaError if the expression is not one."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 20
    if len(pattern) > MAX_LENGTH:
        raise KafkaError(ErrorCode.invalid_regular_expression, "The regular expression is too long.")
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise KafkaError(
            ErrorCode.invalid_regular_expression,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {text}.",
        ) from None


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """The names that the whole expression matches."""
    matches = compiled(pattern).fullmatch
    return frozenset(name for name in names if matches(name) is not None)
