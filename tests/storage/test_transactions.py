"""Open transactions, markers, the last stable offset, and who was aborted."""

from __future__ import annotations

import pytest

from millstream.storage import flush
from millstream.storage.log import PartitionLog
from millstream.storage.producers import parse_marker
from millstream.wire.batch import CONTROL, TRANSACTIONAL, read_header
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import encode_marker, iter_records

from .batches import NOW, batch, contents, fill, headers, small
from .conftest import OpenLog


class Clients:
    """Producers that keep count of their sequences."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.sequences: dict[int, int] = {}

    def write(self, producer: int, records: int = 1, epoch: int = 0) -> int:
        sequence = self.sequences.get(producer, 0)
        data = batch(records, producer=producer, epoch=epoch, sequence=sequence, attributes=TRANSACTIONAL)
        self.sequences[producer] = sequence + records
        base = self.log.append_leader(data, 0, NOW).base_offset
        self.log.set_high_watermark(self.log.end_offset)
        return base

    def end(self, producer: int, commit: bool, epoch: int = 0, coordinator: int = 0) -> int:
        base = self.log.append_marker(producer, epoch, commit, coordinator, 0, NOW).base_offset
        self.log.set_high_watermark(self.log.end_offset)
        return base


def test_last_stable_offset_follows_the_oldest_open_transaction(open_log: OpenLog) -> None:
    log = open_log()
    clients = Clients(log)
    fill(log, 2)
    assert log.last_stable_offset == 2
    assert clients.write(1, 3) == 2
    assert clients.write(2, 2) == 5
    assert log.last_stable_offset == 2
    assert clients.write(1) == 7
    assert clients.end(1, True) == 8
    assert log.last_stable_offset == 5
    assert clients.end(2, False) == 9
    assert log.last_stable_offset == log.end_offset == 10
    assert headers(log, "lso") == headers(log, "end")


async def test_the_first_abort_makes_a_file_whose_name_is_synced(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the transaction index, aborted data would look committed after a power failure."""
    log = open_log()
    clients = Clients(log)
    clients.write(1)
    await log.flush()
    synced: list[str] = []
    monkeypatch.setattr(flush, "sync_path", synced.append)
    clients.end(1, commit=False)
    await log.flush()
    assert log.folder in synced
    synced.clear()
    clients.write(1)
    clients.end(1, commit=False)
    await log.flush()
    assert log.folder not in synced, "the name is durable by now"


def test_read_committed_stops_at_the_last_stable_offset(open_log: OpenLog) -> None:
    log = open_log(small())
    clients = Clients(log)
    fill(log, 12)
    clients.write(1)
    fill(log, 12)
    assert len(headers(log, "hw")) == 25
    assert [header.base_offset for header in headers(log, "lso")] == list(range(12))
    clients.end(1, True)
    assert len(headers(log, "lso")) == 26


def test_a_marker_counts_only_below_the_high_watermark(open_log: OpenLog) -> None:
    log = open_log()
    clients = Clients(log)
    clients.write(1, 2)
    log.append_marker(1, 0, True, 0, 0, NOW)
    assert (log.high_watermark, log.end_offset) == (2, 3)
    assert log.last_stable_offset == 0, "the end of the transaction is not replicated yet"
    log.set_high_watermark(3)
    assert log.last_stable_offset == 3


def test_aborted_transactions(open_log: OpenLog) -> None:
    log = open_log(small(segment_bytes=600))
    clients = Clients(log)
    for producer in range(1, 9):
        clients.write(producer, 2)
        clients.write(producer, 2)
        clients.end(producer, commit=producer % 2 == 0)
    assert len(log.segments) > 3
    every = log.aborted_transactions(0, log.end_offset)
    assert [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in every] == [
        (1, 0, 4), (3, 10, 14), (5, 20, 24), (7, 30, 34),
    ]  # fmt: skip
    assert [entry.producer_id for entry in log.aborted_transactions(12, 13)] == [3]
    assert [entry.producer_id for entry in log.aborted_transactions(14, 21)] == [3, 5]
    assert log.aborted_transactions(5, 10) == []
    assert log.aborted_transactions(35, 40) == []
    found = log.read(10, 150, "lso")
    assert [entry.producer_id for entry in log.aborted_transactions(10, found)] == [3]


def test_last_stable_offset_in_the_index_is_the_next_open_one(open_log: OpenLog) -> None:
    log = open_log()
    clients = Clients(log)
    clients.write(1)
    clients.write(2)
    clients.end(1, False)
    clients.end(2, False)
    assert [entry.last_stable_offset for entry in log.aborted_transactions(0, 9)] == [1, 4]


def test_a_marker_without_data_changes_nothing(open_log: OpenLog, folder) -> None:
    log = open_log()
    clients = Clients(log)
    clients.end(5, False)
    assert log.aborted_transactions(0, 10) == []
    assert not list(folder.glob("*.txnindex"))
    assert log.last_stable_offset == 1


def test_fencing(open_log: OpenLog) -> None:
    log = open_log()
    clients = Clients(log)
    clients.write(1, epoch=3)
    for epoch, coordinator, code in (
        (2, 5, ErrorCode.invalid_producer_epoch),
        (3, 4, ErrorCode.transaction_coordinator_fenced),
    ):
        if coordinator == 4:
            clients.end(1, True, epoch=3, coordinator=5)
        with pytest.raises(KafkaError) as raised:
            log.append_marker(1, epoch, True, coordinator, 0, NOW)
        assert raised.value.code is code


