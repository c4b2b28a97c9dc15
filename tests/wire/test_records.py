"""Records: against aiokafka's and kafka-python's builders and parsers, round trips, and damage of every
kind."""

import pytest
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as PyBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as PyBuilder

from millstream.wire.batch import CRC_START, HEADER, HEADER_SIZE, crc_of, read_header
from millstream.wire.compression import compress
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.murmur2 import murmur2, partition_for
from millstream.wire.record_walk import check_records
from millstream.wire.records import (
    ABORT_MARKER,
    COMMIT_MARKER,
    Record,
    check_batch,
    control_type,
    encode_batch,
    encode_marker,
    iter_batches,
    iter_records,
)
from millstream.wire.varint import varint
from tests.support.effort import examples

NOW = 1_700_000_000_000
CODECS = [0, 1, 2, 3, 4]

SAMPLE = [
    Record(0, NOW, b"k", b"v", ()),
    Record(1, NOW + 5, None, b"no key", ()),
    Record(2, NOW - 1000, b"tombstone", None, ()),
    Record(3, NOW, b"", b"", (("h", b"1"), ("h", None), ("", b""), ("é", b"\xff"))),
    Record(4, NOW + 2, b"big", b"x" * 70_000, ()),
]

text = st.text(max_size=20)
header = st.tuples(text, st.none() | st.binary(max_size=30))
record = st.builds(
    Record,
    offset=st.just(0),
    timestamp=st.integers(0, 1 << 45),
    key=st.none() | st.binary(max_size=40),
    value=st.none() | st.binary(max_size=200),
    headers=st.lists(header, max_size=4).map(tuple),
)


def numbered(records, start=0):
    return [r._replace(offset=start + n, headers=tuple(r.headers)) for n, r in enumerate(records)]


def resealed(batch):
    """The batch with length and checksum made right again, so that damage reaches the records."""
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[CRC_START - 4 : CRC_START] = crc_of(batch).to_bytes(4, "big")
    return batch


def plain_batch(payload, count, last_delta=None, codec=0):
    batch = bytearray(HEADER_SIZE)
    last_delta = count - 1 if last_delta is None else last_delta
    HEADER.pack_into(batch, 0, 0, 0, -1, 2, 0, codec, last_delta, NOW, NOW, -1, -1, -1, count)
    return resealed(batch + payload)


# --- against other implementations --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("builder", "codec"), [(AioBuilder, c) for c in CODECS] + [(PyBuilder, c) for c in (0, 1)]
)
def test_we_read_what_others_build(codec, builder):
    other = builder(
        magic=2,
        compression_type=codec,
        is_transactional=1,
        producer_id=77,
        producer_epoch=3,
        base_sequence=9,
        batch_size=1 << 20,
    )
    for r in SAMPLE:
        assert other.append(
            r.offset, timestamp=r.timestamp, key=r.key, value=r.value, headers=list(r.headers)
        )
    batch = bytes(other.build())
    assert list(iter_records(batch)) == SAMPLE
    head = check_records(batch, check_crc=True)
    assert (head.producer_id, head.producer_epoch, head.base_sequence, head.is_transactional) == (
        77,
        3,
        9,
        True,
    )


@pytest.mark.parametrize(
    ("parser", "codec"), [(AioBatch, c) for c in CODECS] + [(PyBatch, c) for c in (0, 1)]
)
def test_others_read_what_we_build(codec, parser):
    batch = bytes(
        encode_batch(SAMPLE, codec, producer_id=5, producer_epoch=1, base_sequence=2, base_offset=100)
    )
    parsed = parser(batch)
    assert parsed.validate_crc()
    assert (parsed.producer_id, parsed.producer_epoch, parsed.base_sequence) == (5, 1, 2)
    got = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in parsed]
    assert got == numbered(SAMPLE, 100)


def test_uncompressed_bytes_are_those_of_aiokafka():
    other = AioBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=5,
        producer_epoch=1,
        base_sequence=2,
        batch_size=1 << 20,
    )
    for r in SAMPLE:
        other.append(r.offset, timestamp=r.timestamp, key=r.key, value=r.value, headers=list(r.headers))
    theirs = bytearray(other.build())
    ours = encode_batch(SAMPLE, producer_id=5, producer_epoch=1, base_sequence=2)
    theirs[12:16] = ours[12:16]  # the leader epoch, which a producer may set to anything
    assert ours == theirs


# --- round trips --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@settings(deadline=None)
@given(records=st.lists(record, min_size=1, max_size=20), base=st.integers(0, 1 << 60))
def test_round_trip(codec, records, base):
    batch = encode_batch(records, codec, base_offset=base)
    assert list(iter_records(batch)) == numbered(records, base)
    head = check_records(batch, check_crc=True)
    assert head.record_count == len(records)
    assert head.max_timestamp == max(r.timestamp for r in records)
    assert head.last_offset == base + len(records) - 1


