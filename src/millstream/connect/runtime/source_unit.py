"""A source's task as a unit of the host: what it polls goes into Kafka with its offsets, all or nothing."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from millstream.client import Admin, NewTopic, Producer, Sent, TransactionalProducer
from millstream.client.fetch import Fetched
from millstream.client.producer import Batch
from millstream.client.transaction_commits import TransactionCommit
from millstream.connect.api import SourceContext, SourceTask
from millstream.connect.config.config_def import with_prefix
from millstream.connect.config.config_providers import resolve
from millstream.connect.config.connector_config import SOURCE_CONFIG
from millstream.connect.config.java_regex import compile_regex
from millstream.connect.data.record import SourceRecord
from millstream.connect.errors import ConnectError, RetriableError
from millstream.connect.plugins import find_connector
from millstream.connect.runtime.client_settings import client_settings, compression
from millstream.connect.runtime.offset_file import append, read_file
from millstream.connect.runtime.offset_records import OffsetState, offset_key, offset_value, read_offsets
from millstream.connect.runtime.pipeline import Pipeline, names
from millstream.connect.runtime.source_blocks import ProducerRecord
from millstream.connect.runtime.task_spec import TOPIC_METRIC, TaskSpec
from millstream.connect.runtime.tolerance import Failure, RecordFailed, Stage, Tolerance
from millstream.host.errors import FinalError
from millstream.host.unit import LaneContext, UnitStatus
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.murmur2 import murmur2, partition_for
from millstream.wire.records import Record, encode_batch
from millstream.wire.topic_partition import TopicPartition
from millstream.wire.varint import varint_size

log = logging.getLogger("millstream.connect")

TRANSACTION_TIMEOUT_MS = 60_000
MAX_BATCH_BYTES = 900_000
MAX_TRANSACTION_BYTES = 16 << 20
MAX_IDLE_FACTOR = 4
DEFAULT_INTERVAL_MS = 60_000
RETRY_SECONDS = 1.0
MAX_HASHED = 4096
SURELY_SMALL = 16 << 10
_BATCH_OVERHEAD, _RECORD_OVERHEAD = 61, 21


class _Batch:
    """What one partition gets in the round that is being filled."""

    __slots__ = ("bytes", "partition", "records", "sources", "topic")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic, self.partition = topic, partition
        self.records: list[Record] = []
        self.sources: list[SourceRecord] = []
        self.bytes = 0


class SourceUnit:
    """See `millstream.host.unit.Unit`."""

    fetch_bytes = 1 << 20

    def __init__(self, spec: TaskSpec, lane: LaneContext) -> None:
        self.status = UnitStatus()
        self._spec = spec
        self._cluster = lane.cluster(spec.client)
        settings = resolve(spec.settings, spec.providers)
        task_settings = resolve(spec.task, spec.providers)
        self._settings = settings
        parsed = SOURCE_CONFIG.parse(settings)
        self._boundary = parsed["transaction.boundary"].lower() if spec.exactly_once else "poll"
        self._interval = (parsed["transaction.boundary.interval.ms"] or DEFAULT_INTERVAL_MS) / 1000
        self._commit_at: float | None = None
        self._asked_to_commit = False
        own = client_settings("producer", settings, spec.worker)
        self._max_request_size = max_request_size(own)
        self._codec, self._level = compression(own)
        self._tolerance = Tolerance(parsed, f"{spec.connector}-{spec.number}")
        self._pipeline = Pipeline(settings, spec.worker, self._tolerance)
        # Whoever had the id is fenced now, and what he wrote has its end: what is read next is final.
        self._producer = self._take_over()
        self._offsets = self._read_offsets()
        connector = find_connector(spec.settings["connector.class"], spec.plugin_path)
        task = connector.task()
        assert isinstance(task, SourceTask)
        self._task = task
        self._rounds: list[dict[TopicPartition, list[Record]]] = []
        self._bytes = 0
        self._batches_of_round: dict[TopicPartition, _Batch] = {}
        self._batch: _Batch | None = None
        # Of tasks that want to know where their records went: the last batch of each partition, while it is
        # filled and while it is written.
        self._last_batches: dict[TopicPartition, _Batch] = {}
        self._in_flight: dict[TopicPartition, _Batch] = {}
        self._sent: dict[TopicPartition, Sent] = {}
        self._source_offsets: dict[bytes, bytes | None] = {}
        self._uncommitted = False
        self._next_partition: defaultdict[str, int] = defaultdict(int)
        self._idle, self._due = 1.0, 0.0
        self._known_topics: set[str] = set()
        # Hashes of keys: the same ones come again and again.
        self._hashed: dict[bytes, int] = {}
        # Partitions of topics, looked up once for each transaction.
        self._counts: dict[str, int] = {}
        try:
            task.start(task_settings, SourceContext(self._offset_of, self._commit_requested))
        except BaseException:
            with contextlib.suppress(Exception):
                task.stop()
            raise

    def _take_over(self) -> Producer:
        if not self._spec.exactly_once:
            return Producer(self._cluster)
        producer = TransactionalProducer(
            self._cluster, self._spec.transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        producer.begin()
        return producer

    def _read_offsets(self) -> OffsetState:
        if self._spec.offsets_file is not None:
            return read_file(Path(self._spec.offsets_file))
        topic = self._spec.offsets_topic
        return OffsetState() if topic is None else read_offsets(self._cluster, topic)

    def _offset_of(self, partition: Mapping[str, Any]) -> dict[str, Any] | None:
        return self._offsets.offset(self._spec.connector, partition)

    def _commit_requested(self) -> None:
        self._asked_to_commit = True

    # --- polling --------------------------------------------------------------------------------------------

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        return {}

    def receive(self, fetched: Fetched) -> None:
        raise AssertionError("a source fetches nothing")

    @property
    def due(self) -> float | None:
        if self._boundary == "interval" and self._commit_at is not None:
            return min(self._due, self._commit_at) if self._due else self._due
        return self._due

    def poll(self) -> bool:
        try:
            records = self._task.poll()
        except RetriableError as error:
            log.warning("%s-%d: %s; tried again soon", self._spec.connector, self._spec.number, error)
            self._due = time.monotonic() + (RETRY_SECONDS if error.delay is None else error.delay)
            return False
        except ConnectError as error:
            raise FinalError(str(error)) from error
        if not records:
            # The longer nothing comes, the less often it is asked.
            now, pause = time.monotonic(), self._task.idle_ms
            self._due = now + pause / 1000 if self._task.steady else next_beat(now, int(pause * self._idle))
            self._idle = min(self._idle * 1.25, MAX_IDLE_FACTOR)
            return False
        self._idle, self._due = 1.0, 0.0
        now = int(time.time() * 1000)
        self._take(records, now)
        self._remember_offsets(records)
        self.status.read += len(records)
        self._uncommitted = True
        if self._commit_at is None:
            self._commit_at = time.monotonic() + self._interval
        return True

    def _take(self, records: Sequence[SourceRecord], now: int) -> None:
        block = self._pipeline.block_to_bytes(records, now)
        for record, in_block in zip(records, block, strict=True):
            try:
                written = in_block or self._alone(record, now)
                if written is not None:
                    self._add(*written)
                    if self._task.commits_records and self._batch is not None:
                        self._batch.sources.append(record)
            except RecordFailed as failed:
                self._tolerance.log_failure(failed.failure, record)
            except ConnectError as error:
                raise FinalError(_with_cause(error)) from error

    def _alone(self, record: SourceRecord, now: int) -> ProducerRecord:
        """None for a record that a transform drops."""
        made = self._pipeline.transform(record)
        return None if made is None else (made.topic, made.partition, self._pipeline.to_bytes(made, now))

    def _remember_offsets(self, records: Sequence[SourceRecord]) -> None:
        """The last one of each source partition is what counts; making its key costs more than a record."""
        partition: Mapping[str, Any] | None = None
        offset: Mapping[str, Any] | None = None
        for record in records:
            found = record.source_partition
            if found is None:
                continue
            if partition is not None and found is not partition and found != partition:
                self._source_offsets[offset_key(self._spec.connector, partition)] = offset_value(offset)
            partition, offset = found, record.source_offset
        if partition is not None:
            self._source_offsets[offset_key(self._spec.connector, partition)] = offset_value(offset)

    def _add(self, topic: str, partition: int | None, wire: Record) -> None:
        if partition is None:
            partition = self._partition_for(topic, wire.key)
        size = len(wire.key or b"") + len(wire.value or b"") + 64
        if (size > SURELY_SMALL or wire.headers) and size_when_serialized(wire) > self._max_request_size:
            raise self._too_large(wire)
        batch = self._batch
        # Records of one partition come after each other: the batch of the last one is at hand.
        if (
            batch is None
            or batch.partition != partition
            or batch.topic != topic
            or batch.bytes + size > MAX_BATCH_BYTES
        ):
            batch = self._batch_of(TopicPartition(topic, partition), size)
        batch.records.append(wire)
        batch.bytes += size
        self._bytes += size

    def _batch_of(self, which: TopicPartition, size: int) -> _Batch:
        """Of the last round, if there is room for so many bytes, else of a new one."""
        found = self._batches_of_round.get(which)
        if not self._rounds or (found is not None and found.bytes + size > MAX_BATCH_BYTES):
            self._rounds.append({})
            self._batches_of_round = {}
            found = None
        if found is None:
            found = self._batches_of_round[which] = _Batch(which.topic, which.partition)
            self._rounds[-1][which] = found.records
            self._last_batches[which] = found
        self._batch = found
        return found

    def _too_large(self, wire: Record) -> Exception:
        """What Kafka's producer says. It would say the same at every try."""
        said = ConnectError(
            f"The message is {size_when_serialized(wire)} bytes when serialized which is larger than "
            f"{self._max_request_size}, which is the value of the max.request.size configuration."
        )
        failure = Failure(Stage.KAFKA_PRODUCE, "org.apache.kafka.clients.producer.KafkaProducer", said)
        try:
            self._tolerance.fail(failure)
        except ConnectError:
            return FinalError(f"Unrecoverable exception from producer send callback: {said}")
        return RecordFailed(failure)

    def _partition_for(self, topic: str, key: bytes | None) -> int:
        count = self._counts.get(topic)
        if count is None:
            self._make_sure_of(topic)
            count = self._counts[topic] = len(self._cluster.topic(topic, create=True).partitions)
        if key is not None:
            found = self._hashed.get(key)
            if found is None:
                if len(self._hashed) >= MAX_HASHED:
                    self._hashed.clear()
                found = self._hashed[key] = murmur2(key) & 0x7FFFFFFF
            return found % count
        self._next_partition[topic] = (self._next_partition[topic] + 1) % count
        return self._next_partition[topic]

    def _make_sure_of(self, topic: str) -> None:
        """Create a topic with the connector's own settings for it (KIP-158), where there are any."""
        if topic in self._known_topics:
            return
        self._known_topics.add(topic)
        wanted = creation_settings(self._settings, topic)
        if wanted is None or topic not in self._cluster.refresh({topic}):
            return
        try:
            Admin(self._cluster).create_if_missing(wanted)
        except KafkaError as error:
            raise FinalError(f"topic {topic} cannot be created: {error}") from None

    # --- committing -----------------------------------------------------------------------------------------

    @property
    def uncommitted(self) -> bool:
        if not self._uncommitted or self._boundary == "poll":
            return self._uncommitted
        if self._boundary == "connector":
            return self._asked_to_commit
        return self._commit_at is not None and time.monotonic() >= self._commit_at

    @property
    def full(self) -> bool:
        if self._boundary == "connector":
            return self._asked_to_commit
        return self._bytes > MAX_TRANSACTION_BYTES

    def prepare_commit(self) -> TransactionCommit | None:
        rounds = self._batches()
        self.status.written += sum(len(held) for one in self._rounds for held in one.values())
        offsets = self._source_offsets
        for one in self._rounds:
            for which in one:
                self.status.metrics[f"{TOPIC_METRIC}{which.topic}"] = time.time()
        self._rounds, self._bytes, self._source_offsets = [], 0, {}
        self._batches_of_round, self._batch = {}, None
        self._in_flight, self._last_batches, self._sent = self._last_batches, {}, {}
        try:
            if isinstance(self._producer, TransactionalProducer):
                return TransactionCommit(self._producer, rounds, "", {})
            for batches in rounds:
                self._sent |= self._producer.send_batches(batches)
            if self._spec.offsets_file is not None and offsets:
                append(Path(self._spec.offsets_file), offsets)
        except KafkaError as error:
            if error.code is ErrorCode.message_too_large:
                raise FinalError(f"a record is larger than the broker takes: {error}") from error
            raise
        return None

    def _batches(self) -> list[dict[TopicPartition, Batch]]:
        transactional = self._spec.exactly_once
        queues: defaultdict[TopicPartition, deque[Batch]] = defaultdict(deque)
        for one in self._rounds:
            for which, held in one.items():
                queues[which].append(
                    encode_batch(held, self._codec, level=self._level, transactional=transactional)
                )
        offsets = self._offset_batches(transactional)
        if transactional:
            for which, batch in offsets.items():
                queues[which].append(batch)
        rounds: list[dict[TopicPartition, Batch]] = []
        while queues:
            rounds.append({which: queue.popleft() for which, queue in queues.items()})
            queues = defaultdict(deque, {which: queue for which, queue in queues.items() if queue})
        if offsets and not transactional:
            rounds.append(offsets)  # after all records: what is not known to be written is read again
        return rounds

    def _offset_batches(self, transactional: bool) -> dict[TopicPartition, Batch]:
        topic = self._spec.offsets_topic
        if topic is None or not self._source_offsets:
            return {}
        count = len(self._cluster.topic(topic).partitions)
        now = int(time.time() * 1000)
        by_partition: defaultdict[TopicPartition, list[Record]] = defaultdict(list)
        for key, value in self._source_offsets.items():
            by_partition[TopicPartition(topic, partition_for(key, count))].append(Record(0, now, key, value))
        return {
            which: encode_batch(held, transactional=transactional) for which, held in by_partition.items()
        }

    def committed(self, commit: TransactionCommit | None) -> None:
        self._uncommitted = self._asked_to_commit = False
        self._counts.clear()
        self._commit_at = None
        self.status.commits += 1
        self._commit_records(self._sent if commit is None else commit.sent)
        self._task.committed()

    def _commit_records(self, sent: Mapping[TopicPartition, Sent]) -> None:
        written, self._in_flight = self._in_flight, {}
        if not self._task.commits_records:
            return
        for which, batch in written.items():
            where = sent.get(which)
            if where is not None and where.offset >= 0 and batch.sources:
                self._task.commit_records(which, where.offset, batch.sources)

    def close(self) -> None:
        self._task.stop()
        self._pipeline.close()

    def abandon(self) -> None:
        if isinstance(self._producer, TransactionalProducer) and self._producer.announced:
            with contextlib.suppress(KafkaError, OSError):
                self._producer.abort()
        with contextlib.suppress(Exception):
            self._task.stop()


