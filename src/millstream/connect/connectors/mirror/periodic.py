"""What a connector does again and again beside its tasks: a thread that never ends because of an error."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

log = logging.getLogger("millstream.connect")


@dataclass(slots=True)
class Job:
    what: str
    seconds: float
    act: Callable[[], None]
    at_once: bool = False


class Periodic:
    def __init__(self, name: str, jobs: list[Job]) -> None:
        self._name, self._jobs = name, jobs
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"mirror-{name}", daemon=True)

    def start(self) -> None:
        if self._jobs:
            self._thread.start()

    def _run(self) -> None:
        now = time.monotonic()
        due = [now if job.at_once else now + job.seconds for job in self._jobs]
        while not self._stopped.wait(max(0.0, min(due) - time.monotonic())):
            for index, job in enumerate(self._jobs):
                if due[index] > time.monotonic():
                    continue
                try:
                    job.act()
                except Exception as error:
                    log.warning("%s: %s failed, tried again later: %s", self._name, job.what, error)
                due[index] = time.monotonic() + job.seconds

    def stop(self) -> None:
        """A call under way ends by its own time limit."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(5)
