"""The records of the topic `_schemas`, in the JSON that Confluent's registry reads and writes.

The key says what a record is about; a later record with the same key replaces an earlier one (the topic is
compacted), a null value removes it. One addition of ours, which others ignore: the value of a NOOP record may
hold the highest id ever used per context, because an id must not come back after its schema is permanently
deleted and compacted away.
"""

import base64
import hashlib
import json
import struct
import uuid
from dataclasses import dataclass, field
from typing import Any

from millstream.schemas import Reference

Json = dict[str, Any]


def _dump(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def schema_key(subject: str, version: int) -> bytes:
    return _dump({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1})


def config_key(subject: str | None) -> bytes:
    return _subject_key("CONFIG", subject)


def mode_key(subject: str | None) -> bytes:
    return _subject_key("MODE", subject)


def delete_subject_key(subject: str) -> bytes:
    return _subject_key("DELETE_SUBJECT", subject)


def clear_subject_key(subject: str | None) -> bytes:
    return _subject_key("CLEAR_SUBJECT", subject)


def _subject_key(key_type: str, subject: str | None) -> bytes:
    if subject is None:
        return _dump({"keytype": key_type, "magic": 0})
    return _dump({"keytype": key_type, "subject": subject, "magic": 0})


def context_key(context: str) -> bytes:
    return _dump({"keytype": "CONTEXT", "tenant": "default", "context": context, "magic": 0})


def noop_key() -> bytes:
    return _dump({"keytype": "NOOP", "magic": 0})


def noop_value(highest_ids: dict[str, int]) -> bytes | None:
    return _dump({"highestIds": highest_ids}) if highest_ids else None


def config_value(subject: str | None, config: Json) -> bytes:
    body = {key: value for key, value in config.items() if value is not None and key != "subject"}
    return _dump(body if subject is None else {"subject": subject, **body})


def mode_value(subject: str | None, mode: str) -> bytes:
    return _dump({"mode": mode} if subject is None else {"subject": subject, "mode": mode})


def delete_subject_value(subject: str, version: int) -> bytes:
    return _dump({"subject": subject, "version": version})


def clear_subject_value(subject: str | None) -> bytes:
    return _dump({} if subject is None else {"subject": subject})


def context_value(context: str) -> bytes:
    return _dump({"tenant": "default", "context": context})


@dataclass(slots=True)
class Content:
    """What makes a schema that schema: its type, canonical text, references, metadata and rules."""

    schema_type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Json | None = None
    rule_set: Json | None = None
    _digest: bytes | None = field(default=None, compare=False)

    @property
    def digest(self) -> bytes:
        """Equal for equal schemas, in every registry: the guid as bytes."""
        if self._digest is None:
            digest = hashlib.md5(self.text.encode(), usedforsecurity=False)
            for reference in self.references:
                digest.update(reference.name.encode() + reference.subject.encode())
                digest.update(struct.pack(">i", reference.version))
            if self.metadata is not None:
                digest.update(b"\x01")
                _hash_metadata(digest, self.metadata)
            if self.rule_set is not None:
                digest.update(b"\x01")
                _hash_rules(digest, self.rule_set)
            self._digest = digest.digest()
        return self._digest

    @property
    def guid(self) -> str:
        return str(uuid.UUID(bytes=self.digest))

    def fields(self) -> Json:
        """As a response names them."""
        body: Json = {"schemaType": self.schema_type}
        if self.references:
            body["references"] = references_json(self.references)
        if self.metadata is not None:
            body["metadata"] = self.metadata
        if self.rule_set is not None:
            body["ruleSet"] = self.rule_set
        return body


def references_json(references: tuple[Reference, ...]) -> list[Json]:
    return [{"name": one.name, "subject": one.subject, "version": one.version} for one in references]


def _hash_metadata(digest: Any, metadata: Json) -> None:
    for key, values in sorted((metadata.get("tags") or {}).items()):
        digest.update(str(key).encode())
        for value in sorted(set(values)):
            digest.update(str(value).encode())
    for key, value in sorted((metadata.get("properties") or {}).items()):
        digest.update(str(key).encode() + str(value).encode())
    for value in sorted(set(metadata.get("sensitive") or [])):
        digest.update(str(value).encode())


def _hash_rules(digest: Any, rule_set: Json) -> None:
    for phase in ("migrationRules", "domainRules", "encodingRules"):
        for rule in rule_set.get(phase) or []:
            for name in ("name", "doc", "kind", "mode", "type"):
                digest.update(str(rule.get(name) or "").encode())
            for tag in sorted(set(rule.get("tags") or [])):
                digest.update(str(tag).encode())
            for key, value in sorted((rule.get("params") or {}).items()):
                digest.update(str(key).encode() + str(value).encode())
            for name in ("expr", "onSuccess", "onFailure"):
                digest.update(str(rule.get(name) or "").encode())
            if rule.get("disabled"):
                digest.update(b"\x01")
    digest.update(str(rule_set.get("enableAt") or "").encode())


@dataclass(slots=True)
class Version:
    """One version of a subject."""

    subject: str
    version: int
    id: int
    content: Content
    deleted: bool = False
    timestamp: int | None = None

    def value(self, *, deleted: bool | None = None) -> bytes:
        """The record's value."""
        body: Json = {"subject": self.subject, "version": self.version, "id": self.id}
        body["md5"] = base64.b64encode(self.content.digest).decode()
        if self.content.schema_type != "AVRO":
            body["schemaType"] = self.content.schema_type
        if self.content.references:
            body["references"] = references_json(self.content.references)
        if self.content.metadata is not None:
            body["metadata"] = self.content.metadata
        if self.content.rule_set is not None:
            body["ruleSet"] = self.content.rule_set
        body["schema"] = self.content.text
        body["deleted"] = self.deleted if deleted is None else deleted
        return _dump(body)

    @classmethod
    def from_value(cls, value: Json, timestamp: int | None) -> "Version":
        content = Content(
            value.get("schemaType") or "AVRO",
            value["schema"],
            tuple(
                Reference(one["name"], one["subject"], int(one["version"]))
                for one in value.get("references") or ()
            ),
            # An empty object is not the same as none: it replaces what the version before had.
            value.get("metadata"),
            value.get("ruleSet"),
        )
        return cls(
            value["subject"],
            int(value["version"]),
            int(value["id"]),
            content,
            bool(value.get("deleted", False)),
            timestamp,
        )
