"""A running registry: its state, the topics behind it, and whether this instance leads.

The election has a thread of its own and hands over what it learns with call_soon_threadsafe; all else runs
in one event loop. A change is decided on the newest state, written, and answered when it has come back
(`topic_log`). The leader fences the topic of the schemas as soon as it is elected, that of the encryption
keys before it first writes there.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from millstream.client import ClientConfig
from millstream.registry import contexts, errors, schema_records
from millstream.registry.associations.commands import AssociationCommands
from millstream.registry.commands import Change, Commands, Steps
from millstream.registry.dek.registry import DekConfig, DekRegistry
from millstream.registry.election import Election, ElectionConfig, Identity
from millstream.registry.queries import Queries
from millstream.registry.schemas_topic import Fenced, SchemasTopicConfig, TooLarge
from millstream.registry.state import State
from millstream.registry.topic_log import TopicLog
from millstream.wire.errors import KafkaError

log = logging.getLogger(__name__)

PAUSE = 0.5


class NotLeader(Exception):
    """This instance lost the lead before it could write; nothing was written."""


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    client: ClientConfig
    topic: SchemasTopicConfig
    election: ElectionConfig
    me: Identity
    deks: DekConfig
    level: str = "BACKWARD"
    validate_fields: bool = False
    validate_new_schemas: bool = True
    reject_empty_subject: bool = False
    strict_references: bool = False
    mode_changes: bool = True
    leader_timeout: float = 10.0  # seconds that a write waits for a leader


class RegistryService:
    def __init__(self, options: RegistryOptions) -> None:
        self.options = options
        self.state = State()
        self.queries = Queries(
            self.state,
            level=options.level,
            validate_fields=options.validate_fields,
            validate_new_schemas=options.validate_new_schemas,
            strict_references=options.strict_references,
        )
        self.commands = Commands(self.queries, mode_changes=options.mode_changes)
        self.associations = AssociationCommands(self.commands, self.queries, self.subject)
        self.leader: Identity | None = None
        self.leads = False
        self.elections = 0
        self.cluster_id: str | None = None
        self._changed = asyncio.Condition()
        self.log = TopicLog(
            options.client,
            options.topic,
            self.state.apply,
            lambda: (schema_records.noop_key(), schema_records.noop_value(self.state.highest_ids)),
        )
        self.deks = DekRegistry(options.client, options.deks)
        self._election: Election | None = None
        self._taking_over: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """Read the topic, then follow it and join the group. KafkaError or TopicUnusable if that cannot
        be."""
        self._loop = asyncio.get_running_loop()
        await self.log.start()
        self.cluster_id = self.log.cluster_id
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
        await self.deks.stop()
        await self.log.stop()

    def subject(self, text: str, *, of_deks: bool = False) -> str:
        """The subject that a request is about: with its context in one spelling, and an alias replaced.
        `of_deks`: encryption keys may have an alias of their own."""
        subject = contexts.normalize(text)
        config = self.state.configs.get(subject, {})
        alias = (config.get("aliasForDeks") if of_deks else None) or config.get("alias")
        return contexts.within(alias, subject) if alias else subject

    # What the threads tell

    def _leader_changed(self, leader: Identity | None, me: bool) -> None:
        self._call(lambda: self._elected(leader, me))

    def _call(self, act: Callable[[], None]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(act)
        except RuntimeError:
            pass  # the loop is closed: the registry is on its way out

    def _elected(self, leader: Identity | None, me: bool) -> None:
        if leader != self.leader or me != self.leads:
            self.elections += 1
            log.info("leader: %s%s", leader.url if leader else "nobody", " (this instance)" if me else "")
        self.leader, self.leads = leader, me
        if not me:
            self._no_more_writes()
        elif not self.log.owned:
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
        while self.leads and not self.log.owned:
            try:
                async with self.log.lock:
                    await self.log.fence()
                    if not self.leads:
                        self.log.release()
            except Fenced:
                log.warning("another instance took the lead meanwhile")
                self._step_down()
            except (KafkaError, TooLarge, TimeoutError) as error:
                log.warning("the lead cannot be taken yet: %s", error)
                await asyncio.sleep(PAUSE)
        self._notify()

    def _no_more_writes(self) -> None:
        self.log.release()
        self.deks.log.release()

    def _step_down(self) -> None:
        self._no_more_writes()
        self.leads, self.leader = False, None
        if self._election is not None:
            self._election.rejoin()

    async def wait_for_leader(self) -> Identity | None:
        """The leader, if it is another instance; None when this one may write. RegistryError if there is
        none."""
        if not await self._wait_until(self._has_leader, self.options.leader_timeout):
            raise errors.unknown_leader()
        return None if self.log.owned else self.leader

    async def wait_for_leader_after(self, gone: Identity, seconds: float) -> bool:
        """Whether another one than this leads by then. The group notices that a leader has ended a little
        later than whoever wants to talk to it."""
        return await self._wait_until(lambda: self._has_leader() and self.leader != gone, seconds)

    def _has_leader(self) -> bool:
        return self.log.owned or (self.leader is not None and not self.leads)

    async def _wait_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        if condition():
            return True
        async with self._changed:
            try:
                return await asyncio.wait_for(self._changed.wait_for(condition), seconds)
            except TimeoutError:
                return False

    async def change(self, decide: Callable[[], Change | Steps], topic_log: TopicLog | None = None) -> object:
        """Decide on the newest state, write, and answer when it has come back. NotLeader if this instance may
        not."""
        topic_log = topic_log or self.log
        async with topic_log.lock:
            if not self.log.owned:
                raise NotLeader
            if self._election is not None and not self._election.is_current():
                # Silent for longer than the session: somebody else may lead by now.
                self._step_down()
                raise NotLeader
            try:
                if not topic_log.owned:
                    await topic_log.fence()
                    if not self.leads:
                        topic_log.release()
                        raise NotLeader
                decided = decide()
                steps = _one_step(decided) if isinstance(decided, Change) else decided
                return await self._carry_out(steps, topic_log)
            except Fenced:
                log.warning("another instance has taken the lead")
                self._step_down()
                raise NotLeader from None
            except TimeoutError:
                self._start_again(topic_log)
                raise errors.timed_out("the write was not read back in time") from None
            except KafkaError as error:
                self._start_again(topic_log)
                raise errors.store_failed(f"the write to the Kafka store failed: {error.message}") from None

    async def _carry_out(self, steps: Steps, topic_log: TopicLog) -> object:
        """Write step after step; whoever decides learns of a record that the topic does not take."""
        answer: object = None
        change = next(steps, None)
        while change is not None:
            answer = change.answer
            try:
                if change.entries:
                    await topic_log.append(change.entries)
            except TooLarge:
                change = steps.throw(errors.too_large())
            else:
                change = next(steps, None)
        return answer

    def _start_again(self, topic_log: TopicLog) -> None:
        """The outcome of a write is not known. Before the next one, find out what is in the topic."""
        topic_log.release()
        if self.leads and topic_log is self.log:
            self._take_over()


def _one_step(change: Change) -> Steps:
    yield change
