"""The parent of Spark's Python workers: PySpark's own, with what every task needs loaded before it forks.

A worker needs PySpark, Arrow and numba's compiled loops, more than a second if each loads them itself; loaded
here once, they are there in every forked worker. And Spark puts PySpark as a zip file into the path, where
Python keeps nothing compiled: an installed one of the same version is taken instead. Set by
`spark.python.daemon.module` (see `session`).
"""

import contextlib
import gc
import sys
from pathlib import Path

TASK_WORKER = "pyspark.worker"


def prefer_installed_pyspark() -> None:
    """Leave Spark's zip files out of the path, if the same PySpark is installed beside us."""
    zipped = [entry for entry in sys.path if Path(entry).name == "pyspark.zip"]
    others = [entry for entry in sys.path if not _is_of_spark(entry)]
    installed = next((Path(entry, "pyspark") for entry in others if Path(entry, "pyspark").is_dir()), None)
    if not zipped or installed is None or not any(Path(entry, "py4j").is_dir() for entry in others):
        return
    version = (installed / "version.py").read_bytes()
    if all(_version(archive) == version for archive in zipped):
        sys.path[:] = others


def _is_of_spark(entry: str) -> bool:
    name = Path(entry).name
    return name == "pyspark.zip" or (name.startswith("py4j-") and name.endswith("-src.zip"))


def _version(archive: str) -> bytes | None:
    from zipfile import BadZipFile, ZipFile

    try:
        with ZipFile(archive) as opened:
            return opened.read("pyspark/version.py")
    except (OSError, BadZipFile, KeyError):
        return None


def preload() -> None:
    """Load and touch what tasks need. A failure is not one here: the worker that needs it will say what is
    wrong."""
    try:
        import pyspark.worker  # noqa: F401

        from millstream.spark.precompile import is_compiling

        if is_compiling():
            return  # each worker loads them when it needs them: not every one does at once
        from millstream.wire.arrow import encode_loops, warm_up  # noqa: F401 - the encoder's loops load on import

        warm_up()
    except Exception as error:
        print(f"millstream: the decoder was not loaded ahead: {error}", file=sys.stderr)


def keep_freed_memory() -> None:
    """Let the allocator keep the buffers of a task for the next one.

    Fetched and decoded records are some megabytes at a time. By default such blocks go back to the kernel as
    soon as they are free, and every page of the next one has to be given out and cleared again: a third of
    the time of a simple task.
    """
    import ctypes

    mmap_threshold, trim_threshold = -3, -1  # as glibc's malloc.h numbers them
    with contextlib.suppress(AttributeError, OSError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_threshold, 32 << 20)
        libc.mallopt(trim_threshold, 64 << 20)


if __name__ == "__main__":
    prefer_installed_pyspark()
    from pyspark.daemon import manager

    if sys.argv[1:2] == [TASK_WORKER]:
        preload()
        keep_freed_memory()
        gc.collect()
        gc.freeze()  # a worker collects garbage after every task: without looking at all that was loaded here
    manager()
