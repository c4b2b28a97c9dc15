"""What the nodes are called and what is in them.

    /cluster              the cluster's id
    /log/0000000042       one entry of the metadata log, at its position
    /snapshot             the newest snapshot: its version, and the names of its chunks, its children
    /brokers/3            one broker's registration; ephemeral
    /broker-ids           the parent of the sequence from which ids are generated
    /controller           the broker that should lead; ephemeral, and only a hint: the log decides
    /elections            its version counts the times that /controller was created

An entry is a header and the payload, deflated where that helps. The header names the process that wrote it
and the attempt, so that a writer whose connection broke can tell whether what is there is its own.
"""

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from millstream.cluster.store import Entry, StoreError, Version

CLUSTER, LOG, SNAPSHOT, BROKERS = "/cluster", "/log", "/snapshot", "/brokers"
BROKER_IDS, CONTROLLER, ELECTIONS = "/broker-ids", "/controller", "/elections"

FORMAT = 1
DEFLATE_ABOVE = 4096
# ZooKeeper refuses a request of 1 MB (jute.maxbuffer) by closing the connection.
MAX_NODE_BYTES = 900_000

_ENTRY = struct.Struct(">B?16sq")  # format, deflated, writer, attempt


class Content(NamedTuple):
    """What is in a node, and the version of the node."""

    data: bytes
    version: int


def entry_path(version: Version) -> str:
    return f"{LOG}/{version:010d}"


def encode_entry(writer: UUID, attempt: int, payload: bytes) -> bytes:
    deflated, body = _deflate(payload)
    data = _ENTRY.pack(FORMAT, deflated, writer.bytes, attempt) + body
    if len(data) > MAX_NODE_BYTES:
        raise StoreError(f"an entry of {len(data)} bytes is too large for a node of ZooKeeper")
    return data


def decode_entry(version: Version, data: bytes) -> tuple[Entry, int]:
    """The entry, and the attempt that wrote it."""
    try:
        form, deflated, writer, attempt = _ENTRY.unpack_from(data)
        if form != FORMAT:
            raise StoreError(f"{entry_path(version)} has format {form}, this version knows {FORMAT}")
        body = data[_ENTRY.size :]
        payload = zlib.decompress(body) if deflated else body
    except (struct.error, zlib.error) as problem:
        raise StoreError(f"{entry_path(version)} cannot be read: {problem}") from problem
    return Entry(version, str(UUID(bytes=writer)), payload), attempt


class Pointer(NamedTuple):
    """The content of /snapshot. `parts` says into how many nodes each chunk was cut; `first` is the oldest
    entry of the log that may still be there."""

    version: Version = 0
    name: str = ""
    parts: tuple[int, ...] = ()
    first: Version = 1

    def encode(self) -> bytes:
        return json.dumps({"format": FORMAT, **self._asdict()}).encode()

    @property
    def nodes(self) -> Iterator[list[str]]:
        """The nodes of each chunk."""
        for chunk, parts in enumerate(self.parts):
            yield [f"{SNAPSHOT}/{self.name}-{chunk:04d}-{part:02d}" for part in range(parts)]


def decode_pointer(data: bytes) -> Pointer:
    if not data:
        return Pointer()
    try:
        found = json.loads(data)
        if found["format"] != FORMAT:
            raise ValueError(f"format {found['format']}, this version knows {FORMAT}")
        return Pointer(int(found["version"]), found["name"], tuple(found["parts"]), int(found["first"]))
    except (ValueError, KeyError, TypeError) as problem:
        raise StoreError(f"{SNAPSHOT} cannot be read: {problem!r}") from problem


def snapshot_name(version: Version, writer: UUID, attempt: int) -> str:
    """Two processes that write the same snapshot must not write the same nodes."""
    return f"{version}-{writer.hex[:12]}-{attempt}"


def version_of_snapshot(node: str) -> Version:
    """Of which snapshot a child of /snapshot is a part; -1 for a stranger."""
    number = node.split("-", 1)[0]
    return int(number) if number.isdecimal() else -1


def encode_chunk(chunk: bytes) -> list[bytes]:
    deflated, body = _deflate(chunk)
    data = bytes((FORMAT, deflated)) + body
    return [data[start : start + MAX_NODE_BYTES] for start in range(0, len(data), MAX_NODE_BYTES)]


def decode_chunk(parts: Sequence[bytes]) -> bytes:
    data = b"".join(parts)
    try:
        if data[0] != FORMAT:
            raise ValueError(f"format {data[0]}, this version knows {FORMAT}")
        return zlib.decompress(data[2:]) if data[1] else data[2:]
    except (ValueError, IndexError, zlib.error) as problem:
        raise StoreError(f"a chunk of {SNAPSHOT} cannot be read: {problem}") from problem


class FolderIdentity(NamedTuple):
    """Which data folder a broker runs on: by its id, which a copy shares, and by its inode, which only one
    process at a time can hold locked. An inode of '' is unknown."""

    directory_id: str
    inode: str = ""


def encode_member(folder: FolderIdentity, data: bytes) -> bytes:
    head = {"format": FORMAT, "directory": folder.directory_id, "inode": folder.inode}
    return json.dumps(head).encode() + b"\n" + data


def decode_member(node: bytes) -> tuple[FolderIdentity, bytes]:
    """The folder of the process that registered, and what it said of itself."""
    head, _, data = node.partition(b"\n")
    try:
        found = json.loads(head)
        if found["format"] != FORMAT:
            raise ValueError(f"format {found['format']}, this version knows {FORMAT}")
        return FolderIdentity(str(found["directory"]), str(found.get("inode", ""))), data
    except (ValueError, KeyError, TypeError) as problem:
        raise StoreError(f"a registration in {BROKERS} cannot be read: {problem!r}") from problem


def _deflate(data: bytes) -> tuple[bool, bytes]:
    if len(data) > DEFLATE_ABOVE:
        smaller = zlib.compress(data, 1)
        if len(smaller) < len(data):
            return True, smaller
    return False, data
