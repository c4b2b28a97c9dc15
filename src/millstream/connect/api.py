"""What a connector is: Kafka Connect's own classes, in Python.

A `Connector` says which settings it has and deals its work to tasks. A `SourceTask` brings records with
the position in the source where each was read; a `SinkTask` takes records away. A task is made, used and
stopped by one thread at a time, and may wait for its server: nobody else waits with it.

A source returns from `poll` soon, with what there is or with nothing; `idle_ms` says how long it may be left
alone then. What it returned is written to Kafka together with its offsets, in one transaction.
A sink's `put` may keep records until `flush`; what was put before a flush that returned is done for good. A
sink that decides itself what is done, such as one that collects records for a file, has `pre_commit` instead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from millstream.connect.config.config_def import ConfigDef, ConfigValue
from millstream.connect.data.record import SinkRecord, SourceRecord
from millstream.wire.topic_partition import TopicPartition

Settings = dict[str, str]
Offset = dict[str, Any]


@dataclass(slots=True)
class SourceContext:
    """`offset` is where a partition of the source was read to, by the last transaction; None at first. With
    `transaction.boundary=connector` a transaction ends after a poll in which the task has called
    `commit_transaction`."""

    offset: Callable[[Mapping[str, Any]], Offset | None]
    commit_transaction: Callable[[], None] = lambda: None


@dataclass(slots=True)
class SinkContext:
    """`report` sends one record to the dead letters instead of failing with it (KIP-610); it raises where
    `errors.tolerance` is none. `request_commit` asks for a commit before the next records come."""

    report: Callable[[SinkRecord, Exception], None]
    request_commit: Callable[[], None] = lambda: None


class Position(NamedTuple):
    """Where a partition goes on after a restart, and what is kept beside that (up to 4,096 characters)."""

    offset: int
    metadata: str = ""


class SourceTask(ABC):
    idle_ms: float = 100
    steady: ClassVar[bool] = False
    """Whether it wants to be asked after `idle_ms` and no later; the others are asked less often, up to four
    times that, the longer nothing comes."""

    commits_records: ClassVar[bool] = False
    """Whether `commit_records` is called."""

    def start(self, settings: Settings, context: SourceContext) -> None:  # noqa: B027
        """Once, before the first poll."""

    @abstractmethod
    def poll(self) -> Sequence[SourceRecord]: ...

    def commit_records(  # noqa: B027
        self, where: TopicPartition, offset: int, records: Sequence[SourceRecord]
    ) -> None:
        """These records stand in a partition one after the other, the first at this offset. Called before
        `committed`, for the last batch of each partition."""

    def committed(self) -> None:  # noqa: B027
        """All that was polled so far is in Kafka."""

    def stop(self) -> None:  # noqa: B027
        """Once, after the last call; also where `start` has failed."""


class SinkTask(ABC):
    due: float | None = None
    """When `put` is wanted though no record came (with an empty list), by time.monotonic()."""

    def start(self, settings: Settings, context: SinkContext) -> None:  # noqa: B027
        """Once, before the first put."""

    def open(self, positions: Mapping[TopicPartition, str]) -> None:  # noqa: B027
        """The partitions of this task, each with what `flush` returned for it last, or an empty text."""

    @abstractmethod
    def put(self, records: Sequence[SinkRecord]) -> None:
        """RetriableError: the same records come again later."""

    def preview(self, records: Sequence[SinkRecord], settings: Settings) -> list[str]:
        """What `put` would do with these records, in words; nothing is done, and nobody is asked. `settings`
        are those of the first task, which is neither started nor opened."""
        return []

    def flush(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, str]:
        """Everything below these offsets is to be done for good. What is returned (up to 4,096 characters) is
        kept beside a partition's offset in Kafka, and committed with it. RetriableError: again later."""
        return {}

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Position]:
        """What may be committed, of partitions whose records were put up to these offsets."""
        metadata = self.flush(offsets)
        return {which: Position(offset, metadata.get(which, "")) for which, offset in offsets.items()}

    def committed(self, positions: Mapping[TopicPartition, Position]) -> None:  # noqa: B027
        """These are in Kafka. Only for taking note: work is for the next `put`."""

    def stop(self) -> None:  # noqa: B027
        """Once, after the last call; also where `start` has failed."""


class Connector(ABC):
    """`version` is what GET /connector-plugins shows."""

    config: ClassVar[ConfigDef]
    version: ClassVar[str] = "4.3.1"
    task: ClassVar[type[SourceTask] | type[SinkTask]]

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.request_task_reconfiguration: Callable[[], None] = lambda: None
        """Any thread may call it: `task_settings` is asked again, and tasks that changed begin anew."""

    def start(self) -> None:  # noqa: B027
        """Once, before the tasks are dealt. What is wrong beyond single settings is a ConnectError here."""

    def task_settings(self, max_tasks: int) -> list[Settings]:
        """The settings of each task."""
        return [dict(self.settings)]

    def stop(self) -> None:  # noqa: B027
        """The connector is deleted, stopped, or gets other settings."""

    def alter_offsets(self, offsets: Sequence[Mapping[str, Any]]) -> bool:
        """Refuse offsets that make no sense here (ConnectError); True if those of the framework are all that
        this connector has."""
        return False

    @classmethod
    def validate(cls, settings: Settings) -> dict[str, ConfigValue]:
        return cls.config.validate(settings)


class SourceConnector(Connector):
    task: ClassVar[type[SourceTask]]
    exactly_once: ClassVar[bool] = True
    """Whether its offsets name the position of each record, so that none is doubled or left out."""
    defines_transactions: ClassVar[bool] = False
    """Whether its tasks call `commit_transaction`, which `transaction.boundary=connector` asks for."""


class SinkConnector(Connector):
    task: ClassVar[type[SinkTask]]

    def task_settings(self, max_tasks: int) -> list[Settings]:
        """As many as are allowed: a sink's tasks share the partitions of its topics."""
        return [dict(self.settings) for _ in range(max_tasks)]
