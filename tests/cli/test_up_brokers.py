"""`millstream up --brokers N`: several brokers and ZooKeeper under one supervisor."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.cli.errors import CommandFailed
from millstream.cli.secure_platform import secured, secured_size
from millstream.cluster.image import Image
from millstream.cluster.local_store import LocalStore
from millstream.cluster.offline import load_image
from millstream.settings.properties import read_properties
from millstream.up.data_folders import DataFolder
from millstream.up.several_brokers import (
    CannotChange,
    Size,
    brokers_wanted,
    decide,
    remember,
    remembered,
    table,
)
from millstream.up.supervisor import CannotStart, Supervisor, choose
from tests.support.waiting import wait_until

from .conftest import Run
from .test_up import Up, up  # noqa: F401


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
    assert decide(tmp_path, 2, None) == Size(2, 1, removed=(3,))  # nothing is lost
    remember(tmp_path, Size(2, 1, removed=(3, 4)))  # until the cluster has forgotten them
    assert decide(tmp_path, None, None).removed == (3, 4)
    assert decide(tmp_path, 3, None) == Size(3, 1, removed=(4,))
    remember(tmp_path, Size(3, 1))
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


@pytest.mark.java
def test_brokers_that_are_left_out_are_forgotten(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "data"
    monkeypatch.setenv("MILLSTREAM_DATA_DIR", str(folder))
    words = ["--only", "broker", "--port-base", "0", "--data-dir", str(folder)]

    def brokers() -> list[int]:
        listed = run("-p", "up", "cluster", "list-endpoints", "--include-fenced-brokers", "-o", "json")
        return [each["id"] for each in json.loads(listed.out)]

    three = Up(folder, *words, "--brokers", "3").ready()
    assert brokers() == [1, 2, 3]
    three.stop()
    two = Up(folder, *words, "--brokers", "2").ready()
    wait_until(lambda: remembered(folder) == Size(2, 1))
    assert brokers() == [1, 2]
    two.stop()

    three = Up(folder, *words, "--brokers", "3").ready()
    assert run("-p", "up", "topics", "--create", "--topic", "t", "--replica-assignment", "1:3").code == 0
    three.stop()
    remember(folder, Size(2, 1, removed=(3,)))  # as if the topic had been made while broker 3 was away
    two = Up(folder, *words).ready()
    wait_until(lambda: two.home.instance().ready)
    assert brokers() == [1, 2, 3] and remembered(folder).removed == (3,)
    _, _, err = two.stop()
    assert "broker 3 is still registered: 1 partitions have a replica on it" in err


# --- secured ------------------------------------------------------------------------------------------------


def test_one_secured_broker_becomes_two(tmp_path: Path) -> None:
    """The user as which they log in to each other is added before the first one runs again."""
    alone = secured(choose(["broker"], [], table(Size())), tmp_path, ["127.0.0.1"])
    assert "User:broker" not in alone[0].settings["super.users"]
    two = secured(choose(["broker"], [], table(Size(2, 1))), tmp_path, ["127.0.0.1"])
    assert [service.local for service in two] == [True, False, False]
    assert len({service.settings["ssl.keystore.location"] for service in two[1:]}) == 1

    async def users() -> Image:
        store = await LocalStore.open(tmp_path / "broker" / "millstream-metadata")
        try:
            return await load_image(store)
        finally:
            await store.close()

    assert "broker" in {user for user, _ in asyncio.run(users()).scram}
    secrets = read_properties(str(tmp_path / "secure" / "broker.properties"))
    assert secrets["millstream.zookeeper.digest"].startswith("broker:")
    again = secured(choose(["broker"], [], table(Size(2, 1))), tmp_path, ["127.0.0.1"])
    assert [service.settings for service in again] == [service.settings for service in two]
    assert read_properties(str(tmp_path / "secure" / "broker.properties")) == secrets
    with pytest.raises(CommandFailed, match="are secured: millstream up --secure"):
        secured_size(Size(2, 1), tmp_path, False)


def test_zookeepers_of_secured_brokers_listen_for_this_machine_alone(tmp_path: Path) -> None:
    services = table(Size(2, 3))
    chosen = secured(choose(["broker"], [], services), tmp_path / "data", ["127.0.0.1"])
    supervisor = Supervisor(
        DataFolder(tmp_path / "data"),
        chosen,
        host="0.0.0.0",  # noqa: S104
        port_base=0,
        table=services | {service.name: service for service in chosen},
    )
    supervisor._release_ports()
    for supervised in supervisor.supervised:
        words = " ".join(supervised._command)
        if supervised.service.name.startswith("zookeeper"):
            assert "clientPortAddress=127.0.0.1 " in words and words.count("=127.0.0.1:") == 3
            assert "0.0.0.0" not in words  # noqa: S104
        else:
            assert "zookeeper.connect=127.0.0.1:" in words and "/millstream " in words
            assert "listeners=SASL_SSL://0.0.0.0:" in words


@pytest.mark.java
@pytest.mark.timeout(300)
def test_two_secured_brokers(
    up: Callable[..., Up],  # noqa: F811
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """They replicate, the registry is a user of its own, and ZooKeeper tells strangers nothing."""
    one = up("--secure", "--brokers", "2", "--only", "broker,registry").ready()
    monkeypatch.setenv("MILLSTREAM_DATA_DIR", str(one.home.path))
    assert run("-p", "up", "topics", "--create", "--topic", "words").code == 0
    assert run("-p", "up", "console-producer", "--topic", "words", stdin="kept\n").code == 0

    def in_sync() -> bool:
        described = run("-p", "up", "topics", "--describe", "--topic", "words").out
        return len(described.rpartition("Isr: ")[2].split()[0].split(",")) == 2

    wait_until(in_sync)
    wait_until(lambda: "_schemas" in run("-p", "up", "topics", "--list").out)
    for name in ("broker", "broker-2"):
        address = one.service(name).address
        assert run("topics", "--list", "--bootstrap-server", address).code != 0, name
    where = ("--zookeeper-connect", f"{one.service('zookeeper').address}/millstream")
    refused = run("metadata", "dump", *where)
    assert refused.code == 1 and "Topic" not in refused.out, refused
    secret = read_properties(str(one.home.path / "secure" / "broker.properties"))
    dumped = run("metadata", "dump", *where, "--zookeeper-digest", secret["millstream.zookeeper.digest"])
    assert '"words"' in dumped.out, dumped.err
    logs = "".join(one.home.log_of(name).read_text() for name in ("broker", "broker-2"))
    assert secret["millstream.zookeeper.digest"].partition(":")[2] not in logs
