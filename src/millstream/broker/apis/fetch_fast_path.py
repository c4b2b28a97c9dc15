"""Fetch requests that repeat the last one of their connection, served without decoding.

A consumer of one partition that has records waiting sends the same request again and again, but for
correlation id and offset, and gets the same response but for its numbers and records. Such a frame is taken
apart by one unpack and answered by one pack. Anything else (nothing new, a small response, an aborted
transaction, any error) is left to `FetchHandler` before anything was changed.

Most clients fetch in a session (KIP-227), where the epoch of the session counts up too. Sessions of one
partition have a template as well; they move on as `FetchSessions.open` moves them.

All paths read by `PartitionLog.read` and send by `FetchHandler.send`;
tests/broker/apis/test_fast_path_equivalence.py holds them against each other.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from millstream.broker.network.file_range import COPY_BELOW, FileRange, not_in_memory
from millstream.wire.errors import KafkaError
from millstream.wire.fetch import (
    FIRST_FLEXIBLE,
    FIRST_WITH_TOPIC_ID,
    FIRST_WITHOUT_REPLICA,
    READ_COMMITTED,
    FetchPartition,
    FetchRequest,
)
from millstream.wire.primitives import INT32
from millstream.wire.varint import uvarint

if TYPE_CHECKING:
    from millstream.broker.apis.fetch import FetchHandler
    from millstream.broker.apis.fetch_sessions import Session
    from millstream.broker.network.connection import Connection
    from millstream.broker.partition import Partition
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
        "_offset_at",
        "_partition",
        "_prefix",
        "_request",
        "_response",
        "_suffix",
        "_upto",
        "_want",
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
        self._want = want
        self._epoch = want.leader_epoch
        self._max_bytes = min(want.max_bytes, request.max_bytes, handler.max_bytes)
        self._min_bytes = max(min(request.min_bytes, request.max_bytes, handler.max_bytes), COPY_BELOW)
        committed = request.isolation == READ_COMMITTED
        self._upto: Upto = "lso" if committed else "hw"
        # The list of aborted transactions: empty, or null.
        self._aborted = 1 if committed else 0
        self._offset_at = offset_at = len(frame) - _BEHIND_OFFSET - 8
        self._prefix = bytes(frame[8:offset_at])
        self._suffix = bytes(frame[offset_at + 8 :])
        self._request = struct.Struct(f">ii{len(self._prefix)}sq{len(self._suffix)}s")
        name = topic if version >= FIRST_WITH_TOPIC_ID else uvarint(len(topic) + 1) + topic
        # No tags, throttle time, error; session; one topic; one partition, which has no error.
        self._head = (
            bytes(7)
            + INT32.pack(request.session_id)
            + b"\x02"
            + name
            + b"\x02"
            + struct.pack(">ih", want.partition, 0)
        )
        # Size, correlation id, head, high watermark, last stable and log start offset, aborted, replica.
        self._response = struct.Struct(f">ii{len(self._head)}sqqqBi")

    @staticmethod
    def fits(request: FetchRequest, frame: memoryview, version: int) -> bool:
        """Whether a request is simple enough to be a template."""
        return (
            version >= FIRST_FLEXIBLE
            and len(request.topics) == 1
            and len(request.topics[0][1]) == 1
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
        return self._answer(connection, correlation_id, offset)

    def _answer(
        self, connection: Connection, correlation_id: int, offset: int, session: Session | None = None
    ) -> bool:
        partition = self._partition
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
        if session is not None:
            self._move_on(session, connection, offset)
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

    def _move_on(self, session: Session, connection: Connection, offset: int) -> None:
        raise AssertionError("no session, nothing to move")


class SessionFetchFastPath(FetchFastPath):
    """The same in a session that has no other partition."""

    __slots__ = ("_key", "_middle", "_session")

    def __init__(
        self,
        handler: FetchHandler,
        request: FetchRequest,
        frame: memoryview,
        version: int,
        partition: Partition,
        session: Session,
        body_at: int,
    ) -> None:
        super().__init__(handler, request, frame, version, partition)
        self._session = session
        self._key = (request.topics[0][0], self._want.partition)
        # Behind the replica, which newer versions do not send, max wait, min bytes, max bytes, isolation, id.
        epoch_at = body_at + (17 if version >= FIRST_WITHOUT_REPLICA else 21)
        self._prefix = bytes(frame[8:epoch_at])
        self._middle = bytes(frame[epoch_at + 4 : self._offset_at])
        self._request = struct.Struct(f">ii{len(self._prefix)}si{len(self._middle)}sq{len(self._suffix)}s")

    def try_handle(self, connection: Connection, view: memoryview, start: int, end: int) -> bool:
        if end - start != self._request.size:
            return False
        key_and_version, correlation_id, prefix, epoch, middle, offset, suffix = self._request.unpack_from(
            view, start
        )
        partition, session = self._partition, self._session
        if (
            prefix != self._prefix
            or middle != self._middle
            or suffix != self._suffix
            or key_and_version != self._key_and_version
            or epoch != session.epoch
            or len(session.partitions) != 1
            or self._key not in session.partitions
            or session not in self._handler.sessions
            or not partition.leads
            or self._epoch not in (-1, partition.leader_epoch)
        ):
            return False
        return self._answer(connection, correlation_id, offset, session)

    def _move_on(self, session: Session, connection: Connection, offset: int) -> None:
        """What the full path does to a session whose partition has records."""
        want, log = self._want, self._partition.log
        cached = session.partitions[self._key]
        cached.want = FetchPartition(
            want.partition, want.leader_epoch, offset, want.last_fetched_epoch, want.log_start, want.max_bytes
        )
        cached.high_watermark = log.high_watermark
        cached.last_stable = log.last_stable_offset
        cached.log_start = log.start_offset
        self._handler.sessions.move_on(session, connection.loop.time())
