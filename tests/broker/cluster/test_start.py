"""The order in which a broker of several starts."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from millstream.broker import server
from millstream.broker.apis.api_versions import SUPPORTED_FEATURES
from millstream.broker.server import CannotStart
from millstream.storage.log_dirs import LogDirs
from tests.support.memory_cluster import MemoryCluster


async def test_logs_are_recovered_before_the_registration_and_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recovery may take minutes: nobody must count on the broker meanwhile, and the loop has to keep up the
    session with the store."""
    load = LogDirs.load
    loading, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slowly(self: LogDirs, config_for: Any = None) -> Any:
        loop.call_soon_threadsafe(loading.set)
        go_on.wait(60)
        return load(self, config_for)

    async with MemoryCluster(tmp_path, 2) as cluster:
        await cluster.lose(2)
        epoch = cluster.hub.last_epoch
        monkeypatch.setattr(LogDirs, "load", slowly)
        starting = asyncio.create_task(cluster.start(2))
        await loading.wait()
        assert 2 not in cluster.hub.members and cluster.hub.last_epoch == epoch
        go_on.set()
        broker = await starting
        assert cluster.hub.members[2].epoch == broker.epoch > epoch


async def test_a_broker_that_does_not_support_a_level_in_use_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with MemoryCluster(tmp_path, 1) as cluster:
        level = cluster.controller.image.features["metadata.version"]
        older = {**SUPPORTED_FEATURES, "metadata.version": (1, level - 1)}
        monkeypatch.setattr(server, "SUPPORTED_FEATURES", older)
        with pytest.raises(CannotStart, match=f"uses metadata.version level {level}.* supports 1 to"):
            await cluster.start(2)
        assert set(cluster.hub.members) == {1}
