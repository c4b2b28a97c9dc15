"""Associations of topics with subjects: confluent-kafka's serializers, whose default strategy asks for them,
unchanged; the REST API by Confluent's JSON, rules and codes; the records in the topic."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.common.schema_registry_client import (
    AssociationCreateOrUpdateInfo,
    AssociationCreateOrUpdateRequest,
)
from confluent_kafka.serialization import MessageField, SerializationContext

from millstream.registry.api.middleware import reads_only
from millstream.registry.associations.model import Association, AssociationId
from millstream.registry.associations.state import AssociationFilter, AssociationState
from millstream.testing import Broker
from tests.support.running import RunningRegistry
from tests.support.waiting import wait_until

from .client import Api, Refused, body, field, record

USER = record("User", field("name"))


@pytest.fixture
def topic(subject: str) -> str:
    return subject.replace("s-", "t-")


def raises(code: int, text: str = "") -> Any:
    return pytest.raises(Refused, check=lambda error: error.code == code and text in error.message)


def request(topic: str, *associations: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "resourceName": topic,
        "resourceNamespace": space(topic),
        "resourceId": f"id-{topic}",
        "resourceType": "topic",
        "associations": list(associations),
        **more,
    }


def weak(subject: str, association_type: str = "value", **more: Any) -> dict[str, Any]:
    return {"subject": subject, "associationType": association_type, "lifecycle": "WEAK", **more}


def strong(association_type: str = "value", schema: Any = USER, **more: Any) -> dict[str, Any]:
    return {"associationType": association_type, "schema": body(schema), **more}


def space(topic: str) -> str:
    """A cluster of its own for each topic, and so a context."""
    return f"lkc-{topic}"


def owned(topic: str, association_type: str = "value") -> str:
    """The subject that a topic owns."""
    return f":.{space(topic)}:{topic}-{association_type}"


def path_of(topic: str) -> str:
    return f"/associations/resources/id-{topic}"


# The client


def test_the_client_serializes_with_the_associated_subject(
    registry: RunningRegistry, api: Api, subject: str, topic: str
) -> None:
    schema_id = api.register(subject, USER)
    client = SchemaRegistryClient({"url": registry.url})
    info = AssociationCreateOrUpdateInfo(subject, "value", "WEAK", None, None, None)
    client.create_association(
        AssociationCreateOrUpdateRequest(topic, space(topic), f"id-{topic}", "topic", [info])
    )
    found = client.get_associations_by_resource_name(topic, space(topic), "topic", ["value"])
    assert [one.subject for one in found] == [subject]

    for settings in (
        {},
        {"subject.name.strategy.conf": {"subject.name.strategy.kafka.cluster.id": space(topic)}},
    ):
        serialize = AvroSerializer(
            client, json.dumps(USER), conf={"auto.register.schemas": False, **settings}
        )
        sent = serialize({"name": "Ada"}, SerializationContext(topic, MessageField.VALUE))
        assert sent is not None and int.from_bytes(sent[1:5], "big") == schema_id
    assert f"{topic}-value" not in api.get("/subjects")

    client.delete_associations(f"id-{topic}", "topic", ["value"], False)
    assert client.get_associations_by_resource_name(topic, space(topic), "topic", ["value"]) == []


def test_without_an_association_the_topic_names_the_subject(
    registry: RunningRegistry, api: Api, topic: str
) -> None:
    serialize = AvroSerializer(SchemaRegistryClient({"url": registry.url}), json.dumps(USER))
    assert serialize({"name": "Ada"}, SerializationContext(topic, MessageField.VALUE))
    assert api.get(f"/subjects/{topic}-value/versions") == [1]


# WEAK


def test_a_weak_association(api: Api, subject: str, topic: str) -> None:
    with raises(40907):
        api.post("/associations", request(topic, weak(subject)))
    api.register(subject, USER)
    assert api.post("/associations", request(topic, weak(subject)), dryRun=True) == {
        "resourceName": topic,
        "resourceNamespace": space(topic),
        "resourceId": f"id-{topic}",
        "resourceType": "topic",
    }
    assert api.get(path_of(topic)) == []
    made = api.post("/associations", request(topic, weak(subject)))
    assert made["associations"] == [{"subject": subject, "associationType": "value", "lifecycle": "WEAK"}]
    again = api.post("/associations", request(topic, weak(subject)))
    assert "associations" not in again, "what is there already is not made again"

    (one,) = api.get(path_of(topic))
    assert one.pop("createTs") == one.pop("updateTs") > 0
    assert len(one.pop("guid")) == 36
    assert one == {
        "subject": subject,
        "resourceName": topic,
        "resourceNamespace": space(topic),
        "resourceId": f"id-{topic}",
        "resourceType": "topic",
        "associationType": "value",
        "lifecycle": "WEAK",
    }
    listed = api.get(path_of(topic))
    for path in (
        f"/associations/subjects/{subject}",
        f"/associations/resources/{space(topic)}/{topic}",
        f"/associations/resources/-/{topic}",
    ):
        assert api.get(path) == listed
        assert (
            api.get(path, associationType=["key", "value"], lifecycle="WEAK", resourceType="topic") == listed
        )
        for other in ({"associationType": "key"}, {"lifecycle": "STRONG"}, {"resourceType": "x"}):
            assert api.get(path, **other) == []
    assert listed[0] in api.get("/associations/resources/-/-")
    assert api.get("/associations/resources/other/-") == []

    with raises(40903):
        api.register(f"{subject}-2", USER)
        api.post("/associations", request(topic, weak(f"{subject}-2")))
    with raises(42212, "subject of association cannot be changed"):
        api.put(path_of(topic), request(topic, weak(f"{subject}-2")))
    api.put(path_of(topic), request(topic, {**weak(subject), "subject": None, "lifecycle": None}))


def test_the_subject_of_an_association_stays(api: Api, subject: str, topic: str) -> None:
    api.register(subject, USER)
    api.register(subject, record("User", field("name"), field("age", "int", default=0)))
    api.post("/associations", request(topic, weak(subject)))
    with raises(40904):
        api.delete(f"/subjects/{subject}")
    api.delete(f"/subjects/{subject}/versions/1")
    with raises(40907):
        api.delete(f"/subjects/{subject}/versions/2")
    api.delete(f"/subjects/{subject}/versions/1", permanent=True)
    with raises(40410):
        api.delete(path_of(topic), associationType="key")
    api.delete(path_of(topic), dryRun=True)
    assert len(api.get(path_of(topic))) == 1
    api.delete(path_of(topic))
    api.delete(f"/subjects/{subject}")
    with raises(40410):
        api.delete(path_of(topic))


# STRONG


def test_a_topic_owns_its_subject(api: Api, subject: str, topic: str) -> None:
    made = api.post("/associations", request(topic, strong(), strong("key", record("Id", field("n", "int")))))
    value, key = made["associations"]
    assert (value["lifecycle"], value["subject"]) == ("STRONG", owned(topic))
    assert json.loads(value["schema"]["schema"])["name"] == "User"
    assert (key["associationType"], key["schema"]["subject"]) == ("key", owned(topic, "key"))
    assert value["schema"]["id"] != key["schema"]["id"]
    assert "frozen" not in value

    # The same request again, as after a timeout, with and without the id.
    again = request(topic, strong())
    assert "associations" not in api.post("/associations", again)
    api.post("/associations", {**again, "resourceId": None}, dryRun=True)
    with raises(40903):
        api.post("/associations", request(topic, strong(schema=record("Other"))))

    with raises(42205, "has a strong association"):
        reference = {"name": "User", "subject": owned(topic), "version": 1}
        api.register(subject, record("Order", field("user", "User")), references=[reference])
    with raises(40905):
        api.post("/associations", request(f"{topic}-2", weak(owned(topic))))
    with raises(42212, "WEAK associations cannot use subject"):
        api.put(path_of(topic), request(topic, weak(owned(topic), frozen=False)))
    evolved = record("User", field("name"), field("age", "int", default=0))
    api.put(path_of(topic), request(topic, strong(schema=evolved)))
    with raises(40901):
        api.put(path_of(topic), request(topic, strong(schema=record("User", field("size", "int")))))
    assert api.get(f"/subjects/{owned(topic)}/versions") == [1, 2]

    with raises(40908):
        api.delete(path_of(topic))
    api.delete(path_of(topic), cascadeLifecycle=True)
    assert api.get(path_of(topic)) == []
    with raises(40401):
        api.get(f"/subjects/{owned(topic)}/versions", deleted=True)


def test_what_is_owned_is_not_referred_to(api: Api, topic: str) -> None:
    api.register(owned(topic), USER)
    reference = {"name": "User", "subject": f"{topic}-value", "version": 1}
    api.register(
        f":.{space(topic)}:{topic}-x", record("Order", field("user", "User")), references=[reference]
    )
    api.delete(f"/subjects/:.{space(topic)}:{topic}-x")
    with raises(42206):
        api.post("/associations", request(topic, strong()))
    inside = {**body(record("K", field("user", "User"))), "references": [reference]}
    with raises(42206):
        api.post("/associations", request(topic, strong(), {"associationType": "key", "schema": inside}))


def test_a_schema_that_does_not_fit_creates_nothing(api: Api, topic: str) -> None:
    with raises(42201):
        api.post("/associations", request(topic, strong(), strong("key", "{")))
    assert api.get(path_of(topic)) == []
    with raises(40401):
        api.get(f"/subjects/{owned(topic)}/versions")


def test_tags_of_an_associated_schema(api: Api, topic: str) -> None:
    tags = [{"schemaEntity": {"entityPath": "User.name", "entityType": "sr_field"}, "tags": ["PII"]}]
    tagged = {"associationType": "value", "schema": body(USER, schemaTagsToAdd=tags)}
    for _ in range(2):
        api.post("/associations", request(topic, tagged))
    assert api.get(f"/subjects/{owned(topic)}/versions/latest", findTags="*")["schemaTags"] == tags


def test_associations_are_imported_with_the_subject(api: Api, topic: str) -> None:
    subject = owned(topic)
    api.put(f"/mode/{subject}", {"mode": "IMPORT"})
    frozen = {"associationType": "value", "lifecycle": "STRONG", "frozen": True}
    with raises(40907):
        api.post("/associations", request(topic, frozen))
    api.register(subject, USER, id=4711, version=1)
    with raises(42212, "IMPORT mode"):
        api.post("/associations", request(topic, strong()))
    api.put(path_of(topic), request(topic, frozen))
    assert [one["lifecycle"] for one in api.get(path_of(topic))] == ["STRONG"]
    api.delete(path_of(topic), cascadeLifecycle=True)
    assert api.get(f"/subjects/{subject}/versions") == [1], "what is imported is deleted by whoever imports"


@pytest.mark.parametrize(
    ("association", "text"),
    [
        ({"associationType": "header"}, "must be either 'key' or 'value'"),
        ({"subject": ""}, "must not be empty"),
        ({"subject": "s", "frozen": True}, "lifecycle of WEAK cannot be frozen=true"),
        ({"lifecycle": "WEAK"}, "must be provided for WEAK associations"),
        ({"lifecycle": "STRONG"}, "schema must be provided when creating a frozen association"),
        ({"schema": body(USER), "lifecycle": "WEAK"}, "cannot be WEAK when schema is provided"),
        ({"schema": body(USER), "frozen": False}, "cannot be false when a schema is provided"),
        ({"schema": body(USER), "subject": "s"}, "frozen associations must use subject"),
    ],
)
def test_an_association_that_makes_no_sense(
    api: Api, topic: str, association: dict[str, Any], text: str
) -> None:
    with raises(42212, text):
        api.post("/associations", request(topic, {"associationType": "value", **association}))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"resourceName": "a.b"}, "resourceName"),
        ({"resourceNamespace": None}, "resourceNamespace"),
        ({"resourceId": ""}, "resourceId"),
        ({"resourceType": "table"}, "resourceType"),
        ({"associations": []}, "associations"),
    ],
)
def test_a_resource_that_makes_no_sense(api: Api, topic: str, change: dict[str, Any], name: str) -> None:
    with raises(42212, f"'{name}'"):
        api.post("/associations", request(topic, strong(), **change))


def test_rules_of_one_resource(api: Api, subject: str, topic: str) -> None:
    api.register(subject, USER)
    with raises(42212, "may only appear once"):
        api.post("/associations", request(topic, weak(subject), weak(subject)))
    with raises(42212, "must have the same lifecycle, but got"):
        api.post("/associations", request(topic, weak(subject), strong("key")))
    with raises(42212, "WEAK associations cannot use subject"):
        api.post("/associations", request(topic, weak(owned(topic))))
    with raises(42212, "STRONG associations must be created with the topic"):
        api.put(path_of(topic), request(topic, {"associationType": "value", "lifecycle": "STRONG"}))
    with raises(42212, "must be created with the topic"):
        api.put(path_of(topic), request(topic, strong()))
    with raises(42212, "does not match"):
        api.put("/associations/resources/other", request(topic, weak(subject)))
    with raises(400):
        api.post("/associations", request(topic, {**weak(subject), "lifecycle": "FIRM"}))
    api.put(f"/mode/{subject}", {"mode": "READONLY"})
    with raises(42205):
        api.post("/associations", request(topic, weak(subject)))
    api.delete(f"/mode/{subject}")


def test_contexts_and_aliases(api: Api, subject: str, topic: str) -> None:
    api.register(f":.ctx:{subject}", USER)
    api.put(f"/config/:.ctx:{subject}-alias", {"alias": subject})
    api.post("/contexts/.ctx/associations", request(topic, weak(f"{subject}-alias")))
    (one,) = api.get(path_of(topic))
    assert one["subject"] == f":.ctx:{subject}"
    assert api.get(f"/contexts/.ctx/associations/subjects/{subject}") == [one]
    assert api.get(f"/associations/subjects/:.ctx:{subject}-alias") == [one]


# Batches


def test_a_batch(api: Api, subject: str, topic: str) -> None:
    api.register(subject, USER)
    create = {"opType": "CREATE", **strong()}
    upsert = {"opType": "UPSERT", **weak(subject)}
    answered = api.post(
        "/associations:batchMutate",
        {
            "requests": [
                request(topic, create, {**create, "associationType": "key"}),
                request(f"{topic}-2", upsert),
                request(f"{topic}-3", upsert, upsert),
                request(f"{topic}-4", {"opType": "CREATE", **weak(f"{subject}-nobody")}),
                request(f"{topic}-5", {"opType": "CREATE", **strong(schema="{")}),
            ]
        },
    )["results"]
    assert [one.get("error", {}).get("error_code") for one in answered] == [None, None, 42212, 40907, 42212]
    first = answered[0]["result"]
    assert [one["associationType"] for one in first["associations"]] == ["key", "value"]
    assert all(one["schema"]["version"] == 1 for one in first["associations"])

    asked = api.post(
        "/associations:batchGet",
        {"requests": [{"resourceId": f"id-{topic}"}, {"resourceName": f"{topic}-2"}, {}]},
        includeSchemas=True,
    )["results"]
    assert [one["schema"]["id"] for one in asked[0]["result"]["associations"]] == [1, 1]
    assert asked[0]["result"]["resourceName"] == topic
    assert [one["error"]["error_code"] for one in asked[1:]] == [500, 500]
    named = {
        "resourceName": f"{topic}-2",
        "resourceNamespace": space(f"{topic}-2"),
        "associationTypes": ["value"],
    }
    (found,) = api.post("/associations:batchGet", {"requests": [named]})["results"]
    assert found["result"]["associations"] == [
        {"subject": subject, "associationType": "value", "lifecycle": "WEAK"}
    ]

    delete = {"opType": "DELETE", "associationType": "key"}
    gone = [request(topic, {**delete, "cascadeLifecycle": True}), request(topic, delete, upsert)]
    answered = api.post("/associations:batchMutate", {"requests": gone})["results"]
    assert [one["associationType"] for one in answered[0]["result"]["associations"]] == ["value"]
    assert answered[1]["error"]["error_code"] == 42212, "the topic owns its other subject"
    with raises(42212):
        api.post("/associations:batchMutate", {"requests": []})
    with raises(400):
        api.post("/associations:batchMutate", {"requests": [request(topic, {"opType": "KEEP"})]})


def test_a_schema_too_large_for_the_topic_fails_its_request_alone(
    broker: Broker, subject: str, topic: str
) -> None:
    settings = {"kafkastore.topic": f"_schemas-{subject}", "schema.registry.group.id": subject}
    with RunningRegistry(broker.bootstrap_servers, settings) as registry:
        api = Api(registry.http)
        large = strong(schema=record("Large", field("x", doc="x" * 2_000_000)))
        answered = api.post(
            "/associations:batchMutate",
            {
                "requests": [
                    request(topic, {"opType": "CREATE", **large}),
                    request(f"{topic}-2", {"opType": "CREATE", **strong()}),
                ]
            },
        )["results"]
        assert answered[0]["error"]["error_code"] == 42209
        assert answered[1]["result"]["associations"][0]["subject"] == owned(f"{topic}-2")


def test_a_registry_without_associations(broker: Broker, subject: str) -> None:
    settings = {
        "kafkastore.topic": f"_schemas-{subject}",
        "schema.registry.group.id": subject,
        "associations.enable": False,
    }
    with RunningRegistry(broker.bootstrap_servers, settings) as registry, raises(404):
        Api(registry.http).get("/associations/resources/-/-")


# Several instances, and the topic


@pytest.fixture
def pair(broker: Broker, subject: str) -> Iterator[tuple[RunningRegistry, RunningRegistry]]:
    settings = {"kafkastore.topic": f"_schemas-{subject}", "schema.registry.group.id": subject}
    with (
        RunningRegistry(broker.bootstrap_servers, settings) as one,
        RunningRegistry(broker.bootstrap_servers, settings) as other,
    ):
        yield one, other


def test_the_leader_writes_and_all_instances_answer(
    pair: tuple[RunningRegistry, RunningRegistry], topic: str
) -> None:
    wait_until(lambda: any(one.http.get("/health").json()["leads"] for one in pair), pair[0].log)
    leader, follower = pair if pair[0].http.get("/health").json()["leads"] else (pair[1], pair[0])
    made = Api(follower.http).post("/associations", request(topic, strong()))
    assert made["associations"][0]["subject"] == owned(topic)
    assert Api(follower.http).get(path_of(topic)) == Api(leader.http).get(path_of(topic)) != []
    leader.kill()
    follower.wait_until_leading()
    Api(follower.http).delete(path_of(topic), cascadeLifecycle=True)
    assert Api(follower.http).get(path_of(topic)) == []


def test_records_are_those_of_confluent() -> None:
    """Their order of fields is that of Jackson for Confluent's classes; compaction compares keys byte by
    byte."""
    one = Association(AssociationId("t", "lkc", "topic", "value", "s"), "g", "i", "WEAK", False)
    key, value = one.record()
    assert key == (
        b'{"keytype":"ASSOC","tenant":"default","resourceName":"t","resourceNamespace":"lkc",'
        b'"resourceType":"topic","associationType":"value","subject":"s","magic":0}'
    )
    assert value == (
        b'{"guid":"g","tenant":"default","resourceName":"t","resourceNamespace":"lkc","resourceId":"i",'
        b'"resourceType":"topic","associationType":"value","subject":"s","lifecycle":"WEAK","frozen":false}'
    )
    state = AssociationState()
    state.apply(json.loads(key), json.loads(value), 5)
    state.apply(json.loads(key), {**json.loads(value), "resourceId": "j"}, 6)
    assert state.of_resource("i") == []
    (found,) = state.of_resource("j")
    assert (found.created, found.updated) == (5, 6)
    assert state.named("t", "lkc") == state.of_subject("s") == [found]
    assert state.named("t", "-", AssociationFilter("topic", ("key",))) == []
    state.apply(json.loads(key), None, 7)
    assert state.named("-", "-") == state.of_subject("s") == []


def test_users_who_may_only_read_change_no_associations() -> None:
    assert reads_only("GET", "/associations/resources/c/t")
    assert reads_only("POST", "/associations:batchGet")
    assert not reads_only("POST", "/associations:batchMutate")
    assert not reads_only("POST", "/contexts/.c/associations")
