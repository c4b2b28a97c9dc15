"""The client against a real broker: produce, fetch, offsets, admin, and a broker that goes away and comes
back."""

import threading
import time
import uuid

import pytest

from millstream.client import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Admin,
    ClientConfig,
    Cluster,
    Fetcher,
    NewTopic,
    Producer,
    list_offsets,
    visible_batches,
)
from millstream.client.admin import BROKER, DELETE, SET, TOPIC
from millstream.client.fetch import next_offset
from millstream.testing import Broker
from millstream.wire.batch import read_header
from millstream.wire.client_produce_fetch import Fetched
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import Record, encode_batch, encode_marker, iter_records

NOW = 1_700_000_000_000


@pytest.fixture
def cluster(millstream_broker):
    with Cluster(
        ClientConfig.of(millstream_broker.bootstrap_servers, {"default.api.timeout.ms": "15000"})
    ) as made:
        yield made


@pytest.fixture
def admin(cluster):
    return Admin(cluster)


@pytest.fixture
def topic(admin):
    """A topic of three partitions with a name of its own."""
    name = f"client-{uuid.uuid4().hex[:12]}"
    assert not isinstance(admin.create_topics([NewTopic(name, 3, 1)])[name], KafkaError)
    return name


def values(fetcher, topic, partition, offset=0):
    """Everything from an offset to the end."""
    found = []
    while True:
        answers = fetcher.poll({(topic, partition): offset}, max_wait_ms=200)
        for answer in answers:
            assert answer.error is ErrorCode.none
            for _, batch in visible_batches(answer, offset, fetcher.read_committed):
                found += [r.value for r in iter_records(batch) if r.offset >= offset]
            offset = next_offset(answer, offset)
            if offset >= answer.high_watermark:
                return found


def records(*given, at=NOW):
    return [Record(0, at, None, value) for value in given]


# --- produce and fetch --------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_what_goes_in_comes_out(cluster, topic, codec):
    producer = Producer(cluster, codec=codec)
    sent = [
        Record(0, NOW, b"k", b"v", (("h", b"1"), ("h", None))),
        Record(1, NOW + 1, None, None, ()),
        Record(2, NOW + 2, b"", b"", ()),
        Record(3, NOW + 3, b"big", b"x" * 200_000, ()),
    ]
    assert producer.send(topic, 0, sent).offset == 0
    assert producer.send(topic, 0, sent).offset == 4
    (answer,) = Fetcher(cluster).poll({(topic, 0): 0})
    got = [r for _, batch in visible_batches(answer, 0) for r in iter_records(batch)]
    assert got == [r._replace(offset=n) for n, r in enumerate(sent + sent)]
    assert (answer.high_watermark, answer.log_start_offset) == (8, 0)


def test_many_partitions_in_one_call(cluster, topic):
    batches = {(topic, n): encode_batch(records(b"p%d" % n)) for n in range(3)}
    sent = Producer(cluster).send_batches(batches)
    assert {topic_partition: answer.offset for topic_partition, answer in sent.items()} == dict.fromkeys(
        batches, 0
    )
    answers = Fetcher(cluster).poll({(topic, n): 0 for n in range(3)})
    assert {a.partition for a in answers} == {0, 1, 2}


def test_sequences_rise_and_a_repeated_batch_is_written_once(cluster, topic):
    producer = Producer(cluster)
    producer.send(topic, 0, records(b"a", b"b"))
    batch = encode_batch(records(b"c"))
    producer.send_batches({(topic, 0): batch})
    assert read_header(batch).base_sequence == 2
    assert read_header(batch).producer_id == producer.producer_id
    again = Producer(cluster, idempotent=False)  # sends the very same bytes once more
    assert again.send_batches({(topic, 0): batch})[topic, 0].offset == 2
    assert values(Fetcher(cluster), topic, 0) == [b"a", b"b", b"c"]


def test_a_lost_sequence_starts_over_with_a_new_producer_id(cluster, topic):
    producer = Producer(cluster)
    producer.send(topic, 0, records(b"a"))
    producer._sequences[topic, 0] = 77
    with pytest.raises(KafkaError) as caught:
        producer.send(topic, 0, records(b"gap"))
    assert caught.value.code is ErrorCode.out_of_order_sequence_number
    assert f"{topic}-0" in caught.value.message
    before = producer.producer_id
    producer.send(topic, 0, records(b"b"))
    assert producer.producer_id != before
    assert values(Fetcher(cluster), topic, 0) == [b"a", b"b"]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_acks(cluster, topic, acks):
    producer = Producer(cluster, acks=acks, idempotent=False)
    sent = producer.send(topic, 1, records(b"x"))
    assert sent.offset == (-1 if acks == 0 else 0)
    assert values(Fetcher(cluster), topic, 1) == [b"x"] or acks == 0
    with pytest.raises(ValueError, match="acks=all"):
        Producer(cluster, acks=1)


