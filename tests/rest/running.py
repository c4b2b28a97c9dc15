"""A proxy in a child process, and requests to it."""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

READY = re.compile(r"listeners=(\S+)")
V2 = "application/vnd.kafka.v2+json"


def media_type(form: str) -> str:
    return f"application/vnd.kafka.{form}.v2+json"


class RunningRest:
    """`url` is where it listens; `http` a client for it."""

    def __init__(
        self,
        bootstrap: str,
        registry: str = "http://127.0.0.1:1",
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._settings = {
            "listeners": "http://127.0.0.1:0",
            "bootstrap.servers": bootstrap,
            "schema.registry.url": registry,
            **(settings or {}),
        }
        self._log = Path(tempfile.mkstemp(prefix="rest-", suffix=".log")[1])

    def start(self, verify: Any = True) -> "RunningRest":
        command = [sys.executable, "-m", "millstream", "rest"]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        with open(self._log, "ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        match = READY.search(line)
        if match is None:
            self.process.wait()
            raise RuntimeError(f"the proxy did not start: {line}{self.log()}")
        self.url = match[1].split(",")[0]
        self.http = httpx.Client(base_url=self.url, timeout=60, verify=verify)
        return self

    def log(self) -> str:
        return self._log.read_text()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(30)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.http.close()
            if self.process.stdout is not None:
                self.process.stdout.close()
            self._log.unlink(missing_ok=True)

    def __enter__(self) -> "RunningRest":
        return self if hasattr(self, "process") else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # Requests

    def produce(self, topic: str, form: str, records: list[Any], **more: Any) -> httpx.Response:
        body = {"records": records, **more}
        return self.http.post(f"/topics/{topic}", json=body, headers={"Content-Type": media_type(form)})

    def consumer(self, group: str, form: str = "json", **options: Any) -> "RestConsumer":
        body = {"format": form, "auto.offset.reset": "earliest", **options}
        answer = self.http.post(f"/consumers/{group}", json=body, headers={"Content-Type": V2})
        assert answer.status_code == 200, answer.text
        return RestConsumer(self, answer.json()["base_uri"], form)


class RestConsumer:
    def __init__(self, rest: RunningRest, uri: str, form: str) -> None:
        self.uri = uri
        self.form = form
        self._http = rest.http

    def post(self, path: str, body: Any = None) -> httpx.Response:
        if body is None:
            return self._http.post(f"{self.uri}{path}", headers={"Content-Type": V2})
        return self._http.post(f"{self.uri}{path}", json=body, headers={"Content-Type": V2})

    def get(self, path: str, body: Any = None) -> httpx.Response:
        return self._http.request("GET", f"{self.uri}{path}", json=body, headers={"Accept": V2})

    def subscribe(self, *topics: str) -> None:
        assert self.post("/subscription", {"topics": list(topics)}).status_code == 204

    def records(self, accept: str | None = None, **query: Any) -> httpx.Response:
        headers = {"Accept": accept or media_type(self.form)}
        return self._http.get(f"{self.uri}/records", params=query, headers=headers)

    def read(self, count: int, **query: Any) -> list[dict[str, Any]]:
        """So many records, in as many requests as it takes."""
        found: list[dict[str, Any]] = []
        deadline = time.monotonic() + 60
        while len(found) < count:
            answer = self.records(**query)
            assert answer.status_code == 200, answer.text
            found += answer.json()
            assert time.monotonic() < deadline, f"{len(found)} of {count} records"
        return found

    def delete(self) -> httpx.Response:
        return self._http.delete(self.uri, headers={"Content-Type": V2})


def soon(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.05)
