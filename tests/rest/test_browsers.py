"""What a web page can have a browser send to the proxy."""

import pytest

from .rest_client import V2, RunningRest, media_type

ELSEWHERE = ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"})
SIMPLE_TYPES = (None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x")


@pytest.mark.parametrize("content_type", SIMPLE_TYPES)
def test_bodies_that_any_page_can_send(
    rest: RunningRest, cluster: str, topic: str, group: str, content_type: str | None
) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    for path, content in (
        (f"/topics/{topic}", b'{"records": [{"value": 1}]}'),
        (f"/topics/{topic}/partitions/0", b'{"records": [{"value": 1}]}'),
        (f"/consumers/{group}", b'{"format": "json"}'),
        (f"{cluster}/topics/{topic}/records", b'{"value": {"type": "JSON", "data": 1}}'),
        (f"{cluster}/topics", b'{"topic_name": "x"}'),
    ):
        answer = rest.http.post(path, content=content, headers=headers)
        assert (answer.status_code, answer.json()["error_code"]) == (415, 415), path
        assert rest.http.post(path, content=iter([content]), headers=headers).status_code == 415
    ends = rest.http.get(f"/topics/{topic}/partitions/0/offsets").json()
    assert ends == {"beginning_offset": 0, "end_offset": 0}


def test_requests_without_a_body(rest: RunningRest, topic: str, group: str) -> None:
    """A commit has none, so no type can tell who sent it; and reading records moves the instance on."""
    assert rest.produce(topic, "json", [{"value": number} for number in range(3)]).status_code == 200
    consumer = rest.consumer(group, **{"auto.commit.enable": "false"})
    consumer.subscribe(topic)
    assert len(consumer.read(3)) == 3
    for headers in ELSEWHERE:
        assert rest.http.post(f"{consumer.uri}/offsets", headers=headers).status_code == 403
        link = {**headers, "Accept": media_type("json"), "Sec-Fetch-Mode": "navigate"}
        assert rest.http.get(f"{consumer.uri}/records", headers=link).status_code == 403
        assert rest.http.delete(consumer.uri, headers=headers).status_code == 403
    asked = {"partitions": [{"topic": topic, "partition": 0}]}
    assert consumer.get("/offsets", asked).json() == {"offsets": []}
    # A client without any browser header needs no type for it, and a page of the proxy itself may, too.
    assert rest.http.post(f"{consumer.uri}/offsets").status_code == 200
    assert consumer.get("/offsets", asked).json()["offsets"][0]["offset"] == 3
    own = {"Origin": rest.url, "Sec-Fetch-Site": "same-origin", "Content-Type": V2}
    assert rest.http.post(f"{consumer.uri}/offsets", headers=own).status_code == 200
    assert consumer.delete().status_code == 204


def test_names_that_are_made_to_point_here(rest: RunningRest, cluster: str) -> None:
    for path in ("/topics", cluster, "/metrics", "/openapi.json"):
        answer = rest.http.get(path, headers={"Host": "evil.example:8082"})
        assert (answer.status_code, answer.json()["error_code"]) == (421, 421), path
        assert rest.http.get(path, headers={"Host": "localhost:8082"}).status_code == 200


def test_a_proxy_on_the_network(bootstrap: str) -> None:
    """Programs reach it by any name, browsers by those that are configured."""
    settings = {
        "listeners": "http://0.0.0.0:0",
        "host.name": "rest.corp.example",
        "advertised.listeners": "https://gateway.corp.example",
        "allowed.hosts": "other.corp.example",
    }
    with RunningRest(bootstrap, settings=settings) as running:
        url = running.url.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
        for name in ("rest.corp.example", "gateway.corp.example", "other.corp.example", "compose-name"):
            browser = {"Host": f"{name}:8082", "Accept-Language": "en"}
            assert running.http.get(f"{url}/topics", headers=browser).status_code == 200, name
        stranger = {"Host": "stranger.example:8082"}
        assert running.http.get(f"{url}/topics", headers=stranger).status_code == 200
        stranger["Accept-Language"] = "en"
        assert running.http.get(f"{url}/topics", headers=stranger).status_code == 421
