"""How rows become keys and values of records: JSON, AVRO, PROTOBUF, PROTOBUF_NOSR, JSON_SR, DELIMITED, KAFKA
and NONE.

    row_serde(format_of("JSON"), (("ID", INTEGER), ("NAME", STRING)))     a Streams serde whose objects are
    rows infer(registry, format_of("AVRO"), "orders", is_key=False, ...)       the columns that a topic's
    schema has register(registry, format_, columns, "totals", is_key=False, ...)     the schema of a sink, in
    Confluent's form
"""

from __future__ import annotations

from millstream.sql.formats.rows import row_serde, windowed_key
from millstream.sql.formats.table import (
    DEFAULT_AVRO_NAME,
    FORMATS,
    Format,
    Traits,
    check_columns,
    format_of,
    supports_key_type,
)
from millstream.sql.formats.values import DoesNotFit

__all__ = [
    "DEFAULT_AVRO_NAME",
    "FORMATS",
    "DoesNotFit",
    "Format",
    "Traits",
    "check_columns",
    "format_of",
    "row_serde",
    "supports_key_type",
    "windowed_key",
]
