"""Records of the topic and the state made of them, without a broker. The records are Confluent's, as its
registry wrote them."""

import base64
import hashlib
import json
import uuid
from typing import Any

import pytest

from millstream.registry import contexts, schema_records
from millstream.registry.schema_records import Content, Version
from millstream.registry.state import State
from millstream.schemas import Reference


def entry(key: dict[str, Any], value: dict[str, Any] | None) -> tuple[bytes, bytes | None, int]:
    return json.dumps(key).encode(), None if value is None else json.dumps(value).encode(), 1


def schema_entry(
    subject: str, version: int, schema_id: int, text: str, **more: Any
) -> tuple[bytes, bytes | None, int]:
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value = {
        "subject": subject,
        "version": version,
        "id": schema_id,
        "schema": text,
        "deleted": False,
        **more,
    }
    return entry(key, value)


def made_of(*entries: tuple[bytes, bytes | None, int]) -> State:
    state = State()
    for one in entries:
        state.apply(*one)
    return state


def test_a_topic_as_confluents_registry_leaves_it() -> None:
    state = made_of(
        entry({"keytype": "NOOP", "magic": 0}, None),
        entry({"keytype": "CONFIG", "magic": 0}, {"compatibilityLevel": "FULL"}),
        schema_entry("a", 1, 1, '"string"'),
        schema_entry("a", 2, 2, '"int"'),
        schema_entry("b", 1, 2, '"int"'),
        schema_entry(
            "c",
            1,
            3,
            'syntax = "proto3";',
            schemaType="PROTOBUF",
            references=[{"name": "x", "subject": "a", "version": 1}],
        ),
        entry(
            {"keytype": "CONFIG", "subject": "a", "magic": 0}, {"subject": "a", "compatibilityLevel": "NONE"}
        ),
        entry({"keytype": "MODE", "subject": "a", "magic": 0}, {"subject": "a", "mode": "READONLY"}),
        entry({"keytype": "DELETE_SUBJECT", "subject": "b", "magic": 0}, {"subject": "b", "version": 1}),
        entry(
            {"keytype": "CONTEXT", "tenant": "default", "context": ".staging", "magic": 0},
            {"tenant": "default", "context": ".staging"},
        ),
        schema_entry(":.staging:a", 1, 1, '"long"'),
        entry({"keytype": "SOMETHING_NEW", "magic": 9}, {"x": 1}),
        (b"not json", b"x", 1),
    )
    assert state.left_out == 2
    assert state.configs == {None: {"compatibilityLevel": "FULL"}, "a": {"compatibilityLevel": "NONE"}}
    assert state.modes == {"a": "READONLY"}
    assert [one.version for one in state.all_versions("a")] == [1, 2]
    assert not state.has_subject("b") and state.has_subject("b", deleted=True)
    assert [one.subject for one in state.users(".", 2)] == ["a", "b"]
    found = state.content(".", 2)
    assert found is not None and found.subject == "a"
    assert [one.subject for one in state.referrers("a", 1, deleted=False)] == ["c"]
    assert state.next_id(".") == 4 and state.next_id(".staging") == 2
    assert list(state.contexts) == [".staging"]


def test_tombstones_and_ids_that_stay_used() -> None:
    state = made_of(schema_entry("a", 1, 7, '"string"'))
    state.apply(*entry({"keytype": "NOOP", "magic": 0}, {"highestIds": {".": 9}}))
    key = {"keytype": "SCHEMA", "subject": "a", "version": 1, "magic": 1}
    state.apply(*entry(key, None))
    state.apply(*entry(key, None))
    assert not state.has_subject("a", deleted=True) and state.users(".", 7) == []
    assert state.id_of(".", Content("AVRO", '"string"')) is None
    assert state.next_id(".") == 10


def test_what_is_written_is_what_confluents_registry_writes() -> None:
    assert schema_records.schema_key("a", 1) == b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}'
    assert schema_records.config_key(None) == b'{"keytype":"CONFIG","magic":0}'
    assert schema_records.config_key("a") == b'{"keytype":"CONFIG","subject":"a","magic":0}'
    assert schema_records.noop_key() == b'{"keytype":"NOOP","magic":0}'
    assert schema_records.delete_subject_key("a") == b'{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}'
    content = Content("JSON", "{}", (Reference("n", "s", 2),))
    value = json.loads(Version("a", 1, 3, content).value())
    assert value == {
        "subject": "a",
        "version": 1,
        "id": 3,
        "md5": base64.b64encode(content.digest).decode(),
        "schemaType": "JSON",
        "references": [{"name": "n", "subject": "s", "version": 2}],
        "schema": "{}",
        "deleted": False,
    }
    again = Version.from_value(value, None)
    assert again.content == content and again.id == 3


def test_guids_are_the_same_in_every_registry() -> None:
    # MD5 of the text, then of references, metadata and rules: given by the format.
    plain = Content("AVRO", '"string"')
    assert plain.guid == str(uuid.UUID(hashlib.md5(b'"string"').hexdigest()))  # noqa: S324
    referring = Content("AVRO", "x", (Reference("n", "s", 1),))
    assert referring.guid == str(uuid.UUID(hashlib.md5(b"xns\0\0\0\1").hexdigest()))  # noqa: S324
    described = Content("AVRO", "x", (), {"properties": {"b": "2", "a": "1"}, "tags": {"t": ["z", "y"]}})
    assert described.guid == str(uuid.UUID(hashlib.md5(b"x\1tyza1b2").hexdigest()))  # noqa: S324


@pytest.mark.parametrize(
    ("text", "context", "name", "stored"),
    [
        ("a", ".", "a", "a"),
        (":.:a", ".", "a", "a"),
        (":.c:a", ".c", "a", ":.c:a"),
        (":.c:", ".c", "", ":.c:"),
        (":.c", ".c", "", ":.c:"),
        ("a:b", ".", "a:b", "a:b"),
        (":.c:a:b", ".c", "a:b", ":.c:a:b"),
    ],
)
def test_subjects_and_contexts(text: str, context: str, name: str, stored: str) -> None:
    parsed = contexts.parse(text)
    assert (parsed.context, parsed.name, parsed.qualified) == (context, name, stored)
    assert contexts.normalize(stored) == stored
