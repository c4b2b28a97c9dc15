"""Schemas in the registry: columns from them where a statement has none, and those of sinks put there.

`infer` finds the columns of a key or value; a subject without a schema, a schema of another language and one
that SQL cannot express are errors with ksqlDB's words. `register` puts the schema of a source or sink under
its topic's subject when the statement is accepted, so that clients can read the topic before the first
record is written.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Protocol

from millstream.schemas import InvalidSchema
from millstream.schemas.protobuf import ProtobufSchema
from millstream.serdes.bodies import ProtobufBody
from millstream.serdes.client import RegisteredSchema, RegistryRefused, RegistryUnreachable, SchemaRegistry
from millstream.sql.errors import SqlError
from millstream.sql.formats import avro, json_sr, protobuf
from millstream.sql.formats.connect import ConnectType
from millstream.sql.formats.json_rows import Columns
from millstream.sql.formats.registry_rows import LANGUAGES, sink_schema, subject_of
from millstream.sql.formats.table import FULL_SCHEMA_NAME, Format
from millstream.sql.formats.translate import to_columns


class SourceLike(Protocol):
    """What of a catalog's source is needed here."""

    @property
    def name(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def schema(self) -> Any: ...
    @property
    def key_format(self) -> Format: ...
    @property
    def value_format(self) -> Format: ...
    @property
    def unwrap(self) -> bool | None: ...
    @property
    def unwrap_key(self) -> bool | None: ...


class Inferred(NamedTuple):
    columns: Columns
    schema_id: int
    name: str | None
    """The full name of the record or message, where the schema has one."""


def infer(
    registry: SchemaRegistry,
    format_: Format,
    topic: str | None,
    *,
    is_key: bool,
    unwrapped: bool,
    schema_id: int | None = None,
) -> Inferred:
    """Names of columns are in upper case, unless the statement names the schema by its id."""
    schema = _fetch(registry, topic, schema_id, is_key)
    wanted = LANGUAGES[format_.name]
    if schema.type != wanted:
        word, setting = ("Key", "KEY_FORMAT") if is_key else ("Value", "VALUE_FORMAT")
        raise SqlError(
            f"{word} schema is not in the expected format. You may want to set {setting} to "
            f"'{schema.type}'.\n"
            f"{_topic_and_id(topic, schema_id)}\nexpected format: {wanted}\n"
            f"actual format from Schema Registry: {schema.type}"
        )
    _refuse_several(schema, format_, is_key)
    try:
        type_, name = connect_type(schema, format_)
        columns = to_columns(type_, is_key=is_key, unwrapped=unwrapped, upper=schema_id is None)
    except (SqlError, InvalidSchema, KeyError, ValueError) as error:
        raise SqlError(
            f"Unable to verify if the {'key' if is_key else 'value'} schema for "
            f"{_topic_and_id(topic, schema_id)} is compatible with ksqlDB.\nReason: {error}\n\nPlease see "
            "https://github.com/confluentinc/ksql/issues/ to see if this particular reason is already "
            "known.\n"
            f"If not, please log a new issue, including this full error message.\nSchema:{schema.text}"
        ) from None
    if is_key and len(columns) > 1:
        raise SqlError(
            f"The key schema for {_topic_and_id(topic, schema_id)} contains multiple columns, which is not "
            "supported by "
            f"ksqlDB at this time.\nSchema:{schema.text}"
        )
    return Inferred(columns, schema.id, name)


def connect_type(schema: RegisteredSchema, format_: Format) -> tuple[ConnectType, str | None]:
    if schema.type == "AVRO":
        found = avro.AvroType(schema).type
        return found, found.name if found.kind == "STRUCT" else None
    if schema.type == "JSON":
        return json_sr.JsonSchemaType(schema).type, json.loads(schema.text).get("title")
    body = ProtobufBody(schema)
    name = format_.get(FULL_SCHEMA_NAME)
    path = body.path if name is None else body.path_to(name)
    descriptor = body.message_class(path).DESCRIPTOR
    return protobuf.ProtobufType(descriptor, schema.parsed).type, descriptor.full_name


def _fetch(
    registry: SchemaRegistry, topic: str | None, schema_id: int | None, is_key: bool
) -> RegisteredSchema:
    try:
        if schema_id is not None:
            return registry.schema(schema_id)
        assert topic is not None
        return registry.latest(subject_of(topic, is_key=is_key))
    except RegistryRefused as error:
        if error.status in (401, 403, 404):
            raise SqlError(_not_found(topic, schema_id, is_key)) from None
        raise SqlError(_failed(topic, schema_id, is_key, error)) from None
    except RegistryUnreachable as error:
        raise SqlError(_failed(topic, schema_id, is_key, error)) from None


def _failed(topic: str | None, schema_id: int | None, is_key: bool, error: Exception) -> str:
    return (
        f"Schema registry fetch for topic {'key' if is_key else 'value'} request failed for "
        f"{_topic_and_id(topic, schema_id)}\nCaused by: {error}"
    )


def _topic_and_id(topic: str | None, schema_id: int | None) -> str:
    parts = [] if topic is None else [f"topic: {topic}"]
    return ", ".join(parts if schema_id is None else [*parts, f"schema id: {schema_id}"])


def _not_found(topic: str | None, schema_id: int | None, is_key: bool) -> str:
    where = f"topic '{topic}'" if topic is not None else f"schema id'{schema_id}"
    lines = [
        f"Schema for message {'keys' if is_key else 'values'} on {where} does not exist in the Schema "
        "Registry."
    ]
    if topic is not None:
        lines.append(f"Subject: {subject_of(topic, is_key=is_key)}")
    if schema_id is not None:
        lines.append(f"Schema Id: {schema_id}")
    lines.append("Possible causes include:")
    if topic is not None:
        lines += [
            "- The topic itself does not exist",
            "\t-> Use SHOW TOPICS; to check",
            "- Messages on the topic are not serialized using a format Schema Registry supports",
            f"\t-> Use PRINT '{topic}' FROM BEGINNING; to verify",
        ]
    lines += [
        "- The schema is registered on a different instance of the Schema Registry",
        "\t-> Check ksql.schema.registry.url, and list the subjects of the registry there",
        "- You do not have permissions to access the Schema Registry.",
    ]
    return "\n".join(lines)


def _refuse_several(schema: RegisteredSchema, format_: Format, is_key: bool) -> None:
    """A file with several messages needs to be told which."""
    if schema.type != "PROTOBUF" or format_.get(FULL_SCHEMA_NAME) is not None:
        return
    parsed = schema.parsed
    assert isinstance(parsed, ProtobufSchema)
    package = parsed.file.package
    names = [f"{package}.{one.name}" if package else one.name for one in parsed.file.types]
    if len(names) > 1:
        shown = "\n".join(f"- {name}" for name in names)
        raise SqlError(
            f"{'Key' if is_key else 'Value'} schema has multiple schema definitions. \n\n{shown}\n\n"
            "Please specify a schema full name in the WITH clause using "
            f"{'KEY' if is_key else 'VALUE'}_SCHEMA_FULL_NAME"
        )


def register(
    registry: SchemaRegistry,
    format_: Format,
    columns: Columns,
    topic: str,
    *,
    is_key: bool,
    unwrapped: bool,
    replace: bool,
) -> int | None:
    """Puts the schema of these columns under the topic's subject. `replace`: also if there is one already, as
    sinks do; sources take what they find. Gives the id, or None where there is nothing to do."""
    if not format_.traits.infers or not columns:
        return None
    subject = subject_of(topic, is_key=is_key)
    if not replace and _exists(registry, subject):
        return None
    try:
        text = sink_schema(format_, columns, unwrapped=unwrapped)
        return registry.register(subject, text, LANGUAGES[format_.name])
    except SqlError as error:
        raise SqlError(f"Could not register schema for topic: {error}") from None
    except (RegistryRefused, RegistryUnreachable) as error:
        raise SqlError(
            f"Could not register schema for topic: Could not register schema for topic '{topic}': {error}"
        ) from None


def _exists(registry: SchemaRegistry, subject: str) -> bool:
    try:
        registry.latest(subject)
    except RegistryRefused as error:
        if error.status == 404:
            return False
        raise SqlError(f"Could not check if schema exists for subject {subject}: {error}") from None
    return True


def register_source(registry: SchemaRegistry, source: SourceLike, *, replace: bool) -> None:
    """The schemas of a source's key and value, unless the statement names them by their ids."""
    for format_, columns, is_key, unwrap in (
        (source.key_format, source.schema.key, True, source.unwrap_key),
        (source.value_format, source.schema.value, False, source.unwrap),
    ):
        pairs = tuple((one.name, one.type) for one in columns)
        unwrapped = format_.unwraps_by_default(len(pairs), is_key=is_key) if unwrap is None else unwrap
        if format_.schema_id is None:
            register(
                registry,
                format_,
                pairs,
                source.topic,
                is_key=is_key,
                unwrapped=unwrapped,
                replace=replace,
            )
