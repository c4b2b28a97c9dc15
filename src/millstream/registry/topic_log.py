"""One topic of the registry, replayed into a state: read to its end and followed, written to by the leader.

Everything here runs in one event loop. The topic's reader has a thread of its own and hands over what it
learns with call_soon_threadsafe; writes go to another thread, one at a time. A write is answered when it is
part of the state: what a client was told is what every later read sees. The state takes records in the order
of the topic only. The leader, which knows what it wrote and at which offset, takes its own record when it is
acknowledged and next in order; otherwise it waits until the reader brings it.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from millstream.client import ClientConfig
from millstream.registry.schemas_topic import Entry, SchemasTopic, SchemasTopicConfig

log = logging.getLogger(__name__)

Result = TypeVar("Result")
Pair = tuple[bytes, bytes | None]


class TopicLog:
    """`apply` takes each record, in order; `marker` makes the record with which a new leader fences."""

    def __init__(
        self,
        client: ClientConfig,
        config: SchemasTopicConfig,
        apply: Callable[[bytes | None, bytes | None, int], None],
        marker: Callable[[], Pair],
    ) -> None:
        self.config = config
        self.lock = asyncio.Lock()  # held by whoever decides and writes
        self.position = 0  # the offset up to which the topic is part of the state
        self.owned = False  # this instance has fenced its predecessor and read everything before that
        self._apply = apply
        self._marker = marker
        self._topic = SchemasTopic(client, config)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix=f"{config.name}-writer")
        self._arrivals: list[tuple[int, asyncio.Future[None]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def cluster_id(self) -> str | None:
        return self._topic.cluster_id

    # Reading

    async def start(self) -> None:
        """Read the topic, then follow it. KafkaError or TopicUnusable if that cannot be."""
        self._loop = asyncio.get_running_loop()
        began = time.monotonic()
        entries, self.position = await self._in_writer(self._topic.load)
        for entry in entries:
            self._apply(entry.key, entry.value, entry.timestamp)
        log.info("read %d records of %s in %.2f s", len(entries), self.config.name, time.monotonic() - began)
        self._topic.follow(self._deliver)

    async def stop(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._topic.close)
        self._writer.shutdown(wait=False, cancel_futures=True)

    def _deliver(self, entries: list[Entry], position: int) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(lambda: self._arrived(entries, position))
        except RuntimeError:
            pass  # the loop is closed: the registry is on its way out

    def _arrived(self, entries: list[Entry], position: int) -> None:
        if position <= self.position:
            return
        for entry in entries:
            if entry.offset >= self.position:
                self._apply(entry.key, entry.value, entry.timestamp)
        self.position = position
        waiting, self._arrivals = self._arrivals, []
        for offset, future in waiting:
            if offset >= position:
                self._arrivals.append((offset, future))
            elif not future.done():
                future.set_result(None)

    async def read_up_to(self, position: int) -> None:
        """Wait, but not for ever, until the state is as new as the leader's was."""
        try:
            await self._read_back(position - 1, self.config.timeout)
        except TimeoutError:
            log.warning(
                "this instance is behind: it has not read %s up to offset %d yet", self.config.name, position
            )

    async def _read_back(self, offset: int, within: float) -> None:
        if offset < self.position:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrivals.append((offset, future))
        await asyncio.wait_for(future, within)

    # Writing, with the lock held. Fenced, TooLarge, TimeoutError or KafkaError where it fails.

    async def fence(self) -> None:
        """Take the right to write from whoever had it, and read all that was written before."""
        marker = self._marker()
        offset = await self._in_writer(lambda: self._topic.fence(marker))
        await self._read_back(offset, self.config.init_timeout)
        self.owned = True
        self._topic.relax(True)

    def release(self) -> None:
        """No more writes before the next fence: another instance leads, or the outcome of a write is not
        known."""
        self.owned = False
        self._topic.relax(False)

    async def append(self, pairs: Sequence[Pair]) -> None:
        """Write records, all or none; returns when they are part of the state."""
        written = await self._in_writer(lambda: self._topic.write(pairs))
        if written[0].offset == self.position:
            self._arrived(written, written[-1].offset + 1)
        else:
            await self._read_back(written[-1].offset, self.config.timeout)

    async def _in_writer(self, act: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._writer, act)
