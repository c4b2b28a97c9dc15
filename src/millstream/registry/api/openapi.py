"""The registry's API for the OpenAPI page: queries and bodies by operation."""

from millstream.http.openapi import (
    BOOLEAN,
    INTEGER,
    STRING,
    ApiDescription,
    Schema,
    enum_of,
    list_of,
    object_of,
)
from millstream.registry.api.responses import MEDIA_TYPE
from millstream.registry.associations.model import ASSOCIATION_TYPES, LIFECYCLES, TOPIC
from millstream.registry.associations.requests import CREATE, DELETE, UPSERT
from millstream.registry.compatibility_levels import LEVELS
from millstream.registry.dek.keys import AES256_GCM, ALGORITHMS
from millstream.registry.requests import MODES
from millstream.schemas import TYPES

PAGE = {"offset": INTEGER, "limit": INTEGER}
FORMAT = {"format": STRING}
ALGORITHM: dict[str, Schema] = {"algorithm": enum_of(ALGORITHMS, default=AES256_GCM)}
LISTED = {"subjectPrefix": STRING, "pattern": STRING, "deleted": BOOLEAN, **PAGE}
ASSOCIATION_FILTER: dict[str, Schema] = {
    "resourceType": enum_of((TOPIC,)),
    "associationType": enum_of(ASSOCIATION_TYPES),
    "lifecycle": enum_of(LIFECYCLES),
}
QUERIES: dict[str, dict[str, Schema]] = {
    "list_subjects": {**LISTED, "deletedOnly": BOOLEAN},
    "list_versions": {"deleted": BOOLEAN, "deletedOnly": BOOLEAN, "deletedAsNegative": BOOLEAN, **PAGE},
    "get_version": {"findTags": STRING, **FORMAT, "referenceFormat": STRING, "deleted": BOOLEAN},
    "get_version_schema": {**FORMAT, "deleted": BOOLEAN},
    "get_referenced_by": {"deleted": BOOLEAN, **PAGE},
    "register": {"normalize": BOOLEAN, "force": BOOLEAN, **FORMAT},
    "delete_version": {"permanent": BOOLEAN},
    "latest_with_metadata": {"key": STRING, "value": STRING, "deleted": BOOLEAN, **FORMAT},
    "look_up": {"normalize": BOOLEAN, "deleted": BOOLEAN, **FORMAT},
    "delete_subject": {"permanent": BOOLEAN},
    "list_schemas": {
        **LISTED,
        "latestOnly": BOOLEAN,
        "ruleType": STRING,
        "aliases": BOOLEAN,
        **ASSOCIATION_FILTER,
        "lifecycle": enum_of((*LIFECYCLES, "NONE")),
    },
    "get_schema": {
        "subject": STRING,
        "findTags": STRING,
        **FORMAT,
        "referenceFormat": STRING,
        "fetchMaxId": BOOLEAN,
    },
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
    "list_by_subject": {**ASSOCIATION_FILTER, **PAGE},
    "list_by_resource_name": {**ASSOCIATION_FILTER, **PAGE},
    "list_by_resource_id": {**ASSOCIATION_FILTER, **PAGE},
    "create_associations": {"context": STRING, "dryRun": BOOLEAN},
    "update_associations": {"context": STRING, "dryRun": BOOLEAN},
    "delete_associations": {**ASSOCIATION_FILTER, "cascadeLifecycle": BOOLEAN, "dryRun": BOOLEAN},
    "change_in_batch": {"context": STRING, "dryRun": BOOLEAN},
    "get_in_batch": {"includeSchemas": BOOLEAN},
    "list_keks": {"subjectPrefix": STRING, "deleted": BOOLEAN, **PAGE},
    "create_kek": {"testSharing": BOOLEAN},
    "get_kek": {"deleted": BOOLEAN},
    "update_kek": {"testSharing": BOOLEAN},
    "delete_kek": {"permanent": BOOLEAN},
    "list_dek_subjects": {"deleted": BOOLEAN, **PAGE},
    "create_dek_for_subject": {"rewrap": BOOLEAN},
    "list_dek_versions": {**ALGORITHM, "deleted": BOOLEAN, **PAGE},
    "get_dek": {**ALGORITHM, "deleted": BOOLEAN},
    "get_dek_version": {**ALGORITHM, "deleted": BOOLEAN},
    "delete_dek": {**ALGORITHM, "permanent": BOOLEAN},
    "delete_dek_version": {**ALGORITHM, "permanent": BOOLEAN},
    "undelete_dek": ALGORITHM,
    "undelete_dek_version": ALGORITHM,
}
REFERENCE = object_of(("name", "subject", "version"), name=STRING, subject=STRING, version=INTEGER)
ENTITY = object_of(
    ("entityPath", "entityType"), entityPath=STRING, entityType=enum_of(("sr_record", "sr_field"))
)
TAGS = list_of(object_of(("schemaEntity", "tags"), schemaEntity=ENTITY, tags=list_of(STRING)))
SCHEMA = object_of(
    schema={"type": "string", "example": '{"type": "string"}'},
    schemaType=enum_of(TYPES, default="AVRO"),
    references=list_of(REFERENCE),
    metadata={"type": "object"},
    ruleSet={"type": "object"},
    id=INTEGER,
    version=INTEGER,
    schemaTagsToAdd=TAGS,
    schemaTagsToRemove=TAGS,
    propagateSchemaTags=BOOLEAN,
)
TAG_CHANGES = object_of(
    newVersion=INTEGER,
    tagsToAdd=TAGS,
    tagsToRemove=TAGS,
    metadata={"type": "object"},
    ruleSet={"type": "object"},
    rulesToMerge={"type": "object"},
    rulesToRemove=list_of(STRING),
)
CONFIG = object_of(
    compatibility=enum_of(LEVELS),
    normalize=BOOLEAN,
    validateFields=BOOLEAN,
    compatibilityGroup=STRING,
    compatibilityPolicy=enum_of(("STRICT", "LENIENT")),
    alias=STRING,
    aliasForDeks=STRING,
)
MODE = object_of(mode=enum_of(MODES))
ASSOCIATION: dict[str, Schema] = {
    "subject": STRING,
    "associationType": enum_of(ASSOCIATION_TYPES, default="value"),
    "lifecycle": enum_of(LIFECYCLES),
    "frozen": BOOLEAN,
    "schema": SCHEMA,
    "normalize": BOOLEAN,
}
RESOURCE: dict[str, Schema] = {
    "resourceName": STRING,
    "resourceNamespace": STRING,
    "resourceId": STRING,
    "resourceType": enum_of((TOPIC,)),
}
ASSOCIATIONS = object_of((), **RESOURCE, associations=list_of(object_of((), **ASSOCIATION)))
OPERATION = object_of(
    ("opType",), opType=enum_of((CREATE, UPSERT, DELETE)), cascadeLifecycle=BOOLEAN, **ASSOCIATION
)
KEK = object_of(
    name=STRING,
    kmsType=STRING,
    kmsKeyId=STRING,
    kmsProps={"type": "object", "additionalProperties": STRING},
    doc=STRING,
    shared=BOOLEAN,
    deleted=BOOLEAN,
)
DEK = object_of(
    subject=STRING,
    version=INTEGER,
    algorithm=enum_of(ALGORITHMS, default=AES256_GCM),
    encryptedKeyMaterial=STRING,
    deleted=BOOLEAN,
)
BODIES: dict[str, Schema] = {
    "change_tags": TAG_CHANGES,
    **dict.fromkeys(("create_associations", "update_associations"), ASSOCIATIONS),
    "change_in_batch": object_of(
        requests=list_of(object_of((), **RESOURCE, associations=list_of(OPERATION)))
    ),
    "get_in_batch": object_of(
        requests=list_of(
            object_of(
                (),
                **RESOURCE,
                associationTypes=list_of(enum_of(ASSOCIATION_TYPES)),
                lifecycle=enum_of(LIFECYCLES),
            )
        )
    ),
    **dict.fromkeys(("create_kek", "update_kek"), KEK),
    **dict.fromkeys(("create_dek", "create_dek_for_subject"), DEK),
    **dict.fromkeys(("register", "look_up", "with_version", "with_subject"), SCHEMA),
    **dict.fromkeys(("set_global_config", "set_config"), CONFIG),
    **dict.fromkeys(("set_global_mode", "set_mode"), MODE),
}
API = ApiDescription(
    summary="Confluent's Schema Registry API.",
    tags=(
        "Subjects",
        "Schemas",
        "Compatibility",
        "Config",
        "Modes",
        "Contexts",
        "Server Metadata",
        "Associations",
        "Data Encryption Keys",
    ),
    queries=QUERIES,
    bodies=BODIES,
    media_type=lambda path: MEDIA_TYPE,
    request_types=lambda operation, media_type: (media_type, "application/json"),
)
