"""What a killed server of a ZooKeeper ensemble may leave: changes of a new leader in its log or its snapshot,
and the epoch of the leader before as its own. Such a server refuses to start, for ever ("The current epoch,
4, is older than the last zxid").

A server that joins a leader writes first the changes that it lacks, then the leader's epoch. A leader makes
changes only once a majority has joined it with all that came before. So a server that has one of them, and
therefore all before it, may say that it follows that leader: where somebody has more, it loses the election.
It had accepted the epoch before it wrote anything; an epoch that it had not is left alone.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

FOLDER = "version-2"
ACCEPTED, CURRENT = "acceptedEpoch", "currentEpoch"
_FILE_HEADER = struct.Struct(">4siq")  # "ZKLG", version, database
_ENTRY = struct.Struct(">qi")  # checksum, size
_CHANGE = struct.Struct(">qiq")  # session, number in it, zxid
_END_OF_ENTRY = b"B"
_END_OF_SNAPSHOT = b"\0\0\0\1/"
_EPOCH_SHIFT = 32  # a zxid is the leader's epoch and a counter


def catch_up(properties: Mapping[str, str]) -> tuple[int, int] | None:
    """Before a start: the server's own epoch becomes that of its last change. Returns both if they
    differed."""
    folder = Path(properties["dataDir"], FOLDER)
    logs = Path(properties.get("dataLogDir", properties["dataDir"]), FOLDER)
    try:
        accepted, current = (int((folder / name).read_text()) for name in (ACCEPTED, CURRENT))
    except (OSError, ValueError):
        return None  # alone, or its first start; ZooKeeper itself says what else is wrong
    last = max([*_snapshots(folder), *_zxids(logs)], default=0) >> _EPOCH_SHIFT
    if not current < last <= accepted:
        return None
    new = folder / f"{CURRENT}.new"
    with new.open("w") as file:
        file.write(str(last))
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / CURRENT)
    return current, last


def _snapshots(folder: Path) -> Iterator[int]:
    """What those contain that were written to their end, as ZooKeeper tells."""
    for path in folder.glob("snapshot.*"):
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - len(_END_OF_SNAPSHOT)))
            if file.read() == _END_OF_SNAPSHOT:
                yield _zxid_of_name(path)


def _zxids(folder: Path) -> Iterator[int]:
    """Of the changes in the newest log that has any."""
    for path in sorted(folder.glob("log.*"), key=_zxid_of_name, reverse=True):
        with path.open("rb") as file:
            file.seek(_FILE_HEADER.size)
            found = False
            while len(head := file.read(_ENTRY.size)) == _ENTRY.size:
                size = _ENTRY.unpack(head)[1]
                entry = file.read(size + 1) if size >= _CHANGE.size else b""
                if len(entry) <= size or not entry.endswith(_END_OF_ENTRY):
                    break  # the file is allocated ahead, and its last entry may be torn
                found = True
                yield _CHANGE.unpack_from(entry)[2]
        if found:
            return


def _zxid_of_name(path: Path) -> int:
    """The first of a log, the last of a snapshot, in hexadecimal digits."""
    try:
        return int(path.suffix[1:], 16)
    except ValueError:
        return -1
