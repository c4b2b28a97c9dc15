"""/dek-registry/v1: key encryption keys and data encryption keys.

A name of a KEK is a word; a subject may hold anything, also slashes, so routes with more behind the subject
come before those with less.
"""

from collections.abc import Callable
from typing import Any, cast

from fastapi import APIRouter, Request, Response

from millstream.registry import errors as registry_errors
from millstream.registry.api.forwarding import at_leader
from millstream.registry.api.responses import (
    answer,
    flag,
    json_body,
    page,
    service_of,
    version_number,
)
from millstream.registry.commands import Change
from millstream.registry.dek import commands, errors
from millstream.registry.dek.commands import DekChoice, DekRequest
from millstream.registry.dek.keys import AES256_GCM, ALGORITHMS, Dek, DekId, Json, Kek, sorted_props
from millstream.registry.dek.registry import DekRegistry
from millstream.registry.errors import RegistryError

router = APIRouter(prefix="/dek-registry/v1/keks", tags=["Data Encryption Keys"])

MAX_NAME_LENGTH = 256
# How the ids of keys begin in each KMS that Confluent checks.
KEY_ID_PREFIXES = {
    "aws-kms": ("arn:aws:kms:",),
    "azure-kms": ("https://",),
    "gcp-kms": ("projects/",),
    "hcvault": ("https://", "http://"),
}


@router.get("")
async def list_keks(request: Request) -> Response:
    """The names of all KEKs. subjectPrefix: those with a DEK of such a subject."""
    deks = await _deks(request)
    deleted = flag(request, "deleted")
    prefixes = tuple(request.query_params.getlist("subjectPrefix"))
    if prefixes:
        found = deks.state.deks(deleted=deleted)
        names = sorted({dek.id.kek_name for dek in found if dek.id.subject.startswith(prefixes)})
    else:
        names = [kek.name for kek in deks.state.keks(deleted=deleted)]
    return answer(page(request, names))


@router.post("")
async def create_kek(request: Request) -> Response:
    """Create a KEK. testSharing: first see whether the registry can use it, if it is shared."""
    deks = await _deks(request)
    kek = _kek_request(await _object(request))
    if kek.shared and flag(request, "testSharing"):
        commands.test_kek(kek)
    return await _change(request, lambda: deks.commands.create_kek(kek), lambda _: _kek(deks, kek.name))


@router.get("/{name}")
async def get_kek(name: str, request: Request) -> Response:
    """A KEK by its name."""
    deks = await _deks(request)
    return _kek(deks, _checked_name(name), deleted=flag(request, "deleted"))


@router.put("/{name}")
async def update_kek(name: str, request: Request) -> Response:
    """Change the properties, the description or the sharing of a KEK."""
    deks = await _deks(request)
    _checked_name(name)
    changes = _kek_changes(await _object(request))
    if flag(request, "testSharing"):
        found = deks.state.kek(name)
        if found is None:
            raise errors.key_not_found(name)
        new = commands.updated(found[0], changes)
        if new.shared:
            commands.test_kek(new)
    return await _change(request, lambda: deks.commands.update_kek(name, changes), lambda _: _kek(deks, name))


@router.delete("/{name}")
async def delete_kek(name: str, request: Request) -> Response:
    """Delete a KEK that no DEK uses: softly, or once that is done for good (permanent=true)."""
    deks = await _deks(request)
    _checked_name(name)
    permanent = flag(request, "permanent")
    return await _change(request, lambda: deks.commands.delete_kek(name, permanent=permanent))


@router.post("/{name}/test")
async def test_kek(name: str, request: Request) -> Response:
    """Whether the registry can encrypt with a shared KEK."""
    deks = await _deks(request)
    found = deks.state.kek(_checked_name(name))
    if found is None:
        raise errors.key_not_found(name)
    commands.test_kek(found[0])
    return _kek(deks, name)


@router.post("/{name}/undelete")
async def undelete_kek(name: str, request: Request) -> Response:
    """Take back a soft deletion."""
    deks = await _deks(request)
    _checked_name(name)
    return await _change(request, lambda: deks.commands.undelete_kek(name))


@router.get("/{name}/deks")
async def list_dek_subjects(name: str, request: Request) -> Response:
    """The subjects that have DEKs under a KEK."""
    deks = await _deks(request)
    deleted = flag(request, "deleted")
    _visible_kek(deks, name, deleted=deleted)
    return answer(page(request, sorted({dek.id.subject for dek in deks.state.deks(name, deleted=deleted)})))


