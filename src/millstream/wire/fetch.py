"""Fetch, the second hot message: read and packed by hand, versions 4 to 18.

As in Produce, topics are named by the bytes of the request: UTF-8 name, or topic id from version 13 on. The
response is packed as a list of parts, so that the records in it can be sent straight from the segment files.
"""

import struct
from typing import NamedTuple

from millstream.wire.primitives import (
    INT16,
    INT32,
    read_bytes,
    read_compact_string,
    read_count,
    read_string,
    skip_tags,
)
from millstream.wire.varint import Malformed, append_uvarint, read_uvarint, uvarint

FIRST_WITH_SESSIONS = 7
FIRST_FLEXIBLE = 12
FIRST_WITH_TOPIC_ID = 13
FIRST_WITHOUT_REPLICA = 15
MAX_ELEMENTS = 100_000  # topics and partitions of a request, unless the caller allows more
READ_COMMITTED = 1  # the isolation level
DEBUGGING_REPLICA = -2  # a tool that compares replicas

_START_V4 = struct.Struct(">iiiib")  # replica, max wait, min bytes, max bytes, isolation level
_START_V7 = struct.Struct(">iiiibii")  # ... and session id and epoch
_START_V15 = struct.Struct(">iiibii")  # the same without the replica
_PARTITION_V4 = struct.Struct(">iqi")  # index, offset, max bytes
_PARTITION_V5 = struct.Struct(">iqqi")  # index, offset, log start, max bytes
_PARTITION_V9 = struct.Struct(">iiqqi")  # index, leader epoch, offset, log start, max bytes
# Index, leader epoch, offset, last fetched epoch, log start, max bytes.
_PARTITION_V12 = struct.Struct(">iiqiqi")
_RESULT_V4 = struct.Struct(">ihqq")  # index, error, high watermark, last stable offset
_RESULT_V5 = struct.Struct(">ihqqq")  # ... and log start
_NOTHING_FORGOTTEN_NO_RACK = b"\x01\x01"
_EPOCH_END = struct.Struct(">iq")
_ABORTED = struct.Struct(">qq")
_HEAD = struct.Struct(">iiBihi")  # size, correlation id, no tags, throttle time, error, session id
_OLD_HEAD = struct.Struct(">iii")  # size, correlation id, throttle time
_RESULT_WITHOUT_ABORTED = struct.Struct(">ihqqqBi")  # ... log start, how many aborted, preferred replica
_REPLICA_STATE = struct.Struct(">iq")
_NO_PREFERRED_REPLICA = b"\xff\xff\xff\xff"


class FetchPartition(NamedTuple):
    partition: int
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start: int
    max_bytes: int


class FetchRequest(NamedTuple):
    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int
    session_id: int
    session_epoch: int
    topics: list[tuple[bytes, list[FetchPartition]]]
    forgotten: list[tuple[bytes, list[int]]]
    rack: bytes
    replica_epoch: int = -1  # the broker epoch of the follower


class FetchResult:
    """What one partition answers; `records` is how many bytes follow and `source` where they come from."""

    __slots__ = (
        "aborted",
        "diverging",
        "error",
        "high_watermark",
        "index",
        "last_stable",
        "leader",
        "log_start",
        "preferred_replica",
        "size",
        "source",
    )

    def __init__(
        self,
        index: int,
        error: int = 0,
        high_watermark: int = -1,
        last_stable: int = -1,
        log_start: int = -1,
        size: int = 0,
        source: object = None,
    ) -> None:
        self.index = index
        self.error = error
        self.high_watermark = high_watermark
        self.last_stable = last_stable
        self.log_start = log_start
        self.size = size
        self.source = source
        self.aborted: list[tuple[int, int]] | None = None
        self.diverging: tuple[int, int] | None = None
        self.leader: tuple[int, int] | None = None
        self.preferred_replica = -1  # from which the consumer should read instead (KIP-392)


