"""Key encryption keys and data encryption keys, and the records of the topic `_dek_registry_keys`.

A record's key names the key; its value holds it, a null value removes it. The fields come in the order in
which Confluent's registry writes them, because compaction compares the keys byte for byte.
"""

import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

Json = dict[str, Any]
Pair = tuple[bytes, bytes | None]

AES256_GCM: Final = "AES256_GCM"
ALGORITHMS: Final = ("AES128_GCM", AES256_GCM, "AES256_SIV")
TENANT: Final = "default"


class DekId(NamedTuple):
    """In the order in which Confluent's registry lists DEKs."""

    kek_name: str
    subject: str
    algorithm: str
    version: int


@dataclass(frozen=True, slots=True)
class Kek:
    name: str
    kms_type: str
    kms_key_id: str
    kms_props: tuple[tuple[str, str], ...] = ()  # sorted by name
    doc: str | None = None
    shared: bool = False
    deleted: bool = False

    def body(self) -> Json:
        """As responses and records begin."""
        found: Json = {
            "name": self.name,
            "kmsType": self.kms_type,
            "kmsKeyId": self.kms_key_id,
            "kmsProps": dict(self.kms_props),
        }
        if self.doc is not None:
            found["doc"] = self.doc
        return {**found, "shared": self.shared}

    def record(self) -> Pair:
        return kek_key(self.name), _dump({**self.body(), "deleted": self.deleted, "type": "KEK"})


@dataclass(frozen=True, slots=True)
class Dek:
    id: DekId
    encrypted_key_material: str | None
    deleted: bool = False

    def body(self) -> Json:
        found: Json = {
            "kekName": self.id.kek_name,
            "subject": self.id.subject,
            "version": self.id.version,
            "algorithm": self.id.algorithm,
        }
        if self.encrypted_key_material is not None:
            found["encryptedKeyMaterial"] = self.encrypted_key_material
        return found

    def record(self) -> Pair:
        value: Json = {
            "kekName": self.id.kek_name,
            "subject": self.id.subject,
            "algorithm": self.id.algorithm,
            "version": self.id.version,
        }
        if self.encrypted_key_material is not None:
            value["encryptedKeyMaterial"] = self.encrypted_key_material
        return dek_key(self.id), _dump({**value, "deleted": self.deleted, "type": "DEK"})


def kek_key(name: str) -> bytes:
    return _dump({"tenant": TENANT, "name": name, "type": "KEK"})


def dek_key(dek_id: DekId) -> bytes:
    return _dump(
        {
            "tenant": TENANT,
            "kekName": dek_id.kek_name,
            "subject": dek_id.subject,
            "algorithm": dek_id.algorithm,
            "version": dek_id.version,
            "type": "DEK",
        }
    )


def fence_record() -> Pair:
    """What a new leader writes to fence its predecessor: the removal of a KEK that cannot exist, since no
    name begins with #. Confluent's registry, which knows no NOOP in this topic, reads over it."""
    return kek_key("#fence"), None


def kek_from(value: Any) -> Kek:
    return Kek(
        str(value["name"]),
        str(value["kmsType"]),
        str(value["kmsKeyId"]),
        sorted_props(value.get("kmsProps")),
        value.get("doc"),
        bool(value.get("shared", False)),
        bool(value.get("deleted", False)),
    )


def dek_from(value: Any) -> Dek:
    return Dek(dek_id_from(value), value.get("encryptedKeyMaterial"), bool(value.get("deleted", False)))


def dek_id_from(key: Json) -> DekId:
    return DekId(str(key["kekName"]), str(key["subject"]), str(key["algorithm"]), int(key["version"]))


def sorted_props(props: Json | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((str(name), str(value)) for name, value in (props or {}).items()))


def _dump(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
