"""What the log accepts, what it refuses and with which error, and what it stores."""

from __future__ import annotations

import random
import struct

import pytest

from millstream.settings.log_config import LogConfig
from millstream.storage.log import PartitionLog
from millstream.wire.batch import LOG_APPEND_TIME, crc_of, read_header
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.record_walk import newest_timestamp
from millstream.wire.records import Record, encode_batch, iter_records

from .batches import NOW, batch, contents, fill, headers, real, sealed, small
from .conftest import OpenLog


def refused(log: PartitionLog, data: memoryview | bytes, code: ErrorCode, now: int = NOW) -> str:
    size, end = log.size, log.end_offset
    with pytest.raises(KafkaError) as raised:
        log.append_leader(memoryview(data), 0, now)
    assert raised.value.code is code
    assert (log.size, log.end_offset) == (size, end), "nothing is written on error"
    return raised.value.message


def changed(at: int, layout: str, value: int, keep_crc: bool = False, **fields: int) -> memoryview:
    """A batch with one header field overwritten."""
    data = bytearray(batch(**fields))
    struct.pack_into(layout, data, at, value)
    return memoryview(data) if keep_crc else sealed(data)


def test_offsets_and_epoch_are_stamped_and_nothing_else_changes(open_log: OpenLog) -> None:
    log = open_log()
    first, second = batch(3), batch(2, size=200)
    before = bytes(second)
    assert log.append_leader(first, 4, NOW) == (0, 2, -1, 100, False)
    assert log.append_leader(second, 5, NOW) == (3, 4, -1, 200, False)
    assert (log.start_offset, log.end_offset, log.size) == (0, 5, 300)
    stored = [data for _, data in contents(log)]
    assert [(read_header(data).base_offset, read_header(data).leader_epoch) for data in stored] == [
        (0, 4),
        (3, 5),
    ]
    assert stored[1][16:] == before[16:]


def test_the_high_watermark_is_moved_by_the_caller_only(open_log: OpenLog) -> None:
    log = open_log()
    log.append_leader(batch(3), 0, NOW)
    assert log.high_watermark == 0
    log.set_high_watermark(99)
    assert log.high_watermark == 3
    log.set_high_watermark(1)
    assert log.high_watermark == 3


def test_a_read_only_buffer_is_copied(open_log: OpenLog) -> None:
    log = open_log()
    data = bytes(batch(2))
    assert log.append_leader(memoryview(data), 1, NOW).last_offset == 1
    assert read_header(data).base_offset == 0
    assert headers(log)[0].leader_epoch == 1


@pytest.mark.parametrize("count", [2, 5])
def test_several_batches_in_one_append(open_log: OpenLog, count: int) -> None:
    log = open_log()
    fill(log, 1)
    data = b"".join(bytes(batch(2)) for _ in range(count))
    assert log.append_leader(memoryview(bytearray(data)), 3, NOW) == (1, 2 * count, -1, len(data), False)
    assert [header.base_offset for header in headers(log)] == [0, *range(1, 2 * count, 2)]


