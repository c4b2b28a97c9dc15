"""The Python that Spark starts its helpers with: this one, without Spark's zip files in its path.

Spark starts a Python process for each step of a query (which formats there are, which columns, which tasks,
the writer), each with its own copy of PySpark, `pyspark.zip`, in front of the path. Nothing compiled is kept
for a zip file, so each of them compiles PySpark again: half a second, ten times before the first record. If
PySpark is installed as a package, which is where that zip file lies, the package is the same. Spark asks for
the name of a program, so this is one: a shell script that cleans PYTHONPATH.

Only for Spark on this machine; elsewhere nobody has the script.
"""

import os
import shlex
import sys
import tempfile
from pathlib import Path

from millstream.spark.start_cache import cache_folder, key_of

_SCRIPT = """#!/bin/sh
# Python for the processes of Spark, with the PySpark that is installed beside it.
kept=
IFS=:
for entry in $PYTHONPATH; do
  case $entry in
    */pyspark.zip | */py4j-*-src.zip) ;;
    *) kept=${{kept:+$kept:}}$entry ;;
  esac
done
unset IFS
export PYTHONPATH="$kept"
exec {python} "$@"
"""


def worker_python(spark_home: Path) -> str:
    """The program for PYSPARK_PYTHON."""
    import pyspark

    folder = cache_folder()
    if folder is None or Path(pyspark.__file__).parent.resolve() != spark_home.resolve():
        return sys.executable
    try:
        script = write_script(folder, f"python-{key_of(sys.executable)}")
    except OSError:
        return sys.executable
    # No, if the file system allows no programs.
    return str(script) if os.access(script, os.X_OK) else sys.executable


def write_script(folder: Path, name: str) -> Path:
    text = _SCRIPT.format(python=shlex.quote(sys.executable))
    script = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    if not script.is_file() or script.read_text() != text:
        handle, fresh = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.chmod(fresh, 0o700)
        os.replace(fresh, script)
    return script
