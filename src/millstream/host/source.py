"""Lanes as the tasks of a Spark query.

The query's batches last a minute, and nothing depends on where one ends: an offset is a number, the
checkpoint is scratch. A task connects to the planner, makes a lane in a thread of its Python worker and
renews the lane's lease until the batch is over; the next batch's task finds the lane in the same worker and
goes on with it. So Spark sees tasks that take a minute, starts them again when a worker dies, and spreads
them over its executors.

A lane outlives its task by the lease: long enough for the next batch to adopt it, short enough for a query
that is gone to leave nothing behind.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from millstream.host.lane import Lane, Lease, collect_seldom
from millstream.host.link import Link, LinkClosed, LinkSilent

if TYPE_CHECKING:
    from millstream.host.planner_server import PlannerServer

log = logging.getLogger("millstream.host")

NAME = "millstream-host"
MACHINE_VARIABLE = "MILLSTREAM_MACHINE"
"""What a machine is called where several share a host name: workers of a test, containers."""
EXIT_STUCK = 70
_LOOK_EVERY = 0.2


def machine_name() -> str:
    return os.environ.get(MACHINE_VARIABLE) or socket.gethostname()


def options_for(server: PlannerServer) -> dict[str, str]:
    settings = server.settings
    return {
        "host": server.host,
        "port": str(server.port),
        "secret": server.secret.hex(),
        "lanes": str(settings.lanes),
        "batch_seconds": str(settings.batch_seconds),
        "first_batch_seconds": str(settings.first_batch_seconds),
        "lease_seconds": str(settings.lease),
    }


@dataclass
class LanePartition(InputPartition):
    batch: int
    number: int


class HostSource(DataSource):
    """`format("millstream-host")`; only hosts use it."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "lane string, machine string"

    def streamReader(self, schema: Any) -> HostReader:
        return HostReader(dict(self.options))


class HostReader(DataSourceStreamReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0, "lanes": int(self._options["lanes"])}

    def latestOffset(self, start: dict[str, int], limit: Any = None) -> dict[str, int]:
        """The next batch, unless the host has ended, with as many lanes as it wants by now. A planner that is
        there and says nothing, because its process was stopped, has not ended: its lanes go on."""
        lanes = start["lanes"]
        try:
            link = _connect(self._options)
            link.send({"ask": "ended"})
            answer = link.receive()
            ended, lanes = bool(answer["ended"]), int(answer["lanes"])
            link.close()
        except LinkSilent:
            ended = False
        except LinkClosed:
            ended = True
        return start if ended else {"batch": start["batch"] + 1, "lanes": lanes}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        lanes: list[InputPartition] = [LanePartition(end["batch"], number) for number in range(end["lanes"])]
        return lanes

    def read(self, partition: InputPartition) -> Iterator[tuple[str, str]]:
        """One task: a lane for as long as the batch lasts."""
        assert isinstance(partition, LanePartition)
        lane = _LaneThread.of_this_process(self._options)
        short = float(self._options["first_batch_seconds"]) * 2.0 ** min(partition.batch - 1, 10)
        lane.keep(min(float(self._options["batch_seconds"]), short))
        yield lane.name, machine_name()

    def commit(self, end: dict[str, int]) -> None: ...


def _connect(options: dict[str, str]) -> Link:
    return Link.connect(options["host"], int(options["port"]), bytes.fromhex(options["secret"]))


class _LaneThread:
    """The lane of this worker process for one host."""

    _of_hosts: dict[str, _LaneThread] = {}

    def __init__(self, options: dict[str, str]) -> None:
        collect_seldom()
        self.name = f"{machine_name()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        self._link = _connect(options)
        self._grace = float(options["lease_seconds"])
        self._lease = Lease(self._grace)
        loads: Any = cloudpickle.loads
        self._lane = Lane(
            self._link, machine_name(), self._lease, loads, end_process=lambda: os._exit(EXIT_STUCK)
        )
        self._thread = threading.Thread(
            target=self._lane.run, args=(self.name,), name=f"host-{self.name}", daemon=True
        )
        self._thread.start()

    @classmethod
    def of_this_process(cls, options: dict[str, str]) -> _LaneThread:
        """Adopts the one that an earlier batch has left. Spark shares workers, so there may be others."""
        secret = options["secret"]
        for key in [key for key, one in cls._of_hosts.items() if not one._thread.is_alive()]:
            del cls._of_hosts[key]
        found = cls._of_hosts.get(secret)
        if found is None:
            found = cls._of_hosts[secret] = cls(options)
        return found

    def keep(self, seconds: float) -> None:
        """Until the batch is over, or the lane. A lane that is held has no next batch to wait for yet, and
        Spark ends workers that have nothing to do."""
        end = time.monotonic() + seconds
        self._lease.renew(seconds + self._grace)
        while self._thread.is_alive() and (self._lane.held or end > time.monotonic()):
            self._thread.join(_LOOK_EVERY)
        if self._lane.refused is not None:
            raise RuntimeError(self._lane.refused)
