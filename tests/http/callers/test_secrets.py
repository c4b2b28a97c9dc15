"""Secrets of callers and of the services themselves are nowhere to be seen.

Not in logs at their most talkative, not in metrics, answers or errors of the services, not in what the broker
logs and shows.
"""

from __future__ import annotations

import base64
import contextlib
import socket
from collections.abc import Iterator

import pytest

from millstream.client import Admin, ClientConfig, Cluster
from millstream.wire.acls import Operation, ResourceType
from tests.console.console_client import RunningConsole
from tests.rest.rest_client import RunningRest, media_type
from tests.sql.server.sql_client import RunningSql
from tests.support.running import RunningConnect, RunningRegistry, RunningService

from .conftest import Platform

OWN = "own-of-services-3f9a-secret"
# The first is refused, since nobody answers for Connect; the second cannot be read.
SQL_WITH_SECRETS = (
    "CREATE SOURCE CONNECTOR c WITH ('connector.class'='JdbcSourceConnector',"
    " 'connection.password'='planted-in-connector');",
    "CREATE SOURCE CONNECTOR c WITH ('connection.password'='planted-in-connector', oops);",
)


@pytest.fixture(scope="module")
def services(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningService]]:
    """Each with a password of its own, a locked key, and a log that tells everything."""
    key = platform.secured.authority.issue("talkative", password="planted-key-password")  # noqa: S106
    platform.secured.add_user("talkative", OWN)
    for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
        platform.allow("talkative", kind, "*", Operation.ALL)
    wanted = (Operation.DESCRIBE, Operation.CREATE, Operation.IDEMPOTENT_WRITE)
    platform.allow("talkative", ResourceType.CLUSTER, "kafka-cluster", *wanted)
    own = platform.secured.properties("SASL_SSL", "SCRAM-SHA-512", OWN, "talkative")
    own["ssl.keystore.location"] = str(platform.certificate)

    def settings(prefix: str) -> dict[str, str]:
        return {
            "listeners": "https://127.0.0.1:0",
            "ssl.keystore.location": str(key),
            "ssl.key.password": "planted-key-password",
            "authentication.method": "BASIC,BEARER",
            "log.level": "DEBUG",
            "no.such.setting": "planted-by-mistake",
            **{prefix + name: value for name, value in own.items()},
        }

    folder = tmp_path_factory.mktemp("services")

    def worker_settings() -> dict[str, str]:
        """The names of its Kafka client have no prefix; those of its listeners have."""
        given = settings("")
        https = {"ssl.keystore.location": str(key), "ssl.key.password": given.pop("ssl.key.password")}
        topics = {f"{what}.storage.topic": f"_connect-{what}" for what in ("config", "offset", "status")}
        return {
            **given,
            **{f"listeners.https.{name}": value for name, value in https.items()},
            **topics,
            **{name.replace("topic", "replication.factor"): "1" for name in topics},
            "group.id": "talkative-connect",
            "millstream.driver.dir": str(folder / "driver"),
            "key.converter": "StringConverter",
            "value.converter": "StringConverter",
        }

    trusted = str(platform.secured.authority.pem)
    registry = RunningRegistry(
        platform.bootstrap,
        settings("kafkastore.") | {"kafkastore.topic": "_talkative", "schema.registry.group.id": "talkative"},
        trusted,
    )
    with registry:
        at_registry = {
            "schema.registry.url": registry.url,
            "schema.registry.basic.auth.user.info": f"talkative:{OWN}",
            "schema.registry.ssl.truststore.location": trusted,
        }
        sql_at_registry = {f"ksql.{name}": value for name, value in at_registry.items()}
        with (
            RunningRest(platform.bootstrap, registry.url, settings("client.") | at_registry, trusted) as rest,
            RunningConsole(platform.bootstrap, settings("client.") | at_registry, trusted) as console,
            RunningConnect(platform.bootstrap, worker_settings(), trusted) as connect,
            RunningSql(platform.bootstrap, folder, settings("client.") | sql_at_registry, trusted) as sql,
        ):
            yield [registry, rest, console, connect, sql]


