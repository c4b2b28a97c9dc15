"""The records inside a batch (format v2): reading them strictly, and writing them. `record_walk` passes over
them unbuilt.

After the 61-byte batch header (see `batch`) come `record count` records, compressed as one block if the batch
is:

    size           varint    bytes of the rest of this record
    attributes     i8        unused
    timestamp      varlong   relative to the batch's base timestamp
    offset         varint    relative to the batch's base offset
    key length     varint    -1: no key (null, which is not an empty key); then the key
    value length   varint    -1: no value (a tombstone); then the value
    header count   varint    then per header: key length, key (UTF-8), value length (-1: null), value

Varints are zigzag encoded, 7 bits a byte, low bits first. Everything here is written by strangers. So reading
is strict (a record fills its size exactly, the records fill the batch exactly, offsets rise and stay inside
the batch) and bounded (nothing is allocated on the word of a count or a length), and no input makes it raise
anything but KafkaError:
corrupt_message when the frame around the records is wrong, invalid_record when a record is.

Header keys that are not UTF-8 (other clients allow any bytes) survive a read and a write: they are decoded
with `surrogateescape`.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from millstream.wire.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    SMALLEST_RECORD,
    TRANSACTIONAL,
    BatchHeader,
    crc_of,
    read_header,
)
from millstream.wire.compression import DEFAULT_LIMIT, NONE, Buffer, compress, decompress
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.varint import Malformed, read_varint, read_varlong, varint

__all__ = [
    "ABORT_MARKER",
    "COMMIT_MARKER",
    "Header",
    "Record",
    "check_batch",
    "control_type",
    "encode_batch",
    "encode_marker",
    "iter_batches",
    "iter_records",
]

Header = tuple[str, bytes | None]

_MAX_RECORD_SIZE = 0x7FFFFFFF

ABORT_MARKER = 0
COMMIT_MARKER = 1
# All lengths and deltas of a marker's record are varints of one byte.
_MARKER_RECORD = struct.Struct(">BBBBBhhBhiB")


class Record(NamedTuple):
    """One record. `None` and `b""` are different keys, and different values."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()


# --- reading ------------------------------------------------------------------------------------------------


