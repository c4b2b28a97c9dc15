"""Judging and rewriting produced batches.

The append path tests everything at once and asks here for the reason only when something is wrong, so that a
good batch pays for one chain of comparisons. The order of the reasons is Kafka's.

What is not checked, on purpose: the inside of a batch that the log stores as it came (record lengths, offset
deltas, timestamps of single records). The checksum proves that it arrived as the producer built it. Compacted
topics (keys) and recompression open the batch and check all of it. A batch that claims to end before it
begins is opened for its newest timestamp only: some clients never fill in that field, and Kafka does not
believe it either.

Opening a batch takes time, and a few bytes may decompress to very many. With `limits`, `prepare` raises
`TooMuchToOpen` instead of opening what takes more than some milliseconds: the caller then has it done by a
thread. It touches nothing but the batch and the settings, so any thread may call it.

Rewriting: log append time sets the timestamp type and the newest timestamp; another codec recompresses the
records section as a whole, since its plain bytes are the same under every codec. Both compute a new checksum.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from millstream.settings.log_config import LogConfig
from millstream.wire.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    SMALLEST_RECORD,
    BatchHeader,
    read_header,
)
from millstream.wire.checksum import crc32c
from millstream.wire.compression import DEFAULT_LIMIT, DecompressedTooLarge
from millstream.wire.errors import ErrorCode, KafkaError, RecordsRefused

MAX_CODEC = 4
LARGEST_OFFSET = (1 << 63) - 1
MAX_OPENED_BYTES = 4 << 20  # bytes of records opened only to name the bad ones
CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_LENGTH = struct.Struct(">i")
_ATTRIBUTES = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")
_CRC = struct.Struct(">I")


def split(data: memoryview) -> list[memoryview]:
    """The batches of a produced record set. Anything but whole batches of format v2 is refused."""
    batches: list[memoryview] = []
    at, end = 0, len(data)
    if not end:
        raise KafkaError(ErrorCode.invalid_record, "a produced record set must contain a batch")
    while at < end:
        if end - at < HEADER_SIZE:
            raise KafkaError(ErrorCode.corrupt_message, f"{end - at} bytes are less than a batch header")
        magic = data[at + 16]
        if magic != MAGIC:
            code = ErrorCode.invalid_record if magic < MAGIC else ErrorCode.corrupt_message
            raise KafkaError(code, f"record format v{magic}; only v2 is accepted")
        size = int.from_bytes(data[at + 8 : at + LENGTH_END], "big", signed=True) + LENGTH_END
        if size < HEADER_SIZE or size > end - at:
            raise KafkaError(
                ErrorCode.corrupt_message, f"a batch claims {size} bytes where {end - at} are left"
            )
        batches.append(data[at : at + size])
        at += size
    return batches


def split_replicated(
    data: memoryview, expected: int, name: str
) -> tuple[list[memoryview], list[BatchHeader]]:
    """The batches that a leader sent and their headers, none before offset `expected`; a cut-off last one is
    left out."""
    parts: list[memoryview] = []
    headers: list[BatchHeader] = []
    at, end = 0, len(data)
    while end - at >= HEADER_SIZE:
        header = read_header(data, at)
        if header.magic != MAGIC or header.size < HEADER_SIZE:
            raise KafkaError(
                ErrorCode.corrupt_message, f"no batch at byte {at} of what the leader of {name} sent"
            )
        if header.size > end - at:
            break
        part = data[at : at + header.size]
        if crc32c(part[CRC_START:]) != header.crc:
            raise KafkaError(
                ErrorCode.corrupt_message, f"wrong checksum at offset {header.base_offset} of {name}"
            )
        if (
            header.base_offset < expected
            or header.last_offset_delta < 0
            or header.next_offset > LARGEST_OFFSET
        ):
            raise KafkaError(
                ErrorCode.invalid_record,
                f"the leader sent offset {header.base_offset} where {name} needs {expected} or later",
            )
        parts.append(part)
        headers.append(header)
        expected = header.next_offset
        at += header.size
    return parts, headers


def refuse(batch: memoryview, config: LogConfig, base_offset: int = 0, control: bool = False) -> None:
    """Raise the first thing that is wrong with one batch (as `split` returns them); return if it is sound.

    Its timestamps are the business of `check_times`.
    """
    header = read_header(batch)
    if header.base_offset != base_offset:
        raise KafkaError(
            ErrorCode.invalid_record, f"the batch starts at offset {header.base_offset} instead of 0"
        )
    if len(batch) > config.max_message_bytes:
        raise too_large(len(batch), config)
    crc = crc32c(batch[CRC_START:])
    if crc != header.crc:
        raise KafkaError(
            ErrorCode.corrupt_message, f"checksum {crc:08x} of the batch is not {header.crc:08x} as it claims"
        )
    if header.last_offset_delta < 0:
        raise KafkaError(ErrorCode.invalid_record, f"last offset delta {header.last_offset_delta}")
    if header.record_count <= 0:
        raise KafkaError(ErrorCode.invalid_record, f"a batch of {header.record_count} records")
    if not header.codec and header.record_count * SMALLEST_RECORD > header.size - HEADER_SIZE:
        raise KafkaError(
            ErrorCode.invalid_record, f"{header.record_count} records do not fit into {header.size} bytes"
        )
    if header.record_count != header.last_offset_delta + 1:
        raise KafkaError(
            ErrorCode.invalid_record,
            f"{header.record_count} records do not end at offset delta {header.last_offset_delta}",
        )
    if header.attributes & CONTROL and not control:
        raise KafkaError(ErrorCode.invalid_record, "clients may not write control records")
    if header.codec > MAX_CODEC:
        raise KafkaError(ErrorCode.unsupported_compression_type, f"unknown compression codec {header.codec}")
    if header.attributes & LOG_APPEND_TIME:
        raise KafkaError(
            ErrorCode.invalid_timestamp, "only the broker may stamp a batch with its append time"
        )


class TooMuchToOpen(Exception):
    """The batch would keep the event loop too long."""


class Limits(NamedTuple):
    """What may be opened at once: so many records, and bytes once they are decompressed."""

    records: int
    size: int


NO_LIMITS = Limits(1 << 31, DEFAULT_LIMIT)
LOOP_LIMITS = Limits(2048, 256 << 10)  # some milliseconds


def prepare(batch: memoryview, config: LogConfig, now_ms: int, limits: Limits = NO_LIMITS) -> memoryview:
    """What the log stores of a produced batch (as `split` returns them), but for what it has to stamp: all
    that can be judged and rewritten without looking at the log."""
    refuse(batch, config)
    try:
        if config.message_timestamp_type != "LogAppendTime":
            batch = check_times(batch, config, now_ms, limits)
        if opens(config):
            batch = rewrite(batch, config, limits)
    except DecompressedTooLarge:
        if limits is NO_LIMITS:
            raise
        raise TooMuchToOpen from None
    return batch


def check_times(batch: memoryview, config: LogConfig, now_ms: int, limits: Limits = NO_LIMITS) -> memoryview:
    """The batch (nearly always the same bytes) with the newest timestamp that it really has; refused if its
    times are too far from now. For topics that keep the producer's time."""
    header = read_header(batch)
    if header.max_timestamp < header.base_timestamp:
        from millstream.wire.record_walk import newest_timestamp

        if header.record_count > limits.records:
            raise TooMuchToOpen
        newest = newest_timestamp(batch, limits.size)
        if newest != header.max_timestamp:
            batch = batch if not batch.readonly else memoryview(bytearray(batch))
            try:
                _TIMESTAMP.pack_into(batch, 35, newest)
            except struct.error:
                raise KafkaError(ErrorCode.invalid_timestamp, f"timestamp {newest} is out of range") from None
            _CRC.pack_into(batch, 17, crc32c(batch[CRC_START:]))
            header = read_header(batch)
    latest = now_ms + config.message_timestamp_after_max_ms
    earliest = now_ms - config.message_timestamp_before_max_ms
    if header.max_timestamp > latest:
        reason = (
            f"timestamp {header.max_timestamp} is more than message.timestamp.after.max.ms ahead of {now_ms}"
        )
    elif _too_old(header.base_timestamp, earliest) or _too_old(header.max_timestamp, earliest):
        reason = (
            f"timestamp {header.base_timestamp} is more than message.timestamp.before.max.ms behind {now_ms}"
        )
    else:
        return batch
    named = _outside(batch, header, earliest, latest)
    if named:
        reason = "One or more records have been rejected due to invalid timestamp"  # the rest is said of each
    raise RecordsRefused(ErrorCode.invalid_timestamp, reason, named)