def test_null_is_not_empty():
    records = numbered(
        [Record(0, 1, k, v, (("n", h),)) for k in (None, b"") for v in (None, b"") for h in (None, b"")]
    )
    assert list(iter_records(encode_batch(records))) == records


def test_header_keys_that_are_not_utf8_survive():
    name = b"\xff\xfe".decode("utf-8", "surrogateescape")
    batch = encode_batch([Record(0, 1, None, None, ((name, b"v"),))])
    assert b"\xff\xfe" in batch
    assert encode_batch(iter_records(batch)) == batch


def test_log_append_time_overrides_record_timestamps():
    batch = encode_batch(SAMPLE, log_append_time=NOW + 99)
    assert {r.timestamp for r in iter_records(batch)} == {NOW + 99}
    assert read_header(batch).max_timestamp == NOW + 99


def test_kept_offsets_and_a_last_offset_after_the_last_record():
    kept = [SAMPLE[0]._replace(offset=10), SAMPLE[1]._replace(offset=17)]
    batch = encode_batch(kept, keep_offsets=True, base_offset=8, last_offset=20)
    assert list(iter_records(batch)) == kept
    head = read_header(batch)
    assert (head.base_offset, head.last_offset, head.record_count) == (8, 20, 2)
    with pytest.raises(ValueError, match="rise"):
        encode_batch(kept[::-1], keep_offsets=True)
    with pytest.raises(ValueError, match="last offset"):
        encode_batch(kept, keep_offsets=True, last_offset=16)
    with pytest.raises(ValueError, match="at least one"):
        encode_batch([])


def test_no_timestamp():
    batch = encode_batch([Record(0, -1, None, b"x")])
    assert next(iter_records(batch)).timestamp == -1
    assert read_header(batch).max_timestamp == -1


def test_timestamp_out_of_range_is_a_kafka_error():
    with pytest.raises(KafkaError):
        encode_batch([Record(0, 1 << 63, None, b"x")])


@pytest.mark.parametrize("commit", [True, False])
def test_markers(commit):
    batch = encode_marker(commit, producer_id=7, producer_epoch=2, timestamp=NOW, coordinator_epoch=4)
    head = check_batch(batch)
    assert head.is_control and head.is_transactional and head.base_sequence == -1
    (marker,) = iter_records(batch)
    assert control_type(marker.key) == (COMMIT_MARKER if commit else ABORT_MARKER)
    assert marker.value == b"\0\0\0\0\0\4"
    parsed = AioBatch(bytes(batch))
    assert parsed.is_control_batch and parsed.producer_id == 7
    with pytest.raises(KafkaError):
        control_type(b"\0\0\0")


def test_bare_header_left_by_compaction():
    batch = plain_batch(b"", 0, last_delta=5)
    assert list(iter_records(batch)) == []
    batch = plain_batch(b"", 0, last_delta=5, codec=1)
    assert list(iter_records(batch)) == []


def test_iter_batches_leaves_out_a_cut_tail():
    one, two = encode_batch(SAMPLE), encode_batch(SAMPLE, 4, base_offset=5)
    heads = [head.base_offset for head, _ in iter_batches(one + two)]
    assert heads == [0, 5]
    assert [bytes(b) for _, b in iter_batches(one + two[:-1])] == [bytes(one)]
    assert list(iter_batches(one[:60])) == []
    with pytest.raises(KafkaError):
        list(iter_batches(b"\0" * 100))


# --- bad input ----------------------------------------------------------------------------------------------


def body(*, offset=0, key=b"\x01", value=b"\x01", headers=b"\0", timestamp=b"\0", tail=b""):
    content = b"\0" + timestamp + varint(offset) + key + value + headers + tail
    return varint(len(content)) + content


BAD_RECORDS = {
    "too many records": (body(), 5),
    "record longer than the batch": (varint(500) + b"\0" * 10, 1),
    "negative size": (varint(-5) + b"\0" * 10, 1),
    "bytes after the records": (body() + b"\0", 1),
    "bytes inside the record": (body(tail=b"\0"), 1),
    "key length -2": (body(key=varint(-2)), 1),
    "value length -2": (body(value=varint(-2)), 1),
    "key past the record": (body(key=varint(100)), 1),
    "value past the record": (body(value=varint(100)), 1),
    "huge header count": (body(headers=varint(1 << 30)), 1),
    "negative header count": (body(headers=varint(-1)), 1),
    "header without key": (body(headers=varint(1) + varint(-1) + varint(-1)), 1),
    "header value past the record": (body(headers=varint(1) + varint(0) + varint(9)), 1),
    "offset delta past the batch": (body(offset=1), 1),
    "offset delta negative": (body(offset=-1), 1),
    "offset delta twice": (body() + body(), 2),
    "varint of six bytes": (body(key=b"\xff\xff\xff\xff\xff\x01"), 1),
    "varint of 35 bits": (body(key=b"\xff\xff\xff\xff\x7f"), 1),
    "varlong of eleven bytes": (body(timestamp=b"\xff" * 10 + b"\x01"), 1),
    "varlong of 70 bits": (body(timestamp=b"\xff" * 9 + b"\x7f"), 1),
}


