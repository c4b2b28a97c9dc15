"""Requests and responses of every API but Produce and Fetch, by kio: one `Codec` per API and version, loaded
at first use.

A handler serves many versions with one piece of code. `Codec.make` builds any structure of the response by
its schema name and leaves out the fields that this version does not have yet (or has no more), so handlers
always state the newest form.
"""

import io
import struct
import sys
import uuid
from datetime import timedelta
from functools import cache
from typing import Any

from millstream.wire._kio import entity_reader, entity_writer, load_request_schema, load_response_schema
from millstream.wire.message_check import MAX_ELEMENTS, message_checker
from millstream.wire.primitives import skip_tags
from millstream.wire.varint import Malformed

API_VERSIONS = 18
_PLAIN_HEADER = struct.Struct(">ii")  # size, correlation id
_TAGGED_HEADER = struct.Struct(">iiB")
NO_THROTTLE = timedelta(0)
NO_TOPIC_ID = uuid.UUID(int=0)


class Codec:
    """Reads the requests and writes the responses of one API version. (A client has its own:
    client/messages.py.)"""

    __slots__ = (
        "_check",
        "_fields",
        "_module",
        "api",
        "flexible",
        "read_body",
        "request",
        "response",
        "tagged_header",
        "version",
        "write_body",
    )

    def __init__(self, api: int, version: int) -> None:
        self.api = api
        self.version = version
        self.request: Any = load_request_schema(api, version)
        self.response: Any = load_response_schema(api, version)
        self.flexible = bool(self.request.__flexible__)
        # A client of any age must understand the answer to ApiVersions, so its header never has tags.
        self.tagged_header = bool(self.response.__flexible__) and api != API_VERSIONS
        self._check = message_checker(self.request)
        self.read_body = entity_reader(self.request)
        self.write_body = entity_writer(self.response)
        self._module = sys.modules[self.response.__module__]
        self._fields: dict[str, tuple[Any, frozenset[str]]] = {}

    def make(self, structure: str, /, **fields: Any) -> Any:
        """Build a structure of the response, without the fields unknown to this version."""
        found = self._fields.get(structure)
        if found is None:
            cls = getattr(self._module, structure)
            found = self._fields[structure] = (cls, frozenset(cls.__dataclass_fields__))
        cls, known = found
        return cls(**{name: value for name, value in fields.items() if name in known})

    def answer(self, **fields: Any) -> Any:
        """Build the response itself."""
        fields.setdefault("throttle_time", NO_THROTTLE)
        return self.make(self.response.__name__, **fields)

    def has(self, structure: str) -> bool:
        return hasattr(self._module, structure)

    def read(self, frame: memoryview, at: int, max_elements: int = MAX_ELEMENTS) -> Any:
        """The request whose body begins at `at`. Whatever is wrong with it is `Malformed`."""
        try:
            return self.read_body(self._check(bytes(frame[at:]), max_elements), 0)[0]
        except Malformed:
            raise
        except Exception as error:  # kio has no common base for what bad bytes can raise
            raise Malformed(f"{type(error).__name__}: {error}") from None

    def body(self, response: Any) -> bytes:
        """The response without its header: what a handler may keep and pack again."""
        out = io.BytesIO()
        self.write_body(out, response)
        return out.getvalue()

    def pack(self, correlation_id: int, response: Any) -> bytes:
        """The whole response frame, size prefix included. `response` may be a `body` made earlier."""
        body = response if type(response) is bytes else self.body(response)
        if self.tagged_header:
            return _TAGGED_HEADER.pack(len(body) + 5, correlation_id, 0) + body
        return _PLAIN_HEADER.pack(len(body) + 4, correlation_id) + body


@cache
def codec(api: int, version: int) -> Codec:
    return Codec(api, version)


def body_start(frame: memoryview, client_id_size: int, flexible: bool) -> int:
    """Where the body of a request begins, after the client id and, in flexible versions, the header's
    tags."""
    at = 10 + max(client_id_size, 0)
    if at > len(frame):
        raise Malformed("client id reaches past the frame")
    return skip_tags(frame, at) if flexible else at
