"""Envelope (KIP-590): a client's request on its way from the broker that received it to the controller.

The request travels as the client sent it, header included, with the client's principal and address; the
response likewise, for the broker to hand on. Principals have the form of Kafka's default serde. The response
has a tagged field of our own: the version of the metadata that shows what the request changed, so that the
broker in between can wait until it sees the change itself.
"""

import ipaddress
import struct
from typing import NamedTuple

from millstream.wire.primitives import read_bytes, read_compact_string
from millstream.wire.varint import Malformed, read_uvarint, uvarint

# Instead of a client's principal, which is never of this type: the broker asks for itself.
BROKER_ITSELF = "Broker:itself"
ENVELOPE = 58
METADATA_VERSION_TAG = 10_000

_INT16 = struct.Struct(">h")
_INT64 = struct.Struct(">q")
_NOBODY = b"\0\0\0\0"


class EnvelopeResponse(NamedTuple):
    error: int
    data: bytes | None  # the response to the client: header and body
    metadata_version: int = 0


def pack_envelope(request: bytes, principal: str, host: str) -> bytes:
    """The body of an Envelope request. `request` is a frame without its size."""
    return b"".join(
        (
            uvarint(len(request) + 1),
            request,
            _bytes(pack_principal(principal)),
            _bytes(_pack_address(host)),
            b"\0",
        )
    )


def pack_envelope_response(response: EnvelopeResponse) -> bytes:
    data = b"\0" if response.data is None else _bytes(response.data)
    version = uvarint(METADATA_VERSION_TAG) + b"\x08" + _INT64.pack(response.metadata_version)
    return data + _INT16.pack(response.error) + b"\x01" + version


def read_envelope_response(body: memoryview) -> EnvelopeResponse:
    """`body` begins after the correlation id, with the tags of the header, of which there are none."""
    try:
        data, at = _read_bytes(body, 1)
        (error,) = _INT16.unpack_from(body, at)
        count, at = read_uvarint(body, at + 2)
        version = 0
        for _ in range(count):
            tag, at = read_uvarint(body, at)
            size, at = read_uvarint(body, at)
            if tag == METADATA_VERSION_TAG:
                (version,) = _INT64.unpack_from(body, at)
            at += size
    except (IndexError, struct.error) as problem:
        raise Malformed(f"an Envelope response is cut off: {problem}") from None
    return EnvelopeResponse(error, data, version)


def pack_principal(principal: str) -> bytes:
    kind, _, name = principal.partition(":")
    return b"\0\0" + _bytes(kind.encode()) + _bytes(name.encode()) + b"\0\0"


def read_principal(data: bytes) -> str:
    """`User:alice`. Raises Malformed."""
    try:
        if data[:2] != b"\0\0":
            raise Malformed("a principal in a form that this version cannot read")
        kind, at = read_compact_string(data, 2)
        name, at = read_compact_string(data, at)
        return f"{(kind or b'').decode()}:{(name or b'').decode()}"
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise Malformed(f"a principal that cannot be read: {error}") from None


def read_address(data: bytes) -> str:
    if len(data) not in (4, 16):
        raise Malformed(f"an address of {len(data)} bytes")
    return str(ipaddress.ip_address(data))


def _pack_address(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).packed
    except ValueError:
        return _NOBODY


def _bytes(data: bytes) -> bytes:
    return uvarint(len(data) + 1) + data


def _read_bytes(body: memoryview, at: int) -> tuple[bytes | None, int]:
    length, at = read_uvarint(body, at)
    return (None, at) if length == 0 else read_bytes(body, at, length - 1)
