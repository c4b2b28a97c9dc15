"""The commands that the controller takes, and its replies.

Commands and replies are plain data, near to the requests of Kafka's protocol but free of its versions. A
command that names several things (topics, partitions, resources) is answered thing by thing, each with its
own error code; only a command that fails as a whole is answered with a `KafkaError`.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from millstream.cluster.metadata_records import Endpoint
from millstream.wire.errors import ErrorCode
from millstream.wire.topic_partition import TopicPartition

TopicRef = str | UUID
Reply = TypeVar("Reply", covariant=True)


class Command(Generic[Reply]):
    """A command to the controller, which answers with a Reply."""

    __slots__ = ()


PRODUCER_ID_BLOCK = 1000


class Result(NamedTuple):
    """How one part of a command went."""

    error: ErrorCode = ErrorCode.none
    message: str | None = None

    @property
    def ok(self) -> bool:
        return self.error is ErrorCode.none


OK = Result()


# --- brokers and the controller -----------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class ClaimController(Command[int]):
    """This broker takes over the log. Reply: the new controller epoch."""

    broker_id: int


@dataclass(slots=True, eq=False)
class RegisterBroker(Command[int]):
    """A broker appears, comes back with a new epoch, or changes its registration. Reply: its epoch."""

    broker_id: int
    epoch: int
    incarnation: str
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    draining: bool = False
    lost_data: bool = False  # the page cache is gone: what it held unsynced cannot be counted on


@dataclass(slots=True, eq=False)
class BrokerLost(Command[None]):
    """That life of the broker is over: session gone, or its port refuses connections. Reply: None."""

    broker_id: int
    epoch: int


@dataclass(slots=True, eq=False)
class UnregisterBroker(Command[None]):
    """Forget a broker. One that is alive leads nothing from then on, and comes back only by a restart. Reply:
    None, or a KafkaError."""

    broker_id: int


# --- topics -------------------------------------------------------------------------------------------------


class NewTopic(NamedTuple):
    name: str
    num_partitions: int = -1  # -1: the default
    replication_factor: int = -1
    # (partition, broker ids); then the two above stay -1.
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Mapping[str, str | None] = {}


class TopicCreated(NamedTuple):
    name: str
    error: ErrorCode = ErrorCode.none
    message: str | None = None
    topic_id: UUID | None = None
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}  # those given, not the effective ones


@dataclass(slots=True, eq=False)
class CreateTopics(Command[list[TopicCreated]]):
    """Reply: list[TopicCreated], one per name."""

    topics: Sequence[NewTopic]
    validate_only: bool = False


class TopicDeleted(NamedTuple):
    topic: TopicRef  # as requested
    name: str | None
    topic_id: UUID | None
    error: ErrorCode = ErrorCode.none
    message: str | None = None


@dataclass(slots=True, eq=False)
class DeleteTopics(Command[list[TopicDeleted]]):
    """Topics by name or by id. Reply: list[TopicDeleted] in this order, one for what is named twice."""

    topics: Sequence[TopicRef]


@dataclass(frozen=True, slots=True)
class MorePartitions:
    name: str
    count: int  # the new total
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(slots=True, eq=False)
class CreatePartitions(Command[dict[str, Result]]):
    """Reply: dict[name, Result]."""

    topics: Sequence[MorePartitions]
    validate_only: bool = False


# --- settings -----------------------------------------------------------------------------------------------


class ConfigOp(enum.IntEnum):
    """Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Resource(NamedTuple):
    """What settings belong to: ("topic", name), ("broker", "1"), ("broker", "") for all brokers, ("group",
    id)."""

    scope: str
    name: str


class ConfigChange(NamedTuple):
    name: str
    op: ConfigOp
    value: str | None = None


@dataclass(slots=True, eq=False)
class AlterConfigs(Command[dict[Resource, Result]]):
    """Changes some settings (IncrementalAlterConfigs). Reply: dict[Resource, Result]."""

    resources: Sequence[tuple[Resource, Sequence[ConfigChange]]]
    validate_only: bool = False


@dataclass(slots=True, eq=False)
class SetConfigs(Command[dict[Resource, Result]]):
    """Replaces all settings of a resource (the old AlterConfigs). Reply: dict[Resource, Result]."""

    resources: Sequence[tuple[Resource, Mapping[str, str | None]]]
    validate_only: bool = False


# --- partitions ---------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class ElectLeaders(Command[dict[TopicPartition, Result]]):
    """Reply: dict[(topic name, partition), Result]; with partitions=None those that need no election are left
    out."""

    partitions: Sequence[TopicPartition] | None
    unclean: bool = False


@dataclass(slots=True, eq=False)
class AlterReassignments(Command[dict[TopicPartition, Result]]):
    """Moves replicas; replicas=None cancels. Reply: dict[(topic name, partition), Result]."""

    partitions: Sequence[tuple[str, int, Sequence[int] | None]]
    allow_replication_factor_change: bool = True


@dataclass(frozen=True, slots=True)
class IsrProposal:
    topic_id: UUID
    index: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[tuple[int, int]]  # (broker id, broker epoch as the leader knows it; -1 = not given)
    recovering: bool = False


@dataclass(slots=True, eq=False)
class AlterPartition(Command[dict[tuple[UUID, int], Result]]):
    """A leader proposes ISRs. Reply: dict[(topic id, partition), Result]; the image tells what came of it."""

    broker_id: int
    broker_epoch: int
    proposals: Sequence[IsrProposal]


LOST_DIRECTORY = UUID(int=2)  # DirectoryId.LOST (KIP-858): of a replica that its broker cannot write


@dataclass(slots=True, eq=False)
class ReplicasFailed(Command[dict[tuple[UUID, int], Result]]):
    """A broker cannot write its replicas of these partitions. Reply: dict[(topic id, partition), Result]."""

    broker_id: int
    broker_epoch: int
    partitions: Sequence[tuple[UUID, int]]


# --- the rest -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    first: int
    count: int = PRODUCER_ID_BLOCK


@dataclass(slots=True, eq=False)
class AllocateProducerIds(Command[ProducerIdBlock]):
    """Reply: ProducerIdBlock."""

    broker_id: int
    broker_epoch: int


class UpgradeType(enum.IntEnum):
    """Kafka's numbers."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


@dataclass(slots=True, eq=False)
class UpdateFeatures(Command[None]):
    """All or none. Reply: None, or a KafkaError."""

    updates: Sequence[FeatureUpdate]
    validate_only: bool = False
