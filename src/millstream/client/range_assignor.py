"""How the leader of a classic group divides the partitions, and what it tells the members (in the bytes of
`wire.consumer_protocol`, version 0, which Kafka's clients all understand)."""

from collections.abc import Iterable, Mapping

from millstream.wire import consumer_protocol
from millstream.wire.topic_partition import TopicPartition

RANGE = "range"


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def range_assign(
    subscriptions: Mapping[str, Iterable[str]], partitions: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Kafka's range assignor: each topic's partitions in one piece per member, the first members one more
    where it does not come out even."""
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    for topic in sorted(partitions):
        subscribers = sorted(member for member, topics in subscriptions.items() if topic in topics)
        if not subscribers:
            continue
        each, extra = divmod(partitions[topic], len(subscribers))
        start = 0
        for index, member in enumerate(subscribers):
            count = each + (index < extra)
            assigned[member] += [TopicPartition(topic, number) for number in range(start, start + count)]
            start += count
    return assigned


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    return consumer_protocol.encode_assignment(0, partitions_by_topic(partitions))


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions that a leader assigned to a member; none where it speaks a format of its own."""
    try:
        by_topic = consumer_protocol.parse_assignment(data).partitions
    except consumer_protocol.UNREADABLE:
        return ()
    return tuple(TopicPartition(topic, index) for topic, indexes in by_topic.items() for index in indexes)
