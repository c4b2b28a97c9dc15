"""A rolling upgrade with a feature level as its gate: brokers of two versions side by side, one at a time is
replaced under load, then the level is raised. Whoever cannot follow it is refused."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import confluent_kafka
import pytest

from millstream.testing import Broker, BrokerFailed
from tests.support.brokers import RunningCluster
from tests.support.cluster_clients import consume
from tests.support.waiting import wait_until
from tests.support.zookeeper import RunningZooKeeper

FEATURE = "transaction.version"
OLD, NEW, NEWEST = (0, 1), (0, 2), (3, 4)
SCRIPT = Path(__file__).parents[2] / "support" / "leveled_broker.py"


class VersionedCluster(RunningCluster):
    """Each broker supports the levels that its file says when it starts."""

    def __init__(
        self, zookeeper: RunningZooKeeper, folder: Path, levels: Mapping[int, tuple[int, int]]
    ) -> None:
        self._folder = folder
        for number, supported in levels.items():
            self.support(number, supported)
        super().__init__(zookeeper, len(levels))

    def _levels(self, number: int) -> Path:
        return self._folder / f"levels-{number}.json"

    def support(self, number: int, levels: tuple[int, int]) -> None:
        self._levels(number).write_text(json.dumps({FEATURE: levels}))

    def make(self, number: int, settings: Mapping[str, object] | None = None) -> Broker:
        own = {"broker.id": number, "broker.rack": f"r{number}", **(settings or {})}
        command = [sys.executable, str(SCRIPT), str(self._levels(number)), "broker"]
        return Broker({**self.settings, **own}, command=command, start_timeout=120)

    def __enter__(self) -> Self:
        """The first one decides where the levels begin."""
        try:
            for broker in self.brokers.values():
                broker.start()
        except BrokerFailed:
            self.__exit__(None, None, None)
            raise
        return self

    def features(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "millstream", "features", *words]
        servers = ("--bootstrap-server", self.bootstrap_servers)
        return subprocess.run([*command, *servers], capture_output=True, text=True, timeout=170, check=False)


def refusal(cluster: VersionedCluster, number: int, levels: tuple[int, int]) -> list[str]:
    """What a broker that supports these levels tells its user; it must not start."""
    cluster.support(number, levels)
    broker = cluster.brokers[number]
    before = len(broker.log)
    with pytest.raises(BrokerFailed):
        broker.start()
    return [line for line in broker.log[before:].splitlines() if line.startswith("millstream broker:")]


def test_one_broker_after_the_other(zookeeper: RunningZooKeeper, tmp_path: Path) -> None:
    with VersionedCluster(zookeeper, tmp_path, {1: OLD, 2: OLD, 3: NEW}) as cluster:
        cluster.until_alive({1, 2, 3})
        assert cluster.create_topic("in") is None
        early = cluster.features("upgrade", "--feature", f"{FEATURE}=2")
        assert early.returncode == 1 and "only supports versions 0-1" in early.stdout, early

        failed: list[Any] = []
        sent = 0
        over = threading.Event()
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True}
        )

        def load() -> None:
            nonlocal sent
            while not over.is_set():
                producer.produce(
                    "in",
                    str(sent),
                    partition=sent % 3,
                    on_delivery=lambda error, _: error and failed.append(error),
                )
                sent += 1
                producer.poll(0)
                over.wait(0.02)  # the pace of the load
            assert producer.flush(120) == 0

        with ThreadPoolExecutor(1) as pool:
            working = pool.submit(load)
            try:
                for number in (1, 2):
                    cluster.brokers[number].stop()
                    cluster.until_alive({1, 2, 3} - {number})
                    cluster.support(number, NEW)
                    cluster.brokers[number].start()
                    cluster.until_alive({1, 2, 3})
                raised = cluster.features("upgrade", "--feature", f"{FEATURE}=2")
                assert raised.returncode == 0, raised
            finally:
                over.set()
            working.result(170)
        assert not failed
        assert consume(cluster.bootstrap_servers, "in", sent) == Counter(map(str, range(sent)))

        def level_seen() -> bool:
            described = cluster.features("describe").stdout
            line = next((line for line in described.splitlines() if FEATURE in line), "")
            return "FinalizedVersionLevel: 2" in line

        wait_until(level_seen)
        cluster.brokers[2].stop()
        cluster.until_alive({1, 3})
        old = refusal(cluster, 2, OLD)
        assert (
            len(old) == 1 and f"the cluster uses {FEATURE} level 2, and this broker supports 0 to 1" in old[0]
        )
        new = refusal(cluster, 2, NEWEST)
        assert len(new) == 1 and "this broker supports 3 to 4" in new[0]
        cluster.support(2, NEW)
        cluster.brokers[2].start()
        cluster.until_alive({1, 2, 3})
