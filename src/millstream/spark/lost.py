"""Whether a session's Spark is still there, and a new beginning where it is not.

PySpark keeps one JVM for a process and never looks whether it lives: a call fails with an error of its
network, `getOrCreate` returns the dead session, and whoever only waits waits for ever. `why_lost` says what
has become of a session; `forget_lost` makes PySpark forget a JVM that is gone, so that the next session
starts one.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

STOPPED = "its Spark session was stopped"
_EXIT_SECONDS = 5.0
"""From the end of a JVM's connections to the end of its process."""

_forgotten: weakref.WeakKeyDictionary[SparkContext, str] = weakref.WeakKeyDictionary()


def why_lost(session: SparkSession) -> str | None:
    """Why nothing can run in this session any more; None if it can."""
    from py4j.protocol import Py4JError

    context = session.sparkContext
    if context in _forgotten:
        return _forgotten[context]
    java: Any = context._jsc
    if java is None:
        return STOPPED
    jvm = jvm_of(context)
    if jvm is not None and jvm.poll() is not None:
        return _ended(jvm)
    try:
        return "its SparkContext was stopped" if java.sc().isStopped() else None
    except (Py4JError, ConnectionError) as error:
        if jvm is None:  # somebody else's, as under spark-submit
            return f"Spark's JVM cannot be reached any more ({error})"
        with contextlib.suppress(subprocess.TimeoutExpired):
            jvm.wait(_EXIT_SECONDS)
            return _ended(jvm)
    return None  # it is there, and did not answer this time


def jvm_of(context: SparkContext) -> subprocess.Popen[bytes] | None:
    """The process, if PySpark has started it."""
    return getattr(context._gateway, "proc", None)


def forget_lost(session: SparkSession) -> None:
    """Of a session that is lost: what PySpark keeps of it for this process. The session stays lost."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context, reason = session.sparkContext, why_lost(session)
    if reason is None or context in _forgotten:
        return
    _forgotten[context] = reason
    jvm = jvm_of(context)
    if jvm is not None and jvm.poll() is None:
        session.stop()  # the JVM is there, and has stopped the context by itself
        return
    gateway: Any = SparkContext._gateway
    context._jsc = None
    server: Any = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.shutdown()
        context._accumulatorServer = None  # type: ignore[assignment]
    with SparkContext._lock:
        if SparkContext._active_spark_context is context:
            SparkContext._active_spark_context = None
            SparkContext._gateway = SparkContext._jvm = None
            SparkSession._instantiatedSession = SparkSession._activeSession = None
    with contextlib.suppress(Exception):  # whatever is left of its sockets
        gateway.close()
        gateway.shutdown_callback_server()


def _ended(jvm: subprocess.Popen[bytes]) -> str:
    code = jvm.returncode
    if code >= 0:
        return f"Spark's JVM has ended (exit code {code})"
    with contextlib.suppress(ValueError):
        return f"Spark's JVM was killed ({signal.Signals(-code).name})"
    return f"Spark's JVM was killed (signal {-code})"
