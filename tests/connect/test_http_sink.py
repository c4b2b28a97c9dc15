"""The HTTP sinks against a server that fails by script."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from millstream.connect.config.config_def import ConfigError
from millstream.connect.errors import ConnectError, RetriableError
from millstream.testing.connect import SinkRun
from tests.support.http_server import Answer, Request, ScriptedServer

AIVEN = "io.aiven.kafka.connect.http.HttpSinkConnector"
CONFLUENT = "io.confluent.connect.http.HttpSinkConnector"


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as made:
        yield made


def test_a_request_for_each_record_with_its_place(server: ScriptedServer) -> None:
    sink = SinkRun(
        AIVEN,
        {
            "http.url": server.url,
            "http.headers.additional": "X-One:1, X-Two:a:b",
            "http.headers.content.type": "application/json",
        },
    )
    sink.send({"n": 1}, topic="orders")
    sink.send("text", topic="orders")
    sink.run()
    assert [(one.method, one.body) for one in server.requests] == [("POST", b'{"n":1}'), ("POST", b"text")]
    assert [one.headers["Idempotency-Key"] for one in server.requests] == ["orders-0-0", "orders-0-1"]
    assert server.requests[0].headers["X-Two"] == "a:b"
    assert server.requests[0].headers["Content-Type"] == "application/json"
    assert sink.lag == 0


def test_batches(server: ScriptedServer) -> None:
    sink = SinkRun(
        AIVEN,
        {
            "http.url": server.url,
            "batching.enabled": "true",
            "batch.max.size": "2",
            "batch.prefix": "[",
            "batch.separator": ",",
            "batch.suffix": "]",
        },
    )
    for number in range(3):
        sink.send({"n": number})
    sink.run()
    assert [json.loads(one.body) for one in server.requests] == [[{"n": 0}, {"n": 1}], [{"n": 2}]]


def test_a_server_that_is_away_delays_and_nothing_is_sent_twice(server: ScriptedServer) -> None:
    states = iter([200, 503, 429])
    server.answer = lambda _request: (next(states, 200), b"busy")
    sink = SinkRun(AIVEN, {"http.url": server.url, "max.retries": "-1", "retry.backoff.ms": "100"})
    for number in range(3):
        sink.send(str(number))
    delays = []
    while True:
        try:
            if not sink.step():
                break
        except RetriableError as error:
            delays.append(error.delay)
            if len(delays) == 2:
                server.stop()
            if len(delays) == 3:
                server.start()
    assert delays == [0.1, 0.2, 0.4]
    assert [one.body for one in server.requests] == [b"0", b"1", b"1", b"1", b"2"]
    assert sink.lag == 0


def test_retries_end(server: ScriptedServer) -> None:
    server.answer = lambda _request: (500, b"")
    sink = SinkRun(AIVEN, {"http.url": server.url, "max.retries": "1"})
    sink.send("x")
    for kind in (RetriableError, ConnectError):
        with pytest.raises(kind) as raised:
            sink.run()
    assert not isinstance(raised.value, RetriableError)
    assert "max.retries" in str(raised.value)


def test_the_one_record_that_is_refused_is_the_dead_letter(server: ScriptedServer) -> None:
    server.answer = lambda request: (422 if b"bad" in request.body else 200, b"no")
    sink = SinkRun(AIVEN, {"http.url": server.url, "batching.enabled": "true"}, tolerate=True)
    for value in ("a", "bad", "c"):
        sink.send(value)
    sink.run()
    assert [(record.value, str(error)) for record, error in sink.rejected] == [
        ("bad", f"{server.url} answered 422: no")
    ]
    assert [one.body for one in server.requests] == [b"a\nbad\nc", b"a", b"bad", b"c"]


def test_tokens_are_taken_and_renewed(server: ScriptedServer) -> None:
    tokens = iter(["old", "new"])

    def answer(request: Request) -> Answer:
        if request.path == "/token":
            assert request.headers["Authorization"] == "Basic " + base64.b64encode(b"me:geheim").decode()
            assert request.body == b"grant_type=client_credentials&scope=all"
            return 200, json.dumps({"access_token": next(tokens)}).encode()
        return (200, b"") if request.headers["Authorization"] == "Bearer new" else (401, b"")

    server.answer = answer
    sink = SinkRun(
        AIVEN,
        {
            "http.url": f"{server.url}/in",
            "http.authorization.type": "oauth2",
            "oauth2.access.token.url": f"{server.url}/token",
            "oauth2.client.id": "me",
            "oauth2.client.secret": "geheim",
            "oauth2.client.scope": "all",
        },
    )
    sink.send("x")
    sink.send("y")
    sink.run()
    assert [one.path for one in server.requests] == ["/token", "/in", "/token", "/in", "/in"]


def test_who_is_not_allowed_fails_and_says_no_secret(server: ScriptedServer) -> None:
    server.answer = lambda _request: (403, b"go away")
    url = server.url.replace("http://", "http://user:geheim@")
    sink = SinkRun(
        AIVEN,
        {"http.url": url, "http.authorization.type": "static", "http.headers.authorization": "geheim"},
        tolerate=True,
    )
    sink.send("x")
    with pytest.raises(ConnectError, match="403") as raised:
        sink.run()
    assert "geheim" not in str(raised.value)
    assert server.requests[0].headers["Authorization"] == "geheim"
    assert not sink.rejected


def test_confluents_settings(server: ScriptedServer) -> None:
    sink = SinkRun(
        CONFLUENT,
        {
            "http.api.url": f"{server.url}/${{topic}}/${{key}}",
            "request.method": "put",
            "headers": "A:1|B:2",
            "auth.type": "BASIC",
            "connection.user": "me",
            "connection.password": "geheim",
            "behavior.on.null.values": "delete",
        },
    )
    sink.send({"n": 1}, key="a/b", topic="t")
    sink.send(None, key="c", topic="t")
    sink.run()
    assert [(one.method, one.path) for one in server.requests] == [("PUT", "/t/a%2Fb"), ("DELETE", "/t/c")]
    assert server.requests[0].headers["B"] == "2"
    assert server.requests[0].headers["Authorization"].startswith("Basic ")


def test_wrong_settings() -> None:
    for settings, text in (
        ({"http.url": "ftp://x"}, "malformed URL"),
        ({"http.url": "http://x", "http.authorization.type": "magic"}, "must be one of"),
    ):
        with pytest.raises(ConfigError, match=text):
            SinkRun(AIVEN, settings)
    with pytest.raises(ConnectError, match=r"oauth2\.access\.token\.url"):
        SinkRun(AIVEN, {"http.url": "http://x", "http.authorization.type": "oauth2"})
