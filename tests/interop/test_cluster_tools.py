"""The tools of replicas on three nodes, of Apache Kafka and of ours: our tools and Kafka's own, side by side,
say the same; and Kafka's tool moves replicas between the data folders of our broker.

Each of the two gets a topic of its own, so that both can move its replicas; the names are taken out before
lines are compared.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from millstream.client import ClientConfig, Cluster, list_offsets
from millstream.testing import Broker
from millstream.wire.topic_partition import TopicPartition
from tests.support.brokers import RunningCluster
from tests.support.peers import apache_kafka
from tests.support.waiting import wait_until
from tests.support.zookeeper import RunningZooKeeper

from ..cli.replicas_scenario import KAFKA_CLASSES, plan, same, topics

pytestmark = [pytest.mark.interop_slow, pytest.mark.timeout(900)]

REASSIGN = "reassign-partitions"
OURS, THEIRS = "moved-by-ours", "moved-by-theirs"


class Three(NamedTuple):
    """Three brokers, and whose they are."""

    name: str
    bootstrap: str


@pytest.fixture(scope="module", params=["kafka", "millstream"])
def three(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    if request.param == "kafka":
        with apache_kafka().ApacheKafka(nodes=3, heap="384m") as cluster:
            yield Three("kafka", cluster.bootstrap)
        return
    with (
        RunningZooKeeper(tmp_path_factory.mktemp("zookeeper")) as zookeeper,
        RunningCluster(zookeeper, 3, {"min.insync.replicas": 1}) as ours,
    ):
        yield Three("millstream", ours.bootstrap_servers)


def our_tool(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "millstream", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def their_tool(peer: ModuleType, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    done: subprocess.CompletedProcess[str] = peer.tool(KAFKA_CLASSES[name], *words)
    return done


class Story:
    """Tells a step to both tools, about the topic of each."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap, self.folder, self.peer = bootstrap, folder, apache_kafka()

    def both(self, name: str, *words: str, file: str | None = None) -> tuple[list[str], list[str]]:
        said = []
        for topic in (OURS, THEIRS):
            if file is not None:
                (self.folder / "input").write_text(file.replace("TOPIC", topic))
            filled = [
                word.replace("TOPIC", topic).replace("INPUT", str(self.folder / "input")) for word in words
            ]
            filled += ["--bootstrap-server", self.bootstrap]
            done = our_tool(name, *filled) if topic == OURS else their_tool(self.peer, name, *filled)
            assert done.returncode == 0, done.stdout + done.stderr
            said.append([line.replace(topic, "TOPIC") for line in same(done.stdout)])
        return said[0], said[1]

    def equal(self, name: str, *words: str, file: str | None = None) -> list[str]:
        ours, theirs = self.both(name, *words, file=file)
        assert ours == theirs
        return ours


def test_replicas_move_between_brokers(three: Three, tmp_path: Path) -> None:
    story = Story(three.bootstrap, tmp_path)
    placed = "1:2,2:3,3:1"
    story.both("topics", "--create", "--topic", "TOPIC", "--replica-assignment", placed)
    for topic in (OURS, THEIRS):
        done = our_tool(
            *("perf", "produce", "--topic", topic, "--num-records", "3000", "--record-size", "1000"),
            *("--bootstrap-server", three.bootstrap),
        )
        assert done.returncode == 0, done.stderr
    story.equal("topics", "--describe", "--topic", "TOPIC", "--at-min-isr-partitions")
    ours, theirs = story.both(
        REASSIGN,
        *("--generate", "--topics-to-move-json-file", "INPUT", "--broker-list", "1,2,3"),
        file=topics("TOPIC"),
    )
    assert ours[:2] == theirs[:2] and ours[3] == theirs[3]
    target = plan(("TOPIC", 0, [3, 1]), ("TOPIC", 1, [2]), ("TOPIC", 2, [3, 1, 2]))
    lines = story.equal(
        REASSIGN,
        *("--execute", "--reassignment-json-file", "INPUT", "--throttle", "100000000", "--additional"),
        file=target,
    )
    assert "Successfully started partition reassignments for TOPIC-0,TOPIC-1,TOPIC-2" in lines

    def moved() -> bool:
        listed = our_tool(REASSIGN, "--list", "--bootstrap-server", three.bootstrap).stdout
        return listed == "No partition reassignments found.\n"

    wait_until(moved, interval=0.5)
    verified = story.equal(REASSIGN, "--verify", "--reassignment-json-file", "INPUT", file=target)
    assert verified[1:4] == [f"Reassignment of partition TOPIC-{number} is completed." for number in range(3)]
    story.equal("leader-election", "--election-type", "preferred", "--topic", "TOPIC", "--partition", "0")
    done = our_tool(
        *("replica-verification", "--once", "--time", "-2", "--topics-include", f"{OURS}|{THEIRS}"),
        *("--bootstrap-server", three.bootstrap, "-o", "json"),
    )
    assert done.returncode == 0, done.stderr
    assert {found["result"] for found in json.loads(done.stdout)} == {"equal"}


