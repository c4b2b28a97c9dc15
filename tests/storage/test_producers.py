"""Idempotent producers: each batch once, in order; and what is remembered about them."""

from __future__ import annotations

import pytest

from millstream.settings.log_config import LogConfig
from millstream.storage.log import PartitionLog
from millstream.storage.producers import Producer, ProducerTable, decode_snapshot
from millstream.wire.batch import MAX_SEQUENCE, TRANSACTIONAL
from millstream.wire.errors import ErrorCode, KafkaError

from .batches import NOW, batch, fill, headers, real, small
from .conftest import OpenLog


def send(
    log: PartitionLog, sequence: int, records: int = 1, producer: int = 7, epoch: int = 0, now: int = NOW
):
    return log.append_leader(batch(records, producer=producer, epoch=epoch, sequence=sequence), 0, now)


def refused(log: PartitionLog, code: ErrorCode, *args, **kwargs) -> None:
    end = log.end_offset
    with pytest.raises(KafkaError) as raised:
        send(log, *args, **kwargs)
    assert raised.value.code is code
    assert log.end_offset == end


def test_a_retry_is_acknowledged_with_the_first_offsets(open_log: OpenLog) -> None:
    log = open_log()
    fill(log, 3)
    firsts = [send(log, sequence, 2) for sequence in range(0, 12, 2)]
    for number in range(1, 6):
        again = send(log, number * 2, 2)
        assert again.duplicate
        assert again[:2] == firsts[number][:2]
    assert len(headers(log)) == 9
    refused(log, ErrorCode.out_of_order_sequence_number, 0, 2)  # the sixth from the end is forgotten
    assert not send(log, 12).duplicate


def test_a_retry_must_have_the_same_range(open_log: OpenLog) -> None:
    log = open_log()
    send(log, 0, 5)
    refused(log, ErrorCode.out_of_order_sequence_number, 0, 4)
    refused(log, ErrorCode.out_of_order_sequence_number, 0, 6)
    refused(log, ErrorCode.out_of_order_sequence_number, 3, 2)


def test_a_gap_is_refused(open_log: OpenLog) -> None:
    log = open_log()
    send(log, 0)
    refused(log, ErrorCode.out_of_order_sequence_number, 2)
    send(log, 1)
    send(log, 2)


def test_an_unknown_producer_may_begin_anywhere(open_log: OpenLog) -> None:
    log = open_log()
    send(log, 41, 2)
    refused(log, ErrorCode.out_of_order_sequence_number, 41)
    assert send(log, 43).base_offset == 2


def test_epochs(open_log: OpenLog) -> None:
    log = open_log()
    send(log, 0, epoch=3)
    refused(log, ErrorCode.invalid_producer_epoch, 1, epoch=2)
    refused(log, ErrorCode.out_of_order_sequence_number, 1, epoch=4)
    send(log, 0, epoch=4)
    refused(log, ErrorCode.invalid_producer_epoch, 1, epoch=3)
    assert send(log, 0, epoch=4).duplicate
    send(log, 1, epoch=4)


def test_out_of_order_comes_before_out_of_the_transaction(open_log: OpenLog) -> None:
    log = open_log()
    log.append_leader(batch(producer=7, sequence=0, attributes=TRANSACTIONAL), 0, NOW)
    refused(log, ErrorCode.invalid_txn_state, 1)
    refused(log, ErrorCode.out_of_order_sequence_number, 2)
    refused(log, ErrorCode.invalid_txn_state, 0, epoch=1)
    refused(log, ErrorCode.out_of_order_sequence_number, 1, epoch=1)


def test_sequences_wrap(open_log: OpenLog) -> None:
    log = open_log()
    send(log, MAX_SEQUENCE - 2, 2)
    over = send(log, MAX_SEQUENCE, 3)  # MAX, 0, 1
    assert log.producers.by_id[7].recent[-1][:2] == (MAX_SEQUENCE, 1)
    again = send(log, MAX_SEQUENCE, 3)
    assert again.duplicate
    assert again[:2] == over[:2]
    refused(log, ErrorCode.out_of_order_sequence_number, 1)
    send(log, 2)


def test_wrap_exactly_at_the_end(open_log: OpenLog) -> None:
    log = open_log()
    send(log, MAX_SEQUENCE)
    send(log, 0)
    assert log.end_offset == 2


def test_duplicates_tell_the_append_time(open_log: OpenLog) -> None:
    log = open_log(LogConfig(message_timestamp_type="LogAppendTime"))
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    log.append_leader(real([b"a"], **fields), 0, NOW)
    again = log.append_leader(real([b"a"], **fields), 0, NOW + 50)
    assert (again.duplicate, again.append_time) == (True, NOW)


def test_several_batches_of_one_producer_in_one_append(open_log: OpenLog) -> None:
    log = open_log()
    both = bytes(batch(2, producer=7, sequence=0)) + bytes(batch(3, producer=7, sequence=2))
    log.append_leader(memoryview(bytearray(both)), 0, NOW)
    assert send(log, 2, 3).duplicate
    gap = bytes(batch(2, producer=7, sequence=5)) + bytes(batch(3, producer=7, sequence=8))
    with pytest.raises(KafkaError) as raised:
        log.append_leader(memoryview(bytearray(gap)), 0, NOW)
    assert raised.value.code is ErrorCode.out_of_order_sequence_number
    assert log.end_offset == 5
    assert log.producers.by_id[7].next_sequence == 5


