"""Whatever is wrong, the answer is Confluent's error JSON."""

import socket
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from millstream.testing import Broker
from tests.support.waiting import wait_until

from .rest_client import V2, RunningRest, media_type
from .test_produce import refused
from .test_records import lines


def test_media_types(rest: RunningRest, cluster: str, topic: str) -> None:
    http = rest.http
    body = '{"records": [{"value": 1}]}'
    for kind in ("application/json", V2, "text/plain", "application/x-www-form-urlencoded"):
        answer = http.post(f"/topics/{topic}", content=body, headers={"Content-Type": kind})
        assert refused(answer) == (415, 415), kind
    assert refused(http.get("/topics", headers={"Accept": "text/html"})) == (406, 406)
    assert (
        http.get("/topics", headers={"Accept": "application/json"}).headers["content-type"]
        == "application/json"
    )
    many = "text/html, application/vnd.kafka.v2+json;q=0.1"
    assert http.get("/topics", headers={"Accept": many}).headers["content-type"] == V2
    assert refused(http.get(f"{cluster}/topics", headers={"Accept": V2})) == (406, 406)
    assert refused(
        http.put(f"{cluster}/topics/{topic}/configs/x", content="{}", headers={"Content-Type": V2})
    ) == (
        415,
        415,
    )


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"nonsense", b"[" * 100_000])
def test_no_json(rest: RunningRest, cluster: str, topic: str, content: bytes) -> None:
    kind = {"Content-Type": media_type("json")}
    assert refused(rest.http.post(f"/topics/{topic}", content=content, headers=kind)) == (400, 400)
    kind = {"Content-Type": "application/json"}
    assert refused(rest.http.post(f"{cluster}/topics", content=content, headers=kind)) == (400, 400)
    kind = {"Content-Type": V2}
    assert refused(rest.http.post("/consumers/g", content=content, headers=kind)) == (400, 400)


def test_no_such_thing(rest: RunningRest, cluster: str) -> None:
    assert refused(rest.http.get("/nonsense")) == (404, 404)
    assert refused(rest.http.get(f"{cluster}/nonsense")) == (404, 404)
    assert refused(rest.http.delete("/topics")) == (405, 405)
    assert refused(rest.http.get("/consumers/g/instances/nobody/records")) == (404, 40403)
    kind = {"Content-Type": V2}
    for path in (
        "subscription",
        "assignments",
        "positions",
        "positions/beginning",
        "positions/end",
        "offsets",
    ):
        body: dict[str, Any] = {"topics": ["t"]} if path == "subscription" else {"partitions": []}
        body = {} if path in ("positions", "offsets") else body
        answer = rest.http.post(f"/consumers/g/instances/nobody/{path}", json=body, headers=kind)
        assert refused(answer) == (404, 40403), path


def test_bodies_that_are_too_large(rest: RunningRest, topic: str) -> None:
    kind = {"Content-Type": media_type("json")}
    content = b'{"records": [{"value": "' + b"x" * 11_000_000 + b'"}]}'
    assert refused(rest.http.post(f"/topics/{topic}", content=content, headers=kind)) == (413, 413)
    parts = (content[start : start + 100_000] for start in range(0, len(content), 100_000))
    answer = rest.http.post(f"/topics/{topic}", content=parts, headers=kind)
    assert refused(answer) == (413, 413)


def test_broker_away() -> None:
    settings = {
        "client.default.api.timeout.ms": 1000,
        "producer.delivery.timeout.ms": 1500,
        "consumer.request.timeout.ms": 300,
    }
    with (
        Broker({"group.initial.rebalance.delay.ms": 0}) as broker,
        RunningRest(broker.bootstrap_servers, settings=settings) as rest,
    ):
        cluster = f"/v3/clusters/{rest.http.get('/v3/clusters').json()['data'][0]['cluster_id']}"
        assert rest.produce("t", "json", [{"value": 1}]).status_code == 200
        consumer = rest.consumer("g")
        consumer.subscribe("t")
        assert consumer.read(1)[0]["value"] == 1
        broker.stop()
        assert refused(rest.http.get("/topics")) == (500, 50003)
        assert refused(rest.http.get(f"{cluster}/topics")) == (500, 50003)
        assert refused(rest.produce("other", "json", [{"value": 1}])) == (500, 50003)
        (offset,) = rest.produce("t", "json", [{"value": 2}]).json()["offsets"]
        assert offset["error_code"] == 50003, offset
        answer = rest.http.post(f"{cluster}/topics/t/records", json={"value": {"type": "JSON", "data": 1}})
        assert [one["error_code"] for one in lines(answer.text)] == [50003]
        assert consumer.records().json() == []
        broker.start()
        wait_until(
            lambda: (
                rest.produce("t", "json", [{"value": 3}]).json().get("offsets", [{}])[0].get("offset")
                is not None
            )
        )
        assert consumer.read(1)[-1]["value"] == 3
        assert rest.http.get("/topics").status_code == 200
        assert consumer.delete().status_code == 204


