"""Console, Connect and SQL server act as users of their own; users of the cluster need DESCRIBE on it to
look, and ALTER to change anything."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from millstream.client import Unreachable
from millstream.client.security import Sasl
from millstream.connect.rest.app import make_app as connect_app
from millstream.connect.worker_config import DistributedConfig
from millstream.console.console_config import ConsoleConfig
from millstream.console.security import SecurityMiddleware, Sessions
from millstream.console.users import user_of
from millstream.http.certificate_callers import CERTIFICATE
from millstream.http.cluster_authentication import cluster_login
from millstream.http.cluster_login import ClusterLogin
from millstream.http.service_config import ServiceConfig
from millstream.sql.catalog import Catalog
from millstream.sql.results import ResultColumn, ResultStream
from millstream.sql.server.app import make_app as sql_app
from millstream.sql.server.connectors import Connectors
from millstream.sql.server.service import SqlService
from millstream.sql.server.sql_config import SqlConfig
from millstream.sql.statements import Show
from millstream.sql.types import INTEGER
from millstream.wire.acls import Operation, ResourceType
from millstream.wire.errors import ErrorCode, KafkaError
from tests.console.console_client import RunningConsole
from tests.support.http_server import ScriptedServer
from tests.support.waiting import wait_until

from .conftest import Platform

SETTINGS = {
    "bootstrap.servers": "127.0.0.1:1",
    "authentication.method": "BASIC",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "service",
    "sasl.password": "own",
}
OPERATIONS = {"guest": 0, "viewer": 1 << Operation.DESCRIBE}
OPERATIONS["editor"] = OPERATIONS["viewer"] | 1 << Operation.ALTER


def operations(sasl: Sasl) -> int:
    if sasl.password != "right":  # noqa: S105
        raise KafkaError(ErrorCode.sasl_authentication_failed, "no")
    return OPERATIONS[sasl.username]


def login_of(config: ServiceConfig, client: Any) -> ClusterLogin:
    login = cluster_login(config, client)
    assert login is not None
    login._operations = operations  # type: ignore[method-assign]
    return login


def statuses(app: Any, request: Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]) -> list[int]:
    """What a guest, a viewer and an editor get, and who has a wrong password or none."""

    async def ask() -> list[int]:
        found = []
        transport = httpx.ASGITransport(app)
        logins: list[tuple[str, str] | None] = [(name, "right") for name in OPERATIONS]
        for auth in (*logins, ("editor", "wrong"), None):
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost", auth=auth) as http:
                found.append((await request(http)).status_code)
        return found

    return asyncio.run(ask())


def test_connect() -> None:
    config = DistributedConfig({**SETTINGS, "group.id": "g"})
    login = login_of(config, config.client)
    app = connect_app(None, config, login)  # type: ignore[arg-type]
    plugin = "FileStreamSource"
    assert statuses(app, lambda http: http.get("/connector-plugins")) == [403, 200, 200, 401, 401]
    changes = statuses(
        app, lambda http: http.put(f"/connector-plugins/{plugin}/config/preview?records=0", json={})
    )
    assert changes == [403, 403, 400, 401, 401]
    login.close()


def test_sql() -> None:
    config = SqlConfig(SETTINGS)
    login = login_of(config, config.client())
    app = sql_app(SqlService(config), login)
    assert statuses(app, lambda http: http.get("/healthcheck"))[:2] == [403, 503]
    changes = statuses(app, lambda http: http.post("/ksql", json={}))
    assert changes[:2] == [403, 403] and changes[2] not in (401, 403) and changes[3:] == [401, 401]
    login.close()


def connectors_of_callers(monkeypatch: pytest.MonkeyPatch, more: dict[str, str]) -> list[str | None]:
    """The logins by which the Connect worker is asked, when a viewer by password and one by certificate ask
    for its connectors."""
    certificates = {
        "authentication.method": "BASIC,CERTIFICATE",
        "ssl.client.authentication": "REQUESTED",
    }
    worker = ScriptedServer()
    config = SqlConfig({**SETTINGS, **certificates, "ksql.connect.url": worker.url, **more})
    service = SqlService(config)
    connectors = Connectors(config, lambda _: {})
    monkeypatch.setattr(service, "execute", lambda *_: [connectors.execute(Show("CONNECTORS"), Catalog())])
    login = login_of(config, config.client())
    assert login.certificates is not None
    token = Sasl("SCRAM-SHA-512", "token-id", "hmac", delegated=True)
    monkeypatch.setattr(login.certificates, "user", lambda _: "carol")
    monkeypatch.setattr(login.certificates, "log_in", lambda *_: (token, OPERATIONS["editor"]))
    app = sql_app(service, login)

    async def with_certificate(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, CERTIFICATE: b"DER"}, receive, send)

    async def ask() -> None:
        for over, auth in ((app, ("editor", "right")), (with_certificate, None)):
            transport = httpx.ASGITransport(over)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost", auth=auth) as http:
                answer = await http.post("/ksql", json={"ksql": "SHOW CONNECTORS;"})
                assert answer.status_code == 200, answer.text

    with worker:
        asyncio.run(ask())
    login.close()
    return [request.headers.get("Authorization") for request in worker.requests]


def test_sql_asks_connect_as_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may not change connectors at the worker cannot do it by SQL either."""
    by_password, by_certificate = connectors_of_callers(monkeypatch, {})
    assert by_password == "Basic " + base64.b64encode(b"editor:right").decode()
    assert by_certificate == "Delegation " + base64.b64encode(b"token-id:hmac").decode()


