"""The one door to kio, the library that knows every Kafka message.

Where hypothesis is installed (any test environment), kio registers a strategy per type while it is imported:
two seconds that no broker needs. So hypothesis is hidden from it for the length of the import, unless it is
loaded already.
"""

import sys

_hidden = "hypothesis" not in sys.modules
if _hidden:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
try:
    from kio.index import load_request_schema, load_response_schema
    from kio.schema.errors import ErrorCode
    from kio.schema.index import api_key_map, schema_name_map
    from kio.serial import entity_reader, entity_writer
finally:
    if _hidden:
        del sys.modules["hypothesis"]

__all__ = [
    "ErrorCode",
    "api_key_map",
    "entity_reader",
    "entity_writer",
    "load_request_schema",
    "load_response_schema",
    "schema_name_map",
]
