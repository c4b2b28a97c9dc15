"""What every task of an application knows, and what it leaves for the process that continues it."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream.client.config import ClientConfig

if TYPE_CHECKING:
    from millstream.streams.task import Errors

log = logging.getLogger("millstream.streams")

MACHINE = "{machine}"
MAX_STATE_BYTES = "millstream.state.max.bytes"
"""Of one task, on disk. Nothing is taken before it is used."""
TRANSACTION_TIMEOUT = "transaction.timeout.ms"
TRANSACTION_TIMEOUT_MS = 10_000
"""A process that was killed leaves its transaction open, and readers behind it wait: not for long."""
STANDBYS = "num.standby.replicas"
_MAX_METADATA = 4000  # bytes; the default of offset.metadata.max.bytes is 4096


@dataclass(frozen=True, slots=True)
class StreamsConfig:
    """What every task of an application knows. Goes to Spark's workers by value."""

    application: str
    client: ClientConfig
    folder: str
    errors: Errors
    exactly_once: bool = True
    config: dict[str, Any] = field(default_factory=dict)
    max_bytes_per_task: int = 4 << 20
    run: str = ""
    """Another one for each start: what the tasks of a process share is of one run."""

    def folder_of(self, task: str, machine: str) -> Path:
        return Path(self.folder.replace(MACHINE, machine)) / task

    @property
    def max_state_bytes(self) -> int:
        return int(self.config.get(MAX_STATE_BYTES, 64 << 30))

    @property
    def transaction_timeout_ms(self) -> int:
        return int(self.config.get(TRANSACTION_TIMEOUT, TRANSACTION_TIMEOUT_MS))

    @property
    def standbys(self) -> int:
        return int(self.config.get(STANDBYS, 0))


class TaskMetadata(NamedTuple):
    """What a task commits beside its offsets for the process that continues it: when its next timer by the
    wall clock is due, and what it knows of time (`StreamTask.times`)."""

    timer: int | None
    times: list[list[int]]

    def encode(self) -> str:
        text = json.dumps([1, *self], separators=(",", ":"))
        if len(text) > _MAX_METADATA:
            log.warning("a task knows too many times to keep them with its offsets")
            text = json.dumps([1, self.timer, []])
        return text

    @classmethod
    def decode(cls, text: str) -> TaskMetadata:
        """Nothing, if somebody else wrote that text."""
        try:
            version, timer, times = json.loads(text)
        except (ValueError, TypeError):
            return cls(None, [])
        return cls(timer, times) if version == 1 else cls(None, [])