def next_beat(now: float, pause_ms: int) -> float:
    """When a task is asked again that had nothing: at the next multiple of its pause, so that all tasks of a
    lane that have nothing wake it together instead of one after the other."""
    return (int(now * 1000) // pause_ms + 1) * pause_ms / 1000 if pause_ms > 0 else now


def max_request_size(own: Mapping[str, str]) -> int:
    """By the settings of the task's producer, else Kafka's default."""
    given = own.get("max.request.size")
    try:
        return int(given) if given is not None else 1 << 20
    except ValueError:
        raise FinalError(f"max.request.size is not a number: {given}") from None


def size_when_serialized(record: Record) -> int:
    """As Kafka's producer estimates it: a batch of this record alone, before it is compressed."""
    parts = [record.key, record.value]
    for name, value in record.headers:
        parts += [name.encode(), value]
    sizes = sum(1 if part is None else varint_size(len(part)) + len(part) for part in parts)
    return _BATCH_OVERHEAD + _RECORD_OVERHEAD + sizes + varint_size(len(record.headers))


def creation_settings(settings: Mapping[str, str], topic: str) -> NewTopic | None:
    """By the first group that includes the topic and does not exclude it, else the default; None where the
    connector says nothing."""
    if "topic.creation.default.partitions" not in settings:
        return None
    for group in [*names(settings.get("topic.creation.groups")), "default"]:
        own = with_prefix(settings, f"topic.creation.{group}.")
        include = names(own.pop("include", ".*"))
        exclude = names(own.pop("exclude", ""))
        if any(compile_regex(one).fullmatch(topic) for one in exclude):
            continue
        if any(compile_regex(one).fullmatch(topic) for one in include):
            defaults = with_prefix(settings, "topic.creation.default.")
            partitions = int(own.pop("partitions", defaults["partitions"]))
            replicas = int(own.pop("replication.factor", defaults.get("replication.factor", "-1")))
            return NewTopic(topic, partitions, replicas, own)
    return None


def _with_cause(error: ConnectError) -> str:
    return f"{error}: {error.__cause__}" if error.__cause__ is not None else str(error)
