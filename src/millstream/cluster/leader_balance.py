"""Which leaderships should go back to the preferred replicas, the first ones of their partitions.

After a broker was down, others lead what it led; when it is back and in sync, nothing would change that. The
controller looks at an interval (`leader.imbalance.check.interval.seconds`, unless
`auto.leader.rebalance.enable` is false) and elects a bounded number at a time: every election makes clients
look for a new leader. As in Kafka 4, any partition that can go back does; there is no percentage below which
a broker may miss some.
"""

from collections.abc import Iterator
from itertools import islice

from millstream.cluster.image import Image
from millstream.wire.topic_partition import TopicPartition

MAX_ELECTIONS = 1000  # at a time


def leaderships_to_return(image: Image, limit: int = MAX_ELECTIONS) -> list[TopicPartition]:
    """Partitions that are led by another than their preferred replica although that one could lead."""
    active = image.active_brokers()
    if len(active) < 2:
        return []
    return list(islice(_candidates(image, active), limit))


def _candidates(image: Image, active: set[int]) -> Iterator[TopicPartition]:
    for topic_id, partitions in image.partitions.items():
        for partition in partitions:
            preferred = partition.replicas[0]
            if partition.leader != preferred and preferred in active and preferred in partition.isr:
                yield TopicPartition(image.topics_by_id[topic_id].name, partition.index)