def test_secrets_are_nowhere_to_be_seen(platform: Platform, services: list[RunningService]) -> None:
    name, password = platform.user()
    _, key, key_secret = platform.key()
    token = platform.secured.tokens.token(name)
    expired = platform.secured.tokens.token(name, seconds=-100)
    editor = platform.user()
    platform.allow(editor[0], ResourceType.CLUSTER, "kafka-cluster", Operation.DESCRIBE, Operation.ALTER)
    secrets = [
        editor[1],
        "planted-in-connector",
        password,
        key_secret,
        OWN,
        "planted-key-password",
        "planted-by-mistake",
        "wrong-planted-guess",
    ]
    secrets += [token, token.rpartition(".")[2], expired.rpartition(".")[2]]
    secrets += [
        base64.b64encode(f"{user}:{secret}".encode()).decode()
        for user, secret in ((name, password), (key, key_secret), ("talkative", OWN))
    ]
    shown: list[str] = []
    for service in services:
        with contextlib.closing(service.client()) as http:
            for auth in ((name, password), (key, key_secret), (name, "wrong-planted-guess"), None):
                for path in (
                    "/",
                    "/subjects",
                    "/topics",
                    "/metrics",
                    "/no/such/page",
                    "/subjects/%00/versions",
                ):
                    answer = http.get(path, auth=auth, follow_redirects=True)
                    shown += [answer.text, str(answer.headers)]
                json = {"records": [{"value": 1}], "schema": '{"type": "string"}'}
                for path in ("/topics/not-mine", "/subjects/not-mine/versions"):
                    kind = {"content-type": media_type("json") if "topics" in path else "application/json"}
                    shown.append(http.post(path, json=json, headers=kind, auth=auth).text)
                    shown.append(http.post(path, content=b"{", headers=kind, auth=auth).text)
            for value in (f"Bearer {token}", f"Bearer {expired}", f"Basic {password}", f"Bearer {password}"):
                answer = http.get("/subjects", headers={"authorization": value})
                shown += [answer.text, str(answer.headers)]
            if isinstance(service, RunningConnect):
                config = {"connection.password": "planted-in-connector", "tasks.max": "none"}
                for plugin in ("JdbcSourceConnector", "JdbcSinkConnector"):
                    path = f"/connector-plugins/{plugin}/config/validate"
                    answer = http.put(path, json={"connector.class": plugin, **config}, auth=editor)
                    assert answer.status_code == 200, answer.text
                    shown.append(answer.text)
            if isinstance(service, RunningSql):
                for statement in SQL_WITH_SECRETS:
                    shown.append(http.post("/ksql", json={"ksql": statement}, auth=editor).text)
            if isinstance(service, RunningConsole):
                for given in (password, "wrong-planted-guess"):
                    shown.append(http.form("/login", name=name, password=given).text)  # type: ignore[attr-defined]
                shown.append(http.get("/services").text)
        shown.append(service.log())
    with Cluster(ClientConfig.of(platform.secured.servers["PLAINTEXT"])) as cluster:
        shown.append(str(Admin(cluster).describe_configs([(4, "1")])))
    shown.append(platform.secured.broker.log)
    for secret in secrets:
        for text in shown:
            at = text.find(secret)
            assert at < 0, f"{secret[:12]}... in: {text[max(0, at - 300) : at]}"


def test_handshakes_that_stall_hold_up_nobody(platform: Platform, services: list[RunningService]) -> None:
    """Half-open connections to an HTTPS listener, and bytes that are no handshake."""
    with contextlib.ExitStack() as stack:
        for service in services:
            address = ("127.0.0.1", int(service.url.rpartition(":")[2]))
            for number in range(60):
                stalled = stack.enter_context(socket.create_connection(address, timeout=60))
                if number % 3 == 1:
                    stalled.sendall(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a hello
                elif number % 3 == 2:
                    with contextlib.suppress(OSError):
                        stalled.sendall(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.closing(service.client()) as http:
                assert http.get("/metrics", auth=platform.user()).status_code in (200, 401, 403)
                assert http.get("/health/live").status_code in (200, 401, 404)