def test_a_move_is_cancelled(three: Three, tmp_path: Path) -> None:
    """A move of nothing is over at once: it needs records, and a throttle that hardly lets them through."""
    story = Story(three.bootstrap, tmp_path)
    name = "cancelled"
    to = ("--bootstrap-server", three.bootstrap)
    assert our_tool("topics", "--create", "--topic", name, "--replica-assignment", "1", *to).returncode == 0
    done = our_tool("perf", "produce", "--topic", name, "--num-records", "5000", "--record-size", "1000", *to)
    assert done.returncode == 0, done.stderr
    (tmp_path / "input").write_text(plan((name, 0, [2])))
    file = ("--reassignment-json-file", str(tmp_path / "input"))
    assert our_tool(REASSIGN, "--execute", "--throttle", "1000", *file, *to).returncode == 0
    listed = our_tool(REASSIGN, "--list", *to).stdout
    assert listed == their_tool(story.peer, REASSIGN, "--list", *to).stdout
    assert f"{name}-0: replicas: 2,1. adding: 2. removing: 1." in listed
    verified = our_tool(REASSIGN, "--verify", *file, *to).stdout
    assert verified == their_tool(story.peer, REASSIGN, "--verify", *file, *to).stdout
    assert "is still in progress" in verified
    refused = our_tool(REASSIGN, "--execute", *file, *to)
    assert refused.returncode == 1 and "Use --additional" in refused.stderr
    done = our_tool(REASSIGN, "--cancel", *file, *to)
    assert f"Successfully cancelled partition reassignment for: {name}-0" in done.stdout
    assert our_tool(REASSIGN, "--list", *to).stdout == "No partition reassignments found.\n"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cluster", ("cluster-id",)),
        ("cluster", ("list-endpoints",)),
        ("features", ("upgrade", "--feature", "group.version=1", "--dry-run")),
    ],
)
def test_the_cluster_itself(three: Three, name: str, words: tuple[str, ...]) -> None:
    peer = apache_kafka()
    to = ("--bootstrap-server", three.bootstrap)
    front, back = (to, ()) if name == "features" else ((), to)
    ours, theirs = our_tool(name, *front, *words, *back), their_tool(peer, name, *front, *words, *back)
    assert (ours.returncode, ours.stdout) == (0, theirs.stdout), ours.stderr


def test_apis_of_every_node(three: Three) -> None:
    done = our_tool("broker-api-versions", "--bootstrap-server", three.bootstrap)
    theirs = apache_kafka().tool(
        "org.apache.kafka.tools.BrokerApiVersionsCommand", "--bootstrap-server", three.bootstrap
    )
    assert sorted(done.stdout.splitlines()) == sorted(theirs.stdout.splitlines())


def test_their_tool_moves_replicas_between_our_folders(tmp_path: Path) -> None:
    peer = apache_kafka()
    folders = [str(tmp_path / "one"), str(tmp_path / "two")]
    with Broker({"node.id": "1", "log.dirs": ",".join(folders)}) as broker:
        to = ("--bootstrap-server", broker.bootstrap_servers)
        assert our_tool("topics", "--create", "--topic", "moved", "--partitions", "2", *to).returncode == 0
        done = our_tool(
            "perf", "produce", "--topic", "moved", "--num-records", "5000", "--record-size", "1000", *to
        )
        assert done.returncode == 0, done.stderr
        with Cluster(ClientConfig.of(broker.bootstrap_servers)) as cluster:
            partitions = [TopicPartition("moved", number) for number in range(2)]
            cluster.refresh(["moved"])
            before = list_offsets(cluster, dict.fromkeys(partitions, -1))
            entries = [
                {"topic": "moved", "partition": number, "replicas": [1], "log_dirs": [folders[1]]}
                for number in range(2)
            ]
            file = tmp_path / "plan.json"
            file.write_text(json.dumps({"version": 1, "partitions": entries}))
            plan_file = ("--reassignment-json-file", str(file))
            done = their_tool(peer, REASSIGN, "--execute", *plan_file, *to)
            assert done.returncode == 0, done.stdout
            for number in range(2):
                started = (
                    f"Successfully started moving log directory to {folders[1]} for replica moved-{number} "
                    "with broker 1"
                )
                assert started in done.stdout

            def verified() -> str:
                text = their_tool(peer, REASSIGN, "--verify", *plan_file, *to).stdout
                return text if "still in progress" not in text else ""

            text = wait_until(verified, interval=1)
            for number in range(2):
                assert f"Reassignment of replica moved-{number}-1 completed successfully." in text
            assert list_offsets(cluster, dict.fromkeys(partitions, -1)) == before
        assert {path.name for path in Path(folders[1]).glob("moved-*")} == {"moved-0", "moved-1"}
