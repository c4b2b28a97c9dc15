"""/subjects over HTTP: registering, looking up, versions, deleting."""

import json
from typing import Any

import pytest

from .client import Api, Refused, body, field, record

A = record("R", field("a"))
AB = record("R", field("a"), field("b", default=""))
BROKEN = record("R", field("a"), field("c"))
PROTO = 'syntax = "proto3"; message M { string a = 1; }'
JSON_SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def refused(act: Any, *args: Any, **how: Any) -> tuple[int, int]:
    with pytest.raises(Refused) as caught:
        act(*args, **how)
    return caught.value.status, caught.value.code


def test_register_and_read_back(api: Api, subject: str) -> None:
    first = api.register(subject, A)
    second = api.register(subject, AB)
    assert second > first
    assert api.register(subject, A) == first
    assert api.get(f"/subjects/{subject}/versions") == [1, 2]
    found = api.get(f"/subjects/{subject}/versions/1")
    assert found["subject"] == subject and found["version"] == 1 and found["id"] == first
    assert json.loads(found["schema"]) == A
    assert api.get(f"/subjects/{subject}/versions/latest")["version"] == 2
    assert api.get(f"/subjects/{subject}/versions/-1")["version"] == 2
    assert api.get(f"/subjects/{subject}/versions/1/schema") == A
    assert subject in api.get("/subjects")


def test_the_same_schema_has_the_same_id_everywhere(api: Api, subject: str) -> None:
    assert api.register(subject, A) == api.register(f"{subject}-other", A)
    spaced = json.dumps(A, indent=4)
    assert api.register(subject, spaced) == api.register(subject, A)
    found = api.get(f"/subjects/{subject}/versions/1")
    subjects = api.get(f"/schemas/ids/{found['id']}/subjects")
    assert {subject, f"{subject}-other"} <= set(subjects)
    versions = api.get(f"/schemas/ids/{found['id']}/versions")
    assert {"subject": subject, "version": 1} in versions


def test_all_three_languages(api: Api, subject: str) -> None:
    for kind, schema in (("AVRO", A), ("JSON", JSON_SCHEMA), ("PROTOBUF", PROTO)):
        schema_id = api.register(f"{subject}-{kind}", schema, kind)
        found = api.get(f"/schemas/ids/{schema_id}")
        assert found.get("schemaType", "AVRO") == kind
        assert api.post(f"/subjects/{subject}-{kind}", body(schema, kind))["id"] == schema_id


def test_what_is_refused(api: Api, subject: str) -> None:
    api.register(subject, A)
    path = f"/subjects/{subject}/versions"
    assert refused(api.register, subject, BROKEN) == (409, 40901)
    assert refused(api.register, subject, "{") == (422, 42201)
    assert refused(api.register, f"new-{subject}", "") == (422, 42201)
    # Without a schema: that of the latest version.
    assert api.register(subject, "") == api.register(subject, A)
    assert refused(api.register, subject, A, "XML") == (422, 42201)
    assert refused(api.register, subject, PROTO, "PROTOBUF") == (409, 40901)
    assert refused(api.get, f"{path}/9") == (404, 40402)
    assert refused(api.get, f"{path}/0") == (422, 42202)
    assert refused(api.get, f"{path}/x") == (422, 42202)
    assert refused(api.get, f"{path}/99999999999") == (422, 42202)
    assert refused(api.get, f"/subjects/none-{subject}/versions") == (404, 40401)
    assert refused(api.get, f"/subjects/none-{subject}/versions/1") == (404, 40401)
    assert refused(api.post, f"/subjects/none-{subject}", body(A)) == (404, 40401)
    assert refused(api.post, f"/subjects/{subject}", body(AB)) == (404, 40403)
    assert refused(api.post, f"/subjects/{subject}", body("{")) == (422, 42201)
    assert refused(api.register, "__GLOBAL", A) == (422, 42208)
    assert refused(api.post, path, None) == (422, 422)
    assert refused(api.post, path, []) == (400, 400)
    assert refused(api.post, path, {"schema": {}}) == (400, 400)
    assert refused(api.post, path, {"schema": 1}) == (422, 42201)
    assert refused(api.register, subject, A, version=9) == (422, 42201)
    assert refused(api.register, subject, AB, id=77) == (422, 42205)


def test_normalize(api: Api, subject: str) -> None:
    shuffled = {"fields": A["fields"], "name": "R", "z": 1, "a": 2, "type": "record"}
    straight = {"fields": A["fields"], "name": "R", "a": 2, "z": 1, "type": "record"}
    first = api.register(subject, shuffled, normalize=True)
    assert api.register(subject, straight, normalize=True) == first
    assert api.post(f"/subjects/{subject}", body(straight), normalize=True)["id"] == first
    assert refused(api.post, f"/subjects/{subject}", body(shuffled)) == (404, 40403)


