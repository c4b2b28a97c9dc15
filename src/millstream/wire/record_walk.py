"""Walking over the records of a batch without building them: each function looks at what its caller needs,
and no more.

    check_records       every field of every record is sound, before a broker trusts what it has to open
    record_times        offset and timestamp of each record: questions by time
    newest_timestamp    the timestamps alone, for batches whose header does not say
    collect_keys        keys and offsets: compaction, when it learns what is in a log
    record_spans        begin and end of each record, its offset, its key, whether it has a value: compaction,
                        when it decides what stays
    marked_spans        the same of some records, where which of them is known already
    keys_and_values     offsets, keys and values of a batch inside a larger piece: coordinators

The layout is in `records`. The less is looked at, the less is checked: `check_records` refuses what
`iter_records` does; the others refuse every length that would lead them out of the record or the batch, and
believe the rest. On a sound batch all agree with `iter_records`, and no bytes make them raise anything but
KafkaError (tests/wire/test_record_walk.py).

The last four read numbers of one or two bytes (nearly all) without a call. That is what makes them worth
having; the benchmark that shows it is named at each.
"""

from collections.abc import Iterator
from struct import Struct

from millstream.wire.batch import CODEC_MASK, HEADER_SIZE, LOG_APPEND_TIME, SMALLEST_RECORD, BatchHeader
from millstream.wire.compression import DEFAULT_LIMIT, Buffer
from millstream.wire.errors import ErrorCode, KafkaError, RecordsRefused
from millstream.wire.records import (
    check_batch,
    corrupt,
    invalid,
    iter_records,
    records_section,
)
from millstream.wire.varint import Malformed, read_uvarint, read_varint, read_varlong

MAX_COPIED = 1 << 20
"""Bytes of records that are copied to walk over them faster."""

MAX_NAMED_RECORDS = 10_000
"""Bad records that an error names one by one, at most."""

RecordSpan = tuple[int, int, int, bytes | None, bool]
"""Start and end in the plain bytes of the records, offset relative to the batch, key, and whether there is a
value."""

_FIRST_BYTES = Struct("8B")

TOO_LONG = 1 << 40
"""A length that leads out of every batch, so that whoever checks where a record ends has checked this too."""
ONE_BYTE_LENGTH = [TOO_LONG if byte & 0x81 else byte >> 1 for byte in range(256)]
FIRST_OF_TWO = [TOO_LONG if byte & 0x81 != 0x80 else (byte & 0x7F) >> 1 for byte in range(256)]
SECOND_OF_TWO = [TOO_LONG if byte & 0x80 else byte << 6 for byte in range(256)]
"""Lengths of one and of two bytes: what each byte adds. Looked up in a list, they take half of the time of
shifting and masking; a negative length, and a byte that is not of this form, are TOO_LONG."""

KeyAndValue = tuple[int, bytes | None, bytes | None]
"""Offset, key and value."""


def check_records(
    batch: Buffer, *, require_keys: bool = False, limit: int = DEFAULT_LIMIT, check_crc: bool = False
) -> BatchHeader:
    """What a broker has to know before it trusts the inside of a produced batch: every record is well formed,
    offsets are 0, 1, 2, ... and, for a compacted topic, every record has a key."""
    header = check_batch(batch, check_crc)
    data = _walkable(batch, header, limit)
    at, end = 0, len(data)
    index = 0
    keyless: list[int] = []
    try:
        for index in range(header.record_count):
            size, at = read_varint(data, at)
            stop = at + size
            if size < SMALLEST_RECORD - 1 or stop > end:
                raise invalid(index, f"a size of {size} bytes, {end - at} are left")
            _, at = read_varlong(data, at + 1)
            delta, at = read_varint(data, at)
            if delta != index:
                raise invalid(index, f"offset delta {delta} instead of {index}")
            length, at = read_varint(data, at)
            if length >= 0:
                at += length
            elif length < -1:
                raise invalid(index, f"key length {length}")
            elif require_keys:
                keyless.append(index)
            if at >= stop:
                raise invalid(index, "the key is longer than the record")
            length, at = read_varint(data, at)
            if length >= 0:
                at += length
            elif length < -1:
                raise invalid(index, f"value length {length}")
            if at >= stop:
                raise invalid(index, "the value is longer than the record")
            count, at = read_varint(data, at)
            if count:
                at = _skip_headers(data, at, stop, index, count)
            if at != stop:
                raise invalid(index, f"its size is wrong by {at - stop} bytes")
    except IndexError:
        raise invalid(index, "the data ends inside it") from None
    except Malformed as error:
        raise invalid(index, str(error)) from None
    if at != end:
        raise corrupt(f"{end - at} bytes are left after the last record")
    if keyless:
        raise RecordsRefused(
            ErrorCode.invalid_record,
            f"{len(keyless)} of {header.record_count} records have no key, which a compacted topic requires",
            tuple(
                (number, "Compacted topic cannot accept message without key.")
                for number in keyless[:MAX_NAMED_RECORDS]
            ),
        )
    return header


