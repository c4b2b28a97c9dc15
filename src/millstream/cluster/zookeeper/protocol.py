"""ZooKeeper's protocol as bytes: the requests that the store needs, and what comes back.

A frame is a length and its content; numbers are big-endian, strings and buffers have a length before them
(-1 for none). A request begins with a number of the client's choice (xid) and the operation, a response with
that xid, the server's transaction number (zxid) and an error. The xids below zero have a meaning of their
own. Nothing here does I/O.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

# Operations.
CREATE, DELETE, EXISTS, GET_DATA, SET_DATA = 1, 2, 3, 4, 5
GET_CHILDREN, SYNC, PING, CHECK, MULTI, CREATE2 = 8, 9, 11, 13, 14, 15
AUTH, SET_WATCHES, CLOSE_SESSION = 100, 101, -11

# Requests that are not answered in turn carry these instead of a number of their own.
WATCH_XID, PING_XID, AUTH_XID, SET_WATCHES_XID = -1, -2, -4, -8

EPHEMERAL, SEQUENCE = 1, 2

CREATED, DELETED, CHANGED, CHILD = 1, 2, 3, 4  # kinds of watch events

# The server sends at most jute.maxbuffer (1 MB) of data, and lists of children up to about as much.
MAX_FRAME = 4 * 1024 * 1024

_HEAD = struct.Struct(">iqi")  # of a response: xid, zxid, error
_REQUEST = struct.Struct(">ii")  # xid, operation
_CONNECT = struct.Struct(">iqiq")
_CONNECTED = struct.Struct(">iiq")
_MULTI = struct.Struct(">i?i")  # operation, whether this is the end, error
_INT = struct.Struct(">i")
_STAT = struct.Struct(">qqqqiiiqiiq")

ALL_PERMISSIONS = 31
World = tuple[str, str]
ANYBODY: World = ("world", "anyone")
CREATOR: World = ("auth", "")


class ZooKeeperError(Exception):
    """A request that ZooKeeper refused, or that did not get through."""


class ConnectionLoss(ZooKeeperError):
    """There was no answer. Whether the request took effect is unknown."""


class SessionExpired(ZooKeeperError):
    """The session is over, and the ephemeral nodes with it."""


class NoNode(ZooKeeperError):
    """There is no such node."""


class NodeExists(ZooKeeperError):
    """There is such a node already."""


class BadVersion(ZooKeeperError):
    """The node was changed meanwhile."""


class NotEmpty(ZooKeeperError):
    """The node has children."""


class AccessDenied(ZooKeeperError):
    """The ACL of the node does not allow it, or ZooKeeper refused the credentials."""


class MalformedResponse(ZooKeeperError):
    """What came is not ZooKeeper's protocol."""


_ERRORS: dict[int, type[ZooKeeperError]] = {
    -4: ConnectionLoss,
    -101: NoNode,
    -102: AccessDenied,
    -103: BadVersion,
    -110: NodeExists,
    -111: NotEmpty,
    -112: SessionExpired,
    -115: AccessDenied,
    -118: ConnectionLoss,  # SESSIONMOVED: a later connection has taken the session over
}
NOT_DECIDED = frozenset({-4, -112, -118})  # errors that say nothing about the request itself


def error_for(code: int, about: str) -> ZooKeeperError:
    kind = _ERRORS.get(code, ZooKeeperError)
    return kind(f"{about}: {kind.__doc__}" if kind is not ZooKeeperError else f"{about}: error {code}")


class Stat(NamedTuple):
    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


class Head(NamedTuple):
    xid: int
    zxid: int
    error: int


class Connected(NamedTuple):
    timeout_ms: int  # 0 or less: the session has expired
    session_id: int
    password: bytes


class WatchEvent(NamedTuple):
    kind: int
    path: str


@dataclass(frozen=True, slots=True)
class Check:
    """Part of a multi: the node has this version; -1 for any."""

    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes
    flags: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class SetData:
    path: str
    data: bytes
    version: int = -1


Part = Check | Create | Delete | SetData


class PartFailed(NamedTuple):
    """Which part of a multi failed, and with what."""

    part: int
    error: ZooKeeperError


# --- requests -----------------------------------------------------------------------------------------------


def frame(content: bytes) -> bytes:
    return _INT.pack(len(content)) + content


