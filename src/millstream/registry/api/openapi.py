"""What the OpenAPI page says about queries, bodies and answers. The resources read requests themselves, so it is told here."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from millstream.registry.api.responses import MEDIA_TYPE
from millstream.registry.compatibility_levels import LEVELS
from millstream.registry.requests import MODES
from millstream.schemas import TYPES

BOOLEAN: dict[str, Any] = {"type": "boolean"}
INTEGER: dict[str, Any] = {"type": "integer", "format": "int32"}
STRING: dict[str, Any] = {"type": "string"}
PAGE = {"offset": INTEGER, "limit": INTEGER}
FORMAT = {"format": STRING}
LISTED = {"subjectPrefix": STRING, "pattern": STRING, "deleted": BOOLEAN, **PAGE}
QUERIES: dict[str, dict[str, dict[str, Any]]] = {
    "list_subjects": {**LISTED, "deletedOnly": BOOLEAN},
    "list_versions": {"deleted": BOOLEAN, "deletedOnly": BOOLEAN, "deletedAsNegative": BOOLEAN, **PAGE},
    "get_version": {**FORMAT, "referenceFormat": STRING, "deleted": BOOLEAN},
    "get_version_schema": {**FORMAT, "deleted": BOOLEAN},
    "get_referenced_by": {"deleted": BOOLEAN, **PAGE},
    "register": {"normalize": BOOLEAN, "force": BOOLEAN, **FORMAT},
    "delete_version": {"permanent": BOOLEAN},
    "latest_with_metadata": {"key": STRING, "value": STRING, "deleted": BOOLEAN, **FORMAT},
    "look_up": {"normalize": BOOLEAN, "deleted": BOOLEAN, **FORMAT},
    "delete_subject": {"permanent": BOOLEAN},
    "list_schemas": {**LISTED, "latestOnly": BOOLEAN, "ruleType": STRING},
    "get_schema": {"subject": STRING, **FORMAT, "referenceFormat": STRING, "fetchMaxId": BOOLEAN},
    "get_schema_only": {"subject": STRING, **FORMAT},
    "get_subjects": {"subject": STRING, "deleted": BOOLEAN, **PAGE},
    "get_versions": {"subject": STRING, "deleted": BOOLEAN, **PAGE},
    "get_by_guid": FORMAT,
    "with_version": {"verbose": BOOLEAN, "normalize": BOOLEAN},
    "with_subject": {"verbose": BOOLEAN, "normalize": BOOLEAN},
    "get_global_config": {"defaultToGlobal": BOOLEAN},
    "get_config": {"defaultToGlobal": BOOLEAN},
    "get_mode": {"defaultToGlobal": BOOLEAN},
    "set_global_mode": {"force": BOOLEAN},
    "set_mode": {"force": BOOLEAN},
    "delete_global_mode": {"recursive": BOOLEAN},
    "delete_mode": {"recursive": BOOLEAN},
    "list_contexts": {"contextPrefix": STRING, **PAGE},
}
REFERENCE = {
    "type": "object",
    "required": ["name", "subject", "version"],
    "properties": {"name": STRING, "subject": STRING, "version": INTEGER},
}
SCHEMA = {
    "type": "object",
    "properties": {
        "schema": {"type": "string", "example": '{"type": "string"}'},
        "schemaType": {"type": "string", "enum": list(TYPES), "default": "AVRO"},
        "references": {"type": "array", "items": REFERENCE},
        "metadata": {"type": "object"},
        "ruleSet": {"type": "object"},
        "id": INTEGER,
        "version": INTEGER,
    },
}
CONFIG = {
    "type": "object",
    "properties": {
        "compatibility": {"type": "string", "enum": list(LEVELS)},
        "normalize": BOOLEAN,
        "validateFields": BOOLEAN,
        "compatibilityGroup": STRING,
        "compatibilityPolicy": {"type": "string", "enum": ["STRICT", "LENIENT"]},
        "alias": STRING,
    },
}
MODE = {"type": "object", "properties": {"mode": {"type": "string", "enum": list(MODES)}}}
BODIES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("register", "look_up", "with_version", "with_subject"), SCHEMA),
    **dict.fromkeys(("set_global_config", "set_config"), CONFIG),
    **dict.fromkeys(("set_global_mode", "set_mode"), MODE),
}
ERROR = {
    "type": "object",
    "required": ["error_code", "message"],
    "properties": {"error_code": {"type": "integer"}, "message": STRING},
}


def document(app: FastAPI) -> None:
    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _describe(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _describe(app: FastAPI) -> dict[str, Any]:
    made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    for operations in made["paths"].values():
        for operation in operations.values():
            name = operation["summary"].lower().replace(" ", "_")  # FastAPI makes it of the function's name
            parameters = operation.setdefault("parameters", [])
            for key, schema in QUERIES.get(name, {}).items():
                parameters.append({"name": key, "in": "query", "required": False, "schema": schema})
            if name in BODIES:
                content = {kind: {"schema": BODIES[name]} for kind in (MEDIA_TYPE, "application/json")}
                operation["requestBody"] = {"required": True, "content": content}
            error = {
                "description": "Refused",
                "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Error"}}},
            }
            done = operation["responses"].get("200", {"description": "Done"})
            operation["responses"] = {
                "200": {"description": done["description"], "content": {MEDIA_TYPE: {}}},
                "default": error,
            }
    made.setdefault("components", {}).setdefault("schemas", {})["Error"] = ERROR
    return made
