"""A broker for all tests of this folder, and a worker whose lanes are threads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from millstream.client import Cluster
from millstream.connect.herder import Herder
from millstream.connect.herding.members import MemberConfig
from millstream.connect.rest.app import make_app
from millstream.connect.stores.topic_store import MemoryStore, TopicStore, make_sure_of_topic
from millstream.connect.worker_config import DistributedConfig, StandaloneConfig
from millstream.host.local import LocalHost
from tests.support.running import RunningRegistry
from tests.support.secured_services import session_broker, with_login

_numbers = itertools.count()


@pytest.fixture(scope="session")
def connect_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with session_broker({"group.initial.rebalance.delay.ms": 0}, tmp_path_factory.mktemp("broker")) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def connect_registry(connect_broker: str) -> Iterator[str]:
    with RunningRegistry(connect_broker, {}) as running:
        yield running.url


class Worker:
    """A worker without Spark; `again` is the same one after it was stopped."""

    def __init__(
        self, settings: dict[str, str], topics: dict[str, str], host: LocalHost | None = None
    ) -> None:
        self.topics = topics
        self.id = settings.pop("worker", "127.0.0.1:8083")
        self.config = DistributedConfig(with_login("connect", settings))
        self.host = host or LocalHost()
        self.herder = Herder(
            self.config,
            self.id,
            settings["group.id"],
            self.host,
            lambda apply: TopicStore(
                self.config.client,
                topics["config"],
                apply,
                transactional_id=f"connect-cluster-{settings['group.id']}",
            ),
            lambda apply: TopicStore(self.config.client, topics["status"], apply),
            offsets_topic=topics["offset"],
            member=MemberConfig(settings["group.id"], f"http://{self.id}/", session_timeout_ms=6000),
            rebalance_delay=float(settings.get("scheduled.rebalance.max.delay.ms", "0")) / 1000,
        )
        cluster = Cluster(self.config.client)
        for what, topic in topics.items():
            make_sure_of_topic(cluster, topic, 1 if what == "config" else 3, 1, f"{what}.storage.topic")
        cluster.close()
        self.herder.start()
        # A name that the service has: others are kept out.
        self.http = TestClient(make_app(self.herder, self.config), base_url="http://127.0.0.1")

    def stop(self) -> None:
        self.herder.stop()
        self.host.close()

    def states(self, name: str) -> list[str]:
        found = self.http.get(f"/connectors/{name}/status")
        if found.status_code != 200:
            return []
        body: dict[str, Any] = found.json()
        return [body["connector"]["state"], *(task["state"] for task in body["tasks"])]


@pytest.fixture
def make_worker(connect_broker: str) -> Iterator[Callable[..., Worker]]:
    number = next(_numbers)
    topics = {what: f"connect-{what}-{number}" for what in ("config", "offset", "status")}
    made: list[Worker] = []

    def make(host: Any = None, **settings: str) -> Worker:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        worker = Worker(
            {
                "bootstrap.servers": connect_broker,
                "group.id": f"connect-{number}",
                "key.converter": "StringConverter",
                "value.converter": "StringConverter",
                **named,
            },
            topics,
            host,
        )
        made.append(worker)
        return worker

    yield make
    for worker in made:
        worker.stop()


@pytest.fixture
def standalone(connect_broker: str, tmp_path: Path) -> Iterator[Callable[[], Herder]]:
    made: list[tuple[Herder, LocalHost]] = []

    def make() -> Herder:
        settings = {
            "bootstrap.servers": connect_broker,
            "key.converter": "StringConverter",
            "value.converter": "StringConverter",
        }
        config = StandaloneConfig(with_login("connect", settings))
        host = LocalHost()
        herder = Herder(
            config,
            "127.0.0.1:8083",
            "standalone",
            host,
            MemoryStore,
            MemoryStore,
            offsets_file=str(tmp_path / "offsets"),
            exactly_once=False,
            alone=True,
        )
        herder.start()
        made.append((herder, host))
        return herder

    yield make
    for herder, host in made:
        herder.stop()
        host.close()