def test_no_broker_at_the_start() -> None:
    settings = {"client.default.api.timeout.ms": 500}
    with RunningRest("127.0.0.1:1", settings=settings) as rest:
        assert rest.http.get("/").status_code == 200
        assert refused(rest.http.get("/v3/clusters")) == (500, 50003)
        assert refused(rest.produce("t", "json", [{"value": 1}])) == (500, 50003)


def test_topics_are_not_created() -> None:
    with (
        Broker({"auto.create.topics.enable": "false"}) as broker,
        RunningRest(broker.bootstrap_servers) as rest,
    ):
        assert refused(rest.produce("t", "json", [{"value": 1}])) == (404, 40401)
        cluster = rest.http.get("/v3/clusters").json()["data"][0]["cluster_id"]
        path = f"/v3/clusters/{cluster}/topics/t/records"
        answer = rest.http.post(path, json={"value": {"type": "JSON", "data": 1}})
        assert [one["error_code"] for one in lines(answer.text)] == [40403]


def test_registry_away(bootstrap: str, topic: str, group: str) -> None:
    with RunningRest(bootstrap, "http://127.0.0.1:1") as rest:
        answer = rest.produce(topic, "avro", [{"value": 1}], value_schema='"int"')
        assert refused(answer) == (422, 42207)
        rest.produce(topic, "binary", [{"value": "AAAAAAEC"}])
        consumer = rest.consumer(group, "avro")
        consumer.subscribe(topic)
        found: list[httpx.Response] = []

        def tells() -> bool:
            found.append(consumer.records())
            return found[-1].status_code != 200

        wait_until(tells)
        assert refused(found[-1]) == (408, 40801)


def test_only_one_version(bootstrap: str) -> None:
    with RunningRest(bootstrap, settings={"api.v2.enable": "false"}) as rest:
        assert refused(rest.http.get("/topics")) == (404, 404)
        assert rest.http.get("/v3/clusters").status_code == 200


def test_addresses(bootstrap: str, group: str) -> None:
    settings = {"advertised.listeners": "http://proxy.example.org:80,https://x:1"}
    with RunningRest(bootstrap, settings=settings) as rest:
        body = rest.http.get("/v3/clusters").json()
        assert body["metadata"]["self"] == "http://proxy.example.org:80/v3/clusters"
        answer = rest.http.post(f"/consumers/{group}", json={"name": "a b"}, headers={"Content-Type": V2})
        expected = f"http://proxy.example.org:80/consumers/{group}/instances/a%20b"
        assert answer.json()["base_uri"] == expected


def test_strange_hosts(bootstrap: str) -> None:
    """Even where any name is allowed, answers do not repeat what is none."""
    with RunningRest(bootstrap, settings={"allowed.hosts": "*"}) as rest:
        host, _, port = rest.url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b'GET /v3/clusters HTTP/1.1\r\nHost: a"><b\r\nConnection: close\r\n\r\n')
            answer = b""
            while part := connection.recv(65536):
                answer += part
        assert b'a\\"' not in answer and f"{rest.url}/v3/clusters".encode() in answer


def test_a_password_and_https(bootstrap: str, tmp_path: Path) -> None:
    pem, users = tmp_path / "server.pem", tmp_path / "users"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        "key.pem",
        "-out",
        "cert.pem",
    ]
    more = ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    try:
        subprocess.run([*command, *more], cwd=tmp_path, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed (apt-get install openssl)")
    pem.write_text((tmp_path / "key.pem").read_text() + (tmp_path / "cert.pem").read_text())
    users.write_text("alice: secret, admin\nbob: look, readonly\n")
    settings = {
        "listeners": "https://127.0.0.1:0",
        "ssl.keystore.location": pem,
        "authentication.method": "BASIC",
        "authentication.user.file": users,
    }
    with RunningRest(bootstrap, settings=settings, verify=str(tmp_path / "cert.pem")) as rest:
        assert rest.url.startswith("https://")
        assert refused(rest.http.get("/topics")) == (401, 401)
        assert refused(rest.http.get("/topics", auth=("alice", "wrong"))) == (401, 401)
        body = rest.http.get("/v3/clusters", auth=("alice", "secret")).json()
        assert body["metadata"]["self"].startswith("https://")
        assert rest.http.get("/topics", auth=("bob", "look")).status_code == 200
        answer = rest.http.post("/consumers/g", auth=("bob", "look"), headers={"Content-Type": V2})
        assert refused(answer) == (403, 403)


def test_it_stops_cleanly(bootstrap: str, topic: str, group: str) -> None:
    rest = RunningRest(bootstrap).start()
    rest.produce(topic, "json", [{"value": 1}])
    consumer = rest.consumer(group)
    consumer.subscribe(topic)
    consumer.read(1)
    assert rest.stop() == 0  # and what was given out is committed
    with RunningRest(bootstrap) as again:
        again.produce(topic, "json", [{"value": 2}])
        second = again.consumer(group)
        second.subscribe(topic)
        assert [one["value"] for one in second.read(1)] == [2]
