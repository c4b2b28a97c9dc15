"""Cutting the end off, and everything that has to follow it."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.storage.log import PartitionLog
from millstream.wire.batch import TRANSACTIONAL

from .batches import NOW, batch, contents, files, headers, small
from .conftest import OpenLog


def write(log: PartitionLog, count: int, start: int = 0) -> list[object]:
    """Batches of two records from three producers, epochs changing, with transactions; the state after each
    one."""
    states = [state(log)]
    for number in range(start, start + count):
        producer = number % 3
        known = log.producers.by_id.get(producer)
        sequence = max(known.next_sequence, 0) if known is not None else 0
        if producer == 2 and number % 4 == 0:
            log.append_marker(2, 0, number % 8 == 0, 0, number // 10, NOW + number)
        else:
            attributes = TRANSACTIONAL if producer == 2 else 0
            log.append_leader(
                batch(2, producer=producer, sequence=sequence, timestamp=NOW + number, attributes=attributes),
                number // 10,
                NOW,
            )
        log.set_high_watermark(log.end_offset)
        states.append(state(log))
    return states


def state(log: PartitionLog) -> object:
    """All that can be seen of a log."""
    return (
        log.end_offset,
        log.last_stable_offset,
        log.last_epoch(),
        [log.epoch_end(epoch) for epoch in range(12)],
        sorted(log.describe_producers()),
        log.aborted_transactions(0, 1 << 40),
        log.segments[-1].newest(),
        [header for header, _ in contents(log)],
    )


@pytest.mark.parametrize("restart", [False, True])
def test_truncation_restores_every_earlier_state(open_log: OpenLog, restart: bool) -> None:
    log = open_log(small())
    states = write(log, 60)
    for want in reversed(states):
        end = want[0]  # type: ignore[index]
        log.truncate_to(end)
        if restart:
            log.close()
            log = open_log(small(), clean=True, high_watermark=end)
        newest = want[6]  # type: ignore[index]
        got = state(log)
        assert got[:6] == want[:6]  # type: ignore[index]
        assert got[7] == want[7]  # type: ignore[index]
        if log.active.size:
            assert got[6] == newest  # type: ignore[index]


def test_the_log_goes_on_after_truncation(open_log: OpenLog) -> None:
    log = open_log(small())
    states = write(log, 40)
    log.truncate_to(states[17][0])  # type: ignore[index]
    assert write(log, 23, start=17)[-1] == states[-1]
    assert open_log(small(), high_watermark=log.high_watermark).end_offset == log.end_offset


def test_a_batch_that_reaches_over_the_cut_goes_whole(open_log: OpenLog) -> None:
    log = open_log()
    for _ in range(4):
        log.append_leader(batch(10), 0, NOW)
    log.truncate_to(25)
    assert log.end_offset == 20
    assert [header.base_offset for header in headers(log)] == [0, 10]


def test_marks_follow(open_log: OpenLog, folder: Path) -> None:
    log = open_log(small())
    write(log, 40)
    log.flush_now()
    assert log.recovery_point == log.high_watermark == log.end_offset
    log.truncate_to(30)
    assert log.recovery_point == log.high_watermark == log.end_offset == 29
    log.truncate_to(1000)
    assert log.end_offset == 29
    assert not [name for name in files(folder) if name.endswith(".snapshot") and int(name[:20]) > 29]


def test_truncation_below_the_start_begins_anew(open_log: OpenLog) -> None:
    log = open_log(small(retention_ms=0))
    write(log, 40)
    log.delete_old_segments(NOW + 1000)
    assert log.start_offset > 20
    log.truncate_to(10)
    assert (log.start_offset, log.end_offset, log.high_watermark, log.size) == (10, 10, 10, 0)
    log.append_leader(batch(), 50, NOW)
    assert headers(log)[0].base_offset == 10


def test_truncation_to_nothing(open_log: OpenLog) -> None:
    log = open_log(small())
    states = write(log, 30)
    log.truncate_to(0)
    assert state(log)[:6] == states[0][:6]  # type: ignore[index]
    write(log, 30)
    assert len(headers(log)) == 30


def test_reset(open_log: OpenLog, folder: Path) -> None:
    log = open_log(small())
    write(log, 40)
    log.reset_at(5000)
    assert (log.start_offset, log.end_offset, log.high_watermark, log.last_stable_offset) == (5000,) * 4
    assert (log.last_epoch(), log.describe_producers(), log.size) == (-1, [], 0)
    log.reaper.run(1 << 62)
    assert [name for name in files(folder) if name.endswith(".log")] == ["00000000000000005000.log"]
    log.append_leader(batch(3), 9, NOW)
    log = open_log(small(), start_offset=5000)
    assert (log.start_offset, log.end_offset, log.last_epoch()) == (5000, 5003, 9)
    log.reset_at(5000)
    assert (log.start_offset, log.end_offset) == (5000, 5000)


def test_readers_find_nothing_that_was_cut(open_log: OpenLog) -> None:
    log = open_log(small())
    write(log, 20)
    log.read(22, 1000, "end")
    held = log.read(0, 10_000, "end")
    log.truncate_to(19)
    log.append_leader(batch(4), 9, NOW)
    assert log.read(19, 1000, "end").size == 100
    assert [header.base_offset for header in headers(log)][-1] == 19
    assert held.segment is not None
