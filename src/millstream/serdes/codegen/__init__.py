"""Typed Python classes from a schema, for those who prefer classes to dicts.

model      what all three languages come down to: records with fields, enums, and types as Python writes them
readers    from Avro, JSON Schema and Protobuf to the model
writer     from the model to a module's text
command    `millstream registry codegen`
"""

from millstream.schemas import ParsedSchema
from millstream.serdes.codegen.readers import read
from millstream.serdes.codegen.writer import write

__all__ = ["generate"]


def generate(schema: ParsedSchema, source: str = "") -> str:
    """The text of a module with a class for each record and enum of a schema."""
    return write(read(schema), schema, source)
