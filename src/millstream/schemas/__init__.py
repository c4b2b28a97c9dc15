"""The three schema languages. `parse` turns a schema's text into an object that knows its canonical form, its
normal form and what of it breaks readers of an older schema. Nothing here does I/O.
"""

from collections.abc import Mapping, Sequence

from millstream.schemas.schema import InvalidSchema, ParsedSchema, Reference

__all__ = ["TYPES", "InvalidSchema", "ParsedSchema", "Reference", "parse"]

AVRO = "AVRO"
JSON = "JSON"
PROTOBUF = "PROTOBUF"
TYPES = (JSON, PROTOBUF, AVRO)


def parse(
    schema_type: str,
    text: str,
    references: Sequence[Reference] = (),
    resolved: Mapping[str, str] | None = None,
    *,
    new: bool = False,
) -> ParsedSchema:
    """Parse a schema; `resolved` holds the texts of everything that it refers to, by name, what is needed
    first first.

    With `new`, rules are applied that an already registered schema is not held to (defaults must fit their
    types). The languages' modules are imported when they are first needed.
    """
    parsed = _construct(schema_type, text, references, resolved or {}, new)
    if new:
        parsed.validate()
    return parsed


def _construct(
    schema_type: str, text: str, references: Sequence[Reference], resolved: Mapping[str, str], new: bool
) -> ParsedSchema:
    if schema_type == AVRO:
        from millstream.schemas.avro import AvroSchema

        return AvroSchema(text, references, resolved, new=new)
    if schema_type == JSON:
        from millstream.schemas.json_schema import JsonSchema

        return JsonSchema(text, references, resolved)
    if schema_type == PROTOBUF:
        from millstream.schemas.protobuf import ProtobufSchema

        return ProtobufSchema(text, references, resolved)
    raise InvalidSchema(f"Invalid schema type {schema_type}")
