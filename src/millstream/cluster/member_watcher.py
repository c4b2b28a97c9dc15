"""What the leading controller makes of brokers that come and go.

The store's members are compared with the image's brokers after every change of either that matters; what
differs becomes a command. A registration that says nothing new makes no records, so nobody keeps count of
what is new.

Two kinds of registrations are not let in: those that this version cannot read, and those of brokers that do
not support the feature levels in force. An earlier life of such a broker ends all the same. They are looked
at again when they change, and when a level does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from millstream.cluster.commands import BrokerLost, Command, RegisterBroker
from millstream.cluster.metadata_records import UnknownMetadata
from millstream.cluster.registration import command_for
from millstream.cluster.store import RETRY_SECONDS, Member, MetadataStore
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.cluster.driver import Controller

log = logging.getLogger(__name__)


class MemberWatcher:
    """Of one controller. `begin`, then `watch` and `look_again` run while it leads."""

    def __init__(self, controller: Controller, store: MetadataStore) -> None:
        self._controller = controller
        self._store = store
        self._members: Mapping[int, Member] | None = None  # not known yet
        self._turn = asyncio.Lock()
        self._levels = asyncio.Event()  # a feature level has changed
        self._complaints: dict[
            int, tuple[int, str]
        ] = {}  # by broker id: the epoch and what was wrong with it

    def begin(self) -> None:
        """What was known when this controller last led is no longer true."""
        self._members = None
        self._levels.clear()

    async def watch(self) -> None:
        async with aclosing(cast(Any, self._store.members())) as changes:
            async for members in changes:
                self._members = members
                await self._compare()

    def levels_changed(self) -> None:
        self._levels.set()

    async def look_again(self) -> None:
        """At those that were refused for their levels, each time these change."""
        while True:
            await self._levels.wait()
            self._levels.clear()
            await self._compare()

    async def _compare(self) -> None:
        async with self._turn:
            if self._members is None:
                return
            registered = self._readable(self._members)
            brokers = self._controller.image.brokers
            for broker in list(brokers.values()):
                if broker.broker_id not in registered:
                    await self._insist(BrokerLost(broker.broker_id, broker.epoch))
            for command in registered.values():
                refusal = await self._insist(command)
                if refusal is not None and refusal.code is ErrorCode.unsupported_version:
                    self._complain(command.broker_id, command.epoch, refusal.message)
                    before = brokers.get(command.broker_id)
                    if before is not None:
                        await self._insist(BrokerLost(before.broker_id, before.epoch))

    def _readable(self, members: Mapping[int, Member]) -> dict[int, RegisterBroker]:
        """Without those that a newer version registered in a way that this one cannot read."""
        found: dict[int, RegisterBroker] = {}
        for broker_id, member in members.items():
            try:
                found[broker_id] = command_for(member)
            except UnknownMetadata as problem:
                self._complain(broker_id, member.epoch, str(problem))
        return found

    def _complain(self, broker_id: int, epoch: int, problem: str) -> None:
        """Once."""
        if self._complaints.get(broker_id) != (epoch, problem):
            self._complaints[broker_id] = epoch, problem
            log.error("broker %d is not let in: %s", broker_id, problem)

    async def _insist(self, command: Command[Any]) -> KafkaError | None:
        """Until the command is carried out, or refused for good."""
        while self._controller.leading:
            try:
                await self._controller.submit(command)
                return None
            except KafkaError as problem:
                if problem.code is ErrorCode.unsupported_version:
                    return problem
                if problem.code is not ErrorCode.kafka_storage_error:
                    log.warning("%s refused: %s", type(command).__name__, problem)
                    return problem
                if not self._controller.started:
                    raise
                await asyncio.sleep(RETRY_SECONDS)
        return None
