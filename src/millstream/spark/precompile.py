"""Compiled loops, made ready while Spark's JVM starts: `python -m millstream.spark.precompile`.

numba keeps what it has compiled on disk. On a machine that has never run a task, the loops that decode and
encode records take seven seconds of processor time, on the way of the first record. So whoever starts Spark
on this machine starts this beside it, if the loops have changed since it was last done; the parent of Spark's
Python workers (`daemon`) waits for it.
"""

import contextlib
import fcntl
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from millstream.spark.start_cache import cache_folder, key_of, stamp_of

# In the order in which a pipeline needs them.
LOOPS = (
    "millstream.wire.arrow.varint_loops",
    "millstream.wire.arrow.decode_loops",
    "millstream.wire.arrow.encode_loops",
)
LATER = ("millstream.spark.columns.avro.loop", "millstream.streams.columns.loops")
_LOCK = "compile.lock"


def start_compiling() -> None:
    """In a process of its own, which outlives this one if it has to. Nothing, if it has been done."""
    stamp = _stamp()
    if stamp is None or stamp.exists():
        return
    with contextlib.suppress(OSError):
        null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
        command = [sys.executable, "-m", "millstream.spark.precompile"]
        os.posix_spawn(sys.executable, command, os.environ, file_actions=null)


def wait_for_compiler() -> None:
    """Until nobody compiles LOOPS any more."""
    with _locked(fcntl.LOCK_SH):
        pass


def compile_loops(own_process: bool = False) -> None:
    stamp = _stamp()
    with _locked(fcntl.LOCK_EX):
        if stamp is None or stamp.exists():
            return
        for name in LOOPS:
            importlib.import_module(name)
    if own_process:
        os.nice(19)  # what is compiled from here on must not keep the first record waiting
    for name in LATER:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for old in stamp.parent.glob("compiled-*"):
        old.unlink(missing_ok=True)
    stamp.touch()


def _stamp() -> Path | None:
    """A file that says: these loops, with this numba, in this Python."""
    from importlib.metadata import PackageNotFoundError, version

    folder = cache_folder()
    if folder is None:
        return None
    try:
        package = Path(__file__).resolve().parents[1]
        sources = [package.parent.joinpath(*name.split(".")).with_suffix(".py") for name in (*LOOPS, *LATER)]
        key = key_of(version("numba"), sys.version, sys.prefix, [stamp_of(source) for source in sources])
    except (OSError, PackageNotFoundError):
        return None
    return folder / f"compiled-{key}"


@contextlib.contextmanager
def _locked(how: int) -> Iterator[None]:
    folder = cache_folder()
    if folder is None:
        yield
        return
    with open(folder / _LOCK, "a") as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, how)
        yield


if __name__ == "__main__":
    compile_loops(own_process=True)
