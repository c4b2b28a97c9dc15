"""What a partition remembers about its producers: enough to write each batch once, and to know open
transactions.

For every producer id the table keeps the epoch and the sequence ranges of the last five batches. A producer
has at most five batches in flight, so any retry it can send is among them. The rules, for a batch from a
client:

  epoch lower than the known one           INVALID_PRODUCER_EPOCH (a zombie)
  same epoch, range equal to a known one   a retry: acknowledged again with the offsets of the first time
  same epoch, first sequence = last + 1    accepted (2^31-1 is followed by 0)
  same epoch, anything else                OUT_OF_ORDER_SEQUENCE_NUMBER
  higher epoch, first sequence 0           accepted, older ranges forgotten; another sequence is out of order
  unknown producer                         accepted with any sequence: its history may have been deleted

Transactional batches open a transaction at their first offset; a marker (control batch) ends it. The first
offset of the oldest open transaction bounds what read_committed may see. A transaction that ended stays in
that bound until its marker is below the high watermark.

Producers that have written nothing for `producer.id.expiration.ms` are forgotten, unless a transaction is
open.

The table is saved as `<offset>.snapshot` (state before that offset), in Kafka's format v1:

    i16 version, u32 crc32c of what follows, i32 count, then per producer:
    i64 id, i16 epoch, i32 last sequence, i64 last offset, i32 offset delta, i64 timestamp,
    i32 coordinator epoch, i64 first offset of the open transaction (-1: none)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from millstream.storage.transactions import AbortedTransaction
from millstream.wire.batch import CONTROL, HEADER_SIZE, MAX_SEQUENCE, TRANSACTIONAL, BatchHeader
from millstream.wire.checksum import crc32c
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import ABORT_MARKER, COMMIT_MARKER
from millstream.wire.varint import Malformed, read_varlong

REMEMBERED = 5
DAY_MS = 24 * 60 * 60 * 1000
SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")


class Sent(NamedTuple):
    """One remembered batch."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    timestamp: int
    delta: int  # last offset - first offset

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.delta