def _too_old(timestamp: int, earliest: int) -> bool:
    return timestamp < earliest and timestamp != NO_TIMESTAMP


def _outside(
    batch: memoryview, header: BatchHeader, earliest: int, latest: int
) -> tuple[tuple[int, str], ...]:
    """The records whose time is not between these; none where it would take too long to find out, or cannot
    be."""
    from millstream.wire.record_walk import MAX_NAMED_RECORDS, record_times

    if header.record_count > MAX_NAMED_RECORDS:
        return ()
    try:
        return tuple(
            (
                index,
                f"Timestamp {timestamp} of message with offset {index} is out of range. "
                f"The timestamp should be within [{earliest}, {latest}]",
            )
            for index, (_, timestamp) in enumerate(record_times(batch, MAX_OPENED_BYTES))
            if timestamp > latest or _too_old(timestamp, earliest)
        )
    except KafkaError:
        return ()


def too_large(size: int, config: LogConfig) -> KafkaError:
    return KafkaError(
        ErrorCode.message_too_large,
        f"a batch of {size} bytes; max.message.bytes is {config.max_message_bytes}",
    )


def opens(config: LogConfig) -> bool:
    """Does this topic need batches opened before they are stored?"""
    return config.compact or config.compression_type != "producer"


def stamp_time(batch: memoryview, attributes: int, now_ms: int) -> None:
    """Turn a batch, in place, into one of log append time. TypeError if it is read-only, before anything
    changed."""
    _ATTRIBUTES.pack_into(batch, 21, attributes | LOG_APPEND_TIME)
    _TIMESTAMP.pack_into(batch, 35, now_ms)
    _CRC.pack_into(batch, 17, crc32c(batch[CRC_START:]))


