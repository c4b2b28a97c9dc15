"""Records go in with one client and come out the same with every other."""

import os
import time
from collections.abc import Callable, Mapping

import pytest

from millstream.wire.errors import ErrorCode
from tests.support.waiting import wait_until

from .clients import Client, Record, Refused
from .clients.base import CREATE_TIME, LOG_APPEND_TIME
from .test_admin import code_of

NewTopic = Callable[..., str]
Clients = Mapping[str, Client]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]

ALL_SORTS = [
    Record(b"value"),
    Record(b"value", b"key"),
    Record(b"", b""),
    Record(None, b"tombstone"),
    Record(b"no key", None),
    Record(bytes(range(256)), bytes(reversed(range(256)))),
    Record(b"v", headers=[("name", b"value")]),
    Record(b"v", headers=[("twice", b"1"), ("twice", b"2"), ("once", b"3"), ("twice", b"1")]),
    Record(b"v", headers=[("null", None), ("empty", b"")]),
    Record(b"v", headers=[("", b"no name")]),
    Record(b"v", headers=[("größe", "höhe".encode()), ("long", b"x" * 3000)]),
    Record(b"v", headers=[(f"h{n}", b"%d" % n) for n in range(100)]),
]


def content(records: list[Record]) -> list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
    return [(record.value, record.key, list(record.headers)) for record in records]


def test_all_sorts_of_records_come_back_the_same(
    client: Client, clients: Clients, new_topic: NewTopic
) -> None:
    topic = new_topic()
    records = [record._replace(partition=0) for record in ALL_SORTS]
    if client.name == "kafka-python":  # it reads null headers but refuses to write them
        records = [record for record in records if ("null", None) not in record.headers]
    sent = client.produce(topic, records)
    assert sent == [(0, offset) for offset in range(len(records))]
    for reader in clients.values():
        got = reader.consume(topic, 0, count=len(records))
        assert content(got) == content(records), reader
        assert [record.offset for record in got] == list(range(len(records)))


@pytest.mark.parametrize("codec", CODECS)
def test_every_compression(client: Client, clients: Clients, new_topic: NewTopic, codec: str) -> None:
    topic = new_topic()
    records = [Record(b"the same again, %d " % n * 20, b"%d" % n, [("n", b"%d" % n)], 0) for n in range(300)]
    records.append(Record(os.urandom(100_000), b"does not compress", (), 0))
    client.produce(topic, records, compression=codec)
    for reader in clients.values():
        assert content(reader.consume(topic, 0, count=len(records))) == content(records), reader
        assert content(reader.consume(topic, 0, start=297, count=2)) == content(records[297:299]), reader


@pytest.mark.parametrize("kept_as", [*CODECS[1:], "uncompressed"])
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_topic_with_a_codec_of_its_own(
    clients: Clients, new_topic: NewTopic, kept_as: str, codec: str
) -> None:
    topic = new_topic(configs={"compression.type": kept_as, "retention.ms": "-1"})
    records = [
        Record(b"%d of many " % n * 50, b"key", [("n", b"1")], 0, 1_700_000_000_000 + n) for n in range(100)
    ]
    assert clients["confluent"].produce(topic, records, compression=codec)[-1] == (0, 99)
    for reader in clients.values():
        got = reader.consume(topic, 0, count=100)
        assert content(got) == content(records)
        assert [record.timestamp for record in got] == [record.timestamp for record in records]


# -- timestamps ----------------------------------------------------------------------------------------------


def test_the_producers_timestamp_is_kept(client: Client, clients: Clients, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"retention.ms": "-1"})
    times = [1_600_000_000_123, 1_500_000_000_000, 1_700_000_000_000]
    client.produce(topic, [Record(b"v", None, (), 0, moment) for moment in times])
    for reader in clients.values():
        got = reader.consume(topic, 0, count=3)
        assert [(record.timestamp, record.timestamp_type) for record in got] == [
            (t, CREATE_TIME) for t in times
        ]


