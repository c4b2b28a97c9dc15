"""A running registry: its state, the topic behind it, and whether this instance leads.

Everything here runs in one event loop. The topic's reader and the election have threads of their own and hand
over what they learn with call_soon_threadsafe; writes go to a third thread, one at a time. A change is
decided, written, and answered when it is part of the state: what a client was told is what every later read
sees. The state takes records in the order of the topic only. The leader, which knows what it wrote and at
which offset, takes its own record when it is acknowledged and next in order; otherwise it waits until the
reader brings it.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from millstream.client import ClientConfig
from millstream.registry import contexts, errors
from millstream.registry.commands import Change, Commands
from millstream.registry.election import Election, ElectionConfig, Identity
from millstream.registry.queries import Queries
from millstream.registry.schemas_topic import Entry, Fenced, SchemasTopic, SchemasTopicConfig, TooLarge
from millstream.registry.state import State
from millstream.wire.errors import KafkaError

log = logging.getLogger(__name__)

Result = TypeVar("Result")
PAUSE = 0.5


class NotLeader(Exception):
    """This instance lost the lead before it could write; nothing was written."""


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    client: ClientConfig
    topic: SchemasTopicConfig
    election: ElectionConfig
    me: Identity
    level: str = "BACKWARD"
    mode_changes: bool = True
    leader_patience: float = 10.0  # seconds that a write waits for a leader


class RegistryService:
    def __init__(self, options: RegistryOptions) -> None:
        self.options = options
        self.state = State()
        self.queries = Queries(self.state, level=options.level)
        self.commands = Commands(self.queries, mode_changes=options.mode_changes)
        self.leader: Identity | None = None
        self.leads = False
        self.elections = 0
        self.cluster_id: str | None = None
        self._may_write = False  # leads, has fenced its predecessor and read everything before that
        self._position = 0
        self._arrivals: list[tuple[int, asyncio.Future[None]]] = []
        self._changed = asyncio.Condition()
        self._write_lock = asyncio.Lock()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="schemas-writer")
        self._topic = SchemasTopic(options.client, options.topic)
        self._election: Election | None = None
        self._taking_over: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """Read the topic, then follow it and join the group. KafkaError or TopicUnusable if that cannot
        be."""
        loop = self._loop = asyncio.get_running_loop()
        began = time.monotonic()
        entries, self._position = await loop.run_in_executor(self._writer, self._topic.load)
        for entry in entries:
            self.state.apply(entry.key, entry.value, entry.timestamp)
        log.info("read %d records in %.2f s", len(entries), time.monotonic() - began)
        self.cluster_id = self._topic.cluster_id
        self._topic.follow(self._deliver)
        self._election = Election(
            self.options.client, self.options.election, self.options.me, self._leader_changed
        )
        self._election.start()

    async def stop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._taking_over is not None:
            self._taking_over.cancel()
        if self._election is not None:
            await loop.run_in_executor(None, self._election.stop)
        await loop.run_in_executor(None, self._topic.close)
        self._writer.shutdown(wait=False, cancel_futures=True)

    def subject(self, text: str) -> str:
        """The subject that a request is about: with its context in one spelling, and an alias replaced."""
        subject = contexts.normalize(text)
        alias = self.state.configs.get(subject, {}).get("alias")
        return contexts.within(alias, subject) if alias else subject

    # What the threads tell

    def _deliver(self, entries: list[Entry], position: int) -> None:
        self._call(lambda: self._arrived(entries, position))

    def _leader_changed(self, leader: Identity | None, me: bool) -> None:
        self._call(lambda: self._elected(leader, me))

    def _call(self, act: Callable[[], None]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(act)
        except RuntimeError:
            pass  # the loop is closed: the registry is on its way out

    def _arrived(self, entries: list[Entry], position: int) -> None:
        if position <= self._position:
            return
        for entry in entries:
            if entry.offset >= self._position:
                self.state.apply(entry.key, entry.value, entry.timestamp)
        self._position = position
        waiting, self._arrivals = self._arrivals, []
        for offset, future in waiting:
            if offset >= position:
                self._arrivals.append((offset, future))
            elif not future.done():
                future.set_result(None)

    def _elected(self, leader: Identity | None, me: bool) -> None:
        if leader != self.leader or me != self.leads:
            self.elections += 1
            log.info("leader: %s%s", leader.url if leader else "nobody", " (this instance)" if me else "")
        self.leader, self.leads = leader, me
        if not me:
            self._no_more_writes()
        elif not self._may_write:
            self._take_over()
        self._notify()

    def _notify(self) -> None:
        async def wake() -> None:
            async with self._changed:
                self._changed.notify_all()

        self._background = asyncio.ensure_future(wake())

    # Leading

    def _take_over(self) -> None:
        if self._taking_over is None or self._taking_over.done():
            self._taking_over = asyncio.ensure_future(self._fence())

    async def _fence(self) -> None:
        while self.leads and not self._may_write:
            try:
                async with self._write_lock:
                    offset = await self._in_writer(lambda: self._topic.fence(dict(self.state.highest_ids)))
                    await self._read_back(offset, self.options.topic.init_timeout)
                    self._may_write = self.leads
                    self._topic.relax(self._may_write)
            except Fenced:
                log.warning("another instance took the lead meanwhile")
                self._step_down()
            except (KafkaError, TooLarge, TimeoutError) as error:
                log.warning("the lead cannot be taken yet: %s", error)
                await asyncio.sleep(PAUSE)
        self._notify()

    def _no_more_writes(self) -> None:
        self._may_write = False
        self._topic.relax(False)

    def _step_down(self) -> None:
        self._no_more_writes()
        self.leads, self.leader = False, None
        if self._election is not None:
            self._election.rejoin()

    async def wait_for_leader(self) -> Identity | None:
        """The leader, if it is another instance; None when this one may write. RegistryError if there is
        none."""
        if self._may_write:
            return None
        if self.leader is not None and not self.leads:
            return self.leader

        def known() -> bool:
            return self._may_write or (self.leader is not None and not self.leads)

        async with self._changed:
            try:
                await asyncio.wait_for(self._changed.wait_for(known), self.options.leader_patience)
            except TimeoutError:
                raise errors.unknown_leader() from None
        return None if self._may_write else self.leader

    async def change(self, decide: Callable[[], Change]) -> object:
        """Decide on the newest state, write, and answer when it has come back. NotLeader if this instance may
        not."""
        async with self._write_lock:
            if not self._may_write:
                raise NotLeader
            if self._election is not None and not self._election.is_current():
                # Silent for longer than the session: somebody else may lead by now.
                self._step_down()
                raise NotLeader
            change = decide()
            if not change.entries:
                return change.answer
            try:
                written = await self._in_writer(lambda: self._topic.write(change.entries))
                if written[0].offset == self._position:
                    self._arrived(written, written[-1].offset + 1)
                else:
                    await self._read_back(written[-1].offset, self.options.topic.timeout)
            except Fenced:
                log.warning("another instance has taken the lead")
                self._step_down()
                raise NotLeader from None
            except TooLarge:
                raise errors.too_large() from None
            except TimeoutError:
                self._start_again()
                raise errors.timed_out("the write was not read back in time") from None
            except KafkaError as error:
                self._start_again()
                raise errors.store_failed(f"the write to the Kafka store failed: {error.message}") from None
            return change.answer

    def _start_again(self) -> None:
        """The outcome of a write is not known. Before the next one, find out what is in the topic."""
        self._no_more_writes()
        if self.leads:
            self._take_over()

    async def _in_writer(self, act: Callable[[], Result]) -> Result:
        assert self._loop is not None
        return await self._loop.run_in_executor(self._writer, act)

    @property
    def position(self) -> int:
        """The offset up to which the topic is part of the state."""
        return self._position

    async def read_up_to(self, position: int) -> None:
        """Wait, but not for ever, until the state is as new as the leader's was."""
        try:
            await self._read_back(position - 1, self.options.topic.timeout)
        except TimeoutError:
            log.warning("this instance is behind: it has not read up to offset %d yet", position)

    async def _read_back(self, offset: int, within: float) -> None:
        if offset < self._position:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrivals.append((offset, future))
        await asyncio.wait_for(future, within)
