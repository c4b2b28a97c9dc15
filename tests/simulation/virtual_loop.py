"""An event loop whose time is a number: it waits for nothing, and jumps to whatever is due next.

Everything between two waits happens in the order in which asyncio would do it, so a run is decided by the
delays alone, and these come from a seeded generator.
"""

from __future__ import annotations

import asyncio
import contextvars
import selectors
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import millstream.broker.apis.fetch_read
import millstream.broker.coordinators.groups.coordinator
import millstream.broker.coordinators.runtime
import millstream.broker.coordinators.transactions.markers
import millstream.broker.partitions
import millstream.broker.replication.replica_fetcher
import millstream.broker.replication.replica_manager
import millstream.cluster.driver
import tests.simulation.fake_store

# The process (one life of a broker) whose code runs. Tasks and timers inherit it.
PROCESS: contextvars.ContextVar[Any] = contextvars.ContextVar("process", default=None)

_READ_THE_CLOCK = (
    millstream.broker.apis.fetch_read,
    millstream.broker.coordinators.groups.coordinator,
    millstream.broker.coordinators.runtime,
    millstream.broker.coordinators.transactions.markers,
    millstream.broker.partitions,
    millstream.broker.replication.replica_fetcher,
    millstream.broker.replication.replica_manager,
    millstream.cluster.driver,
    tests.simulation.fake_store,
)


class Stuck(AssertionError):
    """Nothing is due, ever."""


class _Jumping(selectors.SelectSelector):
    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Stuck("nothing is due any more")
        if timeout > 0:
            self.loop.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        selector = _Jumping()
        selector.loop = self
        self.now = 1000.0  # not 0: a time is never mistaken for "never"
        self.steps = 0
        self.after_step: Callable[[], None] = lambda: None
        super().__init__(selector)
        self.set_task_factory(_tagged)

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        super()._run_once()  # type: ignore[misc]
        self.steps += 1
        self.after_step()


def _tagged(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    """Every task belongs to a process, so that it can end with it."""
    task = asyncio.Task(work, loop=loop, **options)
    context = options.get("context")
    process = PROCESS.get() if context is None else context.get(PROCESS)
    if process is not None:
        process.tasks[task] = None
        task.add_done_callback(lambda done: process.tasks.pop(done, None))
    return task


class _Clock:
    """In place of the module `time` where the code under test reads it: the clock of its machine."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        process = PROCESS.get()
        return self._loop.now if process is None else process.clock.monotonic(self._loop.now)  # type: ignore[no-any-return]

    def time(self) -> float:
        process = PROCESS.get()
        return self._loop.now if process is None else process.clock.time(self._loop.now)  # type: ignore[no-any-return]

    def time_ns(self) -> int:
        return int(self.time() * 1e9)


@contextmanager
def virtual_time() -> Iterator[VirtualLoop]:
    """A loop, and everybody who asks for the time gets that of the loop."""
    loop = VirtualLoop()
    clock = _Clock(loop)
    before = [module.time for module in _READ_THE_CLOCK]  # type: ignore[attr-defined]
    for module in _READ_THE_CLOCK:
        module.time = clock  # type: ignore[attr-defined]
    try:
        yield loop
    finally:
        for module, real in zip(_READ_THE_CLOCK, before, strict=True):
            module.time = real  # type: ignore[attr-defined]
        loop.close()
