"""Produce and Fetch by hand: the two messages whose records must not be copied.

A produce request is a list of buffers, with the caller's batches as they are. A fetch response is read
without copying: its records are views of the bytes that came from the socket. Versions: Produce 3 to 13,
Fetch 4 to 18.
"""

import struct
import uuid
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from millstream.wire.compression import Buffer
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.primitives import (
    BAD_FRAME,
    INT16,
    INT32,
    read_compact_string,
    read_count,
    read_string,
    skip_tags,
)
from millstream.wire.varint import Malformed, read_uvarint, uvarint

PRODUCE, PRODUCE_FLEXIBLE, PRODUCE_TOPIC_IDS, PRODUCE_NEWEST = 0, 9, 13, 13
FETCH, FETCH_FLEXIBLE, FETCH_TOPIC_IDS, FETCH_NEWEST = 1, 12, 13, 18

# Who fetches: a consumer, or a tool that may read from followers too.
CONSUMER, DEBUGGING_REPLICA = -1, -2

_ACKS_TIMEOUT = struct.Struct(">hi")
_LIMITS = struct.Struct(">iiib")  # max wait, min bytes, max bytes, isolation level
_REPLICA_STATE = struct.Struct(">iq")  # id and epoch
_NO_SESSION = struct.pack(">ii", 0, -1)
_EMPTY_RECORDS = memoryview(b"")


class Position(NamedTuple):
    """From where to read a partition. The epoch, if known, makes a broker with an older or newer view say
    so. `max_bytes`: of this partition, if it has a limit of its own."""

    offset: int
    leader_epoch: int = -1
    max_bytes: int = 0


class Fetched(NamedTuple):
    """What one partition answered. `records` holds whole batches, perhaps with a part of one at the end."""

    topic: str
    partition: int
    error: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[tuple[int, int]]  # (producer id, first offset) of aborted transactions in this range
    records: memoryview


