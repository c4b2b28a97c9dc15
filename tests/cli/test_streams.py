"""`millstream streams reset`: what kafka-streams-application-reset.sh does."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from millstream.client import Admin, ClientConfig, Cluster, NewTopic, Producer
from millstream.client.groups import Committed, Groups
from millstream.testing import Broker
from millstream.wire.records import Record, encode_batch

from .conftest import Run

REGISTRATION = "shop-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000003-topic"
INTERNAL = [REGISTRATION, "shop-by-region-repartition", "shop-stock-changelog"]
OTHERS = ["shop-output", "shop-two-stock-changelog", "shopping-stock-changelog", "stock-changelog"]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    # The records are of 1970: retention must not remove them while the tests run.
    with Broker({"group.initial.rebalance.delay.ms": 0, "log.retention.ms": -1}) as broker:
        yield broker


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    """Topics of an application `shop` that has read three of four orders and all events; and what only looks
    like its own."""
    with Cluster(ClientConfig.of(broker.bootstrap_servers)) as cluster:
        admin = Admin(cluster)
        admin.delete_topics([name for name in admin.topic_names() if not name.startswith("__")])
        admin.create_topics([NewTopic(name, 1, 1) for name in ("orders", "events", *INTERNAL, *OTHERS)])
        records = [Record(0, 1_000 * number, b"k", b"v") for number in range(4)]
        Producer(cluster).send_batches({(name, 0): encode_batch(records) for name in ("orders", "events")})
        done = {("orders", 0): 3, ("events", 0): 2, ("shop-by-region-repartition", 0): 7}
        Groups(cluster).commit("shop", done, {("events", 0): "times"})
        Groups(cluster).commit("shop-two", {("orders", 0): 1})
        yield cluster


def committed(cluster: Cluster) -> dict[str, int]:
    found = Groups(cluster).committed("shop")
    return {topic: one.offset for (topic, _), one in found.items() if isinstance(one, Committed)}


def reset(run: Run, cluster: Cluster, *options: str) -> tuple[int, str, str]:
    node = next(iter(cluster.nodes.values()))
    servers = f"{node.host}:{node.port}"
    return run("streams", "reset", "--application-id", "shop", "--bootstrap-server", servers, *options)


def test_back_to_the_beginning(run: Run, cluster: Cluster, tmp_path: Path) -> None:
    for name in ("shop", "shop-two"):
        (tmp_path / name / "stores").mkdir(parents=True)
    options = ("--input-topics", "orders", "--intermediate-topics", "events", "--state", str(tmp_path))
    before = committed(cluster)
    code, dry, _ = reset(run, cluster, *options, "--dry-run")
    assert code == 0
    assert committed(cluster) == before
    assert {*INTERNAL, *OTHERS} <= set(Admin(cluster).topic_names())
    assert (tmp_path / "shop").is_dir()
    code, out, _ = reset(run, cluster, *options)
    assert code == 0
    assert dry.splitlines()[1:] == out.splitlines()
    assert out.splitlines() == [
        "Reset-offsets for input topics [orders]",
        "Seek-to-end for intermediate topics [events]",
        "Following input topics offsets will be reset to (for consumer group shop)",
        "Topic: orders Partition: 0 Offset: 0",
        "Following intermediate topics offsets will be reset to end (for consumer group shop)",
        "Topic: events Partition: 0 Offset: 4",
        f"Deleting inferred internal topics [{', '.join(INTERNAL)}]",
        f"Removing {tmp_path / 'shop'}",
        "Done.",
    ]
    assert committed(cluster) == {"orders": 0, "events": 4}
    assert all(not one.metadata for one in Groups(cluster).committed("shop").values())  # type: ignore[union-attr]
    there = set(Admin(cluster).topic_names())
    assert there.isdisjoint(INTERNAL)
    assert {"orders", "events", *OTHERS} <= there
    assert [folder.name for folder in tmp_path.iterdir()] == ["shop-two"]


def test_only_some_internal_topics(run: Run, cluster: Cluster) -> None:
    code, out, _ = reset(run, cluster, "--internal-topics", "shop-stock-changelog", "-o", "json")
    assert code == 0
    assert json.loads(out) == {
        "application": "shop",
        "offsets": [],
        "deleted_topics": ["shop-stock-changelog"],
        "removed_folder": None,
        "dry_run": False,
    }
    assert committed(cluster) == {"orders": 3, "events": 2, "shop-by-region-repartition": 7}
    assert set(INTERNAL) - set(Admin(cluster).topic_names()) == {"shop-stock-changelog"}


@pytest.mark.parametrize(
    ("options", "offset"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), 4),
        (("--to-offset", "2"), 2),
        (("--shift-by", "-1"), 2),
        (("--to-datetime", "1970-01-01T00:00:01.000"), 1),
        (("--by-duration", "P30000D"), 0),
    ],
)
def test_from_where_to_read_again(run: Run, cluster: Cluster, options: tuple[str, ...], offset: int) -> None:
    assert reset(run, cluster, "--input-topics", "orders", *options)[0] == 0
    assert committed(cluster)["orders"] == offset


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--input-topics", "orders,none"), "there is no topic none; nothing was changed"),
        (("--intermediate-topics", "none"), "there is no topic none; nothing was changed"),
        (("--internal-topics", "shop-output"), "shop-output is not an internal topic of shop"),
        (("--internal-topics", "shop-two-stock-changelog"), "is not an internal topic of shop"),
    ],
)
def test_what_is_not_there_changes_nothing(
    run: Run, cluster: Cluster, options: tuple[str, ...], message: str
) -> None:
    before = committed(cluster)
    code, _, err = reset(run, cluster, *options)
    assert code == 1
    assert message in err
    assert committed(cluster) == before
    assert set(INTERNAL) <= set(Admin(cluster).topic_names())


def test_an_application_with_members_is_left_alone(run: Run, cluster: Cluster, broker: Broker) -> None:
    """As those of Java are."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "shop"})
    try:
        consumer.subscribe(["orders"])
        while not consumer.assignment():
            consumer.poll(0.2)
        code, _, err = reset(run, cluster)
        assert code == 1
        assert "'shop' is still active" in err
    finally:
        consumer.close()