def test_sql_asks_connect_by_a_login_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "login").write_text("username=sql\npassword=own\n")
    own = {"source": "FILE", "file": str(tmp_path / "login")}
    asked = connectors_of_callers(
        monkeypatch, {f"ksql.connect.basic.auth.credentials.{name}": value for name, value in own.items()}
    )
    assert asked == ["Basic " + base64.b64encode(b"sql:own").decode()] * 2


def guarded_console() -> tuple[Any, Sessions, ClusterLogin, list[Any]]:
    """What guards the console, around a stream that goes on until it is cancelled, and who logs in."""
    config = ConsoleConfig(
        {
            "authentication.method": "BASIC",
            **{f"client.{name}": value for name, value in SETTINGS.items() if not name.startswith("auth")},
        }
    )
    login = ClusterLogin(config.client("test"))
    login._operations = operations  # type: ignore[method-assign]
    sessions = Sessions(config, True, login)
    served: list[Any] = []

    async def stream(scope: Any, _receive: Any, send: Any) -> None:
        served.append(scope["state"]["session"].user)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"row", "more_body": True})
        if scope["path"] == "/tail":
            await asyncio.Event().wait()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return SecurityMiddleware(stream, sessions, config), sessions, login, served


async def ask_console(app: Any, session_id: str, path: str) -> list[Any]:
    """The messages of a response."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"accept", b"text/event-stream")],
        "client": ("127.0.0.1", 1),
        "session": {"id": session_id},
    }
    await app(scope, receive, send)
    return sent


def test_guesses_of_others_do_not_end_a_session_of_the_console() -> None:
    async def test() -> None:
        app, sessions, login, served = guarded_console()
        caller = await login.password("viewer", "right", "127.0.0.1")
        session_id = sessions.log_in(user_of(caller), caller)
        login._known.clear()  # the console does not know the caller any more, and somebody has guessed
        for _ in range(20):
            login._failures.add("127.0.0.1")
        refused = (await ask_console(app, session_id, "/topics"))[0]
        assert refused["status"] == 429 and b"retry-after" in dict(refused["headers"])
        login._failures.forget("127.0.0.1")
        assert (await ask_console(app, session_id, "/topics"))[0]["status"] == 200
        assert [one.name for one in served] == ["viewer"]
        login.close()

    asyncio.run(test())


class Answering:
    """Brokers that may also be away, and count how often they were asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.allowed: int | None = OPERATIONS["viewer"]
        self.away = False

    def operations(self, _sasl: Sasl) -> int:
        self.asked += 1
        if self.away:
            raise Unreachable("away")
        if self.allowed is None:
            raise KafkaError(ErrorCode.sasl_authentication_failed, "no")
        return self.allowed

    async def ask_often(self) -> None:
        more = self.asked + 3
        while self.asked < more:  # noqa: ASYNC110 - in a thread
            await asyncio.sleep(0.01)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.http.lasting_requests.AGAIN_SECONDS", 0.01)
    monkeypatch.setattr("millstream.sql.server.websocket.AGAIN_SECONDS", 0.01)
    monkeypatch.setattr("millstream.http.cluster_login.BELIEVED", 0.0)


async def ends_with_authorization(
    request: Awaitable[Any], brokers: Answering, allowed: int | None, has_begun: Callable[[], bool]
) -> Any:
    """What a request gives that goes on while the caller may, and while nobody can say it."""
    going = asyncio.ensure_future(request)
    while not has_begun():  # noqa: ASYNC110 - in a thread
        await asyncio.sleep(0.01)
    await brokers.ask_often()
    brokers.away = True
    await brokers.ask_often()
    brokers.away = False
    await brokers.ask_often()
    assert not going.done()
    brokers.allowed = allowed
    return await asyncio.wait_for(going, 300)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("allowed", [None, 0], ids=["key deleted", "ACL removed"])
