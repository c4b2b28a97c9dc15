"""The story of a cluster of one for the tools of replicas, leaders and the cluster, as scenario.py is for
topics: told to Kafka's tools (recorded in recorded_replicas.json by record_replicas.py) and to ours."""

import json
import re

from .scenario import TO, Step

KAFKA_CLASSES = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
}


def plan(*partitions: tuple[str, int, list[int]], **more: object) -> str:
    entries = [
        {"topic": topic, "partition": index, "replicas": replicas} for topic, index, replicas in partitions
    ]
    return json.dumps({"version": 1, "partitions": entries, **more})


def topics(*names: str) -> str:
    return json.dumps({"version": 1, "topics": [{"topic": name} for name in names]})


def election(*partitions: tuple[str, int]) -> str:
    return json.dumps({"partitions": [{"topic": topic, "partition": index} for topic, index in partitions]})


GENERATE = f"{TO} --generate --topics-to-move-json-file {{folder}}/input"
PLAN = "--reassignment-json-file {folder}/input"
EXECUTE = f"{TO} --execute {PLAN}"
ELECT = f"{TO} --election-type preferred"
GOOD = plan(("moved", 0, [1]), ("moved", 1, [1]))

STORY = [
    Step("create", "topics", f"{TO} --create --topic moved --partitions 2 --replication-factor 1"),
    Step("list nothing", "reassign-partitions", f"{TO} --list"),
    Step("generate", "reassign-partitions", f"{GENERATE} --broker-list 1", file=topics("moved")),
    Step("generate twice", "reassign-partitions", f"{GENERATE} --broker-list 1,1", file=topics("moved")),
    Step(
        "generate of a topic twice",
        "reassign-partitions",
        f"{GENERATE} --broker-list 1",
        file=topics("moved", "moved"),
    ),
    Step("generate of nothing", "reassign-partitions", f"{GENERATE} --broker-list 1", file=topics("gone")),
    Step("generate nowhere", "reassign-partitions", GENERATE, file=topics("moved")),
    Step("generate by text", "reassign-partitions", f"{GENERATE} --broker-list 1", file="moved"),
    Step(
        "generate by version 2", "reassign-partitions", f"{GENERATE} --broker-list 1", file='{"version": 2}'
    ),
    Step("execute", "reassign-partitions", EXECUTE, file=GOOD),
    Step("execute one", "reassign-partitions", EXECUTE, file=plan(("moved", 1, [1]))),
    Step("execute slowly", "reassign-partitions", f"{EXECUTE} --throttle 5000", file=GOOD),
    Step("execute on nobody", "reassign-partitions", EXECUTE, file=plan(("moved", 0, [9]))),
    Step("execute nothing", "reassign-partitions", EXECUTE, file=plan()),
    Step("execute without replicas", "reassign-partitions", EXECUTE, file=plan(("moved", 0, []))),
    Step("execute twice", "reassign-partitions", EXECUTE, file=plan(("moved", 0, [1]), ("moved", 0, [1]))),
    Step("execute one replica twice", "reassign-partitions", EXECUTE, file=plan(("moved", 0, [1, 1]))),
    Step("execute what is missing", "reassign-partitions", EXECUTE, file=plan(("moved", 7, [1]))),
    Step("execute a missing topic", "reassign-partitions", EXECUTE, file=plan(("gone", 0, [1]))),
    Step("verify", "reassign-partitions", f"{TO} --verify {PLAN}", file=GOOD),
    Step(
        "verify something else",
        "reassign-partitions",
        f"{TO} --verify {PLAN} --preserve-throttles",
        file=plan(("moved", 0, [1, 2])),
    ),
    Step("cancel nothing", "reassign-partitions", f"{TO} --cancel {PLAN} --preserve-throttles", file=GOOD),
    Step("no action", "reassign-partitions", TO),
    Step("two actions", "reassign-partitions", f"{TO} --list --verify"),
    Step("verify no plan", "reassign-partitions", f"{TO} --verify"),
    Step("elect all", "leader-election", f"{ELECT} --all-topic-partitions"),
    Step("elect one", "leader-election", f"{ELECT} --topic moved --partition 0"),
    Step("elect what is missing", "leader-election", f"{ELECT} --topic gone --partition 0"),
    Step(
        "elect some",
        "leader-election",
        f"{ELECT} --path-to-json-file {{folder}}/input",
        file=election(("moved", 1), ("moved", 0)),
    ),
    Step("elect uncleanly", "leader-election", f"{TO} --election-type unclean --topic moved --partition 1"),
    Step("elect nobody", "leader-election", ELECT),
    Step(
        "elect in two ways", "leader-election", f"{ELECT} --all-topic-partitions --topic moved --partition 0"
    ),
    Step("elect without partition", "leader-election", f"{ELECT} --topic moved"),
    Step("log dirs", "log-dirs", f"{TO} --describe --topic-list moved"),
    Step("log dirs of nobody", "log-dirs", f"{TO} --describe --broker-list 9"),
    Step("cluster id", "cluster", f"cluster-id {TO}"),
    Step("endpoints", "cluster", f"list-endpoints {TO}"),
    Step("dry run", "features", f"{TO} upgrade --feature group.version=1 --dry-run"),
    Step("nothing to upgrade", "features", f"{TO} upgrade"),
    Step("nothing to disable", "features", f"{TO} disable"),
    Step("upgrade without level", "features", f"{TO} upgrade --feature group.version"),
    Step("upgrade to a word", "features", f"{TO} upgrade --feature group.version=high"),
    Step("status of nothing", "metadata-quorum", f"{TO} describe"),
    Step("status of both", "metadata-quorum", f"{TO} describe --status --replication"),
]

_JAVA = re.compile(r"^(?:Error: )?(?:(?:java|org\.apache\.kafka)\.[\w.$]+: )*")


def said(text: str) -> str:
    """A sentence of Kafka's tool, without the Java in it."""
    return re.sub(r"org\.apache\.kafka\.common\.errors\.\w+: ", "", _JAVA.sub("", text))


def same(text: str) -> list[str]:
    """Lines without what differs from run to run."""
    text = re.sub(r'"logDir":"[^"]*"', '"logDir":"DIR"', text)
    text = re.sub(r'"log_dirs":\["/[^"]*"\]', '"log_dirs":["DIR"]', text)
    text = re.sub(r"Cluster ID: \S+", "Cluster ID: ID", text)
    text = re.sub(r"(127\.0\.0\.1 +)\d+ *", r"\1PORT ", text)
    text = re.sub(r"[A-Z_]+: (?=No such)", "", text)
    # Kafka's tool forgets the end of this line.
    text = text.replace("None of the specified partition moves are active.\n", "None are moved.")
    text = text.replace("None of the specified partition moves are active.", "None are moved.")
    lines = text.splitlines()
    return [_sorted(line) for line in lines]


def _sorted(line: str) -> str:
    """A line of JSON with its lists in order: Kafka's tool prints partitions as its hash map has them."""
    if not line.startswith('{"brokers"'):
        return line
    content = json.loads(line)
    for broker in content["brokers"]:
        for folder in broker["logDirs"]:
            folder["partitions"].sort(key=lambda entry: entry["partition"])
    return json.dumps(content)
