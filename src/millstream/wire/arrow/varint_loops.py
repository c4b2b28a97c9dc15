"""Varints in compiled loops: the same numbers, and the same refusals, as `wire.varint`
(tests/wire/test_varint.py).

Compiled code that reads past an array crashes the process, so a reader takes the end of what it may touch. A
number that is refused has the end -1: there are no exceptions here. What these are worth is measured by
benchmarks/pipeline_read.py and benchmarks/pipeline_write.py.
"""

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numba
import numpy as np

nb: Any = numba  # its annotations come and go with its versions

LOCK_VARIABLE = "MILLSTREAM_COMPILE_LOCK"
"""Names a file that is locked while another process compiles these loops: what it keeps is waited for."""


def compiled(*signature: Any, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Numba compiles once and keeps the result on disk beside the module (or in the user's cache folder).

    Small functions have `forceinline`: LLVM puts them into their callers. With `inline="always"` numba does,
    and types them again at each place, which took four of ten seconds of a first start's compiling. They have
    no signature, and nothing is kept of them: who is loaded from the disk brings them along.

    What was kept is removed if it cannot be loaded, as after a loss of power. Where nothing can be kept,
    every process compiles for itself.
    """
    options |= {"nogil": True, "boundscheck": False}
    _wait_for_compiler()

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        if signature:
            for _ in range(2):
                try:
                    return cast(Callable[..., Any], nb.njit(*signature, cache=True, **options)(function))
                except (
                    Exception
                ):  # damaged pickles raise anything; what is wrong with the function comes again
                    if not _remove_kept(function):
                        break
        return cast(Callable[..., Any], nb.njit(*signature, **options)(function))

    return make


def _wait_for_compiler() -> None:
    lock = os.environ.get(LOCK_VARIABLE)
    if lock:
        with suppress(OSError), open(lock) as file:
            fcntl.flock(file, fcntl.LOCK_SH)


def _remove_kept(function: Callable[..., Any]) -> bool:
    """What numba has kept of a function. False if it could not be removed."""
    try:
        folder = Path(nb.njit(cache=True)(function).stats.cache_path)
        for path in folder.glob(f"{Path(function.__code__.co_filename).stem}.{function.__qualname__}-*"):
            path.unlink()
    except (RuntimeError, OSError):
        return False
    return True


@compiled(forceinline=True)
def read_varint(data: Any, at: Any, end: Any) -> Any:
    """The zigzag number of up to 32 bits at `at`, and the position after it; -1 if there is none."""
    if at >= end:
        return np.int64(0), np.int64(-1)
    byte = np.int64(data[at])
    at += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), at
    raw = byte & 127
    shift = np.int64(7)
    while True:
        if at >= end or shift > 28:
            return np.int64(0), np.int64(-1)
        byte = np.int64(data[at])
        at += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    if raw > 0xFFFFFFFF:
        return np.int64(0), np.int64(-1)
    return (raw >> 1) ^ -(raw & 1), at


@compiled(forceinline=True)
def read_varlong(data: Any, at: Any, end: Any) -> Any:
    """The same for 64 bits."""
    raw = np.uint64(0)
    shift = np.uint64(0)
    while True:
        if at >= end or shift > 63:
            return np.int64(0), np.int64(-1)
        byte = np.uint64(data[at])
        at += 1
        if shift == 63 and (byte & np.uint64(127)) > np.uint64(1):
            return np.int64(0), np.int64(-1)
        raw |= (byte & np.uint64(127)) << shift
        if byte < np.uint64(128):
            break
        shift += np.uint64(7)
    return np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1)), at


@compiled(forceinline=True)
def put_varint(out: Any, at: Any, number: Any) -> Any:
    """A number as a zigzag varint, up to ten bytes; gives where it ends."""
    left = np.uint64((number << 1) ^ (number >> 63))
    while left >= np.uint64(128):
        out[at] = np.uint8((left & np.uint64(127)) | np.uint64(128))
        left >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(left)
    return at + 1


@compiled(forceinline=True)
def varint_size(number: Any) -> Any:
    """How many bytes `put_varint` writes."""
    left = np.uint64((number << 1) ^ (number >> 63))
    size = np.int64(1)
    while left >= np.uint64(128):
        left >>= np.uint64(7)
        size += 1
    return size
