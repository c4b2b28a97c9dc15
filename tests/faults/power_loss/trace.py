"""The trace of a run: what was done to the disk, and what clients were told, in one order.

An entry is a JSON object and some bytes. `do` says what it is:

    create name file        a new file; `file` is its inode, which may be used again after the file is gone
    mkdir name              a new folder
    write file at + bytes   truncate file size
    rename name to          unlink name
    sync id file|folder     a sync begins; synced id: it has ended
    ack what ...            a client was told that something happened; from then on it is promised
"""

from __future__ import annotations

import json
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_SIZES = struct.Struct(">II")


class Entry(NamedTuple):
    what: dict[str, Any]
    data: bytes


def read(path: Path) -> list[Entry]:
    return list(_entries(path.read_bytes()))


def _entries(raw: bytes) -> Iterator[Entry]:
    at = 0
    while at < len(raw):
        header, data = _SIZES.unpack_from(raw, at)
        begin = at + _SIZES.size
        at = begin + header + data
        yield Entry(json.loads(raw[begin : begin + header]), raw[begin + header : at])


class Promises:
    """Writes down what clients were told, from any thread."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._lock = threading.Lock()
        self.count = 0

    def acknowledged(self, what: str, **fields: Any) -> None:
        header = json.dumps({"do": "ack", "what": what, **fields}).encode()
        with self._lock:
            os.write(self._fd, _SIZES.pack(len(header), 0) + header)
            self.count += 1

    def close(self) -> None:
        os.close(self._fd)
