"""Three brokers of each kind: ours with one ZooKeeper, and Apache Kafka in KRaft mode with -Xmx512m each.

Both are told the same settings (replication factor 3, min.insync.replicas 2, a rack each) and are used like
one broker by common.py: `pids` are all their processes, ZooKeeper's included, so that CPU and memory are the
whole cluster's. `nodes[i]` has id i + 1 and can be killed, stopped and started by itself.
"""

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import brokers
import load
from apache_kafka import HOST, ApacheKafka, Unavailable, end_with_parent, free_port

NODES = 3
HEAP = "512m"
SETTINGS = {
    **brokers.COMMON_SETTINGS,
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    # Who leads is what the loads decide.
    "auto.leader.rebalance.enable": "false",
}
PATIENCE = 180.0
_numbers = itertools.count()


class ClusterNode(Protocol):
    """One process of a cluster."""

    port: int

    @property
    def pid(self) -> int: ...
    def launch(self) -> None: ...
    def wait_until_serving(self, timeout: float = 120) -> None: ...
    def terminate(self) -> None: ...
    def stop(self, timeout: float = 60) -> None: ...
    def kill(self) -> None: ...


class Cluster(Protocol):
    """What the loads need of either cluster."""

    name: str
    log_dir: Path
    bootstrap: str

    @property
    def nodes(self) -> Sequence[ClusterNode]: ...
    @property
    def pids(self) -> list[int]: ...


class MillstreamNode(brokers.Millstream):
    """One of our brokers, as a member of a cluster."""

    def __init__(self, log_dir: Path, settings: Mapping[str, str]) -> None:
        super().__init__(log_dir, settings)
        self.running = False

    def launch(self) -> None:
        super().launch()
        self.running = True

    def terminate(self) -> None:
        """SIGTERM, without waiting."""
        if self._process is not None:
            self._process.terminate()

    def stop(self, timeout: float = 60) -> None:
        self.running = False
        super().stop(timeout)

    def kill(self) -> None:
        self.running = False
        super().kill()


