"""The DEK registry: Confluent's client encrypts fields with it, unchanged; its REST API by Confluent's JSON
and codes; the records in its topic."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import (
    Rule,
    RuleKind,
    RuleMode,
    RuleParams,
    RuleSet,
    Schema,
    SchemaRegistryClient,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.rule_registry import RuleRegistry
from confluent_kafka.schema_registry.rules.encryption.encrypt_executor import FieldEncryptionExecutor
from confluent_kafka.schema_registry.rules.encryption.localkms.local_driver import LocalKmsDriver
from confluent_kafka.serialization import MessageField, SerializationContext

from millstream.registry.api.middleware import reads_only
from millstream.registry.dek import keys, kms
from millstream.registry.dek.keys import Dek, DekId, Kek
from millstream.registry.dek.state import KeyState
from millstream.testing import Broker
from tests.support.running import RunningRegistry
from tests.support.waiting import wait_until

from .client import Api, Refused

SECRET = "correct horse battery staple"  # noqa: S105
KEKS = "/dek-registry/v1/keks"
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Customer",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "iban", "type": "string", "confluent:tags": ["PII"]},
            {"name": "photo", "type": "bytes", "confluent:tags": ["PII"]},
        ],
    }
)
IBAN = "DE02120300000000202051"
ROW = {"id": 7, "iban": IBAN, "photo": b"\x00\x01"}


@pytest.fixture(scope="module", autouse=True)
def local_kms() -> None:
    LocalKmsDriver.register()


@pytest.fixture
def kek(subject: str) -> str:
    return subject.replace("s-", "kek-")


def shared_kek(api: Api, name: str, **more: Any) -> Any:
    body = {"name": name, "kmsType": "local-kms", "kmsKeyId": "k1", "shared": True, **more}
    return api.post(KEKS, {"kmsProps": {"secret": SECRET}, **body})


def raises(code: int) -> Any:
    return pytest.raises(Refused, check=lambda error: error.code == code)


# The client


def encrypted_schema(kek_name: str, **params: str) -> Schema:
    rule = Rule(
        "encryptPII",
        "",
        RuleKind.TRANSFORM,
        RuleMode.WRITEREAD,
        "ENCRYPT",
        ["PII"],
        RuleParams({"encrypt.kek.name": kek_name, **params}),
        None,
        None,
        "ERROR,NONE",
        False,
    )
    return Schema(SCHEMA, "AVRO", [], None, RuleSet(None, [rule]))


def serdes(client: SchemaRegistryClient, rules: dict[str, str]) -> tuple[AvroSerializer, AvroDeserializer]:
    settings = {"auto.register.schemas": False, "use.latest.version": True}
    registered = RuleRegistry()  # an executor keeps its settings: one for each test
    registered.register_executor(FieldEncryptionExecutor())
    return (
        AvroSerializer(client, None, conf=settings, rule_conf=rules, rule_registry=registered),
        AvroDeserializer(client, rule_conf=rules, rule_registry=registered),
    )


@pytest.mark.parametrize("algorithm", ["AES256_GCM", "AES128_GCM", "AES256_SIV"])
def test_the_client_encrypts_fields_with_keys_of_its_own(
    broker: Broker, registry: RunningRegistry, api: Api, subject: str, kek: str, algorithm: str
) -> None:
    params = {
        "encrypt.dek.algorithm": algorithm,
        "encrypt.kms.type": "local-kms",
        "encrypt.kms.key.id": "k1",
    }
    client = SchemaRegistryClient({"url": registry.url})
    client.register_schema(f"{subject}-value", encrypted_schema(kek, **params))
    serialize, deserialize = serdes(client, {"secret": SECRET})
    context = SerializationContext(subject, MessageField.VALUE)

    sent = serialize(dict(ROW), context)  # the client encrypts in place
    assert sent is not None and IBAN.encode() not in sent
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(subject, sent)
    producer.flush()
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": subject,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([subject])
    message = consumer.poll(60)
    consumer.close()
    assert message is not None and message.error() is None
    assert deserialize(message.value(), context) == ROW

    found = api.get(f"{KEKS}/{kek}/deks/{subject}-value", algorithm=algorithm)
    assert "keyMaterial" not in found, "the registry cannot read the key of a KEK that is not shared"
    assert found["version"] == 1


def test_the_client_uses_a_shared_kek_without_the_secret(
    registry: RunningRegistry, api: Api, subject: str, kek: str
) -> None:
    shared_kek(api, kek)
    client = SchemaRegistryClient({"url": registry.url})
    client.register_schema(f"{subject}-value", encrypted_schema(kek))
    serialize, deserialize = serdes(client, {})
    context = SerializationContext(subject, MessageField.VALUE)
    sent = serialize(dict(ROW), context)  # the client encrypts in place
    assert sent is not None and IBAN.encode() not in sent
    assert deserialize(sent, context) == ROW


def test_the_client_encrypts_what_the_registry_has_tagged(
    registry: RunningRegistry, api: Api, subject: str, kek: str
) -> None:
    """A JSON Schema without tags; they are added, with the rule, when it is registered."""
    shared_kek(api, kek)
    schema = {
        "title": "Customer",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "iban": {"type": "string"}},
    }
    rule = {"name": "r", "type": "ENCRYPT", "tags": ["PII"], "params": {"encrypt.kek.name": kek}}
    entity = {"entityPath": "object.iban", "entityType": "sr_field"}
    api.post(
        f"/subjects/{subject}-value/versions",
        {
            "schemaType": "JSON",
            "schema": json.dumps(schema),
            "schemaTagsToAdd": [{"schemaEntity": entity, "tags": ["PII"]}],
            "ruleSet": {"domainRules": [{**rule, "kind": "TRANSFORM", "mode": "WRITEREAD"}]},
        },
    )
    client = SchemaRegistryClient({"url": registry.url})
    settings = {"auto.register.schemas": False, "use.latest.version": True}
    registered = RuleRegistry()
    registered.register_executor(FieldEncryptionExecutor())
    serialize = JSONSerializer(
        json.dumps(schema), client, conf=settings, rule_conf={}, rule_registry=registered
    )
    deserialize = JSONDeserializer(
        None, schema_registry_client=client, rule_conf={}, rule_registry=registered
    )
    context = SerializationContext(subject, MessageField.VALUE)
    sent = serialize({"id": 7, "iban": IBAN}, context)
    assert sent is not None and IBAN.encode() not in sent
    assert deserialize(sent, context) == {"id": 7, "iban": IBAN}


# The local KMS


@pytest.mark.parametrize("algorithm", keys.ALGORITHMS)
def test_the_local_kms_is_that_of_the_client(algorithm: str) -> None:
    aead = LocalKmsDriver().new_kms_client({"secret": SECRET}, "local-kms://k1").get_aead("local-kms://k1")
    kek = Kek("k", "local-kms", "k1", (("secret", SECRET),), shared=True)
    raw = kms.new_key_material(algorithm)
    dek = Dek(DekId("k", "s", algorithm, 1), None)
    assert aead.decrypt(base64.b64decode(kms.encrypted(kek, dek, raw)), b"") == raw
    theirs = Dek(dek.id, base64.b64encode(aead.encrypt(raw, b"")).decode())
    assert kms.decrypted(kek, theirs) == raw


def test_a_kms_that_the_registry_does_not_have(api: Api, kek: str) -> None:
    aws = {"name": kek, "kmsType": "aws-kms", "kmsKeyId": "arn:aws:kms:eu:1:key/1", "shared": True}
    api.post(KEKS, aws)
    with raises(50070):
        api.post(f"{KEKS}/{kek}/test", {})
    with raises(50070):
        api.post(KEKS, {**aws, "name": f"{kek}-2"}, testSharing=True)
    assert f"{kek}-2" not in api.get(KEKS)


def test_a_secret_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    kek, dek = Kek("k", "local-kms", "k1", shared=True), Dek(DekId("k", "s", "AES256_GCM", 1), None)
    monkeypatch.delenv("LOCAL_SECRET", raising=False)
    with pytest.raises(Exception, match="cannot load secret"):
        kms.encrypted(kek, dek, b"raw")
    monkeypatch.setenv("LOCAL_SECRET", SECRET)
    made = Dek(dek.id, kms.encrypted(kek, dek, b"raw"))
    assert kms.decrypted(Kek("k", "local-kms", "k1", (("secret", SECRET),)), made) == b"raw"


# KEKs


def test_a_kek_is_created_changed_and_deleted(api: Api, kek: str) -> None:
    made = api.post(KEKS, {"name": kek, "kmsType": "local-kms", "kmsKeyId": "k1", "doc": "first"})
    assert made.pop("ts") > 0
    assert made == {
        "name": kek,
        "kmsType": "local-kms",
        "kmsKeyId": "k1",
        "kmsProps": {},
        "doc": "first",
        "shared": False,
    }
    with raises(40971):
        api.post(KEKS, {"name": kek, "kmsType": "local-kms", "kmsKeyId": "k1", "doc": "first"})
    changed = api.put(f"{KEKS}/{kek}", {"doc": None, "kmsProps": {"b": "2", "a": "1"}})
    assert "doc" not in changed and changed["kmsProps"] == {"a": "1", "b": "2"}
    assert kek in api.get(KEKS)
    with raises(40471):
        api.delete(f"{KEKS}/{kek}", permanent=True)
    assert api.delete(f"{KEKS}/{kek}") is None
    assert kek not in api.get(KEKS)
    assert kek in api.get(KEKS, deleted=True)
    with raises(40470):
        api.get(f"{KEKS}/{kek}")
    assert api.get(f"{KEKS}/{kek}", deleted=True)["deleted"] is True
    api.post(f"{KEKS}/{kek}/undelete", None)
    assert "deleted" not in api.get(f"{KEKS}/{kek}")
    api.delete(f"{KEKS}/{kek}")
    api.delete(f"{KEKS}/{kek}", permanent=True)
    with raises(40470):
        api.get(f"{KEKS}/{kek}", deleted=True)


@pytest.mark.parametrize(
    "body",
    [
        {"name": "1k", "kmsType": "local-kms", "kmsKeyId": "k1"},
        {"name": "a b", "kmsType": "local-kms", "kmsKeyId": "k1"},
        {"name": "k" * 257, "kmsType": "local-kms", "kmsKeyId": "k1"},
        {"name": "k", "kmsKeyId": "k1"},
        {"name": "k", "kmsType": "local-kms"},
        {"name": "k", "kmsType": "aws-kms", "kmsKeyId": "k1"},
    ],
)
def test_a_kek_that_makes_no_sense(api: Api, body: dict[str, str]) -> None:
    with raises(42271):
        api.post(KEKS, body)


# DEKs


def test_a_dek_of_an_unshared_kek_brings_its_material(api: Api, subject: str, kek: str) -> None:
    api.post(KEKS, {"name": kek, "kmsType": "local-kms", "kmsKeyId": "k1"})
    with raises(40470):
        api.post(f"{KEKS}/nobody/deks/{subject}", {"encryptedKeyMaterial": "aGk="})
    with raises(42271):
        api.post(f"{KEKS}/{kek}/deks/{subject}", {})
    made = api.post(f"{KEKS}/{kek}/deks", {"subject": subject, "encryptedKeyMaterial": "aGk="})
    assert made.pop("ts") > 0
    assert made == {
        "kekName": kek,
        "subject": subject,
        "version": 1,
        "algorithm": "AES256_GCM",
        "encryptedKeyMaterial": "aGk=",
    }
    with raises(40971):
        api.post(f"{KEKS}/{kek}/deks/{subject}", {"encryptedKeyMaterial": "aG8="})
    api.post(f"{KEKS}/{kek}/deks/{subject}", {"encryptedKeyMaterial": "aG8="}, rewrap=True)
    assert api.get(f"{KEKS}/{kek}/deks/{subject}")["encryptedKeyMaterial"] == "aG8="
    with raises(42272):
        api.delete(f"{KEKS}/{kek}")


def test_versions_and_algorithms_of_a_dek(api: Api, subject: str, kek: str) -> None:
    shared_kek(api, kek)
    path = f"{KEKS}/{kek}/deks/{subject}"
    first = api.post(path, {})
    second = api.post(path, {"version": 2})
    other = api.post(path, {"algorithm": "AES256_SIV"})
    assert len({one["keyMaterial"] for one in (first, second, other)}) == 3
    assert len(base64.b64decode(other["keyMaterial"])) == 66
    assert api.get(f"{KEKS}/{kek}/deks") == [subject]
    assert kek in api.get(KEKS, subjectPrefix=subject[:5])
    assert api.get(f"{path}/versions") == [1, 2]
    assert api.get(f"{path}/versions", algorithm="AES256_SIV") == [1]
    assert api.get(f"{path}/versions/latest") == second
    assert api.get(path) == first
    with raises(40470):
        api.get(f"{path}/versions/3")
    with raises(42202):
        api.get(f"{path}/versions/none")

    rewrapped = api.post(path, {}, rewrap=True)
    assert rewrapped["keyMaterial"] == first["keyMaterial"]
    assert rewrapped["encryptedKeyMaterial"] != first["encryptedKeyMaterial"]

    with raises(40471):
        api.delete(f"{path}/versions/2", permanent=True)
    api.delete(f"{path}/versions/2")
    assert api.get(f"{path}/versions") == [1]
    assert api.get(f"{path}/versions", deleted=True) == [1, 2]
    api.post(f"{path}/versions/2/undelete", None)
    assert api.get(f"{path}/versions") == [1, 2]
    api.delete(path)
    assert api.get(f"{path}/versions") == []
    api.post(f"{path}/undelete", None)
    assert api.get(f"{path}/versions") == [1, 2]
    api.delete(path)
    api.delete(path, algorithm="AES256_SIV")
    api.delete(f"{KEKS}/{kek}")
    with raises(40472):
        api.post(f"{path}/undelete", None)
    with raises(42272):
        api.delete(f"{KEKS}/{kek}", permanent=True)
    api.delete(path, permanent=True)
    api.delete(path, algorithm="AES256_SIV", permanent=True)
    api.delete(f"{KEKS}/{kek}", permanent=True)


# Several instances, and the topic


@pytest.fixture
def pair(broker: Broker, subject: str) -> Iterator[tuple[RunningRegistry, RunningRegistry]]:
    settings = {
        "kafkastore.topic": f"_schemas-{subject}",
        "dek.registry.topic": f"_keys-{subject}",
        "schema.registry.group.id": subject,
    }
    with (
        RunningRegistry(broker.bootstrap_servers, settings) as one,
        RunningRegistry(broker.bootstrap_servers, settings) as other,
    ):
        yield one, other


def test_keys_are_written_by_the_leader_and_survive_it(
    pair: tuple[RunningRegistry, RunningRegistry], kek: str
) -> None:
    wait_until(lambda: any(one.http.get("/health").json()["leads"] for one in pair), pair[0].log)
    leader, follower = pair if pair[0].http.get("/health").json()["leads"] else (pair[1], pair[0])
    made = shared_kek(Api(follower.http), kek)
    path = f"{KEKS}/{kek}/deks/s"
    dek = Api(follower.http).post(path, {})
    assert Api(follower.http).get(f"{KEKS}/{kek}") == made
    assert Api(leader.http).get(path) == dek
    leader.kill()
    follower.wait_until_leading()
    again = Api(follower.http).post(path, {"version": 2})
    assert Api(follower.http).get(path) == dek
    assert Api(follower.http).get(f"{path}/versions/2") == again


def test_a_subject_with_slashes_and_a_context(api: Api, subject: str, kek: str) -> None:
    shared_kek(api, kek)
    path = f"{KEKS}/{kek}/deks/%3A.ctx%3A{subject}%2Fversions%2Fx"
    made = api.post(path, {})
    assert made["subject"] == f":.ctx:{subject}/versions/x"
    assert api.get(f"{path}/versions/1") == made


def test_aliases_and_contexts_in_paths(api: Api, subject: str, kek: str) -> None:
    shared_kek(api, kek)
    made = api.post(f"{KEKS}/{kek}/deks/{subject}", {})
    api.put(f"/config/{subject}-alias", {"alias": f"{subject}-other", "aliasForDeks": subject})
    assert api.get(f"{KEKS}/{kek}/deks/{subject}-alias") == made
    api.put(f"/config/{subject}-alias", {"alias": subject, "aliasForDeks": None})
    second = api.post(f"{KEKS}/{kek}/deks/{subject}-alias", {"version": 2})
    assert second["subject"] == subject
    inside = api.post(f"/contexts/.c{KEKS}/{kek}/deks/{subject}", {})
    assert inside["subject"] == f":.c:{subject}"
    assert api.get(f"{KEKS}/{kek}/deks/:.c:{subject}") == inside


def test_records_are_those_of_confluent() -> None:
    """Their order of fields is that of Jackson for Confluent's classes; compaction compares keys byte by
    byte."""
    kek = Kek("k", "local-kms", "k1", (("a", "1"),), "doc", True)
    assert kek.record() == (
        b'{"tenant":"default","name":"k","type":"KEK"}',
        b'{"name":"k","kmsType":"local-kms","kmsKeyId":"k1","kmsProps":{"a":"1"},"doc":"doc","shared":true,'
        b'"deleted":false,"type":"KEK"}',
    )
    dek = Dek(DekId("k", "s", "AES256_GCM", 1), "aGk=", True)
    assert dek.record() == (
        b'{"tenant":"default","kekName":"k","subject":"s","algorithm":"AES256_GCM","version":1,"type":"DEK"}',
        b'{"kekName":"k","subject":"s","algorithm":"AES256_GCM","version":1,"encryptedKeyMaterial":"aGk=",'
        b'"deleted":true,"type":"DEK"}',
    )
    state = KeyState()
    state.apply(*kek.record(), 5)
    state.apply(*dek.record(), 6)
    state.apply(*keys.fence_record(), 7)
    state.apply(b"not JSON", b"{}", 8)
    assert state.kek("k") == (kek, 5)
    assert state.dek(dek.id) is None
    assert state.dek(dek.id, deleted=True) == (dek, 6)
    assert state.left_out == 1
    state.apply(dek.record()[0], None, 9)
    assert state.dek(dek.id, deleted=True) is None


@pytest.mark.parametrize("prefix", ["", "/contexts/.c"])
def test_users_who_may_only_read_change_no_keys(prefix: str) -> None:
    assert reads_only("GET", f"{prefix}{KEKS}/k/deks/s")
    for path in (KEKS, f"{KEKS}/k/deks/s", f"{KEKS}/k/undelete"):
        assert not reads_only("POST", prefix + path)
    assert reads_only("POST", f"{prefix}/subjects/s"), "looking a schema up"


@pytest.mark.parametrize(
    ("given", "added"),
    [
        (
            {"encrypt.kms.key.id": "arn:aws:kms:us-west-2:1:key/a_b"},
            {"encrypt.kek.name": "aws-kms-us-west-2-1-key-a_b", "encrypt.kms.type": "aws-kms"},
        ),
        ({"encrypt.kms.key.id": "projects/p/k"}, {"encrypt.kek.name": "projects-p-k"}),
        ({"encrypt.kms.key.id": "k", "encrypt.kek.name": "mine", "encrypt.kms.type": "local-kms"}, {}),
        ({"encrypt.dek.algorithm": "AES256_SIV"}, {}),
    ],
)
def test_a_rule_that_names_a_key_gets_the_name_of_its_kek(
    api: Api, subject: str, given: dict[str, str], added: dict[str, str]
) -> None:
    rule = {"name": "secret", "kind": "TRANSFORM", "mode": "WRITEREAD", "type": "ENCRYPT", "params": given}
    body = {"schema": SCHEMA, "ruleSet": {"domainRules": [rule]}}
    made = api.post(f"/subjects/{subject}/versions", body)
    assert made["ruleSet"]["domainRules"][0]["params"] == {**given, **added}
    assert api.post(f"/subjects/{subject}/versions", body)["id"] == made["id"]
