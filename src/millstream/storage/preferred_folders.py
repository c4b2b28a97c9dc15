"""The data folder that a replica is meant for before it is here (AlterReplicaLogDirs, KIP-113).

Kept in memory only, as in Kafka: a restart forgets it. Clients can name any partition, so that there is a
limit.
"""

from millstream.wire.topic_partition import TopicPartition

MAX_FOLDERS = 10_000  # the oldest go first


class PreferredFolders:
    def __init__(self) -> None:
        self._folders: dict[TopicPartition, str] = {}

    def remember(self, key: TopicPartition, folder: str) -> None:
        """The last word counts."""
        self.forget(key)
        self._folders[key] = folder
        if len(self._folders) > MAX_FOLDERS:
            self.forget(next(iter(self._folders)))

    def forget(self, key: TopicPartition) -> None:
        self._folders.pop(key, None)

    def of(self, key: TopicPartition) -> str | None:
        return self._folders.get(key)
