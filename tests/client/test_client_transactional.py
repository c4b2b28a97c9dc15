"""Transactions of the client: what read_committed sees, who is fenced, and an end by another connection."""

import uuid

import pytest

from millstream.client import (
    Admin,
    ClientConfig,
    Cluster,
    Fetcher,
    NewTopic,
    TransactionalProducer,
    visible_batches,
)
from millstream.client.fetch import next_offset
from millstream.client.transactional import end_all, is_fenced, send_all
from millstream.wire.errors import KafkaError
from millstream.wire.records import Record, encode_batch, iter_records


@pytest.fixture
def cluster(millstream_broker):
    with Cluster(
        ClientConfig.of(millstream_broker.bootstrap_servers, {"default.api.timeout.ms": "15000"})
    ) as made:
        yield made


@pytest.fixture
def topic(cluster):
    name = f"transactional-{uuid.uuid4().hex[:12]}"
    assert not isinstance(Admin(cluster).create_topics([NewTopic(name, 2, 1)])[name], KafkaError)
    return name


@pytest.fixture
def name():
    return f"tx-{uuid.uuid4().hex[:8]}"


def batch(*values):
    return encode_batch([Record(0, 1_700_000_000_000, None, value) for value in values], transactional=True)


def committed(cluster, topic, partition=0):
    fetcher = Fetcher(cluster, read_committed=True)
    found, offset = [], 0
    while True:
        (answer,) = fetcher.poll({(topic, partition): offset}, max_wait_ms=50)
        for _, data in visible_batches(answer, offset, read_committed=True):
            found += [record.value for record in iter_records(data)]
        after = next_offset(answer, offset)
        if after == offset:
            return found
        offset = after


def test_commit_shows_and_abort_hides(cluster, topic, name):
    producer = TransactionalProducer(cluster, name)
    producer.begin()
    producer.send_batches({(topic, 0): batch(b"a", b"b"), (topic, 1): batch(b"c")})
    assert committed(cluster, topic) == []
    producer.send_batches({(topic, 0): batch(b"d")})
    producer.commit()
    producer.begin()
    producer.send_batches({(topic, 0): batch(b"gone")})
    producer.abort()
    assert committed(cluster, topic) == [b"a", b"b", b"d"]
    assert committed(cluster, topic, 1) == [b"c"]


def test_whoever_begins_later_fences_the_earlier_one(cluster, topic, name):
    first, second = TransactionalProducer(cluster, name), TransactionalProducer(cluster, name)
    first.begin()
    first.send_batches({(topic, 0): batch(b"first")})
    second.begin()
    with pytest.raises(KafkaError) as refused:
        first.send_batches({(topic, 0): batch(b"more")})
    assert is_fenced(refused.value)
    (error,) = end_all(cluster, [first.handle()], True).values()
    assert is_fenced(error)
    second.send_batches({(topic, 0): batch(b"second")})
    second.commit()
    assert committed(cluster, topic) == [b"second"]


def test_another_process_writes_on_and_ends_many_at_once(cluster, topic, name):
    place = (topic, 0)
    handles = []
    for number in range(5):
        producer = TransactionalProducer(cluster, f"{name}-{number}")
        producer.begin()
        producer.send_batches({place: batch(b"row %d" % number)})
        handles.append(producer.handle([place]))
    with Cluster(cluster.config) as other:
        assert send_all(other, place, [(handle, batch(b"end")) for handle in handles]) == {}
        assert end_all(other, handles, True) == {}
        assert end_all(other, handles, True) == {}, "the same end twice is one end"
    assert sorted(committed(cluster, topic)) == [b"end"] * 5 + [b"row %d" % number for number in range(5)]


def test_a_transaction_that_is_over_takes_no_more(cluster, topic, name):
    producer = TransactionalProducer(cluster, name)
    with pytest.raises(KafkaError):
        producer.send_batches({(topic, 0): batch(b"too early")})