def pack_produce(
    version: int,
    topics: Mapping[str, Mapping[int, Buffer]],
    topic_ids: Mapping[str, uuid.UUID],
    acks: int,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> list[Buffer]:
    """The body of a Produce request, in parts."""
    flexible = version >= PRODUCE_FLEXIBLE
    head = bytearray(_string(transactional_id, flexible))
    head += _ACKS_TIMEOUT.pack(acks, timeout_ms)
    head += _count(len(topics), flexible)
    parts: list[Buffer] = []
    for topic, partitions in topics.items():
        head += topic_ids[topic].bytes if version >= PRODUCE_TOPIC_IDS else _string(topic, flexible)
        head += _count(len(partitions), flexible)
        for index, batch in partitions.items():
            head += INT32.pack(index) + _count(len(batch), flexible)
            parts += [head, batch]
            head = bytearray(b"\0" if flexible else b"")
        if flexible:
            head.append(0)
    if flexible:
        head.append(0)
    parts.append(head)
    return parts


def pack_fetch(
    version: int,
    topics: Mapping[str, Mapping[int, Position]],
    topic_ids: Mapping[str, uuid.UUID],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    partition_max_bytes: int,
    isolation: int,
    rack: str = "",
    replica_id: int = CONSUMER,
) -> bytes:
    """The body of a Fetch request of a consumer, or of a tool that compares replicas, without a fetch
    session."""
    flexible = version >= FETCH_FLEXIBLE
    out = bytearray()
    if version <= 14:
        out += INT32.pack(replica_id)
    out += _LIMITS.pack(max_wait_ms, min_bytes, max_bytes, isolation)
    if version >= 7:
        out += _NO_SESSION
    out += _count(len(topics), flexible)
    for topic, partitions in topics.items():
        out += topic_ids[topic].bytes if version >= FETCH_TOPIC_IDS else _string(topic, flexible)
        out += _count(len(partitions), flexible)
        for index, position in partitions.items():
            out += INT32.pack(index)
            if version >= 9:
                out += INT32.pack(position.leader_epoch)
            out += position.offset.to_bytes(8, "big", signed=True)
            if version >= 12:
                out += b"\xff\xff\xff\xff"  # last fetched epoch: for followers
            if version >= 5:
                out += b"\xff" * 8  # log start offset: for followers
            out += INT32.pack(position.max_bytes or partition_max_bytes)
            if flexible:
                out.append(0)
        if flexible:
            out.append(0)
    if version >= 7:
        out += _count(0, flexible)  # nothing forgotten
    if version >= 11:
        out += _string(rack, flexible)
    if version >= 15 and replica_id != CONSUMER:
        out += b"\x01\x01\x0d" + _REPLICA_STATE.pack(replica_id, -1) + b"\0"
    elif flexible:
        out.append(0)
    return bytes(out)


def read_fetch(version: int, body: memoryview, topic_names: Mapping[uuid.UUID, str]) -> list[Fetched]:
    """The response to a Fetch, read without copying. `body` begins after the correlation id."""
    try:
        return _read_fetch(version, body, topic_names)
    except BAD_FRAME as error:
        raise KafkaError(
            ErrorCode.unknown_server_error, f"the broker's answer to fetch makes no sense ({error})"
        ) from None


def _read_fetch(version: int, body: memoryview, topic_names: Mapping[uuid.UUID, str]) -> list[Fetched]:
    flexible = version >= FETCH_FLEXIBLE
    at = skip_tags(body, 0) if flexible else 0
    at += 4  # throttle time
    if version >= 7:
        error = INT16.unpack_from(body, at)[0]
        at += 6  # and the session id
        if error:
            raise KafkaError(
                ErrorCode(error), f"the broker answers {ErrorCode(error).name.upper()} to a fetch"
            )
    found: list[Fetched] = []
    topic_count, at = read_count(body, at, flexible)
    for _ in range(topic_count):
        if version >= FETCH_TOPIC_IDS:
            topic = topic_names.get(uuid.UUID(bytes=bytes(body[at : at + 16])), "")
            at += 16
        else:
            name, at = read_compact_string(body, at) if flexible else read_string(body, at)
            topic = (name or b"").decode()
        partition_count, at = read_count(body, at, flexible)
        for _ in range(partition_count):
            fetched, at = _read_partition(version, body, at, topic)
            found.append(fetched)
        if flexible:
            at = skip_tags(body, at)
    return found


_RESULT_V4 = struct.Struct(">ihqq")  # index, error, high watermark, last stable offset
_RESULT_V5 = struct.Struct(">ihqqq")  # ... and log start
_ABORTED = struct.Struct(">qq")


def _read_partition(version: int, body: memoryview, at: int, topic: str) -> tuple[Fetched, int]:
    flexible = version >= FETCH_FLEXIBLE
    start = -1
    if version >= 5:
        index, error, high, stable, start = _RESULT_V5.unpack_from(body, at)
        at += _RESULT_V5.size
    else:
        index, error, high, stable = _RESULT_V4.unpack_from(body, at)
        at += _RESULT_V4.size
    count, at = read_count(body, at, flexible)
    aborted = []
    for _ in range(count):
        aborted.append(_ABORTED.unpack_from(body, at))
        at += _ABORTED.size
        if flexible:
            at = skip_tags(body, at)
    if version >= 11:
        at += 4  # preferred read replica
    if flexible:
        size, at = read_uvarint(body, at)
        size -= 1
    else:
        size = INT32.unpack_from(body, at)[0]
        at += 4
    records = _EMPTY_RECORDS
    if size > 0:
        if size > len(body) - at:
            raise Malformed("records reach past the frame")
        records = body[at : at + size]
        at += size
    if flexible:
        at = skip_tags(body, at)
    return Fetched(topic, index, ErrorCode(error), high, stable, start, aborted, records), at


def _string(text: str | None, flexible: bool) -> bytes:
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    raw = text.encode()
    return (uvarint(len(raw) + 1) if flexible else INT16.pack(len(raw))) + raw


def _count(number: int, flexible: bool) -> bytes:
    return uvarint(number + 1) if flexible else INT32.pack(number)
