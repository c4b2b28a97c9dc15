"""First messages of TLS clients, byte by byte: what no library of today would send."""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass, field

ALERT, HANDSHAKE = 21, 22
SERVER_HELLO = 2
# Extensions.
GROUPS, POINT_FORMATS, SIGNATURES, HEARTBEAT = 10, 11, 13, 15
# Suites that every server of this project has for ECDSA keys, and TLS_FALLBACK_SCSV (RFC 7507).
ECDHE_ECDSA = (0xC02C, 0xC02B)
FALLBACK = 0x5600
RENEGOTIATION_INFO = 0xFF01  # the extension of RFC 5746 in the answer
SECURE_RENEGOTIATION = 0x00FF  # the suite that asks for it
P256, X25519 = 23, 29
ECDSA_SHA256, ECDSA_SHA1 = 0x0403, 0x0203


@dataclass(frozen=True)
class ClientHello:
    version: int = 0x0303
    suites: tuple[int, ...] = (*ECDHE_ECDSA, SECURE_RENEGOTIATION)
    groups: tuple[int, ...] = (X25519, P256)
    signatures: tuple[int, ...] = (ECDSA_SHA256,)
    compressions: tuple[int, ...] = (0,)
    more: dict[int, bytes] = field(default_factory=dict)

    def packed(self) -> bytes:
        extensions = {
            GROUPS: _numbers(self.groups),
            POINT_FORMATS: b"\1\0",
            SIGNATURES: _numbers(self.signatures),
            **self.more,
        }
        body = struct.pack(">H", self.version) + os.urandom(32) + b"\0"
        body += _numbers(self.suites)
        body += bytes((len(self.compressions), *self.compressions))
        packed = b"".join(struct.pack(">HH", kind, len(value)) + value for kind, value in extensions.items())
        body += struct.pack(">H", len(packed)) + packed
        message = b"\1" + len(body).to_bytes(3, "big") + body
        return struct.pack(">BHH", HANDSHAKE, min(self.version, 0x0301), len(message)) + message


@dataclass(frozen=True)
class ServerHello:
    version: int
    suite: int
    compression: int
    extensions: frozenset[int]


@dataclass(frozen=True)
class Alert:
    description: int


INAPPROPRIATE_FALLBACK = 86


def answer_to(address: tuple[str, int], hello: bytes) -> ServerHello | Alert | None:
    """None where the server just hangs up."""
    with socket.create_connection(address, timeout=120) as sock:
        sock.sendall(hello)
        head = _exactly(sock, 5)
        if head is None:
            return None
        kind, _, size = struct.unpack(">BHH", head)
        body = _exactly(sock, size)
    assert body is not None
    if kind == ALERT:
        return Alert(body[1])
    assert kind == HANDSHAKE and body[0] == SERVER_HELLO
    return _server_hello(body[4 : 4 + int.from_bytes(body[1:4], "big")])


def _server_hello(body: bytes) -> ServerHello:
    version, at = int.from_bytes(body[:2], "big"), 34
    at += 1 + body[at]
    suite, compression = struct.unpack_from(">HB", body, at)
    at += 5  # and the size of the extensions
    found = set()
    while at < len(body):
        kind, size = struct.unpack_from(">HH", body, at)
        found.add(kind)
        at += 4 + size
    return ServerHello(version, suite, compression, frozenset(found))


def _numbers(values: tuple[int, ...]) -> bytes:
    return struct.pack(f">H{len(values)}H", 2 * len(values), *values)


def _exactly(sock: socket.socket, size: int) -> bytes | None:
    got = b""
    while len(got) < size:
        try:
            piece = sock.recv(size - len(got))
        except ConnectionError:
            return None
        if not piece:
            return None
        got += piece
    return got