def test_one_bad_batch_of_several_refuses_all(open_log: OpenLog) -> None:
    log = open_log()
    data = bytearray(bytes(batch()) + bytes(batch()))
    data[-1] ^= 1
    refused(log, data, ErrorCode.corrupt_message)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", ErrorCode.invalid_record),
        (b"\0" * 60, ErrorCode.corrupt_message),
        (bytes(batch())[:-1], ErrorCode.corrupt_message),
        (bytes(batch()) + b"\0" * 20, ErrorCode.corrupt_message),
        (changed(16, ">b", 1, True), ErrorCode.invalid_record),
        (changed(16, ">b", 0, True), ErrorCode.invalid_record),
        (changed(16, ">b", 3, True), ErrorCode.corrupt_message),
        (changed(8, ">i", -1, True), ErrorCode.corrupt_message),
        (changed(8, ">i", 40, True), ErrorCode.corrupt_message),
        (changed(8, ">i", 1 << 30, True), ErrorCode.corrupt_message),
        (changed(0, ">q", 7, True), ErrorCode.invalid_record),
        (changed(17, ">I", 1234, True), ErrorCode.corrupt_message),
        (changed(90, ">B", 1, True), ErrorCode.corrupt_message),
        (changed(23, ">i", -1), ErrorCode.invalid_record),
        (changed(23, ">i", 5), ErrorCode.invalid_record),
        (changed(57, ">i", 0), ErrorCode.invalid_record),
        (changed(57, ">i", -3), ErrorCode.invalid_record),
        (changed(57, ">i", 2), ErrorCode.invalid_record),
        (changed(21, ">h", 0x20), ErrorCode.invalid_record),
        (changed(21, ">h", LOG_APPEND_TIME), ErrorCode.invalid_timestamp),
        (changed(21, ">h", 5), ErrorCode.unsupported_compression_type),
        (changed(35, ">q", NOW + 3_600_001), ErrorCode.invalid_timestamp),
        (batch(producer=5, sequence=-1), ErrorCode.invalid_record),
        (batch(size=1_048_589), ErrorCode.message_too_large),
    ],
)
def test_refusals(open_log: OpenLog, data: memoryview | bytes, code: ErrorCode) -> None:
    log = open_log()
    fill(log, 2)
    assert refused(log, data, code)
    fill(log, 1)
    assert len(headers(log)) == 3


def test_size_limits(open_log: OpenLog) -> None:
    log = open_log(small(max_message_bytes=500))
    log.append_leader(batch(size=500), 0, NOW)
    refused(log, batch(size=501), ErrorCode.message_too_large)
    log.config = small(max_message_bytes=5000)
    assert "segment.bytes" in refused(log, batch(size=1001), ErrorCode.record_list_too_large)
    log.append_leader(batch(size=1000), 0, NOW)


def test_timestamps_must_be_near(open_log: OpenLog) -> None:
    log = open_log(LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500))
    refused(log, batch(timestamp=NOW + 501), ErrorCode.invalid_timestamp)
    refused(log, batch(timestamp=NOW - 1001), ErrorCode.invalid_timestamp)
    for good in (NOW + 500, NOW - 1000, -1):
        log.append_leader(batch(timestamp=good), 0, NOW)
    assert len(headers(log)) == 3


def claiming(newest: int, times: list[int], codec: int = 0) -> memoryview:
    """A batch of records with these times whose header says that the newest of them is another."""
    data = encode_batch([Record(0, when, b"k", b"v") for when in times], codec)
    struct.pack_into(">q", data, 35, newest)
    return sealed(data)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("newest", [-1, 0, NOW - 1])
def test_the_newest_timestamp_is_found_where_the_client_did_not_fill_it_in(
    open_log: OpenLog, newest: int, codec: int
) -> None:
    log = open_log()
    several = b"".join(claiming(newest, times, codec) for times in ([NOW, NOW + 70, NOW + 5], [NOW, NOW]))
    log.append_leader(claiming(newest, [NOW], codec), 0, NOW)
    log.append_leader(memoryview(several), 0, NOW)
    assert [header.max_timestamp for header in headers(log)] == [NOW, NOW + 70, NOW]  # and checksums fit
    log.set_high_watermark(log.end_offset)
    found = log.offset_for_timestamp(NOW + 1)
    assert found is not None
    assert found[:2] == (NOW + 70, 2)
    assert log.active.max_timestamp == NOW + 70, "what retention goes by"


def test_the_newest_timestamp_whatever_the_size_of_the_numbers() -> None:
    chance = random.Random(3)
    for _ in range(300):
        records = [
            Record(
                0,
                NOW + chance.choice([0, 1, -1, 63, 64, -64, -65, 9000, -9000, 1 << 40, -(1 << 40)]),
                None,
                b"v" * chance.choice([0, 50, 70, 8200, 17_000]),
            )
            for _ in range(chance.randint(1, 6))
        ]
        data = encode_batch(records)
        assert newest_timestamp(data) == max(record.timestamp for record in records)
        for size in (0x01, 0x00, 0x0A, 0x7E):  # of the first record: negative, none, too small, wrong
            if data[61] != size:
                with pytest.raises(KafkaError):
                    newest_timestamp(data[:61] + bytes([size]) + data[62:])