class Producer:
    __slots__ = (
        "coordinator_epoch",
        "epoch",
        "id",
        "next_sequence",
        "recent",
        "seen_ms",
        "timestamp",
        "txn_first_offset",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.id = producer_id
        self.epoch = epoch
        self.next_sequence = -1  # -1: no batch known in this epoch
        self.recent: list[tuple[int, int, int, int, int]] = []  # Sent, as plain tuples, oldest first
        self.timestamp = -1
        self.coordinator_epoch = -1
        self.txn_first_offset = -1
        self.seen_ms = -1  # when it last wrote, by our clock

    @property
    def last_sequence(self) -> int:
        return self.recent[-1][1] if self.recent else -1

    @property
    def last_offset(self) -> int:
        return self.recent[-1][2] if self.recent else -1

    def new_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.next_sequence = -1
        self.recent = []

    def copy(self) -> Producer:
        twin = Producer(self.id, self.epoch)
        twin.next_sequence, twin.recent, twin.timestamp = (
            self.next_sequence,
            list(self.recent),
            self.timestamp,
        )
        twin.coordinator_epoch, twin.txn_first_offset = self.coordinator_epoch, self.txn_first_offset
        twin.seen_ms = self.seen_ms
        return twin

    def settle(self) -> None:
        """After batches were added to `recent` directly: trim it, and derive the rest from it."""
        if self.recent:
            del self.recent[:-REMEMBERED]
            newest = self.recent[-1]
            self.next_sequence = (newest[1] + 1) & MAX_SEQUENCE

    def find(self, epoch: int, first_sequence: int, last_sequence: int) -> Sent | None:
        """The remembered batch with exactly these numbers."""
        if epoch == self.epoch:
            for sent in self.recent:
                if sent[0] == first_sequence and sent[1] == last_sequence:
                    return Sent._make(sent)
        return None


class ProducerTable:
    """All producers of one partition. `by_id` is public because the append path looks into it directly."""

    __slots__ = ("by_id", "expiration_ms", "name", "open_transactions", "unreplicated")

    def __init__(self, name: str = "", expiration_ms: int = DAY_MS) -> None:
        self.name = name
        self.expiration_ms = expiration_ms
        self.by_id: dict[int, Producer] = {}
        # Producer id -> first offset, in the order of these offsets.
        self.open_transactions: dict[int, int] = {}
        # Ended transactions (first offset, marker) that the high watermark has not passed yet.
        self.unreplicated: list[tuple[int, int]] = []

    # -- transactions and the last stable offset -------------------------------------------------------------

    def first_unstable(self) -> int:
        """The first offset whose transaction is undecided, or decided above the high watermark; -1 if
        none."""
        first = next(iter(self.open_transactions.values()), -1)
        for start, _ in self.unreplicated:
            if first < 0 or start < first:
                first = start
        return first

    def passed(self, high_watermark: int) -> None:
        """Markers below the high watermark no longer hold back the last stable offset."""
        self.unreplicated = [entry for entry in self.unreplicated if entry[1] >= high_watermark]

    # -- judging ---------------------------------------------------------------------------------------------

    def check(self, header: BatchHeader, known: Producer | None) -> Sent | None:
        """May a client write this batch? The earlier write if it is a retry, None if it is new, else
        KafkaError."""
        if header.base_sequence < 0:
            raise KafkaError(
                ErrorCode.invalid_record,
                f"sequence number {header.base_sequence} in a batch of producer {header.producer_id}",
            )
        if known is None:
            return None
        if header.producer_epoch < known.epoch:
            raise KafkaError(
                ErrorCode.invalid_producer_epoch,
                f"epoch {header.producer_epoch} of producer {known.id} is older than {known.epoch} "
                f"in {self.name}",
            )
        sent = known.find(header.producer_epoch, header.base_sequence, header.last_sequence)
        if sent is not None:
            return sent
        expected = known.next_sequence if header.producer_epoch == known.epoch else 0
        if expected < 0:
            expected = 0
        if header.base_sequence != expected and known.epoch >= 0:
            raise KafkaError(
                ErrorCode.out_of_order_sequence_number,
                f"producer {known.id} sent sequence {header.base_sequence} to {self.name}, "
                f"expected {expected}",
            )
        if known.txn_first_offset >= 0 and not header.is_transactional:
            raise KafkaError(
                ErrorCode.invalid_txn_state,
                f"producer {known.id} has an open transaction in {self.name} and must write within it",
            )
        return None

    def check_all(self, headers: Sequence[BatchHeader]) -> Sent | None:
        """The same for several batches of one append: each is judged as if the ones before were written
        already."""
        ahead: dict[int, Producer] = {}
        for header in headers:
            producer_id = header.producer_id
            if producer_id < 0:
                continue
            known = ahead.get(producer_id) or self.by_id.get(producer_id)
            sent = self.check(header, known)
            if sent is not None:
                return sent
            if len(headers) > 1:
                twin = known.copy() if known is not None else Producer(producer_id, header.producer_epoch)
                if header.producer_epoch != twin.epoch:
                    twin.new_epoch(header.producer_epoch)
                remember_batch(twin, header, 0)
                ahead[producer_id] = twin
        return None

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """May a coordinator write in the name of this producer?"""
        known = self.by_id.get(producer_id)
        if known is not None and epoch < known.epoch:
            raise KafkaError(
                ErrorCode.invalid_producer_epoch,
                f"epoch {epoch} of producer {producer_id} is older than {known.epoch} in {self.name}",
            )

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        known = self.by_id.get(producer_id)
        if known is None:
            return
        if epoch < known.epoch:
            raise KafkaError(
                ErrorCode.invalid_producer_epoch,
                f"marker with epoch {epoch} for producer {producer_id}, known with {known.epoch} "
                f"in {self.name}",
            )
        if coordinator_epoch < known.coordinator_epoch:
            raise KafkaError(
                ErrorCode.transaction_coordinator_fenced,
                f"marker of coordinator epoch {coordinator_epoch}, {self.name} has seen "
                f"{known.coordinator_epoch}",
            )

    # -- learning --------------------------------------------------------------------------------------------

    def writer_of(self, header: BatchHeader) -> Producer:
        """The producer of a data batch, in the batch's epoch; a new one if it was not known."""
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            producer = self.by_id[header.producer_id] = Producer(header.producer_id, header.producer_epoch)
        elif header.producer_epoch != producer.epoch:
            producer.new_epoch(header.producer_epoch)
        return producer

    def begin_transaction(self, producer: Producer, header: BatchHeader, base_offset: int) -> None:
        """A batch of this producer stands at `base_offset`: if it is the first of a transaction, that is open
        now."""
        if header.attributes & TRANSACTIONAL and producer.txn_first_offset < 0:
            producer.txn_first_offset = base_offset
            self.open_transactions[producer.id] = base_offset

    def record(self, header: BatchHeader, base_offset: int) -> None:
        """A data batch of a producer that was found in the log (an append does the same in `_end_append`)."""
        producer = self.writer_of(header)
        remember_batch(producer, header, base_offset)
        self.begin_transaction(producer, header, base_offset)

    def end_transaction(
        self, producer_id: int, epoch: int, commit: bool, coordinator_epoch: int, offset: int, timestamp: int
    ) -> AbortedTransaction | None:
        """A marker stands at `offset`. Returns the entry for the transaction index if it aborts something."""
        producer = self.by_id.get(producer_id)
        if producer is None:
            producer = self.by_id[producer_id] = Producer(producer_id, epoch)
        first = producer.txn_first_offset
        if epoch != producer.epoch:
            producer.new_epoch(epoch)
        producer.coordinator_epoch = coordinator_epoch
        producer.timestamp = timestamp
        producer.seen_ms = max(producer.seen_ms, timestamp)
        producer.txn_first_offset = -1
        self.open_transactions.pop(producer_id, None)
        if first < 0:
            return None  # nothing was written in that transaction here
        self.unreplicated.append((first, offset))
        if commit:
            return None
        stable = next(iter(self.open_transactions.values()), offset + 1)
        return AbortedTransaction(producer_id, first, offset, stable)

    def replay(self, header: BatchHeader, batch: bytes | memoryview | None) -> AbortedTransaction | None:
        """Learn from a batch that is already in the log (recovery, truncation, replication)."""
        if header.producer_id < 0:
            return None
        if header.attributes & CONTROL:
            marker = parse_marker(batch) if batch is not None else None
            if marker is None:
                return None
            commit, coordinator_epoch = marker
            return self.end_transaction(
                header.producer_id,
                header.producer_epoch,
                commit,
                coordinator_epoch,
                header.last_offset,
                header.max_timestamp,
            )
        self.record(header, header.base_offset)
        return None

    def expire(self, now_ms: int) -> int:
        """Forget producers that have been silent for too long; how many."""
        before = now_ms - self.expiration_ms
        gone = [
            producer.id
            for producer in self.by_id.values()
            if producer.txn_first_offset < 0 and producer.timestamp <= before and producer.seen_ms <= before
        ]
        for producer_id in gone:
            del self.by_id[producer_id]
        return len(gone)

    def clear(self) -> None:
        self.by_id.clear()
        self.open_transactions.clear()
        self.unreplicated.clear()

    # -- snapshots -------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        body = [
            _SNAPSHOT_ENTRY.pack(
                producer.id,
                producer.epoch,
                producer.last_sequence,
                producer.last_offset,
                producer.recent[-1][4] if producer.recent else 0,
                producer.timestamp,
                producer.coordinator_epoch,
                producer.txn_first_offset,
            )
            for producer in self.by_id.values()
        ]
        content = struct.pack(">i", len(body)) + b"".join(body)
        return struct.pack(">hI", SNAPSHOT_VERSION, crc32c(content)) + content

    def touch(self, now_ms: int) -> None:
        """When they were last seen is not written down: after a start, everyone gets a full period."""
        for producer in self.by_id.values():
            if producer.seen_ms < 0:
                producer.seen_ms = now_ms

    def load(self, data: bytes) -> None:
        """Replace everything by a snapshot's content. ValueError if it is not a sound snapshot."""
        self.clear()
        for producer in decode_snapshot(data):
            self.by_id[producer.id] = producer
        opened = [(one.txn_first_offset, one.id) for one in self.by_id.values() if one.txn_first_offset >= 0]
        for first, producer_id in sorted(opened):
            self.open_transactions[producer_id] = first