def _walkable(batch: Buffer, header: BatchHeader, limit: int) -> Buffer:
    """The plain records, in the form that is fastest to walk over. What is very large stays where it is: no
    other thread runs while it is copied."""
    data = records_section(batch, header, limit)
    return data if len(data) > MAX_COPIED else bytes(data)


def _skip_headers(data: Buffer, at: int, stop: int, index: int, count: int) -> int:
    """Behind the headers of a record. They are not built: there may be millions."""
    if count < 0 or count * 2 > stop - at:
        raise invalid(index, f"{count} headers in {stop - at} bytes")
    for _ in range(count):
        length, at = read_varint(data, at)
        if length < 0:
            raise invalid(index, f"header key length {length}")
        at += length
        if at >= stop:
            raise invalid(index, "the header key is longer than the record")
        length, at = read_varint(data, at)
        if length < -1:
            raise invalid(index, f"header value length {length}")
        at += max(length, 0)
        if at > stop:
            raise invalid(index, "the header value is longer than the record")
    return at


def record_times(batch: Buffer, limit: int = DEFAULT_LIMIT) -> Iterator[tuple[int, int]]:
    """Offset and timestamp of each record, in order."""
    header = check_batch(batch, check_crc=False)
    data = _walkable(batch, header, limit)
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    fixed_timestamp = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    at, end = 0, len(data)
    index, last_delta = 0, -1
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
                raise invalid(index, f"offset delta {delta} after {last_delta}")
            last_delta = delta
            yield base_offset + delta, timestamp
            at = stop
    except IndexError:
        raise invalid(index, "the data ends inside it") from None
    except Malformed as error:
        raise invalid(index, str(error)) from None
    if at != end:
        raise corrupt(f"{end - at} bytes are left after the last record")


def newest_timestamp(batch: Buffer, limit: int = DEFAULT_LIMIT) -> int:
    """The newest timestamp among the records of a batch, whatever its header says.

    Some clients leave it out of the header, so this is needed for every batch of theirs
    (benchmarks/broker_clients.py).
    """
    header = check_batch(batch, check_crc=False)
    data = _walkable(batch, header, limit)
    at, end = 0, len(data)
    index = 0
    newest = -(1 << 63)
    # As it is written: doubled, and odd where it is negative.
    smallest = 2 * (SMALLEST_RECORD - 1)
    try:
        for index in range(header.record_count):
            size = data[at]
            at += 1
            if size >= 0x80:
                second = data[at]
                if second < 0x80:
                    size = size & 0x7F | second << 7
                    at += 1
                else:
                    size, at = read_uvarint(data, at - 1)
            stop = at + (size >> 1)
            if size & 1 or size < smallest or stop > end:
                raise invalid(index, f"a size that cannot be, {end - at} bytes are left")
            delta = data[at + 1]  # + 1: attributes
            if delta >= 0x80:
                delta, _ = read_varlong(data, at + 1)
            else:
                delta = (delta >> 1) ^ -(delta & 1)
            if delta > newest:
                newest = delta
            at = stop
    except IndexError:
        raise invalid(index, "the data ends inside it") from None
    except Malformed as error:
        raise invalid(index, str(error)) from None
    if at != end:
        raise corrupt(f"{end - at} bytes are left after the last record")
    return header.base_timestamp + newest


