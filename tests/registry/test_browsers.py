"""What a web page can have a browser send to the registry."""

import json

import pytest

from millstream.testing import Broker
from tests.support.running import RunningRegistry

from .client import Api, body

A = {"type": "string"}
SCHEMA = json.dumps(body(A))
SIMPLE_TYPES = (None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x")


@pytest.mark.parametrize("content_type", SIMPLE_TYPES)
def test_bodies_that_any_page_can_send(
    registry: RunningRegistry, api: Api, subject: str, content_type: str | None
) -> None:
    """Browsers send these without asking; a Blob without a type makes a body without one."""
    headers = {} if content_type is None else {"Content-Type": content_type}
    for method, path in (
        ("POST", f"/subjects/{subject}/versions"),
        ("POST", f"/subjects/{subject}"),
        ("POST", f"/compatibility/subjects/{subject}/versions"),
        ("PUT", "/config"),
        ("PUT", "/mode"),
    ):
        answer = registry.http.request(method, path, content=SCHEMA, headers=headers)
        assert (answer.status_code, answer.json()["error_code"]) == (415, 415), path
        parts = iter([SCHEMA.encode()])
        assert registry.http.request(method, path, content=parts, headers=headers).status_code == 415
    assert subject not in api.get("/subjects")


def test_pages_of_other_sites(registry: RunningRegistry, api: Api, subject: str) -> None:
    api.register(subject, A)
    path = f"/subjects/{subject}"
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        for method in ("GET", "DELETE", "POST"):
            answer = registry.http.request(method, path, headers=headers)
            assert (answer.status_code, answer.json()["error_code"]) == (403, 403)
        assert registry.http.get("/metrics", headers=headers).status_code == 403
    assert api.get(f"{path}/versions") == [1]
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert registry.http.get(f"{path}/versions", headers=link).status_code == 200
    own = {"Origin": registry.url, "Sec-Fetch-Site": "same-origin"}
    assert registry.http.post(path, json=body(A), headers=own).status_code == 200


def test_names_that_are_made_to_point_here(registry: RunningRegistry, subject: str) -> None:
    for path in ("/", "/subjects", "/metrics", "/docs", "/health"):
        answer = registry.http.get(path, headers={"Host": "evil.example:8081"})
        assert (answer.status_code, answer.json()["error_code"]) == (421, 421), path
        assert "allowed.hosts" in answer.json()["message"]
        assert registry.http.get(path, headers={"Host": "localhost:1"}).status_code == 200


def test_what_settings_let_in(broker: Broker, subject: str) -> None:
    """An instance of its own, beside the one that leads."""
    page, name = "http://ui.example", "registry.corp.example"
    settings = {
        "access.control.allow.origin": page,
        "allowed.hosts": name,
        "leader.eligibility": "false",
        "kafkastore.topic": f"_schemas-{subject}",
        "schema.registry.group.id": subject,
    }
    with RunningRegistry(broker.bootstrap_servers, settings) as running:
        answer = running.http.get("/subjects", headers={"Origin": page, "Sec-Fetch-Site": "cross-site"})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == page
        asked = {"Origin": page, "Access-Control-Request-Method": "POST"}
        assert running.http.options("/subjects/s/versions", headers=asked).status_code == 200
        asked["Origin"] = "http://evil.example"
        assert running.http.options("/subjects/s/versions", headers=asked).status_code == 400
        refused = running.http.get("/subjects", headers={"Origin": "http://evil.example"})
        assert refused.status_code == 403 and "access-control-allow-origin" not in refused.headers
        browser = {"Host": f"{name}:8081", "Accept-Language": "en"}
        assert running.http.get("/subjects", headers=browser).status_code == 200
