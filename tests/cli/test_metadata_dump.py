"""`millstream metadata dump`: records of a running broker's folder, and of a cluster's ZooKeeper."""

import json
from pathlib import Path

import pytest

from millstream.testing import Broker
from tests.support.zookeeper import RunningZooKeeper

from .conftest import Run


def records(out: str) -> tuple[dict[str, object], list[dict[str, object]]]:
    first, *rest = [json.loads(line) for line in out.splitlines()]
    return first, rest


def fill(run: Run, broker: Broker) -> None:
    servers = broker.bootstrap_servers
    assert (
        run("topics", "--bootstrap-server", servers, "--create", "--topic", "t", "--partitions", "2").code
        == 0
    )
    scram = "SCRAM-SHA-256=[iterations=4096,password=wonderland]"
    alice = ("--entity-type", "users", "--entity-name", "alice")
    done = run("configs", "--bootstrap-server", servers, "--alter", *alice, "--add-config", scram)
    assert done.code == 0, done.err


def check(out: str) -> None:
    first, rest = records(out)
    assert first["version"] and first["epoch"]
    assert [one["name"] for one in rest if one["record"] == "Topic"] == ["t"]
    assert len([one for one in rest if one["record"] == "Partition"]) == 2
    (scram,) = [one for one in rest if one["record"] == "Scram"]
    assert scram["user"] == "alice"
    assert scram["salt"] == scram["stored_key"] == scram["server_key"] == "[hidden]"


def test_a_folder(run: Run, tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        fill(run, broker)
        check(run("metadata", "dump", "--log-dir", str(tmp_path)).out)  # while the broker runs
        assert broker.running
    check(run("metadata", "dump", "--log-dir", str(tmp_path)).out)


@pytest.mark.long
def test_zookeeper(run: Run, zookeeper: RunningZooKeeper) -> None:
    connect = zookeeper.chroot()
    with Broker({"zookeeper.connect": connect}) as broker:
        fill(run, broker)
        check(run("metadata", "dump", "--zookeeper-connect", connect).out)
    nothing = run("metadata", "dump", "--zookeeper-connect", zookeeper.chroot())
    assert nothing.code == 1 and "there is no cluster" in nothing.err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ([], 2, "say where"),
        (["--log-dir", "/nowhere"], 1, "there is no metadata in /nowhere"),
        (["--zookeeper-connect", "a:b:c"], 2, "is not host:port"),
        (["--log-dir", "a", "--zookeeper-connect", "b"], 2, "say where"),
    ],
)
def test_misuse(run: Run, words: list[str], code: int, says: str) -> None:
    done = run("metadata", "dump", *words)
    assert done.code == code and says in done.err