def test_soft_and_permanent_delete_of_a_version(api: Api, subject: str) -> None:
    name = subject.replace("-", "_")
    one, two = record(name, field("a")), record(name, field("a"), field("b", default=""))
    first, second = api.register(subject, one), api.register(subject, two)
    path = f"/subjects/{subject}/versions"
    assert refused(api.delete, f"{path}/1", permanent=True) == (404, 40407)
    assert api.delete(f"{path}/1") == 1
    assert refused(api.delete, f"{path}/1") == (404, 40406)
    assert api.get(path) == [2]
    assert api.get(path, deleted=True) == [1, 2]
    assert api.get(path, deletedOnly=True) == [1]
    assert api.get(path, deletedAsNegative=True) == [-1, 2]
    assert refused(api.get, f"{path}/1") == (404, 40402)
    assert api.get(f"{path}/1", deleted=True)["deleted"] is True
    assert json.loads(api.get(f"/schemas/ids/{first}")["schema"]) == one
    assert refused(api.post, f"/subjects/{subject}", body(one)) == (404, 40403)
    assert api.post(f"/subjects/{subject}", body(one), deleted=True)["version"] == 1
    assert api.delete(f"{path}/1", permanent=True) == 1
    assert refused(api.get, f"{path}/1", deleted=True) == (404, 40402)
    assert refused(api.get, f"/schemas/ids/{first}") == (404, 40403)
    assert api.delete(f"{path}/latest") == 2
    assert refused(api.get, path) == (404, 40401)
    # Data written with it can still be read.
    assert json.loads(api.get(f"/schemas/ids/{second}")["schema"]) == two


def test_soft_and_permanent_delete_of_a_subject(api: Api, subject: str) -> None:
    schema = record(subject.replace("-", "_"), field("x"))
    schema_id = api.register(subject, schema)
    assert refused(api.delete, f"/subjects/{subject}", permanent=True) == (404, 40405)
    assert api.delete(f"/subjects/{subject}") == [1]
    assert refused(api.delete, f"/subjects/{subject}") == (404, 40404)
    assert subject not in api.get("/subjects")
    assert subject in api.get("/subjects", deleted=True)
    assert subject in api.get("/subjects", deletedOnly=True)
    # A schema that comes back after a soft delete keeps its id and gets the next version.
    assert api.register(subject, schema) == schema_id
    assert api.get(f"/subjects/{subject}/versions") == [2]
    assert api.delete(f"/subjects/{subject}") == [2]
    assert api.delete(f"/subjects/{subject}", permanent=True) == [2]
    assert refused(api.delete, f"/subjects/{subject}") == (404, 40401)
    assert refused(api.get, f"/schemas/ids/{schema_id}") == (404, 40403)
    # Its id does not come back.
    assert api.register(subject, schema) > schema_id


def test_references(api: Api, subject: str) -> None:
    name = subject.replace("-", "_")
    inner = record(f"{name}_inner", field("x"))
    outer = record(f"{name}_outer", field("i", f"{name}_inner"))
    reference = {"name": f"{name}_inner", "subject": f"{subject}-inner", "version": 1}
    assert refused(api.register, subject, outer, references=[reference]) == (422, 42201)
    api.register(f"{subject}-inner", inner)
    outer_id = api.register(subject, outer, references=[reference])
    assert api.get(f"/subjects/{subject}-inner/versions/1/referencedby") == [outer_id]
    assert api.get(f"/schemas/ids/{outer_id}")["references"] == [reference]
    assert api.register(subject, outer, references=[{**reference, "version": -1}]) == outer_id
    # With everything in place it is the same schema.
    resolved = record(f"{name}_outer", field("i", inner))
    assert api.post(f"/subjects/{subject}", body(resolved))["id"] == outer_id
    found = api.get(f"/subjects/{subject}/versions/1", format="resolved")
    assert json.loads(found["schema"])["fields"][0]["type"]["fields"]
    assert refused(api.delete, f"/subjects/{subject}-inner/versions/1") == (422, 42206)
    assert refused(api.delete, f"/subjects/{subject}-inner") == (422, 42206)
    api.delete(f"/subjects/{subject}")
    assert api.get(f"/subjects/{subject}-inner/versions/1/referencedby") == []
    assert api.get(f"/subjects/{subject}-inner/versions/1/referencedby", deleted=True) == [outer_id]
    assert api.delete(f"/subjects/{subject}-inner") == [1]
    assert refused(api.register, f"{subject}-2", outer, references=[{"name": "x"}]) == (422, 42201)


