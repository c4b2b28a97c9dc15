"""Producer ids, in blocks of 1,000 that the controller hands out by the metadata log: none is ever given
twice, by whichever broker, also over restarts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from millstream.cluster.commands import AllocateProducerIds, ProducerIdBlock
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.server import Broker


class NoIdsLeft(Exception):
    """The block is used up: `refill`, then try again."""


class ProducerIds:
    __slots__ = ("_broker", "_left", "_next", "_refilling")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._next = 0
        self._left = 0
        self._refilling = asyncio.Lock()

    def take(self) -> int:
        if not self._left:
            raise NoIdsLeft
        taken = self._next
        self._next += 1
        self._left -= 1
        return taken

    async def refill(self) -> None:
        """Get the next block, unless somebody else has done it meanwhile."""
        async with self._refilling:
            if not self._left:
                try:
                    block = await self._block()
                except KafkaError as error:
                    raise KafkaError(ErrorCode.coordinator_not_available, error.message) from error
                self._next, self._left = block.first, block.count

    async def _block(self) -> ProducerIdBlock:
        broker = self._broker
        if broker.controller.leading:
            return await broker.controller.submit(AllocateProducerIds(broker.node_id, broker.epoch))
        answer = await broker.forwarding.ask_controller(
            "allocate_producer_ids", broker_id=broker.node_id, broker_epoch=broker.epoch
        )
        if answer.error_code is not ErrorCode.none:
            raise KafkaError(answer.error_code, "the controller gives no producer ids")
        return ProducerIdBlock(answer.producer_id_start, answer.producer_id_len)