def iter_batches(data: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The whole batches in `data`, one after the other, without opening them. A batch that is cut off at the
    end is left out: a fetch answer may end in the middle of one."""
    view = memoryview(data)
    at, end = 0, len(view)
    while end - at >= HEADER_SIZE:
        header = read_header(view, at)
        if header.length < HEADER_SIZE - LENGTH_END:
            raise corrupt(f"a batch claims {header.length} bytes, less than its own header")
        size = header.size
        if size > end - at:
            return
        yield header, view[at : at + size]
        at += size


def check_batch(batch: Buffer, check_crc: bool = True) -> BatchHeader:
    """The header of `batch`, which must be exactly one batch with a sound header."""
    if len(batch) < HEADER_SIZE:
        raise corrupt(f"{len(batch)} bytes are less than a batch header")
    header = read_header(batch)
    if header.magic != MAGIC:
        raise corrupt(f"record format v{header.magic} instead of v{MAGIC}")
    if header.size != len(batch):
        raise corrupt(f"a batch of {header.size} bytes in {len(batch)}")
    if header.record_count < 0 or header.last_offset_delta < header.record_count - 1:
        raise corrupt(f"{header.record_count} records do not fit in offsets 0 to {header.last_offset_delta}")
    if check_crc and crc_of(batch) != header.crc:
        raise corrupt("the checksum is wrong")
    return header


def iter_records(batch: Buffer, limit: int = DEFAULT_LIMIT, check_crc: bool = True) -> Iterator[Record]:
    """The records of one batch, in order. `limit` bounds their decompressed size."""
    header = check_batch(batch, check_crc)
    data = plain_records(batch, header, limit)
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    fixed_timestamp = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    at, end = 0, len(data)
    last_delta = -1
    index = 0
    try:
        for index in range(header.record_count):
            size, at = read_varint(data, at)
            stop = at + size
            if size < SMALLEST_RECORD - 1 or stop > end:
                raise invalid(index, f"a size of {size} bytes, {end - at} are left")
            delta, at = read_varlong(data, at + 1)  # + 1: attributes
            timestamp = base_timestamp + delta if fixed_timestamp is None else fixed_timestamp
            delta, at = read_varint(data, at)
            if not last_delta < delta <= header.last_offset_delta:
                raise invalid(
                    index, f"offset delta {delta} after {last_delta}, of {header.last_offset_delta}"
                )
            last_delta = delta
            key, at = _bytes(data, at, stop, index, "key")
            value, at = _bytes(data, at, stop, index, "value")
            count, at = read_varint(data, at)
            headers: Sequence[Header] = ()
            if count:
                headers, at = read_record_headers(data, at, stop, index, count)
            if at != stop:
                raise invalid(index, f"its size is wrong by {at - stop} bytes")
            yield Record(base_offset + delta, timestamp, key, value, headers)
    except IndexError:
        raise invalid(index, "the data ends inside it") from None
    except Malformed as error:
        raise invalid(index, str(error)) from None
    if at != end:
        raise corrupt(f"{end - at} bytes are left after the last record")


def plain_records(batch: Buffer, header: BatchHeader, limit: int) -> bytes:
    """The records as plain bytes (slicing bytes is much faster than slicing a memoryview and copying)."""
    return bytes(records_section(batch, header, limit))


def records_section(batch: Buffer, header: BatchHeader, limit: int) -> Buffer:
    """The same without a copy."""
    packed = memoryview(batch)[HEADER_SIZE:]
    if header.record_count == 0:  # compaction may leave a bare header
        if packed:
            raise corrupt("records in a batch that claims none")
        return b""
    codec = header.attributes & CODEC_MASK
    data = packed if codec == NONE else decompress(codec, packed, limit)
    if header.record_count * SMALLEST_RECORD > len(data):
        raise corrupt(f"{header.record_count} records cannot fit in {len(data)} bytes")
    return data


def _bytes(data: bytes, at: int, stop: int, index: int, what: str) -> tuple[bytes | None, int]:
    length, at = read_varint(data, at)
    if length < 0:
        if length == -1:
            return None, at
        raise invalid(index, f"{what} length {length}")
    end = at + length
    if end > stop:
        raise invalid(index, f"the {what} is longer than the record")
    return data[at:end], end


def read_record_headers(
    data: bytes, at: int, stop: int, index: int, count: int
) -> tuple[tuple[Header, ...], int]:
    if count < 0 or count * 2 > stop - at:
        raise invalid(index, f"{count} headers in {stop - at} bytes")
    headers: list[Header] = []
    for _ in range(count):
        key, at = _bytes(data, at, stop, index, "header key")
        if key is None:
            raise invalid(index, "a header without a key")
        value, at = _bytes(data, at, stop, index, "header value")
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), at


# --- writing ------------------------------------------------------------------------------------------------


def encode_batch(
    records: Iterable[Record],
    codec: int = NONE,
    *,
    level: int | None = None,
    base_offset: int | None = None,
    keep_offsets: bool = False,
    last_offset: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
) -> bytearray:
    """One batch of `records` (at least one), checksum included.

    Offsets count up from `base_offset` (0 unless given), whatever the records say, as a producer does it.
    With `keep_offsets` the records keep theirs, gaps included, as a cleaner or a follower needs it;
    `last_offset` then lets the batch end after its last record. `log_append_time` stamps the batch with the
    broker's time.
    """
    items = records if isinstance(records, list | tuple) else list(records)
    if not items:
        raise ValueError("a batch needs at least one record")
    if base_offset is None:
        base_offset = items[0].offset if keep_offsets else 0
    base_timestamp = items[0].timestamp
    max_timestamp = NO_TIMESTAMP
    out: list[bytes] = []
    delta = -1
    for index, record in enumerate(items):
        if keep_offsets:
            if record.offset - base_offset <= delta:
                raise ValueError(f"offset {record.offset} does not rise")
            delta = record.offset - base_offset
        else:
            delta = index
        if record.timestamp > max_timestamp:
            max_timestamp = record.timestamp
        _add_record(out, record, record.timestamp - base_timestamp, delta)
    body = b"".join(out)
    if last_offset is not None:
        if last_offset - base_offset < delta:
            raise ValueError(f"last offset {last_offset} is before the last record")
        delta = last_offset - base_offset
    attributes = codec
    if transactional:
        attributes |= TRANSACTIONAL
    if control:
        attributes |= CONTROL
    if log_append_time is not None:
        attributes |= LOG_APPEND_TIME
        max_timestamp = log_append_time
    packed = body if codec == NONE else compress(codec, body, level)
    if len(packed) + HEADER_SIZE > _MAX_RECORD_SIZE:
        raise KafkaError(ErrorCode.message_too_large, "the batch is larger than 2 GB")
    batch = bytearray(HEADER_SIZE)
    batch += packed
    fields = BatchHeader(
        base_offset=base_offset,
        length=len(batch) - LENGTH_END,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(items),
    )
    try:
        HEADER.pack_into(batch, 0, *fields)
    except struct.error as error:
        raise KafkaError(
            ErrorCode.invalid_record, f"a field of the batch header is out of range: {error}"
        ) from None
    batch[CRC_START - 4 : CRC_START] = crc_of(batch).to_bytes(4, "big")
    return batch


def encode_marker(
    commit: bool,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    coordinator_epoch: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The control batch that ends a transaction of this producer in one partition: one record, whose key is
    (version 0, abort or commit) and whose value is (version 0, coordinator epoch)."""
    marker = COMMIT_MARKER if commit else ABORT_MARKER
    record = _MARKER_RECORD.pack(16 * 2, 0, 0, 0, 4 * 2, 0, marker, 6 * 2, 0, coordinator_epoch, 0)
    batch = bytearray(HEADER_SIZE) + record
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LENGTH_END,
        leader_epoch,
        MAGIC,
        0,
        TRANSACTIONAL | CONTROL,
        0,
        timestamp,
        timestamp,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        1,
    )
    batch[CRC_START - 4 : CRC_START] = crc_of(batch).to_bytes(4, "big")
    return batch