def test_a_true_newest_timestamp_before_the_first_is_kept(open_log: OpenLog) -> None:
    """Times relative to a base that no record has."""
    data = bytearray(real([b"v"], timestamp=NOW))
    struct.pack_into(">qq", data, 27, NOW + 1, NOW)
    data[63] = 1  # of the only record: 1 ms before the base
    log = open_log()
    log.append_leader(sealed(data), 0, NOW)
    assert [header.max_timestamp for header in headers(log)] == [NOW]


def test_a_newest_timestamp_that_nobody_filled_in_is_judged_as_it_is(open_log: OpenLog) -> None:
    log = open_log(LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500))
    refused(log, claiming(-1, [NOW, NOW + 501]), ErrorCode.invalid_timestamp)
    refused(log, claiming(0, [NOW - 1001, NOW]), ErrorCode.invalid_timestamp)
    log.append_leader(claiming(0, [NOW - 1000, NOW + 500]), 0, NOW)
    broken = bytearray(batch(2))
    struct.pack_into(">q", broken, 35, -1)
    refused(log, sealed(broken), ErrorCode.invalid_record)
    refused(log, claiming(-1, [1 << 62, NOW]), ErrorCode.invalid_timestamp)


def test_log_append_time(open_log: OpenLog) -> None:
    log = open_log(LogConfig(message_timestamp_type="LogAppendTime"))
    appended = log.append_leader(real([b"a", b"b"], timestamp=5), 2, NOW)
    assert appended == (0, 1, NOW, appended.size, False)
    ((header, data),) = contents(log)
    assert header.attributes & LOG_APPEND_TIME
    assert (header.max_timestamp, header.leader_epoch) == (NOW, 2)
    assert [record.timestamp for record in iter_records(data)] == [NOW, NOW]


def test_a_changed_setting_takes_effect_at_once(open_log: OpenLog) -> None:
    log = open_log()
    assert log.append_leader(batch(), 0, NOW).append_time == -1
    log.config = LogConfig(message_timestamp_type="LogAppendTime", max_message_bytes=200)
    assert log.append_leader(batch(), 0, NOW).append_time == NOW
    refused(log, batch(size=201), ErrorCode.message_too_large)


