"""What only kafka-python does: more of the admin side than the others."""

import uuid
from collections.abc import Callable, Mapping

import pytest
from kafka import TopicPartition
from kafka.admin import ConfigResource, OffsetSpec
from kafka.errors import InvalidReplicationAssignmentError, NoReassignmentInProgressError

from millstream.wire.errors import ErrorCode

from .clients import Client, KafkaPython, Record

NewTopic = Callable[..., str]
T0 = 1_700_000_000_000


@pytest.fixture
def python(clients: Mapping[str, Client]) -> KafkaPython:
    client = clients["kafka-python"]
    assert isinstance(client, KafkaPython)
    return client


def test_the_folders_and_what_is_in_them(python: KafkaPython, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    python.produce(topic, [Record(b"x" * 1000, None, (), 0)])
    (broker,) = python.admin.describe_log_dirs()
    assert broker["broker"] == next(iter(python.describe_cluster()[2]))
    (folder,) = broker["log_dirs"]
    assert folder["error_code"] == 0
    assert folder["log_dir"].startswith("/")
    assert folder["total_bytes"] > folder["usable_bytes"] > 0
    (found,) = (one for one in folder["topics"] if one["name"] == topic)
    sizes = {one["partition_index"]: one["partition_size"] for one in found["partitions"]}
    assert sizes[0] > 1000
    assert sizes[1] == 0
    assert all(one["offset_lag"] == 0 and not one["is_future_key"] for one in found["partitions"])


def test_the_folders_of_one_topic(python: KafkaPython, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    python.produce(topic, [Record(b"v", None, (), 1)])  # Kafka makes the folder a moment after the topic
    (broker,) = python.admin.describe_log_dirs({topic: [1]})
    ((found,),) = (folder["topics"] for folder in broker["log_dirs"])
    assert (found["name"], [one["partition_index"] for one in found["partitions"]]) == (topic, [1])


def test_topics_and_their_partitions_page_by_page(python: KafkaPython, new_topic: NewTopic) -> None:
    first, second = sorted([new_topic(partitions=3), new_topic(partitions=2)])
    page = python.admin.describe_topic_partitions([second, first], response_partition_limit=2)
    (found,) = page["topics"]
    assert found["name"] == first
    assert [one["partition_index"] for one in found["partitions"]] == [0, 1]
    assert found["topic_id"] is not None
    seen = len(found["partitions"])
    cursor = page["next_cursor"]
    assert cursor is not None
    while cursor is not None:
        page = python.admin.describe_topic_partitions(
            [first, second], response_partition_limit=2, cursor=cursor
        )
        seen += sum(len(one["partitions"]) for one in page["topics"])
        cursor = page["next_cursor"]
    assert seen == len(python.describe_topic(first)) + len(python.describe_topic(second))


def test_describing_partitions_of_an_unknown_topic(python: KafkaPython, name: str) -> None:
    (found,) = python.admin.describe_topic_partitions([name])["topics"]
    assert (found["name"], found["error_code"]) == (name, ErrorCode.unknown_topic_or_partition)


def test_resources_that_have_settings(python: KafkaPython, new_topic: NewTopic) -> None:
    topic = new_topic()
    resources = python.admin.list_config_resources()
    broker = str(next(iter(python.describe_cluster()[2])))
    assert topic in resources["topic"]
    assert resources["broker"] == [broker]
    assert list(python.admin.list_config_resources(["TOPIC"])) == ["topic"]


def test_where_a_setting_comes_from(python: KafkaPython, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"segment.bytes": "2000000", "retention.ms": "5000"})
    resource = ConfigResource("TOPIC", topic)
    described = python.admin.describe_configs([resource], include_synonyms=True, config_filter="all")[
        "topic"
    ][topic]

    def synonyms(name: str) -> list[tuple[str, str, str]]:
        return [(one["name"], one["value"], one["source"]) for one in described[name]["synonyms"]]

    assert described["retention.ms"]["config_type"] == "LONG"
    assert synonyms("segment.bytes") == [
        ("segment.bytes", "2000000", "DYNAMIC_TOPIC_CONFIG"),
        ("log.segment.bytes", "1073741824", "DEFAULT_CONFIG"),
    ]
    # `log.retention.ms` has no default.
    assert synonyms("retention.ms") == [("retention.ms", "5000", "DYNAMIC_TOPIC_CONFIG")]
    assert synonyms("compression.type") == [("compression.type", "producer", "DEFAULT_CONFIG")]


def test_reassignments_on_a_cluster_of_one(python: KafkaPython, new_topic: NewTopic) -> None:
    topic = new_topic()
    broker = next(iter(python.describe_cluster()[2]))
    where = TopicPartition(topic, 0)
    assert python.admin.list_partition_reassignments() == {}
    assert python.admin.list_partition_reassignments({topic: [0]}) == {}
    assert python.admin.alter_partition_reassignments({where: [broker]}) == {where: None}
    assert python.admin.alter_partition_reassignments({where: [4711]}) == {
        where: InvalidReplicationAssignmentError
    }
    assert python.admin.alter_partition_reassignments({where: None}) == {where: NoReassignmentInProgressError}
    assert python.describe_topic(topic) == {0: (broker, [broker], [broker])}


def test_the_features_of_the_cluster(python: KafkaPython) -> None:
    features = python.admin.describe_features()
    low, high = features["metadata.version"]["finalized"]
    assert low == high
    assert features["metadata.version"]["supported"][0] <= low <= features["metadata.version"]["supported"][1]


def test_the_versions_that_clients_count_on(python: KafkaPython) -> None:
    versions = {key.name: span for key, span in python.admin.api_versions().items()}
    # Listed from 0, though 0 to 2 are refused: as Kafka 4 does for old librdkafka.
    assert versions["Produce"][0] == 0
    assert versions["Produce"][1] >= 13
    assert versions["Fetch"][0] == 4
    assert versions["ApiVersions"] >= (0, 4)
    assert versions["Metadata"] >= (0, 13)


def test_producers_of_a_partition(python: KafkaPython, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    where = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    python.produce(topic, [Record(b"%d" % n, None, (), 0) for n in range(5)], idempotent=True)
    python.produce(topic, [Record(b"plain", None, (), 1)])
    states = python.admin.describe_producers(where)
    (producer,) = states[where[0]].active_producers
    assert producer.producer_epoch == 0
    assert producer.last_sequence == 4
    assert producer.current_transaction_start_offset in (-1, None)
    assert states[where[1]].active_producers == []


def test_list_offsets(python: KafkaPython, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"retention.ms": "-1"})
    for moment in (100, 900, 300):
        python.produce(topic, [Record(b"v", None, (), 0, T0 + moment)])
    where = TopicPartition(topic, 0)

    def listed(spec: object) -> tuple[int, int]:
        found = python.admin.list_partition_offsets({where: spec})[where]
        return found.offset, found.timestamp

    assert listed(OffsetSpec.EARLIEST) == (0, -1)
    assert listed(OffsetSpec.LATEST) == (3, -1)
    assert listed(OffsetSpec.MAX_TIMESTAMP) == (1, T0 + 900)
    assert listed(OffsetSpec.EARLIEST_LOCAL) == (0, -1)
    assert listed(T0 + 250) == (1, T0 + 900)


def test_every_leader_is_preferred_already(python: KafkaPython, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    answer = python.admin.elect_leaders(0, {topic: [0, 1]})
    (result,) = answer.replica_election_results
    assert {one.error_code for one in result.partition_result} == {ErrorCode.election_not_needed}


def test_a_topic_described_by_its_id(python: KafkaPython, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    (by_name,) = python.admin.describe_topics([topic])
    (by_id,) = python.admin.describe_topics([uuid.UUID(str(by_name["topic_id"]))])
    assert (by_id["name"], len(by_id["partitions"])) == (topic, 2)
    (unknown,) = python.admin.describe_topics([uuid.uuid4()])
    assert unknown["error_code"] == ErrorCode.unknown_topic_id


def test_a_topic_deleted_by_its_id(python: KafkaPython, new_topic: NewTopic) -> None:
    topic = new_topic()
    (described,) = python.admin.describe_topics([topic])
    python.admin.delete_topics([uuid.UUID(str(described["topic_id"]))])
    assert topic not in python.topics()


@pytest.mark.parametrize("version", [(2, 1), (2, 8), (3, 9)])
def test_a_client_that_believes_it_talks_to_an_older_broker(
    python: KafkaPython, new_topic: NewTopic, version: tuple[int, int]
) -> None:
    """The older message versions still work."""
    topic = new_topic()
    producer = python.producer(api_version=version, compression_type="gzip")
    assert producer.send(topic, b"old", key=b"k", headers=[("h", b"1")]).get(timeout=20).offset == 0
    producer.close()
    consumer = python.consumer(api_version=version)
    try:
        where = TopicPartition(topic, 0)
        consumer.assign([where])
        assert consumer.end_offsets([where]) == {where: 1}
        consumer.seek(where, 0)
        (record,) = python.read(consumer, 1)
        assert (record.value, record.key, list(record.headers)) == (b"old", b"k", [("h", b"1")])
    finally:
        consumer.close()
