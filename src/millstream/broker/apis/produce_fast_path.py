"""Produce requests that repeat an earlier one of their connection, served without decoding.

A producer's requests differ in correlation id and records only. Each connection keeps templates of the
requests it has sent lately. A frame that begins like one of them is taken apart by one unpack, which includes
the header of its batch, appended by `append_fast`, and answered by one pack. A frame that differs in
anything else, and a batch that needs more than its header checked, is left to `ProduceHandler` before
anything was changed.

What follows the append (`Partition.appended`, `ProduceHandler.refused`) is the full path's own code;
tests/broker/apis/test_fast_path_equivalence.py holds both against each other. Requests that wait for their
commit stand in a `ProduceQueue`, which lets those that follow them be written meanwhile.
"""

from __future__ import annotations

import struct
import time
from functools import lru_cache
from typing import TYPE_CHECKING

from millstream.wire.batch import HEADER, HEADER_SIZE, TRANSACTIONAL
from millstream.wire.errors import KafkaError
from millstream.wire.produce import BEHIND_RECORDS, RequestTemplate
from millstream.wire.varint import uvarint

if TYPE_CHECKING:
    from millstream.broker.apis.pending_produce import ProduceQueue
    from millstream.broker.apis.produce import ProduceHandler
    from millstream.broker.network.connection import Connection
    from millstream.broker.partition import Partition

MAX_TEMPLATES = 64  # per connection

_time_ns = time.time_ns
_cached_uvarint = lru_cache(1024)(uvarint)


class ProduceFastPath:
    """The templates of one connection, by their prefix.

    Requests for the partitions of one topic have prefixes of the same length, so that one lookup finds the
    template.
    """

    __slots__ = ("_handler", "_layouts", "_prefix_end", "_templates", "api")

    def __init__(self, handler: ProduceHandler) -> None:
        self._handler = handler
        self.api = handler.api
        self._prefix_end = 0
        self._templates: dict[bytes, tuple[RequestTemplate, Partition]] = {}

    def learn(self, template: RequestTemplate, partition: Partition) -> None:
        if len(self._templates) >= MAX_TEMPLATES:
            self._templates.clear()
        self._templates[template.prefix] = template, partition
        if template.prefix_end != self._prefix_end:
            self._prefix_end = template.prefix_end
            # API key and version, correlation id, prefix, length of the records (varint), batch header.
            self._layouts = [
                struct.Struct(f">ii{len(template.prefix)}s{size}s{HEADER.format[1:]}") for size in range(4)
            ]

    def try_handle(
        self, connection: Connection | ProduceQueue, view: memoryview, start: int, end: int
    ) -> bool:
        size = end - start - self._prefix_end - BEHIND_RECORDS  # of the records, with the varint before them
        if size <= 128:
            varint_size = 1
        elif size <= 16385:
            varint_size = 2
        elif size <= 2097154:
            varint_size = 3
        else:
            return False
        size -= varint_size
        if size < HEADER_SIZE:
            return False
        fields = self._layouts[varint_size].unpack_from(view, start)
        known = self._templates.get(fields[2])
        if known is None:
            return False
        template, partition = known
        stop = end - BEHIND_RECORDS
        if (
            fields[0] != template.version
            or fields[3] != _cached_uvarint(size + 1)
            or fields[9] & TRANSACTIONAL
            or view[stop]
            or view[stop + 1]
            or view[stop + 2]
            or not (partition.open_to_clients and partition.enough_in_sync)
            or (partition.replication is not None and template.acks != -1)
        ):
            return False
        now_ms = _time_ns() // 1_000_000
        log = partition.log
        try:
            base_offset = log.append_fast(
                view[stop - size : stop], fields[4:], partition.leader_epoch, now_ms
            )
        except KafkaError as error:
            self._handler.answer_refused(connection, template, fields[1], partition, error)
            return True
        if base_offset < 0:
            return False
        append_time = now_ms if log.stamps_time else -1
        committed = partition.appended(size, log.end_offset - base_offset, now_ms)
        if committed or not partition.waits_for_commit(template.acks):
            connection.send(template.pack(fields[1], base_offset, append_time, log.start_offset))
        else:
            self._handler.answer_later(connection, template, fields[1], partition, base_offset, append_time)
        if partition.fetch_waiters:
            partition.wake_fetches()
        return True
