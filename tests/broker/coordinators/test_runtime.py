"""Where a coordinator's keys lie: in the partition in which every Kafka looks for them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.broker.coordinators.runtime import places
from millstream.testing import Broker

SHARDS = 50


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("", 0),
        ("a", 47),  # hash 97
        ("abcdefg", 6),  # hash -1206291356: Kafka takes the absolute value, not the bits without the sign
        ("polygenelubricants", 0),  # the smallest number there is has no absolute value
        ("café", 21),  # UTF-16 units
    ],
)
def test_place_of_a_key(key: str, place: int) -> None:
    assert places(key, SHARDS)[0] == place


def commit(servers: str, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
    consumer.close()


def committed(servers: str, group: str) -> list[int]:
    admin = AdminClient({"bootstrap.servers": servers})
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    return [one.offset for one in found.topic_partitions]


def test_key_that_the_first_release_put_elsewhere_stays_there(tmp_path: Path) -> None:
    place, earlier = places("abcdefg", SHARDS)
    assert place != earlier
    with Broker(data_dir=tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result()
        commit(broker.bootstrap_servers, "abcdefg", 17)
        broker.stop()
        (here,) = tmp_path.rglob(f"__consumer_offsets-{place}")
        there = here.with_name(f"__consumer_offsets-{earlier}")
        shutil.rmtree(there, ignore_errors=True)  # an empty log may have no folder yet
        here.rename(there)
        for offset in (17, 18):
            broker.start()
            assert committed(broker.bootstrap_servers, "abcdefg") == [offset]
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            assert [one.group_id for one in admin.list_consumer_groups().result().valid] == ["abcdefg"]
            commit(broker.bootstrap_servers, "abcdefg", offset + 1)
            broker.stop()
