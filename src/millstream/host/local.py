"""Lanes as threads of this process, without Spark: for tests, and for whoever wants a unit without a JVM.

Same planner, same connections, same lanes, same units; only who starts the lanes is another.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from millstream.host.lane import Lane, Lease
from millstream.host.link import Link
from millstream.host.planner_server import HostSettings, PlannerServer

_FOREVER = 1e9


class LocalHost(PlannerServer):
    """A host whose lanes are threads. `machines` names where each lane is taken to be."""

    def __init__(
        self, settings: HostSettings | None = None, machines: Sequence[str] = ("here", "here")
    ) -> None:
        super().__init__(settings or HostSettings(lanes=len(machines)), pack=_keep)
        self.lanes = LocalLanes(self, machines, _taken)

    def close(self) -> None:
        self.end()
        self.lanes.join()


_kept: dict[bytes, Any] = {}


def _keep(content: Any) -> bytes:
    """Threads need no copy, and tests look at what their own functions did."""
    key = uuid.uuid4().bytes
    _kept[key] = content
    return key


def _taken(key: bytes) -> Any:
    return _kept[key]


class LocalLanes:
    """As many lanes as machines are named."""

    def __init__(
        self,
        server: PlannerServer,
        machines: Iterable[str] = ("here", "here"),
        unpack: Callable[[bytes], Any] | None = None,
    ) -> None:
        self._server = server
        self._numbers = itertools.count()
        self._unpack = unpack
        self.lanes: dict[str, tuple[Lane, Link, threading.Thread]] = {}
        for machine in machines:
            self.add(machine)

    def add(self, machine: str) -> str:
        name = f"local-{next(self._numbers)}"
        link = Link.connect(self._server.host, self._server.port, self._server.secret)
        extra: dict[str, Any] = {} if self._unpack is None else {"unpack": self._unpack}
        lane = Lane(link, machine, Lease(_FOREVER), end_process=link.shut, **extra)
        thread = threading.Thread(target=lane.run, args=(name,), name=name, daemon=True)
        self.lanes[name] = (lane, link, thread)
        thread.start()
        return name

    def cut(self, name: str) -> None:
        """The planner loses this lane; the lane ends when it hears of it."""
        _, link, thread = self.lanes.pop(name)
        link.shut()
        thread.join(10)

    def lose(self, machine: str) -> None:
        """All lanes of a machine."""
        for name, (lane, *_) in list(self.lanes.items()):
            if lane.machine == machine:
                self.cut(name)

    def join(self, timeout: float = 10.0) -> None:
        for _, _, thread in self.lanes.values():
            thread.join(timeout)
