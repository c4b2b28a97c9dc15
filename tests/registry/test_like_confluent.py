"""What Confluent's own tests ask of a registry beyond the common path: empty metadata, imports, contexts of
ids, rules in the wrong place, bodies of odd shapes."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from millstream.testing import Broker
from tests.support.running import RunningRegistry

from .client import Api, Refused, body, field, record

A = record("R", field("a"))
AB = record("R", field("a"), field("b", default=""))
JSON_SCHEMA = {"type": "object", "properties": {"$$a": {"type": "string"}}}
RULE = {"name": "check", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "true"}


def refused(act: Any, *args: Any, **how: Any) -> tuple[int, int]:
    with pytest.raises(Refused) as caught:
        act(*args, **how)
    return caught.value.status, caught.value.code


def versions(api: Api, subject: str) -> list[int]:
    found: list[int] = api.get(f"/subjects/{subject}/versions")
    return found


def test_a_slash_at_the_end(api: Api, subject: str) -> None:
    schema_id = api.post(f"/subjects/{subject}/versions/", body(A))["id"]
    assert api.get(f"/subjects/{subject}/versions/") == [1]
    assert api.post(f"/compatibility/subjects/{subject}/versions/", body(AB))["is_compatible"]
    assert api.get(f"/schemas/ids/{schema_id}/")["schema"]
    assert api.get("/config/") == api.get("/config")
    assert api.get(f"/contexts/:.:/subjects/{subject}/versions/") == [1]
    # Encoded, it is part of the name.
    api.register(f"{subject}%2F", AB)
    assert versions(api, subject) == [1] and f"{subject}/" in api.get("/subjects")


def test_empty_metadata_is_the_same_each_time(api: Api, subject: str) -> None:
    first = api.register(subject, A, metadata={})
    assert api.register(subject, A, metadata={}) == first and versions(api, subject) == [1]
    assert api.get(f"/subjects/{subject}/versions/1")["metadata"] == {}


def test_an_empty_rule_set_ends_the_rules(api: Api, subject: str) -> None:
    made = api.post(f"/subjects/{subject}/versions", body(A, ruleSet={"domainRules": [RULE]}, metadata={}))
    assert made["ruleSet"] == {"domainRules": [RULE]} and made["metadata"] == {} and made["version"] == 1
    without = api.register(subject, A, ruleSet={})
    assert without != made["id"] and api.register(subject, A, ruleSet={}) == without
    # Without rules and metadata, a look-up takes those of the latest version, as registering would.
    assert api.post(f"/subjects/{subject}", body(A))["version"] == 2
    assert api.post(f"/subjects/{subject}", body(A, metadata={}))["version"] == 2
    assert api.register(subject, A) == without


def test_the_answer_describes_what_was_registered(api: Api, subject: str) -> None:
    metadata = {"properties": {"owner": "me"}}
    api.put(f"/config/{subject}", {"overrideMetadata": {"properties": {"team": "us"}}})
    made = api.post(f"/subjects/{subject}/versions", body(A, metadata=metadata))
    assert made["metadata"] == {"properties": {"owner": "me", "team": "us"}}
    assert json.loads(made["schema"]) == A and made["guid"] and made["schemaType"] == "AVRO"
    found = api.get(f"/schemas/ids/{made['id']}")
    assert (found["subject"], found["version"], found["guid"]) == (subject, 1, made["guid"])
    assert found["ts"] > 0 and found["deleted"] is False and found["metadata"] == made["metadata"]
    api.delete(f"/subjects/{subject}")
    assert api.get(f"/schemas/ids/{made['id']}")["deleted"] is True


def test_tags_of_a_config_replace_those_of_the_schema(api: Api, subject: str) -> None:
    api.put(f"/config/{subject}", {"overrideMetadata": {"tags": {"R.a": ["PUBLIC"]}}})
    made = api.post(f"/subjects/{subject}/versions", body(A, metadata={"tags": {"R.a": ["PII"], "R": ["X"]}}))
    assert made["metadata"]["tags"] == {"R": ["X"], "R.a": ["PUBLIC"]}


# Imports


def test_an_import_knows_what_is_there(api: Api, subject: str) -> None:
    api.put(f"/mode/{subject}", {"mode": "IMPORT"})
    base = 1_000_000 + int(subject[2:], 16) % 1_000_000_000
    assert refused(api.register, subject, A) == (422, 42205)
    named = record(f"R{subject[2:]}", field("a"))
    assert api.register(subject, named, id=base, version=1) == base
    # A client that registers what it writes with does not fail: the schema is there.
    assert api.register(subject, named) == base and versions(api, subject) == [1]
    assert api.register(subject, named, id=base, version=2) == base
    assert api.register(subject, named, id=base, version=1) == base
    assert versions(api, subject) == [1, 2]


def test_a_read_only_subject_knows_what_is_there(api: Api, subject: str) -> None:
    schema_id = api.register(subject, A)
    api.put(f"/mode/{subject}", {"mode": "READONLY"})
    assert api.register(subject, A) == schema_id
    assert refused(api.register, subject, AB) == (422, 42205)


@pytest.mark.parametrize("by_config", [True, False])
def test_an_import_normalizes_nothing(api: Api, subject: str, by_config: bool) -> None:
    raw = record(f"R{subject[2:]}", field("a", zprop="z", aprop="a"))
    if by_config:
        api.put(f"/config/{subject}", {"normalize": True})
    api.put(f"/mode/{subject}", {"mode": "IMPORT"})
    schema_id = 1_000_000 + int(subject[2:], 16) % 1_000_000_000
    api.register(subject, raw, id=schema_id, version=1, normalize=not by_config)
    found = api.get(f"/subjects/{subject}/versions/1")["schema"]
    assert found.index("zprop") < found.index("aprop")


# Validation


def test_new_schemas_are_validated_unless_configured_otherwise(api: Api, subject: str) -> None:
    namespace = {**A, "namespace": "a-bad.namespace"}
    default = record("R", field("a", default=None))
    name = record("a-bad-name", field("a"))
    for schema in (namespace, default, name):
        assert refused(api.register, subject, schema) == (422, 42201)
    api.put(f"/config/{subject}", {"validateNewSchemas": False, "compatibility": "NONE"})
    assert api.register(subject, namespace) and api.register(subject, default)
    assert refused(api.register, subject, name) == (422, 42201)
    assert api.post(f"/subjects/{subject}", body(namespace))["version"] == 1


def test_field_names_are_validated_where_configured(api: Api, subject: str) -> None:
    assert api.register(subject, JSON_SCHEMA, "JSON")
    api.put(f"/config/{subject}-strict", {"validateFields": True})
    assert refused(api.register, f"{subject}-strict", JSON_SCHEMA, "JSON") == (422, 42201)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"domainRules": [{**RULE, "mode": "UPGRADE"}]}, (422, 42210)),
        ({"encodingRules": [{**RULE, "mode": "DOWNGRADE"}]}, (422, 42210)),
        ({"migrationRules": [RULE]}, (422, 42210)),
        ({"migrationRules": [{"name": "m", "type": "JSONATA"}]}, (422, 42210)),  # its mode is WRITEREAD
        ({"migrationRules": [{**RULE, "mode": "UPDOWN"}], "domainRules": [RULE]}, (422, 42210)),  # one name
        ({"domainRules": [{**RULE, "name": ""}]}, (422, 42210)),
        ({"domainRules": [{**RULE, "name": "1st"}]}, (422, 42210)),
        ({"domainRules": [{**RULE, "name": "x" * 257}]}, (422, 42210)),
        ({"domainRules": [{"name": "x"}]}, (422, 42210)),
        ({"domainRules": [{**RULE, "onFailure": "DLQ,NONE"}]}, (422, 42210)),
        ({"domainRules": [{**RULE, "mode": "SOMETIMES"}]}, (400, 400)),
        ({"domainRules": [7]}, (400, 400)),
        ({"domainRules": {}}, (400, 400)),
        ({"enableAt": "NOON"}, (400, 400)),
    ],
)
def test_rules_that_make_no_sense(
    api: Api, subject: str, rules: dict[str, Any], expected: tuple[int, int]
) -> None:
    assert refused(api.register, subject, A, ruleSet=rules) == expected
    assert refused(api.put, f"/config/{subject}", {"defaultRuleSet": rules}) == expected


# Contexts


def test_an_id_is_found_through_its_subject(api: Api, subject: str) -> None:
    context = f"c{subject[2:]}"
    inside, other = record("Inside", field("a")), record("Other", field("a"))
    api.register(f":.{context}:{subject}", inside)
    api.register(f":.{context}:{subject}-2", other)
    assert api.get("/schemas/ids/1", subject=f":.{context}:{subject}")["version"] == 1
    # A subject with a context must have the id itself.
    assert refused(api.get, "/schemas/ids/2", subject=f":.{context}:{subject}") == (404, 40403)
    assert refused(api.get, "/schemas/ids/2/versions", subject=f":.{context}:{subject}") == (404, 40403)
    assert json.loads(api.get("/schemas/ids/2", subject=f":.{context}:")["schema"]) == other
    # One without is looked for in every context, before the id in the default one counts.
    api.register(f"{subject}-default", A)
    found = api.get("/schemas/ids/1", subject=subject)
    assert found["subject"] == f":.{context}:{subject}" and json.loads(found["schema"]) == inside
    assert api.get("/schemas/ids/1/subjects", subject=subject) == [f":.{context}:{subject}"]
    assert not api.get("/schemas/ids/1", subject=f"{subject}-nowhere")["subject"].startswith(":.")


def test_schemas_are_those_of_the_default_context(api: Api, subject: str) -> None:
    context = f"c{subject[2:]}"
    api.register(f":.{context}:{subject}", A)
    api.register(subject, A)
    api.register(subject, AB)

    def listed(**query: Any) -> list[tuple[str, int]]:
        every = [(one["subject"], one["version"]) for one in api.get("/schemas", **query)]
        return [one for one in every if subject in one[0]]

    assert listed() == [(subject, 1), (subject, 2)]
    assert listed(subjectPrefix=f":*:{subject}") == [
        (f":.{context}:{subject}", 1),
        (subject, 1),
        (subject, 2),
    ]
    assert listed(subjectPrefix=f":.{context}:") == [(f":.{context}:{subject}", 1)]


# Bodies and names


def test_control_characters_in_a_subject(api: Api) -> None:
    for name in ("\rbad\nsubject\t", "bad\n", "\x7f"):
        path = quote(name, safe="")
        assert refused(api.post, f"/subjects/{path}/versions", body(A)) == (422, 42208)
        assert refused(api.put, f"/config/{path}", {"compatibility": "NONE"}) == (422, 42208)
        assert refused(api.put, f"/mode/{path}", {"mode": "READONLY"}) == (422, 42208)
        assert refused(api.get, f"/subjects/{path}/versions") == (404, 40401)


def test_numbers_as_text_and_text_as_numbers(api: Api, subject: str) -> None:
    api.put(f"/mode/{subject}", {"mode": "IMPORT"})
    schema_id = 1_000_000 + int(subject[2:], 16) % 1_000_000_000
    named = record(f"R{subject[2:]}", field("a"))
    metadata = {"properties": {"major": 1, "on": True}}
    made = api.register(subject, named, id=str(schema_id), version=" 3 ", metadata=metadata)
    assert made == schema_id
    found = api.get(f"/subjects/{subject}/versions/3")
    assert found["metadata"] == {"properties": {"major": "1", "on": "true"}}
    assert api.put(f"/config/{subject}", {"normalize": "true"})["normalize"] is True


@pytest.mark.parametrize(
    "given",
    [
        {"schema": {}},
        {"schema": ["x"]},
        {"schema": "x", "references": {}},
        {"schema": "x", "references": ["x"]},
        {"schema": "x", "version": "one"},
        {"schema": "x", "version": True},
        {"schema": "x", "version": 2**31},
        {"schema": "x", "id": "9" * 30},
        {"schema": "x", "metadata": []},
        {"schema": "x", "metadata": {"tags": {"a": "b"}}},
        {"schema": "x", "metadata": {"properties": {"a": {}}}},
        {"schema": "x", "ruleSet": "x"},
    ],
)
def test_bodies_of_the_wrong_shape(api: Api, subject: str, given: dict[str, Any]) -> None:
    assert refused(api.post, f"/subjects/{subject}/versions", given) == (400, 400)


def test_messages_about_soft_deletes(registry: RunningRegistry, api: Api, subject: str) -> None:
    api.register(subject, A)
    api.register(subject, AB)
    api.delete(f"/subjects/{subject}/versions/1")
    again = registry.http.delete(f"/subjects/{subject}/versions/1").json()
    text = "was soft deleted.Set permanent=true to delete permanently"
    assert again == {"error_code": 40406, "message": f"Subject '{subject}' Version 1 {text}"}
    api.delete(f"/subjects/{subject}")
    again = registry.http.delete(f"/subjects/{subject}").json()
    assert again == {"error_code": 40404, "message": f"Subject '{subject}' {text}"}


def test_the_order_of_tags_and_parameters_of_a_rule_does_not_count(api: Api, subject: str) -> None:
    def rules(tags: list[str], params: dict[str, Any]) -> dict[str, Any]:
        return {"domainRules": [{**RULE, "tags": tags, "params": params}]}

    first = api.register(subject, A, ruleSet=rules(["b", "a", "b"], {"y": 2, "x": "1"}))
    assert api.register(subject, A, ruleSet=rules(["a", "b"], {"x": 1, "y": "2"})) == first
    assert versions(api, subject) == [1]
    for odd in (
        {"tags": {}},
        {"tags": [None]},
        {"params": ["x"]},
        {"params": {"x": {}}},
        {"disabled": "maybe"},
    ):
        assert refused(api.register, subject, A, ruleSet={"domainRules": [{**RULE, **odd}]}) == (400, 400)


SETTINGS = {
    "kafkastore.topic": "_schemas-with-settings",
    "schema.registry.group.id": "registry-with-settings",
    "schema.reject.empty.subject": "true",
    "schema.providers.reference.versions.strict": "true",
    "size.limit.filter.enabled": "true",
    "size.limit.filter.max.request.body.size": "1024",
    "response.http.headers.config": 'add X-XSS-Protection: 1; mode=block, "add Cache-Control: a, b"',
}


@pytest.fixture(scope="module")
def strict_api(broker: Broker) -> Iterator[Api]:
    with RunningRegistry(broker.bootstrap_servers, SETTINGS) as running:
        yield Api(running.http)


def test_an_empty_subject_is_refused_where_a_setting_says_so(strict_api: Api, subject: str) -> None:
    assert refused(strict_api.register, ":.:", A) == (422, 42208)
    assert refused(strict_api.register, "*", A) == (422, 42208)
    assert refused(strict_api.register, ":.other:", A) == (422, 42208)
    assert strict_api.register(subject, A)


def test_two_versions_of_a_reference_are_refused_where_a_setting_says_so(
    strict_api: Api, subject: str
) -> None:
    def reference(name: str, version: int) -> dict[str, Any]:
        return {"name": name, "subject": f"{name}-{subject}", "version": version}

    strict_api.register(f"Inner-{subject}", record("Inner", field("a")))
    strict_api.register(f"Inner-{subject}", record("Inner", field("a"), field("b", default="")))
    strict_api.register(f"Middle-{subject}", record("Middle", field("a")), references=[reference("Inner", 2)])
    references = [reference("Inner", 1), reference("Middle", 1)]
    with pytest.raises(Refused, match="Conflicting reference versions") as caught:
        strict_api.register(subject, A, references=references)
    assert caught.value.code == 42201
    assert strict_api.register(subject, A, references=[reference("Inner", -1), reference("Middle", 1)])


def test_the_size_of_bodies_is_limited_where_a_setting_says_so(strict_api: Api, subject: str) -> None:
    assert refused(strict_api.register, subject, record("R", field("a" * 2000))) == (413, 413)


def test_headers_are_added_where_a_setting_says_so(strict_api: Api) -> None:
    found = strict_api.http.get("/v1/metadata/id").headers
    assert found["X-XSS-Protection"] == "1; mode=block" and found["Cache-Control"] == "a, b"