def collect_keys(
    header: BatchHeader, data: bytes, keys: list[bytes], offsets: list[int], at: int = 0, end: int = -1
) -> None:
    """Append the key and the offset of each record that has a key; the plain records of the batch are `data`
    from `at` to `end`. The other inner loop of compaction (benchmarks/broker_compaction.py).

    It refuses what `record_spans` refuses, but by then some keys may have been appended.
    """
    if end < 0:
        end = len(data)
    base_offset = header.base_offset
    taken = -len(keys)
    at = _collect_keys_fast_path(data, at, end, header.record_count, keys)
    taken += len(keys)
    offsets.extend(range(base_offset, base_offset + taken))
    last_delta = taken - 1
    try:
        for _ in range(header.record_count - taken):
            size = data[at]
            at += 1
            if size > 0x7F:
                second = data[at]
                if second < 0x80:
                    at += 1
                    size = (size & 0x7F) | second << 7
                else:
                    size, at = read_uvarint(data, at - 1)
            if size & 1:
                raise Malformed("a negative size")
            stop = at + (size >> 1)
            at += 1  # attributes
            while data[at] > 0x7F:  # timestamp
                at += 1
            delta = data[at + 1]
            at += 2
            if delta > 0x7F:
                delta, at = read_uvarint(data, at - 1)
            delta >>= 1  # never negative: it must rise from -1
            length = data[at]
            at += 1
            if length > 0x7F:
                length, at = read_uvarint(data, at - 1)
            if length & 1:
                if length != 1:
                    raise Malformed("a negative key length")
            else:
                key_start = at
                at += length >> 1
                keys.append(data[key_start:at])
                offsets.append(base_offset + delta)
            if stop > end or at >= stop or delta <= last_delta:
                raise Malformed("lengths or offsets that contradict each other")
            last_delta = delta
            at = stop
    except IndexError:
        raise _bad_batch(base_offset, "a record that reaches beyond the batch") from None
    except Malformed as reason:
        raise _bad_batch(base_offset, str(reason)) from None
    if at != end or last_delta > header.last_offset_delta:
        raise _bad_batch(base_offset, "records that do not fill it exactly")


def _collect_keys_fast_path(data: bytes, at: int, end: int, count: int, keys: list[bytes]) -> int:
    """Append the keys of the first records, as long as these are what a producer usually writes: below 8 KB,
    a key below 64 bytes, no offset missing. Returns where the next record begins.

    One call reads all bytes in front of the key, which takes two thirds of the time of reading each.
    """
    append, unpack = keys.append, _FIRST_BYTES.unpack_from
    one_byte, first_of_two, second_of_two = ONE_BYTE_LENGTH, FIRST_OF_TWO, SECOND_OF_TWO
    last_start = end - _FIRST_BYTES.size
    for doubled_delta in range(0, min(2 * count, 0x80), 2):
        if at > last_start:
            break
        # Size (one or two bytes), attributes, timestamp (up to three), offset, length of the key.
        size, byte_2, byte_3, byte_4, byte_5, byte_6, byte_7, byte_8 = unpack(data, at)
        if size > 0x7F:
            stop = at + 2 + first_of_two[size] + second_of_two[byte_2]
            if byte_4 < 0x80:
                key_start, delta, length = at + 6, byte_5, byte_6
            elif byte_5 < 0x80:
                key_start, delta, length = at + 7, byte_6, byte_7
            elif byte_6 < 0x80:
                key_start, delta, length = at + 8, byte_7, byte_8
            else:
                break
        else:
            stop = at + 1 + one_byte[size]
            if byte_3 < 0x80:
                key_start, delta, length = at + 5, byte_4, byte_5
            elif byte_4 < 0x80:
                key_start, delta, length = at + 6, byte_5, byte_6
            elif byte_5 < 0x80:
                key_start, delta, length = at + 7, byte_6, byte_7
            else:
                break
        key_end = key_start + one_byte[length]
        if delta != doubled_delta or key_end >= stop or stop > end:
            break
        append(data[key_start:key_end])
        at = stop
    return at


def record_spans(header: BatchHeader, data: bytes) -> list[RecordSpan]:
    """Every record of a batch whose plain records are `data`: the inner loop of compaction
    (benchmarks/broker_compaction.py).

    A record that reaches beyond its batch, a key beyond its record, offsets that do not rise, or bytes left
    over make the batch corrupt. A null value is the length -1, which as a varint is the byte 1.
    """
    spans: list[RecordSpan] = []
    append = spans.append
    at, end = 0, len(data)
    last_delta = -1
    try:
        for _ in range(header.record_count):
            start = at
            size = data[at]
            at += 1
            if size > 0x7F:
                second = data[at]
                at += 1
                if second < 0x80:
                    size = (size & 0x7F) | second << 7
                else:
                    size, at = read_uvarint(data, start)
            if size & 1:
                raise Malformed("a negative size")
            stop = at + (size >> 1)
            at += 1  # attributes
            while data[at] > 0x7F:  # timestamp
                at += 1
            at += 1
            delta = data[at]
            at += 1
            if delta > 0x7F:
                delta, at = read_uvarint(data, at - 1)
            delta >>= 1  # never negative: it must rise from -1
            length = data[at]
            at += 1
            if length > 0x7F:
                length, at = read_uvarint(data, at - 1)
            if length & 1:
                if length != 1:
                    raise Malformed("a negative key length")
                key = None
            else:
                key_start = at
                at += length >> 1
                key = data[key_start:at]
            if stop > end or at >= stop or delta <= last_delta:
                raise Malformed("lengths or offsets that contradict each other")
            append((start, stop, delta, key, data[at] != 1))
            last_delta = delta
            at = stop
    except IndexError:
        raise _bad_batch(header.base_offset, "a record that reaches beyond the batch") from None
    except Malformed as reason:
        raise _bad_batch(header.base_offset, str(reason)) from None
    if at != end or last_delta > header.last_offset_delta:
        raise _bad_batch(header.base_offset, "records that do not fill it exactly")
    return spans


