"""Spark's classes, made ready once: an archive for Java's class data sharing.

Half of the time that Spark needs to start, Java spends on reading and checking some twelve thousand classes
from jar files. A JVM that is told to (`-XX:ArchiveClassesAtExit`) writes the classes that it has loaded into
an archive when it ends, and later ones map that into memory. So the first JVM on a machine makes the archive,
a few seconds after its Python process has gone, and all others use it. An archive belongs to one Java, one
set of jars and one class path; Java ignores one that does not fit.

Java writes the head of the file last. One that begins with the right number is complete, and is put in its
place by the next start.
"""

import contextlib
import os
import shutil
import struct
import time
from collections.abc import Mapping
from pathlib import Path

from millstream.spark.start_cache import cache_folder, key_of, stamp_of

_MAGIC = struct.pack("=I", 0xF00BABA8)  # of archives that were made at exit
_LONG = 300.0  # seconds without a further byte: that JVM was killed
_KEEP = 2  # of 150 MB each
# Java names every class that it cannot archive, and says so when it finds an archive that does not fit.
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def archive_options(spark_home: Path, settings: Mapping[str, str]) -> str:
    """Options for Spark's JVM: to use the archive, or to make it. Nothing where there cannot be one."""
    folder = cache_folder()
    if folder is None or _own_class_path(spark_home, settings):
        return ""
    java = _java()
    if java is None:
        return ""
    try:
        key = key_of(stamp_of(java), stamp_of(spark_home / "jars"))
        archive = folder / f"spark-{key}.jsa"
        _adopt(archive)
        if archive.exists():
            os.utime(archive)
            return f"-XX:SharedArchiveFile={archive} {_QUIET}"
        _make_room(folder)
    except OSError:
        return ""
    if " " in str(folder):
        return ""  # Spark cuts its options at spaces
    return f"-XX:ArchiveClassesAtExit={archive}.{os.getpid()} {_QUIET}"


def _own_class_path(spark_home: Path, settings: Mapping[str, str]) -> bool:
    """Java archives no classes if there are folders with files in the class path."""
    folder = Path(os.environ.get("SPARK_CONF_DIR") or spark_home / "conf")
    return folder.is_dir() or any(
        name in settings for name in ("spark.driver.extraClassPath", "spark.driver.defaultJavaOptions")
    )


def _java() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    found = Path(home, "bin", "java") if home else Path(shutil.which("java") or "")
    return found.resolve() if found.is_file() else None


def _adopt(archive: Path) -> None:
    """Put what an earlier JVM has left into its place, if it is complete; remove it if nobody writes it any
    more."""
    for made in archive.parent.glob(f"{archive.name}.*"):
        with contextlib.suppress(OSError):
            with made.open("rb") as file:
                complete = file.read(len(_MAGIC)) == _MAGIC
            if complete:
                made.replace(archive)
            elif time.time() - made.stat().st_mtime > _LONG:
                made.unlink()


def _make_room(folder: Path) -> None:
    """Archives of a Java or a Spark that is not used any more."""
    found = sorted(folder.glob("spark-*.jsa"), key=lambda path: path.stat().st_mtime)
    for old in found[: max(0, len(found) - _KEEP + 1)]:
        old.unlink(missing_ok=True)
