"""A disk that fails under one of three brokers: others lead what was on it, and commit without it."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.replication import failing_replicas
from millstream.storage import append_fast_path
from millstream.storage.files import SyncFailed
from tests.broker.replication.cluster import Cluster
from tests.broker.replication.test_three_brokers import produce

# Nobody leaves an ISR in these tests because it is slow.
PATIENT = {"replica_lag_time_max_ms": 3_600_000}


class TwoFolders(Cluster):
    folders = 2


class FullDisk:
    """Writes to logs below `folder` find no room while it is set."""

    def __init__(self) -> None:
        self.folder = ""
        self._pwrite = os.pwrite

    def pwrite(self, fd: int, data: Any, position: int) -> int:
        if self.folder:
            path = os.readlink(f"/proc/self/fd/{fd}")
            if path.startswith(self.folder + os.sep) and path.endswith(".log"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._pwrite(fd, data, position)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[FullDisk]:
    full = FullDisk()
    monkeypatch.setattr(os, "pwrite", full.pwrite)
    monkeypatch.setattr(append_fast_path, "_pwrite", full.pwrite)
    yield full


async def write(cluster: Cluster, values: list[bytes]) -> None:
    """With acks=all, by a client that finds the leader."""
    settings = {"retry.backoff.ms": 50, "topic.metadata.refresh.interval.ms": 500}
    await asyncio.to_thread(produce, cluster.bootstrap, "t", values, **settings)


async def test_a_folder_whose_fsync_fails(tmp_path: Path) -> None:
    """Its partitions are led elsewhere; those in the other folder stay."""
    async with TwoFolders(tmp_path, **PATIENT) as cluster:
        await cluster.create("t", (1, 2, 3), (1, 2, 3), (2, 1, 3), (2, 1, 3), min_insync_replicas="2")
        log_dirs = cluster.brokers[1].log_dirs
        folders = [log_dirs.folder_of(cluster.replica(1, "t", index).log) for index in range(4)]
        assert set(folders) == set(log_dirs.paths)
        failed = folders[0]
        log_dirs.take_offline(SyncFailed(errno.EIO, "Input/output error", os.path.join(failed, "t-0", "x")))
        for index, folder in enumerate(folders):
            first = 1 if index < 2 else 2
            if folder == failed:
                await cluster.until(lambda index=index: 1 not in cluster.record("t", index).isr)  # type: ignore[misc]
                assert cluster.record("t", index).leader == 2
            else:
                assert cluster.record("t", index).leader == first
                assert 1 in cluster.record("t", index).isr
        await write(cluster, [b"%d" % n for n in range(100)])
        assert set(cluster.record("t").isr) == {2, 3}  # it does not come back by being idle
        assert not cluster.brokers[1].failed.done()


@pytest.mark.parametrize("leader", [1, 2])
async def test_a_full_disk(
    tmp_path: Path, disk: FullDisk, monkeypatch: pytest.MonkeyPatch, leader: int
) -> None:
    """Of the leader, or of a follower; it comes back when there is room again."""
    monkeypatch.setattr(failing_replicas, "RETRY_SECONDS", 3600.0)
    async with Cluster(tmp_path, **PATIENT) as cluster:
        await cluster.create("t", (leader, *({1, 2, 3} - {leader})), min_insync_replicas="2")
        await write(cluster, [b"before"])
        disk.folder = str(tmp_path / "1")
        # A leader waits for a follower that had caught up until it has lagged for long enough, which it never
        # does here.
        writing = asyncio.create_task(write(cluster, [b"%d" % n for n in range(100)]))
        await cluster.until(lambda: set(cluster.record("t").isr) == {2, 3})
        assert cluster.record("t").leader in (2, 3)
        disk.folder = ""
        monkeypatch.setattr(failing_replicas, "RETRY_SECONDS", 0.1)
        await cluster.until(lambda: set(cluster.record("t").isr) == {1, 2, 3})
        await writing
        await cluster.until(lambda: cluster.replica(1, "t").log.end_offset > 100)
