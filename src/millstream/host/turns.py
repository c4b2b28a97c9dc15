"""Threads that take the turns of units which wait for other people's servers.

The lane hands a turn over and goes on; when the turn has ended, the lane is woken and takes the outcome. A
unit is in one turn at a time, so what it has needs no locks. Threads are made when there is none free, up to
`MAX_THREADS`; then turns wait for each other.

Threads are daemons: a unit that never comes back does not keep its process alive.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from millstream.host.unit import UnitId

MAX_THREADS = 16


class Turn:
    """One turn of one unit: `act` in some thread, then `done` in the lane's with its result or error. One
    that is not `watched` may take as long as it likes."""

    __slots__ = ("act", "began", "done", "error", "result", "unit_id", "watched")

    def __init__(
        self,
        unit_id: UnitId,
        act: Callable[[], Any],
        done: Callable[[Any, Exception | None], None],
        watched: bool = True,
    ) -> None:
        self.unit_id, self.act, self.done, self.watched = unit_id, act, done, watched
        self.began: float | None = None
        self.result: Any = None
        self.error: Exception | None = None


class TurnThreads:
    """`fileno` is readable when turns have ended: then `finish` them. `tell` hears when turns begin and end,
    in the lane's thread."""

    def __init__(self, tell: Callable[[UnitId, str], None]) -> None:
        self._tell = tell
        self._waiting: queue.SimpleQueue[Turn | None] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[Turn] = queue.SimpleQueue()
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._under_way: dict[int, Turn] = {}
        self._threads = 0
        self._closed = False

    def fileno(self) -> int:
        return self._reader.fileno()

    def __len__(self) -> int:
        return len(self._under_way)

    def take(self, turn: Turn) -> None:
        """Called by the lane, as is `finish`."""
        self._under_way[id(turn)] = turn
        self._tell(turn.unit_id, "began")
        if len(self._under_way) > self._threads < MAX_THREADS:
            self._threads += 1
            threading.Thread(target=self._work, name="host-turns", daemon=True).start()
        self._waiting.put(turn)

    def finish(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass
        while True:
            try:
                turn = self._ended.get_nowait()
            except queue.Empty:
                return
            del self._under_way[id(turn)]
            self._tell(turn.unit_id, "ended")
            turn.done(turn.result, turn.error)

    def give_up(self, unit_id: UnitId) -> None:
        """Its thread will not come back."""
        for turn in self._under_way.values():
            if turn.unit_id == unit_id:
                turn.watched, turn.done = False, lambda _result, _error: None

    def longest(self) -> tuple[UnitId, float] | None:
        """The unit that has been in its turn for longest, and for how many seconds. From any thread."""
        turns = [turn for turn in list(self._under_way.values()) if turn.watched]
        began = [(turn.began, turn.unit_id) for turn in turns if turn.began is not None]
        if not began:
            return None
        since, unit_id = min(began)
        return unit_id, time.monotonic() - since

    def close(self) -> None:
        """Turns under way are left to themselves."""
        self._closed = True
        for _ in range(self._threads):
            self._waiting.put(None)
        self._reader.close()
        self._writer.close()

    def _work(self) -> None:
        while (turn := self._waiting.get()) is not None and not self._closed:
            turn.began = time.monotonic()
            try:
                turn.result = turn.act()
            except Exception as error:  # the unit's own; the lane reports it
                turn.error = error
            self._ended.put(turn)
            with contextlib.suppress(OSError):  # full: the lane will wake anyway; or closed
                self._writer.send(b"x")