@router.post("/{name}/deks")
async def create_dek(name: str, request: Request) -> Response:
    """Create a DEK; the older path, with the subject in the body."""
    body = await _object(request)
    return await _create_dek(request, name, _text(body, "subject") or "", body)


@router.post("/{name}/deks/{subject:path}/versions/{version}/undelete")
async def undelete_dek_version(name: str, subject: str, version: str, request: Request) -> Response:
    """Take back the soft deletion of one version."""
    chosen = _choice(request, name, subject, version)
    deks = await _deks(request)
    return await _change(request, lambda: deks.commands.undelete_dek(chosen))


@router.post("/{name}/deks/{subject:path}/undelete")
async def undelete_dek(name: str, subject: str, request: Request) -> Response:
    """Take back the soft deletion of all versions."""
    chosen = _choice(request, name, subject)
    deks = await _deks(request)
    return await _change(request, lambda: deks.commands.undelete_dek(chosen))


@router.post("/{name}/deks/{subject:path}")
async def create_dek_for_subject(name: str, subject: str, request: Request) -> Response:
    """Create a DEK. rewrap: encrypt the material of an existing one anew."""
    return await _create_dek(request, name, _real_subject(request, subject), await _object(request))


@router.get("/{name}/deks/{subject:path}/versions")
async def list_dek_versions(name: str, subject: str, request: Request) -> Response:
    """The versions of a subject's DEK."""
    chosen = _choice(request, name, subject)
    deks = await _deks(request)
    deleted = flag(request, "deleted")
    _visible_kek(deks, name, deleted=deleted)
    found = deks.state.deks(name, chosen.subject, chosen.algorithm, deleted=deleted)
    return answer(page(request, [dek.id.version for dek in found]))


@router.get("/{name}/deks/{subject:path}/versions/{version}")
async def get_dek_version(name: str, subject: str, version: str, request: Request) -> Response:
    """One version of a DEK, by number or `latest`; with its material, if the KEK is shared."""
    return await _get_dek(request, _choice(request, name, subject, version))


@router.get("/{name}/deks/{subject:path}")
async def get_dek(name: str, subject: str, request: Request) -> Response:
    """The first version of a DEK; with its material, if the KEK is shared."""
    return await _get_dek(request, _choice(request, name, subject, "1"))


@router.delete("/{name}/deks/{subject:path}/versions/{version}")
async def delete_dek_version(name: str, subject: str, version: str, request: Request) -> Response:
    """Delete one version of a DEK."""
    return await _delete_deks(request, _choice(request, name, subject, version))


@router.delete("/{name}/deks/{subject:path}")
async def delete_dek(name: str, subject: str, request: Request) -> Response:
    """Delete all versions of a DEK."""
    return await _delete_deks(request, _choice(request, name, subject))


# What the routes share


async def _deks(request: Request) -> DekRegistry:
    deks = service_of(request).deks
    await deks.ensure_started()
    return deks


async def _change(
    request: Request,
    decide: Callable[[], Change],
    render: Callable[[object], Response] = lambda _: Response(status_code=204),
) -> Response:
    return await at_leader(request, decide, render, service_of(request).deks.log)


async def _create_dek(request: Request, name: str, subject: str, body: Json) -> Response:
    service, deks = service_of(request), await _deks(request)
    _checked_name(name)
    wanted = DekRequest(
        _checked_subject(subject),
        _version(body),
        _checked_algorithm(_text(body, "algorithm")),
        _text(body, "encryptedKeyMaterial"),
        _switch(body, "deleted"),
    )
    rewrap = flag(request, "rewrap")
    importing = service.queries.mode_in_scope(service.subject(subject)) == "IMPORT"

    def render(result: object) -> Response:
        found = deks.state.dek(cast(DekId, result), deleted=True)
        assert found is not None
        return _dek(deks, *found, material=not importing)

    return await _change(
        request,
        lambda: deks.commands.create_dek(name, wanted, rewrap=rewrap, importing=importing),
        render,
    )


async def _get_dek(request: Request, chosen: DekChoice) -> Response:
    deks = await _deks(request)
    deleted = flag(request, "deleted")
    _visible_kek(deks, chosen.kek_name, deleted=deleted)
    version = chosen.version
    if version == commands.LATEST:
        versions = deks.state.deks(chosen.kek_name, chosen.subject, chosen.algorithm, deleted=deleted)
        version = versions[-1].id.version if versions else 0
    dek_id = DekId(chosen.kek_name, chosen.subject, chosen.algorithm, version or 0)
    found = deks.state.dek(dek_id, deleted=deleted)
    if found is None:
        raise errors.key_not_found(chosen.subject)
    return _dek(deks, *found)


