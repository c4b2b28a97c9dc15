"""Dead letters: the record as it was in its topic, with headers that say what went wrong."""

from __future__ import annotations

import traceback

from millstream.client import Admin, Cluster, NewTopic
from millstream.connect.errors import ConnectError
from millstream.connect.runtime.tolerance import Failure
from millstream.wire.errors import KafkaError
from millstream.wire.records import Record
from millstream.wire.topic_partition import TopicPartition

HEADER_PREFIX = "__connect.errors."


def context_headers(
    connector: str, task: int, topic_partition: TopicPartition, offset: int, failure: Failure
) -> tuple[tuple[str, bytes], ...]:
    error = failure.error
    trace = "".join(traceback.format_exception(error))
    java_class = (
        error.java_class
        if isinstance(error, ConnectError)
        else "org.apache.kafka.connect.errors.ConnectException"
    )
    named = {
        "topic": topic_partition.topic,
        "partition": str(topic_partition.partition),
        "offset": str(offset),
        "connector.name": connector,
        "task.id": str(task),
        "stage": failure.stage.value,
        "class.name": failure.class_name,
        "exception.class.name": java_class,
        "exception.message": str(error),
        "exception.stacktrace": trace,
    }
    return tuple((HEADER_PREFIX + name, text.encode()) for name, text in named.items())


def dead_letter(record: Record, headers: tuple[tuple[str, bytes], ...]) -> Record:
    """Key, value, headers and time of the original."""
    return record._replace(headers=(*record.headers, *headers))


def create_topic(cluster: Cluster, topic: str, replication_factor: int) -> None:
    """With one partition, as Kafka makes it; fewer replicas where there are fewer brokers."""
    problems = cluster.refresh({topic})
    if topic not in problems:
        return
    wanted = min(replication_factor, max(1, len(cluster.nodes)))
    try:
        Admin(cluster).create_if_missing(NewTopic(topic, 1, wanted))
    except KafkaError as error:
        raise ConnectError(f"Could not initialize dead letter queue with topic={topic}: {error}") from None
