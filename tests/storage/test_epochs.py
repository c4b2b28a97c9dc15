from __future__ import annotations

from pathlib import Path

import pytest

from millstream.storage.epochs import EpochCache, load

from .batches import NOW, batch, fill, small
from .conftest import OpenLog


def cache(*pairs: tuple[int, int]) -> EpochCache:
    result = EpochCache()
    for epoch, start in pairs:
        result.assign(epoch, start)
    return result


def pairs(epochs: EpochCache) -> list[tuple[int, int]]:
    return list(zip(epochs.epochs, epochs.starts, strict=True))


def test_end_of_an_epoch_is_where_the_next_begins() -> None:
    epochs = cache((1, 0), (4, 10), (5, 30))
    assert epochs.end_of(1, 50) == (1, 10)
    assert epochs.end_of(4, 50) == (4, 30)
    assert epochs.end_of(5, 50) == (5, 50)
    assert epochs.end_of(3, 50) == (1, 10)  # a floor lookup, so that no epoch is ever unknown
    assert epochs.end_of(9, 50) == (5, 50)
    assert epochs.end_of(0, 50) == (0, 0)
    assert epochs.end_of(-1, 50) == (-1, -1)
    assert EpochCache().end_of(3, 50) == (-1, -1)


def test_assignments_prove_others_wrong() -> None:
    epochs = cache((1, 0), (2, 10), (3, 20))
    epochs.assign(2, 25)  # an old leader's batch changes nothing
    assert pairs(epochs) == [(1, 0), (2, 10), (3, 20)]
    epochs.assign(4, 20)  # epoch 3 never wrote
    assert pairs(epochs) == [(1, 0), (2, 10), (4, 20)]
    epochs.assign(5, 10)
    assert pairs(epochs) == [(1, 0), (5, 10)]


def test_truncation() -> None:
    epochs = cache((1, 0), (2, 10), (3, 20))
    epochs.truncate_end(20)
    assert pairs(epochs) == [(1, 0), (2, 10)]
    epochs.truncate_start(15)
    assert pairs(epochs) == [(2, 15)]
    epochs.truncate_start(3)
    assert pairs(epochs) == [(2, 15)]
    assert epochs.at(14) == -1
    assert epochs.at(15) == epochs.at(99) == 2
    epochs.truncate_end(15)
    assert (pairs(epochs), epochs.latest) == ([], -1)


def test_file(tmp_path: Path) -> None:
    epochs = cache((0, 0), (3, 1470))
    epochs.save(str(tmp_path), sync=True)
    path = tmp_path / "leader-epoch-checkpoint"
    assert path.read_text() == "0\n2\n0 0\n3 1470\n"
    loaded = load(str(tmp_path))
    assert loaded is not None
    assert (pairs(loaded), loaded.latest) == ([(0, 0), (3, 1470)], 3)
    for damaged in (
        "",
        "0\n",
        "0\n3\n0 0\n",
        "1\n0\n",
        "0\n1\nx y\n",
        "0\n2\n3 0\n1 5\n",
        "0\n2\n1 9\n2 5\n",
    ):
        path.write_text(damaged)
        assert load(str(tmp_path)) is None
    path.unlink()
    assert load(str(tmp_path)) is None


def test_epochs_of_a_log(open_log: OpenLog, folder: Path) -> None:
    log = open_log(small())
    assert log.last_epoch() == -1
    for epoch in (0, 0, 2, 2, 5):
        log.append_leader(batch(3), epoch, NOW)
    assert log.last_epoch() == 5
    assert log.epoch_end(0) == (0, 6)
    assert log.epoch_end(1) == (0, 6)
    assert log.epoch_end(5) == (5, 15)
    log.begin_epoch(7)
    assert log.last_epoch() == 5, "no batch of 7 yet"
    assert log.epoch_end(7) == (7, 15)
    assert log.epoch_end(6) == (5, 15)
    log.close()
    log = open_log(clean=True)
    assert log.last_epoch() == 5
    assert log.epoch_end(7) == (5, 15)
    log.append_leader(batch(), 8, NOW)
    assert log.epoch_end(7) == (5, 15)
    assert log.epoch_end(8) == (8, 16)


def test_a_lost_checkpoint_is_rebuilt_from_the_log(open_log: OpenLog, folder: Path) -> None:
    log = open_log(small())
    for number in range(60):
        log.append_leader(batch(), number // 7, NOW)
    before = pairs(log.epochs)
    log.close()
    path = folder / "leader-epoch-checkpoint"
    for content in (None, "rubbish", "0\n1\n0 0\n"):
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_text(content)
        log = open_log(small(), clean=True)
        assert pairs(log.epochs) == before
        log.close()
        path.unlink(missing_ok=True)
        assert pairs(open_log(small(), recovery_point=60).epochs) == before
        assert pairs(open_log(small(), recovery_point=0).epochs) == before


def test_retention_moves_the_first_epoch(open_log: OpenLog) -> None:
    log = open_log(small())
    for number in range(60):
        log.append_leader(batch(), number // 20, NOW)
    log.set_high_watermark(60)
    log.advance_start(45)
    assert pairs(log.epochs) == [(2, 45)]
    fill(log, 1)


@pytest.mark.parametrize("clean", [True, False])
def test_epochs_before_the_start_are_forgotten_by_a_start(open_log: OpenLog, clean: bool) -> None:
    """The start is written down at once, the epochs with the next flush: a kill in between leaves them too
    old."""
    log = open_log(small())
    for number in range(60):
        log.append_leader(batch(), number // 20, NOW)
    log.set_high_watermark(60)
    log.close(clean)
    log = open_log(small(), clean=clean, recovery_point=60, start_offset=45)
    assert pairs(log.epochs) == [(2, 45)]
    assert log.epoch_end(0) == (0, 45), "not an offset that nobody can read any more"
