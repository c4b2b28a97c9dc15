"""Partitions without a broker around them: what becomes of a log that the disk refuses."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from millstream.broker.partitions import Partitions
from millstream.cluster.image import Delta, Image, difference
from millstream.cluster.metadata_records import Config, Partition, Record, Topic, TopicGone
from millstream.settings.log_config import LogConfig
from millstream.storage.log_dirs import LogDirs
from millstream.wire.errors import ErrorCode, KafkaError

TOPIC_ID = uuid.UUID(int=7)


class Disk(LogDirs):
    """Refuses the logs of some partitions."""

    full: frozenset[int] = frozenset()
    stuck: frozenset[int] = frozenset()

    def create(self, topic, partition, topic_id, config):  # type: ignore[no-untyped-def]
        if partition in self.full:
            raise KafkaError(ErrorCode.kafka_storage_error, "No space left on device")
        return super().create(topic, partition, topic_id, config)

    def delete(self, log, now_ms):  # type: ignore[no-untyped-def]
        super().delete(log, now_ms)
        if log.partition in self.stuck:
            raise KafkaError(ErrorCode.kafka_storage_error, "Read-only file system")


class World:
    def __init__(self, folder: Path) -> None:
        self.disk = Disk([folder])
        self.disk.open(1)
        self.image = Image()
        self.partitions = Partitions(1, self.disk, lambda _topic_id: LogConfig())

    async def apply(self, *records: Record) -> None:
        delta: Delta = self.image.apply(list(records), self.image.version + 1)
        await self.partitions.apply(self.image, delta)

    async def create(self, count: int) -> None:
        partitions = [Partition(TOPIC_ID, index, (1,), (1,), 1) for index in range(count)]
        await self.apply(Topic(TOPIC_ID, "t"), *partitions)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_a_log_that_the_disk_refuses_is_made_later(world: World) -> None:
    world.disk.full = frozenset({1})
    await world.create(3)
    partitions = world.partitions
    assert [partition.index for partition in partitions] == [0, 2], "the others are there"
    assert partitions.lacks_log(b"t", 1) and partitions.lacks_log(TOPIC_ID.bytes, 1)
    assert not partitions.lacks_log(b"t", 0) and not partitions.lacks_log(b"u", 1)
    await partitions.create_missing_logs(world.image)
    assert partitions.lacks_log(b"t", 1)
    world.disk.full = frozenset()
    await partitions.create_missing_logs(world.image)
    assert not partitions.lacks_log(b"t", 1)
    made = partitions.find("t", 1)
    assert made is not None and made.leads and made.open_to_clients


async def test_a_topic_without_a_log_can_be_deleted(world: World) -> None:
    world.disk.full = frozenset({0})
    await world.create(1)
    await world.apply(TopicGone(TOPIC_ID))
    world.disk.full = frozenset()
    await world.partitions.create_missing_logs(world.image)
    assert not world.partitions.without_log and not len(world.partitions)
    assert difference(Image(), world.image).roles(1).lead == []


async def test_a_folder_that_cannot_be_removed_keeps_nobody_from_his_role(world: World) -> None:
    await world.create(2)
    world.disk.stuck = frozenset({0})
    other = uuid.UUID(int=8)
    await world.apply(TopicGone(TOPIC_ID), Topic(other, "u"), Partition(other, 0, (1,), (1,), 1))
    assert [(partition.topic, partition.leads) for partition in world.partitions] == [("u", True)]


async def test_a_role_is_taken_under_the_settings_of_its_entry(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a larger min.insync.replicas comes a smaller ISR: under the old setting it would commit alone."""

    def config_of(topic_id: uuid.UUID) -> LogConfig:
        wanted = world.image.topic_config(topic_id).get("min.insync.replicas", "1")
        return LogConfig(min_insync_replicas=int(wanted))

    seen: list[int] = []
    take = Partitions._take_role

    def take_role(self: Partitions, image: Image, record: Partition) -> None:
        partition = self.find("t", record.index)
        if partition is not None:
            seen.append(partition.log.config.min_insync_replicas)
        take(self, image, record)

    world.partitions.config_of = config_of
    await world.create(1)
    monkeypatch.setattr(Partitions, "_take_role", take_role)
    await world.apply(
        Config("topic", TOPIC_ID.hex, {"min.insync.replicas": "3"}),
        Partition(TOPIC_ID, 0, (1,), (1,), 1, partition_epoch=1),
    )
    assert seen == [3]


async def test_a_log_that_was_found_gets_the_settings_of_the_image(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.create(1)
    world.disk.close()
    again = World(tmp_path)
    again.disk.load(lambda topic: LogConfig())
    again.partitions.config_of = lambda _topic_id: LogConfig(min_insync_replicas=2)
    await again.apply(
        Topic(TOPIC_ID, "t"),
        Config("topic", TOPIC_ID.hex, {"min.insync.replicas": "2"}),
        Partition(TOPIC_ID, 0, (1,), (1,), 1),
    )
    found = again.partitions.find("t", 0)
    assert found is not None and found.log.config.min_insync_replicas == 2
