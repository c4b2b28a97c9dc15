"""The tools of replicas and the cluster with a broker: styles for programs, options that make no sense, and
the comparison of replicas."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millstream.cli.replica_verification import Batch, compare
from millstream.wire.topic_partition import TopicPartition

from .conftest import Run

A0 = TopicPartition("a", 0)


@pytest.fixture
def topic(run: Run, bootstrap: str) -> str:
    done = run(
        "topics", "--create", "--topic", "replicas", "--if-not-exists", "--bootstrap-server", bootstrap
    )
    assert done.code == 0
    run("console-producer", "--topic", "replicas", "--bootstrap-server", bootstrap, stdin="a\nb\n")
    return "replicas"


@pytest.fixture
def plan(tmp_path: Path, topic: str, run: Run, bootstrap: str) -> str:
    """The replicas as they are."""
    (tmp_path / "topics").write_text(json.dumps({"topics": [{"topic": topic}]}))
    done = run(
        "reassign-partitions",
        "generate",
        *("--topics-to-move-json-file", str(tmp_path / "topics"), "--broker-list", "1"),
        *("--bootstrap-server", bootstrap, "-o", "json"),
    )
    assert done.code == 0, done.err
    path = tmp_path / "plan"
    path.write_text(json.dumps(json.loads(done.out)["proposed"]))
    return str(path)


def test_a_plan_from_proposal_to_verification(run: Run, bootstrap: str, plan: str) -> None:
    where = ("--reassignment-json-file", plan, "--bootstrap-server", bootstrap, "-o", "json")
    done = run("reassign-partitions", "--execute", *where)
    assert done.code == 0, done.err
    assert json.loads(done.out)["started"]["partitions"][0]["replicas"] == [1]
    done = run("reassign-partitions", "verify", "--wait", *where)
    (state,) = json.loads(done.out)["partitions"]
    assert state == {
        "topic": "replicas",
        "partition": 0,
        "state": "completed",
        "replicas": [1],
        "target": [1],
    }
    assert json.loads(run("reassign-partitions", "--cancel", *where).out)["cancelled"] == []
    done = run("reassign-partitions", "--list", "--bootstrap-server", bootstrap, "-o", "yaml")
    assert done.out == "[]\n"


def test_a_throttle_is_set_and_removed(run: Run, bootstrap: str, plan: str) -> None:
    where = ("--reassignment-json-file", plan, "--bootstrap-server", bootstrap)
    done = run("reassign-partitions", "--execute", "--throttle", "77000", *where)
    assert "The inter-broker throttle limit was set to 77000 B/s" in done.out
    shown = run("configs", "--describe", "--broker", "1", "--bootstrap-server", bootstrap).out
    assert "leader.replication.throttled.rate=77000" in shown
    assert "follower.replication.throttled.rate=77000" in shown
    done = run("reassign-partitions", "--verify", *where)
    assert "Clearing broker-level throttles on broker 1" in done.out
    assert (
        "throttled.rate"
        not in run("configs", "--describe", "--broker", "1", "--bootstrap-server", bootstrap).out
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--list", "--throttle", "5"], 'Option "[throttle]" can\'t be used with action "[list]"'),
        (["--verify", "--reassignment-json-file", "x", "--additional"], "[additional]"),
        (["--execute", "--reassignment-json-file", "x", "--preserve-throttles"], "[preserve-throttles]"),
        (["--execute"], 'Missing required argument "[reassignment-json-file]"'),
        (["--list", "--bootstrap-controller", "x:1"], "use --bootstrap-server"),
        (["--list", "--zookeeper", "x:1"], "use --bootstrap-server"),
    ],
)
def test_reassignments_that_make_no_sense(run: Run, words: list[str], complaint: str) -> None:
    done = run("reassign-partitions", *words, "--bootstrap-server", "127.0.0.1:1")
    assert done.code == 2
    assert complaint in done.err and len(done.err.splitlines()) == 1


def test_a_plan_that_cannot_be_read(run: Run, tmp_path: Path) -> None:
    done = run("reassign-partitions", "--verify", "--reassignment-json-file", str(tmp_path / "none"))
    assert (done.code, done.err) == (1, f"Unable to read file {tmp_path / 'none'}\n")


@pytest.mark.parametrize("style", ["json", "yaml", "table"])
@pytest.mark.parametrize(
    "words",
    [
        ["leader-election", "--election-type", "preferred", "--topic", "replicas", "--partition", "0"],
        ["log-dirs", "describe", "--topic-list", "replicas"],
        ["cluster", "cluster-id"],
        ["cluster", "list-endpoints"],
        ["features", "describe"],
        ["features", "upgrade", "--feature", "group.version=1", "--dry-run"],
        ["metadata-quorum", "describe", "--status"],
        ["metadata-quorum", "describe", "--replication"],
        ["broker-api-versions"],
        ["replica-verification", "--once", "--topics-include", "replicas", "--time", "-2"],
    ],
)
def test_styles(run: Run, bootstrap: str, topic: str, words: list[str], style: str) -> None:
    done = run(*words, "--bootstrap-server", bootstrap, "-o", style)
    assert done.code == 0, done.err
    assert done.out
    if style == "json":
        json.loads(done.out)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["leader-election", "--topic", "a", "--partition", "0"], "election-type"),
        (["leader-election", "--election-type", "fair", "--all-topic-partitions"], "preferred or unclean"),
        (["leader-election", "--election-type", "preferred", "--all-topic-partitions", "--partition", "1"],
         "only allowed if topic"),
        (["features", "upgrade", "--release-version", "4.3"], "--feature metadata.version"),
        (["features", "disable", "--feature", "a", "--feature", "a"], "more than once"),
        (["metadata-quorum", "describe", "--status", "--human-readable"], "--human-readable"),
        (["replica-verification", "-o", "json"], "--once"),
        (["replica-verification", "--time", "noon"], "--time expects"),
        (["log-dirs", "--describe", "--broker-list", "one"], "ids of brokers"),
        (["log-dirs"], "describe"),
        (["cluster", "unregister"], "--id"),
    ],
)  # fmt: skip
def test_usage(run: Run, words: list[str], complaint: str) -> None:
    done = run(*words, "--bootstrap-server", "127.0.0.1:1")
    assert done.code == 2
    assert complaint in done.err and len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no JSON"),
        ("{}", 'missing "partitions"'),
        ('{"partitions": []}', "names no partition"),
        ('{"partitions": [{"topic": "a"}]}', "`partition`"),
        ('{"partitions": [{"topic": "a", "partition": "0"}]}', "whole number"),
        ('{"partitions": [{"topic": "a", "partition": -1}]}', "out of range"),
        ('{"partitions": [{"topic": "a", "partition": 0}, {"topic": "a", "partition": 0}]}', "duplicate"),
    ],
)
def test_elections_from_bad_files(run: Run, tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "partitions"
    path.write_text(text)
    done = run("leader-election", "--election-type", "preferred", "--path-to-json-file", str(path))
    assert done.code == 1
    assert words in done.err


def test_replicas_of_nothing(run: Run, bootstrap: str) -> None:
    done = run("replica-verification", "--once", "--topics-include", "none", "--bootstrap-server", bootstrap)
    assert done.code == 1
    assert "No topics found" in done.err


def test_comparing() -> None:
    batches = [Batch(4, 11), Batch(9, 12), Batch(19, 13)]
    assert compare(A0, 0, {1: batches, 2: batches, 3: batches[:2]}) == (10, [])
    assert compare(A0, 7, {1: [], 2: batches}) == (7, [])
    offset, (wrong,) = compare(A0, 0, {1: batches, 2: [batches[0], Batch(9, 99), batches[2]]})
    assert offset == 20
    assert str(wrong) == (
        "partition a-0 has unmatched checksum at offset 9; replica 1's checksum 12; replica 2's checksum 99"
    )
    offset, (wrong,) = compare(A0, 0, {1: batches, 2: [batches[0], Batch(8, 12)]})
    assert offset == 5 and wrong.offsets_differ
    assert str(wrong) == "partition a-0: replica 1's offset 9 doesn't match replica 2's offset 8"
