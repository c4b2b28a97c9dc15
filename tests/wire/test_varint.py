"""Every reader of varints in the package gives the same number for the same bytes, or refuses them.

The readers: the toolbox (`wire.varint`), the compiled one (`wire.arrow.varint_loops`), those that are written
out in line because a benchmark says so (record walks, the console's search, the columns of Avro), and those
who call the toolbox with an exception of their own. `expected` is the definition of a varint, written down a
second time.
"""

import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millstream.console.batch_search import Damaged, matching
from millstream.serdes.avro_json import AvroJson, Mismatch
from millstream.serdes.frame import NotFramed, split_path
from millstream.spark.columns.avro import loop
from millstream.wire.arrow import Answer, Columns
from millstream.wire.arrow import varint_loops as compiled
from millstream.wire.batch import HEADER, HEADER_SIZE, LENGTH_END, BatchHeader, read_header
from millstream.wire.errors import KafkaError
from millstream.wire.record_walk import check_records, keys_and_values, newest_timestamp, record_spans
from millstream.wire.records import iter_records
from millstream.wire.varint import (
    Malformed,
    append_uvarint,
    append_varint,
    read_uvarint,
    read_uvarlong,
    read_varint,
    read_varlong,
    uvarint,
    varint,
    varint_size,
)
from tests.support.effort import examples

REFUSED = (IndexError, Malformed, KafkaError, Damaged, Mismatch, NotFramed)
MAX_INT = (1 << 31) - 1

Number = tuple[int, int]  # the number, and how many bytes it takes


