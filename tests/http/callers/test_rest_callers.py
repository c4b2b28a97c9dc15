"""The REST Proxy reaches the cluster as its callers: their ACLs count, and their keys end with them."""

from __future__ import annotations

import base64
from typing import Any

import httpx

from millstream.wire.acls import Operation, ResourceType
from tests.rest.rest_client import V2, RunningRest, media_type
from tests.support.waiting import wait_until

from .conftest import Platform, client

JSON = {"Content-Type": media_type("json")}
RECORD = {"records": [{"value": {"n": 1}}]}
READ, WRITE = Operation.READ, Operation.WRITE


def produce(http: httpx.Client, topic: str) -> httpx.Response:
    return http.post(f"/topics/{topic}", json=RECORD, headers=JSON)


def error_of(answer: httpx.Response) -> tuple[int, int]:
    return answer.status_code, answer.json()["error_code"]


def test_without_a_login_there_is_nothing(rest: RunningRest, platform: Platform, address: str) -> None:
    topic = platform.topic()
    with client(rest.url, None, address) as http:
        for answer in (http.get("/topics"), http.get("/v3/clusters"), produce(http, topic)):
            assert error_of(answer) == (401, 40101)
            challenges = answer.headers.get_list("www-authenticate")
            assert any(one.startswith("Basic realm=") for one in challenges), challenges
        for value in ("Basic !!", "Basic " + base64.b64encode(b"\xff:x").decode(), "Bearer x.y.z", "Basic"):
            assert http.get("/topics", headers={"Authorization": value}).status_code == 401
        # PLAIN separates name and password by NUL.
        planted = base64.b64encode(b"nobody:x\0alice\0y").decode()
        assert http.get("/topics", headers={"Authorization": f"Basic {planted}"}).status_code == 401


def test_the_brokers_rule_what_a_caller_may_do(rest: RunningRest, platform: Platform) -> None:
    name, password = platform.user()
    topic, hidden = platform.topic(), platform.topic()
    with client(rest.url, (name, password)) as http:
        assert topic not in http.get("/topics").json()
        assert error_of(produce(http, topic)) == (403, 40301)
        platform.allow(name, ResourceType.TOPIC, topic, READ, WRITE)
        sent = wait_until(lambda: (answer := produce(http, topic)).status_code == 200 and answer)
        assert sent.json()["offsets"][0]["error_code"] is None
        assert http.get("/topics").json() == [topic]
        cluster = http.get("/v3/clusters").json()["data"][0]["cluster_id"]
        listed = http.get(f"/v3/clusters/{cluster}/topics").json()["data"]
        assert [one["topic_name"] for one in listed] == [topic]
        made = http.post(f"/v3/clusters/{cluster}/topics", json={"topic_name": "t-not-mine"})
        assert error_of(made) == (403, 40301)
        assert http.delete(f"/v3/clusters/{cluster}/topics/{topic}").status_code == 403
        assert error_of(produce(http, hidden)) == (403, 40301)


def test_consumers_belong_to_their_caller(rest: RunningRest, platform: Platform) -> None:
    (name, password), (other, others) = platform.user(), platform.user()
    topic = platform.topic()
    platform.allow(name, ResourceType.TOPIC, topic, READ, WRITE)
    with client(rest.url, (name, password)) as http, client(rest.url, (other, others)) as stranger:
        assert produce(http, topic).status_code == 200
        body = {"format": "json", "auto.offset.reset": "earliest", "name": "mine"}
        path = f"/consumers/g-{name}/instances/mine"

        def instance() -> None:
            made = http.post(f"/consumers/g-{name}", json=body, headers={"Content-Type": V2})
            assert made.status_code == 200, made.text
            subscribed = http.post(
                f"{path}/subscription", json={"topics": [topic]}, headers={"Content-Type": V2}
            )
            assert subscribed.status_code == 204

        def read() -> httpx.Response:
            return http.get(f"{path}/records", headers={"Accept": media_type("json")})

        instance()
        refused = wait_until(lambda: (answer := read()).status_code != 200 and answer)
        assert error_of(refused) == (403, 40301)
        assert http.delete(path, headers={"Content-Type": V2}).status_code == 204
        platform.allow(name, ResourceType.GROUP, f"g-{name}", READ)
        instance()
        found = wait_until(lambda: (answer := read()).status_code == 200 and answer.json())
        assert found[0]["value"] == {"n": 1}
        seen = stranger.get(f"{path}/records", headers={"Accept": media_type("json")})
        assert error_of(seen) == (404, 40403)
        assert http.delete(path, headers={"Content-Type": V2}).status_code == 204


