"""Where pipelines keep their progress: a folder of this machine, or a URI of a file system that Spark knows.

With a URI (`hdfs://`, `s3a://`, `abfss://`, `gs://`) Spark writes the checkpoints there. What has to be a
folder of this machine stays on it, under the default folder: Spark's log, the locks against a second process,
the stores of Streams applications.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from millstream.spark.errors import PipelineError
from millstream.spark.start_cache import key_of

_URI = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):/")
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
# What to add for the schemes that people use; PySpark brings HDFS only.
_PACKAGES = {
    "s3a": "spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION",
    "gs": "spark.jars.packages=com.google.cloud.bigdataoss:gcs-connector:VERSION",
    "abfs": "spark.jars.packages=org.apache.hadoop:hadoop-azure:VERSION",
    "abfss": "spark.jars.packages=org.apache.hadoop:hadoop-azure:VERSION",
}


@dataclass(frozen=True)
class CheckpointRoot:
    """`location` is what Spark is told, `local` a folder of this machine; the same, unless it is a URI."""

    location: str
    local: Path
    remote: bool = False

    def of(self, pipeline: str) -> str:
        """The folder of one pipeline, for Spark."""
        if self.remote:
            return f"{self.location.rstrip('/')}/{pipeline}"
        return str((self.local / pipeline).absolute())


def checkpoint_root(given: str, default: str) -> CheckpointRoot:
    found = _URI.match(given)
    if found is None:
        return CheckpointRoot(given or default, Path(given or default))
    parts = urlsplit(given)
    if found.group(1).lower() != "file":
        # A folder of its own for each URI, so that a lock belongs to that URI.
        return CheckpointRoot(given, Path(default, f"of-{key_of(given)}"), remote=True)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise PipelineError(f"--checkpoint {given}: a file URI has no host: file:///path/to/folder")
    path = unquote(parts.path)
    return CheckpointRoot(path, Path(path))


def use_remote(session: Any, root: CheckpointRoot) -> None:
    """Make sure, before anything starts, that this Spark can use the file system of a URI; and let Spark
    choose how it writes there: our own choice is for folders."""
    if not root.remote:
        return
    scheme = root.location.partition(":")[0]
    try:
        jvm, context = session._jvm, session.sparkContext
        path = jvm.org.apache.hadoop.fs.Path(root.location)
        path.getFileSystem(context._jsc.hadoopConfiguration()).exists(path)
    except Exception as error:
        cause = _cause(error)
        if "No FileSystem for scheme" in cause or "ClassNotFoundException" in cause:
            package = _PACKAGES.get(scheme)
            how = f"add one with --conf {package}" if package else "add its jars with --conf spark.jars"
            raise PipelineError(
                f"--checkpoint {root.location}: this Spark has no file system for {scheme}://; {how}, or use "
                "a folder"
            ) from None
        raise PipelineError(f"--checkpoint {root.location} cannot be used: {cause}") from None
    if session.conf.isModifiable(_MANAGER):
        session.conf.unset(_MANAGER)


def _cause(error: Exception) -> str:
    """What Java says, in one line."""
    java = getattr(error, "java_exception", None)
    text = str(java.toString()) if java is not None else str(error)
    return next(iter(text.splitlines()), "")[:300]
