"""The topic `_schemas`: reads it from its beginning and follows it, and writes to it as the one leader.

Fencing. Two instances may both believe for a moment that they lead (one of them was paused, or cut off from
the group's coordinator). What they write must not collide, so the right to write is not taken from the group
but from the topic itself. A new leader asks the transaction coordinator for a producer id under a fixed name:
all leaders get the same producer id, each with a higher epoch than the one before. It then writes a NOOP
record with that epoch. From then on the partition's leader refuses every batch of a lower epoch: whatever an
older leader sent is before the NOOP, or it is not in the topic. The new leader reads up to its NOOP and so
knows all that it must not write again.

When the outcome of a write is not known (the broker went away), the leader fences itself anew in the same way
before it writes again. Batches carry sequence numbers, so a retried one is not written twice.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from millstream.client import (
    EARLIEST,
    LATEST,
    Admin,
    ClientConfig,
    Cluster,
    Fetcher,
    NewTopic,
    Producer,
    list_offsets,
)
from millstream.client.coordinators import TRANSACTION, Coordinators
from millstream.client.errors import Unreachable, check
from millstream.client.producer import init_producer_id
from millstream.wire.batch import next_sequence
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import Record, encode_batch, iter_batches, iter_records
from millstream.wire.topic_partition import TopicPartition

log = logging.getLogger(__name__)


class Entry(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


TOO_LARGE = frozenset({ErrorCode.message_too_large, ErrorCode.record_list_too_large})
FENCED = frozenset({ErrorCode.invalid_producer_epoch, ErrorCode.producer_fenced})
PARTITION_BYTES = 16 * 1024 * 1024
POLL_MS = 500
RELAXED_BYTES = 256 * 1024
PAUSE = 0.5


class Fenced(Exception):
    """Another leader has taken over."""


class TooLarge(Exception):
    """The record does not fit into the topic."""


class TopicUnusable(Exception):
    """The topic exists but must not be used for schemas; the message says why."""


@dataclass(frozen=True, slots=True)
class SchemasTopicConfig:
    name: str = "_schemas"
    replication_factor: int = 3
    check: bool = True
    producer_name: str = "schema-registry"  # the name under which leaders fence each other
    timeout: float = 5.0  # seconds, of one write
    init_timeout: float = 60.0


@dataclass(slots=True)
class _Epoch:
    producer_id: int
    epoch: int
    sequence: int = 0


class SchemasTopic:
    def __init__(self, config: ClientConfig, topic_config: SchemasTopicConfig) -> None:
        self._config = topic_config
        self._read_config = replace(config, total_timeout=topic_config.init_timeout)
        self._write_config = replace(config, total_timeout=topic_config.timeout)
        self._reader = Cluster(self._read_config)
        self._writer = Cluster(self._write_config)
        self._producer = Producer(self._writer, idempotent=False, create_topics=False)
        self._coordinators = Coordinators(self._writer, TRANSACTION)
        self._epoch: _Epoch | None = None
        self._position = 0
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._relaxed = False

    @property
    def cluster_id(self) -> str | None:
        return self._reader.cluster_id

    # Reading

    def load(self) -> tuple[list[Entry], int]:
        """Create the topic if need be, and read all that it holds. Returns the entries and the offset to
        follow from.

        A cluster that is not there yet is waited for: it may just be starting, too.
        """
        deadline = time.monotonic() + self._config.init_timeout
        waiting = False
        while True:
            try:
                self._prepare()
                break
            except Unreachable as error:
                if time.monotonic() > deadline or self._stopping.wait(PAUSE):
                    raise
                if not waiting:
                    log.warning("waiting for the Kafka cluster: %s", error.message)
                    waiting = True
        topic_partition = TopicPartition(self._config.name, 0)
        end = list_offsets(self._reader, {topic_partition: LATEST})[topic_partition].offset
        self._position = list_offsets(self._reader, {topic_partition: EARLIEST})[topic_partition].offset
        entries: list[Entry] = []
        fetcher = Fetcher(self._reader, partition_max_bytes=PARTITION_BYTES)
        while self._position < end:
            if time.monotonic() > deadline:
                raise KafkaError(
                    ErrorCode.request_timed_out, f"topic {self._config.name} could not be read in time"
                )
            entries += self._poll(fetcher)
        return entries, self._position

    def _prepare(self) -> None:
        name = self._config.name
        problem = self._reader.refresh([name]).get(name)
        if problem is None and name in self._reader.topics:
            self._check()
            return
        if problem is not None and problem.code is not ErrorCode.unknown_topic_or_partition:
            raise problem
        copies = max(1, min(self._config.replication_factor, len(self._reader.nodes)))
        Admin(self._reader).create_if_missing(NewTopic(name, 1, copies, {"cleanup.policy": "compact"}))
        deadline = time.monotonic() + self._config.init_timeout
        while self._reader.refresh([name]).get(name) is not None or not self._has_leader():
            if time.monotonic() > deadline:
                raise KafkaError(ErrorCode.request_timed_out, f"topic {name} was created but has no leader")
            time.sleep(0.05)

    def _has_leader(self) -> bool:
        topic = self._reader.topics.get(self._config.name)
        return topic is not None and all(
            one.leader in self._reader.nodes for one in topic.partitions.values()
        )

    def _check(self) -> None:
        name = self._config.name
        count = len(self._reader.topics[name].partitions)
        if count != 1:
            raise TopicUnusable(
                f"topic {name} has {count} partitions; schemas need one, for the order of all changes"
            )
        if not self._config.check:
            return
        answer = Admin(self._reader).describe_configs([(2, name)]).get((2, name), [])
        if isinstance(answer, KafkaError):
            log.warning("the settings of topic %s cannot be seen: %s", name, answer.message)
            return
        policy = next((one.value or "" for one in answer if one.name == "cleanup.policy"), "compact")
        if policy != "compact":
            raise TopicUnusable(
                f"topic {name} has cleanup.policy={policy}: schemas would be lost. Set it to compact, or "
                "kafkastore.topic.skip.validation=true to take the risk"
            )

    def _poll(self, fetcher: Fetcher) -> list[Entry]:
        topic_partition = TopicPartition(self._config.name, 0)
        entries: list[Entry] = []
        for answer in fetcher.poll({topic_partition: self._position}, POLL_MS):
            if answer.error is ErrorCode.offset_out_of_range:
                self._position = list_offsets(self._reader, {topic_partition: EARLIEST})[
                    topic_partition
                ].offset
                log.error(
                    "topic %s was cut off or replaced; reading it again from its beginning",
                    topic_partition[0],
                )
                continue
            check(answer.error, subject=f"topic {topic_partition[0]}")
            for header, batch in iter_batches(answer.records):
                last = header.last_offset
                if last < self._position:
                    continue
                if not header.is_control:
                    entries += [
                        Entry(record.offset, record.key, record.value, record.timestamp)
                        for record in iter_records(batch)
                        if record.offset >= self._position
                    ]
                self._position = last + 1
        return entries

    def relax(self, relaxed: bool) -> None:
        """Nobody waits for what is read next: a leader knows what it wrote. Then it is fetched in larger
        pieces."""
        self._relaxed = relaxed

    def follow(self, deliver: Callable[[list[Entry], int], None]) -> None:
        """Start the thread that hands on what is written from now on, with the offset after it."""
        self._thread = threading.Thread(
            target=self._follow, args=(deliver,), name="schemas-reader", daemon=True
        )
        self._thread.start()

    def _follow(self, deliver: Callable[[list[Entry], int], None]) -> None:
        eager = Fetcher(self._reader, partition_max_bytes=PARTITION_BYTES)
        patient = Fetcher(self._reader, partition_max_bytes=PARTITION_BYTES, min_bytes=RELAXED_BYTES)
        failing = False
        while not self._stopping.is_set():
            before = self._position
            try:
                entries = self._poll(patient if self._relaxed else eager)
                if failing:
                    log.info("topic %s can be read again", self._config.name)
                    failing = False
            except (KafkaError, OSError) as error:
                if self._stopping.is_set():
                    return
                if not failing:
                    log.warning("topic %s cannot be read: %s", self._config.name, error)
                    failing = True
                self._stopping.wait(PAUSE)
                continue
            if self._position != before:
                deliver(entries, self._position)

    # Writing. All of this runs in one thread.

    def fence(self, marker: tuple[bytes, bytes | None]) -> int:
        """Take the right to write from whoever had it, with this record. Returns its offset."""
        self._epoch = None
        name = self._config.producer_name
        producer_id, epoch = self._coordinators.call(
            name, lambda connection: init_producer_id(connection, name)
        )
        self._epoch = _Epoch(producer_id, epoch)
        return self.write([marker])[0].offset

    def write(self, pairs: Sequence[tuple[bytes, bytes | None]]) -> list[Entry]:
        """Append records, all or none. Returns them with the offsets that they got."""
        current = self._epoch
        if current is None:
            raise Fenced("this instance does not have the right to write")
        now = int(time.time() * 1000)
        batch = encode_batch(
            [Record(0, now, key, value, ()) for key, value in pairs],
            producer_id=current.producer_id,
            producer_epoch=current.epoch,
            base_sequence=current.sequence,
        )
        topic_partition = TopicPartition(self._config.name, 0)
        try:
            sent = self._producer.send_batches({topic_partition: batch})[topic_partition]
        except KafkaError as error:
            if error.code in TOO_LARGE:
                raise TooLarge(error.message) from None
            self._epoch = None  # whatever happened to this batch: nothing more in this epoch
            if error.code in FENCED:
                raise Fenced(error.message) from None
            raise
        current.sequence = next_sequence(current.sequence, len(pairs))
        return [Entry(sent.offset + index, key, value, now) for index, (key, value) in enumerate(pairs)]

    def close(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(POLL_MS / 1000 + 2)
        self._reader.close()
        self._writer.close()
