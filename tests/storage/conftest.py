from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.settings.log_config import LogConfig
from millstream.storage.log import PartitionLog

OpenLog = Callable[..., PartitionLog]


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody cuts the power in these tests, and fsync is most of their time on a busy machine."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "orders-7"


@pytest.fixture
def open_log(folder: Path) -> Iterator[OpenLog]:
    """Opens the same folder, again and again; whatever is still open at the end is closed."""
    opened: list[PartitionLog] = []

    def open_log(config: LogConfig | None = None, **options: Any) -> PartitionLog:
        log = PartitionLog.open(folder, config or LogConfig(), **options)
        opened.append(log)
        return log

    yield open_log
    for log in opened:
        log.close(clean=False)
