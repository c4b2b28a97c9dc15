"""`millstream up --brokers N`: several brokers and ZooKeeper under one supervisor."""

import json
from pathlib import Path

import pytest

from millstream.up.several_brokers import (
    CannotChange,
    Size,
    brokers_wanted,
    decide,
    remember,
    remembered,
    table,
)
from millstream.up.supervisor import CannotStart, choose

from .conftest import Run
from .test_up import Up


def test_how_many() -> None:
    assert brokers_wanted("3") == 3
    assert brokers_wanted("auto") >= 1
    for text in ("0", "-1", "x", "33", "1.5", "٣"):
        with pytest.raises(ValueError, match="--brokers"):
            brokers_wanted(text)


def test_the_folder_remembers(tmp_path: Path) -> None:
    assert decide(tmp_path, None, None) == Size()
    assert decide(tmp_path, 1, 3) == Size()
    assert decide(tmp_path, 3, None) == Size(3, 1)
    remember(tmp_path, Size(3, 1))
    assert remembered(tmp_path) == decide(tmp_path, None, None) == Size(3, 1)
    assert decide(tmp_path, 5, None) == Size(5, 1)
    assert decide(None, None, None) == Size()
    with pytest.raises(CannotChange, match="cannot be changed"):
        decide(tmp_path, 3, 3)
    assert decide(tmp_path, 2, None) == Size(2, 1)  # nothing is lost
    (tmp_path / "broker-3" / "orders-0").mkdir(parents=True)
    with pytest.raises(CannotChange, match=r"broker 3 holds partitions.*reassign-partitions.*1,2"):
        decide(tmp_path, 2, None)
    (tmp_path / "broker" / "millstream-metadata").mkdir(parents=True)
    adopting = decide(tmp_path, None, None)
    assert adopting.adopts and "broker" in table(adopting)["broker-2"].needs
    (tmp_path / "cluster.json").write_text("{")
    with pytest.raises(CannotChange, match="cannot be read"):
        remembered(tmp_path)


@pytest.mark.parametrize(
    ("brokers", "factor", "in_sync"), [(2, "2", "1"), (3, "3", "2"), (4, "3", "2"), (1, "1", "1")]
)
def test_what_several_brokers_are_told(brokers: int, factor: str, in_sync: str) -> None:
    services = table(Size(brokers, 1))
    names = ["broker", *(f"broker-{number}" for number in range(2, brokers + 1))]
    assert [name for name in services if name.startswith("broker")] == names
    for number, name in enumerate(names, 1):
        settings = services[name].settings
        assert (settings["broker.id"], settings["broker.rack"]) == (str(number), f"r{number}")
        for setting in ("default", "offsets.topic", "transaction.state.log"):
            assert settings[f"{setting}.replication.factor"] == factor
        assert settings["min.insync.replicas"] == settings["transaction.state.log.min.isr"] == in_sync
    assert [services[name].port for name in names] == [9092 + n for n in range(brokers)]
    assert [services[name].offset for name in names] == [0, 10, 11, 12][:brokers]
    assert (services["zookeeper"].port, services["zookeeper"].offset) == (2181, 7)
    assert set(services["registry"].needs) == set(names)


def test_choosing_brokers() -> None:
    services = table(Size(3, 3))
    names = [service.name for service in choose(["broker"], [], services)]
    assert names == [*(f"zookeeper-{n}" for n in (1, 2, 3)), "broker", "broker-2", "broker-3"]
    assert [service.name for service in choose(["registry"], [], services)] == ["registry"]
    with pytest.raises(CannotStart, match="there is no service 'broker-4'"):
        choose(["broker-4"], [], services)
    with pytest.raises(CannotStart, match="broker-2 does not start alone"):
        choose(["broker-2"], [], services)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--brokers", "x"], "--brokers x"),
        (["--brokers", "3", "--zookeepers", "2"], "--zookeepers 2"),
        (["--brokers", "3", "--secure"], "--secure runs one broker"),
        (["--brokers", "2", "--set", "broker.num.partition=3"], "num.partitions"),
    ],
)
def test_misuse(run: Run, tmp_path: Path, words: list[str], says: str) -> None:
    done = run("up", *words, "--data-dir", str(tmp_path))
    assert done.code == 2 and says in done.err


@pytest.mark.java
def test_one_broker_becomes_three(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "data"
    monkeypatch.setenv("MILLSTREAM_DATA_DIR", str(folder))
    words = ["--only", "broker", "--port-base", "0", "--data-dir", str(folder)]
    alone = Up(folder, *words).ready()
    assert run("-p", "up", "topics", "--create", "--topic", "old").code == 0
    assert run("-p", "up", "console-producer", "--topic", "old", stdin="kept\n").code == 0
    alone.stop()

    several = Up(folder, *words, "--brokers", "3").ready()
    try:
        names = [service.name for service in several.home.instance().services]
        assert names == ["zookeeper", "broker", "broker-2", "broker-3"]
        consumed = run(
            "-p", "up", "console-consumer", "--topic", "old", "--from-beginning", "--max-messages", "1"
        )
        assert consumed.out == "kept\n"
        assert run("-p", "up", "topics", "--create", "--topic", "new").code == 0
        described = run("-p", "up", "topics", "--describe", "--topic", "new").out
        assert "ReplicationFactor: 3" in described
        status = json.loads(run("status", "-o", "json", "--data-dir", str(folder)).out)
        assert "broker-3" in json.dumps(status)
    finally:
        several.stop()

    again = Up(folder, *words).ready()  # the folder remembers
    try:
        assert len(again.home.instance().services) == 4
        assert "new" in run("-p", "up", "topics", "--list").out
    finally:
        code, _, err = again.stop()
    assert code == 0 and "killing" not in err
    refused = run("up", *words, "--brokers", "2")
    assert refused.code == 1 and "reassign-partitions" in refused.err
