"""The one way to wait in a test: look often, end as soon as it is true, give up after minutes.

The patience is not an expectation. On a quiet machine nothing here takes more than a few seconds; on a loaded
one the same test takes longer and still passes.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE = 180.0
INTERVAL = 0.02

Message = str | Callable[[], object]


def wait_until(
    condition: Callable[[], T],
    message: Message = "it never became true",
    *,
    patience: float = PATIENCE,
    interval: float = INTERVAL,
    ignoring: type[Exception] | tuple[type[Exception], ...] = (),
) -> T:
    """The condition's value as soon as it is true. Exceptions named in `ignoring` count as not yet, until the
    patience ends; `message` is what a failure says, a function where that is known only then (a log, for
    example)."""
    deadline = time.monotonic() + patience
    while True:
        late = time.monotonic() > deadline
        try:
            if value := condition():
                return value
        except ignoring:
            if late:
                raise
        if late:
            raise AssertionError(message() if callable(message) else message)
        time.sleep(interval)


async def let_tasks_run(turns: int = 100) -> None:
    """So many turns for all tasks of this loop: by their number, as a time may be over before anybody had a
    turn. For what needs no thread and no socket: to begin waiting, or to show that it does not go on."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def wait_until_async(
    condition: Callable[[], T] | Callable[[], Awaitable[T]],
    message: Message = "it never became true",
    *,
    patience: float = PATIENCE,
    interval: float = 0.005,
) -> T:
    """The same on an event loop; the condition may be a coroutine function."""
    deadline = time.monotonic() + patience
    while True:
        late = time.monotonic() > deadline
        found = condition()
        value: T = await found if isinstance(found, Awaitable) else found
        if value:
            return value
        if late:
            raise AssertionError(message() if callable(message) else message)
        await asyncio.sleep(interval)
