"""The partition is the client's choice: the same key must land in the same place, whichever client sends
it."""

from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from .clients import CLIENTS, Client, Record

NewTopic = Callable[..., str]
PARTITIONS = 12
KEYS = [b"21", b"foobar", b"a-little-bit-long-string", b"abc", b"", *(b"key-%d" % n for n in range(200))]

# The Java client's murmur2 of some keys, as signed 32-bit numbers
JAVA_MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"abc": 479470107,
}


def test_a_key_has_one_place_whoever_sends_it(clients: Mapping[str, Client], new_topic: NewTopic) -> None:
    partitions = {}
    for client in clients.values():
        topic = new_topic(partitions=PARTITIONS)
        sent = client.produce(topic, [Record(b"v", key) for key in KEYS], partitioner="murmur2")
        partitions[client.name] = {key: partition for key, (partition, _) in zip(KEYS, sent, strict=True)}
    assert partitions["confluent"] == partitions["kafka-python"] == partitions["aiokafka"]
    for key, hashed in JAVA_MURMUR2.items():
        assert partitions["confluent"][key] == (hashed & 0x7FFFFFFF) % PARTITIONS


@pytest.mark.parametrize(
    ("library", "partitioner"), [(c.name, p) for c in CLIENTS.values() for p in c.partitioners]
)
def test_every_partitioner(
    clients: Mapping[str, Client], new_topic: NewTopic, library: str, partitioner: str
) -> None:
    client = clients[library]
    topic = new_topic(partitions=PARTITIONS)
    keys = [None, *KEYS] * 2
    sent = client.produce(
        topic, [Record(b"%d" % n, key) for n, key in enumerate(keys)], partitioner=partitioner
    )
    expected = Counter(partition for partition, _ in sent)
    assert {client.ends(topic, p)[1] for p in range(PARTITIONS) if p not in expected} <= {0}
    read = [record for p, count in expected.items() for record in client.consume(topic, p, count=count)]
    assert sorted(int(record.value or b"") for record in read) == list(range(len(keys)))


def test_without_a_key_many_records_spread(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=4)
    partitions = {partition for _ in range(12) for partition, _ in client.produce(topic, [Record(b"v")])}
    assert len(partitions) > 1