def test_too_large_and_missing_are_clear_errors(cluster, topic):
    producer = Producer(cluster)
    with pytest.raises(KafkaError) as caught:
        producer.send(topic, 0, records(b"x" * 2_000_000))
    assert caught.value.code is ErrorCode.message_too_large
    assert producer.send(topic, 0, records(b"fits")).offset == 0
    with pytest.raises(KafkaError, match=f"{topic} has no partition 9"):
        producer.send(topic, 9, records(b"x"))
    with pytest.raises(KafkaError, match="does not exist"):
        Fetcher(cluster).poll({("no-such-topic", 0): 0})


def test_topic_is_created_on_first_use(cluster):
    name = f"client-auto-{uuid.uuid4().hex[:12]}"
    assert Producer(cluster).send(name, 0, records(b"x")).offset == 0


def test_offset_out_of_range_is_for_the_caller(cluster, topic):
    (answer,) = Fetcher(cluster).poll({(topic, 0): 99})
    assert answer.error is ErrorCode.offset_out_of_range


def test_long_poll_returns_when_data_comes(cluster, topic, millstream_broker):
    def later():
        # So that the fetch waits already. If it does not, it finds the record at once, and passes as well.
        time.sleep(0.2)
        with Cluster(ClientConfig.of(millstream_broker.bootstrap_servers)) as other:
            Producer(other).send(topic, 0, records(b"x"))

    thread = threading.Thread(target=later)
    thread.start()
    (answer,) = Fetcher(cluster).poll({(topic, 0): 0}, max_wait_ms=20_000)
    thread.join()
    assert len(answer.records) > 0


def test_log_append_time_is_reported(cluster, admin):
    name = f"client-{uuid.uuid4().hex[:12]}"
    admin.create_topics([NewTopic(name, 1, 1, {"message.timestamp.type": "LogAppendTime"})])
    sent = Producer(cluster).send(name, 0, records(b"x"))
    assert sent.append_time > NOW
    (answer,) = Fetcher(cluster).poll({(name, 0): 0})
    (batch,) = [batch for _, batch in visible_batches(answer, 0)]
    assert next(iter_records(batch)).timestamp == sent.append_time


def test_aborted_transactions_are_hidden_from_read_committed():
    def transactional(producer_id, offset, value):
        return encode_batch(
            records(value),
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )

    def marker(commit, producer_id, offset):
        return encode_marker(
            commit, producer_id=producer_id, producer_epoch=0, timestamp=NOW, base_offset=offset
        )

    log = b"".join(
        [
            transactional(1, 0, b"aborted"),
            transactional(2, 1, b"committed"),
            encode_batch(records(b"plain"), base_offset=2),
            marker(False, 1, 3),
            marker(True, 2, 4),
            transactional(1, 5, b"second try"),
            marker(True, 1, 6),
        ]
    )
    fetched = Fetched("t", 0, ErrorCode.none, 7, 7, 0, [(1, 0)], memoryview(log))

    def seen(read_committed, offset=0):
        return [r.value for _, b in visible_batches(fetched, offset, read_committed) for r in iter_records(b)]

    assert seen(True) == [b"committed", b"plain", b"second try"]
    assert seen(False) == [b"aborted", b"committed", b"plain", b"second try"]
    assert seen(True, 2) == [b"plain", b"second try"]
    assert next_offset(fetched, 0) == 7


# --- offsets ------------------------------------------------------------------------------------------------


def test_offsets(cluster, topic):
    producer = Producer(cluster)
    for n in range(3):
        producer.send(topic, 0, records(b"x", at=NOW + 10 * n))

    def offset(moment):
        return list_offsets(cluster, {(topic, 0): moment})[topic, 0]

    assert offset(EARLIEST).offset == 0
    assert offset(LATEST).offset == 3
    assert offset(MAX_TIMESTAMP)[:2] == (2, NOW + 20)
    assert offset(NOW + 1)[:2] == (1, NOW + 10)
    assert offset(NOW + 21)[:2] == (-1, -1)
    both = list_offsets(cluster, {(topic, 0): LATEST, (topic, 1): LATEST})
    assert {topic_partition: answer.offset for topic_partition, answer in both.items()} == {
        (topic, 0): 3,
        (topic, 1): 0,
    }


# --- admin --------------------------------------------------------------------------------------------------


def test_topics(admin):
    name = f"client-{uuid.uuid4().hex[:12]}"
    outcome = admin.create_topics([NewTopic(name, 2, 1, {"retention.ms": "1000"}), NewTopic("bad name")])
    assert (outcome[name].partitions, outcome[name].replication_factor) == (2, 1)
    assert outcome["bad name"].code is ErrorCode.invalid_topic_exception
    again = admin.create_topics([NewTopic(name)])[name]
    assert again.code is ErrorCode.topic_already_exists
    assert name in again.message
    assert name in admin.topic_names()
    assert admin.create_partitions({name: 4}) == {name: None}
    assert admin.create_partitions({name: 1})[name].code is ErrorCode.invalid_partitions
    found = admin.describe_topics([name, "no-such-topic"], at_once=3)
    assert [p.index for p in found[name].partitions] == [0, 1, 2, 3]
    assert all(p.leader in admin.cluster.nodes and p.isr == p.replicas for p in found[name].partitions)
    assert found["no-such-topic"].code is ErrorCode.unknown_topic_or_partition
    by_metadata = admin._describe_by_metadata([name])
    assert [p.index for p in by_metadata[name].partitions] == [0, 1, 2, 3]
    assert by_metadata[name].id == found[name].id
    outcome = admin.delete_topics([name, "no-such-topic"])
    assert outcome[name] is None
    assert outcome["no-such-topic"].code is ErrorCode.unknown_topic_or_partition
    assert name not in admin.topic_names()
    assert admin.reassignments() == {}


