"""Fetch requests that repeat the last one of their connection, served without decoding.

A consumer of one partition that has records waiting sends the same request again and again, but for
correlation id and offset, and gets the same response but for its numbers and records. Such a frame is taken
apart by one unpack and answered by one pack. Anything else (a session, nothing new, a small response, an
aborted transaction, any error) is left to `FetchHandler` before anything was changed.

Both paths read by `PartitionLog.read` and send by `FetchHandler.send`;
tests/broker/apis/test_fast_path_equivalence.py holds them against each other.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from millstream.broker.network.file_range import COPY_BELOW, FileRange, not_in_memory
from millstream.wire.errors import KafkaError
from millstream.wire.fetch import FIRST_FLEXIBLE, FIRST_WITH_TOPIC_ID, READ_COMMITTED, FetchRequest
from millstream.wire.varint import uvarint

if TYPE_CHECKING:
    from millstream.broker.apis.fetch import FetchHandler
    from millstream.broker.network.connection import Connection
    from millstream.broker.partitions import Partition
    from millstream.storage.log import Upto

API_KEY = 1
# Behind the only partition of a request: its tags, those of its topic, no forgotten topics, no rack, tags.
_REQUEST_END = b"\0\0\1\1\0"
# Behind the fetch offset: last fetched epoch, log start offset, max bytes.
_BEHIND_OFFSET = 16 + len(_REQUEST_END)
# Behind the records of a response: tags of partition, topic and response.
_RESPONSE_END = b"\0\0\0"


class FetchFastPath:
    """The template of a connection's last fetch."""

    __slots__ = (
        "_aborted",
        "_epoch",
        "_handler",
        "_head",
        "_key_and_version",
        "_max_bytes",
        "_min_bytes",
        "_partition",
        "_prefix",
        "_request",
        "_response",
        "_suffix",
        "_upto",
        "api",
    )

    def __init__(
        self,
        handler: FetchHandler,
        request: FetchRequest,
        frame: memoryview,
        version: int,
        partition: Partition,
    ) -> None:
        self._handler = handler
        self.api = handler.api
        self._key_and_version = API_KEY << 16 | version
        self._partition = partition
        topic, (want,) = request.topics[0]
        self._epoch = want.leader_epoch
        self._max_bytes = min(want.max_bytes, request.max_bytes, handler.max_bytes)
        self._min_bytes = max(min(request.min_bytes, request.max_bytes, handler.max_bytes), COPY_BELOW)
        committed = request.isolation == READ_COMMITTED
        self._upto: Upto = "lso" if committed else "hw"
        # The list of aborted transactions: empty, or null.
        self._aborted = 1 if committed else 0
        offset_at = len(frame) - _BEHIND_OFFSET - 8
        self._prefix = bytes(frame[8:offset_at])
        self._suffix = bytes(frame[offset_at + 8 :])
        self._request = struct.Struct(f">ii{len(self._prefix)}sq{len(self._suffix)}s")
        name = topic if version >= FIRST_WITH_TOPIC_ID else uvarint(len(topic) + 1) + topic
        # No tags, throttle time, error, session; one topic; one partition, which has no error.
        self._head = bytes(11) + b"\x02" + name + b"\x02" + struct.pack(">ih", want.partition, 0)
        # Size, correlation id, head, high watermark, last stable and log start offset, aborted, replica.
        self._response = struct.Struct(f">ii{len(self._head)}sqqqBi")

    @staticmethod
    def fits(request: FetchRequest, frame: memoryview, version: int) -> bool:
        """Whether a request is simple enough to be a template."""
        return (
            version >= FIRST_FLEXIBLE
            and len(request.topics) == 1
            and len(request.topics[0][1]) == 1
            and request.session_epoch == -1
            and not request.session_id
            and request.replica_id < 0
            and request.topics[0][1][0].last_fetched_epoch < 0
            and frame[-len(_REQUEST_END) :] == _REQUEST_END
        )

    def try_handle(self, connection: Connection, view: memoryview, start: int, end: int) -> bool:
        if end - start != self._request.size:
            return False
        key_and_version, correlation_id, prefix, offset, suffix = self._request.unpack_from(view, start)
        partition = self._partition
        if (
            prefix != self._prefix
            or suffix != self._suffix
            or key_and_version != self._key_and_version
            or not partition.leads
            or self._epoch not in (-1, partition.leader_epoch)
        ):
            return False
        log = partition.log
        try:
            found = log.read(offset, self._max_bytes, self._upto, True)
            segment, position, size, _ = found
            if segment is None or size < self._min_bytes:
                return False
            if self._aborted and log.aborted_transactions(offset, found):
                return False
            newest = segment is log.active
            source = FileRange(segment, position, size, newest)
        except (KafkaError, OSError):
            return False
        length = uvarint(size + 1)
        response = self._response
        head = response.pack(
            response.size - 4 + len(length) + size + len(_RESPONSE_END),
            correlation_id,
            self._head,
            log.high_watermark,
            log.last_stable_offset,
            log.start_offset,
            self._aborted,
            -1,
        )
        partition.bytes_out += size
        cold = [] if newest or not not_in_memory(source) else [source]
        self._handler.send(connection, [head + length, source, _RESPONSE_END], cold)
        return True
