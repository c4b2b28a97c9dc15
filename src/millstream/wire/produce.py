"""Produce, the first of the two hot messages: read and packed by hand, versions 3 to 13.

Topics are named by the bytes that the request used: the UTF-8 name up to version 12, the 16 bytes of the
topic id from version 13. The answer repeats them as they came. The records stay where they are, as views into
the frame.
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
from millstream.wire.varint import Malformed, read_uvarint, uvarint

FIRST_FLEXIBLE = 9
FIRST_WITH_TOPIC_ID = 13
MAX_ELEMENTS = 100_000  # topics and partitions of a request, unless the caller says otherwise
BEHIND_RECORDS = 3  # bytes of a flexible request with one partition: the empty tag sections that end it

_ACKS_TIMEOUT = struct.Struct(">hi")
_INDEX_SIZE = struct.Struct(">ii")
_RESULT = struct.Struct(">ihqqq")  # index, error, base offset, append time, log start
_RESULT_V3 = struct.Struct(">ihqq")


class ProduceRequest(NamedTuple):
    transactional_id: bytes | None
    acks: int
    timeout_ms: int
    topics: list[tuple[bytes, list[tuple[int, memoryview | None]]]]


class PartitionResult(NamedTuple):
    partition: int
    error: int = 0
    base_offset: int = -1
    append_time: int = -1
    log_start: int = -1
    message: str | None = None
    leader: tuple[int, int] | None = None  # (id, epoch), with a leadership error
    records: tuple[tuple[int, str], ...] = ()  # those of the batch for which it was refused, and why


class TooManyElements(Malformed):
    """More topics and partitions than allowed."""


def read_produce(
    frame: memoryview, at: int, version: int, max_elements: int = MAX_ELEMENTS
) -> ProduceRequest:
    """Decode the body of a Produce request that begins at `at` and ends with the frame. `TooManyElements` if
    it names more than `max_elements` topics and partitions."""
    if version < FIRST_FLEXIBLE:
        return _read_old(frame, at, max_elements)
    transactional_id, at = read_compact_string(frame, at)
    acks, timeout = _ACKS_TIMEOUT.unpack_from(frame, at)
    topic_count, at = read_count(frame, at + 6, True)
    left = max_elements - topic_count
    topics = []
    size = len(frame)
    for _ in range(topic_count):
        if version >= FIRST_WITH_TOPIC_ID:
            topic, at = read_bytes(frame, at, 16)
        else:
            length, at = read_uvarint(frame, at)
            topic, at = read_bytes(frame, at, length - 1)
        partition_count, at = read_count(frame, at, True)
        left -= partition_count
        if left < 0:
            raise TooManyElements(f"more than {max_elements} topics and partitions in one request")
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(partition_count):
            index = INT32.unpack_from(frame, at)[0]
            length, at = read_uvarint(frame, at + 4)
            if length:
                end = at + length - 1
                if end > size:
                    raise Malformed("records reach past the frame")
                partitions.append((index, frame[at:end]))
                at = end
            else:
                partitions.append((index, None))
            at = at + 1 if frame[at] == 0 else skip_tags(frame, at)
        topics.append((topic, partitions))
        at = at + 1 if frame[at] == 0 else skip_tags(frame, at)
    return ProduceRequest(transactional_id, acks, timeout, topics)


class RequestTemplate:
    """What a producer's request has in common with its next ones: everything but correlation id and records.

    Made from one request (flexible version, one topic, one partition, not transactional). `prefix` is what
    lies between the correlation id and the length of the records, which begins at `prefix_end`. A frame with
    the same bytes there asks for the same write, so that it needs no decoding, and its response differs in
    its numbers only.
    """

    __slots__ = (
        "_answer",
        "_head",
        "_size",
        "_tail",
        "acks",
        "index",
        "prefix",
        "prefix_end",
        "timeout_ms",
        "topic",
        "version",
    )

    def __init__(self, request: ProduceRequest, frame: memoryview, version: int, records: memoryview) -> None:
        self.version = version
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.topic = topic = request.topics[0][0]
        self.index = request.topics[0][1][0][0]
        self.prefix_end = len(frame) - BEHIND_RECORDS - len(records) - len(uvarint(len(records) + 1))
        self.prefix = bytes(frame[8 : self.prefix_end])
        name = topic if version >= FIRST_WITH_TOPIC_ID else uvarint(len(topic) + 1) + topic
        # No header tags, one topic, one partition, which has no error.
        self._head = b"\0\x02" + name + b"\x02" + struct.pack(">ih", self.index, 0)
        self._tail = b"\x01\0\0\0\0\0\0\0\0"  # no errors, no message, tags, tags, throttle time, tags
        self._answer = struct.Struct(f">ii{len(self._head)}sqqq{len(self._tail)}s")
        self._size = self._answer.size - 4

    @classmethod
    def of(cls, request: ProduceRequest, frame: memoryview, version: int) -> "RequestTemplate | None":
        """The template of this request, or None if it is not simple enough to have one."""
        if version < FIRST_FLEXIBLE or request.transactional_id is not None or len(request.topics) != 1:
            return None
        partitions = request.topics[0][1]
        if len(partitions) != 1 or bytes(frame[-3:]) != b"\0\0\0":
            return None
        records = partitions[0][1]
        return None if records is None else cls(request, frame, version, records)

    def pack(self, correlation_id: int, base_offset: int, append_time: int, log_start: int) -> bytes:
        """The response to a write that succeeded."""
        return self._answer.pack(
            self._size, correlation_id, self._head, base_offset, append_time, log_start, self._tail
        )


def _read_old(frame: memoryview, at: int, max_elements: int) -> ProduceRequest:
    transactional_id, at = read_string(frame, at)
    acks, timeout = _ACKS_TIMEOUT.unpack_from(frame, at)
    topic_count, at = read_count(frame, at + 6, False)
    left = max_elements - topic_count
    topics = []
    size = len(frame)
    for _ in range(topic_count):
        topic, at = read_string(frame, at)
        if topic is None:
            raise Malformed("topic without a name")
        partition_count, at = read_count(frame, at, False)
        left -= partition_count
        if left < 0:
            raise TooManyElements(f"more than {max_elements} topics and partitions in one request")
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(partition_count):
            index, length = _INDEX_SIZE.unpack_from(frame, at)
            at += 8
            if length < 0:
                partitions.append((index, None))
                continue
            end = at + length
            if end > size:
                raise Malformed("records reach past the frame")
            partitions.append((index, frame[at:end]))
            at = end
        topics.append((topic, partitions))
    return ProduceRequest(transactional_id, acks, timeout, topics)


def pack_produce_response(
    correlation_id: int,
    version: int,
    topics: list[tuple[bytes, list[PartitionResult]]],
    endpoints: bytes = b"",
) -> bytes:
    """The whole response frame, size prefix included.

    `endpoints` are the tagged bytes of NodeEndpoints (version 10 on), for answers that name another leader.
    """
    if version >= FIRST_FLEXIBLE:
        body = _pack_flexible(version, topics) + (endpoints or b"\0")
        return struct.pack(">iiB", len(body) + 5, correlation_id, 0) + body
    body = _pack_old(version, topics)
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


def _pack_flexible(version: int, topics: list[tuple[bytes, list[PartitionResult]]]) -> bytes:
    out = [uvarint(len(topics) + 1)]
    for topic, results in topics:
        if version < FIRST_WITH_TOPIC_ID:
            out.append(uvarint(len(topic) + 1))
        out.append(topic)
        out.append(uvarint(len(results) + 1))
        for index, error, base, append_time, start, message, leader, records in results:
            out.append(_RESULT.pack(index, error, base, append_time, start))
            if message is None and leader is None:
                out.append(b"\x01\0\0")  # no record errors, no message, no tags
                continue
            text = b"\0" if message is None else _compact(message)
            tags = b"\0"
            if leader is not None and version >= 10:
                tags = b"\x01\0\x09" + struct.pack(">iiB", leader[0], leader[1], 0)
            refused = b"".join(
                INT32.pack(batch_index) + _compact(reason) + b"\0" for batch_index, reason in records
            )
            out.append(uvarint(len(records) + 1) + refused + text + tags)
        out.append(b"\0")
    out.append(b"\0\0\0\0")  # throttle time
    return b"".join(out)


def _pack_old(version: int, topics: list[tuple[bytes, list[PartitionResult]]]) -> bytes:
    out = [INT32.pack(len(topics))]
    for topic, results in topics:
        out.append(INT16.pack(len(topic)) + topic + INT32.pack(len(results)))
        for index, error, base, append_time, start, message, _, records in results:
            if version < 5:
                out.append(_RESULT_V3.pack(index, error, base, append_time))
                continue
            out.append(_RESULT.pack(index, error, base, append_time, start))
            if version == 8:
                out.append(INT32.pack(len(records)))
                out.extend(INT32.pack(batch_index) + _string(reason) for batch_index, reason in records)
                out.append(b"\xff\xff" if message is None else _string(message))
    out.append(b"\0\0\0\0")
    return b"".join(out)


def _string(text: str) -> bytes:
    data = text.encode()
    return INT16.pack(len(data)) + data


def _compact(text: str) -> bytes:
    raw = text.encode()
    return uvarint(len(raw) + 1) + raw
