"""Where a batch ends when a task reads several topics and there is more of them than a batch takes.

Kafka Streams chooses the oldest record of all that its topics have. A task here has whole ranges of each
topic; if one of them is cut, the records behind the cut may be older than much of what the other topics have
in the same batch. So the others are cut at the time of the first record that is left behind: what is newer
waits for the next batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.client import Cluster, Fetcher, list_offsets, visible_batches
from millstream.wire.records import iter_records
from millstream.wire.topic_partition import TopicPartition

_A_RECORD = 64 * 1024  # bytes to fetch when one record is wanted; brokers send at least one batch


def aligned(
    cluster: Cluster,
    topics: Iterable[str],
    begin: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """New ends for the topics of one sub-topology. Something of the topic that is furthest behind is always
    taken."""
    topics = list(topics)
    cut = {
        topic_partition: offset
        for topic_partition, offset in end.items()
        if topic_partition.topic in topics and offset < latest[topic_partition]
    }
    if not cut:
        return {}
    left_behind = _times(cluster, cut)
    found: dict[TopicPartition, int] = {}
    for number in {number for _, number in cut}:
        times = {
            topic: left_behind[TopicPartition(topic, number)]
            for topic in topics
            if TopicPartition(topic, number) in left_behind
        }
        if not times:
            continue
        first = min(times.values())
        others = [
            TopicPartition(topic, number)
            for topic in topics
            if TopicPartition(topic, number) in end and times.get(topic) != first
        ]
        wanted = {
            topic_partition: first
            for topic_partition in others
            if end[topic_partition] > begin.get(topic_partition, 0)
        }
        for topic_partition, at in (list_offsets(cluster, wanted) if wanted else {}).items():
            if 0 <= at.offset < end[topic_partition]:
                found[topic_partition] = max(at.offset, begin.get(topic_partition, 0))
    return found


def _times(cluster: Cluster, topic_partitions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The timestamp of the first record at or after an offset. Where a fetch shows none, the position is left
    out."""
    found: dict[TopicPartition, int] = {}
    fetcher = Fetcher(cluster, read_committed=True, partition_max_bytes=_A_RECORD)
    for answer in fetcher.poll(dict(topic_partitions), 500):
        topic_partition = TopicPartition(answer.topic, answer.partition)
        for _, batch in visible_batches(answer, topic_partitions[topic_partition], read_committed=True):
            for record in iter_records(batch):
                if record.offset >= topic_partitions[topic_partition] and topic_partition not in found:
                    found[topic_partition] = record.timestamp
    return found
