"""Replicas that this broker cannot write: a folder whose fsync failed, a full disk. Others lead them.

A leader that cannot write refuses every produce request, and a follower that cannot holds up every acks=all
until it has lagged for long enough. Either has to get out of the way: the broker tells the controller, which
lets another in-sync replica lead and takes this one out of the ISR. Until it can write again it does not
fetch either, or it would be in sync, and elected, as soon as nothing new is written.

Where there is no other in-sync replica, this one stays the leader and serves reads. A folder whose fsync
failed is out of service until a restart. After any other failure, writing is tried again now and then.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any
from uuid import UUID

from millstream.cluster.commands import LOST_DIRECTORY, ReplicasFailed
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.partition import Partition
    from millstream.broker.replication.replica_manager import ReplicaManager

logger = logging.getLogger("millstream.replication")

RETRY_SECONDS = 10.0
MAX_PARTITIONS = 1000  # in one request

Key = tuple[UUID, int]  # a topic's id, and a partition of it


class FailingReplicas:
    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._broker = replicas.broker
        self._since: dict[Partition, float] = {}

    async def look(self) -> None:
        """Finds those that fail, and those that no longer do. Called every second."""
        now = time.monotonic()
        failing = {
            partition: None
            for partition in self._broker.partitions
            if partition.replication is not None and not partition.log.writable
        }
        for partition in [known for known in self._since if known not in failing]:
            self._try_again(partition)
        for partition in list(failing):
            if now - self._since.setdefault(partition, now) >= RETRY_SECONDS:
                if partition.log.offline is None:
                    del failing[partition]
                    self._try_again(partition)
            else:
                self._replicas.forget(partition)
        for start in range(0, len(failing), MAX_PARTITIONS):
            some = list(failing)[start : start + MAX_PARTITIONS]
            keys = [(each.topic_id, each.index) for each in some]
            await self._leave(keys, some[0].log.offline or some[0].log.write_problem)
        # A full disk may even refuse to make the log of a new partition.
        without_log = [(each.topic_id, each.index) for each in self._broker.partitions.without_log.values()]
        await self._leave(without_log[:MAX_PARTITIONS], "there is no log")

    def _try_again(self, partition: Partition) -> None:
        del self._since[partition]
        if not partition.log.closed:
            partition.log.write_problem = None
            self._replicas.role_changed(partition)

    def _has_successor(self, key: Key) -> bool:
        image, own = self._broker.image, self._broker.node_id
        record = image.partition(*key)
        if record is None or own not in record.isr:
            return False
        active = image.active_brokers()
        return any(member in active for member in record.isr if member != own)

    async def _leave(self, keys: list[Key], why: str | None) -> None:
        leaving = [key for key in keys if self._has_successor(key)]
        if not leaving:
            return
        logger.warning(
            "%d partitions cannot be written here, other replicas are to take over: %s", len(leaving), why
        )
        controller = self._broker.controller
        try:
            if controller.leading:
                await controller.submit(
                    ReplicasFailed(self._broker.node_id, controller.broker_epoch, leaving)
                )
            else:
                await self._ask_controller(leaving)
        except KafkaError as error:
            logger.warning("they could not be handed over, it will be tried again: %s", error)

    async def _ask_controller(self, keys: list[Key]) -> None:
        topics: dict[UUID, list[dict[str, Any]]] = {}
        for topic_id, index in keys:
            topics.setdefault(topic_id, []).append({"partition_index": index})
        response = await self._broker.connections.request(
            self._broker.image.controller_id,
            "assign_replicas_to_dirs",
            broker_id=self._broker.node_id,
            broker_epoch=self._broker.controller.broker_epoch,
            directories=[
                {
                    "id_": LOST_DIRECTORY,
                    "topics": [
                        {"topic_id": topic_id, "partitions": indexes} for topic_id, indexes in topics.items()
                    ],
                }
            ],
        )
        if response.error_code is not ErrorCode.none:
            raise KafkaError(response.error_code)
