"""Records of some partitions of another cluster, as they are: keys, values, headers and times.

A position is the offset of the last record that was mirrored, so a task goes on behind it. Where the source
has no such offset any more (its records were deleted, or the topic was), and where a topic has another id
than before, the partition is read from its start.

With each commit it is noted where some of its records stand in both clusters (offset syncs): the first, every
`offset.lag.max`-th (up to a limit), and the last, which is what a group that has read everything needs.
"""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Sequence
from typing import Any

from millstream.client import EARLIEST, Cluster, Fetched, Fetcher, Producer, list_offsets, visible_batches
from millstream.client.fetch import next_offset
from millstream.client.messages import NO_ID
from millstream.connect.api import Settings, SourceContext, SourceTask
from millstream.connect.connectors.mirror.config import (
    SOURCE,
    cluster,
    offset_syncs_topic,
    reads_committed,
)
from millstream.connect.connectors.mirror.mirror_records import OffsetSync
from millstream.connect.connectors.mirror.naming import replication_policy
from millstream.connect.data.fetched_records import committed_records
from millstream.connect.data.record import Header, SourceRecord
from millstream.connect.data.schema import OPTIONAL, REQUIRED, Type
from millstream.connect.errors import RetriableError
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import Record, iter_records
from millstream.wire.topic_partition import TopicPartition

log = logging.getLogger("millstream.connect")

ASSIGNED = "task.assigned.partitions"
LONGEST_WAIT_MS = 200
MAX_BYTES = 8 << 20
"""Of one poll."""
MAX_SYNCS = 16
"""Of one partition in one commit."""
MISSING_SECONDS = 5.0
"""Until a topic that is gone is looked for again."""
_KEY, _VALUE = OPTIONAL[Type.BYTES], REQUIRED[Type.BYTES]
_new_record = SourceRecord.__new__


def assigned_partitions(text: str) -> list[TopicPartition]:
    found = []
    for one in filter(None, text.split(",")):
        topic, _, number = one.rpartition("-")
        found.append(TopicPartition(topic, int(number)))
    return found


class MirrorSourceTask(SourceTask):
    commits_records = True

    def __init__(self) -> None:
        self._cluster: Cluster | None = None
        self._syncs: OffsetSyncWriter | None = None
        self._positions: dict[TopicPartition, int] = {}
        self._missing: dict[str, float] = {}
        self._ids: dict[str, uuid.UUID] = {}

    def start(self, settings: Settings, context: SourceContext) -> None:
        parsed = SOURCE.parse(settings)
        policy = replication_policy(parsed)
        alias = parsed["source.cluster.alias"]
        self._committed = reads_committed(settings)
        self._wait_ms = max(0, min(parsed["consumer.poll.timeout.ms"], LONGEST_WAIT_MS))
        self._cluster = cluster(settings, "source", "consumer")
        self._fetcher = Fetcher(self._cluster, read_committed=self._committed, max_bytes=MAX_BYTES)
        partitions = assigned_partitions(settings[ASSIGNED])
        self._remote = {one.topic: policy.remote_topic(alias, one.topic) for one in partitions}
        self._source_partitions = {
            one: {"cluster": alias, "topic": one.topic, "partition": one.partition} for one in partitions
        }
        for one, where in self._source_partitions.items():
            offset = (context.offset(where) or {}).get("offset", -1)
            self._positions[one] = offset + 1 if offset >= 0 else EARLIEST
        if parsed["emit.offset-syncs.enabled"]:
            self._syncs = OffsetSyncWriter(
                cluster(settings, parsed["offset-syncs.topic.location"], "producer"),
                offset_syncs_topic(parsed, policy),
                parsed["offset.lag.max"],
            )

    # --- reading --------------------------------------------------------------------------------------------

    def poll(self) -> Sequence[SourceRecord]:
        try:
            wanted = self._readable()
            if not wanted:
                return []
            return [
                one for fetched in self._fetcher.poll(wanted, self._wait_ms) for one in self._take(fetched)
            ]
        except KafkaError as error:
            if error.code is ErrorCode.unknown_topic_or_partition:
                self._find_missing()
                return []
            raise RetriableError(f"the source cluster cannot be read: {error}") from None

    def _readable(self) -> dict[TopicPartition, int]:
        """Positions of topics that are there, each with an offset that the topic has had."""
        assert self._cluster is not None
        now = time.monotonic()
        if any(at <= now for at in self._missing.values()):
            self._missing.clear()
        found = {
            which: offset for which, offset in self._positions.items() if which.topic not in self._missing
        }
        for topic in {which.topic for which in found}:
            now_id = self._cluster.topic_id(topic)
            if now_id == NO_ID:  # not asked yet, or a broker that knows no ids
                continue
            if self._ids.setdefault(topic, now_id) != now_id:
                log.warning("topic %s of the source was created anew: read from its start", topic)
                self._ids[topic] = now_id
                found |= {which: EARLIEST for which in found if which.topic == topic}
        unknown = [which for which, offset in found.items() if offset < 0]
        for which, first in list_offsets(self._cluster, dict.fromkeys(unknown, EARLIEST)).items():
            found[which] = self._positions[which] = first.offset
        return found

    def _find_missing(self) -> None:
        assert self._cluster is not None
        for topic in self._cluster.refresh({which.topic for which in self._positions}):
            self._missing[topic] = time.monotonic() + MISSING_SECONDS
            self._positions |= {which: EARLIEST for which in self._positions if which.topic == topic}
            log.warning("topic %s is not there in the source cluster; looked for again later", topic)

    def _take(self, fetched: Fetched) -> list[SourceRecord]:
        which = TopicPartition(fetched.topic, fetched.partition)
        begin = self._positions[which]
        if fetched.error is ErrorCode.offset_out_of_range:
            log.warning("%s-%d has no offset %d any more: read from its start", *which, begin)
            self._positions[which] = EARLIEST
            return []
        if fetched.error is not ErrorCode.none:
            log.warning("%s-%d cannot be read now: %s", *which, fetched.error.name)
            return []
        if not fetched.records:
            return []
        self._positions[which] = next_offset(fetched, begin)
        if self._committed:
            records = [one for one, _ in committed_records(fetched, begin)]
        else:
            records = [
                one
                for _, batch in visible_batches(fetched, begin)
                for one in iter_records(batch)
                if one.offset >= begin
            ]
        return self._made(which, records)

    def _made(self, which: TopicPartition, records: Sequence[Record]) -> list[SourceRecord]:
        topic, partition, where = self._remote[which.topic], which.partition, self._source_partitions[which]
        found, new = list[SourceRecord](), _new_record
        for offset, timestamp, key, value, headers in records:
            made = new(SourceRecord)  # the constructor takes three times as long
            made.topic, made.partition, made.timestamp = topic, partition, timestamp
            made.key_schema, made.key, made.value_schema, made.value = _KEY, key, _VALUE, value
            made.headers = tuple(Header(name, _VALUE, data) for name, data in headers) if headers else ()
            made.source_partition, made.source_offset = where, {"offset": offset}
            found.append(made)
        return found

    # --- where records went ---------------------------------------------------------------------------------

    def commit_records(self, where: TopicPartition, offset: int, records: Sequence[SourceRecord]) -> None:
        if self._syncs is not None:
            by_partition: dict[int, list[tuple[int, int]]] = {}
            # A transform may bring records of several partitions into one.
            for index, record in enumerate(records):
                upstream: Any = record.source_offset
                by_partition.setdefault(id(record.source_partition), []).append(
                    (upstream["offset"], offset + index)
                )
            parts = {id(where): which for which, where in self._source_partitions.items()}
            for key, pairs in by_partition.items():
                if key in parts:
                    self._syncs.take(parts[key], pairs)

    def committed(self) -> None:
        if self._syncs is not None:
            self._syncs.send()

    def stop(self) -> None:
        for one in (self._cluster, self._syncs):
            if one is not None:
                with contextlib.suppress(KafkaError, OSError):
                    one.close()


class OffsetSyncWriter:
    def __init__(self, home: Cluster, topic: str, max_lag: int) -> None:
        self._cluster, self._topic, self._max_lag = home, topic, max_lag
        self._producer = Producer(home)
        self._last: dict[TopicPartition, int] = {}
        self._waiting: list[OffsetSync] = []

    def take(self, which: TopicPartition, pairs: Sequence[tuple[int, int]]) -> None:
        """Offsets of records in both clusters, in order."""
        self._waiting += [
            OffsetSync(which, *pair) for pair in chosen(pairs, self._last.get(which), self._max_lag)
        ]
        self._last[which] = pairs[-1][1]

    def send(self) -> None:
        """What cannot be written is left out: others follow, and none is needed for a right answer."""
        if not self._waiting:
            return
        syncs, self._waiting = self._waiting, []
        now = int(time.time() * 1000)
        try:
            self._producer.send(self._topic, 0, [Record(0, now, one.key, one.value) for one in syncs])
        except KafkaError as error:
            log.warning("offset syncs cannot be written to %s: %s", self._topic, error)

    def close(self) -> None:
        self._cluster.close()


def chosen(pairs: Sequence[tuple[int, int]], last: int | None, max_lag: int) -> list[tuple[int, int]]:
    """Which of these are written: the first where there was none yet, or where the last one is too old; then
    one after each `max_lag` records, as far as the limit allows; and the last."""
    step = max(1, max_lag, -(-len(pairs) // MAX_SYNCS))
    begin = 0 if last is None or pairs[0][1] - (last + 1) >= max_lag else step
    found = list(pairs[begin:-1:step])
    return [*found, pairs[-1]]
