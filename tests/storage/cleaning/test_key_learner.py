"""Keys that are found without opening a batch are those that are found by opening it."""

from __future__ import annotations

import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.storage.cleaning import batch_records
from millstream.storage.cleaning.batch_records import Damaged
from millstream.storage.cleaning.cleaned_transactions import CleanedTransactions
from millstream.storage.cleaning.key_learner import KeyLearner
from millstream.storage.cleaning.offset_map import Marks, OffsetMap
from millstream.storage.cleaning.segment_reader import SegmentReader
from millstream.wire.batch import HEADER, HEADER_SIZE, LENGTH_END, BatchHeader, crc_of, read_header
from millstream.wire.records import Record, encode_batch
from tests.support.effort import examples

from ..batches import NOW
from .history import FAST

Field = st.none() | st.binary(max_size=6) | st.sampled_from([b"k" * size for size in (56, 63, 64, 90, 4200)])


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """One record, or a few; mostly sound; the checksum is always right."""
    rows = [
        Record(0, NOW + draw(st.sampled_from([0, 0, 1, -70, 9000])), draw(Field), draw(Field))
        for _ in range(draw(st.sampled_from([1, 1, 1, 1, 2])))
    ]
    batch = bytearray(encode_batch(rows, draw(st.sampled_from([0, 0, 0, 0, 4]))))
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        at = draw(st.integers(0, min(11, len(batch) - HEADER_SIZE - 1)))
        batch[HEADER_SIZE + at] = draw(st.integers(0, 255) | st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    if draw(st.integers(0, 7)) == 0:
        del batch[HEADER_SIZE + draw(st.integers(0, 12)) :]
    header = read_header(batch)._replace(
        length=len(batch) - LENGTH_END,
        record_count=len(rows) + draw(st.sampled_from([0] * 8 + [1, -1])),
        last_offset_delta=len(rows) - 1 + draw(st.sampled_from([0] * 8 + [3])),
    )
    HEADER.pack_into(batch, 0, *header)
    HEADER.pack_into(batch, 0, *header._replace(crc=crc_of(batch)))
    return bytes(batch)


def at_offset(batch: bytes, offset: int) -> tuple[BatchHeader, bytes]:
    header = read_header(batch)._replace(base_offset=offset)
    return header, HEADER.pack(*header) + batch[HEADER_SIZE:]


@given(st.lists(batches(), min_size=1, max_size=4), st.integers(0, 4), st.sampled_from([1, 100, 1 << 16]))
@settings(max_examples=examples(400))
def test_learns_what_is_in_the_batches(many: list[bytes], first_dirty: int, chunk_bytes: int) -> None:
    content = b""
    expected: dict[bytes, int] | None = {}
    offset = 0
    for batch in many:
        header, data = at_offset(batch, offset)
        content += data
        offset = header.next_offset
        if header.last_offset < first_dirty or expected is None:
            continue
        try:
            plain = batch_records.plain_records(header, memoryview(data))
            spans = batch_records.record_spans(header, plain)
        except Damaged:
            expected = None
            continue
        for _, _, delta, key, _ in spans:
            if key is not None and header.base_offset + delta >= first_dirty:
                expected[key] = header.base_offset + delta
    newest = OffsetMap(1 << 20, 0.9)
    learner = KeyLearner(newest, Marks(first_dirty, offset, 1 << 10), CleanedTransactions([]), first_dirty)
    with tempfile.NamedTemporaryFile(dir=FAST) as file:
        file.write(content)
        file.flush()
        with SegmentReader(file.name, 0, offset, len(content), chunk_bytes) as reader:
            try:
                while not reader.ended:
                    learner.learn(reader)
            except Damaged:
                assert expected is None
                return
    assert expected is not None
    assert {key: newest.get(key) for key in expected} == expected
    assert len(newest) == len(expected)