def test_filters_and_pages(api: Api, subject: str) -> None:
    for ending in ("a", "b", "c"):
        api.register(f"{subject}-{ending}", A)
    wanted = [f"{subject}-{ending}" for ending in ("a", "b", "c")]
    assert api.get("/subjects", subjectPrefix=subject) == wanted
    assert api.get("/subjects", subjectPrefix=f":*:{subject}") == wanted
    assert api.get("/subjects", subjectPrefix=subject, offset=1, limit=1) == wanted[1:2]
    assert api.get("/subjects", pattern=f"{subject}-?") == wanted
    assert api.get("/subjects", pattern=f"*{subject[2:]}-b") == wanted[1:2]
    assert [one["subject"] for one in api.get("/schemas", subjectPrefix=subject)] == wanted
    api.register(f"{subject}-a", AB)
    latest = api.get("/schemas", subjectPrefix=subject, latestOnly=True)
    assert [(one["subject"], one["version"]) for one in latest] == list(zip(wanted, (2, 1, 1), strict=True))
    assert refused(api.get, "/subjects", limit="many") == (404, 404)


def test_metadata_and_rules(api: Api, subject: str) -> None:
    metadata = {"properties": {"owner": "me"}, "tags": {"R.a": ["PII"]}, "sensitive": ["owner"]}
    rules = {
        "domainRules": [
            {"name": "check", "kind": "CONDITION", "type": "CEL", "mode": "WRITE", "expr": "true"}
        ]
    }
    plain = api.register(subject, A)
    tagged = api.register(subject, A, metadata=metadata, ruleSet=rules)
    assert tagged != plain
    found = api.get(f"/subjects/{subject}/versions/latest")
    assert found["metadata"] == metadata and found["ruleSet"] == rules
    assert api.get(f"/subjects/{subject}/metadata?key=owner&value=me")["id"] == tagged
    assert refused(api.get, f"/subjects/{subject}/metadata?key=owner&value=you") == (404, 40403)
    # A schema sent without them takes over those of the version before.
    assert (
        api.register(subject, AB) and api.get(f"/subjects/{subject}/versions/latest")["metadata"] == metadata
    )
    assert api.get("/schemas", subjectPrefix=subject, ruleType="CEL") != []
    bad = {"domainRules": [{"name": "x", "kind": "NOPE", "type": "CEL"}]}
    assert refused(api.register, subject, A, ruleSet=bad) == (400, 400)
    assert refused(api.register, subject, A, metadata={"properties": {"a": [1]}}) == (400, 400)


def test_version_in_the_metadata(api: Api, subject: str) -> None:
    first = api.register(subject, A)
    assert api.register(subject, A, version=-1) == first  # the latest version has it already
    second = api.register(subject, A, version=2)
    assert second != first and api.register(subject, A, version=-1) == second
    latest = api.get(f"/subjects/{subject}/versions/latest")
    assert latest["id"] == second and latest["metadata"]["properties"]["confluent:version"] == "2"
    assert api.get(f"/subjects/{subject}/versions") == [1, 2]
    assert api.register(subject, AB, version=-1) not in (first, second)
    assert api.register(subject, A, version=-1) and api.get(f"/subjects/{subject}/versions") == [1, 2, 3, 4]


def test_by_guid(api: Api, subject: str) -> None:
    schema_id = api.register(subject, A)
    guid = api.get(f"/subjects/{subject}/versions/1")["guid"]
    assert json.loads(api.get(f"/schemas/guids/{guid}")["schema"]) == A
    assert {"context": ".", "id": schema_id} in api.get(f"/schemas/guids/{guid}/ids")
    assert refused(api.get, "/schemas/guids/00000000-0000-0000-0000-000000000000") == (404, 40403)
    assert refused(api.get, "/schemas/guids/nonsense") == (404, 40403)


def test_subjects_with_strange_names(api: Api, subject: str) -> None:
    for name in (f"{subject} with spaces", f"{subject}/slash", f"{subject}-ümlaut", f"{subject}?x=1&y#z"):
        from urllib.parse import quote

        encoded = quote(name, safe="")
        schema_id = api.register(encoded, A)
        assert api.get(f"/subjects/{encoded}/versions/1")["subject"] == name
        assert api.get(f"/subjects/{encoded}/versions/latest")["id"] == schema_id
        assert api.delete(f"/subjects/{encoded}") == [1]


def test_a_very_large_schema(api: Api, subject: str) -> None:
    huge = record("Huge", *(field(f"f{number}", doc="x" * 100) for number in range(12_000)))
    assert refused(api.register, subject, huge) == (422, 42209)
    assert api.register(subject, A) > 0
