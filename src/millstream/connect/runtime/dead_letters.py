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
MAX_DEAD_LETTER_BYTES = 1_000_000
"""Below what brokers take by default, with room for the batch."""


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


def to_dead_letter(record: Record, headers: tuple[tuple[str, bytes], ...]) -> Record:
    """Key, value, headers and time of the original. What makes it too large is left out: the trace first,
    then all that was added, because a dead letter that no broker takes would stop the task."""
    small = tuple(one for one in headers if not one[0].endswith("stacktrace") and len(one[1]) < 4096)
    for added in (headers, small):
        dead_letter = record._replace(headers=(*record.headers, *added))
        if size_of(dead_letter) <= MAX_DEAD_LETTER_BYTES:
            return dead_letter
    return record


def size_of(dead_letter: Record) -> int:
    inside = sum(len(name) + len(value or b"") + 8 for name, value in dead_letter.headers)
    return inside + len(dead_letter.key or b"") + len(dead_letter.value or b"") + 64


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