def read_fetch(frame: memoryview, at: int, version: int, max_elements: int = MAX_ELEMENTS) -> FetchRequest:
    """Decode the body of a Fetch request that begins at `at` and ends with the frame."""
    flexible = version >= FIRST_FLEXIBLE
    replica_id, session_id, session_epoch = -1, 0, -1
    if version >= FIRST_WITHOUT_REPLICA:
        max_wait, min_bytes, max_bytes, isolation, session_id, session_epoch = _START_V15.unpack_from(
            frame, at
        )
        at += 21
    elif version >= FIRST_WITH_SESSIONS:
        replica_id, max_wait, min_bytes, max_bytes, isolation, session_id, session_epoch = (
            _START_V7.unpack_from(frame, at)
        )
        at += 25
    else:
        replica_id, max_wait, min_bytes, max_bytes, isolation = _START_V4.unpack_from(frame, at)
        at += 17
    topic_count, at = read_count(frame, at, flexible)
    topics = []
    left = max_elements - topic_count
    for _ in range(topic_count):
        topic, at = _read_topic(frame, at, version)
        partition_count, at = read_count(frame, at, flexible)
        left -= partition_count
        if left < 0:
            raise Malformed(f"more than {max_elements} topics and partitions in one request")
        partitions = []
        for _ in range(partition_count):
            if version >= 12:
                partitions.append(FetchPartition._make(_PARTITION_V12.unpack_from(frame, at)))
                at += 32
                at = at + 1 if frame[at] == 0 else skip_tags(frame, at)
            elif version >= 9:
                index, epoch, offset, start, limit = _PARTITION_V9.unpack_from(frame, at)
                at += 28
                partitions.append(FetchPartition(index, epoch, offset, -1, start, limit))
            elif version >= 5:
                index, offset, start, limit = _PARTITION_V5.unpack_from(frame, at)
                at += 24
                partitions.append(FetchPartition(index, -1, offset, -1, start, limit))
            else:
                index, offset, limit = _PARTITION_V4.unpack_from(frame, at)
                at += 16
                partitions.append(FetchPartition(index, -1, offset, -1, -1, limit))
        topics.append((topic, partitions))
        if flexible:
            at = at + 1 if frame[at] == 0 else skip_tags(frame, at)
    rack: bytes | None = b""
    if flexible and frame[at : at + 2] == _NOTHING_FORGOTTEN_NO_RACK:  # nearly always
        forgotten: list[tuple[bytes, list[int]]] = []
        at += 2
    else:
        forgotten, at = _read_forgotten(frame, at, version)
        if version >= 11:
            rack, at = read_compact_string(frame, at) if flexible else read_string(frame, at)
    replica_epoch = -1
    if version >= FIRST_WITHOUT_REPLICA and frame[at]:
        replica_id, replica_epoch = _read_replica_state(frame, at)
    return FetchRequest(
        replica_id,
        max_wait,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack or b"",
        replica_epoch,
    )


def _read_topic(frame: memoryview, at: int, version: int) -> tuple[bytes, int]:
    if version >= FIRST_WITH_TOPIC_ID:
        return read_bytes(frame, at, 16)
    topic, at = read_compact_string(frame, at) if version >= FIRST_FLEXIBLE else read_string(frame, at)
    if topic is None:
        raise Malformed("topic without a name")
    return topic, at


def _read_forgotten(frame: memoryview, at: int, version: int) -> tuple[list[tuple[bytes, list[int]]], int]:
    forgotten: list[tuple[bytes, list[int]]] = []
    if version < FIRST_WITH_SESSIONS:
        return forgotten, at
    flexible = version >= FIRST_FLEXIBLE
    topic_count, at = read_count(frame, at, flexible)
    for _ in range(topic_count):
        topic, at = _read_topic(frame, at, version)
        count, at = read_count(frame, at, flexible)
        indexes = list(struct.unpack_from(f">{max(count, 0)}i", frame, at))
        at += 4 * len(indexes)
        forgotten.append((topic, indexes))
        if flexible:
            at = skip_tags(frame, at)
    return forgotten, at


