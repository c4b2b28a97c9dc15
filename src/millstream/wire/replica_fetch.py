"""Fetch 17 as a follower sends it and reads its response, by hand: the hot message between brokers.

A follower names itself in a tagged field (KIP-903) and states its position with the epoch of its last batch
(KIP-595); the response may say from where on the leader's log differs. Records are views of the bytes that
came from the socket. The leader's side of the same message is in `fetch`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from millstream.wire.primitives import BAD_FRAME, INT32, read_count, skip_tags
from millstream.wire.varint import Malformed, append_uvarint, read_uvarint

API_KEY = 1
VERSION = 17

_START = struct.Struct(">iiibii")  # max wait, min bytes, max bytes, isolation, session id, session epoch
# Index, leader epoch, offset, last fetched epoch, log start, max bytes, no tags.
_PARTITION = struct.Struct(">iiqiqiB")
# One tagged field: replica id, broker epoch, no tags of its own.
_REPLICA_STATE = struct.Struct(">BBBiqB")
_HEAD = struct.Struct(">ihi")  # throttle time, error, session id
_RESULT = struct.Struct(">ihqqq")  # index, error, high watermark, last stable offset, log start
_ABORTED_SIZE = 16
_EPOCH_END = struct.Struct(">iq")
_NO_RECORDS = memoryview(b"")
# A request for one partition and a response with one, as nearly all are: the same in one piece.
_ONE_STATED = struct.Struct(">iiibiiB16sBiiqiqiBBBBBBBiqB")
_ONE_FETCHED = struct.Struct(">BihiB16sBihqqqBi")

Key = tuple[bytes, int]  # topic id, partition
Value = TypeVar("Value")


class Position(NamedTuple):
    """Where a replica of a partition stands, and under which leader epoch."""

    leader_epoch: int
    offset: int  # the end of its log
    last_epoch: int  # of its last batch, -1 if there is none
    log_start: int


class ReplicaFetch(NamedTuple):
    """What one request says: positions that are new or have changed, and partitions that are no longer
    fetched."""

    session_id: int
    session_epoch: int
    positions: list[tuple[Key, Position]]
    forgotten: list[Key]


class Fetched(NamedTuple):
    """What the leader says of one partition."""

    topic_id: bytes
    partition: int
    error: int
    high_watermark: int
    log_start: int
    diverging: tuple[int, int] | None  # the epoch up to which the logs may agree, and where it ends
    records: memoryview

    @property
    def key(self) -> Key:
        return self.topic_id, self.partition


class FetchedAll(NamedTuple):
    error: int
    session_id: int
    partitions: list[Fetched]


def pack_replica_fetch(
    fetch: ReplicaFetch,
    replica_id: int,
    broker_epoch: int,
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    partition_max_bytes: int,
) -> bytes:
    """The body of the request."""
    if len(fetch.positions) == 1 and not fetch.forgotten:
        (topic_id, index), (leader_epoch, offset, last_epoch, log_start) = fetch.positions[0]
        return _ONE_STATED.pack(
            max_wait_ms, min_bytes, max_bytes, 0, fetch.session_id, fetch.session_epoch, 2, topic_id, 2,
            index, leader_epoch, offset, last_epoch, log_start, partition_max_bytes, 0, 0,
            1, 1, 1, 1, 13, replica_id, broker_epoch, 0,
        )  # fmt: skip
    out = bytearray(_START.pack(max_wait_ms, min_bytes, max_bytes, 0, fetch.session_id, fetch.session_epoch))
    topics = _by_topic(fetch.positions)
    append_uvarint(out, len(topics) + 1)
    for topic_id, partitions in topics.items():
        out += topic_id
        append_uvarint(out, len(partitions) + 1)
        for index, (leader_epoch, offset, last_epoch, log_start) in partitions:
            out += _PARTITION.pack(index, leader_epoch, offset, last_epoch, log_start, partition_max_bytes, 0)
        out.append(0)
    forgotten = _by_topic((key, None) for key in fetch.forgotten)
    append_uvarint(out, len(forgotten) + 1)
    for topic_id, indexes in forgotten.items():
        out += topic_id
        append_uvarint(out, len(indexes) + 1)
        for index, _ in indexes:
            out += INT32.pack(index)
        out.append(0)
    out.append(1)  # no rack
    out += _REPLICA_STATE.pack(1, 1, 13, replica_id, broker_epoch, 0)
    return bytes(out)


def _by_topic(items: Iterable[tuple[Key, Value]]) -> dict[bytes, list[tuple[int, Value]]]:
    topics: dict[bytes, list[tuple[int, Value]]] = {}
    for (topic_id, index), value in items:
        topics.setdefault(topic_id, []).append((index, value))
    return topics


def read_replica_fetch(body: memoryview) -> FetchedAll:
    """The response, from after the correlation id on. Raises `Malformed`."""
    try:
        return _read_one(body) or _read(body)
    except Malformed:
        raise
    except BAD_FRAME as error:
        raise Malformed(str(error)) from None


def _read_one(body: memoryview) -> FetchedAll | None:
    """A response with one partition without tags; None if this is another."""
    if len(body) < _ONE_FETCHED.size + 4:
        return None
    (
        tags, _, error, session_id, topics, topic_id, count, index, code, high_watermark, _, log_start,
        aborted, _,
    ) = _ONE_FETCHED.unpack_from(body)  # fmt: skip
    if tags or topics != 2 or count != 2 or aborted > 1 or bytes(body[-3:]) != b"\0\0\0":
        return None
    size, at = read_uvarint(body, _ONE_FETCHED.size)
    end = at + max(size - 1, 0)
    if end + 3 != len(body):
        return None
    records = body[at:end] if size > 1 else _NO_RECORDS
    fetched = Fetched(topic_id, index, code, high_watermark, log_start, None, records)
    return FetchedAll(error, session_id, [fetched])


def _read(body: memoryview) -> FetchedAll:
    at = skip_tags(body, 0)
    _, error, session_id = _HEAD.unpack_from(body, at)
    at += _HEAD.size
    found: list[Fetched] = []
    topics, at = read_count(body, at, True)
    for _ in range(topics):
        topic_id = bytes(body[at : at + 16])
        at += 16
        count, at = read_count(body, at, True)
        for _ in range(count):
            index, code, high_watermark, _, log_start = _RESULT.unpack_from(body, at)
            at += _RESULT.size
            aborted, at = read_count(body, at, True)
            for _ in range(aborted):
                at = skip_tags(body, at + _ABORTED_SIZE)
            at += 4  # preferred read replica
            size, at = read_uvarint(body, at)
            records = _NO_RECORDS
            if size > 1:
                end = at + size - 1
                if end > len(body):
                    raise Malformed("records reach past the frame")
                records = body[at:end]
                at = end
            diverging, at = _read_tags(body, at)
            found.append(Fetched(topic_id, index, code, high_watermark, log_start, diverging, records))
        at = skip_tags(body, at)
    return FetchedAll(error, session_id, found)


def _read_tags(body: memoryview, at: int) -> tuple[tuple[int, int] | None, int]:
    diverging: tuple[int, int] | None = None
    count, at = read_uvarint(body, at)
    for _ in range(count):
        tag, at = read_uvarint(body, at)
        size, at = read_uvarint(body, at)
        if tag == 0:
            epoch, end = _EPOCH_END.unpack_from(body, at)
            diverging = epoch, end
        at += size
        if at > len(body):
            raise Malformed("tagged field reaches past the frame")
    return diverging, at
