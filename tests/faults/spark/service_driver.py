"""Services under fire: one or two, each with a driver child of its own that has the JVM and the lanes.

A service goes on when its JVM or its driver child is killed: it has to start another one. The driver child
goes on for a while when its service is killed, so the next life of the service may find it still at work.
How far all of them are, their group says.
"""

import contextlib
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import psutil

from millstream.client import ClientConfig, Cluster
from millstream.client.groups import Groups
from millstream.wire.errors import KafkaError
from millstream.wire.topic_partition import TopicPartition
from tests.faults.spark.driver import START_PATIENCE, Driver, is_worker, kill
from tests.faults.spark.harness import SOURCE, TARGET
from tests.support.ports import free_port
from tests.support.waiting import wait_until

Group = Callable[[Groups], str]


class Service(Driver):
    """One of them: its process, and the tree of its driver child, whoever started that."""

    def __init__(self, what: str, servers: str, shared: Path, number: int) -> None:
        self.own = shared / f"service-{number}"
        self.own.mkdir()
        port = free_port()
        command = ["tests.faults.spark.service_app", what, "--servers", servers, "--source", SOURCE]
        command += ["--target", TARGET, "--folder", str(self.own), "--shared", str(shared)]
        super().__init__([*command, "--port", str(port)], SOURCE, self.own, self.own / "service.log")

    def driver_child(self) -> psutil.Process | None:
        try:
            found = json.loads((self.own / "driver" / "driver.json").read_text())
            process = psutil.Process(int(found["pid"]))
            return process if "millstream.host.driver" in process.cmdline() else None
        except (OSError, ValueError, LookupError, psutil.Error):
            return None

    def tree(self) -> list[psutil.Process]:
        found = {process.pid: process for process in super().tree()}
        with contextlib.suppress(psutil.Error):
            if (child := self.driver_child()) is not None:
                for process in (child, *child.children(recursive=True)):
                    found[process.pid] = process
                    self._seen[process.pid] = process
        return list(found.values())

    def kill_all(self) -> None:
        """Its machine is gone."""
        self.tree()
        self.kill_python()
        for process in self._seen.values():
            kill(process)


class Services(Driver):
    """All services of a run, with the face of one."""

    LOOK_EVERY = 0.05
    WEIGHTS: ClassVar[dict[str, int]] = {
        "worker": 6,
        "broker": 5,
        "jvm": 2,
        "driver": 2,
        "server": 3,
        "machine": 2,
        "power cut": 1,
    }

    def __init__(self, what: str, servers: str, folder: Path, count: int, group: Group) -> None:
        self.services = [Service(what, servers, folder, number) for number in range(count)]
        self.log = self.services[0].log
        self._client = ClientConfig.of(servers, {"default.api.timeout.ms": "1000"})
        self._group = group
        self._committed, self._looked_at = 0, 0.0
        self._started = False

    def start(self) -> None:
        """The first time until records are processed: from then on, kills hit a service at work, or one that
        is getting back to it."""
        for service in self.services:
            if not service.running:
                service.start()
        if not self._started:
            patience = START_PATIENCE
            wait_until(
                lambda: self.planned > 0, lambda: f"nothing happens:\n{self.tail()}", patience=patience
            )
            self._started = True

    def tail(self) -> str:
        return "\n".join(
            f"{log}:\n{log.read_text(errors='replace')[-2000:]}"
            for service in self.services
            for log in (service.log, service.own / "driver" / "driver.log")
            if log.exists()
        )

    def failures(self) -> list[str]:
        return []

    @property
    def in_batch(self) -> bool:
        return True

    @property
    def batches(self) -> int:
        return self.planned

    @property
    def planned(self) -> int:
        if time.monotonic() > self._looked_at + self.LOOK_EVERY:
            with contextlib.suppress(KafkaError), Cluster(self._client) as cluster:
                self._committed = sum(committed(cluster, self._group).values())
            self._looked_at = time.monotonic()
        return self._committed

    @property
    def progress(self) -> str:
        return f"{self.planned} inputs committed"

    # --- kills ---

    def kill_worker(self, source: random.Random) -> bool:
        workers = [process for service in self.services for process in service.tree() if is_worker(process)]
        return bool(workers) and kill(source.choice(workers))

    def kill_jvm(self) -> None:
        """Of every service that has one."""
        for service in self.services:
            for process in service.tree():
                with contextlib.suppress(psutil.Error):
                    if process.name() == "java":
                        kill(process)

    def kill_python(self) -> None:
        """The driver children, whose JVMs and workers notice a moment later."""
        for service in self.services:
            service.tree()
            if (child := service.driver_child()) is not None:
                kill(child)

    def kill_part(self, part: str, source: random.Random) -> None:
        """One service, whose driver child lives on; or all that is on its machine."""
        service = source.choice(self.services)
        if part == "server":
            service.tree()
            service.kill_python()
        else:
            service.kill_all()

    def forget_commit(self) -> bool:
        return False

    def stop(self) -> None:
        for service in self.services:
            service.stop()


def committed(cluster: Cluster, group: Group) -> dict[TopicPartition, int]:
    """How far a group is in the input."""
    groups = Groups(cluster)
    name = group(groups)
    return {
        which: found.offset
        for which, found in (groups.committed(name) if name else {}).items()
        if which.topic == SOURCE and not isinstance(found, KafkaError)
    }
