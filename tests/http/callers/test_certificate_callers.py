"""Callers by client certificate: the service acts for them by a delegation token whose owner they are."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka import Consumer, Message

from millstream.client import ClientConfig, Cluster
from millstream.client.security import Sasl
from millstream.client.security_admin import DelegationToken, SecurityAdmin
from millstream.http.certificate_callers import CertificateCallers, NotAUser
from millstream.http.cluster_login import Caller
from millstream.rest.clients import CallerClients, ClientFactory
from millstream.rest.producer import Sent
from millstream.rest.rest_config import RestConfig
from millstream.wire.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from tests.client.certificates import Authority
from tests.console.console_client import RunningConsole
from tests.rest.rest_client import RunningRest, media_type
from tests.support.running import RunningRegistry
from tests.support.waiting import wait_until

from .conftest import Platform

READ, WRITE = Operation.READ, Operation.WRITE
RULES = "RULE:CN=([a-z0-9-]+)/$1/,RULE:CN=([A-Z]+)/$1/L"


def listener(platform: Platform) -> dict[str, str]:
    return {
        "listeners": "https://127.0.0.1:0",
        "ssl.keystore.location": str(platform.secured.authority.issue("https")),
        "ssl.truststore.location": str(platform.secured.authority.pem),
        "ssl.client.authentication": "REQUESTED",
        "ssl.principal.mapping.rules": RULES,
        "authentication.method": "BASIC,CERTIFICATE",
    }


@pytest.fixture(scope="module")
def registry(platform: Platform) -> Iterator[RunningRegistry]:
    user = "registry-by-certificate"
    platform.allow(user, ResourceType.TOPIC, "_", Operation.ALL, prefixed=True)
    platform.allow(user, ResourceType.GROUP, "by-certificate", Operation.ALL)
    platform.allow(user, ResourceType.TRANSACTIONAL_ID, "schema-registry", Operation.ALL, prefixed=True)
    platform.allow(user, ResourceType.USER, "User:cert-", Operation.CREATE_TOKENS, prefixed=True)
    own = {"kafkastore.topic": "_by_certificate", "schema.registry.group.id": "by-certificate"}
    settings = {**listener(platform), **own, **platform.properties(user, "kafkastore.")}
    with RunningRegistry(platform.bootstrap, settings, str(platform.secured.authority.pem)) as running:
        yield running


@pytest.fixture(scope="module")
def rest(platform: Platform, registry: RunningRegistry) -> Iterator[RunningRest]:
    user = "rest-by-certificate"
    platform.allow(user, ResourceType.USER, "User:cert-", Operation.CREATE_TOKENS, prefixed=True)
    settings = {
        **listener(platform),
        **platform.properties(user, "client."),
        "schema.registry.basic.auth.credentials.source": "SASL_INHERIT",
        "schema.registry.ssl.truststore.location": str(platform.secured.authority.pem),
    }
    running = RunningRest(platform.bootstrap, registry.url, settings, str(platform.secured.authority.pem))
    with running:
        yield running


def client(url: str, platform: Platform, name: str = "", http2: bool = False) -> httpx.Client:
    """One that shows a certificate of this name."""
    trusted = ssl.create_default_context(cafile=str(platform.secured.authority.pem))
    if name:
        trusted.load_cert_chain(platform.secured.authority.issue(name))
    return httpx.Client(base_url=url, timeout=120, verify=trusted, http2=http2)


def test_records_of_the_one_whose_certificate_it_is(rest: RunningRest, platform: Platform) -> None:
    topic, name = platform.topic(), "cert-writer"
    body = {"records": [{"key": {"k": 1}, "value": {"n": number}} for number in range(3)]}
    headers = {"content-type": media_type("json")}
    with client(rest.url, platform, name) as http:
        refused = http.post(f"/topics/{topic}", json=body, headers=headers)
        assert refused.status_code == 403, refused.text
        platform.allow(name, ResourceType.TOPIC, topic, READ, WRITE)
        sent = wait_until(
            lambda: (
                (answer := http.post(f"/topics/{topic}", json=body, headers=headers)).status_code == 200
                and answer
            )
        )
        assert [one["offset"] for one in sent.json()["offsets"]] == [0, 1, 2], sent.text
        assert http.get("/topics").json() == [topic]  # what the caller may see, not the proxy
        missing = http.post("/topics/not-mine", json=body, headers=headers)
        assert missing.status_code == 403, missing.text
        too_large = {"records": [{"value": "x" * 2_000_000}]}
        answer = http.post(f"/topics/{topic}", json=too_large, headers=headers).json()
        assert answer["offsets"][0]["error_code"] == 50002, answer
    conf = {"bootstrap.servers": platform.secured.servers["PLAINTEXT"], "group.id": "cert-reader"}
    consumer = Consumer({**conf, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        record = wait_until(lambda: (found := consumer.poll(1)) is not None and not found.error() and found)
        assert record.key() == b'{"k":1}' and record.value() == b'{"n":0}'
    finally:
        consumer.close()


V2 = {"content-type": "application/vnd.kafka.v2+json"}


def read(http: httpx.Client, instance: str, count: int) -> list[object]:
    found: list[object] = []

    def enough() -> bool:
        answer = http.get(f"{instance}/records?timeout=500", headers={"accept": media_type("json")})
        assert answer.status_code == 200, answer.text
        found.extend(one["value"] for one in answer.json())
        return len(found) >= count

    wait_until(enough, lambda: str(found))
    return found


def test_consumer_instances_are_the_callers(rest: RunningRest, platform: Platform) -> None:
    topic, name = platform.topic(), "cert-consumer"
    body = {"records": [{"value": number} for number in range(3)]}
    with client(rest.url, platform, name) as http:
        platform.allow(name, ResourceType.TOPIC, topic, READ, WRITE)
        headers = {"content-type": media_type("json")}
        wait_until(lambda: http.post(f"/topics/{topic}", json=body, headers=headers).status_code == 200)
        options = {"format": "json", "auto.offset.reset": "earliest"}
        made = http.post(f"/consumers/{name}", json=options, headers=V2)
        assert made.status_code == 200, made.text
        instance = made.json()["base_uri"]
        assert http.post(f"{instance}/subscription", json={"topics": [topic]}, headers=V2).status_code == 204
        accept = {"accept": media_type("json")}

        def status() -> int:
            return http.get(f"{instance}/records?timeout=100", headers=accept).status_code

        wait_until(lambda: status() == 403)  # no right on the group
        platform.allow(name, ResourceType.GROUP, name, READ)
        wait_until(lambda: status() == 200)
        assert http.post(f"/topics/{topic}", json=body, headers=headers).status_code == 200
        assert len(read(http, instance, 1))
        assert http.delete(instance, headers=V2).status_code == 204


def test_a_consumer_instance_outlives_the_token_it_began_with(platform: Platform) -> None:
    """The proxy replaces tokens before they expire: instances log in by the new one when they have to."""
    topic, name = platform.topic(), "cert-lasting"
    platform.allow(name, ResourceType.TOPIC, topic, READ, WRITE)
    platform.allow(name, ResourceType.GROUP, name, READ)
    platform.secured.add_user(name, "own-secret")
    own = platform.secured.properties("SASL_SSL", "SCRAM-SHA-512", "own-secret", name)
    prefixed = {f"client.{key}": value for key, value in own.items()}
    config = RestConfig({"bootstrap.servers": platform.bootstrap, **prefixed})
    cluster = Cluster(ClientConfig.of(platform.bootstrap, own))
    owner = SecurityAdmin(cluster)

    def caller(token: DelegationToken) -> Caller:
        sasl = Sasl("SCRAM-SHA-512", token.token_id, base64.b64encode(token.hmac).decode(), delegated=True)
        return Caller(name, sasl, token.token_id.encode(), 0, b"the same")

    async def test() -> None:
        callers = CallerClients(ClientFactory(config), lambda _: None)
        first, second = (owner.create_token([], 3_600_000, "") for _ in range(2))
        before = callers.of(caller(first))
        instance = await before.instances.create(name, {"format": "json", "auto.offset.reset": "earliest"})
        await instance.subscribe([topic])

        async def values(count: int) -> list[bytes | None]:
            found: list[bytes | None] = []

            async def render(taken: list[Message]) -> tuple[None, int]:
                found.extend(one.value() for one in taken)
                return None, len(taken)

            while len(found) < count:
                await instance.read(1.0, 1 << 20, render)
            return found

        async def send(value: bytes) -> None:
            (sent,) = await callers.of(caller(second)).producing.send(topic, [(None, value, None, 0, [])])
            assert isinstance(sent, Sent), sent

        await send(b"a")
        after = callers.of(caller(second))
        assert after is not before and after.instances is before.instances
        assert await values(1) == [b"a"]
        owner.expire_token(first.hmac, -1)  # which ends its sessions
        await send(b"b")
        assert await values(1) == [b"b"]
        assert len(callers) == 1
        await callers.close()

    with cluster:
        asyncio.run(test())


def test_schemas_by_the_proxy_are_those_of_the_caller(rest: RunningRest, platform: Platform) -> None:
    topic, name = platform.topic(), "cert-avro"
    platform.allow(name, ResourceType.TOPIC, topic, READ, WRITE)
    body = {"value_schema": '{"type": "string"}', "records": [{"value": "a"}]}
    with client(rest.url, platform, name) as http:
        sent = http.post(f"/topics/{topic}", json=body, headers={"content-type": media_type("avro")})
        assert sent.status_code == 200, sent.text
        assert sent.json()["offsets"][0]["error_code"] is None


@pytest.mark.parametrize("http2", [False, True])
def test_subjects_of_the_one_whose_certificate_it_is(
    registry: RunningRegistry, platform: Platform, http2: bool
) -> None:
    topic, name = platform.topic(), "cert-subjects"
    path, body = f"/subjects/{topic}-value/versions", {"schema": '{"type": "string"}'}
    with client(registry.url, platform, name, http2) as http:
        assert http.post(path, json=body).status_code == 403
        platform.allow(name, ResourceType.TOPIC, topic, READ, WRITE)
        wait_until(lambda: http.post(path, json=body).status_code == 200)
        assert f"{topic}-value" in http.get("/subjects").json()


def test_who_is_not_let_in(registry: RunningRegistry, platform: Platform) -> None:
    other = Authority(platform.secured.authority.pem.parent, "other-authority")
    with client(registry.url, platform) as http:
        assert http.get("/subjects").status_code == 401  # no certificate
        assert http.get("/subjects", auth=platform.user()).status_code == 200  # but a password
    with client(registry.url, platform, "cert-liar") as http:
        # Who names somebody is asked for the password, whatever certificate there is.
        assert http.get("/subjects", auth=("nobody", "x")).status_code == 401
        made_up = {"authorization": "Delegation eDp5"}
        assert http.get("/subjects", headers=made_up).status_code == 401
    for name in ("stranger", "Has Spaces"):  # no CREATE_TOKENS, no rule
        with client(registry.url, platform, name) as http:
            assert http.get("/subjects").status_code == 401, name
    trusted = ssl.create_default_context(cafile=str(platform.secured.authority.pem))
    trusted.load_cert_chain(other.issue("cert-foreign"))
    with (
        httpx.Client(base_url=registry.url, timeout=120, verify=trusted) as http,
        pytest.raises((httpx.ReadError, httpx.ConnectError, httpx.RemoteProtocolError)),
    ):
        http.get("/subjects")
    assert "no delegation token for User:stranger" in registry.log()


def test_a_token_that_was_ended_is_replaced_unless_the_right_to_it_is_gone(
    registry: RunningRegistry, platform: Platform
) -> None:
    name = "cert-revoked"
    platform.secured.add_user(name, "own-secret")
    properties = platform.secured.properties("SASL_SSL", "SCRAM-SHA-512", "own-secret", name)
    with (
        client(registry.url, platform, name) as http,
        Cluster(ClientConfig.of(platform.bootstrap, properties)) as cluster,
    ):
        owner = SecurityAdmin(cluster)

        def tokens() -> list[DelegationToken]:
            assert http.get("/subjects").status_code == 200
            return owner.describe_tokens(None)

        (first,) = tokens()
        assert (first.owner, first.requester) == (f"User:{name}", "User:registry-by-certificate")
        owner.expire_token(first.hmac, -1)
        (second,) = wait_until(lambda: [one for one in tokens() if one.token_id != first.token_id])
        denied = AclBinding(
            ResourceType.USER,
            f"User:{name}",
            PatternType.LITERAL,
            "User:registry-by-certificate",
            "*",
            Operation.CREATE_TOKENS,
            Permission.DENY,
        )
        platform.admin.create_acls([denied])
        owner.expire_token(second.hmac, -1)
        wait_until(lambda: http.get("/subjects").status_code == 401)
    for token in (first, second):
        assert base64.b64encode(token.hmac).decode() not in registry.log()


def test_certificates_that_name_nobody(platform: Platform) -> None:
    callers = CertificateCallers(ClientConfig.of(platform.bootstrap), RULES)
    authority = platform.secured.authority

    def der(name: str, days: float = 1) -> bytes:
        text = authority.issue(name, days=days).read_text()
        begin = "-----BEGIN CERTIFICATE-----"
        return ssl.PEM_cert_to_DER_cert(begin + text.split(begin)[1])

    assert callers.user(der("cert-ann")) == "cert-ann"
    assert callers.user(der("ANN")) == "ann"
    for wrong in (b"", b"\x30\x03abc", der("no such rule"), der("cert-old", days=-1)):
        with pytest.raises(NotAUser):
            callers.user(wrong)


def test_the_console_knows_people_by_their_certificates(platform: Platform) -> None:
    user, name = "console-by-certificate", "cert-person"
    platform.allow(user, ResourceType.USER, "User:cert-", Operation.CREATE_TOKENS, prefixed=True)
    platform.allow(user, ResourceType.CLUSTER, "kafka-cluster", Operation.DESCRIBE)
    settings = {**listener(platform), **platform.properties(user, "client.")}
    with RunningConsole(platform.bootstrap, settings, str(platform.secured.authority.pem)) as console:
        with client(console.url, platform, name) as browser:
            assert browser.get("/topics").headers["location"].startswith("/login")
            platform.allow(name, ResourceType.CLUSTER, "kafka-cluster", Operation.DESCRIBE)
            wait_until(lambda: browser.get("/topics").status_code == 200)
            assert name in browser.get("/topics").text
        with client(console.url, platform) as stranger:
            assert stranger.get("/topics").headers["location"].startswith("/login")
