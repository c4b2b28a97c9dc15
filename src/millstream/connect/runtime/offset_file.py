"""A standalone worker's offsets: a file of JSON lines, each the key and value that the topic would have.

Later lines count. All tasks append to it, with a lock; a file that has grown far beyond what counts is
written anew. Kafka's own file is a Java object and cannot be read: that is said, and nothing is overwritten.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path

from millstream.connect.errors import ConnectError
from millstream.connect.runtime.offset_records import OffsetState

_JAVA = b"\xac\xed"
_MAX_LINES = 10_000


def read_file(path: Path) -> OffsetState:
    state = OffsetState()
    for key, value in _lines(path).items():
        state.put(key.encode(), value.encode())
    return state


def _lines(path: Path) -> dict[str, str]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    if data.startswith(_JAVA):
        raise ConnectError(
            f"{path} was written by Kafka's standalone worker, in a form that only Java reads: name another "
            "offset.storage.file.filename, or move the connectors in distributed mode, whose topics both read"
        )
    found: dict[str, str] = {}
    for line in data.splitlines():
        try:
            key, value = json.loads(line)
        except ValueError:
            continue  # torn by a crash; what it said was not acknowledged
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return found


def append(path: Path, offsets: Mapping[bytes, bytes | None]) -> None:
    lines = [
        json.dumps([key.decode(), None if value is None else value.decode()])
        for key, value in offsets.items()
    ]
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(("".join(f"{line}\n" for line in lines)).encode())
        file.flush()
        os.fsync(file.fileno())
        if file.tell() > 1 << 20:
            _compact(path)


def _compact(path: Path) -> None:
    held = _lines(path)
    if len(held) * 2 > _MAX_LINES:
        return
    new = path.with_name(f"{path.name}.{os.getpid()}")
    with open(new, "wb") as file:
        file.write("".join(json.dumps([key, value]) + "\n" for key, value in held.items()).encode())
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
