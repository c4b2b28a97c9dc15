"""Which offsets a partition has: the first, the next to be written, the first at or after a moment in
time."""

from collections.abc import Mapping
from typing import NamedTuple

from millstream.client.cluster import MOVED, Cluster
from millstream.client.errors import describe
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


class Offset(NamedTuple):
    """An answer; offset -1 means that there is no such record."""

    offset: int
    timestamp: int
    leader_epoch: int


def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    *,
    read_committed: bool = False,
    timeout: float | None = None,
) -> dict[TopicPartition, Offset]:
    """The offset of each (topic, partition) for a timestamp in milliseconds, or for one of the constants
    above."""
    oldest = max((_FIRST_VERSION.get(timestamp, 0) for timestamp in wanted.values()), default=0)
    left = dict(wanted)
    found: dict[TopicPartition, Offset] = {}
    retry = cluster.retry(timeout)
    while True:
        problem: KafkaError | None = None
        for node_id, partitions in cluster.by_leader(left).items():
            try:
                answers = _request(
                    cluster, node_id, {key: left[key] for key in partitions}, oldest, read_committed
                )
            except KafkaError as error:
                if error.code is ErrorCode.unsupported_version:
                    raise
                problem = error
                continue
            for partition, answer in answers.items():
                if isinstance(answer, Offset):
                    found[partition] = answer
                    del left[partition]
                else:
                    problem = answer
        if not left:
            return found
        if problem is None:
            problem = KafkaError(
                ErrorCode.unknown_server_error, "the broker left out partitions in its answer"
            )
        retry.pause(problem)
        if problem.code in MOVED:
            cluster.refresh({topic for topic, _ in left})


def _request(
    cluster: Cluster, node_id: int, wanted: Mapping[TopicPartition, int], oldest: int, read_committed: bool
) -> dict[TopicPartition, Offset | KafkaError]:
    connection = cluster.connection(node_id)
    connection.version("list_offsets", at_least=oldest)
    topics: dict[str, list[dict[str, int]]] = {}
    for (topic, partition), timestamp in wanted.items():
        entry = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": timestamp}
        topics.setdefault(topic, []).append(entry)
    answer = connection.request(
        "list_offsets",
        replica_id=-1,
        isolation_level=1 if read_committed else 0,
        topics=[{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        timeout=round(cluster.config.request_timeout * 1000),
    )
    found: dict[TopicPartition, Offset | KafkaError] = {}
    for topic in answer.topics:
        for result in topic.partitions:
            key = TopicPartition(str(topic.name), int(result.partition_index))
            if result.error_code is ErrorCode.none:
                found[key] = Offset(
                    int(result.offset), int(result.timestamp), int(getattr(result, "leader_epoch", -1))
                )
            else:
                subject = f"partition {topic.name}-{result.partition_index}"
                found[key] = KafkaError(result.error_code, describe(result.error_code, subject=subject))
    return found
