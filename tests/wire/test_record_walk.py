"""Every walk over records against `iter_records`, which builds them and is the strictest.

On a batch that it accepts, all find the same; on one that it refuses, `check_records` and the compiled reader
refuse too, and those that look at less either refuse or give something that lies inside the batch. None of
them ever raises anything but its own exception, whatever the bytes.
"""

from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.console.batch_search import Damaged, matching
from millstream.storage.cleaning import batch_records
from millstream.wire.arrow import Answer, Columns
from millstream.wire.batch import HEADER, HEADER_SIZE, LENGTH_END, BatchHeader, read_header
from millstream.wire.errors import KafkaError
from millstream.wire.record_walk import (
    check_records,
    collect_keys,
    keys_and_values,
    marked_spans,
    newest_timestamp,
    record_spans,
    record_times,
    timestamp_delta,
)
from millstream.wire.records import Record, encode_batch, iter_records
from millstream.wire.varint import varint
from tests.support.effort import examples

BASE_OFFSET = 1000
BASE_TIMESTAMP = 1_700_000_000_000
Found = TypeVar("Found")


def padded(number: int, padding: int) -> bytes:
    """A varint with more bytes than it needs, as some encoders write it to fill in a length later."""
    out = bytearray(varint(number))
    for _ in range(padding):
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)


def cell(data: bytes | None, padding: int) -> bytes:
    # A null is always one byte: compaction tells a tombstone by it.
    return b"\x01" if data is None else padded(len(data), padding) + data


Field = st.none() | st.binary(max_size=12) | st.binary(min_size=60, max_size=200)
Padding = st.sampled_from([0, 0, 0, 0, 1, 2, 3])


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """A batch, mostly sound: gaps in the offsets, numbers longer than they need to be, and sometimes lies."""
    body = bytearray()
    delta = -1
    count = draw(st.integers(1, 6))
    for _ in range(count):
        delta += draw(st.sampled_from([1, 1, 1, 1, 2, 100]))
        headers = draw(st.lists(st.tuples(st.binary(max_size=5), Field), max_size=2))
        content = bytearray(b"\0")
        content += padded(draw(st.integers(-5, 5) | st.integers(-(1 << 40), 1 << 40)), draw(Padding))
        content += padded(delta, draw(Padding))
        content += cell(draw(Field), draw(Padding)) + cell(draw(Field), draw(Padding))
        content += padded(len(headers), draw(Padding))
        for name, value in headers:
            content += cell(name, draw(Padding)) + cell(value, draw(Padding))
        body += padded(len(content), draw(Padding)) + content
    for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
        body[draw(st.integers(0, len(body) - 1))] = draw(
            st.integers(0, 255) | st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF])
        )
    if draw(st.integers(0, 9)) == 0:
        del body[draw(st.integers(0, len(body))) :]
    if draw(st.integers(0, 9)) == 0:
        count += draw(st.integers(-count, 2))
    last_delta = max(delta + draw(st.sampled_from([0, 0, 5, -1])), count - 1)
    header = BatchHeader(
        base_offset=BASE_OFFSET,
        length=HEADER_SIZE - LENGTH_END + len(body),
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=last_delta,
        base_timestamp=BASE_TIMESTAMP,
        max_timestamp=BASE_TIMESTAMP,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )
    return HEADER.pack(*header) + bytes(body)


def outcome(read: Callable[[], Found], refusal: type[Exception] = KafkaError) -> Found | None:
    """What it finds; None where it refuses."""
    try:
        return read()
    except refusal:
        return None


def keys_of(header: BatchHeader, data: bytes) -> list[tuple[int, bytes]]:
    keys: list[bytes] = []
    offsets: list[int] = []
    collect_keys(header, data, keys, offsets)
    return list(zip(offsets, keys, strict=True))


