"""Tags inside of schemas: added and removed when a schema is registered, or on the schema of a version, taken
over from the version before, and searched for."""

import json
from typing import Any

import pytest

from .client import Api, Refused, body, field, record

ORDER = record("Order", field("id", "int"), field("name"))
PROTO = 'syntax = "proto3";\npackage shop;\n\nmessage Order {\n  string name = 1;\n}\n'


def tags(path: str, *names: str) -> dict[str, Any]:
    """Of a field where the path has a dot, of a record otherwise."""
    entity_type = "sr_field" if "." in path else "sr_record"
    return {"schemaEntity": {"entityPath": path, "entityType": entity_type}, "tags": list(names)}


def raises(code: int, text: str = "") -> Any:
    return pytest.raises(Refused, check=lambda error: error.code == code and text in error.message)


def latest(api: Api, subject: str, **query: Any) -> Any:
    return api.get(f"/subjects/{subject}/versions/latest", **query)


def test_tags_of_a_schema_that_is_registered(api: Api, subject: str) -> None:
    path = f"/subjects/{subject}/versions"
    first = api.register(subject, ORDER)
    made = api.post(
        path, body(ORDER, version=2, schemaTagsToAdd=[tags("Order", "A", "B"), tags("Order.name", "PII")])
    )
    assert made["id"] != first and made["version"] == 2
    found = latest(api, subject)
    expected = {**ORDER, "confluent:tags": ["A", "B"]}
    assert json.loads(found["schema"]) == {
        **expected,
        "fields": [field("id", "int"), field("name", **{"confluent:tags": ["PII"]})],
    }
    assert found["metadata"]["properties"] == {"confluent:version": "2"}
    assert "schemaTags" not in found

    # Without a version: the next one. What is added and removed at once is removed.
    api.post(
        path,
        body(
            found["schema"],
            schemaTagsToAdd=[tags("Order", "C", "A")],
            schemaTagsToRemove=[tags("Order", "A", "B"), tags("Order.name", "PII")],
        ),
    )
    found = latest(api, subject)
    assert json.loads(found["schema"]) == {**ORDER, "confluent:tags": ["C"]}
    assert (found["version"], found["metadata"]["properties"]["confluent:version"]) == (3, "3")

    with raises(42201, "No matching path 'Order.nothing' found"):
        api.post(path, body(ORDER, schemaTagsToAdd=[tags("Order.nothing", "A")]))
    for wrong in (
        [{"tags": ["A"]}],
        [{**tags("Order", "A"), "schemaEntity": {"entityPath": "Order"}}],
        ["A"],
    ):
        with raises(400):
            api.post(path, body(ORDER, schemaTagsToAdd=wrong))


def test_tags_of_the_version_before(api: Api, subject: str) -> None:
    path = f"/subjects/{subject}/versions"
    api.register(subject, ORDER)
    api.post(path, body(ORDER, schemaTagsToAdd=[tags("Order.name", "PII")]))
    longer = record("Order", *ORDER["fields"], field("size", "int", default=0))
    api.post(path, body(longer, propagateSchemaTags=True))
    found = latest(api, subject, findTags="*")
    assert found["version"] == 3
    assert found["schemaTags"] == [tags("Order.name", "PII")]
    api.put(f"/config/{subject}", {"compatibility": "NONE"})
    with raises(42201, "No matching path"):
        api.post(path, body(record("Order", field("id", "int")), propagateSchemaTags=True))
    api.post(path, body(longer))
    assert "confluent:tags" not in latest(api, subject)["schema"]


def test_finding_tags(api: Api, subject: str) -> None:
    both = [tags("Order", "ROW"), tags("Order.name", "PII", "GDPR")]
    made = api.post(f"/subjects/{subject}/versions", body(ORDER, schemaTagsToAdd=both))
    for path in (f"/subjects/{subject}/versions/1", f"/schemas/ids/{made['id']}"):
        assert api.get(path, findTags="*", subject=subject)["schemaTags"] == both
        assert api.get(path, findTags="GDPR")["schemaTags"] == both[1:]
        assert api.get(path, findTags=["GDPR", "ROW"])["schemaTags"] == both
        assert "schemaTags" not in api.get(path, findTags="OTHER")
        assert "schemaTags" not in api.get(path)


