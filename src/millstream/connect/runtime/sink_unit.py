"""A sink's task as a unit of the host: records of its partitions to the task, then the group's offsets.

Offsets are committed in a transaction of the task's own id, so a task that was given to somebody else cannot
commit any more. Dead letters are in the same transaction: each is written once.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from millstream.client import EARLIEST, TransactionalProducer, list_offsets
from millstream.client.fetch import Fetched, next_offset
from millstream.client.groups import Groups
from millstream.client.producer import Batch
from millstream.client.transaction_commits import TransactionCommit
from millstream.connect.api import Position, SinkContext, SinkTask
from millstream.connect.config.config_providers import resolve
from millstream.connect.config.connector_config import SINK_CONFIG
from millstream.connect.config.java_regex import compile_regex
from millstream.connect.data.fetched_records import TimedRecord, committed_records
from millstream.connect.data.record import SinkRecord
from millstream.connect.errors import ConnectError, RetriableError
from millstream.connect.plugins import find_connector
from millstream.connect.runtime.client_settings import client_settings, first_offset, poll_records
from millstream.connect.runtime.dead_letters import (
    MAX_DEAD_LETTER_BYTES,
    context_headers,
    create_topic,
    size_of,
    to_dead_letter,
)
from millstream.connect.runtime.pipeline import Pipeline
from millstream.connect.runtime.redrive import at_dead_letter, belongs, count_redrive, is_chosen, original
from millstream.connect.runtime.task_spec import TOPIC_METRIC, TaskSpec
from millstream.connect.runtime.tolerance import Failure, RecordFailed, Stage, Tolerance
from millstream.filters import compile_filter
from millstream.host.errors import FinalError
from millstream.host.unit import LaneContext, UnitStatus
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.murmur2 import partition_for
from millstream.wire.records import Record, encode_batch
from millstream.wire.topic_partition import TopicPartition

log = logging.getLogger("millstream.connect")

TRANSACTION_TIMEOUT_MS = 60_000
REFRESH_SECONDS = 5.0
RETRY_SECONDS = 1.0
AHEAD = 8
"""With how many puts left the next records are fetched."""
COMMIT_SHARE = 0.1
"""Of the time of a task that is behind, for its commits, which may wait for a disk: what they are of is out
already."""
LONGEST_PACE = 1.0
MANY_DEAD_LETTERS = 1000
_NOWHERE = Position(-1)


class _Held(NamedTuple):
    """Fetched and not yet put: records of one partition, and where it goes on after them."""

    which: TopicPartition
    records: list[TimedRecord]
    after: int


class SinkUnit:
    """See `millstream.host.unit.Unit`."""

    fetch_bytes = 1 << 20

    def __init__(self, spec: TaskSpec, lane: LaneContext) -> None:
        self.status = UnitStatus()
        self._spec = spec
        self._cluster = lane.cluster(spec.client)
        self._groups = Groups(self._cluster)
        settings = resolve(spec.settings, spec.providers)
        self._parsed = SINK_CONFIG.parse(settings)
        own = client_settings("consumer", settings, spec.worker)
        self._first_offset, self._poll_records = first_offset(own), poll_records(own)
        self._tolerance = Tolerance(self._parsed, f"{spec.connector}-{spec.number}")
        self._pipeline = Pipeline(settings, spec.worker, self._tolerance)
        self._dead_letter_topic = self._parsed["errors.deadletterqueue.topic.name"]
        if self._dead_letter_topic:
            create_topic(
                self._cluster,
                self._dead_letter_topic,
                self._parsed["errors.deadletterqueue.topic.replication.factor"],
            )
        self._producer = TransactionalProducer(
            self._cluster, spec.transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        self._producer.begin()
        connector = find_connector(spec.settings["connector.class"], spec.plugin_path)
        task = connector.task()
        assert isinstance(task, SinkTask)
        self._task = task
        self._positions: dict[TopicPartition, int] = {}
        self._done: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._held: deque[_Held] = deque()
        self._dead_letters: list[tuple[TopicPartition, Record]] = []
        self._redriven = spec.redrive.ends() if spec.redrive is not None else {}
        where = spec.redrive.where if spec.redrive is not None else ""
        self._chosen = compile_filter(where) if where else None
        self._changed: set[TopicPartition] = set()
        self._committing: dict[TopicPartition, Position] = {}
        self._due = self._commit_at = 0.0
        self._prepared_at = self._paced_until = 0.0
        self._behind = False
        self._refresh_at = 0.0
        self._must_commit = False
        try:
            task.start(resolve(spec.task, spec.providers), SinkContext(self._report, self._request_commit))
            self._refresh()
        except BaseException:
            with contextlib.suppress(Exception):
                task.stop()
            raise

    # --- which partitions -----------------------------------------------------------------------------------

    def _mine(self) -> list[TopicPartition]:
        """Every so many-th partition of all topics."""
        topics = list(self._parsed["topics"])
        if not topics:
            self._cluster.refresh()
            pattern: re.Pattern[str] = compile_regex(self._parsed["topics.regex"])
            topics = [name for name in self._cluster.topics if pattern.fullmatch(name)]
        else:
            problems = self._cluster.refresh(set(topics))
            topics = [name for name in topics if name not in problems]
        whole = sorted(
            TopicPartition(topic, number)
            for topic in topics
            for number in self._cluster.topic(topic).partitions
        )
        return [*whole[self._spec.number :: self._spec.tasks], *self._redriven]

    def _refresh(self) -> None:
        """New topics and partitions are read from where the group is, or from their beginning."""
        self._refresh_at = time.monotonic() + REFRESH_SECONDS
        new = [which for which in self._mine() if which not in self._positions]
        if not new:
            return
        committed = self._groups.committed(self._spec.consumer_group, new)
        metadata = {}
        for which, found in committed.items():
            if isinstance(found, KafkaError):
                raise found
            self._positions[which] = found.offset
            metadata[which] = found.metadata or ""
        missing = [which for which in new if which not in self._positions]
        if missing:
            at = list_offsets(self._cluster, dict.fromkeys(missing, self._first_offset))
            self._positions |= {which: found.offset for which, found in at.items()}
        for which in new:
            self._done[which] = self._positions[which]
        try:
            self._task.open({which: metadata.get(which, "") for which in new})
            fresh = {which: self._done[which] for which in new if which not in metadata}
            # A task that keeps something beside its offsets has to know it before the first record as well.
            if fresh and self._task.flush(fresh):
                self._changed |= fresh.keys()
                self._must_commit = True
        except RetriableError:
            raise
        except ConnectError as error:
            raise FinalError(str(error)) from error

    # --- reading and putting --------------------------------------------------------------------------------

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        if len(self._held) > AHEAD:
            return {}
        if not self._redriven:
            return self._positions
        return {
            which: at
            for which, at in self._positions.items()
            if which not in self._redriven or at < self._redriven[which]
        }

    def receive(self, fetched: Fetched) -> None:
        which = TopicPartition(fetched.topic, fetched.partition)
        if fetched.error is ErrorCode.offset_out_of_range:
            first = list_offsets(self._cluster, {which: EARLIEST})[which].offset
            log.warning("%s: %s goes on at %d", self._spec.connector, which, first)
            self._positions[which] = self._done[which] = first
            return
        if fetched.error is not ErrorCode.none:
            raise KafkaError(fetched.error, f"{which} cannot be read")
        begin = self._positions[which]
        records = committed_records(fetched, begin)
        after = next_offset(fetched, begin)
        if which in self._redriven:
            after = min(after, self._redriven[which])
            records = [pair for pair in records if pair[0].offset < after]
        if after > begin:
            self._positions[which] = after
            for start in range(0, max(1, len(records)), self._poll_records):
                part = records[start : start + self._poll_records]
                last = start + self._poll_records >= len(records)
                self._held.append(_Held(which, part, after if last else part[-1][0].offset + 1))
        self._ends[which] = max(fetched.last_stable_offset, 0)
        self.status.lag = sum(max(0, end - self._done.get(one, end)) for one, end in self._ends.items())

    @property
    def due(self) -> float | None:
        times = [self._refresh_at]
        if self._commit_at:
            times.append(self._commit_at)
        if self._must_commit:
            pass  # nothing is put before that
        elif self._held:
            times.append(max(self._due, time.monotonic()))
        elif self._task.due is not None:
            times.append(max(self._task.due, self._due))
        return min(times)

    def poll(self) -> bool:
        now = time.monotonic()
        if now >= self._refresh_at:
            self._refresh()
        if now < self._due or self._must_commit:
            return False
        if not self._held:
            if self._task.due is not None and now >= self._task.due:
                self._put(None, [])
            return False
        held = self._held[0]
        records = self._read(held)
        if not self._put(held, records):
            return False
        self._held.popleft()
        self._done[held.which] = held.after
        self._changed.add(held.which)
        self._behind = bool(self._held) or any(
            self._done.get(which, end) < end for which, end in self._ends.items()
        )
        if held.records:
            self.status.metrics[f"{TOPIC_METRIC}{held.which.topic}"] = time.time()
        self.status.read += len(held.records)
        self.status.written += len(records)
        return bool(self._held)

    def _put(self, held: _Held | None, records: list[SinkRecord]) -> bool:
        """False where the task wants the same records later."""
        if held is not None and not records and self._task.due is None:
            return True
        try:
            self._task.put(records)
        except RetriableError as error:
            log.warning("%s-%d: %s; tried again soon", self._spec.connector, self._spec.number, error)
            self._due = time.monotonic() + (RETRY_SECONDS if error.delay is None else error.delay)
            if held is not None and held.records:
                begin = held.records[0][0].offset
                self._dead_letters = [
                    (which, dead_letter)
                    for which, dead_letter in self._dead_letters
                    if which != held.which or dead_letter.offset < begin
                ]
            return False
        except ConnectError as error:
            raise FinalError(_with_cause(error)) from error
        return True

    def _request_commit(self) -> None:
        self._must_commit = True

    def _read(self, held: _Held) -> list[SinkRecord]:
        """Converted and transformed, without those that are left out."""
        which = held.which
        if which in self._redriven:
            found = [self._converted(which, one, kind) for one, kind in held.records]
        else:
            found = self._pipeline.from_block(which, held.records)
            if self._pipeline.transforms or any(made is None for made in found):
                found = [
                    self._converted(which, one, kind, made)
                    for (one, kind), made in zip(held.records, found, strict=True)
                ]
        return [record for record in found if record is not None]

    def _converted(
        self, which: TopicPartition, record: Record, timestamp_type: str, read: SinkRecord | None = None
    ) -> SinkRecord | None:
        """`read` is the record where it has been read from its bytes already."""
        try:
            if which in self._redriven:
                if not belongs(record, self._spec.connector):
                    return None
                if self._chosen is not None and not is_chosen(self._chosen, which, record):
                    if self._dead_letter_topic:
                        self._dead_letters.append((which, record))
                    return None
                source, before = original(which, record)
                made = self._pipeline.from_bytes(source, before, timestamp_type)
                return self._pipeline.transform(at_dead_letter(made, which, record))
            if read is None:
                read = self._pipeline.from_bytes(which, record, timestamp_type)
            return self._pipeline.transform(read)
        except RecordFailed as failed:
            self._leave_out(which, record, failed.failure)
            return None
        except ConnectError as error:
            raise FinalError(_with_cause(error)) from error

    def _report(self, record: SinkRecord, error: Exception) -> None:
        """A record that the task itself rejects."""
        failure = Failure(
            Stage.TASK_PUT, f"{type(self._task).__module__}.{type(self._task).__qualname__}", error
        )
        self._tolerance.fail(failure)
        if record.wire is not None:
            which = TopicPartition(record.original_topic or "", record.original_partition or 0)
            self._leave_out(which, record.wire, failure)

    def _leave_out(self, which: TopicPartition, record: Record, failure: Failure) -> None:
        self._tolerance.log_failure(failure, f"{which}@{record.offset}")
        if self._dead_letter_topic:
            headers: tuple[tuple[str, bytes], ...] = ()
            source, offset, dead_letter = which, record.offset, record
            if which in self._redriven:
                source, before = original(which, record)
                offset, dead_letter = before.offset, count_redrive(record)
            if self._parsed["errors.deadletterqueue.context.headers.enable"]:
                headers = context_headers(self._spec.connector, self._spec.number, source, offset, failure)
            self._dead_letters.append((which, to_dead_letter(dead_letter, headers)))

    # --- committing -----------------------------------------------------------------------------------------

    @property
    def uncommitted(self) -> bool:
        return (self._must_commit or bool(self._changed)) and time.monotonic() >= self._commit_at

    @property
    def paced_until(self) -> float:
        """See `millstream.host.waiting.Paced`."""
        return self._paced_until if self._behind and len(self._dead_letters) < MANY_DEAD_LETTERS else 0.0

    @property
    def full(self) -> bool:
        return self._must_commit

    def prepare_commit(self) -> TransactionCommit | None:
        """None where the task has nothing that is done for good."""
        which = self._done if self._must_commit else self._changed
        self._commit_at, self._prepared_at = 0.0, time.monotonic()
        try:
            ready = self._task.pre_commit({one: self._done[one] for one in which})
        except RetriableError as error:
            log.warning("%s-%d: %s; tried again soon", self._spec.connector, self._spec.number, error)
            self._commit_at = time.monotonic() + (RETRY_SECONDS if error.delay is None else error.delay)
            return None
        except ConnectError as error:
            raise FinalError(_with_cause(error)) from error
        self._committing = dict(ready)
        self._changed.clear()
        if not ready:
            return None
        # A dead letter goes with the commit that passes its record: written earlier, it would be written
        # again when the record is read again.
        dead_letters = [
            one for where, one in self._dead_letters if one.offset < ready.get(where, _NOWHERE).offset
        ]
        self._dead_letters = [
            pair for pair in self._dead_letters if pair[1].offset >= ready.get(pair[0], _NOWHERE).offset
        ]
        offsets = {one: position.offset for one, position in ready.items()}
        metadata = {one: position.metadata for one, position in ready.items()}
        return TransactionCommit(
            self._producer,
            self._dead_letter_batches(dead_letters),
            self._spec.consumer_group,
            offsets,
            metadata,
        )

    def _dead_letter_batches(self, dead_letters: list[Record]) -> list[dict[TopicPartition, Batch]]:
        if not dead_letters:
            return []
        count = len(self._cluster.topic(self._dead_letter_topic).partitions)
        rounds: list[dict[TopicPartition, list[Record]]] = []
        sizes: dict[TopicPartition, int] = {}
        for dead_letter in dead_letters:
            number = (
                partition_for(dead_letter.key, count)
                if dead_letter.key is not None
                else dead_letter.offset % count
            )
            which = TopicPartition(self._dead_letter_topic, number)
            sizes[which] = sizes.get(which, 0) + size_of(dead_letter)
            if not rounds or sizes[which] > MAX_DEAD_LETTER_BYTES:
                rounds.append({})
                sizes = {which: size_of(dead_letter)}
            rounds[-1].setdefault(which, []).append(dead_letter)
        return [
            {which: encode_batch(held, transactional=True) for which, held in one.items()} for one in rounds
        ]

    def committed(self, commit: TransactionCommit | None) -> None:
        if self._commit_at:
            return  # it could not be prepared, and is tried again
        self._must_commit = False
        now = time.monotonic()
        self._paced_until = now + min(LONGEST_PACE, (now - self._prepared_at) * (1 / COMMIT_SHARE - 1))
        self.status.commits += 1
        committing, self._committing = self._committing, {}
        self._task.committed(committing)

    def close(self) -> None:
        self._task.stop()
        self._pipeline.close()

    def abandon(self) -> None:
        if self._producer.announced:
            with contextlib.suppress(KafkaError, OSError):
                self._producer.abort()
        with contextlib.suppress(Exception):
            self._task.stop()


def _with_cause(error: ConnectError) -> str:
    return f"{error}: {error.__cause__}" if error.__cause__ is not None else str(error)