@pytest.mark.parametrize("name", BAD_RECORDS)
@pytest.mark.parametrize("codec", [0, 2])
def test_bad_records(name, codec):
    payload, count = BAD_RECORDS[name]
    batch = plain_batch(compress(codec, payload), count, codec=codec)
    for read in (lambda b: list(iter_records(b)), check_records):
        with pytest.raises(KafkaError) as caught:
            read(batch)
        assert caught.value.code in (ErrorCode.corrupt_message, ErrorCode.invalid_record)


def test_bad_frames():
    good = encode_batch(SAMPLE)
    for damage in (
        good[:60],
        good[:-1],
        good + b"\0",
        good[:16] + b"\x01" + good[17:],
        good[:-1] + bytes([good[-1] ^ 1]),
        plain_batch(b"", -1),
        plain_batch(body(), 1, last_delta=-1),
        plain_batch(body(), 0, last_delta=0),
        plain_batch(body(), 1, codec=5),
    ):
        with pytest.raises(KafkaError):
            list(iter_records(damage))


def test_crc_check_can_be_left_to_the_caller():
    batch = encode_batch([Record(0, NOW, b"k", b"v")])
    batch[CRC_START - 1] ^= 1
    assert len(list(iter_records(batch, check_crc=False))) == 1
    with pytest.raises(KafkaError, match="checksum"):
        check_batch(batch)


def test_bomb_in_a_batch():
    batch = encode_batch([Record(0, NOW, None, b"\0" * (8 << 20))], 4)
    assert len(batch) < 10_000
    with pytest.raises(KafkaError) as caught:
        list(iter_records(batch, limit=1 << 20))
    assert caught.value.code is ErrorCode.invalid_record


@pytest.mark.parametrize("codec", CODECS)
def test_compacted_topics_need_keys(codec):
    check_records(encode_batch([SAMPLE[0], SAMPLE[3], SAMPLE[2]], codec), require_keys=True)
    with pytest.raises(KafkaError, match="no key") as caught:
        check_records(encode_batch([SAMPLE[0], SAMPLE[1]], codec), require_keys=True)
    assert caught.value.code is ErrorCode.invalid_record


def test_gaps_in_offsets_are_for_logs_not_for_producers():
    batch = encode_batch([SAMPLE[0], SAMPLE[4]], keep_offsets=True)
    assert len(list(iter_records(batch))) == 2
    with pytest.raises(KafkaError, match="offset delta"):
        check_records(batch)


@pytest.mark.parametrize("codec", CODECS)
@settings(deadline=None, max_examples=examples(300))
@given(data=st.data())
def test_damage_raises_only_kafka_error(codec, data):
    batch = encode_batch(SAMPLE[:4], codec)
    for at in data.draw(st.lists(st.integers(0, len(batch) - 1), max_size=4)):
        batch[at] = data.draw(st.integers(0, 255))
    del batch[data.draw(st.integers(HEADER_SIZE, len(batch))) :]
    if data.draw(st.booleans()):
        resealed(batch)
    for read in (lambda b: list(iter_records(b, 1 << 20)), lambda b: check_records(b, limit=1 << 20)):
        try:
            read(batch)
        except KafkaError:
            pass
    try:
        list(iter_batches(batch))
    except KafkaError:
        pass


@settings(deadline=None, max_examples=examples(300))
@given(payload=st.binary(max_size=200), count=st.integers(0, 30), spare=st.integers(0, 5))
def test_junk_records_raise_only_kafka_error_and_the_check_is_no_laxer_than_the_reader(payload, count, spare):
    batch = plain_batch(payload, count, last_delta=count + spare)
    try:
        check_records(batch)
        passed = True
    except KafkaError:
        passed = False
    try:
        list(iter_records(batch))
    except KafkaError:
        assert not passed


# --- partitioner --------------------------------------------------------------------------------------------


def test_murmur2_known_values():
    # The values that Kafka's own unit tests of its partitioner state.
    known = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    for key, expected in known.items():
        assert murmur2(key) == expected & 0xFFFFFFFF


@settings(deadline=None)
@given(key=st.binary(max_size=50), partitions=st.integers(1, 500))
def test_partitioner_agrees_with_aiokafka(key, partitions):
    every = list(range(partitions))
    assert partition_for(key, partitions) == DefaultPartitioner()(key, every, every)