def test_changing_the_tags_of_a_version(api: Api, subject: str) -> None:
    path = f"/subjects/{subject}/versions"
    rule = {"name": "r1", "kind": "TRANSFORM", "mode": "WRITEREAD", "type": "ENCRYPT", "tags": ["PII"]}
    api.post(path, body(ORDER, metadata={"properties": {"owner": "me"}}, ruleSet={"domainRules": [rule]}))
    made = api.post(f"{path}/latest/tags", {"tagsToAdd": [tags("Order", "A", "B")]})
    assert made["version"] == 2
    found = latest(api, subject)
    assert json.loads(found["schema"]) == {**ORDER, "confluent:tags": ["A", "B"]}
    assert found["metadata"]["properties"] == {"confluent:version": "2", "owner": "me"}
    assert [one["name"] for one in found["ruleSet"]["domainRules"]] == ["r1"]

    changes = {
        "newVersion": 3,
        "tagsToRemove": [tags("Order", "B")],
        "metadata": {"properties": {"owner": "you"}},
        "rulesToMerge": {"domainRules": [{**rule, "name": "r2"}]},
        "rulesToRemove": ["r1"],
    }
    api.post(f"{path}/2/tags", changes)
    found = latest(api, subject)
    assert json.loads(found["schema"])["confluent:tags"] == ["A"]
    assert found["metadata"]["properties"] == {"confluent:version": "3", "owner": "you"}
    assert [one["name"] for one in found["ruleSet"]["domainRules"]] == ["r2"]

    with raises(42210):
        api.post(f"{path}/3/tags", {"ruleSet": {"domainRules": [rule]}, "rulesToRemove": ["r2"]})
    with raises(42201):
        api.post(f"{path}/3/tags", {"newVersion": 9, "tagsToAdd": [tags("Order", "Z")]})
    with raises(42201, "No matching path"):
        api.post(f"{path}/3/tags", {"tagsToAdd": [tags("Nobody", "Z")]})
    with raises(40402):
        api.post(f"{path}/7/tags", {})
    with raises(40401):
        api.post(f"/subjects/{subject}-nobody/versions/1/tags", {})


def test_tags_in_other_languages(api: Api, subject: str) -> None:
    document = {"type": "object", "properties": {"name": {"type": "string"}}}
    path = f"/subjects/{subject}/versions"
    api.post(path, body(document, "JSON", schemaTagsToAdd=[tags("object.name", "PII")]))
    found = latest(api, subject, findTags="PII")
    assert json.loads(found["schema"])["properties"]["name"] == {"type": "string", "confluent:tags": ["PII"]}
    assert found["schemaTags"] == [tags("object.name", "PII")]

    path = f"/subjects/{subject}-proto/versions"
    api.post(path, body(PROTO, "PROTOBUF"))
    api.post(f"{path}/1/tags", {"tagsToAdd": [tags("Order.name", "PII"), tags(".Order.name", "GDPR")]})
    found = latest(api, f"{subject}-proto", findTags="*")
    assert found["schemaTags"] == [tags("Order.name", "PII", "GDPR")]
    assert (
        '(confluent.field_meta) = {\n    tags: [\n      "PII",\n      "GDPR"\n    ]\n  }' in found["schema"]
    )


def test_aliases(api: Api, subject: str) -> None:
    schema_id = api.register(subject, ORDER)
    alias = f"{subject}-alias"
    api.put(f"/config/{alias}", {"alias": subject})
    assert api.get(f"/subjects/{alias}/versions/1")["subject"] == subject
    assert api.register(alias, ORDER) == schema_id
    assert api.post(f"/subjects/{alias}", body(ORDER))["id"] == schema_id
    assert api.post(f"/compatibility/subjects/{alias}/versions", body(ORDER)) == {"is_compatible": True}
    assert api.get(f"/schemas/ids/{schema_id}", subject=alias)["subject"] == subject
    assert api.get("/schemas", subjectPrefix=alias) == []
    (found,) = api.get("/schemas", subjectPrefix=alias, aliases=True)
    assert (found["subject"], found["aliases"]) == (subject, [alias])
    (found,) = api.get("/schemas", subjectPrefix=subject)
    assert "aliases" not in found


def test_schemas_by_the_associations_of_their_subjects(api: Api, subject: str) -> None:
    for name, topic in ((subject, "a"), (f"{subject}-2", None)):
        api.register(name, ORDER)
        if topic:
            weak = {"subject": name, "associationType": "key", "lifecycle": "WEAK"}
            resource = {"resourceName": f"{name}-t", "resourceNamespace": "c", "resourceId": f"id-{name}"}
            api.post("/associations", {**resource, "associations": [weak]})
    api.register(subject, record("Order", field("id", "int"), field("name"), field("more", "int", default=1)))

    def found(**query: Any) -> list[tuple[str, int, int]]:
        listed = api.get("/schemas", subjectPrefix=subject, **query)
        return [(one["subject"], one["version"], len(one.get("associations", ()))) for one in listed]

    assert found() == [(subject, 1, 0), (subject, 2, 0), (f"{subject}-2", 1, 0)]
    assert found(associationType="key") == [(subject, 1, 1), (subject, 2, 1)]
    assert found(associationType="value") == []
    assert found(lifecycle="WEAK", latestOnly=True) == [(subject, 2, 1)]
    assert found(lifecycle="STRONG") == []
    assert found(lifecycle="NONE") == [(f"{subject}-2", 1, 0)]
    assert found(lifecycle=["NONE", "WEAK"], limit=2) == [(subject, 1, 1), (subject, 2, 1)]
    assert found(resourceType="topic", latestOnly=True) == [(subject, 2, 1)]
    with raises(404):
        found(lifecycle="FIRM")
