"""`/metrics` of the registry."""

from pathlib import Path

import httpx

from millstream.testing import Broker
from tests.http import metrics_page
from tests.support.running import RunningRegistry

from .client import Api


def samples(registry: RunningRegistry) -> dict[str, float]:
    answer = registry.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return metrics_page.samples(answer.text)


def requests(found: dict[str, float], method: str, route: str, status: int) -> float:
    labels = f'method="{method}",route="{route}",service="registry",status="{status}"'
    return found.get(f"millstream_http_requests_total{{{labels}}}", 0)


def test_what_it_holds_and_what_was_asked(registry: RunningRegistry, api: Api, subject: str) -> None:
    registry.wait_until_leading()
    before = samples(registry)
    body = {"schema": '{"type": "record", "name": "Told", "fields": [{"name": "%s", "type": "int"}]}'}
    body["schema"] %= subject.replace("-", "_")
    assert registry.http.post(f"/subjects/{subject}/versions", json=body).status_code == 200
    for _ in range(3):  # the second and third come from the cache
        assert registry.http.get(f"/subjects/{subject}/versions").status_code == 200
    assert registry.http.get(f"/contexts/.c/subjects/{subject}/versions").status_code == 404
    assert registry.http.get("/subjects", headers={"Accept": "image/png"}).status_code == 406
    after = samples(registry)
    for name, more in (("subjects", 1), ("schemas", 1), ('versions{deleted="false",type="AVRO"}', 1)):
        key = f"millstream_registry_{name}"
        assert after[key] == before.get(key, 0) + more
    assert after["millstream_registry_leads"] == 1
    assert after["millstream_registry_position"] > before["millstream_registry_position"]
    route = "/subjects/{subject}/versions"
    for method, path, status, more in (
        ("POST", route, 200, 1),
        ("GET", route, 200, 3),
        ("GET", route, 404, 1),
        ("GET", "other", 406, 1),
    ):
        asked = requests(after, method, path, status) - requests(before, method, path, status)
        assert asked == more, (method, path, status)
    assert not any(subject in name for name in after)
    assert "/metrics" not in registry.http.get("/openapi.json").json()["paths"]


def test_it_is_behind_the_password_unless_that_is_skipped(broker: Broker, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("alice: secret, admin\n")
    settings = {
        "kafkastore.topic": "told",
        "schema.registry.group.id": "told",
        "authentication.method": "BASIC",
        "authentication.user.file": users,
    }
    with RunningRegistry(broker.bootstrap_servers, settings) as running:
        assert running.http.get("/metrics").status_code == 401
        found = running.http.get("/metrics", auth=httpx.BasicAuth("alice", "secret"))
        assert requests(metrics_page.samples(found.text), "GET", "/metrics", 401) == 1
    with RunningRegistry(
        broker.bootstrap_servers, {**settings, "authentication.skip.paths": "/metrics"}
    ) as running:
        assert running.http.get("/metrics").status_code == 200
        assert running.http.get("/subjects").status_code == 401