def test_the_broker_can_set_the_time(client: Client, clients: Clients, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    client.produce(topic, [Record(b"v", None, (), 0, 1_500_000_000_000 + n) for n in range(3)])
    after = int(time.time() * 1000)
    for reader in clients.values():
        for record in reader.consume(topic, 0, count=3):
            assert record.timestamp_type == LOG_APPEND_TIME
            assert record.timestamp is not None
            assert before <= record.timestamp <= after


@pytest.mark.parametrize(
    ("configs", "days"),
    [
        ({}, +1),  # the default allows an hour ahead
        ({"message.timestamp.after.max.ms": "60000"}, +1),
        ({"message.timestamp.before.max.ms": "60000"}, -1),
    ],
    ids=str,
)
def test_a_timestamp_too_far_away_is_refused(
    client: Client, new_topic: NewTopic, configs: dict[str, str], days: int
) -> None:
    topic = new_topic(configs=configs)
    moment = int(time.time() * 1000) + days * 86_400_000
    with pytest.raises(Refused) as refused:
        client.produce(topic, [Record(b"v", None, (), 0, moment)])
    assert code_of(refused) == ErrorCode.invalid_timestamp
    assert client.ends(topic, 0) == (0, 0)


# -- size ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_message_of_one_megabyte(client: Client, clients: Clients, new_topic: NewTopic, codec: str) -> None:
    topic = new_topic()
    big = os.urandom(1_048_000 if codec == "none" else 1_040_000)
    assert client.produce(topic, [Record(big, None, (), 0), Record(b"small", None, (), 0)], compression=codec)
    for reader in clients.values():
        assert [record.value for record in reader.consume(topic, 0, count=2)] == [big, b"small"], reader


def test_a_message_over_the_limit_is_refused_and_not_written(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    with pytest.raises(Refused) as refused:
        client.produce(topic, [Record(os.urandom(1_048_600), None, (), 0)])
    assert code_of(refused) == ErrorCode.message_too_large
    assert client.ends(topic, 0) == (0, 0)
    assert client.produce(topic, [Record(b"fits", None, (), 0)]) == [(0, 0)]


def test_the_limit_counts_what_is_sent_not_what_it_unpacks_to(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    assert client.produce(topic, [Record(b"x" * 3_000_000, None, (), 0)], compression="gzip") == [(0, 0)]
    assert client.consume(topic, 0)[0].value == b"x" * 3_000_000


def test_a_topic_may_allow_more_than_a_fetch_asks_for(
    client: Client, clients: Clients, new_topic: NewTopic
) -> None:
    topic = new_topic(configs={"max.message.bytes": "5000000"})
    big = os.urandom(4_000_000)
    assert client.produce(topic, [Record(big, None, (), 0)]) == [(0, 0)]
    for reader in clients.values():
        assert reader.consume(topic, 0)[0].value == big, reader


# -- acknowledgements, order, idempotence --------------------------------------------------------------------


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_level_of_acknowledgement(client: Client, new_topic: NewTopic, acks: int) -> None:
    topic = new_topic()
    sent = client.produce(topic, [Record(b"%d" % n, None, (), 0) for n in range(10)], acks=acks)
    if acks != 0:
        assert sent == [(0, n) for n in range(10)]
    assert [record.value for record in client.consume(topic, 0, count=10)] == [b"%d" % n for n in range(10)]


@pytest.mark.parametrize("idempotent", [False, True])
def test_order_is_kept(client: Client, new_topic: NewTopic, idempotent: bool) -> None:
    topic = new_topic(partitions=2)
    records = [Record(b"%d" % n, None, (), n % 2) for n in range(3000)]
    sent = client.produce(topic, records, idempotent=idempotent)
    assert sent == [(n % 2, n // 2) for n in range(3000)]
    for partition in (0, 1):
        got = client.consume(topic, partition, count=1500)
        assert [record.value for record in got] == [b"%d" % n for n in range(partition, 3000, 2)]


def test_more_replicas_in_sync_asked_for_than_there_are(client: Client, new_topic: NewTopic) -> None:
    """min.insync.replicas is capped at the number of replicas."""
    topic = new_topic(configs={"min.insync.replicas": "2"})
    assert client.produce(topic, [Record(b"v", None, (), 0)]) == [(0, 0)]


def test_a_compacted_topic_wants_keys(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"cleanup.policy": "compact"})
    assert client.produce(topic, [Record(b"v", b"k", (), 0)]) == [(0, 0)]
    for codec in ("none", "gzip"):
        with pytest.raises(Refused) as refused:
            client.produce(topic, [Record(b"v", None, (), 0)], compression=codec)
        # aiokafka does not know this code
        assert code_of(refused) in (ErrorCode.invalid_record, ErrorCode.unknown_server_error)
    assert client.ends(topic, 0) == (0, 1)


# -- topics that are not there -------------------------------------------------------------------------------


def test_writing_to_a_topic_makes_it(client: Client, name: str) -> None:
    assert client.produce(name, [Record(b"first", b"k")]) == [(0, 0)]
    wait_until(lambda: name in client.topics(), ignoring=Refused)
    assert client.consume(name, 0)[0].value == b"first"


def test_the_same_name_again_is_another_topic(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    client.produce(topic, [Record(b"old", None, (), 0)] * 5)
    client.delete_topic(topic)
    wait_until(lambda: topic not in client.topics(), ignoring=Refused)
    client.create_topic(topic)
    wait_until(lambda: topic in client.topics(), ignoring=Refused)
    assert client.produce(topic, [Record(b"new", None, (), 0)]) == [(0, 0)]
    assert client.consume(topic, 0)[0].value == b"new"
    assert client.ends(topic, 0) == (0, 1)
