"""Finding the records inside a batch: where each begins and ends, its key, and whether it has a value.

This reads no more of a record than it must and builds no record. It is the first inner loop of compaction, hence written
out instead of calling a varint reader. Everything is still checked that a wrong length could break: a record that reaches
beyond its batch, a key beyond its record, offsets that do not rise, or bytes left over make it `Damaged`.

The record's layout is in `wire.records`. What matters here: size, attributes, timestamp and offset (both relative), key
length, key, value length. A null is the length -1, which as a varint is the byte 1.
"""

from __future__ import annotations

import cramjam

from millstream.wire.batch import CODEC_MASK, HEADER_SIZE, BatchHeader
from millstream.wire.compression import LZ4, ZSTD, decompress
from millstream.wire.errors import KafkaError

Place = tuple[int, int, int, bytes | None, bool]
"""Start and end in the plain bytes of the records, offset relative to the batch, key, and whether there is a value."""

_SMALLEST = 7


class Damaged(Exception):
    """A log cannot be compacted because what it holds is not what a log holds."""


_scratch = bytearray(
    1 << 20
)  # most batches fit; clean memory for each would cost more than the decompression
_scratch_view = memoryview(_scratch)
_INTO_SCRATCH = {LZ4: cramjam.lz4.decompress_into, ZSTD: cramjam.zstd.decompress_into}


def plain_records(header: BatchHeader, batch: memoryview) -> bytes:
    """The records of a batch, decompressed. As bytes, because slicing those is fastest."""
    packed = batch[HEADER_SIZE:]
    codec = header.attributes & CODEC_MASK
    if not codec:
        return bytes(packed)
    into = _INTO_SCRATCH.get(codec)
    if into is not None:
        try:
            return bytes(_scratch_view[: into(packed, _scratch)])
        except cramjam.DecompressionError:
            pass  # too large for this, or damaged: the careful way tells
    try:
        return bytes(decompress(codec, packed))
    except KafkaError as error:
        raise Damaged(f"the batch at offset {header.base_offset} cannot be opened: {error}") from error


def places(header: BatchHeader, data: bytes) -> list[Place]:
    """Every record of a batch whose plain records are `data`."""
    found: list[Place] = []
    append = found.append
    at, end = 0, len(data)
    last_delta = -1
    try:
        for _ in range(header.record_count):
            start = at
            size = data[at]
            at += 1
            if size > 0x7F:
                byte = data[at]
                at += 1
                if byte < 0x80:
                    size = (size & 0x7F) | byte << 7
                else:
                    size, at = _varint(data, start)
            if size & 1:
                raise Damaged("negative size")
            stop = at + (size >> 1)
            at += 1  # attributes
            while data[at] > 0x7F:  # timestamp
                at += 1
            at += 1
            delta = data[at]
            at += 1
            if delta > 0x7F:
                delta, at = _varint(data, at - 1)
            delta >>= 1  # never negative: it must rise from -1
            length = data[at]
            at += 1
            if length > 0x7F:
                length, at = _varint(data, at - 1)
            if length & 1:
                if length != 1:
                    raise Damaged("a negative key length")
                key = None
            else:
                key_start = at
                at += length >> 1
                key = data[key_start:at]
            if stop > end or at >= stop or delta <= last_delta:
                raise Damaged("lengths or offsets that contradict each other")
            append((start, stop, delta, key, data[at] != 1))
            last_delta = delta
            at = stop
    except IndexError:
        raise _damaged(header, "a record that reaches beyond the batch") from None
    except Damaged as reason:
        raise _damaged(header, str(reason)) from None
    if at != end or last_delta > header.last_offset_delta:
        raise _damaged(header, "records that do not fill it exactly")
    return found


def timestamp_delta(data: bytes, start: int) -> tuple[int, int, int]:
    """The relative timestamp of the record that begins at `start`, and where its bytes begin and end."""
    at = start
    while data[at] > 0x7F:
        at += 1
    at += 2  # the last byte of the size, and the attributes
    first = at
    raw, at = _varint(data, at)
    return (raw >> 1) ^ -(raw & 1), first, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned varint (the caller undoes the zigzag) and where it ends."""
    raw = shift = 0
    while True:
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw, at
        shift += 7
        if shift > 63:
            raise Damaged("a varint of more than ten bytes")


def _damaged(header: BatchHeader, what: str) -> Damaged:
    return Damaged(f"the batch at offset {header.base_offset} has {what}")
