"""/config, /mode, /compatibility and /contexts over HTTP."""

import pytest

from millstream.registry.compatibility_levels import LEVELS

from .client import Api, body, field, record
from .test_subjects import AB, A, refused

WIDER = record("R", field("a"), field("c", default=""))
NARROW = record("R")
REQUIRED = record("R", field("a"), field("d"))


def test_config_of_a_subject(api: Api, subject: str) -> None:
    assert api.get("/config") == {"compatibilityLevel": "BACKWARD"}
    assert refused(api.get, f"/config/{subject}") == (404, 40408)
    assert api.get(f"/config/{subject}", defaultToGlobal=True) == {"compatibilityLevel": "BACKWARD"}
    assert api.put(f"/config/{subject}", {"compatibility": "full"}) == {"compatibility": "FULL"}
    assert api.get(f"/config/{subject}") == {"compatibilityLevel": "FULL"}
    assert refused(api.put, f"/config/{subject}", {"compatibility": "SOMETIMES"}) == (422, 42203)
    assert refused(api.put, f"/config/{subject}", {"normalize": "x"}) == (400, 400)
    assert refused(api.put, "/config/__EMPTY", {"compatibility": "FULL"}) == (422, 42208)
    assert api.delete(f"/config/{subject}") == {"compatibilityLevel": "FULL"}
    assert refused(api.delete, f"/config/{subject}") == (404, 40401)


def test_fields_of_a_config_are_changed_one_by_one(api: Api, subject: str) -> None:
    api.put(f"/config/{subject}", {"compatibility": "NONE"})
    api.put(f"/config/{subject}", {"normalize": True, "defaultMetadata": {"properties": {"team": "x"}}})
    config = api.get(f"/config/{subject}")
    assert config == {
        "compatibilityLevel": "NONE",
        "normalize": True,
        "defaultMetadata": {"properties": {"team": "x"}},
    }
    api.put(f"/config/{subject}", {"normalize": None})
    assert "normalize" not in api.get(f"/config/{subject}")
    api.register(subject, A)
    assert api.get(f"/subjects/{subject}/versions/1")["metadata"]["properties"] == {"team": "x"}


@pytest.mark.parametrize("level", LEVELS)
def test_all_levels(api: Api, subject: str, level: str) -> None:
    """What may follow [A, AB], level by level. `transitive` is about A, which is not the latest."""
    api.put(f"/config/{subject}", {"compatibility": "NONE"})
    for schema in (A, record("R", field("a"), field("b"))):
        api.register(subject, schema)
    api.put(f"/config/{subject}", {"compatibility": level})
    path = f"/compatibility/subjects/{subject}/versions"

    def allowed(schema: dict[str, object]) -> bool:
        return bool(api.post(path, body(schema))["is_compatible"])

    drops_b = A  # reads both; but readers of version 2 need b
    keeps_b = record("R", field("a"), field("b"))  # does not read version 1
    needs_d = record("R", field("a"), field("b"), field("d"))
    expected = {
        "NONE": (True, True, True),
        "BACKWARD": (True, True, False),
        "BACKWARD_TRANSITIVE": (True, False, False),
        "FORWARD": (False, True, True),
        "FORWARD_TRANSITIVE": (False, True, True),
        "FULL": (False, True, False),
        "FULL_TRANSITIVE": (False, False, False),
    }
    assert (allowed(drops_b), allowed(keeps_b), allowed(needs_d)) == expected[level]


def test_compatibility_messages(api: Api, subject: str) -> None:
    path = f"/compatibility/subjects/{subject}/versions"
    assert api.post(f"{path}/latest", body(A)) == {"is_compatible": True}
    api.register(subject, A)
    assert api.post(f"{path}/1", body(AB)) == {"is_compatible": True}
    assert api.post(f"{path}/1", body(REQUIRED)) == {"is_compatible": False}
    answer = api.post(f"{path}/1", body(REQUIRED), verbose=True)
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in answer["messages"][0]
    assert "the field 'd'" in answer["messages"][0]
    assert any("oldSchemaVersion: 1" in message for message in answer["messages"])
    assert refused(api.post, f"{path}/7", body(A)) == (404, 40402)
    assert refused(api.post, f"{path}/x", body(A)) == (422, 42202)
    assert refused(api.post, path, body("{")) == (422, 42201)
    assert api.post(path, body("{"), verbose=True)["is_compatible"] is False


def test_lenient_policy_and_groups(api: Api, subject: str) -> None:
    old = {"type": "object", "properties": {"a": {"type": "string"}}}
    new = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    api.register(subject, old, "JSON")
    assert refused(api.register, subject, new, "JSON") == (409, 40901)
    api.put(f"/config/{subject}", {"compatibilityPolicy": "LENIENT"})
    assert api.register(subject, new, "JSON")
    api.put(f"/config/{subject}", {"compatibilityGroup": "major"})
    other = {"type": "object", "properties": {"a": {"type": "number"}}}
    assert refused(api.register, subject, other, "JSON") == (409, 40901)
    assert api.register(subject, other, "JSON", metadata={"properties": {"major": "2"}})


