"""Confluent's wire format: a zero byte, four bytes of schema id, the body.

Newer clients may put the schema's guid into a header instead (`__value_schema_id`: a one byte, sixteen bytes
of guid) or in front of the body in the same form. For Protobuf the body begins with the path to the message
type: how many steps, then the index of the message in the file, of the nested message in that one, and so on,
as zigzag varints; the most frequent path, [0], is a single zero.
"""

import struct
import uuid
from collections.abc import Sequence

from millstream.wire.varint import Malformed, read_varint, varint

ID = 0
GUID = 1
_ID_HEAD = struct.Struct(">bI")


class NotFramed(ValueError):
    """The bytes do not begin as a schema's id does."""


def with_id(schema_id: int, body: bytes) -> bytes:
    return _ID_HEAD.pack(ID, schema_id) + body


def split(data: bytes) -> tuple[int | str, memoryview]:
    """Id (or guid) and body."""
    view = memoryview(data)
    if len(view) >= 5 and view[0] == ID:
        return int.from_bytes(view[1:5], "big"), view[5:]
    if len(view) >= 17 and view[0] == GUID:
        return str(uuid.UUID(bytes=bytes(view[1:17]))), view[17:]
    raise NotFramed(
        "no schema id in front: the first byte is not zero" if len(view) >= 5 else "shorter than a schema id"
    )


def path_bytes(path: Sequence[int]) -> bytes:
    if list(path) == [0]:
        return b"\0"
    return b"".join(varint(number) for number in (len(path), *path))


def split_path(body: memoryview) -> tuple[list[int], memoryview]:
    try:
        count, at = read_varint(body, 0)
        if count == 0:
            return [0], body[at:]
        if not 0 < count <= 64:
            raise NotFramed(f"a path of {count} steps to a message type makes no sense")
        path = []
        for _ in range(count):
            number, at = read_varint(body, at)
            path.append(number)
        return path, body[at:]
    except (IndexError, Malformed):
        raise NotFramed("the path to the message type is cut off") from None
