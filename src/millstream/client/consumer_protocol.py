"""What the members of a consumer group tell each other through its coordinator, in the classic protocol: the
topics that each subscribes to, and the partitions that the group's leader assigns. Kafka's clients all speak
version 0 of it."""

import struct
from collections.abc import Iterable, Mapping, Sequence

from millstream.wire.primitives import INT16, INT32, read_bytes
from millstream.wire.topic_partition import TopicPartition
from millstream.wire.varint import Malformed

PROTOCOL_TYPE = "consumer"
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


def encode_subscription(topics: Sequence[str]) -> bytes:
    """Version 0: the topics, no user data."""
    names = b"".join(INT16.pack(len(data)) + data for data in (topic.encode() for topic in topics))
    return INT16.pack(0) + INT32.pack(len(topics)) + names + INT32.pack(-1)


def decode_subscription(data: bytes) -> list[str]:
    """The topics; every version begins with them."""
    topics = []
    at = 6
    for _ in range(INT32.unpack_from(data, 2)[0]):
        name, at = read_bytes(data, at + 2, INT16.unpack_from(data, at)[0])
        topics.append(name.decode())
    return topics


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    encoded = []
    topics = partitions_by_topic(partitions)
    for name, numbers in topics.items():
        data = name.encode()
        encoded.append(
            INT16.pack(len(data)) + data + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
        )
    return INT16.pack(0) + INT32.pack(len(topics)) + b"".join(encoded) + INT32.pack(-1)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions that a leader assigned to a member; none where it speaks a format of its own."""
    found: list[TopicPartition] = []
    try:
        count = INT32.unpack_from(data, 2)[0] if data else 0
        at = 6
        for _ in range(count):
            name, at = read_bytes(data, at + 2, INT16.unpack_from(data, at)[0])
            partitions = INT32.unpack_from(data, at)[0]
            numbers = struct.unpack_from(f">{partitions}i", data, at + 4)
            found += [TopicPartition(name.decode(), number) for number in numbers]
            at += 4 + 4 * partitions
    except (Malformed, struct.error, UnicodeDecodeError):
        return ()
    return tuple(found)
