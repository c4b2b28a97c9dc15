"""The one door to kio, the library that knows every Kafka message. (`errors` takes the error codes from it by
itself: a process that only compacts a log needs no more, and starts in half the time.)"""

from millstream.wire._kio_imports import without_hypothesis
from millstream.wire.errors import ErrorCode

with without_hypothesis():
    from kio.index import load_request_schema, load_response_schema
    from kio.schema.index import api_key_map, schema_name_map
    from kio.serial import entity_reader, entity_writer

__all__ = [
    "ErrorCode",
    "api_key_map",
    "entity_reader",
    "entity_writer",
    "load_request_schema",
    "load_response_schema",
    "schema_name_map",
]
