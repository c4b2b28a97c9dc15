"""The proxy's API for the OpenAPI page: queries and bodies by operation."""

from millstream.http.openapi import (
    ANYTHING,
    BOOLEAN,
    INTEGER,
    LONG,
    STRING,
    ApiDescription,
    Schema,
    enum_of,
    list_of,
    object_of,
)
from millstream.rest.api.responses import EMBEDDED, JSON, V2, is_v3
from millstream.rest.api.v3_acls import CHOICES, TEXTS

PARTITION = object_of(("topic", "partition"), topic=STRING, partition=INTEGER)
PARTITIONS = object_of(("partitions",), partitions=list_of(PARTITION))
OFFSET = object_of(
    ("topic", "partition", "offset"), topic=STRING, partition=INTEGER, offset=LONG, metadata=STRING
)
TIMESTAMP = object_of(("topic", "partition", "timestamp"), topic=STRING, partition=INTEGER, timestamp=STRING)
RECORDS = object_of(
    ("records",),
    records=list_of(object_of(key=ANYTHING, value=ANYTHING, partition=INTEGER)),
    key_schema=STRING,
    key_schema_id=INTEGER,
    value_schema=STRING,
    value_schema_id=INTEGER,
)
FORMAT = enum_of(("BINARY", "JSON", "STRING", "AVRO", "JSONSCHEMA", "PROTOBUF"))
STRATEGY = enum_of(("TOPIC_NAME", "RECORD_NAME", "TOPIC_RECORD_NAME"))
DATA = object_of(
    type=FORMAT,
    data=ANYTHING,
    subject=STRING,
    subject_name_strategy=STRATEGY,
    schema_id=INTEGER,
    schema_version=INTEGER,
    schema=STRING,
)
RECORD = object_of(
    partition_id=INTEGER,
    headers=list_of(object_of(("name",), name=STRING, value={"type": "string", "format": "byte"})),
    key=DATA,
    value=DATA,
    timestamp={"type": "string", "format": "date-time"},
)
ENTRY = object_of(("id",), id=STRING, **RECORD["properties"])
CONFIG = object_of(("name",), name=STRING, value=STRING)
CHANGE = object_of(("name",), name=STRING, value=STRING, operation=enum_of(("SET", "DELETE")))
CHANGES = object_of(("data",), data=list_of(CHANGE), validate_only=BOOLEAN)
VALUE = object_of(value=STRING)
ACL_CHOICES: dict[str, Schema] = {name: enum_of(choices) for name, choices in CHOICES.items()}
ACL_TEXTS: dict[str, Schema] = dict.fromkeys(TEXTS, STRING)
ACL = object_of((*CHOICES, *TEXTS), **ACL_CHOICES, **ACL_TEXTS)

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
            "format": enum_of(("binary", "json", "avro", "jsonschema", "protobuf")),
            "auto.offset.reset": enum_of(("earliest", "latest", "none")),
            "auto.commit.enable": enum_of(("true", "false")),
            "fetch.min.bytes": INTEGER,
            "consumer.request.timeout.ms": INTEGER,
        },
    },
    "subscribe": object_of(topics=list_of(STRING), topic_pattern=STRING),
    "assign": PARTITIONS,
    "seek": object_of(offsets=list_of(OFFSET), timestamps=list_of(TIMESTAMP)),
    "seek_to_beginning": PARTITIONS,
    "seek_to_end": PARTITIONS,
    "commit": object_of(offsets=list_of(OFFSET)),
    "post_root": object_of(),
    "produce_records": RECORD,
    "produce_batch": object_of(("entries",), entries=list_of(ENTRY)),
    "create_topic": object_of(
        ("topic_name",),
        topic_name=STRING,
        partitions_count=INTEGER,
        replication_factor=INTEGER,
        replicas_assignments={"type": "object", "additionalProperties": list_of(INTEGER)},
        configs=list_of(CONFIG),
        validate_only=BOOLEAN,
    ),
    "add_partitions": object_of(("partitions_count",), partitions_count=INTEGER),
    **dict.fromkeys(("alter_topic_configs", "alter_broker_configs", "alter_cluster_configs"), CHANGES),
    "alter_many_topics_configs": object_of(
        ("data",),
        data=list_of(object_of(("topic_name", "configs"), topic_name=STRING, configs=list_of(CHANGE))),
        validate_only=BOOLEAN,
    ),
    **dict.fromkeys(("set_topic_config", "set_broker_config", "set_cluster_config"), VALUE),
    "create_acl": ACL,
    "create_acls": object_of(("data",), data=list_of(ACL)),
}
API = ApiDescription(
    summary="Confluent's REST Proxy API, versions 2 and 3.",
    tags=(
        "v2 records",
        "v2 topics",
        "v2 consumers",
        "v3 records",
        "v3 clusters",
        "v3 topics",
        "v3 configs",
        "v3 consumer groups",
        "v3 ACLs",
    ),
    queries=QUERIES,
    bodies=BODIES,
    media_type=lambda path: JSON if is_v3(path) else V2,
    request_types=lambda operation, media_type: (
        EMBEDDED if operation in ("produce", "produce_to_partition") else (media_type,)
    ),
    optional_bodies=frozenset({"create", "commit"}),
)
