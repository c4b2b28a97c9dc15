"""`millstream connect standalone` and `millstream connect distributed`: run a worker."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.connect.herder import Herder
    from millstream.connect.worker_config import DistributedConfig, StandaloneConfig
    from millstream.http.serving import HttpService

USAGE = """usage: millstream connect distributed [worker.properties] [--set KEY=VALUE ...]
       millstream connect standalone worker.properties connector.properties ... [--set KEY=VALUE ...]

Run a worker of Kafka Connect. `distributed` keeps connectors, offsets and states in topics and is told by
REST what to run; `standalone` runs the connectors of the files that are named. --print-config shows all
settings.
"""


def main(argv: list[str]) -> int:
    if argv[:1] == ["distributed"]:
        return _distributed(argv[1:])
    if argv[:1] == ["standalone"]:
        return _standalone(argv[1:])
    print(USAGE, file=sys.stdout if argv[:1] in (["--help"], ["-h"]) else sys.stderr, end="")
    return 0 if argv[:1] in (["--help"], ["-h"]) else 2


def _distributed(argv: list[str]) -> int:
    from millstream.connect.errors import ConnectError
    from millstream.connect.worker_config import DistributedConfig
    from millstream.http.service_main import run_service
    from millstream.wire.errors import KafkaError

    return run_service(
        "connect",
        argv,
        DistributedConfig,
        _build_distributed,
        description="Run a worker of Kafka Connect in distributed mode. Settings have Kafka's names.",
        epilog="Example: millstream connect distributed --set bootstrap.servers=localhost:9092",
        start_errors=(KafkaError, ConnectError),
    )


def _standalone(argv: list[str]) -> int:
    from millstream.connect.errors import ConnectError
    from millstream.connect.worker_config import StandaloneConfig
    from millstream.http.service_main import run_service
    from millstream.settings.properties import BadProperties, read_properties
    from millstream.wire.errors import KafkaError

    files = [text for text in argv[1:] if not text.startswith("-") and "=" not in text]
    others = [text for text in argv if text not in files]
    try:
        connectors = [read_properties(path) for path in files]
    except (OSError, BadProperties) as error:
        print(f"millstream connect: {error}", file=sys.stderr)
        return 1

    return run_service(
        "connect",
        others,
        StandaloneConfig,
        lambda config, ports: _build_standalone(config, ports, connectors),
        description="Run a worker of Kafka Connect with the connectors of the files that are named.",
        epilog="Example: millstream connect standalone worker.properties file-source.properties",
        start_errors=(KafkaError, ConnectError),
    )


def _build_distributed(config: DistributedConfig, ports: list[int]) -> HttpService:
    from millstream.client import Cluster
    from millstream.connect.herder import Herder
    from millstream.connect.herding.members import MemberConfig
    from millstream.connect.rest.loggers import set_level
    from millstream.connect.stores.topic_store import TopicStore, make_sure_of_topic
    from millstream.host.driver import driver_host

    topics = {what: str(config.value(f"{what}.storage.topic")) for what in ("config", "offset", "status")}
    group = str(config.value("group.id"))
    member = MemberConfig(
        group,
        config.url(ports),
        config.number("session.timeout.ms"),
        config.number("heartbeat.interval.ms"),
        config.number("rebalance.timeout.ms"),
    )
    herder = Herder(
        config,
        config.worker_id(ports),
        group,
        driver_host(Path(config.value("millstream.driver.dir")), _spark(config), owner="connect"),
        lambda apply: TopicStore(
            config.client, topics["config"], apply, transactional_id=f"connect-cluster-{group}"
        ),
        lambda apply: TopicStore(config.client, topics["status"], apply),
        offsets_topic=topics["offset"],
        exactly_once=str(config.value("exactly.once.source.support")) == "enabled",
        member=member,
        rebalance_delay=config.number("scheduled.rebalance.max.delay.ms") / 1000,
        level_changed=set_level,
    )

    def prepare() -> None:
        cluster = Cluster(config.client)
        try:
            for what, topic in topics.items():
                partitions = 1 if what == "config" else config.number(f"{what}.storage.partitions")
                replicas = config.number(f"{what}.storage.replication.factor")
                name = f"{what}.storage.topic"
                make_sure_of_topic(cluster, topic, partitions, replicas, name, one_partition=what == "config")
        finally:
            cluster.close()

    return _service(herder, config, prepare, [])


def _build_standalone(
    config: StandaloneConfig, ports: list[int], connectors: list[dict[str, str]]
) -> HttpService:
    from millstream.connect.herder import Herder
    from millstream.connect.stores.topic_store import MemoryStore
    from millstream.host.driver import driver_host

    herder = Herder(
        config,
        config.worker_id(ports),
        "standalone",
        driver_host(Path(config.value("millstream.driver.dir")), _spark(config), owner="connect"),
        MemoryStore,
        MemoryStore,
        offsets_file=os.path.abspath(config.value("offset.storage.file.filename")),
        exactly_once=False,
        alone=True,
    )
    return _service(herder, config, lambda: None, connectors)


def _spark(config: StandaloneConfig | DistributedConfig) -> dict[str, str]:
    return {name: text for name, text in config.given.items() if name.startswith("spark.")}


def _service(
    herder: Herder,
    config: StandaloneConfig | DistributedConfig,
    prepare: Callable[[], None],
    connectors: list[dict[str, str]],
) -> HttpService:
    import asyncio

    from millstream.connect.rest.app import make_app
    from millstream.http.cluster_authentication import cluster_login
    from millstream.http.serving import HttpService

    login = cluster_login(config, config.client)

    def begin() -> None:
        prepare()
        herder.start()
        for settings in connectors:
            herder.create(settings.get("name", ""), settings)

    async def start() -> str:
        await asyncio.get_running_loop().run_in_executor(None, begin)
        return f"connectors={len(herder.names())}"

    async def stop() -> None:
        if login is not None:
            login.close()
        await asyncio.get_running_loop().run_in_executor(None, herder.stop)

    return HttpService(make_app(herder, config, login), start, stop)
