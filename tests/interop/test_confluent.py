"""What only confluent-kafka (librdkafka) does."""

from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import (
    ElectionType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
    Uuid,
)
from confluent_kafka.admin import OffsetSpec

from millstream.wire.errors import ErrorCode

from .clients import Client, Confluent, Record

NewTopic = Callable[..., str]
WAIT = 20
T0 = 1_700_000_000_000


@pytest.fixture
def confluent(clients: Mapping[str, Client]) -> Confluent:
    client = clients["confluent"]
    assert isinstance(client, Confluent)
    return client


def test_a_topic_has_an_id_that_a_new_one_of_its_name_does_not_share(
    confluent: Confluent, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=2)
    described = confluent.admin.describe_topics(TopicCollection([topic]))[topic].result(WAIT)
    assert isinstance(described.topic_id, Uuid)
    assert described.name == topic
    assert not described.is_internal
    again = confluent.admin.describe_topics(TopicCollection([topic]))[topic].result(WAIT)
    assert str(again.topic_id) == str(described.topic_id)
    other = new_topic()
    described_other = confluent.admin.describe_topics(TopicCollection([other]))[other].result(WAIT)
    assert str(described_other.topic_id) != str(described.topic_id)


def test_authorized_operations_are_told_when_asked(confluent: Confluent, new_topic: NewTopic) -> None:
    topic = new_topic()
    asked = confluent.admin.describe_topics(TopicCollection([topic]), include_authorized_operations=True)
    names = {operation.name for operation in asked[topic].result(WAIT).authorized_operations}
    assert names == {
        "READ",
        "WRITE",
        "CREATE",
        "DELETE",
        "ALTER",
        "DESCRIBE",
        "DESCRIBE_CONFIGS",
        "ALTER_CONFIGS",
    }
    cluster = confluent.admin.describe_cluster(include_authorized_operations=True).result(WAIT)
    assert {"CREATE", "ALTER", "DESCRIBE", "CLUSTER_ACTION"} <= {
        one.name for one in cluster.authorized_operations
    }


@pytest.mark.parametrize("isolation", [IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED])
def test_list_offsets(confluent: Confluent, new_topic: NewTopic, isolation: IsolationLevel) -> None:
    topic = new_topic(configs={"retention.ms": "-1"})
    times = [100, 900, 300]
    for moment in times:
        confluent.produce(topic, [Record(b"v", None, (), 0, T0 + moment)])

    def listed(spec: OffsetSpec) -> tuple[int, int]:
        where = TopicPartition(topic, 0)
        found = confluent.admin.list_offsets({where: spec}, isolation_level=isolation)[where].result(WAIT)
        return found.offset, found.timestamp

    assert listed(OffsetSpec.earliest()) == (0, -1)
    assert listed(OffsetSpec.latest()) == (3, -1)
    assert listed(OffsetSpec.max_timestamp()) == (1, T0 + 900)
    assert listed(OffsetSpec.for_timestamp(T0 + 101)) == (1, T0 + 900)
    assert listed(OffsetSpec.for_timestamp(T0 + 901)) == (-1, -1)


def test_list_offsets_of_an_empty_partition(confluent: Confluent, new_topic: NewTopic) -> None:
    where = TopicPartition(new_topic(), 0)
    for spec, offset in [
        (OffsetSpec.max_timestamp(), -1),
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), 0),
    ]:
        assert confluent.admin.list_offsets({where: spec})[where].result(WAIT).offset == offset


def test_a_leader_that_leads_already_needs_no_election(confluent: Confluent, new_topic: NewTopic) -> None:
    topic = new_topic()
    for kind in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        elected = confluent.admin.elect_leaders(kind, [TopicPartition(topic, 0)]).result(WAIT)
        (error,) = elected.values()
        assert error.code() == ErrorCode.election_not_needed


def test_electing_a_leader_of_what_is_not_there(confluent: Confluent, name: str) -> None:
    elected = confluent.admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(name, 0)]).result(WAIT)
    (error,) = elected.values()
    assert error.code() == ErrorCode.unknown_topic_or_partition


def test_a_consumer_does_not_make_topics(confluent: Confluent, name: str) -> None:
    consumer = confluent.consumer()
    try:
        consumer.assign([TopicPartition(name, 0, 0)])
        assert consumer.poll(1) is None
    finally:
        consumer.close()
    assert name not in confluent.topics()


def test_a_producer_learns_that_a_partition_does_not_exist(confluent: Confluent, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=1)
    producer = confluent.producer(**{"message.timeout.ms": 3000, "topic.metadata.propagation.max.ms": 0})
    errors = []
    producer.produce(topic, b"v", partition=0)
    producer.flush(WAIT)
    try:
        producer.produce(topic, b"v", partition=5, on_delivery=lambda error, _: errors.append(error.code()))
        producer.flush(WAIT)
    except KafkaException as error:
        errors.append(error.args[0].code())
    assert errors in (
        [KafkaError._UNKNOWN_PARTITION],
        [KafkaError.UNKNOWN_TOPIC_OR_PART],
        [KafkaError._MSG_TIMED_OUT],
    )


def test_an_idempotent_producer_with_five_requests_in_flight(
    confluent: Confluent, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=3)
    producer = confluent.producer(
        **{
            "enable.idempotence": True,
            "batch.num.messages": 10,
            "linger.ms": 0,
            "max.in.flight.requests.per.connection": 5,
        }
    )
    for n in range(3000):
        producer.produce(topic, b"%d" % n, partition=n % 3)
    assert producer.flush(WAIT) == 0
    for partition in range(3):
        got = confluent.consume(topic, partition, count=1000)
        assert [record.value for record in got] == [b"%d" % n for n in range(partition, 3000, 3)]


def test_a_checksum_is_asked_of_every_record(confluent: Confluent, new_topic: NewTopic) -> None:
    topic = new_topic()
    confluent.produce(topic, [Record(b"v" * 100, None, (), 0)] * 50, compression="lz4")
    consumer = confluent.consumer(**{"check.crcs": True})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert len(confluent.read(consumer, 50)) == 50
    finally:
        consumer.close()


def test_the_end_of_a_partition_is_told(confluent: Confluent, new_topic: NewTopic) -> None:
    topic = new_topic()
    confluent.produce(topic, [Record(b"v", None, (), 0)] * 3)
    consumer = confluent.consumer(**{"enable.partition.eof": True})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert len(confluent.read(consumer, 3)) == 3
        message = consumer.poll(WAIT)
        assert message is not None
        assert message.error().code() == KafkaError._PARTITION_EOF
        assert message.offset() == 3
    finally:
        consumer.close()


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_both_isolation_levels_read_plain_records(
    confluent: Confluent, new_topic: NewTopic, isolation: str
) -> None:
    topic = new_topic()
    confluent.produce(topic, [Record(b"v", None, (), 0)] * 3)
    consumer = confluent.consumer(**{"isolation.level": isolation})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert len(confluent.read(consumer, 3)) == 3
    finally:
        consumer.close()


def test_small_fetches_get_through_a_large_log(confluent: Confluent, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"segment.bytes": "1048576"})
    records = [Record(b"%08d" % n * 50, None, (), 0) for n in range(5000)]
    confluent.produce(topic, records)
    consumer = confluent.consumer(
        **{"fetch.message.max.bytes": 2000, "fetch.max.bytes": 1_000_000, "message.max.bytes": 1_000_000}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert [record.value for record in confluent.read(consumer, 5000)] == [
            record.value for record in records
        ]
    finally:
        consumer.close()
