"""A data folder written by an earlier version still starts, and everything in it is there (see
make_folder.py)."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, ConsumerGroupType, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from millstream.testing import Broker

from .make_folder import CODECS, CONSUMER_GROUP, OFFSETS, RECORDS

ARCHIVES = sorted(Path(__file__).parent.glob("*.tar.xz"))


def read(servers: str, topic: str, partitions: int) -> list[tuple[int, int, bytes | None]]:
    """(partition, offset, value) of all committed records."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), 20) for p in range(partitions)}
    consumer.assign([TopicPartition(topic, p, low) for p, (low, _) in ends.items()])
    found = []
    reached = {p: low for p, (low, _) in ends.items()}
    while any(reached[p] < high for p, (_, high) in ends.items()):
        message = consumer.poll(20)
        assert message is not None, f"{topic}: nothing more after {reached}, expected {ends}"
        assert message.error() is None, message.error()
        found.append((message.partition(), message.offset(), message.value()))
        positions = consumer.position([TopicPartition(topic, p) for p in range(partitions)])
        reached = {tp.partition: max(reached[tp.partition], tp.offset) for tp in positions}
        if topic == "ledger" and len(found) == 30:
            break  # a commit marker is the last offset, which no position passes
    consumer.close()
    return found


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> object:
    folder = tmp_path_factory.mktemp("release")
    with tarfile.open(request.param) as tar:
        tar.extractall(folder, filter="data")
    with Broker(data_dir=folder / "data") as broker:
        yield broker.bootstrap_servers


def test_there_is_a_folder_to_try() -> None:
    assert ARCHIVES


@pytest.mark.parametrize("codec", CODECS)
def test_records(servers: str, codec: str) -> None:
    found = read(servers, f"codec-{codec}", 2)
    lost = 5 if codec == "gzip" else 0
    assert len(found) == RECORDS - lost
    assert {value for _, _, value in found} <= {f"{codec} {n}".encode() for n in range(RECORDS)}


def test_transactions(servers: str) -> None:
    values = [value for _, _, value in read(servers, "ledger", 1)]
    assert values == [f"entry {number}.{line}".encode() for number in (0, 2, 3) for line in range(10)]


def test_topics_and_settings(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    topics = set(admin.list_topics(timeout=20).topics)
    assert {"table", "ledger", *(f"codec-{codec}" for codec in CODECS)} <= topics
    assert "gone" not in topics
    resource = ConfigResource(ResourceType.TOPIC, "codec-none")
    settings = admin.describe_configs([resource])[resource].result()
    assert settings["retention.ms"].value == "999999999"


@pytest.mark.parametrize("group", OFFSETS)
def test_committed_offsets(servers: str, group: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    assert {(tp.topic, tp.partition): tp.offset for tp in found.topic_partitions} == {
        ("codec-none", partition): offset for partition, offset in OFFSETS[group].items()
    }


def test_group_protocols(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    listed = {group.group_id: group.type for group in admin.list_consumer_groups().result().valid}
    assert listed["readers"] is ConsumerGroupType.CLASSIC
    assert listed[CONSUMER_GROUP] is ConsumerGroupType.CONSUMER
