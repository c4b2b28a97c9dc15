"""Several brokers and one ZooKeeper, as processes: `with RunningCluster(zookeeper, 3) as cluster: ...`."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic

from millstream.testing import Broker, BrokerFailed

from .waiting import wait_until
from .zookeeper import RunningZooKeeper

SESSION_MS = 6000


class RunningCluster:
    """Brokers 1 to N, each with a rack of its own, over a path in ZooKeeper that nobody else uses."""

    def __init__(
        self,
        zookeeper: RunningZooKeeper,
        count: int = 3,
        settings: Mapping[str, object] | None = None,
        connect: str = "",
    ) -> None:
        self.connect = connect or zookeeper.chroot()
        factor = min(3, count)
        self.settings: dict[str, object] = {
            "zookeeper.connect": self.connect,
            "zookeeper.session.timeout.ms": SESSION_MS,
            "zookeeper.connection.timeout.ms": 60_000,
            "default.replication.factor": factor,
            "offsets.topic.replication.factor": factor,
            "offsets.topic.num.partitions": 3,
            "transaction.state.log.replication.factor": factor,
            "transaction.state.log.num.partitions": 3,
            "min.insync.replicas": max(1, factor - 1),
            **(settings or {}),
        }
        self.brokers = {number: self.make(number) for number in range(1, count + 1)}

    def make(self, number: int, settings: Mapping[str, object] | None = None) -> Broker:
        own = {"broker.id": number, "broker.rack": f"r{number}"}
        return Broker({**self.settings, **own, **(settings or {})}, start_timeout=120)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values() if broker.running)

    def admin(self, number: int | None = None) -> AdminClient:
        servers = self.brokers[number].bootstrap_servers if number else self.bootstrap_servers
        return AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def create_topic(
        self, name: str, partitions: int = 3, replicas: int = 3, number: int | None = None
    ) -> Exception | None:
        """Asks this broker, or any; returns what went wrong."""
        admin = self.admin(number)  # must not go before its answer has come
        future = admin.create_topics([NewTopic(name, partitions, replicas)], request_timeout=20)[name]
        failed: Exception | None = future.exception(60)
        return failed

    def metadata(self, number: int) -> ClusterMetadata:
        """As this broker tells it."""
        return self.admin(number).list_topics(timeout=30)

    def controller(self) -> int:
        """The broker that its peers name as the controller, once they agree."""

        def agreed() -> int:
            found = {self.metadata(n).controller_id for n, broker in self.brokers.items() if broker.running}
            return found.pop() if len(found) == 1 else 0

        return wait_until(agreed, "the brokers do not agree on a controller")

    def until_alive(self, numbers: set[int]) -> None:
        """Every running broker names these brokers, and no others."""

        def agreed() -> bool:
            return all(
                set(self.metadata(number).brokers) == numbers
                for number, broker in self.brokers.items()
                if broker.running
            )

        wait_until(agreed, lambda: "\n".join(broker.log[-2000:] for broker in self.brokers.values()))

    def __enter__(self) -> Self:
        try:
            for broker in self.brokers.values():
                broker.start(wait=False)
            for broker in self.brokers.values():
                broker.wait_ready()
        except BrokerFailed as failure:
            others = "".join(
                f"\n--- broker {number} ---\n{broker.log}" for number, broker in self.brokers.items()
            )
            self.__exit__(None, None, None)
            raise BrokerFailed(f"{failure}{others}") from None
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for broker in self.brokers.values():
            if broker.running:
                broker.resume()
                broker.kill()
            broker.close()
