"""The compiled loops: running counts, windows of records, keys of windows.

Everything that they read was made here or by Arrow, so it is sound: nothing is checked again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millstream.wire.arrow.copying import copy_bytes
from millstream.wire.arrow.varint_loops import compiled, nb

_LONGS: Any = nb.types.Array(nb.int64, 1, "C")
_READ_LONGS: Any = nb.types.Array(nb.int64, 1, "C", readonly=True)
_INTS: Any = nb.types.Array(nb.int32, 1, "C")
_READ_INTS: Any = nb.types.Array(nb.int32, 1, "C", readonly=True)
_BYTES: Any = nb.types.Array(nb.uint8, 1, "C", readonly=True)
_ROOM: Any = nb.types.Array(nb.uint8, 1, "C")
_THREE: Any = nb.types.UniTuple(nb.int64, 3)


@compiled(nb.void(_READ_INTS, _READ_LONGS, _LONGS, _LONGS, _LONGS, _LONGS))
def count_up(codes: Any, stamps: Any, counts: Any, newest: Any, updates: Any, update_stamps: Any) -> None:
    """Adds one to the count of each record's key (by its code), and keeps what every record made of it: the
    count and the newest time."""
    for row in range(codes.shape[0]):
        code = codes[row]
        counts[code] += 1
        if stamps[row] > newest[code]:
            newest[code] = stamps[row]
        updates[row] = counts[code]
        update_stamps[row] = newest[code]


@compiled(_THREE(_READ_LONGS, nb.int64, nb.int64, nb.int64, nb.int64, _LONGS, _LONGS))
def windows_of(stamps: Any, seen: Any, size: Any, advance: Any, grace: Any, rows: Any, starts: Any) -> Any:
    """The windows that each record falls into, those already closed left out. Gives how many there are, the
    newest time, and how many were left out. There is room for all."""
    found = dropped = np.int64(0)
    for row in range(stamps.shape[0]):
        stamp = stamps[row]
        if stamp > seen:
            seen = stamp
        start = max(np.int64(0), stamp - size + advance) // advance * advance
        while start <= stamp:
            if start + size <= seen - grace:
                dropped += 1
            else:
                rows[found] = row
                starts[found] = start
                found += 1
            start += advance
    return found, seen, dropped


@compiled(nb.void(_READ_LONGS, _READ_LONGS, _READ_INTS, _BYTES, nb.int64, _INTS, _ROOM))
def put_windows(rows: Any, starts: Any, ends: Any, keys: Any, zeros: Any, out_ends: Any, out: Any) -> None:
    """The key of each row, its window's start in eight bytes, and so many zeros."""
    at = np.int64(0)
    for index in range(rows.shape[0]):
        first = np.int64(ends[rows[index]])
        size = np.int64(ends[rows[index] + 1]) - first
        copy_bytes(out, at, keys, first, size)
        at += size
        start = starts[index]
        for shift in range(56, -8, -8):
            out[at] = np.uint8((start >> shift) & 255)
            at += 1
        for _ in range(zeros):
            out[at] = np.uint8(0)
            at += 1
        out_ends[index + 1] = at