def control_type(key: bytes | None) -> int:
    """What the record of a control batch says: ABORT_MARKER, COMMIT_MARKER, or another of Kafka's control
    types."""
    if key is None or len(key) < 4:
        raise KafkaError(ErrorCode.invalid_record, "a control record without version and type")
    return int.from_bytes(key[2:4], "big")


# Most lengths and offsets of a batch's records are small; to make their varints costs more than all the rest
# of a record (benchmarks/connect_worker.py --only transforms).
_SMALL: Final = 2048
_VARINTS: Final = tuple(varint(number) for number in range(_SMALL))
_NULL: Final = varint(-1)


def _add_record(out: list[bytes], record: Record, timestamp_delta: int, offset_delta: int) -> None:
    """Its pieces, with its length in front."""
    _, _, key, value, headers = record
    stamp = _VARINTS[timestamp_delta] if 0 <= timestamp_delta < _SMALL else varint(timestamp_delta)
    offset = _VARINTS[offset_delta] if offset_delta < _SMALL else varint(offset_delta)
    if key is None:
        key, key_size = b"", _NULL
    else:
        key_size = _VARINTS[size] if (size := len(key)) < _SMALL else varint(size)
    if value is None:
        value, value_size = b"", _NULL
    else:
        value_size = _VARINTS[size] if (size := len(value)) < _SMALL else varint(size)
    after = b"\0" if not headers else _headers(headers)
    size = 1 + len(stamp) + len(offset) + len(key_size) + len(key) + len(value_size) + len(value) + len(after)
    length = _VARINTS[size] if size < _SMALL else varint(size)
    out += (length, b"\0", stamp, offset, key_size, key, value_size, value, after)


def _headers(headers: Sequence[Header]) -> bytes:
    parts = [varint(len(headers))]
    for name, value in headers:
        encoded = name.encode("utf-8", "surrogateescape")
        parts += (varint(len(encoded)), encoded)
        parts += (_NULL,) if value is None else (varint(len(value)), value)
    return b"".join(parts)


def corrupt(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.corrupt_message, reason)


def invalid(index: int, reason: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_record, f"record {index} of the batch: {reason}")