def test_keys_of_a_batch_inside_a_larger_piece() -> None:
    """Of more records than have an offset of one byte, short and long ones, without an offset between."""
    rows = [
        Record(number, BASE_TIMESTAMP + 40 * number, b"k" * (number % 70), b"v" * (number % 3 * 90))
        for number in range(200)
    ]
    batch = bytes(encode_batch(rows))
    header = read_header(batch)
    for front, behind in ((b"", b""), (b"\xff" * 9, b"\xff" * 9)):
        keys: list[bytes] = []
        offsets: list[int] = []
        at = len(front) + HEADER_SIZE
        collect_keys(header, front + batch + behind, keys, offsets, at, len(front + batch))
        assert keys == [row.key for row in rows]
        assert offsets == list(range(header.base_offset, header.base_offset + 200))
        with pytest.raises(KafkaError):
            collect_keys(header, front + batch + behind, [], [], at, len(front + batch) - 1)


def columns_of(batch: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    rows: list[tuple[int, bytes | None, bytes | None]] = []
    for chunk in Answer(batch).chunks(columns=Columns(headers=True), check_crcs=False):
        assert chunk.key is not None
        assert chunk.value is not None
        rows += zip(chunk.offset.to_pylist(), chunk.key.to_pylist(), chunk.value.to_pylist(), strict=True)
    return rows


@given(batch=batches(), needle=st.sampled_from([b"\0", b"a", b"\xff\x01"]))
@settings(max_examples=examples(400))
def test_every_walk_finds_what_the_strict_reader_finds(batch: bytes, needle: bytes) -> None:
    header = read_header(batch)
    data = batch[HEADER_SIZE:]
    count = header.record_count
    records: list[Record] | None = outcome(lambda: list(iter_records(batch, check_crc=False)))
    entries = outcome(lambda: keys_and_values(batch, 0, len(batch), 0, BASE_OFFSET, count))
    spans = outcome(lambda: record_spans(header, data))
    newest = outcome(lambda: newest_timestamp(batch))
    times = outcome(lambda: list(record_times(batch)))
    matches = outcome(lambda: matching(data, count, needle, key=True, value=True, header=False), Damaged)
    assert spans == outcome(lambda: batch_records.record_spans(header, data), batch_records.Damaged)
    keyed = (
        None if spans is None else [(BASE_OFFSET + span[2], span[3]) for span in spans if span[3] is not None]
    )
    assert keyed == outcome(lambda: keys_of(header, data))
    if spans is not None and [span[2] for span in spans] == list(range(count)):
        for marks in (bytes(count), b"\x01" * count, (b"\x03\x02\x00" * count)[:count]):
            marked = [span for span, mark in zip(spans, marks, strict=True) if mark & 1]
            assert marked_spans(data, marks) == marked
    if records is None:
        assert outcome(lambda: check_records(batch)) is None
        assert outcome(lambda: columns_of(batch)) is None
        assert all(0 <= start < stop <= len(data) for start, stop, *_ in spans or ())
        assert len(spans or ()) in (0, count)
        assert len(entries or ()) in (0, count)
        assert all(0 <= number < count for number in matches or ())
        return
    gapless = [record.offset - BASE_OFFSET for record in records] == list(range(len(records)))
    assert (outcome(lambda: check_records(batch)) == header) is gapless
    contents = [(record.offset, record.key, record.value) for record in records]
    assert columns_of(batch) == contents
    assert entries == contents
    assert times == [(record.offset, record.timestamp) for record in records]
    assert spans is not None
    assert [(BASE_OFFSET + delta, key, has_value) for _, _, delta, key, has_value in spans] == [
        (record.offset, record.key, record.value is not None) for record in records
    ]
    deltas = [timestamp_delta(data, span[0])[0] for span in spans]
    assert deltas == [record.timestamp - BASE_TIMESTAMP for record in records]
    if records:
        assert newest == max(record.timestamp for record in records)
    assert matches == [
        number
        for number, record in enumerate(records)
        if needle in (record.key or b"") or needle in (record.value or b"")
    ]
