"""`TopicPartition`: one partition of one topic, by the name that every Kafka client gives it."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """Equal to, and hashed like, the plain tuple `(topic, partition)`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
