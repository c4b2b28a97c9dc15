"""Compiled loops, made ready while Spark's JVM starts: `python -m millstream.spark.precompile`.

numba keeps what it has compiled on disk. On a machine that has never run a task, the loops that decode and
encode records take seconds of processor time, on the way of the first record. So whoever starts Spark on this
machine starts this beside it, if the loops have changed since it was last done. A process that imports LOOPS
meanwhile waits for them (`wire.arrow.varint_loops`); one that can do without does not import them while
`is_compiling`: tasks of Streams go record by record. The JVM goes first: there would be no records without
it.
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
_NICE, _NICE_LATER = 10, 19
LATER = ("millstream.streams.columns.loops", "millstream.spark.columns.avro.loop")
LOCK_VARIABLE = "MILLSTREAM_COMPILE_LOCK"  # as in wire.arrow.varint_loops, which is not to be imported here
_LOCK, _WHOLE_LOCK = "compile.lock", "compile-all.lock"


def start_compiling() -> None:
    """In a process of its own, which outlives this one if it has to. Nothing, if it has been done."""
    stamp = _stamp()
    if stamp is None or stamp.exists():
        return
    with contextlib.suppress(OSError):
        null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
        command = [sys.executable, "-m", "millstream.spark.precompile"]
        os.posix_spawn(sys.executable, command, os.environ, file_actions=null)
    os.environ[LOCK_VARIABLE] = str(stamp.parent / _LOCK)  # for all children of this process


def is_compiling(*, later: bool = False) -> bool:
    """Whether a process of this machine compiles LOOPS now, or LATER. One that was killed does not."""
    try:
        with _locked(_WHOLE_LOCK if later else _LOCK, fcntl.LOCK_SH | fcntl.LOCK_NB):
            return False
    except BlockingIOError:
        return True


def compile_loops(own_process: bool = False) -> None:
    os.environ.pop(LOCK_VARIABLE, None)  # it would wait for itself
    stamp = _stamp()
    with _locked(_WHOLE_LOCK, fcntl.LOCK_EX):
        with _locked(_LOCK, fcntl.LOCK_EX):
            if stamp is None or stamp.exists():
                return
            for name in LOOPS:
                importlib.import_module(name)
        if own_process:
            os.nice(_NICE_LATER - _NICE)
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
def _locked(name: str, how: int) -> Iterator[None]:
    """BlockingIOError if it must not wait and would have to."""
    folder = cache_folder()
    if folder is None:
        yield
        return
    with open(folder / name, "a") as file:
        try:
            fcntl.flock(file, how)
        except BlockingIOError:
            raise
        except OSError:
            pass  # a file system without locks
        yield


if __name__ == "__main__":
    os.nice(_NICE)
    compile_loops(own_process=True)
