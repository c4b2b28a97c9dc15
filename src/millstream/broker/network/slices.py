"""Long work in slices, so that one request does not keep everybody else waiting.

The broker serves everybody from one loop. A handler that works through a list of unknown length is written as
a generator that yields after each element and returns what it made; `collect` is that generator for a plain
comprehension. Whoever drives it gives the loop back after ELEMENTS_PER_SLICE elements or SECONDS_PER_SLICE,
whichever comes first.

Between two slices anything may happen: topics are created and deleted, groups change. A generator looks up
what it needs per element, or holds on to an immutable image of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Iterable, KeysView
from typing import Any, TypeVar

ELEMENTS_PER_SLICE = 256
SECONDS_PER_SLICE = 0.005
ELEMENTS_PER_CLOCK = 8  # between two looks at the clock

Element = TypeVar("Element")
Outcome = TypeVar("Outcome")
Slices = Generator[None, None, Outcome]

_clock = time.perf_counter


def collect(elements: Iterable[Element]) -> Slices[tuple[Element, ...]]:
    """The elements as a tuple, made one at a time: `yield from collect(... for topic in topics)`."""
    made = []
    for element in elements:
        made.append(element)
        yield
    return tuple(made)


def distinct(elements: Iterable[Element]) -> Slices[KeysView[Element]]:
    """The elements, each once, in order."""
    seen: dict[Element, None] = {}
    for element in elements:
        seen[element] = None
        yield
    return seen.keys()


def run_slice(slices: Slices[Any]) -> None:
    """One slice of the work; StopIteration, with the outcome as its value, when it is done."""
    until = _clock() + SECONDS_PER_SLICE
    for _ in range(ELEMENTS_PER_SLICE // ELEMENTS_PER_CLOCK):
        for _ in range(ELEMENTS_PER_CLOCK):
            next(slices)
        if _clock() > until:
            return


async def run_slices(slices: Slices[Outcome]) -> Outcome:
    """All of the work; others have their turn between the slices."""
    while True:
        try:
            run_slice(slices)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
        await asyncio.sleep(0)