def test_keys_tokens_and_passwords_of_every_kind(rest: RunningRest, platform: Platform) -> None:
    topic = platform.topic()
    account, key, secret = platform.key()
    scram, password = platform.user()
    for user in (account, scram, "bob", "tom"):
        platform.allow(user, ResourceType.TOPIC, topic, WRITE)
    for auth in ((key, secret), (scram, password), ("bob", "bob-secret")):
        with client(rest.url, auth) as http:
            assert produce(http, topic).status_code == 200, auth[0]
    with client(rest.url, None) as http:
        http.headers["Authorization"] = f"Bearer {platform.secured.tokens.token('tom')}"
        assert produce(http, topic).status_code == 200
        http.headers["Authorization"] = f"Bearer {platform.secured.tokens.token('tom', aud='others')}"
        assert error_of(produce(http, topic)) == (401, 40101)


def test_a_deleted_key_is_refused_and_its_clients_end(rest: RunningRest, platform: Platform) -> None:
    account, key, secret = platform.key()
    topic = platform.topic()
    platform.allow(account, ResourceType.TOPIC, topic, READ, WRITE)
    platform.allow(account, ResourceType.GROUP, "g-key", READ)
    with client(rest.url, (key, secret)) as http:
        assert produce(http, topic).status_code == 200
        made = http.post("/consumers/g-key", json={"name": "k"}, headers={"Content-Type": V2})
        assert made.status_code == 200
        platform.admin.delete_key(key)
        # Records that are on their way when the key goes are refused one by one, also with this status.
        wait_until(lambda: produce(http, topic).status_code == 401)
        assert produce(http, topic).json() == {"error_code": 40101, "message": "Unauthorized"}
        path = "/consumers/g-key/instances/k/records"
        assert http.get(path, headers={"Accept": V2}).status_code == 401


def test_guesses_are_limited_by_address_and_hold_up_nobody_else(
    rest: RunningRest, platform: Platform, address: str
) -> None:
    name, password = platform.user()
    with client(rest.url, (name, password), address) as http, client(rest.url, None, address) as guesser:
        assert http.get("/topics").status_code == 200

        def guess(number: int) -> httpx.Response:
            return guesser.get("/topics", auth=(name, f"guess-{number}"))

        answers = [guess(number) for number in range(25)]
        assert [one.status_code for one in answers] == [401] * 20 + [429] * 5
        assert int(answers[-1].headers["retry-after"]) > 0
        # The right password is not found out either, and who had logged in before goes on.
        other, others = platform.user()
        assert guesser.get("/topics", auth=(other, others)).status_code == 429
        assert http.get("/topics").status_code == 200
    # Neither the other addresses nor the service itself pay for it.
    with client(rest.url, (other, others)) as http:
        assert http.get("/topics").status_code == 200


def test_secrets_are_in_no_log_and_no_answer(rest: RunningRest, platform: Platform, address: str) -> None:
    _, key, secret = platform.key()
    topic = platform.topic()
    token = platform.secured.tokens.token("tom", aud="others")
    answers: list[Any] = []
    with client(rest.url, None, address) as http:
        for auth in ((key, secret), (key, f"{secret}-wrong")):
            http.auth = httpx.BasicAuth(*auth)
            answers += [http.get("/topics"), produce(http, topic), http.get("/v3/clusters")]
        http.auth = None
        answers.append(http.get("/topics", headers={"Authorization": f"Bearer {token}"}))
        answers.append(http.get("/metrics", auth=(key, secret)))
    texts = [one.text + str(one.headers) for one in answers]
    texts += [rest.log(), platform.secured.broker.log]
    for text in texts:
        assert secret not in text and token not in text and "rest-secret" not in text
        assert base64.b64encode(f"{key}:{secret}".encode()).decode() not in text