def test_an_alias_stands_for_a_subject(api: Api, subject: str) -> None:
    schema_id = api.register(subject, A)
    api.put(f"/config/nick-{subject}", {"alias": subject})
    assert api.get(f"/subjects/nick-{subject}/versions/1")["subject"] == subject
    assert api.post(f"/subjects/nick-{subject}", body(A))["id"] == schema_id
    assert api.register(f"nick-{subject}", AB) and api.get(f"/subjects/{subject}/versions") == [1, 2]
    assert f"nick-{subject}" not in api.get("/subjects")


def test_modes(api: Api, subject: str) -> None:
    assert api.get("/mode") == {"mode": "READWRITE"}
    assert refused(api.get, f"/mode/{subject}") == (404, 40409)
    assert api.get(f"/mode/{subject}", defaultToGlobal=True) == {"mode": "READWRITE"}
    api.register(subject, A)
    assert api.put(f"/mode/{subject}", {"mode": "READONLY"}) == {"mode": "READONLY"}
    assert refused(api.register, subject, AB) == (422, 42205)
    assert refused(api.delete, f"/subjects/{subject}") == (422, 42205)
    assert refused(api.put, f"/config/{subject}", {"compatibility": "NONE"}) == (422, 42205)
    assert refused(api.put, f"/mode/{subject}", {"mode": "ASLEEP"}) == (422, 42204)
    assert refused(api.put, f"/mode/{subject}", {"mode": "FORWARD"}) == (422, 42204)
    assert api.delete(f"/mode/{subject}") == {"mode": "READONLY"}
    assert refused(api.delete, f"/mode/{subject}") == (404, 40401)
    assert api.register(subject, AB)


def test_import_brings_ids_and_versions(api: Api, subject: str) -> None:
    context = f":.{subject}:"
    api.put(f"/mode/{context}", {"mode": "IMPORT"})
    assert refused(api.register, f"{context}x", A) == (422, 42205)
    assert api.register(f"{context}x", A, id=500, version=3) == 500
    assert api.get(f"/subjects/{context}x/versions/3")["id"] == 500
    assert refused(api.register, f"{context}x", AB, id=500, version=4) == (422, 42205)
    api.delete(f"/mode/{context}")
    assert api.register(f"{context}y", AB) == 501
    assert refused(api.put, f"/mode/{context}", {"mode": "IMPORT"}) == (422, 42205)
    assert api.put(f"/mode/{context}", {"mode": "IMPORT"}, force=True) == {"mode": "IMPORT"}


def test_contexts(api: Api, subject: str) -> None:
    context = f"c{subject[2:]}"
    first = api.register(f":.{context}:x", A)
    assert first == 1  # a context counts its ids for itself
    assert f".{context}" in api.get("/contexts")
    assert api.get("/subjects", subjectPrefix=f":.{context}:") == [f":.{context}:x"]
    base = f"/contexts/.{context}"
    assert api.get(f"{base}/subjects") == [f":.{context}:x"]
    assert api.get(f"{base}/subjects/x/versions") == [1]
    assert api.get(f"{base}/schemas/ids/1/versions") == [{"subject": f":.{context}:x", "version": 1}]
    assert api.post(f"{base}/subjects/x/versions", body(AB))["id"] == 2
    assert api.post(f"{base}/compatibility/subjects/x/versions/latest", body(A))["is_compatible"]
    assert api.put(f"{base}/config", {"compatibility": "NONE"}) == {"compatibility": "NONE"}
    assert api.get(f"/config/:.{context}:x", defaultToGlobal=True) == {"compatibilityLevel": "NONE"}
    assert api.get(f"/schemas/ids/2?subject=:.{context}:")["schema"]
    # Without a context, a subject is found wherever it is.
    api.register(f":.{context}:only-{subject}", A)
    assert api.get(f"/subjects/only-{subject}/versions/1")["subject"] == f":.{context}:only-{subject}"
    assert refused(api.delete, base) == (422, 42211)
    for name in ("x", f"only-{subject}"):
        api.delete(f"{base}/subjects/{name}")
        api.delete(f"{base}/subjects/{name}", permanent=True)
    assert api.delete(base) is None
    assert f".{context}" not in api.get("/contexts")


def test_reserved_names(api: Api, subject: str) -> None:
    api.put(f"/config/{subject}", {"validateFields": True})
    reserved = {"properties": {"confluent:reserved": "later"}}
    api.register(subject, A, metadata=reserved)
    taken = record("R", field("a"), field("later", default=""))
    assert refused(api.register, subject, taken, metadata=reserved) == (409, 40901)
    assert refused(api.register, subject, AB, metadata={"properties": {"x": "y"}}) == (409, 40901)


def test_no_id_is_above_the_highest(api: Api, subject: str) -> None:
    """Four bytes in front of a message hold an id."""
    imported, new = f":.full{subject}:a", f":.full{subject}:b"
    api.put(f"/mode/{imported}", {"mode": "IMPORT"})
    assert api.register(imported, A, id=2**31 - 1, version=1) == 2**31 - 1
    assert refused(api.register, new, AB) == (422, 42205)
    assert api.register(new, A) == 2**31 - 1  # the same schema
