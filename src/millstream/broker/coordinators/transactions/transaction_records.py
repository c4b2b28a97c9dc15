"""What `__transaction_state` holds, in Kafka's bytes.

One record per transition: the key is the transactional id, the value the whole state after the transition,
null when the id is forgotten. The last record of a key is the truth, so the topic can be compacted.

    key     i16 version 0, string transactional id

    value   version 0                            version 1 (from transaction.version 1 on)
            i64 producer id                      the same fields; strings and arrays in their compact form,
            i16 producer epoch                   then tagged fields:
            i32 timeout in ms                      0  i64 the producer id before this transition
            i8  state                              1  i64 the producer id to come (the epoch was used up)
            array of (topic, array of i32),        2  i16 transaction version of the client
                null in state Empty              Unknown tags are skipped, so that an older broker can read
            i64 time of the last change          what a newer one wrote.
            i64 time when it began, -1: not yet

`Transaction` is that state as a value: immutable, so that a transition can be prepared, written, and only
then believed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.primitives import INT16, INT32, INT64, read_bytes, read_count
from millstream.wire.topic_partition import TopicPartition
from millstream.wire.varint import read_uvarint, uvarint

NO_ID = NO_EPOCH = NO_TIME = -1
KEY_VERSION = 0
PLAIN, FLEXIBLE = 0, 1  # versions of the value

_HEAD = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION = 0, 1, 2


class State(IntEnum):
    """The numbers are those of the records, the names those of DescribeTransactions."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        return _LABELS[self]


_LABELS = {state: state.name.title().replace("_", "") for state in State}
STATE_OF_LABEL = {label: state for state, label in _LABELS.items()}


class Transaction(NamedTuple):
    """Everything that is known about a transactional id at one moment."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: State
    partitions: frozenset[TopicPartition]
    updated_ms: int
    started_ms: int = NO_TIME
    previous_id: int = NO_ID
    next_id: int = NO_ID
    client_version: int = 0
    last_epoch: int = NO_EPOCH  # of the same producer before its last bump; not written down


def encode_key(transactional_id: str) -> bytes:
    raw = transactional_id.encode()
    return struct.pack(">hh", KEY_VERSION, len(raw)) + raw


def decode_key(key: bytes) -> str | None:
    """The transactional id; None for a kind of key that is not known here."""
    try:
        version, size = struct.unpack_from(">hh", key)
        return str(key[4 : 4 + size], "utf-8") if version == KEY_VERSION else None
    except (struct.error, UnicodeDecodeError) as error:
        raise _unreadable(f"key {key[:40]!r}: {error}") from None


def encode_value(transaction: Transaction, version: int = FLEXIBLE) -> bytes:
    flexible = version >= FLEXIBLE
    out = [
        _HEAD.pack(
            version, transaction.producer_id, transaction.epoch, transaction.timeout_ms, transaction.state
        )
    ]
    if transaction.state is State.EMPTY:
        out.append(b"\0" if flexible else b"\xff\xff\xff\xff")
    else:
        out.append(_encode_partitions(transaction.partitions, flexible))
    out.append(_TIMES.pack(transaction.updated_ms, transaction.started_ms))
    if flexible:
        out.append(_encode_tags(transaction))
    return b"".join(out)


def _encode_partitions(partitions: Iterable[TopicPartition], flexible: bool) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    out = [_count(len(topics), flexible)]
    for topic, indexes in topics.items():
        raw = topic.encode()
        out.append(uvarint(len(raw) + 1) if flexible else INT16.pack(len(raw)))
        out.append(raw)
        out.append(_count(len(indexes), flexible))
        out.append(struct.pack(f">{len(indexes)}i", *indexes))
        if flexible:
            out.append(b"\0")
    return b"".join(out)


def _count(count: int, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else INT32.pack(count)


def _encode_tags(transaction: Transaction) -> bytes:
    tags = []
    if transaction.previous_id != NO_ID:
        tags.append(b"\x00\x08" + INT64.pack(transaction.previous_id))
    if transaction.next_id != NO_ID:
        tags.append(b"\x01\x08" + INT64.pack(transaction.next_id))
    if transaction.client_version:
        tags.append(b"\x02\x02" + INT16.pack(transaction.client_version))
    return uvarint(len(tags)) + b"".join(tags)


def state_of(value: bytes) -> State:
    """The state alone, which has the same position in every version; KafkaError for a version not known
    here."""
    try:
        version, _, _, _, state = _HEAD.unpack_from(value)
        if version in (PLAIN, FLEXIBLE):
            return State(state)
    except (struct.error, ValueError) as error:
        raise _unreadable(str(error)) from None
    raise _unreadable(f"version {version}, known are 0 and 1")


def decode_value(transactional_id: str, value: bytes) -> Transaction:
    """Raises KafkaError for what cannot be read: guessing about a transaction would be worse than not loading
    it."""
    try:
        return _decode_value(transactional_id, memoryview(value))
    except (struct.error, IndexError, ValueError) as error:
        raise _unreadable(f"state of {transactional_id!r}: {error}") from None


def _decode_value(transactional_id: str, value: memoryview) -> Transaction:
    (version,) = INT16.unpack_from(value)
    if version not in (PLAIN, FLEXIBLE):
        raise _unreadable(f"state of {transactional_id!r} has version {version}, known are 0 and 1")
    flexible = version == FLEXIBLE
    _, producer_id, epoch, timeout_ms, state = _HEAD.unpack_from(value)
    partitions, at = _decode_partitions(value, _HEAD.size, flexible)
    updated_ms, started_ms = _TIMES.unpack_from(value, at)
    transaction = Transaction(
        transactional_id, producer_id, epoch, timeout_ms, State(state), partitions, updated_ms, started_ms
    )
    if not flexible:
        return transaction
    tags, _ = _read_tags(value, at + _TIMES.size)
    return transaction._replace(
        previous_id=_tag(tags, _PREVIOUS_ID, INT64, NO_ID),
        next_id=_tag(tags, _NEXT_ID, INT64, NO_ID),
        client_version=_tag(tags, _CLIENT_VERSION, INT16, 0),
    )


def _decode_partitions(value: memoryview, at: int, flexible: bool) -> tuple[frozenset[TopicPartition], int]:
    partitions: set[TopicPartition] = set()
    topics, at = read_count(value, at, flexible)
    for _ in range(topics):
        if flexible:
            size, at = read_uvarint(value, at)
            size -= 1
        else:
            size, at = INT16.unpack_from(value, at)[0], at + 2
        raw, at = read_bytes(value, at, size)
        topic = raw.decode()
        indexes, at = read_count(value, at, flexible)
        partitions.update(
            TopicPartition(topic, index) for index in struct.unpack_from(f">{indexes}i", value, at)
        )
        at += 4 * indexes
        if flexible:
            _, at = _read_tags(value, at)
    return frozenset(partitions), at


def _read_tags(value: memoryview, at: int) -> tuple[dict[int, memoryview], int]:
    tags: dict[int, memoryview] = {}
    count, at = read_uvarint(value, at)
    for _ in range(count):
        tag, at = read_uvarint(value, at)
        size, at = read_uvarint(value, at)
        tags[tag] = value[at : at + size]
        at += size
    return tags, at


def _tag(tags: dict[int, memoryview], tag: int, form: struct.Struct, default: int) -> int:
    found = tags.get(tag)
    return default if found is None else int(form.unpack_from(found)[0])


def _unreadable(what: str) -> KafkaError:
    return KafkaError(ErrorCode.corrupt_message, f"a record of __transaction_state cannot be read: {what}")