def marked_spans(data: bytes, marks: bytes | bytearray) -> list[RecordSpan]:
    """What `record_spans` finds, but only the records whose byte in `marks` is odd. Over the others it steps
    by their size (benchmarks/broker_compaction.py).

    Only for a batch that `record_spans` accepts, with a byte for each record and no offset missing.
    """
    spans: list[RecordSpan] = []
    at = 0
    for delta, mark in enumerate(marks):
        start = at
        size = data[at]
        if size < 0x80:
            at += 1
        elif data[at + 1] < 0x80:
            size = size & 0x7F | data[at + 1] << 7
            at += 2
        else:
            size, at = read_uvarint(data, at)
        stop = at + (size >> 1)
        if mark & 1:
            at += 1  # attributes
            while data[at] > 0x7F:  # timestamp
                at += 1
            at += 1
            while data[at] > 0x7F:  # offset
                at += 1
            length, at = read_uvarint(data, at + 1)
            key = None
            if not length & 1:
                key = data[at : at + (length >> 1)]
                at += length >> 1
            spans.append((start, stop, delta, key, data[at] != 1))
        at = stop
    return spans


def timestamp_delta(data: bytes, start: int) -> tuple[int, int, int]:
    """The relative timestamp of the record that begins at `start`, and where its bytes begin and end."""
    at = start
    while data[at] > 0x7F:
        at += 1
    at += 2  # the last byte of the size, and the attributes
    delta, end = read_varlong(data, at)
    return delta, at, end


def keys_and_values(
    data: bytes, at: int, size: int, attributes: int, base_offset: int, count: int
) -> list[KeyAndValue]:
    """The records of the batch of `size` bytes at `at` in `data`; the last three arguments are from its
    header.

    A coordinator reads its log at a start: a million commits lie in up to a million batches of one record,
    and a header, a generator and a record object for each would cost more than all the rest
    (benchmarks/broker_offsets.py). The log is the broker's own and was checked when it was opened.
    """
    end = at + size
    if attributes & CODEC_MASK:
        opened = iter_records(memoryview(data)[at:end], check_crc=False)
        return [(record.offset, record.key, record.value) for record in opened]
    at += HEADER_SIZE
    found: list[KeyAndValue] = []
    try:
        for _ in range(count):
            length = data[at]
            at += 1
            if length > 0x7F:
                second = data[at]
                if second < 0x80:
                    length = length & 0x7F | second << 7
                    at += 1
                else:
                    length, at = read_uvarint(data, at - 1)
            stop = at + (length >> 1)
            if stop > end:
                raise IndexError
            at += 1  # attributes
            while data[at] > 0x7F:  # timestamp
                at += 1
            delta = data[at + 1]
            at += 2
            if delta > 0x7F:
                delta, at = read_uvarint(data, at - 1)
            length = data[at]
            at += 1
            if length > 0x7F:
                length, at = read_uvarint(data, at - 1)
            key: bytes | None = None
            if not length & 1:
                key = data[at : at + (length >> 1)]
                at += length >> 1
            length = data[at]
            at += 1
            if length > 0x7F:
                second = data[at]
                if second < 0x80:
                    length = length & 0x7F | second << 7
                    at += 1
                else:
                    length, at = read_uvarint(data, at - 1)
            value: bytes | None = None
            if not length & 1:
                value = data[at : at + (length >> 1)]
                at += length >> 1
            if at >= stop:
                raise IndexError
            found.append((base_offset + (delta >> 1), key, value))
            at = stop
    except (IndexError, Malformed):
        raise _bad_batch(base_offset, "records that are not what its header says") from None
    return found


def _bad_batch(base_offset: int, what: str) -> KafkaError:
    return KafkaError(ErrorCode.corrupt_message, f"the batch at offset {base_offset} has {what}")
