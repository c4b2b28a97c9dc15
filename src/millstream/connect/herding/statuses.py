"""States of connectors and tasks, said by whoever runs them and written behind.

Nobody waits for that, and the newest of each is enough."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from millstream.connect.stores.config_state import Pair
from millstream.connect.stores.status_state import (
    Status,
    StatusState,
    TopicUse,
    connector_status,
    task_status,
    topic_record,
)

log = logging.getLogger("millstream.connect")


class Appends(Protocol):
    def append(self, pairs: list[Pair]) -> None: ...


class StatusWriter:
    """`woken` is called when there is something to flush."""

    def __init__(
        self,
        state: StatusState,
        store: Appends,
        worker_id: str,
        generation: Callable[[], int],
        woken: Callable[[], None],
    ) -> None:
        self._state, self._store, self._worker_id = state, store, worker_id
        self._generation, self._woken = generation, woken
        self._lock = threading.Lock()
        self._changes: dict[bytes, bytes | None] = {}
        self._flushing = threading.Lock()

    @property
    def waiting(self) -> bool:
        return bool(self._changes)

    def connector(self, name: str, state: str, trace: str | None = None, version: str | None = None) -> None:
        status = Status(state, self._worker_id, self._generation(), trace, version)
        self._state.connectors[name] = status
        self._queue([connector_status(name, status)])

    def task(
        self, name: str, number: int, state: str, trace: str | None = None, version: str | None = None
    ) -> None:
        status = Status(state, self._worker_id, self._generation(), trace, version)
        self._state.tasks.setdefault(name, {})[number] = status
        self._queue([task_status(name, number, status)])

    def topics(self, uses: Iterable[TopicUse]) -> None:
        new = list(uses)
        for use in new:
            self._state.topics.setdefault(use.connector, {})[use.topic] = use
        if new:
            self._queue([topic_record(use) for use in new])

    def reset_topics(self, name: str) -> None:
        held = self._state.topics.pop(name, {})
        self._queue([topic_record(use, gone=True) for use in held.values()])

    def forget(self, name: str) -> None:
        """The connector is gone, with everything that was said of it."""
        numbers = self._state.tasks.pop(name, {})
        known = self._state.connectors.pop(name, None)
        if known is not None or numbers:
            self._queue([connector_status(name, None)])
            self._queue([task_status(name, number, None) for number in numbers])
        self.reset_topics(name)

    def forget_tasks(self, name: str) -> None:
        numbers = self._state.tasks.pop(name, {})
        self._queue([task_status(name, number, None) for number in numbers])

    def _queue(self, pairs: Iterable[Pair]) -> None:
        with self._lock:
            self._changes.update(pairs)
        self._woken()

    def flush(self) -> None:
        with self._flushing:
            with self._lock:
                pairs, self._changes = self._changes, {}
            if not pairs:
                return
            try:
                self._store.append(list(pairs.items()))
            except Exception as error:
                log.warning("states are written later: %s", error)
                time.sleep(0.2)  # the pace of trying again while no broker answers
                with self._lock:
                    self._changes = pairs | self._changes
