"""Expressions of clients are compiled and matched away from the event loop, in turns."""

import asyncio
import threading
from collections.abc import Iterable
from typing import Any

import pytest

from millstream.broker.coordinators import regex
from millstream.patterns import MAX_LENGTH, InvalidPattern
from millstream.wire.errors import ErrorCode, KafkaError


def test_expressions_take_turns_in_the_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    slices: list[tuple[str, int, str]] = []
    original = regex.matching

    def counting(pattern: str, names: Iterable[str]) -> frozenset[str]:
        given = list(names)
        slices.append((pattern, len(given), threading.current_thread().name))
        return original(pattern, given)

    monkeypatch.setattr(regex, "matching", counting)
    names = [f"t{number}" for number in range(3 * regex.NAMES_PER_SLICE + 1)]

    async def both() -> list[frozenset[str]]:
        return await asyncio.gather(
            regex.matching_in_helper("t.*", names), regex.matching_in_helper("t1", names)
        )

    assert asyncio.run(both()) == [frozenset(names), {"t1"}]
    assert [pattern for pattern, _, _ in slices] == ["t.*", "t1"] * 4
    assert max(count for _, count, _ in slices) == regex.NAMES_PER_SLICE
    assert all(thread.startswith("regular-expressions") for _, _, thread in slices)


def test_an_expression_that_cannot_be_used() -> None:
    for pattern in ("(", "a" * (MAX_LENGTH + 1)):
        with pytest.raises(InvalidPattern):
            asyncio.run(regex.matching_in_helper(pattern, []))
        with pytest.raises(KafkaError) as problem:
            regex.check(pattern)
        assert problem.value.code is ErrorCode.invalid_regular_expression
        assert len(problem.value.message) < 2 * MAX_LENGTH


def test_what_was_matched_counts_for_one_version_of_the_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regex.ResolvedPatterns, "MAX_KEPT", 2)
    resolved = regex.ResolvedPatterns()

    async def resolve(*given: Any) -> None:
        for pattern, names, version in given:
            await resolved.resolve(pattern, names, version)

    asyncio.run(resolve(("a.*", ["ab", "b"], 1), ("(", ["b"], 1)))
    assert resolved.get("a.*", 1) == {"ab"}
    assert resolved.get("a.*", 2) is None
    assert resolved.get("(", 1) is None
    asyncio.run(resolve(("b", ["b"], 2), ("c", ["b"], 2)))
    assert [resolved.get(pattern, 2) for pattern in ("a.*", "b", "c")] == [None, {"b"}, frozenset()]