def expected(data: bytes, bits: int) -> Number | None:
    """The definition: at most ceil(bits / 7) bytes, the last one below 0x80, and no more than `bits` bits."""
    for index, byte in enumerate(data[: -(-bits // 7)]):
        if byte < 0x80:
            raw = sum((each & 0x7F) << 7 * number for number, each in enumerate(data[: index + 1]))
            return ((raw >> 1) ^ -(raw & 1), index + 1) if raw < 1 << bits else None
    return None


# --- the readers, each as bytes -> number -------------------------------------------------------------------


@compiled.compiled()
def _compiled_varint(data, end):  # type: ignore[no-untyped-def]
    return compiled.read_varint(data, np.int64(0), end)


@compiled.compiled()
def _compiled_varlong(data, end):  # type: ignore[no-untyped-def]
    return compiled.read_varlong(data, np.int64(0), end)


def unsigned(read: Callable[[bytes, int], Number]) -> Callable[[bytes], Number]:
    def reader(data: bytes) -> Number:
        raw, at = read(data, 0)
        return (raw >> 1) ^ -(raw & 1), at

    return reader


def from_compiled(read: Callable[..., tuple[int, int]]) -> Callable[[bytes], Number]:
    def reader(data: bytes) -> Number:
        number, at = read(np.frombuffer(data or b"\xff", np.uint8), np.int64(len(data)))
        if at < 0:
            raise Malformed
        return int(number), int(at)

    return reader


def avro_columns(data: bytes) -> Number:
    """The interpreter of Avro bodies, with the program of a schema that is one long."""
    program = np.array([[loop.LONG, 0, 0, 0], [loop.END, 0, 0, 0]], np.int64)
    store, outcome = np.zeros(1, np.int64), np.zeros(1, np.uint8)
    zero, one = np.zeros(1, np.int64), np.ones(1, np.int64)
    size = next((at + 1 for at, byte in enumerate(data) if byte < 0x80), len(data))  # it takes the whole body
    body = np.frombuffer(data or b"\xff", np.uint8)
    ends = np.array([size], np.int64)
    loop.run(body, zero, ends, program, zero, zero, zero, one, zero.copy(), store, outcome)
    if outcome[0] != loop.GOOD:
        raise Malformed
    return int(store[0]), size


def message_path(data: bytes) -> Number:
    """The index of a Protobuf message in its file, behind a path of one step."""
    (number,), rest = split_path(memoryview(b"\x02" + data))
    return number, len(data) - len(rest)


def avro_json(data: bytes) -> Number:
    size = next((at + 1 for at, byte in enumerate(data) if byte < 0x80), len(data))
    return AvroJson(json.dumps("long")).decode(data), size


READERS_32 = {
    "read_uvarint": unsigned(read_uvarint),
    "read_varint": lambda data: read_varint(data, 0),
    "of a memoryview": lambda data: read_varint(memoryview(data), 0),
    "compiled": from_compiled(_compiled_varint),
    "path of a Protobuf message": message_path,
}
READERS_64 = {
    "read_uvarlong": unsigned(read_uvarlong),
    "read_varlong": lambda data: read_varlong(data, 0),
    "compiled": from_compiled(_compiled_varlong),
    "Avro columns": avro_columns,
    "Avro as JSON": avro_json,
}


def batch_of(records: bytes, count: int = 1) -> bytes:
    """A batch around these bytes, which nobody has checked."""
    length = HEADER_SIZE - LENGTH_END + len(records)
    header = BatchHeader(0, length, 0, 2, 0, 0, MAX_INT, 0, MAX_INT, -1, -1, -1, count)
    return HEADER.pack(*header) + records


def with_delta(data: bytes) -> bytes:
    """A record whose offset delta is written as `data`, with neither key nor value."""
    content = b"\0\0" + data + b"\x01\x01\0"
    return batch_of(varint(len(content)) + content)


def with_key_size(data: bytes, size: int) -> bytes:
    content = b"\0\0\0" + data + b"k" * size + b"\x01\0"
    return batch_of(varint(len(content)) + content)


def with_record_size(data: bytes, size: int) -> bytes:
    """A record whose own size is written as `data`: a value fills it."""
    fixed = b"\0\0\0\x01"
    value_size = next((n for n in range(size) if len(fixed) + len(varint(n)) + n + 1 == size), 0)
    return batch_of(data + fixed + varint(value_size) + b"v" * value_size + b"\0")


def strict(batch: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in iter_records(batch, check_crc=False)]


def spans(batch: bytes) -> list[tuple[int, bytes | None, bool]]:
    found = record_spans(read_header(batch), batch[HEADER_SIZE:])
    return [(delta, key, has_value) for _, _, delta, key, has_value in found]


def entries(batch: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    return keys_and_values(batch, 0, len(batch), 0, 0, 1)


def columns(batch: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    chunks = list(Answer(batch).chunks(columns=Columns(), check_crcs=False))
    return [
        row
        for chunk in chunks
        for row in zip(
            chunk.offset.to_pylist(),
            chunk.key.to_pylist() if chunk.key is not None else (),
            chunk.value.to_pylist() if chunk.value is not None else (),
            strict=True,
        )
    ]


def accepted(read: Callable[[bytes], object], data: bytes) -> object:
    """What it reads, or None: refused. Any exception but its own comes through."""
    try:
        return read(data)
    except REFUSED:
        return None


def written(value: int, padding: int) -> bytes:
    """The varint of a raw value, with more bytes than it needs."""
    out = bytearray(uvarint(value))
    for _ in range(padding):
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)


raw_numbers = st.integers(0, 40) | st.integers(0, 1 << 14) | st.integers(0, 1 << 36) | st.integers(0, 1 << 71)
hostile = (
    st.binary(max_size=12)
    | st.builds(written, raw_numbers, st.integers(0, 10))
    | st.builds(lambda number, cut: uvarint(number)[:cut], raw_numbers, st.integers(0, 10))
    | st.lists(st.sampled_from([0x00, 0x01, 0x0F, 0x10, 0x7F, 0x80, 0x81, 0xFF]), max_size=12).map(bytes)
)


@given(data=hostile)
@example(b"\xff\xff\xff\xff\x0f")
@example(b"\xff\xff\xff\xff\x10")
@example(b"\xff\xff\xff\xff\xff\x00")
@example(b"\xff" * 9 + b"\x01")
@example(b"\xff" * 9 + b"\x02")
@example(b"\xff" * 10 + b"\x00")
@example(b"\x80" * 9 + b"\x00")
@settings(max_examples=examples(500))
def test_every_reader_gives_the_same_number_or_refuses(data: bytes) -> None:
    for bits, readers in ((32, READERS_32), (64, READERS_64)):
        answer = expected(data, bits)
        for name, read in readers.items():
            assert accepted(read, data) == answer, (name, bits)

    # Loops that read the numbers of records themselves: offset deltas, key sizes, record sizes. What is cut
    # off, the next field would complete.
    number = expected(data, 32)
    if number[1] == len(data) if number is not None else len(data) >= 5:
        delta = number[0] if number is not None and number[0] >= 0 else None
        batch = with_delta(data)
        found = None if delta is None else [(delta, None, None)]
        assert accepted(strict, batch) == found
        assert accepted(columns, batch) == found
        if number is None or delta is not None:
            assert accepted(entries, batch) == found
            assert accepted(spans, batch) == (None if delta is None else [(delta, None, False)])

        size = number[0] if number is not None and 0 <= number[0] < 20_000 else None
        batch = with_key_size(data, size or 0)
        key = None if size is None else [(0, b"k" * size, None)]
        if number is None or number[0] >= 0:
            for read in (strict, columns, entries):
                assert accepted(read, batch) == key, read
            assert accepted(spans, batch) == (None if size is None else [(0, b"k" * size, False)])
            assert (accepted(check_records, batch) is None) == (size is None)
        batch = with_record_size(data, size or 0)
        read_strictly = accepted(strict, batch)
        assert accepted(columns, batch) == read_strictly
        assert (accepted(newest_timestamp, batch) is None) == (read_strictly is None)
        if read_strictly is not None:
            assert accepted(entries, batch) == read_strictly
            assert len(accepted(spans, batch)) == 1  # type: ignore[arg-type]
            found_v = matching(batch[HEADER_SIZE:], 1, b"v", key=False, value=True, header=False)
            assert bool(found_v) == (b"v" in batch)


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_what_is_written_is_read(number: int) -> None:
    data = varint(number)
    out = bytearray()
    append_varint(out, number)
    assert out == data
    assert read_varlong(data, 0) == (number, len(data))
    room = np.zeros(16, np.uint8)
    end = _put(room, number)
    assert bytes(room[:end]) == data
    assert _size(np.int64(number)) == varint_size(number) == len(data)
    if -(1 << 31) <= number < 1 << 31:
        assert read_varint(data, 0) == (number, len(data))


@given(st.integers(0, (1 << 32) - 1))
def test_what_is_written_unsigned_is_read(number: int) -> None:
    out = bytearray(b"before")
    append_uvarint(out, number)
    assert out == b"before" + uvarint(number)
    assert read_uvarint(out, 6) == (number, len(out))


@compiled.compiled()
def _put(room, number):  # type: ignore[no-untyped-def]
    return compiled.put_varint(room, np.int64(0), np.int64(number))


@compiled.compiled()
def _size(number):  # type: ignore[no-untyped-def]
    return compiled.varint_size(number)


def test_a_number_that_is_cut_off_is_an_index_error() -> None:
    for read in (read_uvarint, read_varint, read_varlong):
        with pytest.raises(IndexError):
            read(b"\x80\x80", 0)
