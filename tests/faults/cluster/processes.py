"""The cluster of a fault run: three brokers, three ZooKeepers, and a proxy on every link between them.

Clients reach brokers directly. Brokers reach each other, and ZooKeeper, through `links`: a listener of their
own (REPLICATION) is advertised at its proxy's address.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from millstream.client import ClientConfig, Cluster
from millstream.testing import Broker
from millstream.wire.errors import KafkaError
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.support.zookeeper import RunningEnsemble, RunningZooKeeper

from .links import HOST, Link, Links

COUNT = 3
SOON = {"request.timeout.ms": "2000", "default.api.timeout.ms": "4000"}
SETTINGS: dict[str, object] = {
    "zookeeper.session.timeout.ms": 3000,
    "zookeeper.connection.timeout.ms": 60_000,
    "default.replication.factor": COUNT,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": COUNT,
    "transaction.state.log.replication.factor": COUNT,
    "transaction.state.log.min.isr": 2,
    "replica.lag.time.max.ms": 3000,
    "inter.broker.listener.name": "REPLICATION",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,REPLICATION:PLAINTEXT",
}


class Processes:
    """All processes, by name: broker-1 to broker-3, zookeeper-1 to zookeeper-3."""

    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        self.ensemble = RunningEnsemble(folder)
        self.zookeepers = {f"zookeeper-{n}": server for n, server in enumerate(self.ensemble.servers, 1)}
        self.links = Links(
            lambda: {name: broker.pid for name, broker in self.brokers.items() if broker.running}
        )
        self.brokers: dict[str, Broker] = {}
        self._folder = folder
        self._settings = {**SETTINGS, **settings}

    def __enter__(self) -> Self:
        self._open = contextlib.ExitStack()
        with contextlib.ExitStack() as opened:
            opened.enter_context(self.ensemble)
            opened.enter_context(self.links)
            addresses = [
                f"{HOST}:{self.links.add(name, server.port)}" for name, server in self.zookeepers.items()
            ]
            for number in range(1, COUNT + 1):
                name = f"broker-{number}"
                self.brokers[name] = self._broker(name, number, ",".join(addresses))
                opened.callback(_end, self.brokers[name])
            for broker in self.brokers.values():
                broker.start(wait=False)
            for broker in self.brokers.values():
                broker.wait_ready()
            self._open = opened.pop_all()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open.close()

    def _broker(self, name: str, number: int, zookeepers: str) -> Broker:
        clients, replication = free_port(), free_port()
        advertised = self.links.add(name, replication)
        return Broker(
            {
                **self._settings,
                "broker.id": number,
                "broker.rack": f"r{number}",
                "zookeeper.connect": zookeepers,
                "listeners": f"PLAINTEXT://{HOST}:{clients},REPLICATION://{HOST}:{replication}",
                "advertised.listeners": f"PLAINTEXT://{HOST}:{clients},REPLICATION://{HOST}:{advertised}",
            },
            data_dir=self._folder / name,
            start_timeout=120,
        )

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    def links_of(self, name: str) -> list[Link]:
        """From and to this broker."""
        others = [other for other in self.brokers if other != name]
        return [
            *(Link(name, other) for other in [*others, *self.zookeepers]),
            *(Link(other, name) for other in others),
        ]

    # --- who is who -----------------------------------------------------------------------------------------

    def leader(self, topic: str, source: random.Random) -> str:
        """The broker that leads some partition of this topic, or any broker if nobody can say."""
        known = self._metadata([topic]).topics.get(topic)
        led = [] if known is None else [f"broker-{each.leader}" for each in known.partitions.values()]
        return source.choice([name for name in led if name in self.brokers] or list(self.brokers))

    def controller(self, source: random.Random) -> str:
        name = f"broker-{self._metadata([]).controller_id}"
        return name if name in self.brokers else source.choice(list(self.brokers))

    def zookeeper_leader(self, source: random.Random) -> str:
        leads = [name for name, server in self.zookeepers.items() if "Mode: leader" in _asked(server)]
        return source.choice(leads or list(self.zookeepers))

    def _metadata(self, topics: list[str]) -> Cluster:
        """As some broker tells it; without topics and controller where nobody answers soon."""
        with Cluster(ClientConfig.of(self.bootstrap_servers, SOON, "chaos")) as cluster:
            with contextlib.suppress(KafkaError):
                cluster.refresh(topics)
            return cluster

    # --- the end of a round ---------------------------------------------------------------------------------

    def wait_until_in_sync(self, topics: list[str]) -> None:
        """Every partition of these topics has all of its replicas in its ISR."""

        def behind() -> list[str]:
            found = self._metadata(topics).topics
            return [name for name in topics if name not in found] + [
                f"{topic.name}-{each.index}: leader {each.leader}, isr {each.isr}"
                for topic in found.values()
                for each in topic.partitions.values()
                if set(each.isr) != set(each.replicas)
            ]

        wait_until(lambda: not behind(), lambda: f"replicas that stay behind: {behind()}", interval=0.1)

    def logs_that_differ(self, topics: list[str]) -> list[str]:
        """Partitions whose replicas, all in sync and without new writes, are not the same bytes."""
        folders = sorted(
            path.name
            for path in next(iter(self.brokers.values())).data_dir.iterdir()
            if path.name.rpartition("-")[0] in topics
        )
        return [
            folder
            for folder in folders
            if len({_log_bytes(broker.data_dir / folder) for broker in self.brokers.values()}) != 1
        ]


def _end(broker: Broker) -> None:
    if broker.running:
        broker.resume()
        broker.kill()
    broker.close()


def _log_bytes(folder: Path) -> bytes:
    return b"".join(segment.read_bytes() for segment in sorted(folder.glob("*.log")))


def _asked(server: RunningZooKeeper) -> str:
    """ZooKeeper's answer to `srvr`, empty if there is none."""
    try:
        with socket.create_connection((HOST, server.port), timeout=1) as asked:
            asked.sendall(b"srvr")
            answer = b""
            while data := asked.recv(4096):
                answer += data
            return answer.decode(errors="replace")
    except OSError:
        return ""
