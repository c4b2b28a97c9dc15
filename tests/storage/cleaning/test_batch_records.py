"""Finding records in batches, and refusing what is none."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.storage.cleaning.batch_records import Damaged, plain_records, record_spans
from millstream.wire.batch import HEADER_SIZE, read_header
from millstream.wire.record_walk import timestamp_delta
from millstream.wire.records import Record, encode_batch

from ..batches import NOW

KEY = st.one_of(st.none(), st.binary(max_size=200))
RECORDS = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(NOW - 100_000, NOW + 10**9),
        KEY,
        KEY,
        st.sampled_from([(), (("h", b"x"), ("i", None))]),
    ),
    min_size=1,
    max_size=200,
)


@given(RECORDS, st.sampled_from([0, 1, 2, 3, 4]))
def test_finds_every_record(records: list[Record], codec: int) -> None:
    batch = memoryview(encode_batch(records, codec, base_offset=77))
    header = read_header(batch)
    data = plain_records(header, batch)
    found = record_spans(header, data)
    assert [(delta, key, has_value) for _, _, delta, key, has_value in found] == [
        (number, record.key, record.value is not None) for number, record in enumerate(records)
    ]
    assert found[0][0] == 0
    assert found[-1][1] == len(data)
    assert all(one[1] == other[0] for one, other in itertools.pairwise(found))
    times = [header.base_timestamp + timestamp_delta(data, span[0])[0] for span in found]
    assert times == [record.timestamp for record in records]


@given(RECORDS, st.data())
def test_anything_else_is_damaged(records: list[Record], data: st.DataObject) -> None:
    """Whatever the bytes are, the answer is records inside them or `Damaged`."""
    batch = memoryview(encode_batch(records))
    header = read_header(batch)
    plain = bytearray(plain_records(header, batch))
    for _ in range(data.draw(st.integers(1, 4))):
        plain[data.draw(st.integers(0, len(plain) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(plain[: data.draw(st.integers(0, len(plain)))])
    try:
        found = record_spans(header, cut)
    except Damaged:
        return
    assert len(found) == header.record_count
    assert all(start < stop <= len(cut) for start, stop, *_ in found)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_stream_that_is_none_is_damaged(codec: int) -> None:
    batch = encode_batch([Record(0, NOW, b"k", b"v" * 50)], codec)
    batch[HEADER_SIZE:] = bytes(range(len(batch) - HEADER_SIZE))
    with pytest.raises(Damaged, match="cannot be opened"):
        plain_records(read_header(batch), memoryview(batch))


def test_a_batch_larger_than_the_scratch_buffer() -> None:
    records = [Record(0, NOW, b"%d" % number, b"v" * 100_000) for number in range(30)]
    for codec in (3, 4):
        batch = memoryview(encode_batch(records, codec))
        assert len(plain_records(read_header(batch), batch)) > 3_000_000
