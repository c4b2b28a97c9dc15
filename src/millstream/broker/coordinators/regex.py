"""Regular expressions of clients, for subscriptions and filters.

They are compiled and matched in one helper thread, a few names at a time, so that neither the event loop nor
another client's expression waits for an expensive one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from millstream.patterns import MAX_LENGTH, InvalidPattern, compile_pattern
from millstream.wire.errors import ErrorCode, KafkaError

NAMES_PER_SLICE = 100
MAX_MEMORY = 1 << 20  # of one expression


def check(pattern: str) -> None:
    """KafkaError if this is not an expression, or one that costs too much."""
    try:
        compile_pattern(pattern, MAX_MEMORY)
    except InvalidPattern as error:
        shown = f" `{pattern}`" if len(pattern) <= MAX_LENGTH else ""
        raise KafkaError(
            ErrorCode.invalid_regular_expression,
            f"SubscribedTopicRegex{shown} is not a valid regular expression: {error}.",
        ) from None


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """The names that the whole expression matches. InvalidPattern if it cannot be used."""
    matches = compile_pattern(pattern, MAX_MEMORY).fullmatch
    return frozenset(name for name in names if matches(name) is not None)


async def matching_in_helper(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """`matching`, away from the event loop. Expressions at work at the same time take turns."""
    loop = asyncio.get_running_loop()
    waiting = list(names)
    found = await loop.run_in_executor(_helper(), matching, pattern, waiting[:NAMES_PER_SLICE])
    for start in range(NAMES_PER_SLICE, len(waiting), NAMES_PER_SLICE):
        piece = waiting[start : start + NAMES_PER_SLICE]
        found |= await loop.run_in_executor(_helper(), matching, pattern, piece)
    return found


@cache
def _helper() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "regular-expressions")


class ResolvedPatterns:
    """Which topics the expressions of subscriptions match, by the version of the metadata they were matched
    against. The oldest are dropped when there are many: a group asks again for what it needs."""

    MAX_KEPT = 256

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, frozenset[str]]] = {}

    def get(self, pattern: str, version: int) -> frozenset[str] | None:
        known = self._found.get(pattern)
        return known[1] if known is not None and known[0] == version else None

    async def resolve(self, pattern: str, names: Collection[str], version: int) -> None:
        """An invalid expression is left as it is; `check` says what is wrong with it."""
        try:
            found = await matching_in_helper(pattern, names)
        except InvalidPattern:
            return
        self._found.pop(pattern, None)
        while len(self._found) >= self.MAX_KEPT:
            del self._found[next(iter(self._found))]
        self._found[pattern] = version, found
