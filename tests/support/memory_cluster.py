"""Several brokers in the test's own process, over one metadata log in memory.

    async with MemoryCluster(tmp_path, 3) as cluster:
        wire = await cluster.wire(2)
        await wire.request("metadata", topics=None, ...)

Brokers have the ids 1 to n and the racks r1 to rn. `stop` ends one cleanly, `lose` as kill -9 would, and
`start` brings it back on its folder, with another port.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from millstream.broker.replication.broker_connection import BrokerConnection, NoSecurity, connect
from millstream.broker.server import Broker
from millstream.cluster.store import MetadataStore
from millstream.settings.resolve import BrokerSettings
from tests.support.memory_store import Hub, MemoryStore
from tests.support.waiting import wait_until_async


class MemoryBroker(Broker):
    """A broker whose metadata lies in a hub."""

    def __init__(self, settings: BrokerSettings, hub: Hub) -> None:
        super().__init__(settings)
        self.store = MemoryStore(hub)
        self.killed = False

    async def _open_store(self) -> MetadataStore:
        return self.store

    async def _leave(self) -> None:
        """A broker that is killed hands nothing over."""
        if not self.killed:
            await super()._leave()
        elif self.probe is not None:
            await self.probe.stop()


class MemoryCluster:
    folders = 1  # data folders of each broker

    def __init__(self, folder: Path, count: int = 3, **settings: object) -> None:
        """Settings are written with underscores for dots."""
        self.hub = Hub()
        self.brokers: dict[int, MemoryBroker] = {}
        self._folder = folder
        self._count = count
        self.settings = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self._wires: list[BrokerConnection] = []

    async def start(self, broker_id: int) -> MemoryBroker:
        folder = self._folder / str(broker_id)
        folder.mkdir(exist_ok=True)
        settings = {
            "node.id": str(broker_id),
            "broker.rack": f"r{broker_id}",
            "log.dirs": ",".join([str(folder), *(f"{folder}-{n}" for n in range(1, self.folders))]),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.num.partitions": "4",
            "group.initial.rebalance.delay.ms": "0",
            **self.settings,  # may be changed between starts
        }
        broker = MemoryBroker(BrokerSettings(settings), self.hub)
        await broker.start()
        self.brokers[broker_id] = broker
        return broker

    async def stop(self, broker_id: int) -> None:
        await self.brokers.pop(broker_id).stop()

    async def lose(self, broker_id: int) -> None:
        """As kill -9: the others learn of it by the end of its session, and its sockets close."""
        broker = self.brokers.pop(broker_id)
        broker.killed = True
        for acceptor in broker.acceptors:
            acceptor.stop()
        for connection in list(broker.admission.open):
            connection.close()
        broker.controller.stay_away()  # the dead do not register again
        broker.store.expire()
        await broker.stop()

    @property
    def controller(self) -> MemoryBroker:
        return next(broker for broker in self.brokers.values() if broker.controller.leading)

    @property
    def others(self) -> list[MemoryBroker]:
        """Those that are not the controller."""
        return [broker for broker in self.brokers.values() if not broker.controller.leading]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{broker.acceptors[0].port}" for broker in self.brokers.values())

    async def wire(self, broker_id: int, listener: str = "PLAINTEXT") -> BrokerConnection:
        """A connection that speaks any API: `await wire.request("metadata", ...)`."""
        endpoint = self.brokers[broker_id].image.brokers[broker_id].endpoint(listener)
        assert endpoint is not None
        self._wires.append(await connect(endpoint, "test", 60, NoSecurity()))
        return self._wires[-1]

    async def in_step(self) -> None:
        """Every broker has seen every entry of the log."""
        await wait_until_async(
            lambda: all(b.controller._informed == self.hub.version for b in self.brokers.values())
        )

    async def __aenter__(self) -> Self:
        for broker_id in range(1, self._count + 1):
            await self.start(broker_id)
        await self.in_step()
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for wire in self._wires:
            wire.close()
        await asyncio.sleep(0)
        for broker_id in list(self.brokers):
            await self.stop(broker_id)


def new_topic(name: str, partitions: int = 1, replicas: int = 1, **configs: str) -> dict[str, Any]:
    """For a CreateTopics request; settings are written with underscores for dots."""
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [],
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }
