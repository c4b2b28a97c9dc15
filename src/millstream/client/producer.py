"""Batches into partitions.

Idempotent by default: the cluster gives the producer an id, every batch carries the next sequence
number of its partition, and so a batch that is sent twice because an answer got lost is written once. The
numbers are stamped into a batch when it is first sent and stay the same in every further try.

One batch per partition is under way at a time; one call may carry batches of many partitions, which go to all
leaders at once. `send_batches` waits for the answers; with `start` and `finish` a caller prepares the next
batches meanwhile. When the outcome of a batch stays unknown, or the broker no longer knows the producer, the
next batch starts with a new producer id, since the sequence can no longer be continued.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from millstream.client.cluster import MOVED, Cluster
from millstream.client.connection import Connection
from millstream.client.errors import check, describe
from millstream.client.messages import NO_ID, exchange
from millstream.wire.batch import CRC_START, crc_of, next_sequence, read_header
from millstream.wire.client_produce_fetch import (
    PRODUCE,
    PRODUCE_FLEXIBLE,
    PRODUCE_NEWEST,
    PRODUCE_TOPIC_IDS,
    pack_produce,
)
from millstream.wire.compression import NONE
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import Record, encode_batch
from millstream.wire.topic_partition import TopicPartition

Batch = bytearray | memoryview

_PRODUCER_AT = 43
_PRODUCER = struct.Struct(">qhi")  # producer id, producer epoch, base sequence


class Sent(NamedTuple):
    """Where a batch went. `offset` is -1 if the broker did not say (acks=0, or a duplicate of long ago)."""

    offset: int
    append_time: int = -1
    log_start_offset: int = -1


@dataclass(slots=True)
class Sending:
    """Batches on their way: those without an outcome, the requests in flight, and the outcomes so far."""

    left: dict[TopicPartition, Batch]
    in_flight: list[tuple[Connection, int, list[TopicPartition]]]
    outcomes: "dict[TopicPartition, Sent | KafkaError]"


class Producer:
    """Sends batches and waits for their acknowledgement."""

    newest_version: int = PRODUCE_NEWEST
    transactional_id: str | None = None

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = -1,
        idempotent: bool = True,
        codec: int = NONE,
        level: int | None = None,
        timeout_ms: int = 30_000,
        create_topics: bool = True,
    ) -> None:
        if idempotent and acks != -1:
            raise ValueError("an idempotent producer needs acks=all")
        self._cluster = cluster
        self._acks = acks
        self._idempotent = idempotent
        self._codec = codec
        self._level = level
        self._timeout_ms = timeout_ms
        self._create_topics = create_topics
        self.producer_id = -1
        self.producer_epoch = -1
        self._sequences: dict[TopicPartition, int] = {}

    def send(self, topic: str, partition: int, records: Sequence[Record]) -> Sent:
        """Records of one partition, as one batch."""
        batch = encode_batch(records, self._codec, level=self._level)
        return self.send_batches({TopicPartition(topic, partition): batch})[TopicPartition(topic, partition)]

    def send_batches(
        self, batches: Mapping[TopicPartition, Batch], timeout: float | None = None
    ) -> dict[TopicPartition, Sent]:
        """One finished batch per partition. Returns when all are acknowledged; an error that does not pass is
        raised after the others have been dealt with, and names its partition."""
        return self.finish(self.start(batches), timeout)

    def start(self, batches: Mapping[TopicPartition, Batch]) -> Sending:
        """Send one finished batch per partition without waiting. Until `finish` is called with what this
        returns, the batches stay as they are and the cluster is not used for anything else."""
        for topic in {topic for topic, _ in batches}:
            self._cluster.topic(topic, create=self._create_topics)
        if self._idempotent:
            for topic_partition, batch in batches.items():
                self.stamp(topic_partition, batch)
        left = dict(batches)
        return Sending(left, *self._launch(left))

    def finish(self, sending: Sending, timeout: float | None = None) -> dict[TopicPartition, Sent]:
        """Wait until all that was started is acknowledged, and send again what got lost."""
        cluster = self._cluster
        left, in_flight, outcomes = sending.left, sending.in_flight, sending.outcomes
        sent: dict[TopicPartition, Sent] = {}
        fatal: KafkaError | None = None
        retry = cluster.retry(timeout)
        while left:
            passing: KafkaError | None = None
            for topic_partition, outcome in self._land(in_flight, outcomes).items():
                if isinstance(outcome, Sent):
                    sent[topic_partition] = outcome
                elif _final(outcome):
                    fatal = outcome
                else:
                    passing = outcome
                    continue
                self.settle(topic_partition, left.pop(topic_partition), outcome)
            if passing is not None:
                try:
                    retry.pause(passing)
                except KafkaError:
                    self._forget()
                    raise
                if passing.code in MOVED:
                    cluster.refresh({topic for topic, _ in left})
                in_flight, outcomes = self._launch(left)
        if fatal is not None:
            raise fatal
        return sent

    # --- one round ------------------------------------------------------------------------------------------

    def _launch(
        self, left: Mapping[TopicPartition, Batch]
    ) -> tuple[list[tuple[Connection, int, list[TopicPartition]]], dict[TopicPartition, Sent | KafkaError]]:
        """Send everything to whoever leads it."""
        outcomes: dict[TopicPartition, Sent | KafkaError] = {}
        in_flight: list[tuple[Connection, int, list[TopicPartition]]] = []
        for node_id, topic_partitions in self._cluster.by_leader(left).items():
            try:
                connection, version = self._send(
                    node_id, {topic_partition: left[topic_partition] for topic_partition in topic_partitions}
                )
                in_flight.append((connection, version, topic_partitions))
            except KafkaError as error:
                outcomes.update(dict.fromkeys(topic_partitions, error))
        return in_flight, outcomes

    def _land(
        self,
        in_flight: list[tuple[Connection, int, list[TopicPartition]]],
        outcomes: dict[TopicPartition, Sent | KafkaError],
    ) -> dict[TopicPartition, Sent | KafkaError]:
        """Collect the answers."""
        for connection, version, topic_partitions in in_flight:
            if self._acks == 0:
                outcomes.update(dict.fromkeys(topic_partitions, Sent(-1)))
                continue
            try:
                body = connection.receive(self._cluster.config.request_timeout + self._timeout_ms / 1000)
                answer = exchange("produce", version).decode(body)
            except KafkaError as error:
                outcomes.update(dict.fromkeys(topic_partitions, error))
                continue
            missing = KafkaError(
                ErrorCode.unknown_server_error, "the broker left out a partition in its answer"
            )
            outcomes.update(dict.fromkeys(topic_partitions, missing))
            outcomes.update(self.outcomes_in(answer))
        return outcomes

    def _send(self, node_id: int, batches: Mapping[TopicPartition, Batch]) -> tuple[Connection, int]:
        connection = self._cluster.connection(node_id)
        return connection, self.pack_and_send(connection, batches)

    def pack_and_send(self, connection: Connection, batches: Mapping[TopicPartition, Batch]) -> int:
        """Returns the version in which the request went out."""
        cluster = self._cluster
        topics: dict[str, dict[int, Any]] = {}
        for (topic, partition), batch in batches.items():
            topics.setdefault(topic, {})[partition] = batch
        ids = {topic: cluster.topic_id(topic) for topic in topics}
        newest = min(self.newest_version, PRODUCE_TOPIC_IDS - 1 if NO_ID in ids.values() else PRODUCE_NEWEST)
        version = connection.version("produce", up_to=newest)
        parts = pack_produce(version, topics, ids, self._acks, self._timeout_ms, self.transactional_id)
        connection.send(PRODUCE, version, version >= PRODUCE_FLEXIBLE, parts)
        if self._acks == 0:
            connection.no_answer_expected()
        return version

    def outcomes_in(self, answer: Any) -> dict[TopicPartition, Sent | KafkaError]:
        found: dict[TopicPartition, Sent | KafkaError] = {}
        for topic in answer.responses:
            name = getattr(topic, "name", None) or self._cluster.topic_names.get(
                getattr(topic, "topic_id", NO_ID), ""
            )
            for result in topic.partition_responses:
                topic_partition = TopicPartition(str(name), int(result.index))
                code = result.error_code
                if code in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
                    found[topic_partition] = Sent(
                        int(result.base_offset),
                        _append_time(result),
                        int(getattr(result, "log_start_offset", -1)),
                    )
                else:
                    message = getattr(result, "error_message", None)
                    subject = f"partition {name}-{result.index}"
                    text = f"{subject}: {message}" if message else describe(code, subject=subject)
                    found[topic_partition] = KafkaError(code, text)
        return found

    # --- producer id and sequences --------------------------------------------------------------------------

    def stamp(self, topic_partition: TopicPartition, batch: Batch, sequence: int | None = None) -> int:
        """Give a batch its producer id and sequence number: `sequence`, if batches before it are still under
        way. Returns the number of the batch after it."""
        if self.producer_id < 0:
            self._begin()
        if sequence is None:
            sequence = self._sequences.get(topic_partition, 0)
        _PRODUCER.pack_into(batch, _PRODUCER_AT, self.producer_id, self.producer_epoch, sequence)
        batch[CRC_START - 4 : CRC_START] = crc_of(batch).to_bytes(4, "big")
        return next_sequence(sequence, read_header(batch).record_count)

    def rewind(self, topic_partition: TopicPartition, sequence: int) -> None:
        """The next batch gets this number. For one that went out with it before and may have been written:
        under another number the broker would write it again."""
        self._sequences[topic_partition] = sequence

    def settle(self, topic_partition: TopicPartition, batch: Batch, outcome: Sent | KafkaError) -> None:
        if not self._idempotent:
            return
        if isinstance(outcome, Sent):
            header = read_header(batch)
            self._sequences[topic_partition] = next_sequence(header.base_sequence, header.record_count)
        elif outcome.code in _SEQUENCE_LOST:
            self._forget()

    def _forget(self) -> None:
        self.producer_id = self.producer_epoch = -1
        self._sequences.clear()

    def _begin(self) -> None:
        self.producer_id, self.producer_epoch = self._cluster.persistently(
            lambda: init_producer_id(self._cluster.any(), None)
        )
        self._sequences.clear()


def init_producer_id(
    connection: Connection,
    transactional_id: str | None,
    transaction_timeout_ms: int = 60_000,
    *,
    up_to: int | None = None,
) -> tuple[int, int]:
    """A new producer id with its epoch; with a transactional id, from its coordinator, the same id with a
    higher epoch, which fences whoever had it before."""
    answer = connection.request(
        "init_producer_id",
        up_to=up_to,
        transactional_id=transactional_id,
        transaction_timeout=transaction_timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
        enable2_pc=False,
        keep_prepared_txn=False,
    )
    subject = "a new producer id" if transactional_id is None else f"transactional id {transactional_id}"
    check(answer.error_code, subject=subject)
    return int(answer.producer_id), int(answer.producer_epoch)


_SEQUENCE_LOST = frozenset(
    {
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.unknown_producer_id,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.unknown_server_error,
    }
)


def _final(error: KafkaError) -> bool:
    return not (error.code.retriable and getattr(error, "again", True))


def _append_time(result: Any) -> int:
    """kio reads this field as a datetime, or None where the broker says -1."""
    moment = getattr(result, "log_append_time", None)
    return -1 if moment is None else round(moment.timestamp() * 1000)