def test_interleaved_producers(open_log: OpenLog) -> None:
    log = open_log()
    for sequence in range(10):
        for producer in range(5):
            assert send(log, sequence, producer=producer).base_offset == sequence * 5 + producer


def test_expiry(open_log: OpenLog) -> None:
    log = open_log(expiration_ms=1000)
    send(log, 0, now=NOW)
    send(log, 0, producer=8, now=NOW + 900)
    assert log.expire_producers(NOW + 999) == 0
    assert log.expire_producers(NOW + 1000) == 1
    assert list(log.producers.by_id) == [8]
    send(log, 77, now=NOW + 1100)  # known no more, so any sequence will do


def test_old_timestamps_do_not_expire_a_busy_producer(open_log: OpenLog) -> None:
    log = open_log(expiration_ms=1000)
    log.append_leader(batch(producer=7, sequence=0, timestamp=5), 0, NOW)
    assert log.expire_producers(NOW + 500) == 0
    log.append_leader(batch(producer=7, sequence=1, timestamp=5), 0, NOW)


def test_state_survives_a_clean_stop(open_log: OpenLog) -> None:
    log = open_log(small())
    for sequence in range(0, 30, 2):
        send(log, sequence, 2)
    send(log, 5, producer=9, epoch=4)
    before = log.describe_producers()
    log.close()
    log = open_log(small(), clean=True)
    assert log.describe_producers() == before
    assert send(log, 28, 2).duplicate
    refused(log, ErrorCode.out_of_order_sequence_number, 31)
    refused(log, ErrorCode.invalid_producer_epoch, 6, producer=9, epoch=3)
    send(log, 30)


def test_state_survives_a_crash(open_log: OpenLog) -> None:
    log = open_log(small())
    for sequence in range(0, 60, 2):
        send(log, sequence, 2)
    log = open_log(small())
    for sequence in range(50, 60, 2):  # the last five batches, not only the last one
        assert send(log, sequence, 2).duplicate
    send(log, 60)


def test_snapshot_bytes() -> None:
    """The layout, spelled out. (That Kafka reads it is tested with Kafka's own tool.)"""
    table = ProducerTable("t-0")
    producer = table.by_id[5] = Producer(5, 2)
    producer.recent = [(7, 9, 100, NOW, 2)]
    producer.timestamp, producer.coordinator_epoch, producer.txn_first_offset = NOW, 3, 98
    data = table.encode()
    assert data[:2] == b"\0\1"
    assert data[6:10] == b"\0\0\0\1"
    body = data[10:]
    assert len(body) == 46
    assert body == (
        (5).to_bytes(8, "big") + (2).to_bytes(2, "big") + (9).to_bytes(4, "big") + (100).to_bytes(8, "big")
        + (2).to_bytes(4, "big") + NOW.to_bytes(8, "big") + (3).to_bytes(4, "big") + (98).to_bytes(8, "big")
    )  # fmt: skip
    (again,) = decode_snapshot(data)
    assert again.recent == producer.recent
    assert (again.next_sequence, again.coordinator_epoch, again.txn_first_offset) == (10, 3, 98)


def test_damaged_snapshots_are_recognised() -> None:
    table = ProducerTable("t-0")
    for number in range(3):
        table.by_id[number] = Producer(number, 0)
    data = table.encode()
    for at in range(len(data)):
        broken = bytearray(data)
        broken[at] ^= 0x40
        with pytest.raises(ValueError):
            list(decode_snapshot(bytes(broken)))
        with pytest.raises(ValueError):
            list(decode_snapshot(data[:at]))
    with pytest.raises(ValueError):
        list(decode_snapshot(data + b"\0"))


def test_snapshots_are_taken_at_each_roll_and_at_the_end(open_log: OpenLog, folder) -> None:
    log = open_log(small())
    fill(log, 25)
    assert log.snapshots == [10, 20]
    log.close()
    assert sorted(folder.glob("*.snapshot")) == [
        folder / f"{offset:020d}.snapshot" for offset in (10, 20, 25)
    ]
    log = open_log(small(), clean=True)
    fill(log, 1)
    log.close()
    names = [path.name for path in sorted(folder.glob("*.snapshot"))]
    assert names == [f"{offset:020d}.snapshot" for offset in (10, 20, 26)], (
        "only the newest beside those of segments"
    )


def test_a_damaged_snapshot_is_replaced_by_replay(
    open_log: OpenLog, folder, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(small())
    for sequence in range(40):
        send(log, sequence)
    before = log.describe_producers()
    log.close()
    newest = sorted(folder.glob("*.snapshot"))[-1]
    newest.write_bytes(b"\0\1 rubbish")
    log = open_log(small(), clean=True)
    assert log.describe_producers() == before
    assert "snapshot" in caplog.text
    for path in folder.glob("*.snapshot"):
        path.unlink()
    log = open_log(small(), clean=True)
    assert log.describe_producers() == before
