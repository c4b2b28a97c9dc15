"""What the OpenAPI page says about queries, bodies and responses.

The resources read requests themselves, so FastAPI knows their paths only; a service describes the rest in
tables, by the name of the function that serves an operation.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

Schema = dict[str, Any]
STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer", "format": "int32"}
LONG: Schema = {"type": "integer", "format": "int64"}
BOOLEAN: Schema = {"type": "boolean"}
ANYTHING: Schema = {}


def object_of(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    schema: Schema = {"type": "object", "properties": properties}
    return {**schema, "required": list(required)} if required else schema


def list_of(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def enum_of(values: Iterable[str], **more: Any) -> Schema:
    return {"type": "string", "enum": list(values), **more}


@dataclass(frozen=True, slots=True)
class ApiDescription:
    """`queries` and `bodies` are by operation. `media_type` is that of a path's responses, `request_types`
    those of an operation's body, given its name and the former."""

    summary: str
    tags: tuple[str, ...]
    queries: Mapping[str, Mapping[str, Schema]]
    bodies: Mapping[str, Schema]
    media_type: Callable[[str], str]
    request_types: Callable[[str, str], Iterable[str]]
    optional_bodies: frozenset[str] = frozenset()


ERROR = object_of(("error_code", "message"), error_code={"type": "integer"}, message=STRING)


def describe(app: FastAPI, api: ApiDescription) -> None:
    """Make the page at its first use: it takes longer than the service's start should."""

    def openapi() -> Schema:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app, api)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _document(app: FastAPI, api: ApiDescription) -> Schema:
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=api.summary,
        routes=app.routes,
        tags=[{"name": name} for name in api.tags],
    )
    for path, operations in document["paths"].items():
        for operation in operations.values():
            _complete(operation, api, api.media_type(path))
    document.setdefault("components", {}).setdefault("schemas", {})["Error"] = ERROR
    return document


def _complete(operation: Schema, api: ApiDescription, media_type: str) -> None:
    # FastAPI makes the summary of the function's name.
    name = operation["summary"].lower().replace(" ", "_")
    parameters = operation.setdefault("parameters", [])
    for key, schema in api.queries.get(name, {}).items():
        parameters.append({"name": key, "in": "query", "required": False, "schema": schema})
    if name in api.bodies:
        content = {
            request_type: {"schema": api.bodies[name]} for request_type in api.request_types(name, media_type)
        }
        operation["requestBody"] = {"required": name not in api.optional_bodies, "content": content}
    success = operation["responses"].get("200", {"description": "Done"})
    error = {"schema": {"$ref": "#/components/schemas/Error"}}
    operation["responses"] = {
        "200": {"description": success["description"], "content": {media_type: {}}},
        "default": {"description": "Refused", "content": {media_type: error}},
    }
