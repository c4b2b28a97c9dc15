"""The short way for a fetch that is like the one before it.

A consumer of one partition that reads what lies there sends the same request again and again, but for correlation id and
offset, and gets the same answer but for its numbers and records. Such a frame is taken apart by one unpack and answered by
one pack. Whatever is unusual (a session, nothing new, a small answer, an aborted transaction, any error) goes the long way
(`FetchHandler`).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from millstream.broker.network.file_range import COPY_BELOW, FileRange, not_in_memory
from millstream.wire.errors import KafkaError
from millstream.wire.fetch import FIRST_FLEXIBLE, FIRST_WITH_TOPIC_ID, READ_COMMITTED, FetchRequest
from millstream.wire.primitives import uvarint

if TYPE_CHECKING:
    from millstream.broker.apis.fetch import FetchHandler
    from millstream.broker.network.connection import Connection, Part
    from millstream.broker.partitions import Partition
    from millstream.storage.log import Upto

FETCH = 1  # the API
_REST = b"\0\0\1\1\0"  # behind a partition: its tags, those of its topic, nothing to forget, no rack, tags
_TAIL = b"\0\0\0"  # behind the records: tags of partition, topic and answer
_BEHIND_OFFSET = 16 + len(_REST)  # last fetched epoch, log start, max bytes


class UsualFetch:
    """What a connection fetched last."""

    __slots__ = (
        "_aborted",
        "_answer",
        "_enough",
        "_epoch",
        "_handler",
        "_head",
        "_layout",
        "_max_bytes",
        "_partition",
        "_prefix",
        "_suffix",
        "_upto",
        "_version",
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
        self._version = FETCH << 16 | version  # as it stands in the frame
        self._partition = partition
        topic, (want,) = request.topics[0]
        self._epoch = want.leader_epoch
        self._max_bytes = min(want.max_bytes, request.max_bytes, handler.max_bytes)
        self._enough = max(min(request.min_bytes, request.max_bytes, handler.max_bytes), COPY_BELOW)
        committed = request.isolation == READ_COMMITTED
        self._upto: Upto = "lso" if committed else "hw"
        self._aborted = 1 if committed else 0  # a list with nothing in it, or none
        offset_at = len(frame) - _BEHIND_OFFSET - 8
        self._prefix = bytes(frame[8:offset_at])
        self._suffix = bytes(frame[offset_at + 8 :])
        self._layout = struct.Struct(f">ii{len(self._prefix)}sq{len(self._suffix)}s")
        name = topic if version >= FIRST_WITH_TOPIC_ID else uvarint(len(topic) + 1) + topic
        # no tags, throttle time, error, session; one topic; one partition, which has no error
        self._head = bytes(11) + b"\x02" + name + b"\x02" + struct.pack(">ih", want.partition, 0)
        # size, correlation id, head, high watermark, last stable offset, log start, aborted, preferred replica
        self._answer = struct.Struct(f">ii{len(self._head)}sqqqBi")

    @staticmethod
    def fits(request: FetchRequest, frame: memoryview, version: int) -> bool:
        """Whether a request is of the kind that is worth remembering."""
        return (
            version >= FIRST_FLEXIBLE
            and len(request.topics) == 1
            and len(request.topics[0][1]) == 1
            and request.session_epoch == -1
            and not request.session_id
            and request.replica_id < 0
            and request.topics[0][1][0].last_fetched_epoch < 0
            and frame[-len(_REST) :] == _REST
        )

    def take(self, connection: Connection, view: memoryview, start: int, end: int) -> bool:
        """Answer the frame that lies there, if it is like the last one and the short way will do."""
        if end - start != self._layout.size:
            return False
        version, correlation_id, prefix, offset, suffix = self._layout.unpack_from(view, start)
        partition = self._partition
        if (
            prefix != self._prefix
            or suffix != self._suffix
            or version != self._version
            or not partition.leads
            or self._epoch not in (-1, partition.leader_epoch)
        ):
            return False
        log = partition.log
        try:
            found = log.read(offset, self._max_bytes, self._upto, True)
            segment, position, size, _ = found
            if segment is None or size < self._enough:
                return False
            if self._aborted and log.aborted_transactions(offset, found):
                return False
            source = FileRange(segment, position, size, segment is log.active)
        except (KafkaError, OSError):
            return False
        length = uvarint(size + 1)
        answer = self._answer
        head = answer.pack(
            answer.size - 4 + len(length) + size + len(_TAIL),
            correlation_id,
            self._head,
            log.high_watermark,
            log.last_stable_offset,
            log.start_offset,
            self._aborted,
            -1,
        )
        partition.bytes_out += size
        parts: list[Part] = [head + length, source, _TAIL]
        if not_in_memory(source):
            self._handler.send_warm(connection, parts, [source])
        else:
            connection.send_parts(parts)
        return True
