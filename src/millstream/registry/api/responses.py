"""JSON bodies in and out."""

import json
from typing import Any

import orjson
from fastapi import Request, Response

from millstream.registry import contexts, errors
from millstream.registry.schema_records import Version, references_json
from millstream.registry.service import RegistryService
from millstream.schemas import InvalidSchema, Reference
from millstream.schemas.tags import tagged_entities

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


def service_of(request: Request) -> RegistryService:
    service: RegistryService = request.app.state.service
    return service


def answer(body: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, media_type=MEDIA_TYPE)


def text_answer(text: str) -> Response:
    """A schema alone, as it is."""
    return Response(text.encode("utf-8", "surrogatepass"), media_type=MEDIA_TYPE)


async def json_body(request: Request) -> Any:
    data = await request.body()
    if not data.strip():
        raise errors.http_error(422, "the body must not be null")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise errors.http_error(400, f"the body is not JSON: {error}") from None


def flag(request: Request, name: str) -> bool:
    """A switch in the query; anything but `true` is no."""
    return request.query_params.get(name, "").lower() == "true"


def number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None or text == "":
        return default
    try:
        value = int(text)
    except ValueError:
        raise errors.http_error(404, "HTTP 404 Not Found") from None
    if abs(value) >= 2**31:
        raise errors.http_error(404, "HTTP 404 Not Found")
    return value


def page(request: Request, items: list[Any]) -> list[Any]:
    """The part of a list that `offset` and `limit` ask for."""
    offset = max(0, number(request, "offset", 0))
    limit = number(request, "limit", -1)
    return items[offset:] if limit < 0 else items[offset : offset + limit]


def version_number(text: str) -> int:
    """`latest` (or -1) is -1."""
    if text.strip().lower() == "latest":
        return -1
    try:
        value = int(text.strip())
    except ValueError:
        raise errors.invalid_version(text) from None
    if (value <= 0 and value != -1) or value >= 2**31:
        raise errors.invalid_version(text)
    return value


def version_body(version: Version, *, text: str | None = None) -> dict[str, Any]:
    names = {"subject": version.subject, "version": version.version, "id": version.id}
    return {**names, **schema_body(version, text=text)}


def schema_body(version: Version, *, text: str | None = None) -> dict[str, Any]:
    """A schema apart from its subject. One that has just been made has no time yet, and does not say whether
    it is deleted."""
    body: dict[str, Any] = {
        "guid": version.content.guid,
        **version.content.fields(),
        "schema": version.content.text if text is None else text,
    }
    if version.timestamp is not None:
        body["ts"] = version.timestamp
        body["deleted"] = version.deleted
    return body


def with_qualified_references(body: dict[str, Any], version: Version) -> None:
    """referenceFormat=qualified: with the context of each subject that is referred to."""
    if version.content.references:
        body["references"] = references_json(
            tuple(
                Reference(one.name, contexts.within(one.subject, version.subject), one.version)
                for one in version.content.references
            )
        )


def formatted(service: RegistryService, version: Version, form: str) -> str:
    if not form.strip():
        return version.content.text
    return service.queries.parse(version).formatted(form.strip().lower())


def with_schema_tags(
    body: dict[str, Any], service: RegistryService, version: Version, request: Request
) -> None:
    """`findTags`: the records and fields with one of these tags, or with any (*)."""
    wanted = set(request.query_params.getlist("findTags"))
    if not wanted:
        return
    try:
        entities = tagged_entities(service.queries.parse(version))
    except InvalidSchema as error:
        raise errors.invalid_schema(str(error)) from None
    found = [
        {
            "schemaEntity": {
                "entityPath": entity.path,
                "entityType": "sr_record" if entity.is_record else "sr_field",
            },
            "tags": list(tags),
        }
        for entity, tags in entities
        if "*" in wanted or wanted & set(tags)
    ]
    if found:
        body["schemaTags"] = found
