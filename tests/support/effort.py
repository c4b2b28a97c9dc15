"""How much a test tries that could go on for ever: random examples, seeds, recorded cases.

`make check` sets MILLSTREAM_TESTS=quick and so gets some of them; every other run has all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

QUICK = os.environ.get("MILLSTREAM_TESTS") == "quick"


def examples(full: int) -> int:
    """For `max_examples` of Hypothesis, and loops over random cases."""
    return max(10, full // 10) if QUICK else full


def sample(all_of_them: Iterable[T]) -> list[T]:
    """For `parametrize` over hundreds of recorded cases: every fifth."""
    return list(all_of_them)[:: 5 if QUICK else 1]


def seeds(full: int) -> range:
    """For `parametrize("seed", ...)`."""
    return range(max(2, full // 10) if QUICK else full)
