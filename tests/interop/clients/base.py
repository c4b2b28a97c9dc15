"""What the tests ask of every client."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

Headers = Sequence[tuple[str, bytes | None]]

CREATE_TIME, LOG_APPEND_TIME = 0, 1
ACKS_ALL = -1


class Refused(Exception):
    """The broker answered with an error code."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Record(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None
    # set on what was read
    offset: int = -1
    timestamp_type: int = CREATE_TIME


class Config(NamedTuple):
    value: str | None
    source: int  # Kafka's number: 1 topic, 2 broker, 3 cluster-wide, 4 static, 5 default
    read_only: bool
    sensitive: bool


class Client(ABC):
    """One client library. Every call may make clients of its own; close() ends what is kept."""

    name: str
    # partitioners by our name: murmur2 is the Java client's hash of the key
    partitioners: Mapping[str, object]

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __repr__(self) -> str:
        return self.name

    def close(self) -> None:  # noqa: B027, most have nothing to end
        """End what is kept between calls."""

    @abstractmethod
    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        acks: int = ACKS_ALL,
        compression: str = "none",
        idempotent: bool = False,
        partitioner: str | None = None,
    ) -> list[tuple[int, int]]:
        """Send and wait; (partition, offset) of each (offset -1 where acks is 0)."""

    @abstractmethod
    def consume(self, topic: str, partition: int, *, start: int = 0, count: int = 1) -> list[Record]:
        """Read by assignment, from an offset, until there are `count` records."""

    @abstractmethod
    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        """(earliest, latest) offset."""

    @abstractmethod
    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        """The first offset whose timestamp is not before the one given."""

    @abstractmethod
    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        replicas: int = 1,
        configs: Mapping[str, str] | None = None,
        assignment: Mapping[int, list[int]] | None = None,
        validate_only: bool = False,
    ) -> None: ...

    @abstractmethod
    def delete_topic(self, topic: str) -> None: ...

    @abstractmethod
    def create_partitions(self, topic: str, total: int) -> None: ...

    @abstractmethod
    def topics(self) -> set[str]: ...

    @abstractmethod
    def describe_topic(self, topic: str) -> dict[int, tuple[int, list[int], list[int]]]:
        """partition -> (leader, replicas, in-sync replicas)."""

    @abstractmethod
    def configs(self, kind: str, name: str) -> dict[str, Config]:
        """All settings of a resource: kind is "topic" or "broker"."""

    @abstractmethod
    def replace_configs(self, kind: str, name: str, configs: Mapping[str, str]) -> None:
        """AlterConfigs: what is not named goes back to its default."""

    @abstractmethod
    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Returns the new low watermark."""

    @abstractmethod
    def describe_cluster(self) -> tuple[str, int, dict[int, str]]:
        """(cluster id, controller id, {broker id: "host:port"})."""
