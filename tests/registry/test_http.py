"""The HTTP side: media types, unknown paths, broken bodies, sizes, the OpenAPI page."""

import json
import socket

import httpx
import pytest

from tests.support.running import RunningRegistry

from .client import Api, body
from .test_subjects import A

V1 = "application/vnd.schemaregistry.v1+json"


def error(response: httpx.Response) -> tuple[int, int]:
    answer = response.json()
    assert set(answer) == {"error_code", "message"}
    return response.status_code, answer["error_code"]


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("*/*", V1),
        (V1, V1),
        ("application/json", "application/json"),
        ("application/vnd.schemaregistry+json", "application/vnd.schemaregistry+json"),
        (f"{V1}, application/vnd.schemaregistry+json, application/json", V1),
        ("application/json;q=0.9, */*;q=0.1", "application/json"),
    ],
)
def test_media_types_of_answers(registry: RunningRegistry, accept: str, expected: str) -> None:
    response = registry.http.get("/subjects", headers={"Accept": accept})
    assert response.status_code == 200 and response.headers["content-type"] == expected


def test_media_types_that_do_not_fit(registry: RunningRegistry, subject: str) -> None:
    assert error(registry.http.get("/subjects", headers={"Accept": "text/html"})) == (406, 406)
    path = f"/subjects/{subject}/versions"
    sent = registry.http.post(path, content="<xml/>", headers={"Content-Type": "application/xml"})
    assert error(sent) == (415, 415)
    for kind in (V1, "application/json; charset=utf-8", "application/octet-stream"):
        answer = registry.http.post(path, content=json.dumps(body(A)), headers={"Content-Type": kind})
        assert answer.status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/nowhere", (404, 404)),
        ("GET", "/subjects/x", (405, 405)),
        ("PATCH", "/subjects", (405, 405)),
        ("GET", "/schemas/ids/x", (404, 404)),
        ("GET", "/schemas/ids/99999999999999", (404, 404)),
        ("GET", "/schemas/ids/2147483647", (404, 40403)),
        ("GET", "/schemas/ids/-5", (404, 40403)),
    ],
)
def test_paths_that_are_not(
    registry: RunningRegistry, method: str, path: str, expected: tuple[int, int]
) -> None:
    assert error(registry.http.request(method, path)) == expected


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'"text"', b"null", b'{"schema": "\\ud800"}']
)
def test_broken_bodies(registry: RunningRegistry, subject: str, content: bytes) -> None:
    for method, path in (
        ("POST", f"/subjects/{subject}/versions"),
        ("POST", f"/subjects/{subject}"),
        ("POST", f"/compatibility/subjects/{subject}/versions"),
        ("PUT", f"/config/{subject}"),
        ("PUT", f"/mode/{subject}"),
    ):
        response = registry.http.request(method, path, content=content, headers={"Content-Type": V1})
        if response.status_code != 200:
            assert error(response)[0] in (400, 404, 422)


def test_a_body_that_is_too_large(registry: RunningRegistry, subject: str) -> None:
    path = f"/subjects/{subject}/versions"
    headers = {"Content-Type": V1}
    large = b"x" * (11 * 1024 * 1024)
    assert error(registry.http.post(path, content=large, headers=headers)) == (413, 413)

    parts = (b"x" * 1024 * 1024 for _ in range(12))
    assert error(registry.http.post(path, content=parts, headers=headers)) == (413, 413)


def test_root_and_pages(registry: RunningRegistry, api: Api) -> None:
    assert api.get("/") == {}
    assert sorted(api.get("/schemas/types")) == ["AVRO", "JSON", "PROTOBUF"]
    assert "kafka-cluster" in api.get("/v1/metadata/id")["scope"]["clusters"]
    assert api.get("/v1/metadata/version")["version"].startswith("millstream-")
    assert api.get("/v1/metadata/deployment") == {"attributes": []}
    assert registry.http.get("/docs").status_code == 200
    described = registry.http.get("/openapi.json").json()
    assert "/subjects/{subject}/versions" in described["paths"]
    register = described["paths"]["/subjects/{subject}/versions"]["post"]
    assert V1 in register["requestBody"]["content"]


def test_answers_follow_changes_at_once(api: Api, subject: str) -> None:
    """What was answered from memory a moment ago is not answered any more after a change."""
    for round_number in range(1, 4):
        api.register(
            subject,
            {
                "type": "record",
                "name": "R",
                "fields": [{"name": f"f{n}", "type": "int", "default": 0} for n in range(round_number)],
            },
        )
        for _ in range(3):
            assert api.get(f"/subjects/{subject}/versions") == list(range(1, round_number + 1))
            assert api.get(f"/subjects/{subject}/versions/latest")["version"] == round_number


@pytest.mark.parametrize("at_once", [True, False], ids=["one-segment", "body-later"])
def test_offers_of_http2_are_ignored(registry: RunningRegistry, subject: str, at_once: bool) -> None:
    """Java's HTTP client sends them with its first request, and the body goes with it."""
    sent = json.dumps(body(A)).encode()
    head = (
        f"POST /subjects/{subject}/versions HTTP/1.1\r\nHost: {registry.http.base_url.host}\r\n"
        "Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
        f"Upgrade: h2c\r\nContent-Type: {V1}\r\nContent-Length: {len(sent)}\r\n\r\n"
    ).encode()
    address = (registry.http.base_url.host, registry.http.base_url.port or 80)
    with socket.create_connection(address, timeout=60) as connection:
        for data in (head + sent,) if at_once else (head, sent):
            connection.sendall(data)
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert registry.http.get(f"/subjects/{subject}/versions").json() == [1]
