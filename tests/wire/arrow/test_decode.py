"""The compiled decoder against `iter_records`, which is the reference; and against damage."""

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.wire.arrow import HEADERS, TIMESTAMP, Answer, Columns
from millstream.wire.batch import HEADER_SIZE
from millstream.wire.compression import CODEC_NAMES
from millstream.wire.errors import KafkaError
from millstream.wire.records import Record, encode_batch, encode_marker, iter_records
from tests.support.effort import examples

ALL = Columns(headers=True)
CODECS = range(len(CODEC_NAMES))

some_bytes = st.none() | st.binary(max_size=40)
names = st.text(st.characters(codec="utf-8"), max_size=8)
records = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp=st.integers(0, 2**43),
        key=some_bytes,
        value=some_bytes,
        headers=st.lists(st.tuples(names, some_bytes), max_size=3),
    ),
    min_size=1,
    max_size=20,
)


def rows_of(data: bytes | bytearray, **options: object) -> list[tuple[object, ...]]:
    """What the decoder reads, as plain values. Reading every value also checks the buffers that were handed
    to Arrow."""
    found: list[tuple[object, ...]] = []
    for chunk in Answer(data).chunks(columns=ALL, **options):  # type: ignore[arg-type]
        for array in (chunk.offset, chunk.timestamp, chunk.key, chunk.value, chunk.headers):
            assert array is not None
            array.validate(full=True)
            assert len(array) == chunk.rows
        assert chunk.headers is not None
        assert chunk.headers.type == HEADERS
        assert chunk.timestamp.type == TIMESTAMP
        times = chunk.timestamp.view(pa.int64()).to_pylist()
        headers = [
            None if h is None else [(pair["key"], pair["value"]) for pair in h]
            for h in chunk.headers.to_pylist()
        ]
        found += zip(
            chunk.offset.to_pylist(),
            times,
            chunk.key.to_pylist(),  # type: ignore[union-attr]
            chunk.value.to_pylist(),  # type: ignore[union-attr]
            headers,
            strict=True,
        )
    return found


def reference(*batches: bytes | bytearray, check_crc: bool = True) -> list[tuple[object, ...]]:
    return [
        (r.offset, r.timestamp * 1000, r.key, r.value, list(r.headers) or None)
        for batch in batches
        for r in iter_records(batch, check_crc=check_crc)
    ]


@given(
    batches=st.lists(st.tuples(records, st.sampled_from(CODECS)), min_size=1, max_size=4),
    base=st.integers(0, 2**40),
    chunk_bytes=st.integers(1, 4096),
)
@settings(max_examples=examples(150), deadline=None)
def test_same_as_the_reference(batches: list[tuple[list[Record], int]], base: int, chunk_bytes: int) -> None:
    encoded = []
    for items, codec in batches:
        encoded.append(encode_batch(items, codec, base_offset=base))
        base += len(items)
    answer = Answer(b"".join(encoded))
    assert answer.next_offset == base
    assert rows_of(b"".join(encoded), chunk_bytes=chunk_bytes) == reference(*encoded)


def test_null_is_not_empty() -> None:
    batch = encode_batch(
        [Record(0, 1, b"", None), Record(1, 1, None, b""), Record(2, 1, b"", b"", [("h", b""), ("i", None)])]
    )
    assert rows_of(batch) == [
        (0, 1000, b"", None, None),
        (1, 1000, None, b"", None),
        (2, 1000, b"", b"", [("h", b""), ("i", None)]),
    ]


def test_only_the_columns_that_are_wanted() -> None:
    batch = encode_batch([Record(0, 1, b"key", b"value", [("h", b"x")])])
    (chunk,) = Answer(batch).chunks(columns=Columns(key=False, value=True))
    assert chunk.key is None
    assert chunk.headers is None
    assert chunk.value is not None
    assert chunk.value.to_pylist() == [b"value"]


@pytest.mark.parametrize("codec", CODECS)
def test_a_window_of_offsets(codec: int) -> None:
    batches = [
        encode_batch([Record(0, i, b"k", b"%d" % i) for i in range(10)], codec, base_offset=base)
        for base in (100, 110, 120)
    ]
    data = b"".join(batches)
    assert [r[0] for r in rows_of(data, first=105, until=121)] == list(range(105, 121))
    assert rows_of(data, first=130) == []
    assert rows_of(data, until=100) == []


def test_offsets_that_compaction_left_out() -> None:
    kept = [Record(3, 1, b"a", b"1"), Record(7, 2, b"b", b"2")]
    batch = encode_batch(kept, base_offset=0, keep_offsets=True, last_offset=9)
    assert [r[0] for r in rows_of(batch)] == [3, 7]
    assert Answer(batch).next_offset == 10


def test_log_append_time_and_create_time_are_kept_apart() -> None:
    own = encode_batch([Record(0, 5, b"k", b"v")], base_offset=0)
    theirs = encode_batch([Record(0, 5, b"k", b"v")], base_offset=1, log_append_time=99)
    chunks = list(Answer(bytes(own) + bytes(theirs)).chunks())
    assert [c.append_time for c in chunks] == [False, True]
    assert [r[1] for r in rows_of(bytes(own) + bytes(theirs))] == [5000, 99000]


def test_header_keys_that_are_not_utf8_are_made_so() -> None:
    batch = encode_batch([Record(0, 1, b"k", b"v", [("\udcff", b"x"), ("größe", b"y")])])
    assert rows_of(batch)[0][4] == [("\ufffd", b"x"), ("größe", b"y")]


