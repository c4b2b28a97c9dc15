"""Services as child processes: `with RunningRegistry(bootstrap) as registry: registry.http.get("/subjects")`.

A service listens on a free port of 127.0.0.1, is ready when it has printed its ready line, and ends with the
process that started it, even if that one is killed. Everything that it prints is in `log()`.
"""

import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import httpx

from .secured_services import with_login
from .waiting import wait_until

MILLSTREAM = [sys.executable, "-m", "millstream"]
READY = re.compile(r"ready listeners=(\S+)")
STOP_PATIENCE = 60.0


class RunningService:
    """`millstream <command> --set name=value ...`. `url` is where it listens, `http` a client for it."""

    command: ClassVar[str]
    words: ClassVar[tuple[str, ...]] = ()  # behind the command

    def __init__(self, settings: Mapping[str, object], verify: Any = True) -> None:
        """`verify` is httpx's, or the path of the authority's certificate."""
        self._settings = {"listeners": "http://127.0.0.1:0", **with_login(self.command, settings)}
        self._verify = ssl.create_default_context(cafile=verify) if isinstance(verify, str) else verify
        handle, path = tempfile.mkstemp(prefix=f"{self.command}-", suffix=".log")
        os.close(handle)
        self._log = Path(path)

    def start(self) -> Self:
        arguments = [word for name, value in self._settings.items() for word in ("--set", f"{name}={value}")]
        printed_before = self._log.stat().st_size
        with self._log.open("ab") as log:
            # The test kit's way to start a broker: the child ends when its standard input does.
            self.process = subprocess.Popen(
                [sys.executable, "-m", "millstream.testing._child", self.command, *self.words, *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )

        def ready_or_ended() -> bool:
            # First whether it has ended: what it printed before is complete then.
            ended = self.process.poll() is not None
            found = READY.search(self._log.read_bytes()[printed_before:].decode(errors="replace"))
            if found is not None:
                self.url = found[1].split(",")[0]
            return ended or found is not None

        self.url = ""
        wait_until(ready_or_ended, self.log)
        if not self.url:
            self._release()
            raise RuntimeError(f"{self.command} did not start: {self.log()}")
        self.http = self.client()
        return self

    def client(self) -> httpx.Client:
        """One more client, with cookies of its own."""
        return httpx.Client(base_url=self.url, timeout=120, verify=self._verify)

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def pause(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self._release()

    def stop(self) -> int:
        """SIGTERM, then its exit code."""
        try:
            if self.process.poll() is None:
                self.resume()
                self.process.terminate()
            return self.process.wait(STOP_PATIENCE)
        finally:
            self.kill()
            self.http.close()
            self._log.unlink(missing_ok=True)

    def _release(self) -> None:
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()

    def __enter__(self) -> Self:
        return self if hasattr(self, "process") else self.start()

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


class RunningRegistry(RunningService):
    command = "registry"

    def __init__(
        self, bootstrap: str, settings: Mapping[str, object] | None = None, verify: Any = True
    ) -> None:
        super().__init__({"kafkastore.bootstrap.servers": bootstrap, **(settings or {})}, verify)

    def wait_until_leading(self) -> None:
        wait_until(lambda: self.http.get("/health").json()["leads"], self.log)


class RunningConnect(RunningService):
    """A worker in distributed mode. It starts Spark only with the first task."""

    command = "connect"
    words = ("distributed",)

    def __init__(self, bootstrap: str, settings: Mapping[str, object], verify: Any = True) -> None:
        super().__init__({"bootstrap.servers": bootstrap, **settings}, verify)