async def _delete_deks(request: Request, chosen: DekChoice) -> Response:
    deks = await _deks(request)
    permanent = flag(request, "permanent")
    return await _change(request, lambda: deks.commands.delete_dek(chosen, permanent=permanent))


def _visible_kek(deks: DekRegistry, name: str, *, deleted: bool) -> None:
    if deks.state.kek(_checked_name(name), deleted=deleted) is None:
        raise errors.key_not_found(name)


# Responses


def _kek(deks: DekRegistry, name: str, *, deleted: bool = True) -> Response:
    found = deks.state.kek(name, deleted=deleted)
    if found is None:
        raise errors.key_not_found(name)
    return answer(_stored(*found))


def _dek(deks: DekRegistry, dek: Dek, timestamp: int, *, material: bool = True) -> Response:
    body = _stored(dek, timestamp)
    kek = deks.commands.any_kek(dek.id.kek_name)
    if kek.shared and material:
        body["keyMaterial"] = commands.key_material(kek, dek)
    return answer(body)


def _stored(key: Kek | Dek, timestamp: int) -> Json:
    body = {**key.body(), "ts": timestamp}
    if key.deleted:
        body["deleted"] = True
    return body


# Requests


async def _object(request: Request) -> Json:
    body = await json_body(request)
    if not isinstance(body, dict):
        raise registry_errors.http_error(400, "the body must be a JSON object")
    return body


def _kek_request(body: Json) -> Kek:
    name = _checked_name(_text(body, "name") or "")
    kms_type, key_id = _text(body, "kmsType"), _text(body, "kmsKeyId")
    if not key_id:
        raise errors.invalid_field("kmsKeyId")
    if kms_type is None:
        raise errors.invalid_field("kmsType")
    if not key_id.startswith(KEY_ID_PREFIXES.get(kms_type, ("",))):
        raise errors.invalid_field("kmsKeyId")
    props = sorted_props(_props(body))
    return Kek(
        name, kms_type, key_id, props, _text(body, "doc"), _switch(body, "shared"), _switch(body, "deleted")
    )


def _kek_changes(body: Json) -> Json:
    changes: Json = {}
    if "kmsProps" in body:
        changes["kmsProps"] = _props(body)
    if "doc" in body:
        changes["doc"] = _text(body, "doc")
    if body.get("shared") is not None:
        changes["shared"] = _switch(body, "shared")
    return changes


def _props(body: Json) -> Json:
    props = body.get("kmsProps")
    if props is None:
        return {}
    if not isinstance(props, dict) or not all(isinstance(value, str) for value in props.values()):
        raise _wrong("kmsProps", "an object of strings")
    return props


def _text(body: Json, name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise _wrong(name, "a string")
    return value


def _switch(body: Json, name: str) -> bool:
    value: Any = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise _wrong(name, "true or false")
    return bool(value)


def _version(body: Json) -> int:
    value = body.get("version")
    if value is None:
        return 1
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong("version", "a number")
    if not 1 <= value < 2**31:
        raise errors.invalid_field("version")
    return value


def _wrong(name: str, expected: str) -> RegistryError:
    return registry_errors.http_error(400, f"{name} must be {expected}")


def _choice(request: Request, name: str, subject: str, version: str | None = None) -> DekChoice:
    return DekChoice(
        _checked_name(name),
        _real_subject(request, subject),
        _checked_algorithm(request.query_params.get("algorithm")),
        None if version is None else version_number(version),
    )


def _checked_name(name: str) -> str:
    word = name.replace("_", "a").replace("-", "1")
    if not name or len(name) > MAX_NAME_LENGTH or not word.isalnum() or not word[0].isalpha():
        raise errors.invalid_field("name")
    return name


def _real_subject(request: Request, subject: str) -> str:
    """An alias in the path is replaced; one in a body is not."""
    return service_of(request).subject(_checked_subject(subject), of_deks=True)


def _checked_subject(subject: str) -> str:
    if not subject or any(ord(char) < 32 or 127 <= ord(char) < 160 for char in subject):
        raise errors.invalid_field("subject")
    return subject


def _checked_algorithm(text: str | None) -> str:
    if not text:
        return AES256_GCM
    if text not in ALGORITHMS:
        # As for a query that is not of its type.
        raise registry_errors.http_error(404, "HTTP 404 Not Found")
    return text
