"""A console in a child process, for tests, and a browser-like client for it that carries the cookie and the
token."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import httpx

READY = re.compile(r"listeners=(\S+)")
TOKEN = re.compile(r'name="csrf" value="([0-9a-f]+)"')


class Client(httpx.Client):
    """Follows redirects, and sends forms with the token of this session."""

    def token(self, page: str = "/") -> str:
        text = self.get(page).text
        found = TOKEN.search(text) or re.search(r'"X-CSRF-Token": "([0-9a-f]+)"', text)
        assert found is not None, text[:500]
        return found[1]

    def form(self, url: str, **fields: object) -> httpx.Response:
        data = {name: str(value) for name, value in fields.items()}
        return self.post(url, data={"csrf": self.token("/login" if url == "/login" else "/"), **data})


class RunningConsole:
    def __init__(self, bootstrap: str, settings: Mapping[str, object] | None = None) -> None:
        self._settings = {
            "listeners": "http://127.0.0.1:0",
            "bootstrap.servers": bootstrap,
            "sample.interval.ms": 300,
            **(settings or {}),
        }
        self._log = Path(tempfile.mkstemp(prefix="console-", suffix=".log")[1])

    def start(self) -> "RunningConsole":
        command = [sys.executable, "-m", "millstream", "console"]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        with open(self._log, "ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        match = READY.search(line)
        if match is None:
            self.process.wait()
            raise RuntimeError(f"the console did not start: {line}{self.log()}")
        self.url = match[1].split(",")[0]
        self.http = self.client()
        return self

    def client(self) -> Client:
        """A browser of its own."""
        return Client(base_url=self.url, timeout=30, follow_redirects=True)

    def log(self) -> str:
        return self._log.read_text()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(15)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.http.close()
        self._log.unlink(missing_ok=True)

    def __enter__(self) -> "RunningConsole":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
