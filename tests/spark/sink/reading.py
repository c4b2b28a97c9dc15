"""What consumers see of a topic, read with the plain client."""

from millstream.client import EARLIEST, LATEST, Cluster, Fetcher, list_offsets, visible_batches
from millstream.client.fetch import next_offset
from millstream.client.offsets import Offset
from millstream.wire.records import Record, iter_records
from millstream.wire.topic_partition import TopicPartition
from tests.support.waiting import wait_until


def records_of(
    cluster: Cluster, topic: str, read_committed: bool = True, settled: bool = True
) -> dict[int, list[Record]]:
    """All records by partition. `settled` waits for transactions to end; else, up to where a reader
    gets now."""
    cluster.refresh([topic])
    topic_partitions = [(topic, number) for number in cluster.topic(topic).partitions]
    at = {
        topic_partition: found.offset
        for topic_partition, found in list_offsets(cluster, dict.fromkeys(topic_partitions, EARLIEST)).items()
    }

    def ends_now() -> dict[TopicPartition, Offset]:
        return list_offsets(cluster, dict.fromkeys(topic_partitions, LATEST), read_committed=read_committed)

    # A coordinator answers before it has written the end of a transaction into all logs.
    if settled:
        wait_until(lambda: ends_now() == list_offsets(cluster, dict.fromkeys(topic_partitions, LATEST)))
    ends = ends_now()
    found: dict[int, list[Record]] = {number: [] for _, number in topic_partitions}
    fetcher = Fetcher(cluster, read_committed=read_committed)
    while left := {
        topic_partition: offset
        for topic_partition, offset in at.items()
        if offset < ends[topic_partition].offset
    }:
        for answer in fetcher.poll(left):
            topic_partition = (answer.topic, answer.partition)
            for _, batch in visible_batches(answer, at[topic_partition], read_committed):
                found[answer.partition] += [r for r in iter_records(batch) if at[topic_partition] <= r.offset]
            at[topic_partition] = next_offset(answer, at[topic_partition])
    return found


def values_of(
    cluster: Cluster, topic: str, read_committed: bool = True, settled: bool = True
) -> list[bytes | None]:
    """All values, partition after partition."""
    return [r.value for found in records_of(cluster, topic, read_committed, settled).values() for r in found]