def test_members_that_are_not_there_any_more_can_be_removed(
    run: Run, cluster: Cluster, broker: Broker
) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "shop"}
    consumer = Consumer(settings)
    try:
        consumer.subscribe(["orders"])
        while not consumer.assignment():
            consumer.poll(0.2)
        before = committed(cluster)
        code, _, err = reset(run, cluster, "--input-topics", "orders", "--force", "--dry-run")
        assert (code, err) == (0, "")
        assert committed(cluster) == before
        code, _, err = reset(run, cluster, "--input-topics", "orders", "--force")
        assert code == 0
        assert err == "Force deleting all active members in the group: shop\n"
        assert committed(cluster)["orders"] == 0
    finally:
        consumer.close()


def test_offsets_from_a_file(run: Run, cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "plan.csv"
    options = ("--input-topics", "orders", "--input-topics", "events", "--from-file", str(file))
    for content, says in (
        ("orders,0,1\n", f"{file} has no offset for events-0; nothing was changed"),
        ("orders,0,1\nevents,0,2\nelse,0,0\n", "no partition of an input topic: else-0; nothing was changed"),
        ("orders,0\n", "line 1 is not topic,partition,offset"),
    ):
        file.write_text(content)
        code, _, err = reset(run, cluster, *options)
        assert code == 1
        assert says in err
    assert committed(cluster) == {"orders": 3, "events": 2, "shop-by-region-repartition": 7}
    file.write_text("orders,0,1\nevents,0,99\n")
    code, _, err = reset(run, cluster, *options)
    assert code == 0
    assert "Value will be set to 4" in err
    assert committed(cluster) == {"orders": 1, "events": 4}


def test_the_old_name_of_the_file_with_settings(run: Run, cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=me\n")
    code, _, err = reset(run, cluster, "--config-file", str(file), "--dry-run")
    assert code == 0
    assert err == "Option --config-file is deprecated. Use --command-config instead.\n"
    code, _, err = reset(run, cluster, "--config-file", str(file), "--command-config", str(file))
    assert code == 2
    assert "cannot be specified together" in err


def test_an_application_that_never_ran(run: Run, cluster: Cluster, broker: Broker) -> None:
    words = ("--application-id", "new", "--bootstrap-server", broker.bootstrap_servers)
    code, out, _ = run("streams", "reset", *words)
    assert code == 0
    assert "No input or intermediate topics specified. Skipping seek." in out
    assert "Deleting inferred internal topics []" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--application-id must be specified"),
        (("--application-id", ".."), "--application-id must be specified"),
        (("--application-id", "a/b"), "--application-id must be specified"),
        (("--application-id", "a", "--to-latest"), "with --input-topics"),
        (
            ("--application-id", "a", "--input-topics", "t", "--to-latest", "--to-offset", "0"),
            "choose one of --to-earliest, --to-latest",
        ),
        (("--application-id", "a"), "--bootstrap-server must be specified"),
    ],
)
def test_wrong_words(run: Run, words: tuple[str, ...], message: str) -> None:
    code, _, err = run("streams", "reset", *words)
    assert code == 2
    assert message in err
