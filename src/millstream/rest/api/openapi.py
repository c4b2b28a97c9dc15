"""What the OpenAPI page says about queries, bodies and answers. The resources read requests themselves, so it is told here."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from millstream.rest.api.responses import EMBEDDED, JSON, V2
from millstream.rest.api.v3_acls import CHOICES, TEXTS

Schema = dict[str, Any]
STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer", "format": "int32"}
LONG: Schema = {"type": "integer", "format": "int64"}
BOOLEAN: Schema = {"type": "boolean"}
ANYTHING: Schema = {}


def _object(needed: tuple[str, ...] = (), **properties: Schema) -> Schema:
    made: Schema = {"type": "object", "properties": properties}
    return {**made, "required": list(needed)} if needed else made


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


PLACE = _object(("topic", "partition"), topic=STRING, partition=INTEGER)
PLACES = _object(("partitions",), partitions=_list(PLACE))
OFFSET = _object(
    ("topic", "partition", "offset"), topic=STRING, partition=INTEGER, offset=LONG, metadata=STRING
)
MOMENT = _object(("topic", "partition", "timestamp"), topic=STRING, partition=INTEGER, timestamp=STRING)
RECORDS = _object(
    ("records",),
    records=_list(_object(key=ANYTHING, value=ANYTHING, partition=INTEGER)),
    key_schema=STRING,
    key_schema_id=INTEGER,
    value_schema=STRING,
    value_schema_id=INTEGER,
)
FORM = {"type": "string", "enum": ["BINARY", "JSON", "STRING", "AVRO", "JSONSCHEMA", "PROTOBUF"]}
STRATEGY = {"type": "string", "enum": ["TOPIC_NAME", "RECORD_NAME", "TOPIC_RECORD_NAME"]}
DATA = _object(
    type=FORM,
    data=ANYTHING,
    subject=STRING,
    subject_name_strategy=STRATEGY,
    schema_id=INTEGER,
    schema_version=INTEGER,
    schema=STRING,
)
RECORD = _object(
    partition_id=INTEGER,
    headers=_list(_object(("name",), name=STRING, value={"type": "string", "format": "byte"})),
    key=DATA,
    value=DATA,
    timestamp={"type": "string", "format": "date-time"},
)
ENTRY = _object(("id",), id=STRING, **RECORD["properties"])
CONFIG = _object(("name",), name=STRING, value=STRING)
CHANGE = _object(
    ("name",), name=STRING, value=STRING, operation={"type": "string", "enum": ["SET", "DELETE"]}
)
CHANGES = _object(("data",), data=_list(CHANGE), validate_only=BOOLEAN)
VALUE = _object(value=STRING)
ACL_CHOICES: dict[str, Schema] = {
    name: {"type": "string", "enum": list(choices)} for name, choices in CHOICES.items()
}
ACL_TEXTS: dict[str, Schema] = dict.fromkeys(TEXTS, STRING)
ACL = _object((*CHOICES, *TEXTS), **ACL_CHOICES, **ACL_TEXTS)

QUERIES: dict[str, dict[str, Schema]] = {
    "records": {"timeout": LONG, "max_bytes": LONG},
    "search_acls": {**ACL_CHOICES, **ACL_TEXTS},
    "delete_acls": {**ACL_CHOICES, **ACL_TEXTS},
}
BODIES: dict[str, Schema] = {
    **dict.fromkeys(("produce", "produce_to_partition"), RECORDS),
    "create": {
        "type": "object",
        "properties": {
            "name": STRING,
            "format": {"type": "string", "enum": ["binary", "json", "avro", "jsonschema", "protobuf"]},
            "auto.offset.reset": {"type": "string", "enum": ["earliest", "latest", "none"]},
            "auto.commit.enable": {"type": "string", "enum": ["true", "false"]},
            "fetch.min.bytes": INTEGER,
            "consumer.request.timeout.ms": INTEGER,
        },
    },
    "subscribe": _object(topics=_list(STRING), topic_pattern=STRING),
    "assign": PLACES,
    "seek": _object(offsets=_list(OFFSET), timestamps=_list(MOMENT)),
    "seek_to_beginning": PLACES,
    "seek_to_end": PLACES,
    "commit": _object(offsets=_list(OFFSET)),
    "post_root": _object(),
    "produce_records": RECORD,
    "produce_batch": _object(("entries",), entries=_list(ENTRY)),
    "create_topic": _object(
        ("topic_name",),
        topic_name=STRING,
        partitions_count=INTEGER,
        replication_factor=INTEGER,
        replicas_assignments={"type": "object", "additionalProperties": _list(INTEGER)},
        configs=_list(CONFIG),
        validate_only=BOOLEAN,
    ),
    "add_partitions": _object(("partitions_count",), partitions_count=INTEGER),
    **dict.fromkeys(("alter_topic_configs", "alter_broker_configs", "alter_cluster_configs"), CHANGES),
    **dict.fromkeys(("set_topic_config", "set_broker_config", "set_cluster_config"), VALUE),
    "create_acl": ACL,
    "create_acls": _object(("data",), data=_list(ACL)),
}
NOT_NEEDED = ("create", "commit")
ERROR = _object(("error_code", "message"), error_code={"type": "integer"}, message=STRING)


def document(app: FastAPI) -> None:
    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _describe(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _describe(app: FastAPI) -> dict[str, Any]:
    made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    for path, operations in made["paths"].items():
        own = JSON if path.startswith("/v3") else V2
        for operation in operations.values():
            name = operation["summary"].lower().replace(" ", "_")  # FastAPI makes it of the function's name
            parameters = operation.setdefault("parameters", [])
            for key, schema in QUERIES.get(name, {}).items():
                parameters.append({"name": key, "in": "query", "required": False, "schema": schema})
            if name in BODIES:
                kinds = EMBEDDED if name in ("produce", "produce_to_partition") else (own,)
                content = {kind: {"schema": BODIES[name]} for kind in kinds}
                operation["requestBody"] = {"required": name not in NOT_NEEDED, "content": content}
            done = operation["responses"].get("200", {"description": "Done"})
            error = {"schema": {"$ref": "#/components/schemas/Error"}}
            operation["responses"] = {
                "200": {"description": done["description"], "content": {own: {}}},
                "default": {"description": "Refused", "content": {own: error}},
            }
    made.setdefault("components", {}).setdefault("schemas", {})["Error"] = ERROR
    return made