def _read_replica_state(frame: memoryview, at: int) -> tuple[int, int]:
    """Tagged field 1 holds the replica's id and broker epoch from version 15 on; a consumer sends none."""
    count, at = read_uvarint(frame, at)
    replica_id, replica_epoch = -1, -1
    for _ in range(count):
        tag, at = read_uvarint(frame, at)
        size, at = read_uvarint(frame, at)
        if tag == 1:
            replica_id, replica_epoch = _REPLICA_STATE.unpack_from(frame, at)
        at += size
    return replica_id, replica_epoch


def pack_fetch_response(
    correlation_id: int,
    version: int,
    error: int,
    session_id: int,
    topics: list[tuple[bytes, list[FetchResult]]],
    endpoints: bytes = b"",
) -> list[object]:
    """The response frame as parts: bytes, and each result's `source` in its place. `endpoints` are the tagged
    bytes of NodeEndpoints (version 16 on), for answers that name another leader.

    Whoever sends it treats every part that is not bytes as a range of a file (or more bytes) of the size
    stated.
    """
    if version < FIRST_FLEXIBLE:
        return _pack_old(correlation_id, version, error, session_id, topics)
    current = head = bytearray(_HEAD.pack(0, correlation_id, 0, 0, error, session_id))
    append_uvarint(current, len(topics) + 1)
    parts: list[object] = []
    total = 0
    for topic, results in topics:
        if version < FIRST_WITH_TOPIC_ID:
            append_uvarint(current, len(topic) + 1)
        current += topic
        append_uvarint(current, len(results) + 1)
        for result in results:
            aborted = result.aborted
            fields = (result.index, result.error, result.high_watermark, result.last_stable, result.log_start)
            if not aborted:
                current += _RESULT_WITHOUT_ABORTED.pack(
                    *fields, 0 if aborted is None else 1, result.preferred_replica
                )
            else:
                current += _RESULT_V5.pack(*fields)
                append_uvarint(current, len(aborted) + 1)
                for transaction in aborted:
                    current += _ABORTED.pack(*transaction)
                    current.append(0)
                current += _NO_PREFERRED_REPLICA
            size = result.size
            append_uvarint(current, size + 1)
            if size:
                parts.append(current)
                parts.append(result.source)
                total += len(current) + size
                current = bytearray()
            if result.diverging is None and result.leader is None:
                current.append(0)
            else:
                current += _partition_tags(result)
        current.append(0)
    current += endpoints or b"\0"
    parts.append(current)
    INT32.pack_into(head, 0, total + len(current) - 4)
    return parts


def _pack_old(
    correlation_id: int,
    version: int,
    error: int,
    session_id: int,
    topics: list[tuple[bytes, list[FetchResult]]],
) -> list[object]:
    """Versions before 12."""
    current = head = bytearray(_OLD_HEAD.pack(0, correlation_id, 0))
    if version >= FIRST_WITH_SESSIONS:
        current += INT16.pack(error) + INT32.pack(session_id)
    current += INT32.pack(len(topics))
    parts: list[object] = []
    total = 0
    for topic, results in topics:
        current += INT16.pack(len(topic)) + topic + INT32.pack(len(results))
        for result in results:
            fields = (result.index, result.error, result.high_watermark, result.last_stable)
            current += (
                _RESULT_V5.pack(*fields, result.log_start) if version >= 5 else _RESULT_V4.pack(*fields)
            )
            aborted = result.aborted
            current += INT32.pack(-1 if aborted is None else len(aborted))
            for transaction in aborted or ():
                current += _ABORTED.pack(*transaction)
            if version >= 11:
                current += INT32.pack(result.preferred_replica)
            current += INT32.pack(result.size)
            if result.size:
                parts.append(current)
                parts.append(result.source)
                total += len(current) + result.size
                current = bytearray()
    if current:
        parts.append(current)
    INT32.pack_into(head, 0, total + len(current) - 4)
    return parts


def _partition_tags(result: FetchResult) -> bytes:
    tags = []
    if result.diverging is not None:
        tags.append(b"\x00\x0d" + _EPOCH_END.pack(*result.diverging) + b"\0")
    if result.leader is not None:
        tags.append(b"\x01\x09" + INT32.pack(result.leader[0]) + INT32.pack(result.leader[1]) + b"\0")
    return uvarint(len(tags)) + b"".join(tags)
