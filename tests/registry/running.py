"""A registry in a child process, for tests: start, stop, kill, pause."""

import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

READY = re.compile(r"listeners=(\S+)")


class RunningRegistry:
    """`url` is where it listens; `http` a client for it."""

    def __init__(
        self, bootstrap: str, settings: Mapping[str, object] | None = None, verify: Any = True
    ) -> None:
        self._settings = {
            "listeners": "http://127.0.0.1:0",
            "kafkastore.bootstrap.servers": bootstrap,
            **(settings or {}),
        }
        self._verify = ssl.create_default_context(cafile=verify) if isinstance(verify, str) else verify
        self._log = Path(tempfile.mkstemp(prefix="registry-", suffix=".log")[1])

    def start(self) -> "RunningRegistry":
        command = [sys.executable, "-m", "millstream", "registry"]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        with open(self._log, "ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        match = READY.search(line)
        if match is None:
            self.process.wait()
            raise RuntimeError(f"the registry did not start: {line}{self.log()}")
        self.url = match[1].split(",")[0]
        self.http = httpx.Client(base_url=self.url, timeout=30, verify=self._verify)
        return self

    def log(self) -> str:
        return self._log.read_text()

    def wait_until_leading(self) -> None:
        deadline = time.monotonic() + 30
        while not self.http.get("/health").json()["leads"]:
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)

    def pause(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(15)
        finally:
            if self.process.poll() is None:
                self.kill()
            self.http.close()
            if self.process.stdout is not None:
                self.process.stdout.close()
            self._log.unlink(missing_ok=True)

    def __enter__(self) -> "RunningRegistry":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.resume()
        self.stop()