def request(xid: int, operation: int, body: bytes = b"") -> bytes:
    return _INT.pack(8 + len(body)) + _REQUEST.pack(xid, operation) + body


def connect_request(last_zxid: int, timeout_ms: int, session_id: int, password: bytes) -> bytes:
    body = _CONNECT.pack(0, last_zxid, timeout_ms, session_id)
    return frame(body + buffer(password) + b"\0")  # the last byte: not to a read-only server


def buffer(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def string(text: str) -> bytes:
    return buffer(text.encode())


def path_and_watch(path: str, watch: bool) -> bytes:
    return string(path) + (b"\1" if watch else b"\0")


def create(path: str, data: bytes, flags: int, acl: World) -> bytes:
    scheme, user = acl
    return (
        string(path)
        + buffer(data)
        + _INT.pack(1)
        + _INT.pack(ALL_PERMISSIONS)
        + string(scheme)
        + string(user)
        + _INT.pack(flags)
    )


def path_and_version(path: str, version: int) -> bytes:
    return string(path) + _INT.pack(version)


def set_data(path: str, data: bytes, version: int) -> bytes:
    return string(path) + buffer(data) + _INT.pack(version)


def auth(scheme: str, credentials: bytes) -> bytes:
    return _INT.pack(0) + string(scheme) + buffer(credentials)


def set_watches(last_zxid: int, data: Sequence[str], exist: Sequence[str], child: Sequence[str]) -> bytes:
    body = struct.pack(">q", last_zxid)
    for paths in (data, exist, child):
        body += _INT.pack(len(paths)) + b"".join(map(string, paths))
    return body


def multi(parts: Sequence[Part], acl: World) -> bytes:
    body = b""
    for part in parts:
        match part:
            case Check(path, version):
                body += _MULTI.pack(CHECK, False, -1) + path_and_version(path, version)
            case Create(path, data, flags):
                body += _MULTI.pack(CREATE, False, -1) + create(path, data, flags, acl)
            case Delete(path, version):
                body += _MULTI.pack(DELETE, False, -1) + path_and_version(path, version)
            case SetData(path, data, version):
                body += _MULTI.pack(SET_DATA, False, -1) + set_data(path, data, version)
    return body + _MULTI.pack(-1, True, -1)


# --- responses ----------------------------------------------------------------------------------------------


class Reader:
    """Reads the content of one frame from the front."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        try:
            values = layout.unpack_from(self._data, self._at)
        except struct.error as problem:
            raise MalformedResponse(f"a response of {len(self._data)} bytes is too short") from problem
        self._at += layout.size
        return values

    def int(self) -> int:
        return self.unpack(_INT)[0]

    def buffer(self) -> bytes:
        size = self.int()
        if size == -1:
            return b""
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise MalformedResponse(f"a field of {size} bytes in a response of {len(self._data)}")
        data = self._data[self._at : end]
        self._at = end
        return data

    def string(self) -> str:
        try:
            return self.buffer().decode()
        except UnicodeDecodeError as problem:
            raise MalformedResponse("a path that is not UTF-8") from problem

    def strings(self) -> list[str]:
        count = self.int()
        if count > len(self._data):
            raise MalformedResponse(f"{count} names in a response of {len(self._data)} bytes")
        return [self.string() for _ in range(count)]

    def stat(self) -> Stat:
        return Stat(*self.unpack(_STAT))

    def head(self) -> Head:
        return Head(*self.unpack(_HEAD))

    def connected(self) -> Connected:
        _, timeout_ms, session_id = self.unpack(_CONNECTED)
        return Connected(timeout_ms, session_id, self.buffer())

    def watch_event(self) -> WatchEvent:
        kind, _state = self.int(), self.int()
        return WatchEvent(kind, self.string())

    def multi_failure(self) -> PartFailed | None:
        """The first part that failed for a reason of its own; None if all went through."""
        index = 0
        while True:
            operation, done, _ = self.unpack(_MULTI)
            if done:
                return None
            if operation == -1:
                error = self.int()
                # RUNTIMEINCONSISTENCY stands for parts after the one that failed, 0 for those before it.
                if error not in (0, -2):
                    return PartFailed(index, error_for(error, f"part {index} of a multi"))
            elif operation == CREATE:
                self.string()
            elif operation == SET_DATA:
                self.stat()
            elif operation not in (CHECK, DELETE):
                raise MalformedResponse(f"operation {operation} in the response to a multi")
            index += 1
