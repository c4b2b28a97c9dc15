"""The parent of Spark's Python workers: PySpark's own, with what every task needs loaded before it forks.

A worker that decodes record batches needs numba's compiled loop, which takes about half a second to load from its cache.
Loaded here once, it is there in every forked worker. Set by `spark.python.daemon.module` (see `session`).
"""

import sys

from pyspark.daemon import manager

TASK_WORKER = "pyspark.worker"


def preload() -> None:
    """Load and touch the decoder. A failure is not one here: the worker that needs it will say what is wrong."""
    try:
        from millstream.wire.arrow import encode_loops, warm_up  # noqa: F401 - the encoder's loops load on import

        warm_up()
    except Exception as error:
        print(f"millstream: the decoder was not loaded ahead: {error}", file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1:2] == [TASK_WORKER]:  # planners, which only make plans, start faster without
        preload()
    manager()
