"""`millstream connect`, against a server that answers as a worker does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from millstream.cli.app import main


class _Worker(BaseHTTPRequestHandler):
    seen: list[tuple[str, str, Any]] = []
    answers: dict[str, tuple[int, Any]] = {}

    def _serve(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.seen.append((self.command, self.path, body))
        status, content = self.answers.get(f"{self.command} {self.path}", (204, None))
        data = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = _serve

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing on the terminal."""


@pytest.fixture
def worker() -> Iterator[tuple[str, type[_Worker]]]:
    handler = type("Worker", (_Worker,), {"seen": [], "answers": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", handler
    server.shutdown()
    thread.join()
    server.server_close()


def test_list_and_status(worker: tuple[str, type[_Worker]], capsys: pytest.CaptureFixture[str]) -> None:
    url, handler = worker
    states = {
        "name": "a",
        "connector": {"state": "RUNNING", "worker_id": "w:1"},
        "tasks": [{"id": 0, "state": "FAILED", "worker_id": "w:1", "trace": "it broke\n  at x"}],
        "type": "sink",
    }
    info = {"name": "a", "config": {"connector.class": "FileStreamSink"}, "tasks": [], "type": "sink"}
    handler.answers["GET /connectors?expand=status&expand=info"] = (
        200,
        {"a": {"status": states, "info": info}},
    )
    handler.answers["GET /connectors/a/status"] = (200, states)
    assert main(["connect", "list", "--url", url]) == 0
    assert "0/1, 1 failed" in capsys.readouterr().out
    assert main(["connect", "status", "a", "--url", url]) == 0
    shown = capsys.readouterr().out
    assert "it broke" in shown
    assert "at x" not in shown


def test_create_from_properties_and_json(
    worker: tuple[str, type[_Worker]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, handler = worker
    handler.answers["POST /connectors"] = (201, {})
    (tmp_path / "a.properties").write_text("name=a\nconnector.class=FileStreamSource\n")
    (tmp_path / "b.json").write_text('{"name": "b", "config": {"connector.class": "X"}}')
    assert main(["connect", "create", str(tmp_path / "a.properties"), "--url", url]) == 0
    assert main(["connect", "create", str(tmp_path / "b.json"), "--url", url]) == 0
    assert [body for _, _, body in handler.seen] == [
        {"name": "a", "config": {"name": "a", "connector.class": "FileStreamSource"}},
        {"name": "b", "config": {"connector.class": "X", "name": "b"}},
    ]


def test_errors_are_one_line(worker: tuple[str, type[_Worker]], capsys: pytest.CaptureFixture[str]) -> None:
    url, handler = worker
    handler.answers["DELETE /connectors/x"] = (404, {"error_code": 404, "message": "Connector x not found"})
    assert main(["connect", "delete", "x", "--url", url]) == 1
    assert capsys.readouterr().err.strip() == "Connector x not found"
    assert main(["connect", "list", "--url", "http://127.0.0.1:1"]) == 1
    assert "no Connect worker answers at http://127.0.0.1:1" in capsys.readouterr().err
    assert main(["connect", "pause", "x", "--url", "localhost"]) == 2
