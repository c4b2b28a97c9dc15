"""The short way for a produce request that is like one before it.

A producer sends the same request again and again, but for correlation id and records. Each connection remembers the kinds
of request that it has sent of late. A frame that begins like one of them is taken apart by one unpack, header of its batch
included, and answered by one pack. Whatever is unusual about it goes the long way (`ProduceHandler`), which also says what
is wrong.
"""

from __future__ import annotations

import struct
import time
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from millstream.wire.batch import HEADER, HEADER_SIZE, TRANSACTIONAL
from millstream.wire.errors import KafkaError
from millstream.wire.primitives import uvarint
from millstream.wire.produce import BEHIND_RECORDS, PartitionResult, Repeated

if TYPE_CHECKING:
    from millstream.broker.apis.produce import ProduceHandler
    from millstream.broker.network.connection import Connection
    from millstream.broker.partitions import Partition

MAX_KINDS = 64  # requests remembered per connection

_time_ns = time.time_ns
_length_told = lru_cache(1024)(uvarint)


class Kind(NamedTuple):
    """A kind of request, and the partition it is for."""

    request: Repeated
    partition: Partition


class UsualProduces:
    """The kinds of request that a connection has sent of late, by their prefix.

    Requests for the partitions of one topic have prefixes of one length, so one look finds the kind.
    """

    __slots__ = ("_handler", "_kinds", "_layouts", "_prefix_end", "api")

    def __init__(self, handler: ProduceHandler) -> None:
        self._handler = handler
        self.api = handler.api
        self._prefix_end = 0
        self._kinds: dict[bytes, Kind] = {}

    def remember(self, request: Repeated, partition: Partition) -> None:
        if len(self._kinds) >= MAX_KINDS:
            self._kinds.clear()
        self._kinds[request.prefix] = Kind(request, partition)
        if request.prefix_end != self._prefix_end:
            self._prefix_end = request.prefix_end
            # API and version, correlation id, prefix, length of the records (a varint of 1 to 3 bytes), header of the batch
            self._layouts = [
                struct.Struct(f">ii{len(request.prefix)}s{size}s{HEADER.format[1:]}") for size in range(4)
            ]

    def take(self, connection: Connection, view: memoryview, start: int, end: int) -> bool:
        """Handle the frame that lies there, if it is of a kind that is remembered and the short way will do."""
        size = end - start - self._prefix_end - BEHIND_RECORDS  # of the records and of the length before them
        if size <= 128:
            told = 1
        elif size <= 16385:
            told = 2
        elif size <= 2097154:
            told = 3
        else:
            return False
        size -= told
        if size < HEADER_SIZE:
            return False
        fields = self._layouts[told].unpack_from(view, start)
        known = self._kinds.get(fields[2])
        if known is None:
            return False
        request, partition = known
        stop = end - BEHIND_RECORDS
        if (
            fields[0] != request.version
            or fields[3] != _length_told(size + 1)
            or fields[9] & TRANSACTIONAL
            or view[stop]
            or view[stop + 1]
            or view[stop + 2]
            or not (partition.open_to_clients and partition.enough_in_sync)
        ):
            return False
        now_ms = _time_ns() // 1_000_000
        log = partition.log
        try:
            base = log.append_plain(view[stop - size : stop], fields[4:], partition.leader_epoch, now_ms)
        except KafkaError as error:
            self._handler.refuse(connection, request, fields[1], partition, error)
            return True
        if base < 0:
            return False
        end_offset = log.end_offset
        partition.bytes_in += size
        partition.messages_in += end_offset - base
        partition.advance(now_ms)
        append_time = now_ms if log.stamps_time else -1
        if log.high_watermark >= end_offset or not (request.acks == -1 or partition.flushing):
            connection.send(request.pack(fields[1], base, append_time, log.start_offset))
        else:
            result = PartitionResult(request.index, 0, base, append_time, log.start_offset)
            self._handler.answer_later(connection, request, fields[1], partition, end_offset, result)
        if partition.fetch_waiters:
            partition.wake_fetches()
        return True
