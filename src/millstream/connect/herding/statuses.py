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
        self._said: dict[str, set[bytes]] = {}
        self._flushing = threading.Lock()

    @property
    def waiting(self) -> bool:
        return bool(self._changes)

    def connector(self, name: str, state: str, trace: str | None = None, version: str | None = None) -> None:
        status = Status(state, self._worker_id, self._generation(), trace, version)
        self._state.connectors[name] = status
        self._say(name, [connector_status(name, status)])

    def task(
        self, name: str, number: int, state: str, trace: str | None = None, version: str | None = None
    ) -> None:
        status = Status(state, self._worker_id, self._generation(), trace, version)
        self._state.tasks.setdefault(name, {})[number] = status
        self._say(name, [task_status(name, number, status)])

    def topics(self, uses: Iterable[TopicUse]) -> None:
        for use in uses:
            self._state.topics.setdefault(use.connector, {})[use.topic] = use
            self._say(use.connector, [topic_record(use)])

    def reset_topics(self, name: str) -> None:
        held = self._state.topics.pop(name, {})
        self._queue([topic_record(use, gone=True) for use in held.values()])

    def forget(self, name: str) -> None:
        """The connector is gone, with everything that was said of it: what this worker has said, too, that
        another one's tombstones have overtaken."""
        with self._lock:
            gone = self._said.pop(name, set())
        if self._state.connectors.pop(name, None) is not None:
            gone.add(connector_status(name, None)[0])
        self.forget_tasks(name)
        self.reset_topics(name)
        self._queue((key, None) for key in gone)

    def forget_tasks(self, name: str, first: int = 0) -> None:
        """Those that the connector has no more: from this one on."""
        held = self._state.tasks.get(name, {})
        gone = [number for number in list(held) if number >= first]
        for number in gone:
            held.pop(number, None)
        self._queue(task_status(name, number, None) for number in gone)

    def _say(self, name: str, pairs: list[Pair]) -> None:
        with self._lock:
            self._said.setdefault(name, set()).update(key for key, _ in pairs)
        self._queue(pairs)

    def _queue(self, pairs: Iterable[Pair]) -> None:
        with self._lock:
            self._changes.update(pairs)
            waiting = self.waiting
        if waiting:
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
