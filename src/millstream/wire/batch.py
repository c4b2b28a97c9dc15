"""The record batch, format v2: Kafka's unit of everything.

A batch is a 61-byte header followed by the records, compressed or not. The broker stores batches exactly as
the producer sent them. It may change only the first 16 bytes and what they imply: base offset, length, leader
epoch; these lie outside the CRC, so offsets are assigned without touching the records.

    0  base offset        i64      21  attributes          i16      51  producer epoch   i16
    8  length (after it)  i32      23  last offset delta   i32      53  base sequence    i32
   12  leader epoch       i32      27  base timestamp      i64      57  record count     i32
   16  magic              i8       35  max timestamp       i64      61  records ...
   17  crc (from 21 on)   u32      43  producer id         i64

Attributes: bits 0-2 codec, 3 timestamp type (1 = log append time), 4 transactional, 5 control, 6 delete
horizon (the base timestamp is then the time from which tombstones and markers may go).
"""

import struct
from typing import NamedTuple

from millstream.wire.checksum import crc32c

HEADER_SIZE = 61
LENGTH_END = 12  # a batch of `length` n occupies n + 12 bytes
CRC_START = 21  # the CRC covers everything from here to the end
MAGIC = 2
SMALLEST_RECORD = 7  # bytes of a record with neither key, value nor headers

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER = -1
NO_SEQUENCE = -1

HEADER = struct.Struct(">qiibIhiqqqhii")
PREFIX = struct.Struct(">qiib")  # base offset, length, leader epoch, magic
MAX_SEQUENCE = 0x7FFFFFFF


class BatchHeader(NamedTuple):
    """The 61 header bytes, in wire order."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return self.length + LENGTH_END

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def last_sequence(self) -> int:
        return (
            next_sequence(self.base_sequence, self.last_offset_delta)
            if self.base_sequence >= 0
            else NO_SEQUENCE
        )

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)


def next_sequence(sequence: int, by: int = 1) -> int:
    """Sequence numbers run from 0 to 2^31-1 and then start again at 0."""
    return (sequence + by) & MAX_SEQUENCE


def read_header(buffer: bytes | bytearray | memoryview, at: int = 0) -> BatchHeader:
    return BatchHeader._make(HEADER.unpack_from(buffer, at))


def crc_of(batch: bytes | bytearray | memoryview) -> int:
    """The checksum of one whole batch, to be compared with the one in its header."""
    return int(crc32c(memoryview(batch)[CRC_START:]))
