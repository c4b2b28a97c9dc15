"""Housekeeping with logs and no broker around it: a failure of one partition does not stop the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from millstream.broker.housekeeping import Housekeeping
from millstream.storage import flush
from millstream.storage.log import PartitionLog
from millstream.storage.log_dirs import LogDirs
from millstream.storage.segment import Segment
from millstream.wire.errors import ErrorCode, KafkaError

from ..storage.batches import NOW, fill, small


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[list[PartitionLog]]:
    """Three logs of three segments whose records are old."""
    log_dirs = LogDirs([tmp_path])
    log_dirs.open(1)
    logs = [log_dirs.create(topic, 0, None, small(retention_ms=1000)) for topic in "abc"]
    for log in logs:
        fill(log, 25, timestamp=NOW)
    yield logs
    log_dirs.close(clean=False)


def keeper(logs: list[PartitionLog]) -> Housekeeping:
    log_cleaner = SimpleNamespace(owns=lambda log: False)
    partitions = [SimpleNamespace(log=log) for log in logs]
    return Housekeeping(SimpleNamespace(partitions=partitions, log_cleaner=log_cleaner))  # type: ignore[arg-type]


async def test_retention_goes_on_with_the_next_partition(
    logs: list[PartitionLog], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    doom = Segment.doom

    def refuse(segment: Segment) -> list[str]:
        if "/b-0/" in segment.path:
            raise OSError(13, "the disk says no")
        return doom(segment)

    monkeypatch.setattr(Segment, "doom", refuse)
    await keeper(logs).retention()
    assert [log.start_offset for log in logs] == [25, 0, 25]
    assert "b-0: old segments were not deleted: cannot delete old segments of b-0" in caplog.text


async def test_closed_segments_are_synced_where_it_can_be_done(
    logs: list[PartitionLog], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = flush.Flush.run

    def refuse(self: flush.Flush) -> None:
        if "/b-0" in self.folder:
            raise KafkaError(ErrorCode.kafka_storage_error, "the disk says no")
        run(self)

    monkeypatch.setattr(flush.Flush, "run", refuse)
    for _ in range(3):
        await keeper(logs).sync_closed_segments()
    assert [log.recovery_point for log in logs] == [20, 0, 20]
    assert caplog.text.count("b-0: a closed segment was not synced: the disk says no") == 3