def remember_batch(producer: Producer, header: BatchHeader, base_offset: int) -> None:
    """Add a batch of the producer's epoch to what is remembered of it."""
    delta, timestamp = header.last_offset_delta, header.max_timestamp
    first = header.base_sequence
    last = (first + delta) & MAX_SEQUENCE if first >= 0 else first
    producer.recent.append((first, last, base_offset + delta, timestamp, delta))
    if len(producer.recent) > REMEMBERED:
        del producer.recent[0]
    producer.next_sequence = (last + 1) & MAX_SEQUENCE
    producer.timestamp = timestamp


def decode_snapshot(data: bytes) -> Iterator[Producer]:
    """The producers in a snapshot, in order. ValueError if version, size or checksum are wrong."""
    if len(data) < _SNAPSHOT_HEAD.size:
        raise ValueError("too short for a producer snapshot")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise ValueError(f"producer snapshot of version {version}")
    if crc32c(memoryview(data)[6:]) != crc:
        raise ValueError("producer snapshot with a wrong checksum")
    if count < 0 or len(data) != _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size:
        raise ValueError("producer snapshot of the wrong size")
    for at in range(_SNAPSHOT_HEAD.size, len(data), _SNAPSHOT_ENTRY.size):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator, first = (
            _SNAPSHOT_ENTRY.unpack_from(data, at)
        )
        producer = Producer(producer_id, epoch)
        producer.timestamp, producer.coordinator_epoch, producer.txn_first_offset = (
            timestamp,
            coordinator,
            first,
        )
        if offset >= 0:
            first_sequence = (sequence - delta) & MAX_SEQUENCE if sequence >= 0 else sequence
            producer.recent.append((first_sequence, sequence, offset, timestamp, delta))
            producer.next_sequence = (sequence + 1) & MAX_SEQUENCE
        yield producer


# -- markers -------------------------------------------------------------------------------------------------


def parse_marker(batch: bytes | memoryview) -> tuple[bool, int] | None:
    """(commit, coordinator epoch) of a transaction marker; None for another kind of control batch."""
    data = bytes(batch[HEADER_SIZE : HEADER_SIZE + 128])
    try:
        _, at = read_varlong(data, 0)  # length of the record
        at += 1  # attributes
        _, at = read_varlong(data, at)  # timestamp delta
        _, at = read_varlong(data, at)  # offset delta
        key_size, at = read_varlong(data, at)
        _, marker = struct.unpack_from(">hh", data, at)
        _, at = read_varlong(data, at + key_size)
        if marker not in (ABORT_MARKER, COMMIT_MARKER):
            return None
        _, coordinator_epoch = struct.unpack_from(">hi", data, at)
    except (IndexError, Malformed, struct.error):
        return None
    return marker == COMMIT_MARKER, coordinator_epoch