def rewrite(batch: memoryview, config: LogConfig, limits: Limits = NO_LIMITS) -> memoryview:
    """The batch (often the same bytes) under the codec of its topic, after the checks that need its
    records."""
    header = read_header(batch)
    if header.is_control:
        return batch
    codec = CODECS.get(config.compression_type, header.codec)
    if header.record_count > limits.records and (config.compact or codec != header.codec):
        raise TooMuchToOpen
    if config.compact:
        from millstream.wire.record_walk import check_records

        check_records(batch, require_keys=True, limit=limits.size)
    if codec != header.codec:
        batch = recompress(batch, header, codec, config, limits.size)
        if len(batch) > config.max_message_bytes:
            raise too_large(len(batch), config)
    return batch


def recompress(
    batch: memoryview, header: BatchHeader, codec: int, config: LogConfig, limit: int
) -> memoryview:
    """The batch with its records under another codec."""
    from millstream.wire.compression import compress, decompress
    from millstream.wire.record_walk import check_records

    check_records(batch, limit=limit)
    level = {
        1: config.compression_gzip_level,
        3: config.compression_lz4_level,
        4: config.compression_zstd_level,
    }.get(codec)
    records = decompress(header.codec, batch[HEADER_SIZE:], limit)
    if not codec and HEADER_SIZE + len(records) > config.max_message_bytes:
        raise too_large(HEADER_SIZE + len(records), config)
    records = compress(codec, records, level)
    changed = bytearray(batch[:HEADER_SIZE])
    changed += records
    _LENGTH.pack_into(changed, 8, len(changed) - LENGTH_END)
    _ATTRIBUTES.pack_into(changed, 21, header.attributes & ~CODEC_MASK | codec)
    _CRC.pack_into(changed, 17, crc32c(memoryview(changed)[CRC_START:]))
    return memoryview(changed)
