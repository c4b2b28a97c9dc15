"""Brokers in the test's own process (tests/support/memory_cluster.py), for tests of replication.

`kill` ends a broker as kill -9 would: nothing is flushed, no goodbye. Its session expires at once, or when
the test says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from millstream.broker.partition import Partition
from millstream.cluster.commands import CreateTopics, NewTopic
from millstream.cluster.metadata_records import Partition as PartitionRecord
from tests.support.memory_cluster import MemoryCluster
from tests.support.waiting import wait_until_async


class Cluster(MemoryCluster):
    def __init__(self, folder: Path, count: int = 3, **settings: object) -> None:
        super().__init__(
            folder,
            count,
            **{
                "replica_fetch_backoff_ms": 50,
                "offsets_topic_num_partitions": 1,
                "offsets_topic_replication_factor": 3,
                "transaction_state_log_num_partitions": 1,
                "transaction_state_log_replication_factor": 3,
                **settings,
            },
        )

    async def kill(self, broker_id: int, expire: bool = True) -> None:
        """As kill -9: sockets close, tasks end, files stay as they are."""
        broker = self.brokers.pop(broker_id)
        broker.serving = False
        for acceptor in broker.acceptors:
            acceptor.stop()
        await broker.housekeeping.stop()
        await broker.log_cleaner.stop()
        broker.groups.close()
        broker.transactions.close()
        for connection in list(broker.admission.open):
            connection.close()
        broker.poller.close()
        broker.dispatcher.close()
        if "replicas" in broker.__dict__:
            await broker.replicas.close()
        for connections in broker._all_connections:
            connections.close()
        if expire:
            broker.store.expire()
        for task in broker.controller._tasks:
            task.cancel()
        await asyncio.gather(*broker.controller._tasks, return_exceptions=True)
        broker.log_dirs.close(False, broker.epoch)

    async def create(self, name: str, *assignments: tuple[int, ...], **configs: str) -> list[PartitionRecord]:
        [made] = await self.controller.controller.submit(
            CreateTopics(
                [
                    NewTopic(
                        name,
                        assignments=list(enumerate(assignments)),
                        configs={key.replace("_", "."): value for key, value in configs.items()},
                    )
                ]
            )
        )
        assert made.topic_id is not None, made.message
        await self.in_step()
        return list(self.controller.image.partitions[made.topic_id])

    def record(self, name: str, index: int = 0) -> PartitionRecord:
        image = self.controller.image
        return image.partitions[image.topics_by_name[name].topic_id][index]

    def replica(self, broker_id: int, name: str, index: int = 0) -> Partition:
        found = self.brokers[broker_id].partitions.find(name, index)
        assert found is not None
        return found

    def leader(self, name: str, index: int = 0) -> Partition:
        return self.replica(self.record(name, index).leader, name, index)

    async def until(self, condition: Callable[[], bool]) -> None:
        await wait_until_async(condition)
