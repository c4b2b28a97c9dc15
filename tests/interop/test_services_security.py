"""Registry and REST Proxy on Apache Kafka with TLS, logins and an authorizer."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.rest.rest_client import RunningRest
from tests.support.running import RunningRegistry

from .test_client_security import MECHANISMS, Secured

pytestmark = pytest.mark.interop_slow

SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    made.kafka.settings["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    made.kafka.settings["super.users"] = "User:alice;User:ANONYMOUS"
    with made.kafka:
        made.add_scram_users()
        yield made


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [("SSL", ""), *(("SASL_SSL", m) for m in MECHANISMS), ("SASL_PLAINTEXT", "PLAIN")],
)
def test_produce_and_consume_by_schema(secured: Secured, protocol: str, mechanism: str) -> None:
    name = f"{protocol}-{mechanism}".lower()
    wanted = secured.properties(protocol, mechanism)
    stored = {f"kafkastore.{key}": value for key, value in wanted.items()}
    stored |= {"kafkastore.topic": f"schemas-{name}", "schema.registry.group.id": f"registry-{name}"}
    client = {f"client.{key}": value for key, value in wanted.items()}
    address = secured.servers[protocol]
    with RunningRegistry(address, stored) as registry, RunningRest(address, registry.url, client) as rest:
        sent = rest.produce(name, "avro", [{"value": {"n": 1}}], value_schema=SCHEMA)
        assert sent.json()["offsets"][0]["offset"] == 0, sent.text
        consumer = rest.consumer(f"group-{name}", "avro")
        consumer.subscribe(name)
        assert consumer.read(1)[0]["value"] == {"n": 1}
        consumer.delete()
        assert name in rest.http.get("/topics").json()


def test_acls(secured: Secured) -> None:
    client = {f"client.{key}": value for key, value in secured.properties("SASL_SSL", "PLAIN").items()}
    with RunningRest(secured.servers["SASL_SSL"], settings=client) as rest:
        cluster = rest.http.get("/v3/clusters").json()["data"][0]["cluster_id"]
        path = f"/v3/clusters/{cluster}/acls"
        assert rest.http.get(path).json()["data"] == []
        one = {
            "resource_type": "TOPIC",
            "resource_name": "orders",
            "pattern_type": "LITERAL",
            "principal": "User:bob",
            "host": "*",
            "operation": "READ",
            "permission": "ALLOW",
        }
        assert rest.http.post(path, json=one).status_code == 201
        more = [{**one, "operation": "WRITE"}, {**one, "resource_name": "pay", "pattern_type": "PREFIXED"}]
        assert rest.http.post(f"{path}:batch", json={"data": more}).status_code == 201
        found = rest.http.get(path).json()["data"]
        assert sorted((a["resource_name"], a["pattern_type"], a["operation"]) for a in found) == [
            ("orders", "LITERAL", "READ"),
            ("orders", "LITERAL", "WRITE"),
            ("pay", "PREFIXED", "READ"),
        ]
        assert all(a["principal"] == "User:bob" and a["permission"] == "ALLOW" for a in found)
        matching = {"resource_type": "TOPIC", "resource_name": "payments", "pattern_type": "MATCH"}
        assert [a["resource_name"] for a in rest.http.get(path, params=matching).json()["data"]] == ["pay"]
        gone = rest.http.delete(path, params={**one, "operation": "ANY"})
        assert (gone.status_code, len(gone.json()["data"])) == (200, 2), gone.text
        assert [a["resource_name"] for a in rest.http.get(path).json()["data"]] == ["pay"]
        assert rest.http.delete(path, params={"resource_type": "TOPIC"}).status_code == 400


def test_who_may_not_is_told_so(secured: Secured) -> None:
    """Another user, whom the authorizer does not know."""
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion("bob", credential, b"secret")
    admin = AdminClient({"bootstrap.servers": secured.kafka.bootstrap})
    for done in admin.alter_user_scram_credentials([change]).values():
        done.result(30)
    wanted = secured.properties("SASL_SSL", "SCRAM-SHA-256")
    wanted["sasl.jaas.config"] = wanted["sasl.jaas.config"].replace("alice", "bob")
    client = {f"client.{key}": value for key, value in wanted.items()}
    with RunningRest(secured.servers["SASL_SSL"], settings=client) as rest:
        sent = rest.produce("ssl-", "json", [{"value": 1}])
        assert (sent.status_code, sent.json()["error_code"]) in ((403, 40301), (404, 40401)), sent.text
        cluster = rest.http.get("/v3/clusters").json()["data"][0]["cluster_id"]
        refused = rest.http.get(f"/v3/clusters/{cluster}/acls")
        assert (refused.status_code, refused.json()["error_code"]) == (403, 40301), refused.text
