"""Produced batches that the log has to look into (compacted topics, another codec, a header that lacks its
newest timestamp), opened before any of them is written.

A few compressed bytes may become very many, and very many records take long to check. So the loop opens what
takes some milliseconds: by batch (`validate.LOOP_LIMITS`) and by request. The rest is opened by a thread, one
batch at a time whoever sent it: its memory is bounded, and the loop serves the others meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from struct import Struct
from typing import TYPE_CHECKING

from millstream.settings.log_config import LogConfig
from millstream.storage import validate
from millstream.wire.batch import CODEC_MASK, HEADER_SIZE, SMALLEST_RECORD
from millstream.wire.compression import DEFAULT_LIMIT
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.network.connection import Connection
    from millstream.broker.partition import Partition

# What the loop opens of one request, before the rest of it goes to a thread.
BATCHES_AT_ONCE, RECORDS_AT_ONCE, BYTES_AT_ONCE = 6, 4096, 64 * 1024
NEVER_LARGE = validate.LOOP_LIMITS.records * SMALLEST_RECORD  # bytes of a batch that is not compressed
ATTRIBUTES_AT, TIMES_AT = 22, 27

Table = dict[bytes, dict[int, "Partition"]]
TopicBatches = tuple[bytes, list[tuple[int, memoryview | None]]]
# By the number of the topic, and that of the batch in the topic.
BatchKey = tuple[int, int]
# The settings under which it was opened, and what the log is to store or why it refuses.
OpenedBatch = tuple[LogConfig, memoryview | KafkaError]
Opened = dict[BatchKey, OpenedBatch]
LargeBatch = tuple[BatchKey, LogConfig]

_times = Struct(">qq").unpack_from  # of a batch header: base and max timestamp


def may_be_opened(topics: list[TopicBatches], table: Table) -> bool:
    """Whether a log may have to look into one of these batches. Asked for every request."""
    for topic, batches in topics:
        hosted = table.get(topic)
        if hosted is not None:
            for index, records in batches:
                partition = hosted.get(index)
                if partition is not None and records is not None and len(records) >= HEADER_SIZE:
                    base_timestamp, max_timestamp = _times(records, TIMES_AT)
                    if max_timestamp < base_timestamp or partition.log.opens:
                        return True
    return False


class BatchOpener:
    def __init__(self) -> None:
        self._thread_is_busy = asyncio.Lock()

    def open_now(self, topics: list[TopicBatches], table: Table, opened: Opened) -> list[LargeBatch]:
        """Open what does not take long into `opened`; returns the rest."""
        large: list[LargeBatch] = []
        batches_left, records_left = BATCHES_AT_ONCE, RECORDS_AT_ONCE
        now_ms = time.time_ns() // 1_000_000
        for topic_number, (topic, batches) in enumerate(topics):
            for number, (index, records) in enumerate(batches):
                key = topic_number, number
                if (
                    records is None
                    or len(records) < HEADER_SIZE
                    or not (records[ATTRIBUTES_AT] & CODEC_MASK or len(records) > NEVER_LARGE)
                    or key in opened
                ):
                    continue
                partition = table.get(topic, {}).get(index)
                if partition is None or not partition.open_to_clients:
                    continue
                count = partition.log.records_to_open(records)
                if count <= 0:
                    continue
                batches_left -= 1
                records_left -= count
                config = partition.log.config
                if batches_left < 0 or records_left < 0 or _is_large(records, config):
                    large.append((key, config))
                    continue
                try:
                    opened[key] = config, validate.prepare(records, config, now_ms, validate.LOOP_LIMITS)
                except KafkaError as error:
                    opened[key] = config, error
                except validate.TooMuchToOpen:
                    large.append((key, config))
        return large

    async def open_by_thread(
        self, large: list[LargeBatch], topics: list[TopicBatches], connection: Connection, opened: Opened
    ) -> None:
        """Open these batches of `topics`; not all of them if the client leaves."""
        size = 0
        for key, config in large:
            topic_number, number = key
            records = topics[topic_number][1][number][1]
            async with self._thread_is_busy:
                if connection.closed:
                    return
                batch = await connection.dispatcher.in_thread(_prepared, records, config)
            if isinstance(batch, memoryview):
                size += len(batch)
                if size > DEFAULT_LIMIT:
                    batch = KafkaError(ErrorCode.record_list_too_large, "the request has become too large")
            opened[key] = config, batch


def _is_large(records: memoryview, config: LogConfig) -> bool:
    """Too large to be decompressed, or compressed, by the loop."""
    if len(records) <= BYTES_AT_ONCE:
        return False
    return records[ATTRIBUTES_AT] & CODEC_MASK != 0 or config.compression_type != "producer"


def _prepared(batch: memoryview, config: LogConfig) -> memoryview | KafkaError:
    try:
        return validate.prepare(batch, config, time.time_ns() // 1_000_000)
    except KafkaError as error:
        return error
