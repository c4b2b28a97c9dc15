"""What a change of keys writes into the topic. Decided from the state alone; nothing here does I/O."""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from millstream.registry.commands import Change
from millstream.registry.dek import errors, kms
from millstream.registry.dek.keys import (
    AES256_GCM,
    Dek,
    DekId,
    Json,
    Kek,
    Pair,
    dek_key,
    kek_key,
    sorted_props,
)
from millstream.registry.dek.state import KeyState

LATEST = -1
CLOUDS = ("aws", "azure", "gcp")


@dataclass(frozen=True, slots=True)
class DekRequest:
    """A DEK to create. Without key material, the registry makes it; then its KEK must be shared."""

    subject: str
    version: int = 1
    algorithm: str = AES256_GCM
    encrypted_key_material: str | None = None
    deleted: bool = False


class KeyCommands:
    def __init__(self, state: KeyState, max_keys: int) -> None:
        self._state = state
        self._max_keys = max_keys

    # KEKs

    def create_kek(self, kek: Kek) -> Change:
        if self._state.kek_count > self._max_keys:
            raise errors.too_many_keys(self._max_keys)
        kek = replace(kek, kms_type=_normalized(kek.kms_type))
        old = self._kek(kek.name)
        # Creating a soft-deleted KEK again undeletes it, if it is the same one.
        if old is not None and (kek.deleted == old.deleted or replace(old, deleted=kek.deleted) != kek):
            raise errors.already_exists(kek.name)
        return Change(kek.name, [kek.record()])

    def update_kek(self, name: str, changes: Json) -> Change:
        old = self._live_kek(name)
        new = updated(old, changes)
        return Change(name, [] if new == old else [new.record()])

    def delete_kek(self, name: str, *, permanent: bool) -> Change:
        old = self.any_kek(name)
        if self._state.deks(name, deleted=permanent):
            raise errors.reference_exists(name)
        if permanent:
            if not old.deleted:
                raise errors.not_soft_deleted(name)
            return Change(None, [(kek_key(name), None)])
        return Change(None, [] if old.deleted else [replace(old, deleted=True).record()])

    def undelete_kek(self, name: str) -> Change:
        old = self.any_kek(name)
        return Change(None, [replace(old, deleted=False).record()] if old.deleted else [])

    def _kek(self, name: str) -> Kek | None:
        found = self._state.kek(name, deleted=True)
        return found[0] if found else None

    def any_kek(self, name: str) -> Kek:
        """A KEK, soft-deleted or not."""
        found = self._kek(name)
        if found is None:
            raise errors.key_not_found(name)
        return found

    def _live_kek(self, name: str) -> Kek:
        found = self.any_kek(name)
        if found.deleted:
            raise errors.key_not_found(name)
        return found

    # DEKs

    def create_dek(self, kek_name: str, request: DekRequest, *, rewrap: bool, importing: bool) -> Change:
        """`rewrap` encrypts the material of an existing DEK anew; `importing` takes it unchecked."""
        kek = self.any_kek(kek_name) if request.deleted else self._live_kek(kek_name)
        if self._state.dek_count > self._max_keys:
            raise errors.too_many_keys(self._max_keys)
        dek_id = DekId(kek_name, request.subject, request.algorithm, request.version)
        new = Dek(dek_id, request.encrypted_key_material, request.deleted)
        found = self._state.dek(dek_id, deleted=True)
        old = found[0] if found else None
        # Creating a soft-deleted DEK again undeletes it, if it is the same one.
        taken = old is not None and (new.deleted == old.deleted or replace(old, deleted=new.deleted) != new)
        if taken and not rewrap:
            raise errors.already_exists(request.subject)
        if new.encrypted_key_material is not None:
            if kek.shared and old is not None:
                raise errors.already_exists(request.subject)
        elif kek.shared:
            raw = kms.decrypted(kek, old) if old is not None else kms.new_key_material(request.algorithm)
            new = replace(new, encrypted_key_material=kms.encrypted(kek, new, raw))
        else:
            raise errors.invalid_field("encryptedKeyMaterial")
        if kek.shared and not importing:
            kms.decrypted(kek, new)  # a DEK that could never be used is refused now
        return Change(dek_id, [new.record()])

    def delete_dek(self, chosen: "DekChoice", *, permanent: bool) -> Change:
        self.any_kek(chosen.kek_name)
        deks = self._chosen(chosen)
        if not permanent:
            return Change(None, _written(replace(dek, deleted=True) for dek in deks if not dek.deleted))
        if any(not dek.deleted for dek in deks):
            raise errors.not_soft_deleted(chosen.subject)
        return Change(None, [(dek_key(dek.id), None) for dek in deks])

    def undelete_dek(self, chosen: "DekChoice") -> Change:
        kek = self.any_kek(chosen.kek_name)
        deks = self._chosen(chosen)
        if kek.deleted:
            raise errors.soft_deleted(chosen.kek_name)
        return Change(None, _written(replace(dek, deleted=False) for dek in deks if dek.deleted))

    def _chosen(self, chosen: "DekChoice") -> Sequence[Dek]:
        deks = self._state.deks(chosen.kek_name, chosen.subject, chosen.algorithm, deleted=True)
        if chosen.version == LATEST:
            deks = deks[-1:]
        elif chosen.version is not None:
            deks = [dek for dek in deks if dek.id.version == chosen.version]
        if not deks:
            raise errors.key_not_found(chosen.subject)
        return deks


@dataclass(frozen=True, slots=True)
class DekChoice:
    """The DEKs of a subject that a request is about: one version, the latest, or (None) all of them."""

    kek_name: str
    subject: str
    algorithm: str = AES256_GCM
    version: int | None = None


def updated(kek: Kek, changes: Json) -> Kek:
    """A KEK with those of its properties replaced that may change."""
    if "kmsProps" in changes:
        kek = replace(kek, kms_props=sorted_props(changes["kmsProps"]))
    if "doc" in changes:
        kek = replace(kek, doc=changes["doc"])
    if changes.get("shared") is not None:
        kek = replace(kek, shared=changes["shared"])
    return kek


def test_kek(kek: Kek) -> None:
    """Whether the registry can encrypt with a shared KEK; RegistryError if not."""
    if not kek.shared:
        raise errors.invalid_field("shared")
    dek = Dek(DekId(kek.name, "__TEST", AES256_GCM, 1), None)
    kms.encrypted(kek, dek, kms.new_key_material(AES256_GCM))


def key_material(kek: Kek, dek: Dek) -> str:
    """The decrypted material of a DEK, as base64."""
    return base64.b64encode(kms.decrypted(kek, dek)).decode()


def _normalized(kms_type: str) -> str:
    return next((f"{cloud}-kms" for cloud in CLOUDS if kms_type.lower().startswith(cloud)), kms_type)


def _written(deks: Iterable[Dek]) -> list[Pair]:
    return [dek.record() for dek in deks]