def test_a_topic_is_created_only_if_it_is_missing(admin, cluster):
    name = f"missing-{uuid.uuid4().hex[:12]}"
    admin.create_if_missing(NewTopic(name, 2, 1))
    admin.create_if_missing(NewTopic(name, 5, 1))
    cluster.wait_for_topics([name])
    assert len(cluster.topic(name).partitions) == 2
    with pytest.raises(KafkaError) as refused:
        admin.create_if_missing(NewTopic("bad name", 1, 1))
    assert refused.value.code is ErrorCode.invalid_topic_exception


def test_validate_only_creates_nothing(admin):
    name = f"client-{uuid.uuid4().hex[:12]}"
    assert not isinstance(admin.create_topics([NewTopic(name, 1, 1)], validate_only=True)[name], KafkaError)
    assert name not in admin.topic_names()


def test_settings(admin, topic):
    key = (TOPIC, topic)

    def retention():
        return next(s for s in admin.describe_configs([key], synonyms=True)[key] if s.name == "retention.ms")

    assert retention().is_default
    assert admin.alter_configs({key: [("retention.ms", SET, "5000")]}) == {key: None}
    assert (retention().value, retention().source, retention().synonyms[0].value) == ("5000", 1, "5000")
    assert admin.alter_configs({key: [("retention.ms", DELETE, None)]}) == {key: None}
    assert retention().is_default
    assert admin.alter_configs({key: [("retention.ms", SET, "soon")]})[key].code is ErrorCode.invalid_config
    (node,) = admin.brokers()
    broker = (BROKER, str(node.id))
    found = {s.name: s for s in admin.describe_configs([broker], documentation=True)[broker]}
    assert found["num.partitions"].documentation
    missing = (TOPIC, "no-such-topic")
    assert admin.describe_configs([missing])[missing].code is ErrorCode.unknown_topic_or_partition


def test_delete_records(admin, cluster, topic):
    producer = Producer(cluster)
    producer.send(topic, 0, records(b"a", b"b", b"c"))
    outcome = admin.delete_records({(topic, 0): 2, (topic, 1): 5, (topic, 7): 0, ("no-such-topic", 0): 0})
    assert outcome[topic, 0] == 2
    assert outcome[topic, 1].code is ErrorCode.offset_out_of_range
    assert outcome[topic, 7].code is ErrorCode.unknown_topic_or_partition
    assert outcome["no-such-topic", 0].code is ErrorCode.unknown_topic_or_partition
    assert list_offsets(cluster, {(topic, 0): EARLIEST})[topic, 0].offset == 2
    assert admin.delete_records({(topic, 0): -1}) == {(topic, 0): 3}


def test_cluster_and_log_folders(admin, cluster, topic):
    Producer(cluster).send(topic, 0, records(b"x"))
    cluster_id, controller, nodes = admin.describe_cluster()
    assert cluster_id
    assert controller in {node.id for node in nodes}
    sizes = {
        topic_partition: size
        for folder in admin.describe_log_dirs()
        for topic_partition, (size, _, _) in folder.sizes.items()
    }
    assert sizes[topic, 0] > 0
    assert sizes[topic, 1] == 0


# --- trouble ------------------------------------------------------------------------------------------------


@pytest.mark.timeout(180)
def test_a_broker_that_restarts_is_found_again():
    with Broker() as broker:
        config = ClientConfig.of(broker.bootstrap_servers, {"default.api.timeout.ms": "30000"})
        with Cluster(config) as cluster:
            Admin(cluster).create_topics([NewTopic("t", 1, 1)])
            producer, fetcher = Producer(cluster), Fetcher(cluster)
            producer.send("t", 0, records(b"before"))
            broker.kill()
            broker.start()
            producer.send("t", 0, records(b"after"))
            assert values(fetcher, "t", 0) == [b"before", b"after"]
            broker.stop()
            hurried = ClientConfig.of(broker.bootstrap_servers, {"default.api.timeout.ms": "300"})
            cluster.config = hurried
            with pytest.raises(KafkaError, match=broker.bootstrap_servers):
                producer.send("t", 0, records(b"never"))


def test_a_topic_made_anew_is_found_by_its_new_id(cluster, admin, topic):
    producer, fetcher = Producer(cluster), Fetcher(cluster)
    producer.send(topic, 0, records(b"old"))
    with Cluster(cluster.config) as other:
        second = Admin(other)
        second.delete_topics([topic])
        second.create_topics([NewTopic(topic, 3, 1)])
    assert Producer(cluster).send(topic, 0, records(b"new")).offset == 0
    assert values(fetcher, topic, 0) == [b"new"]