def test_a_tail_of_the_console_ends_with_authorization(allowed: int | None) -> None:
    async def test() -> None:
        app, sessions, login, served = guarded_console()
        brokers = Answering()
        login._operations = brokers.operations  # type: ignore[method-assign]
        caller = await login.password("viewer", "right", "127.0.0.1")
        session_id = sessions.log_in(user_of(caller), caller)
        asking = ask_console(app, session_id, "/tail")
        sent = await ends_with_authorization(asking, brokers, allowed, lambda: bool(served))
        assert sent[0]["status"] == 200
        assert [one["body"] for one in sent[1:]] == [b"row", b""] and not sent[-1]["more_body"]
        login.close()

    asyncio.run(test())


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("allowed", [None, 0], ids=["key deleted", "ACL removed"])
@pytest.mark.parametrize("path", ["/query", "/query-stream", "/ws/query"])
def test_a_query_ends_with_authorization(
    path: str, allowed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SqlConfig(SETTINGS)
    service = SqlService(config)
    result = ResultStream("q", (ResultColumn("N", INTEGER),))
    monkeypatch.setattr(service, "query", lambda *_: result)

    async def websocket(app: Any) -> Any:
        sent: list[Any] = []
        events = [{"type": "websocket.connect"}]

        async def receive() -> Any:
            return events.pop() if events else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "websocket",
            "scheme": "ws",
            "path": path,
            "query_string": b"request=%7B%22ksql%22:%22SELECT%22%7D",
            "headers": [(b"host", b"localhost"), (b"authorization", b"Basic dmlld2VyOnJpZ2h0")],
            "client": ("127.0.0.1", 1),
        }
        await app(scope, receive, send)
        return sent

    async def test() -> None:
        login = login_of(config, config.client())
        brokers = Answering()
        login._operations = brokers.operations  # type: ignore[method-assign]
        app = sql_app(service, login)

        def has_begun() -> bool:
            return result._wake is not None  # it is being read, behind the first line

        if path == "/ws/query":
            sent = await ends_with_authorization(websocket(app), brokers, allowed, has_begun)
            assert [one["type"] for one in sent] == ["websocket.accept", "websocket.send", "websocket.close"]
            assert sent[-1]["code"] == 1008
        else:
            transport = httpx.ASGITransport(app)
            auth = ("viewer", "right")
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost", auth=auth) as http:
                post = http.post(path, json={"sql": "SELECT 1;"})
                found = await ends_with_authorization(post, brokers, allowed, has_begun)
            assert found.status_code == 200 and '"queryId":"q"' in found.text
        assert result.closed.is_set()
        login.close()

    asyncio.run(test())


def test_the_consoles_registry_login_is_part_of_its_address() -> None:
    given = {
        "schema.registry.url": "http://localhost:8081",
        "schema.registry.basic.auth.user.info": "con:a/b@c",
    }
    assert ConsoleConfig(given).registry_url == "http://con:a%2Fb%40c@localhost:8081"
    with pytest.raises(ValueError, match="choose one"):
        ConsoleConfig({"users.file": "f", "authentication.method": "BASIC"})
    with pytest.raises(ValueError, match="use NONE, or a list of BASIC"):
        ConsoleConfig({"authentication.method": "BASIC,DIGEST"})


@pytest.fixture(scope="module")
def console(platform: Platform) -> Iterator[RunningConsole]:
    platform.allow("console", ResourceType.TOPIC, "*", Operation.DESCRIBE)
    platform.allow("console", ResourceType.GROUP, "*", Operation.DESCRIBE)
    platform.allow("console", ResourceType.CLUSTER, "kafka-cluster", Operation.DESCRIBE)
    settings = {"authentication.method": "BASIC,BEARER", **platform.properties("console", "client.")}
    with RunningConsole(platform.bootstrap, settings) as running:
        yield running


def test_console_by_key(console: RunningConsole, platform: Platform) -> None:
    account, key, secret = platform.key()
    with console.client() as browser:
        assert browser.get("/topics").url.path == "/login"
        assert browser.form("/login", name=key, password="wrong").status_code == 401  # noqa: S106
        refused = browser.form("/login", name=key, password=secret)
        assert refused.status_code == 403 and "DESCRIBE on the cluster" in refused.text
        platform.allow(account, ResourceType.CLUSTER, "kafka-cluster", Operation.DESCRIBE)
        wait_until(lambda: browser.form("/login", name=key, password=secret).status_code == 200)
        assert browser.get("/topics").url.path == "/topics"
        made = browser.form("/new-topic", name="t-not-mine", partitions=1)
        assert made.status_code == 403, made.text
        platform.admin.delete_key(key)
        wait_until(lambda: browser.get("/topics").url.path == "/login")
        assert browser.form("/login", name=key, password=secret).status_code == 401
        assert secret not in console.log()


def test_console_by_bearer_token(console: RunningConsole, platform: Platform) -> None:
    """For programs: each request says who it is from, and there is no session."""
    name = "bearer-of-console"
    token = platform.secured.tokens.token(name)
    with console.client() as program:
        program.headers["authorization"] = f"Bearer {token}"
        assert program.get("/topics").status_code == 403
        platform.allow(name, ResourceType.CLUSTER, "kafka-cluster", Operation.DESCRIBE)
        wait_until(lambda: program.get("/topics").status_code == 200)
        page = program.get("/topics")
        assert page.url.path == "/topics" and name in page.text
        assert program.form("/new-topic", name="t-not-mine", partitions=1).status_code == 403
        for wrong in (platform.secured.tokens.token(name, seconds=-100), "x.y.z"):
            program.headers["authorization"] = f"Bearer {wrong}"
            assert program.get("/topics").status_code == 401
        del program.headers["authorization"]
        assert program.get("/topics").url.path == "/login"  # the cookie alone is nobody
        assert token not in console.log()
