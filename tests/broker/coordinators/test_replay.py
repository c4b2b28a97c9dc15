"""Reading a coordinator's log: the same records that the strict reader finds, and no crash on any bytes."""

from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.coordinators.runtime import BATCH_HEAD, batch_size
from millstream.wire.compression import LZ4, NONE
from millstream.wire.errors import KafkaError
from millstream.wire.record_walk import KeyAndValue, keys_and_values
from millstream.wire.records import Record, encode_batch, iter_records

texts = st.none() | st.binary(max_size=300)
rows = st.lists(st.tuples(st.integers(0, 1 << 40), texts, texts), min_size=1, max_size=20)


def read(data: bytes, at: int = 0) -> list[KeyAndValue]:
    base, length, attributes, _, count = BATCH_HEAD.unpack_from(data, at)
    return keys_and_values(data, at, batch_size(length, len(data) - at), attributes, base, count)


@given(rows, st.sampled_from([NONE, LZ4]), st.integers(0, 1 << 50))
def test_what_was_written_is_read(
    found: list[tuple[int, bytes | None, bytes | None]], codec: int, base: int
) -> None:
    records = [
        Record(base + at, time, key, value, (("h", b"x"),)) for at, (time, key, value) in enumerate(found)
    ]
    batch = bytes(encode_batch(records, codec=codec, base_offset=base))
    expected = [(record.offset, record.key, record.value) for record in iter_records(batch)]
    assert read(batch) == expected
    assert read(b"before" + batch + b"after", 6) == expected


@given(rows, st.data())
def test_spoilt_bytes_are_refused_or_read_as_something(
    found: list[tuple[int, bytes | None, bytes | None]], data: st.DataObject
) -> None:
    batch = bytearray(
        encode_batch([Record(at, time, key, value) for at, (time, key, value) in enumerate(found)])
    )
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    try:
        read(bytes(batch))
    except KafkaError:
        pass
