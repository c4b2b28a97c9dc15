"""Tags inside of schemas: labels on records and fields, by which rules find what they are about ("PII"). The
languages' modules are imported when they are first needed."""

from collections.abc import Iterable, Iterator

from millstream.schemas import AVRO, JSON
from millstream.schemas.schema import InvalidSchema, ParsedSchema
from millstream.schemas.tag_entities import Entity, EntityTags, changes_of

__all__ = ["Entity", "EntityTags", "tagged_entities", "with_tags"]


def tagged_entities(schema: ParsedSchema) -> list[EntityTags]:
    """All entities of a schema that have tags, in the order of the schema."""
    try:
        return list(_tagged(schema))
    except RecursionError:
        raise InvalidSchema("nested too deeply") from None


def _tagged(schema: ParsedSchema) -> Iterator[EntityTags]:
    if schema.schema_type == AVRO:
        from millstream.schemas import avro_tags
        from millstream.schemas.avro import AvroSchema

        assert isinstance(schema, AvroSchema)
        return avro_tags.tagged(schema.root)
    if schema.schema_type == JSON:
        from millstream.schemas import json_tags
        from millstream.schemas.json_schema import JsonSchema

        assert isinstance(schema, JsonSchema)
        return json_tags.tagged(schema)
    from millstream.schemas import proto_tags
    from millstream.schemas.protobuf import ProtobufSchema

    assert isinstance(schema, ProtobufSchema)
    return proto_tags.tagged(schema.file)


def with_tags(schema: ParsedSchema, add: Iterable[EntityTags] = (), remove: Iterable[EntityTags] = ()) -> str:
    """The text of a schema with tags added, then others removed. InvalidSchema where a path leads nowhere."""
    changes = changes_of(add, remove)
    if schema.schema_type == AVRO:
        from millstream.schemas import avro_tags

        return avro_tags.changed(schema.canonical, changes)
    if schema.schema_type == JSON:
        from millstream.schemas import json_tags

        return json_tags.changed(schema.canonical, changes)
    from millstream.schemas import proto_tags

    return proto_tags.changed(schema.canonical, changes)
