"""`millstream connect`, against a server that answers as a worker does."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from millstream.cli.app import main
from millstream.cli.certificates import make_certificates


class _Worker(BaseHTTPRequestHandler):
    seen: list[tuple[str, str, Any]] = []
    answers: dict[str, tuple[int, Any]] = {}
    callers: list[str | None] = []

    def _serve(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.seen.append((self.command, self.path, body))
        self.callers.append(self.headers.get("authorization"))
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
    handler = type("Worker", (_Worker,), {"seen": [], "answers": {}, "callers": []})
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


def test_update_takes_the_name_from_the_file(
    worker: tuple[str, type[_Worker]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, handler = worker
    handler.answers["PUT /connectors/a/config"] = handler.answers["PUT /connectors/b/config"] = (200, {})
    (tmp_path / "a.properties").write_text("name=a\nconnector.class=X\n")
    assert main(["connect", "update", str(tmp_path / "a.properties"), "--url", url]) == 0
    assert main(["connect", "update", "b", str(tmp_path / "a.properties"), "--url", url]) == 0
    assert [body["name"] for _, _, body in handler.seen] == ["a", "b"]
    (tmp_path / "c.properties").write_text("connector.class=X\n")
    assert main(["connect", "update", str(tmp_path / "c.properties"), "--url", url]) == 2


def test_validate_asks_by_the_whole_name_of_the_class(
    worker: tuple[str, type[_Worker]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two classes may share the last part of their names."""
    url, handler = worker
    path = "PUT /connector-plugins/io.confluent.connect.http.HttpSinkConnector/config/validate"
    wrong = {"value": {"name": "topics", "errors": ["one", "two"]}}
    handler.answers[path] = (200, {"error_count": 2, "configs": [wrong]})
    (tmp_path / "a.properties").write_text("connector.class=io.confluent.connect.http.HttpSinkConnector\n")
    assert main(["connect", "validate", str(tmp_path / "a.properties"), "--url", url]) == 1
    assert "1 settings are wrong" in capsys.readouterr().err
    handler.answers[path] = (200, {"error_count": 0, "configs": []})
    assert main(["connect", "validate", str(tmp_path / "a.properties"), "--url", url]) == 0
    assert capsys.readouterr().out == "Nothing is wrong with these settings.\n"


def test_errors_are_one_line(worker: tuple[str, type[_Worker]], capsys: pytest.CaptureFixture[str]) -> None:
    url, handler = worker
    handler.answers["DELETE /connectors/x"] = (404, {"error_code": 404, "message": "Connector x not found"})
    assert main(["connect", "delete", "x", "--url", url]) == 1
    assert capsys.readouterr().err.strip() == "Connector x not found"
    assert main(["connect", "list", "--url", "http://127.0.0.1:1"]) == 1
    assert "no Connect worker answers at http://127.0.0.1:1" in capsys.readouterr().err
    assert main(["connect", "pause", "x", "--url", "localhost"]) == 2


def test_logins(
    worker: tuple[str, type[_Worker]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, handler = worker
    handler.answers["GET /connectors?expand=status&expand=info"] = (200, {})
    handler.answers["PUT /connectors/a/pause"] = (401, {"message": "?"})
    assert main(["connect", "list", "--url", url, "--user", "key:secret"]) == 0
    assert main(["connect", "list", "--url", url, "--token", "abc"]) == 0
    assert main(["connect", "list", "--url", url]) == 0
    monkeypatch.setenv("MILLSTREAM_USER", "ann:pw")
    assert main(["connect", "list", "--url", url]) == 0
    assert handler.callers == ["Basic a2V5OnNlY3JldA==", "Bearer abc", None, "Basic YW5uOnB3"]
    capsys.readouterr()
    assert main(["connect", "pause", "a", "--url", url]) != 0
    assert "--user" in capsys.readouterr().err
    monkeypatch.delenv("MILLSTREAM_USER")
    assert main(["connect", "list", "--url", url, "--user", "ann"]) != 0
    assert "USER:PASSWORD" in capsys.readouterr().err


def test_a_worker_behind_tls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_certificates(tmp_path, ["localhost"], "client", 2)
    handler = type("Worker", (_Worker,), {"seen": [], "answers": {}, "callers": []})
    handler.answers["GET /connectors?expand=status&expand=info"] = (200, {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "broker.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"https://localhost:{server.server_port}"
        assert main(["connect", "list", "--url", url, "--ca-file", str(tmp_path / "ca.pem")]) == 0
        assert main(["connect", "list", "--url", url]) != 0
        assert "certificate" in capsys.readouterr().err
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
