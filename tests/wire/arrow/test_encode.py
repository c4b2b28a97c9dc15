"""Arrow columns to record batches, against the plain encoder and the plain hash."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba", reason="numba is not installed (pip install millstream[pipelines])")

from millstream.wire.arrow.encode import BadRow, Encoder, Rows, TooLarge
from millstream.wire.arrow.encode_loops import murmur2 as compiled_murmur2
from millstream.wire.batch import CRC_START, crc_of, read_header
from millstream.wire.compression import CODEC_IDS
from millstream.wire.murmur2 import murmur2, partition_for
from millstream.wire.records import iter_records
from tests.support.effort import examples

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
CELLS = st.one_of(st.none(), st.binary(max_size=200))
RECORDS = st.lists(
    st.tuples(
        CELLS, CELLS, st.one_of(st.none(), st.lists(st.tuples(st.text(max_size=5), CELLS), max_size=3))
    ),
    max_size=60,
)


def encoder(partitions=3, **changes):
    return Encoder(lambda _: partitions, **({"batch_bytes": 4000, "largest_record": 1 << 20} | changes))


def rows_of(records):
    keys, values, headers = zip(*records, strict=True) if records else ((), (), ())
    pairs = [None if h is None else [{"key": k, "value": v} for k, v in h] for h in headers]
    return Rows(pa.array(values, pa.binary()), pa.array(keys, pa.binary()), pa.array(pairs, HEADERS))


def decoded(encoded):
    batch = bytearray(encoded.batch)
    batch[CRC_START - 4 : CRC_START] = crc_of(batch).to_bytes(4, "big")
    assert read_header(batch).record_count == encoded.records
    return list(iter_records(batch))


@settings(max_examples=examples(60), deadline=None)
@given(RECORDS, st.sampled_from(sorted(CODEC_IDS)), st.integers(100, 5000), st.integers(0, 10))
def test_every_record_arrives_as_it_was(records, codec, size, skipped):
    rows = rows_of(records)
    # Slices begin inside of buffers.
    rows = Rows(rows.value[skipped:], rows.key[skipped:], rows.headers[skipped:])
    found = []
    for encoded in encoder(codec=CODEC_IDS[codec], batch_bytes=size).encode(rows, "t"):
        for record in decoded(encoded):
            if record.key is not None:
                assert encoded.topic_partition == ("t", partition_for(record.key, 3))
            found.append((record.key, record.value, list(record.headers)))
    wanted = [(key, value, list(headers or [])) for key, value, headers in records[skipped:]]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


def test_order_within_a_partition_is_kept():
    rows = Rows(pa.array([b"%d" % n for n in range(5000)]), pa.array([b"%d" % (n % 7) for n in range(5000)]))
    last = {}
    for encoded in encoder().encode(rows, "t"):
        for record in decoded(encoded):
            assert int(record.value) > last.get(encoded.topic_partition, -1)
            last[encoded.topic_partition] = int(record.value)
        assert len(encoded.batch) <= 4000


@given(st.binary(max_size=40))
def test_the_compiled_hash_is_the_plain_one(data):
    import numpy as np

    buffer = np.frombuffer(b"xx" + data, np.uint8)
    assert int(compiled_murmur2(buffer, 2, len(buffer))) == murmur2(data)


def test_strings_large_types_and_missing_columns():
    for kind in (pa.string(), pa.large_string(), pa.large_binary(), pa.binary()):
        values = pa.array(["a", None, "ü"], pa.string()).cast(kind)
        got = [r.value for e in encoder(1).encode(Rows(values), "t") for r in decoded(e)]
        assert got == [b"a", None, "ü".encode()]
    got = [r for e in encoder(1).encode(Rows(pa.array([b"v"]), pa.nulls(1)), "t") for r in decoded(e)]
    assert [(r.key, r.value, list(r.headers)) for r in got] == [(None, b"v", [])]


def test_topics_and_partitions_of_rows():
    rows = Rows(
        pa.array([b"0", b"1", b"2", b"3"]),
        topic=pa.array(["a", "b", "a", "b"]),
        partition=pa.array([2, None, 0, 1], pa.int32()),
    )
    found = {r.value: e.topic_partition for e in encoder(3, first_turn=1).encode(rows) for r in decoded(e)}
    assert found == {b"0": ("a", 2), b"1": ("b", 1), b"2": ("a", 0), b"3": ("b", 1)}


def test_rows_without_a_key_take_turns_by_the_batch():
    rows = Rows(pa.array([b"x" * 100] * 300))
    sizes = {}
    for encoded in encoder(3).encode(rows, "t"):
        sizes[encoded.topic_partition] = sizes.get(encoded.topic_partition, 0) + encoded.records
    assert len(sizes) == 3
    assert max(sizes.values()) - min(sizes.values()) < 60


def test_mistakes():
    with pytest.raises(BadRow, match="'partition' says 3, but topic 't' has partitions 0 to 2"):
        list(encoder().encode(Rows(pa.array([b"v"]), partition=pa.array([3], pa.int32())), "t"))
    with pytest.raises(BadRow, match="'topic' is null"):
        list(encoder().encode(Rows(pa.array([b"v"]), topic=pa.array([None], pa.string()))))
    with pytest.raises(TooLarge, match="topic 't'"):
        list(encoder(largest_record=1000).encode(Rows(pa.array([b"v", b"v" * 1000])), "t"))
    with pytest.raises(BadRow, match="without a key"):
        pairs = pa.array([[{"key": None, "value": b""}]], HEADERS)
        list(encoder().encode(Rows(pa.array([b"v"]), headers=pairs), "t"))
