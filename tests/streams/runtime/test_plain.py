"""Records one at a time give what columns give: the same records, the same partitions, the same batches."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.client.fetch import Fetched
from millstream.streams.operators.base import Headers
from millstream.streams.runtime import fetched_records, plain_records, record_collector
from millstream.streams.runtime.fetched_records import records_of
from millstream.streams.runtime.plain_records import FEW, PlainRecords
from millstream.streams.runtime.record_collector import RecordCollector
from millstream.wire.batch import read_header
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import Record, encode_batch, encode_marker, iter_records
from tests.support.effort import examples

ANY = 1 << 62
HEADERS = st.lists(
    st.tuples(
        st.one_of(st.text(max_size=3), st.sampled_from(["\udcff", "a\udc80"])),
        st.one_of(st.none(), st.binary(max_size=3)),
    ),
    max_size=2,
).map(tuple)
BYTES = st.one_of(st.none(), st.binary(max_size=9))
RECORDS = st.lists(
    st.builds(Record, st.just(0), st.integers(0, 1 << 41), BYTES, BYTES, HEADERS), min_size=1, max_size=5
)


def fetched(batches: Sequence[bytearray], aborted: Sequence[tuple[int, int]] = ()) -> Fetched:
    records = memoryview(b"".join(batches))
    return Fetched("t", 0, ErrorCode.none, ANY, ANY, 0, tuple(aborted), records)


def both(answer: Fetched, first: int, until: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for few in (True, False):
        monkeypatch.setattr(fetched_records, "holds_few", lambda _, few=few: few)
        records, after = records_of(answer, first, until, chunk_bytes=1 << 20)
        found.append(([read for some in records for read in some], after))
    assert found[0] == found[1]


@settings(max_examples=examples(200), deadline=None)
@given(runs=st.lists(RECORDS, max_size=4), first=st.integers(0, 12), length=st.integers(0, 20))
def test_the_same_is_read(runs: list[list[Record]], first: int, length: int) -> None:
    base, batches = 0, []
    for run in runs:
        batches.append(encode_batch(run, base_offset=base))
        base += len(run)
    with pytest.MonkeyPatch.context() as monkeypatch:
        both(fetched(batches), first, first + length, monkeypatch)


def test_markers_and_aborted_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    row = [Record(0, 5, b"k", b"v")]
    batches = [
        encode_batch(row, base_offset=0, producer_id=7, producer_epoch=0, transactional=True),
        encode_batch(row, base_offset=1, producer_id=8, producer_epoch=0, transactional=True),
        encode_marker(False, base_offset=2, producer_id=7, producer_epoch=0, timestamp=5),
        encode_batch(row, base_offset=3, producer_id=7, producer_epoch=0, transactional=True),
    ]
    answer = fetched(batches, [(7, 0)])
    both(answer, 0, ANY, monkeypatch)
    monkeypatch.setattr(fetched_records, "holds_few", lambda _: True)
    records, after = records_of(answer, 0, chunk_bytes=1 << 20)
    assert ([read[0] for some in records for read in some], after) == ([1, 3], 4)


def test_few_are_read_one_by_one() -> None:
    def kind(count: int) -> type:
        batches = [encode_batch([Record(0, 5, b"k", b"v")], base_offset=number) for number in range(count)]
        (records,) = records_of(fetched(batches), 0, chunk_bytes=1 << 20)[0]
        assert len(records) == count
        assert records.last_offset == count - 1
        return type(records)

    assert kind(FEW - 1) is PlainRecords
    assert kind(FEW) is not PlainRecords
    assert records_of(fetched([]), 3, chunk_bytes=1 << 20)[1] == 3


def test_what_is_cut_off_or_damaged_is_refused_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = encode_batch([Record(0, 5, b"k", b"v")])
    both(fetched([batch, batch[:-1]]), 0, ANY, monkeypatch)
    batch[-1] ^= 1
    for few in (True, False):
        monkeypatch.setattr(fetched_records, "holds_few", lambda _, few=few: few)
        with pytest.raises(KafkaError):
            list(records_of(fetched([batch]), 0, chunk_bytes=1 << 20)[0])


Sent = tuple[bytes | None, bytes | None, int, Headers, int | None]
SENT = st.lists(
    st.tuples(
        BYTES,
        BYTES,
        st.integers(0, 1 << 41),
        st.lists(st.tuples(st.text(max_size=3), BYTES), max_size=2).map(tuple),
        st.one_of(st.none(), st.integers(0, 2)),
    ),
    min_size=1,
    max_size=12,
)


def batches_of(
    sent: Sequence[Sent], turn: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[object, list[Record], tuple[int, int, int]]]:
    monkeypatch.setattr(record_collector, "FEW", few)
    collector = RecordCollector()
    for key, value, timestamp, headers, partition in sent:
        collector.send("t", key, value, timestamp, headers, partition)
    found = []
    for where, batch in collector.batches(lambda _: 3, turn, True):
        header = read_header(batch)
        about = (header.attributes, header.base_timestamp, header.max_timestamp)
        found.append((where, list(iter_records(batch, check_crc=False)), about))
    return found


@settings(max_examples=examples(200), deadline=None)
@given(sent=SENT, turn=st.integers(0, 5))
def test_the_same_is_written(sent: list[Sent], turn: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert batches_of(sent, turn, 100, monkeypatch) == batches_of(sent, turn, 0, monkeypatch)


def test_changelogs_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for few in (100, 0):
        monkeypatch.setattr(record_collector, "FEW", few)
        collector = RecordCollector()
        collector.send_changes("c", [(b"a", b"1", 5), (b"b", None, -1)], 2)
        ((where, batch),) = collector.batches(lambda _: 3, 0, False)
        found.append((where, list(iter_records(batch, check_crc=False))))
    assert found[0] == found[1]
    assert [record.timestamp for record in found[0][1]] == [5, 0]


def test_large_ones_are_cut_into_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the loops are being compiled, any number goes this way."""
    monkeypatch.setattr(record_collector, "loops_are_there", lambda: False)
    collector = RecordCollector()
    for number in range(100):
        collector.send("t", None, bytes(20_000), number, (), None)
    found = list(collector.batches(lambda _: 3, 1, True))
    assert max(len(batch) for _, batch in found) <= 512 * 1024
    assert {where.partition for where, _ in found} == {0, 1, 2}
    records = [record for _, batch in found for record in iter_records(batch)]
    assert sorted(record.timestamp for record in records) == list(range(100))


def test_a_partition_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for few in (100, 0):
        monkeypatch.setattr(record_collector, "FEW", few)
        collector = RecordCollector()
        collector.send("t", b"k", b"v", 1, (), 3)
        with pytest.raises(KafkaError) as raised:
            list(collector.batches(lambda _: 3, 0, True))
        assert raised.value.code is ErrorCode.unknown_topic_or_partition


def test_nobody_waits_for_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetched_records, "loops_are_there", lambda: False)
    batch = encode_batch([Record(0, 5, b"k", b"v")] * (4 * FEW))
    found = list(records_of(fetched([batch]), 0, chunk_bytes=1 << 20)[0])
    assert [type(records) for records in found] == [PlainRecords]
    assert plain_records.loops_are_there()