class ZooKeeper:
    """`millstream zookeeper` in a child process, which starts a Java of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.address = f"{HOST}:{self.port}"
        self.output_file = folder.parent / f"{folder.name}-output.txt"
        self._process: subprocess.Popen[bytes] | None = None
        self._java = 0

    @property
    def pids(self) -> list[int]:
        return [] if self._process is None else [self._process.pid, self._java]

    def start(self, timeout: float = 60) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "dataDir": str(self.folder.resolve()),
            "clientPort": str(self.port),
            "clientPortAddress": HOST,
        }
        pairs = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        with self.output_file.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "millstream", "zookeeper", *pairs],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=end_with_parent,
            )
        deadline = time.monotonic() + timeout
        while True:
            for line in self.output_file.read_text(errors="replace").splitlines():
                if line.startswith("ready"):
                    fields = dict(word.partition("=")[::2] for word in line.split())
                    self._java = int(fields["pid"])
                    return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Unavailable(f"ZooKeeper does not start:\n{self.output_file.read_text()[-2000:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait()


class MillstreamCluster:
    """Some of our brokers, three unless said otherwise, and one ZooKeeper."""

    name = "millstream"

    def __init__(self, log_dir: Path, settings: Mapping[str, str] | None = None, count: int = NODES) -> None:
        self.log_dir = log_dir
        self.zookeeper = ZooKeeper(log_dir / "zookeeper")
        self.nodes = [
            MillstreamNode(
                log_dir / f"node-{number}",
                {
                    **SETTINGS,
                    "broker.id": str(number),
                    "broker.rack": f"r{number}",
                    "zookeeper.connect": f"{self.zookeeper.address}/bench",
                    **(settings or {}),
                },
            )
            for number in range(1, count + 1)
        ]
        self.bootstrap = ",".join(node.bootstrap for node in self.nodes)
        self.port = self.nodes[0].port

    @property
    def pid(self) -> int:
        return self.nodes[0].pid

    @property
    def pids(self) -> list[int]:
        return [*self.zookeeper.pids, *(node.pid for node in self.nodes if node.running)]

    def launch(self) -> None:
        self.zookeeper.start()
        for node in self.nodes:
            node.launch()

    def wait_until_serving(self, timeout: float = 120) -> None:
        for node in self.nodes:
            node.wait_until_serving(timeout)

    def stop(self, timeout: float = 60) -> None:
        self.kill()

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()
        self.zookeeper.stop()


class KafkaCluster(ApacheKafka):
    """Three nodes of Apache Kafka, each broker and controller."""

    name = "kafka"

    def __init__(self, log_dir: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(log_dir, nodes=NODES, heap=HEAP, settings={**SETTINGS, **(settings or {})})
        for node in self.nodes:
            node.settings["broker.rack"] = f"r{node.node_id}"

    def stop(self, timeout: float = 60) -> None:
        """Nobody reads the data again."""
        self.kill()


def make(
    name: str, folder: Path, settings: Mapping[str, str] | None = None
) -> MillstreamCluster | KafkaCluster:
    """A cluster that has not been started."""
    kinds: dict[str, type[MillstreamCluster] | type[KafkaCluster]] = {
        "millstream": MillstreamCluster,
        "kafka": KafkaCluster,
    }
    return kinds[name](folder / name, settings)


# ---- topics ----


def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


def new_name(kind: str) -> str:
    return f"{kind}-{next(_numbers)}"


def create(cluster: Cluster, topic: str, assignment: list[list[int]]) -> None:
    """A topic whose partitions have these replicas, the leader first; returns when everybody leads."""
    client = admin(cluster)
    try:
        client.create_topics([NewTopic(topic, len(assignment), replica_assignment=assignment)])[topic].result(
            90
        )
    except (KafkaException, TimeoutError) as error:
        raise brokers.Failed(f"{cluster.name} does not create {topic}: {error!r}") from error
    wait_until_in_sync(cluster, topic)


def replicas_from(first: int) -> list[int]:
    """All three nodes, beginning with this one."""
    return [(first - 1 + step) % NODES + 1 for step in range(NODES)]


def delete(cluster: Cluster, topic: str) -> None:
    """Delete a topic and wait until its bytes have left all disks, for a minute at most."""
    client = admin(cluster)
    try:
        client.delete_topics([topic])[topic].result(60)
    except (KafkaException, TimeoutError):
        return
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not any(cluster.log_dir.glob(f"node-*/{topic}-*")):
            return
        time.sleep(0.1)


class PartitionView(NamedTuple):
    leader: int
    isr: tuple[int, ...]


class View:
    """What one broker says about a topic, by one small request over a connection that stays open."""

    def __init__(self, node: ClusterNode) -> None:
        from millstream.client import ClientConfig
        from millstream.client.connection import Connection

        self._connection = Connection(ClientConfig.of(f"{HOST}:{node.port}"), HOST, node.port)

    def partitions(self, topic: str) -> list[PartitionView]:
        answer = self._connection.request(
            "metadata",
            topics=[{"name": topic, "topic_id": None}],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        return [
            PartitionView(int(found.leader_id), tuple(map(int, found.isr_nodes)))
            for found in answer.topics[0].partitions
        ]

    def controller(self) -> int:
        """The node that decides: of Kafka the leader of its quorum, since its Metadata names any broker."""
        answer = self._connection.request(
            "describe_quorum",
            topics=[{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}],
        )
        return int(answer.topics[0].partitions[0].leader_id)

    def close(self) -> None:
        self._connection.close()


def wait_for(condition: Callable[[], bool], what: str, pause: float = 0.02) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise brokers.Failed(f"it took more than {PATIENCE:.0f} s until {what}")
        time.sleep(pause)


def wait_until_in_sync(cluster: Cluster, topic: str, count: int = NODES) -> None:
    """Until every partition has so many replicas in sync, as the first node sees it."""
    view = View(cluster.nodes[0])
    try:
        wait_for(
            lambda: bool(found := view.partitions(topic)) and all(len(each.isr) >= count for each in found),
            f"all replicas of {topic} were in sync",
        )
    finally:
        view.close()


# ---- loads ----


class Target(NamedTuple):
    """One node of a cluster, for the load generator."""

    name: str
    port: int


def produce_everywhere(cluster: Cluster, topics: Sequence[str], **options: float | bool) -> load.Result:
    """One generator for each node, at once, each with a topic that the node leads."""
    targets: list[Any] = [Target(cluster.name, node.port) for node in cluster.nodes]
    with ThreadPoolExecutor(len(targets)) as threads:
        found = list(
            threads.map(
                lambda pair: load.produce(pair[0], pair[1], **options), zip(targets, topics, strict=True)
            )
        )
    total = {
        name: sum(each[name] for each in found)
        for name in ("requests", "bytes", "requests_per_s", "mb_per_s")
    }
    return {
        **total,
        "seconds": max(each["seconds"] for each in found),
        "p50_us": sorted(each["p50_us"] for each in found)[len(found) // 2],
        "p99_us": max(each["p99_us"] for each in found),
    }
