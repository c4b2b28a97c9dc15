"""A real ZooKeeper for tests, started by `millstream zookeeper` and ended with the tests.

One process serves a whole run (fixture `zookeeper`); every test that wants a tree of its own takes a chroot.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from .ports import free_port
from .waiting import wait_until

READY = re.compile(r"ready zookeeper=(\S+) mode=(\S+) pid=(\d+)")
# Sessions may be as short as two ticks.
FAST = {"tickTime": "300", "syncLimit": "10", "maxSessionTimeout": "60000"}


class RunningZooKeeper:
    """`address` is where it serves; `pid` is Java's."""

    def __init__(
        self, folder: Path, port: int = 0, properties: Mapping[str, str] | None = None, server_id: int = 0
    ) -> None:
        self.port = port or free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.pid = 0
        self._log = folder / f"zookeeper-{self.port}.log"
        self._words = [] if not server_id else ["--id", str(server_id)]
        for name, value in {
            **FAST,
            "dataDir": str(folder / f"data-{self.port}"),
            "clientPortAddress": "127.0.0.1",
            "clientPort": str(self.port),
            **(properties or {}),
        }.items():
            self._words += ["--set", f"{name}={value}"]
        self.process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Starts it without waiting: a server of an ensemble is ready only when there are others."""
        self._began_at = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "millstream.testing._child", "zookeeper", *self._words],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    def until_ready(self) -> None:
        process = self.process
        assert process is not None

        def ready() -> bool:
            ended = process.poll() is not None
            found = READY.search(self.log()[self._began_at :])
            if found is not None:
                self.pid = int(found[3])
            return ended or found is not None

        wait_until(ready, self.log)
        if process.poll() is not None:
            raise RuntimeError(f"ZooKeeper did not start: {self.log()}")

    def start(self) -> Self:
        self.begin()
        self.until_ready()
        return self

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """kill -9 of Java; `millstream zookeeper` ends with it."""
        os.kill(self.pid, signal.SIGKILL)
        self._release()

    def stop(self) -> int:
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.terminate()
        return self._release()

    def _release(self) -> int:
        assert self.process is not None
        code = self.process.wait(60)
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process = None
        return code

    def chroot(self) -> str:
        """A connect string with a tree that nobody else uses."""
        return f"{self.address}/test-{uuid.uuid4().hex[:12]}"

    def __enter__(self) -> Self:
        return self if self.process is not None else self.start()

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


class RunningEnsemble:
    """Three of them."""

    def __init__(self, folder: Path) -> None:
        ports = [[free_port() for _ in range(3)] for _ in range(3)]
        lines = {
            f"server.{number}": f"127.0.0.1:{peer}:{election}"
            for number, (_, peer, election) in enumerate(ports, 1)
        }
        self.servers = [
            RunningZooKeeper(folder, client, lines, number) for number, (client, _, _) in enumerate(ports, 1)
        ]
        self.address = ",".join(server.address for server in self.servers)

    def __enter__(self) -> Self:
        try:
            for server in self.servers:
                server.begin()
            for server in self.servers:
                server.until_ready()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for server in self.servers:
            server.stop()


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="zookeeper-", ignore_cleanup_errors=True)