def test_a_marker_with_a_new_epoch_fences_the_old_one_and_starts_sequences_again(open_log: OpenLog) -> None:
    log = open_log()
    clients = Clients(log)
    clients.write(1, 4)
    clients.end(1, True, epoch=1)
    with pytest.raises(KafkaError) as raised:
        clients.write(1)
    assert raised.value.code is ErrorCode.invalid_producer_epoch
    clients.sequences[1] = 1
    with pytest.raises(KafkaError) as raised:
        clients.write(1, epoch=1)
    assert raised.value.code is ErrorCode.out_of_order_sequence_number
    clients.sequences[1] = 0
    clients.write(1, epoch=1)


def test_a_plain_write_inside_a_transaction_is_refused(open_log: OpenLog) -> None:
    log = open_log()
    Clients(log).write(1)
    with pytest.raises(KafkaError) as raised:
        log.append_leader(batch(producer=1, sequence=1), 0, NOW)
    assert raised.value.code is ErrorCode.invalid_txn_state


def test_a_retry_inside_a_transaction(open_log: OpenLog) -> None:
    log = open_log()
    Clients(log).write(1)
    again = log.append_leader(batch(producer=1, sequence=0, attributes=TRANSACTIONAL), 0, NOW)
    assert again.duplicate
    assert len(headers(log)) == 1


def test_open_transactions_do_not_expire(open_log: OpenLog) -> None:
    log = open_log(expiration_ms=10)
    clients = Clients(log)
    clients.write(1)
    assert log.expire_producers(NOW + 1000) == 0
    clients.end(1, True)
    assert log.expire_producers(NOW + 1000) == 1


def test_markers_are_records_that_clients_understand(open_log: OpenLog) -> None:
    log = open_log()
    clients = Clients(log)
    clients.write(1)
    clients.end(1, False, coordinator=77)
    header, data = list(contents(log))[1]
    assert header.attributes == TRANSACTIONAL | CONTROL
    assert (header.producer_id, header.base_sequence, header.record_count) == (1, -1, 1)
    (record,) = iter_records(data)
    assert (record.key, record.value) == (b"\0\0\0\0", b"\0\0\0\0\0\x4d")
    assert parse_marker(data) == (False, 77)
    marker = encode_marker(True, producer_id=1, producer_epoch=2, timestamp=NOW, coordinator_epoch=8)
    assert parse_marker(marker) == (True, 8)
    assert parse_marker(data[:65]) is None
    assert read_header(marker).producer_epoch == 2


@pytest.mark.parametrize("clean", [True, False])
def test_everything_survives_a_restart(open_log: OpenLog, clean: bool) -> None:
    log = open_log(small(segment_bytes=500))
    clients = Clients(log)
    for producer in range(1, 12):
        clients.write(producer, 2)
        if producer % 3:
            clients.end(producer, producer % 3 == 1, coordinator=producer)
    expected = (log.last_stable_offset, log.aborted_transactions(0, 1000), log.describe_producers())
    end = log.end_offset
    if clean:
        log.close()
    log = open_log(small(segment_bytes=500), clean=clean, high_watermark=end)
    assert (log.last_stable_offset, log.aborted_transactions(0, 1000), log.describe_producers()) == expected
    log.append_marker(3, 0, False, 99, 0, NOW)
    log.set_high_watermark(log.end_offset)
    assert log.last_stable_offset == 14


def test_a_damaged_transaction_index_is_rebuilt_by_recovery(open_log: OpenLog, folder) -> None:
    log = open_log()
    clients = Clients(log)
    for producer in range(5):
        clients.write(producer)
        clients.end(producer, False)
    before = log.aborted_transactions(0, 100)
    (path,) = folder.glob("*.txnindex")
    path.write_bytes(path.read_bytes()[:50])
    assert open_log().aborted_transactions(0, 100) == before


@pytest.mark.parametrize("clean", [True, False])
def test_what_a_coordinator_writes_in_a_transaction_has_no_sequence(open_log: OpenLog, clean: bool) -> None:
    log = open_log(small())
    for _ in range(15):
        log.append_trusted(batch(3, producer=6, epoch=2, attributes=TRANSACTIONAL), 0, NOW)
    with pytest.raises(KafkaError) as raised:
        log.append_trusted(batch(producer=6, epoch=1, attributes=TRANSACTIONAL), 0, NOW)
    assert raised.value.code is ErrorCode.invalid_producer_epoch
    log.set_high_watermark(log.end_offset)
    assert log.last_stable_offset == 0
    before = (log.describe_producers(), log.producers.by_id[6].recent)
    if clean:
        log.close()
    log = open_log(small(), clean=clean, high_watermark=45)
    assert (log.describe_producers(), log.producers.by_id[6].recent[-1:]) == (before[0], before[1][-1:])
    assert log.last_stable_offset == 0


def test_deleted_records_do_not_hold_back_readers(open_log: OpenLog) -> None:
    log = open_log()
    clients = Clients(log)
    clients.write(1, 3)
    clients.write(1, 3)
    log.advance_start(4)
    assert log.last_stable_offset == log.start_offset == 4
