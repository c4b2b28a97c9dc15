"""Calls of the synchronous client out of the event loop.

A Cluster is for one thread at a time. So each call borrows one: connections stay open between calls, a call
that failed in the transport closes its own, and no more are kept than were busy at the same time.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from millstream.client import ClientConfig, Cluster
from millstream.client.errors import TimedOut, Unreachable

Result = TypeVar("Result")
THREADS = 16


class ClusterPool:
    def __init__(self, config: ClientConfig, threads: int = THREADS) -> None:
        self.config = config
        self._idle: list[Cluster] = []
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="console")

    async def run(self, act: Callable[[Cluster], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.call, act)

    async def run_blocking(self, act: Callable[[], Result]) -> Result:
        """Anything else that blocks: the registry, a password."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, act)

    def call(self, act: Callable[[Cluster], Result]) -> Result:
        try:
            cluster = self._idle.pop()
        except IndexError:
            cluster = Cluster(self.config)
        try:
            result = act(cluster)
        except (Unreachable, TimedOut):
            cluster.close()
            raise
        except BaseException:
            self._idle.append(cluster)
            raise
        self._idle.append(cluster)
        return result

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        while self._idle:
            self._idle.pop().close()