def transaction(producer_id: int, base: int, commit: bool | None, rows: int = 2) -> bytes:
    data = encode_batch(
        [Record(0, 1, b"k", b"p%d" % producer_id) for _ in range(rows)],
        base_offset=base,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    return bytes(data) if commit is None else bytes(data) + marker(producer_id, base + rows, commit)


def marker(producer_id: int, base: int, commit: bool) -> bytes:
    return bytes(
        encode_marker(commit, producer_id=producer_id, producer_epoch=0, timestamp=1, base_offset=base)
    )


def test_aborted_transactions_and_markers() -> None:
    data = (
        transaction(7, 0, commit=None)  # aborted below, at 5
        + transaction(8, 2, commit=True)  # 2, 3, marker 4
        + marker(7, 5, commit=False)
        + transaction(7, 6, commit=True)  # the same producer again: 6, 7, marker 8
    )
    assert [r[0] for r in rows_of(data)] == [0, 1, 2, 3, 6, 7]
    committed = rows_of(data, read_committed=True, aborted=[(7, 0)])
    assert [r[0] for r in committed] == [2, 3, 6, 7]
    assert Answer(data).next_offset == 9


def test_a_batch_cut_off_at_the_end_is_left_out() -> None:
    whole = bytes(encode_batch([Record(0, 1, b"k", b"v" * 50)], base_offset=0))
    second = bytes(encode_batch([Record(0, 1, b"k", b"v" * 50)], base_offset=1))
    for cut in range(len(second)):
        answer = Answer(whole + second[:cut])
        assert answer.next_offset == 1
        assert len(rows_of(whole + second[:cut])) == 1
    assert Answer(b"").next_offset is None
    assert Answer(second[:40]).next_offset is None


def test_a_bare_header_left_by_compaction() -> None:
    batch = encode_batch([Record(0, 1, b"k", b"v")], base_offset=5)
    bare = bytearray(batch[:HEADER_SIZE])
    bare[8:12] = (HEADER_SIZE - 12).to_bytes(4, "big")
    bare[57:61] = bytes(4)
    assert rows_of(bare, check_crcs=False) == []
    assert Answer(bare).next_offset == 6


def test_a_wrong_checksum() -> None:
    batch = bytearray(encode_batch([Record(0, 1, b"k", b"value")], base_offset=42))
    batch[-3] ^= 1
    with pytest.raises(KafkaError, match="the batch at offset 42: the checksum is wrong"):
        rows_of(batch)


def test_the_old_record_format_is_named() -> None:
    batch = bytearray(encode_batch([Record(0, 1, b"k", b"value")]))
    batch[16] = 1
    with pytest.raises(KafkaError, match="older than v2"):
        rows_of(batch)


def test_a_bomb_is_refused() -> None:
    batch = encode_batch([Record(0, 1, None, bytes(1 << 20))], CODEC_NAMES.index("zstd"))
    with pytest.raises(KafkaError, match="larger than"):
        rows_of(batch, limit=1 << 16)


@given(
    items=records,
    codec=st.sampled_from([0, 0, 0, 3]),
    seed=st.integers(0, 2**32),
    flips=st.integers(1, 6),
)
@settings(max_examples=examples(400), deadline=None)
def test_damage_is_refused_where_the_reference_refuses_it(
    items: list[Record], codec: int, seed: int, flips: int
) -> None:
    """With the checksum left unchecked, so that the damage reaches the loops. Either both refuse or both read
    the same."""
    batch = bytearray(encode_batch(items, codec, base_offset=3))
    chance = random.Random(seed)
    for _ in range(flips):
        at = chance.randrange(17, len(batch))
        batch[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, batch[at] ^ (1 << chance.randrange(8))])
    agree(batch)


@given(payload=st.binary(max_size=200), count=st.integers(-1, 40), spare=st.integers(0, 5))
@settings(max_examples=examples(400), deadline=None)
def test_junk_is_refused_where_the_reference_refuses_it(payload: bytes, count: int, spare: int) -> None:
    batch = bytearray(encode_batch([Record(0, 1, b"k", b"v")], base_offset=3)[:HEADER_SIZE]) + payload
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[23:27] = (max(count, 0) + spare).to_bytes(4, "big", signed=True)
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    agree(batch)


@given(data=st.binary(max_size=400))
@settings(max_examples=examples(200), deadline=None)
def test_noise_is_an_error_or_nothing(data: bytes) -> None:
    try:
        rows_of(data, check_crcs=False)
    except KafkaError:
        pass


def agree(batch: bytearray) -> None:
    try:
        expected: object = reference(batch, check_crc=False)
    except KafkaError:
        expected = KafkaError
    if isinstance(expected, list) and (batch[22] & 0x20 or any(beyond(row) for row in expected)):
        return  # a control batch now, or times that do not fit in microseconds
    try:
        found: object = rows_of(batch, check_crcs=False)
    except KafkaError:
        found = KafkaError
    if isinstance(expected, list):
        expected = [(*row[:4], readable(row[4])) for row in expected]
    elif batch[22] & 0x20 or found == []:
        return  # hidden before it is opened
    assert found == expected


def beyond(row: tuple[object, ...]) -> bool:
    return not -(2**62) < int(row[1]) < 2**62 or not 0 <= int(row[0]) < 2**62  # type: ignore[call-overload]


def readable(headers: object) -> object:
    """What becomes of header keys that are not UTF-8."""
    if not isinstance(headers, list):
        return headers
    return [
        (key.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), value) for key, value in headers
    ]
