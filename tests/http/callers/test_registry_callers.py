"""Readers and writers of subjects are those of the topics that the subjects belong to."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from fastapi import Request

from millstream.client import ClientConfig, Cluster
from millstream.client.security import Sasl
from millstream.http.cluster_authentication import CALLER
from millstream.http.cluster_login import Caller
from millstream.registry.api.authorization import authorize, topic_of
from millstream.registry.errors import RegistryError
from millstream.registry.topic_authorizer import TopicAuthorizer
from millstream.wire.acls import Operation, ResourceType
from millstream.wire.errors import KafkaError
from tests.rest.rest_client import RunningRest, media_type
from tests.support.running import RunningRegistry
from tests.support.waiting import wait_until

from .conftest import Platform, client

READ, WRITE = Operation.READ, Operation.WRITE


def schema_of(name: str) -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": "n", "type": "int"}]})


def register(http: httpx.Client, subject: str, name: str = "R") -> httpx.Response:
    return http.post(f"/subjects/{subject}/versions", json={"schema": schema_of(name)})


def denied(answer: httpx.Response) -> str:
    assert answer.status_code == 403 and answer.json()["error_code"] == 40301, answer.text
    return str(answer.json()["message"])


def test_a_topic_has_its_subjects() -> None:
    assert topic_of("orders-value") == topic_of("orders-key") == topic_of(":.team:orders-value") == "orders"
    assert topic_of("com.example.Order") == "com.example.Order"
    assert topic_of("-value") == "-value"


def test_confluents_client_by_user_info(registry: RunningRegistry, platform: Platform) -> None:
    topic = platform.topic()
    account, key, secret = platform.key()
    settings = {"url": registry.url, "basic.auth.user.info": f"{key}:{secret}"}
    schema = Schema(schema_of("ByClient"), "AVRO")
    with pytest.raises(SchemaRegistryError) as refused:
        SchemaRegistryClient(settings).register_schema(f"{topic}-value", schema)
    assert (refused.value.http_status_code, refused.value.error_code) == (403, 40301)
    assert refused.value.error_message == f"User is denied operation Write on Subject: {topic}-value"
    platform.allow(account, ResourceType.TOPIC, topic, READ, WRITE)
    registered = wait_until(
        lambda: SchemaRegistryClient(settings).register_schema(f"{topic}-value", schema),
        ignoring=SchemaRegistryError,
    )
    found = SchemaRegistryClient(settings).get_schema(registered)
    assert json.loads(str(found.schema_str))["name"] == "ByClient"
    assert SchemaRegistryClient(settings).get_subjects() == [f"{topic}-value"]
    with pytest.raises(SchemaRegistryError) as refused:
        wrong = {**settings, "basic.auth.user.info": f"{key}:wrong"}
        SchemaRegistryClient(wrong).get_subjects()
    assert refused.value.http_status_code == 401
    platform.admin.delete_key(key)

    def is_refused() -> bool:
        try:
            SchemaRegistryClient(settings).get_subjects()
        except SchemaRegistryError as error:
            return error.http_status_code == 401
        return False

    wait_until(is_refused)


def test_readers_read_and_writers_write(registry: RunningRegistry, platform: Platform) -> None:
    topic, other = platform.topic(), platform.topic()
    reader, writer, admin = platform.user(), platform.user(), platform.user()
    platform.allow(reader[0], ResourceType.TOPIC, topic, READ)
    platform.allow(writer[0], ResourceType.TOPIC, topic, WRITE)
    platform.allow(admin[0], ResourceType.CLUSTER, "kafka-cluster", Operation.ALTER)
    mine, others, team = f"{topic}-value", f"{other}-value", f":.team:{topic}-value"
    with (
        client(registry.url, reader) as reads,
        client(registry.url, writer) as writes,
        client(registry.url, admin) as rules,
    ):
        made = register(writes, mine, f"R{topic[2:]}")
        assert made.status_code == 200, made.text
        # The same id in another context is another schema.
        assert rules.put(f"/config/{mine}", json={"compatibility": "NONE"}).status_code == 200
        secret = register(rules, others, f"S{topic[2:]}").json()["id"]
        assert register(writes, team).status_code == 200
        schema_id = made.json()["id"]
        assert denied(register(reads, mine)) == f"User is denied operation Write on Subject: {mine}"
        assert reads.get("/subjects").json() == [team, mine]
        assert reads.get(f"/subjects/{mine}/versions/latest").json()["id"] == schema_id
        assert reads.get(f"/schemas/ids/{schema_id}").status_code == 200
        assert reads.get(f"/schemas/ids/{schema_id}/subjects").json() == [mine]
        assert {one["subject"] for one in reads.get("/schemas?subjectPrefix=:*:").json()} == {mine, team}
        looked_up = reads.post(f"/subjects/{mine}", json={"schema": schema_of(f"R{topic[2:]}")})
        assert looked_up.json()["id"] == schema_id
        assert denied(reads.get(f"/schemas/ids/{secret}")) == "User is denied operation Read on Schema"
        guid = rules.get(f"/subjects/{others}/versions/1").json()["guid"]
        for path in (
            f"/schemas/ids/{secret}/schema",
            f"/schemas/ids/{secret}/subjects",
            f"/schemas/guids/{guid}",
            f"/schemas/guids/{guid}/ids",
            f"/subjects/{others}/versions",
            f"/contexts/.team/subjects/{others}/versions",
            f"/config/{others}",
            "/config",
            "/mode",
            "/contexts",
        ):
            denied(reads.get(path))
        assert denied(writes.get(f"/subjects/{mine}/versions")).startswith("User is denied operation Read")
        for answer in (
            reads.delete(f"/subjects/{mine}"),
            reads.put(f"/config/{mine}", json={"compatibility": "NONE"}),
            writes.put("/config", json={"compatibility": "NONE"}),
            writes.put("/mode/:.team:", json={"mode": "READONLY"}),
            writes.put(f"/mode/{mine}", json={"mode": "IMPORT"}),
            writes.put(f"/mode/{mine}?force=true", json={"mode": "import"}),
            reads.post("/dek-registry/v1/keks", json={}),
            reads.post(f"/compatibility/subjects/{others}/versions/1", json={"schema": schema_of("R")}),
        ):
            denied(answer)
        # The same schema in a context where the caller may read it.
        assert register(rules, f":.other:{topic}-value", f"S{topic[2:]}").status_code == 200
        assert reads.get(f"/schemas/guids/{guid}").status_code == 200
        assert [one["context"] for one in reads.get(f"/schemas/guids/{guid}/ids").json()] == [".other"]
        # A subject that stands for another one opens no way to it.
        for alias in ("alias", "aliasForDeks"):
            answer = writes.put(f"/config/{mine}", json={alias: others})
            assert denied(answer) == f"User is denied operation Write on Subject: {others}"
        assert rules.put(f"/config/{mine}", json={"alias": others}).status_code == 200
        denied(reads.get(f"/subjects/{mine}/versions/latest"))
        assert {others, mine, team} <= set(rules.get("/subjects").json())
        assert reads.get("/schemas/types").status_code == 200


def test_an_alias_that_changes_while_the_brokers_are_asked() -> None:
    aliases: dict[str, str] = {}
    asked: list[set[str]] = []

    async def operations(_caller: Caller, topics: Iterable[str]) -> dict[str, int]:
        asked.append(set(topics))
        aliases["mine-value"] = "orders-value"
        return {topic: 1 << WRITE if topic == "mine" else 0 for topic in topics}

    state = SimpleNamespace(
        authorizer=SimpleNamespace(operations=operations),
        service=SimpleNamespace(subject=lambda text, of_deks=False: aliases.get(text, text)),
    )
    scope = {
        "type": "http",
        "method": "POST",
        "app": SimpleNamespace(state=state),
        "route": SimpleNamespace(path="/subjects/{subject:subject}/versions"),
        "path_params": {"subject": "mine-value"},
        CALLER: Caller("ann", Sasl("PLAIN", "ann", "a"), b"ann", 0),
    }
    with pytest.raises(RegistryError, match="denied operation Write on Subject: orders-value"):
        asyncio.run(authorize(Request(scope)))
    assert asked == [{"mine"}, {"mine", "orders"}]


def test_an_alias_that_changes_while_the_body_is_held_back(
    registry: RunningRegistry, platform: Platform
) -> None:
    mine, others = f"{platform.topic()}-value", f"{platform.topic()}-value"
    writer, admin = platform.user(), platform.user()
    platform.allow(writer[0], ResourceType.TOPIC, topic_of(mine), READ, WRITE)
    platform.allow(admin[0], ResourceType.CLUSTER, "kafka-cluster", Operation.ALTER)
    with client(registry.url, writer) as writes, client(registry.url, admin) as rules:
        assert register(writes, mine).status_code == register(rules, others).status_code == 200

        def body() -> Iterator[bytes]:
            yield b'{"newVersion": 2,'
            assert rules.put(f"/config/{mine}", json={"alias": others}).status_code == 200
            yield b'"metadata": {"properties": {"mark": "made"}}}'

        made = writes.post(
            f"/subjects/{mine}/versions/1/tags",
            content=body(),
            headers={"Content-Type": "application/json"},
        )
        assert made.status_code in (200, 403), made.text
        assert rules.get(f"/subjects/{others}/versions").json() == [1]


def test_a_caller_who_asks_a_lot_holds_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    connected: list[str] = []

    def connection(cluster: Cluster) -> Any:
        assert cluster.config.sasl is not None
        connected.append(cluster.config.sasl.username)
        if cluster.config.sasl.username == "slow":
            assert go_on.wait(300)

        def request(_api: str, **fields: Any) -> Any:
            topics = [
                SimpleNamespace(name=one["name"], topic_authorized_operations=1 << READ)
                for one in fields["topics"]
            ]
            return SimpleNamespace(topics=topics)

        return SimpleNamespace(request=request)

    monkeypatch.setattr(Cluster, "any", connection)
    slow, quick = (Caller(name, Sasl("PLAIN", name, "x"), name.encode(), 0) for name in ("slow", "quick"))

    async def test() -> None:
        authorizer = TopicAuthorizer(ClientConfig.of("127.0.0.1:1"))
        waiting = [asyncio.ensure_future(authorizer.operations(slow, [f"t{number}"])) for number in range(20)]
        try:
            await asyncio.sleep(0)
            assert await asyncio.wait_for(authorizer.operations(quick, ["t"]), 200) == {"t": 1 << READ}
        finally:
            go_on.set()
        await asyncio.gather(*waiting)
        ended = authorizer._callers[quick.key]
        authorizer.end(quick)
        del connected[:]
        with pytest.raises(KafkaError, match="no longer"):
            ended.ask(["other"])
        assert not connected
        authorizer.close()

    asyncio.run(test())


def test_the_proxy_asks_the_registry_as_the_caller(registry: RunningRegistry, platform: Platform) -> None:
    topic = platform.topic()
    writer, stranger = platform.user(), platform.user()
    platform.allow(writer[0], ResourceType.TOPIC, topic, READ, WRITE)
    settings = {
        "authentication.method": "BASIC",
        "schema.registry.basic.auth.credentials.source": "SASL_INHERIT",
        **platform.properties("rest", "client."),
    }
    body = {"value_schema": schema_of(f"P{topic[2:]}"), "records": [{"value": {"n": 1}}]}
    with RunningRest(platform.bootstrap, registry.url, settings) as rest:

        def produce(auth: tuple[str, str]) -> httpx.Response:
            with client(rest.url, auth) as http:
                return http.post(f"/topics/{topic}", json=body, headers={"Content-Type": media_type("avro")})

        sent = produce(writer)
        assert sent.status_code == 200 and sent.json()["value_schema_id"], sent.text
        denied(produce(stranger))


def test_a_reference_reads_nothing_for_the_caller(registry: RunningRegistry, platform: Platform) -> None:
    """Whoever names a subject in a schema's references has to be able to read it; to have the references put
    in place, all that they lead to."""
    inner, middle, own = platform.topic(), platform.topic(), platform.topic()
    name, password = platform.user()
    owner = platform.user()
    for topic in (inner, middle):
        platform.allow(owner[0], ResourceType.TOPIC, topic, READ, WRITE)
    platform.allow(name, ResourceType.TOPIC, own, READ, WRITE)
    secret = json.dumps({"type": "record", "name": "Inner", "fields": [{"name": "salary", "type": "int"}]})

    def around(outer: str, named: str, subject: str) -> dict[str, Any]:
        fields = [{"name": "of", "type": named}]
        return {
            "schema": json.dumps({"type": "record", "name": outer, "fields": fields}),
            "references": [{"name": named, "subject": f"{subject}-value", "version": 1}],
        }

    with client(registry.url, owner) as http:
        assert http.post(f"/subjects/{inner}-value/versions", json={"schema": secret}).status_code == 200
        body = around("Middle", "Inner", inner)
        assert http.post(f"/subjects/{middle}-value/versions", json=body).status_code == 200
    with client(registry.url, (name, password)) as http:
        mine = f"{own}-value"
        paths = (
            f"/subjects/{mine}/versions",
            f"/subjects/{mine}",
            f"/compatibility/subjects/{mine}/versions?verbose=true",
            f"/compatibility/subjects/{mine}/versions/latest",
        )
        nowhere = f"nowhere-{own}"
        for path in paths:
            for subject in (inner, nowhere):  # whether there is such a subject is not said either
                answer = http.post(path, json=around("Mine", "Inner", subject))
                assert denied(answer).endswith(f"Read on Subject: {subject}-value")
                assert "salary" not in answer.text
        platform.allow(name, ResourceType.TOPIC, middle, READ)
        body = around("Mine", "Middle", middle)
        made = wait_until(
            lambda: (answer := http.post(paths[0], json=body)).status_code == 200 and answer
        ).json()
        for path in (
            f"{paths[0]}/1",
            f"{paths[0]}/1/schema",
            f"/schemas/ids/{made['id']}",
            f"/schemas/ids/{made['id']}/schema",
            f"/schemas/guids/{made['guid']}",
        ):
            assert http.get(path).status_code == 200
            answer = http.get(path, params={"format": "resolved"})
            assert denied(answer).endswith(f"Read on Subject: {inner}-value")
        for answer in (http.post(path, json=body, params={"format": "resolved"}) for path in paths[:2]):
            assert denied(answer) and "salary" not in answer.text
        platform.allow(name, ResourceType.TOPIC, inner, READ)
        resolved = wait_until(
            lambda: (
                (answer := http.get(f"{paths[0]}/1", params={"format": "resolved"})).status_code == 200
                and answer
            )
        )
        assert "salary" in resolved.text
