"""Opening a batch for compaction: its plain bytes, and where each record lies in them.

What cannot be opened is `Damaged`: the log is left as it is and marked uncleanable, since a cleaner that
guesses would delete.
"""

from __future__ import annotations

import cramjam

from millstream.wire import record_walk
from millstream.wire.batch import CODEC_MASK, HEADER_SIZE, BatchHeader
from millstream.wire.compression import LZ4, ZSTD, decompress
from millstream.wire.errors import KafkaError
from millstream.wire.record_walk import RecordSpan
from millstream.wire.varint import Malformed


class Damaged(Exception):
    """A log cannot be compacted because what it holds is not what a log holds."""


# Most batches fit; clean memory for each would cost more than the decompression.
_scratch = bytearray(1 << 20)
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
            pass  # too large for this, or damaged: the full way tells
    try:
        return bytes(decompress(codec, packed))
    except KafkaError as error:
        raise Damaged(f"the batch at offset {header.base_offset} cannot be opened: {error}") from error


def collect_keys(
    header: BatchHeader, data: bytes, keys: list[bytes], offsets: list[int], at: int = 0, end: int = -1
) -> None:
    """Append key and offset of every record that has a key. The plain records are `data`, from `at` to
    `end`."""
    try:
        record_walk.collect_keys(header, data, keys, offsets, at, end)
    except KafkaError as error:
        raise Damaged(str(error)) from None


def record_spans(header: BatchHeader, data: bytes) -> list[RecordSpan]:
    """Every record of a batch whose plain records are `data`."""
    try:
        return record_walk.record_spans(header, data)
    except KafkaError as error:
        raise Damaged(str(error)) from None


def marked_spans(header: BatchHeader, data: bytes, marks: bytes | bytearray) -> list[RecordSpan]:
    """The records of a batch whose byte in `marks` is odd."""
    try:
        return record_walk.marked_spans(data, marks)
    except (IndexError, Malformed):
        raise Damaged(f"the batch at offset {header.base_offset} is not what it was before") from None