@pytest.mark.parametrize("name", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("codec", range(5))
def test_recompression(open_log: OpenLog, name: str, codec: int) -> None:
    log = open_log(LogConfig(compression_type=name))
    wanted = ["uncompressed", "gzip", "snappy", "lz4", "zstd"].index(name)
    values = [b"value" * 20, None, b""]
    log.append_leader(real(values, codec=codec, producer_id=3, producer_epoch=1, base_sequence=0), 6, NOW)
    log.append_leader(real(values, codec=codec, producer_id=3, producer_epoch=1, base_sequence=3), 6, NOW)
    for number, (header, data) in enumerate(contents(log)):
        assert (header.codec, header.leader_epoch, header.base_sequence) == (wanted, 6, number * 3)
        assert [record.value for record in iter_records(data)] == values


def test_recompression_looks_into_the_batch(open_log: OpenLog) -> None:
    log = open_log(LogConfig(compression_type="zstd"))
    with pytest.raises(KafkaError) as raised:
        log.append_leader(batch(3), 0, NOW)
    assert raised.value.code in (ErrorCode.invalid_record, ErrorCode.corrupt_message)
    assert log.size == 0


def test_recompressed_batches_must_fit_too(open_log: OpenLog) -> None:
    log = open_log(LogConfig(compression_type="uncompressed", max_message_bytes=1000))
    refused(log, real([b"a" * 5000], codec=1), ErrorCode.message_too_large)


def test_compacted_topics_need_keys(open_log: OpenLog) -> None:
    log = open_log(LogConfig(cleanup_policy=frozenset({"compact"})))
    for codec in range(5):
        refused(log, real([b"v"], key=None, codec=codec), ErrorCode.invalid_record)
        log.append_leader(real([b"v", None], key=b"", codec=codec), 0, NOW)
    assert log.end_offset == 10


def test_a_closed_log_refuses(open_log: OpenLog) -> None:
    log = open_log()
    log.close()
    refused(log, batch(), ErrorCode.kafka_storage_error)


def test_follower_stores_as_sent(open_log: OpenLog, tmp_path) -> None:
    leader = PartitionLog.open(tmp_path / "leader-0", small())
    for number in range(30):
        leader.append_leader(
            batch(2, producer=9, sequence=2 * number, timestamp=NOW + number), number // 10, NOW
        )
    follower = open_log(small())
    while follower.end_offset < leader.end_offset:
        found = leader.read(follower.end_offset, 450, "end")
        cut_off = found.read() + bytes(batch())[:30]  # a batch that did not fit is ignored
        assert follower.append_follower(memoryview(cut_off)) == found.next_offset
    assert list(contents(follower)) == list(contents(leader))
    assert follower.describe_producers() == leader.describe_producers()
    assert (follower.epochs.epochs, follower.epochs.starts) == (leader.epochs.epochs, leader.epochs.starts)
    leader.close()


def test_follower_refuses_nonsense(open_log: OpenLog) -> None:
    log = open_log()
    fill(log, 3)
    early = bytearray(batch())
    struct.pack_into(">q", early, 0, 2)
    damaged = bytearray(batch())
    struct.pack_into(">q", damaged, 0, 3)
    damaged[80] ^= 1
    no_batch = bytearray(100)
    for data, code in (
        (early, "invalid_record"),
        (damaged, "corrupt_message"),
        (no_batch, "corrupt_message"),
    ):
        with pytest.raises(KafkaError) as raised:
            log.append_follower(memoryview(data))
        assert raised.value.code.name == code
    later = bytearray(batch())
    struct.pack_into(">q", later, 0, 10)  # a gap that compaction left
    assert log.append_follower(memoryview(later)) == 11
    assert log.append_follower(memoryview(b"")) == 11
    log.set_high_watermark(11)
    assert read_header(log.read(5, 1000).read()).base_offset == 10


@pytest.mark.parametrize("filled", [0, 3])
@pytest.mark.parametrize("together", [False, True])
def test_a_follower_begins_a_segment_behind_a_gap_that_no_index_could_express(
    open_log: OpenLog, filled: int, together: bool
) -> None:
    """Of a compacted log that is very long; indexes have 31 bits for the distance from the segment's base."""
    log = open_log()
    fill(log, filled)
    far = [(1 << 32) + 5, (1 << 32) + 6, (1 << 40) + 7]
    parts = []
    for offset in far:
        data = bytearray(batch())
        struct.pack_into(">q", data, 0, offset)
        parts.append(bytes(data))
    for sent in [b"".join(parts)] if together else parts:
        log.append_follower(memoryview(sent))
    expected = [*range(filled), *far]
    for _ in range(2):
        assert [header.base_offset for header, _ in contents(log)] == expected
        assert log.bases == [*([0] if filled else []), far[0], far[2]]
        assert log.start_offset == expected[0]
        assert log.end_offset == far[-1] + 1
        log.set_high_watermark(log.end_offset)
        assert read_header(log.read(far[0] - 1000 if filled else far[0], 1000).read()).base_offset == far[0]
        assert read_header(log.read(far[1] + 1, 1000).read()).base_offset == far[2]
        log.close()
        log = open_log()
    for offset in (-1, (1 << 63) - 1):
        data = bytearray(batch())
        struct.pack_into(">q", data, 0, offset)
        with pytest.raises(KafkaError, match="the leader sent offset"):
            log.append_follower(memoryview(data))


def test_checksum_covers_what_is_stored(open_log: OpenLog) -> None:
    log = open_log(LogConfig(message_timestamp_type="LogAppendTime", compression_type="gzip"))
    log.append_leader(real([b"x"] * 10), 1, NOW)
    ((header, data),) = contents(log)
    assert crc_of(data) == header.crc
