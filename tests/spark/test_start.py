"""What makes Spark start faster the second time: an archive of classes, a Python without zip files, compiled
loops."""

import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install millstream[pipelines])")

from millstream.spark import class_archive, precompile, worker_python
from millstream.spark.class_archive import archive_options
from millstream.spark.start_cache import cache_folder
from millstream.streams.runtime import plain_records

COMPLETE = class_archive._MAGIC + b"rest"


@pytest.fixture
def caches(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.setenv(precompile.LOCK_VARIABLE, "")  # as it was, after the test
    return tmp_path / "cache" / "millstream"


@pytest.fixture
def spark_home(tmp_path, monkeypatch):
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    return tmp_path / "spark"


def archive_named(options: str) -> Path:
    return Path(options.split()[0].partition("=")[2])


def test_the_first_jvm_makes_the_archive_and_the_next_uses_it(caches, spark_home):
    making = archive_options(spark_home, {})
    assert making.startswith("-XX:ArchiveClassesAtExit=")
    made = archive_named(making)
    assert made.parent == caches
    made.write_bytes(COMPLETE)
    using = archive_options(spark_home, {})
    assert using.startswith("-XX:SharedArchiveFile=")
    assert archive_named(using) == made.with_suffix("")
    assert not made.exists()


def test_an_archive_that_is_not_complete_is_not_used(caches, spark_home):
    made = archive_named(archive_options(spark_home, {}))
    made.write_bytes(b"\0" * 4096)  # Java writes the head last
    assert archive_options(spark_home, {}).startswith("-XX:ArchiveClassesAtExit=")
    assert made.exists()  # it may still be written
    long_ago = time.time() - 10 * class_archive._LONG
    os.utime(made, (long_ago, long_ago))
    archive_options(spark_home, {})
    assert not made.exists()


def test_an_archive_belongs_to_one_java_and_one_set_of_jars(caches, spark_home, tmp_path):
    archive_named(archive_options(spark_home, {})).write_bytes(COMPLETE)
    assert archive_options(spark_home, {}).startswith("-XX:SharedArchiveFile=")
    (tmp_path / "java" / "bin" / "java").write_text("another one")
    assert archive_options(spark_home, {}).startswith("-XX:ArchiveClassesAtExit=")


def test_archives_that_nobody_uses_are_removed(caches, spark_home):
    caches.mkdir(parents=True)
    for number in range(4):
        old = caches / f"spark-{number}.jsa"
        old.write_bytes(COMPLETE)
        os.utime(old, (number, number))
    archive_options(spark_home, {})
    assert [path.name for path in caches.glob("*.jsa")] == ["spark-3.jsa"]


def test_no_archive_where_java_would_not_make_one(caches, spark_home, monkeypatch):
    assert archive_options(spark_home, {"spark.driver.extraClassPath": "/lib"}) == ""
    (spark_home / "conf").mkdir()
    assert archive_options(spark_home, {}) == ""
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert cache_folder() is None


def test_workers_take_the_installed_pyspark(caches):
    import pyspark

    home = Path(pyspark.__file__).parent
    program = worker_python.worker_python(home)
    assert Path(program).parent == caches
    path = f"{home}/python/lib/pyspark.zip:/else where:{home}/python/lib/py4j-0.10.9.9-src.zip"
    done = subprocess.run(
        [program, "-c", "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:])", "a b", "*"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "/else where ['a b', '*']\n"
    # Another Spark than the package's.
    assert worker_python.worker_python(home / "elsewhere") == sys.executable


def test_loops_are_compiled_once(caches, monkeypatch):
    monkeypatch.setattr(precompile, "LATER", ())
    started = []
    monkeypatch.setattr(precompile.os, "posix_spawn", lambda *command, **_: started.append(command))
    precompile.start_compiling()
    assert len(started) == 1
    precompile.compile_loops()
    precompile.start_compiling()
    assert len(started) == 1
    assert not precompile.is_compiling()


def test_another_numba_compiles_again(caches, monkeypatch):
    monkeypatch.setattr(precompile, "LATER", ())
    precompile.compile_loops()
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.0")
    assert not precompile._stamp().exists()


def test_who_can_do_without_does_not_wait_for_the_compiler(caches, monkeypatch):
    from millstream.streams import columns

    monkeypatch.delitem(sys.modules, columns._LOOPS, raising=False)
    assert columns.can_load()
    seen = []
    monkeypatch.setattr(precompile, "LOOPS", ())
    monkeypatch.setattr(precompile, "LATER", (columns._LOOPS,))
    monkeypatch.setattr(precompile.importlib, "import_module", lambda _: seen.append(columns.can_load()))
    precompile.compile_loops()
    assert seen == [False]
    assert columns.can_load()
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")  # nobody compiles ahead there
    assert columns.can_load()


def test_who_needs_the_loops_waits_for_them(caches, monkeypatch):
    """Also in a process that Spark starts, which only has the environment."""
    from millstream.wire.arrow import varint_loops

    assert precompile.LOCK_VARIABLE == varint_loops.LOCK_VARIABLE
    monkeypatch.setattr(precompile.os, "posix_spawn", lambda *command, **_: None)
    precompile.start_compiling()
    lock = os.environ[precompile.LOCK_VARIABLE]
    waited = threading.Event()
    with precompile._locked(precompile._LOCK, fcntl.LOCK_EX):
        assert Path(lock).exists()
        assert precompile.is_compiling()
        assert not plain_records.loops_are_there() or plain_records._LOOPS in sys.modules
        waiting = threading.Thread(
            target=lambda: (varint_loops._wait_for_compiler(), waited.set()), daemon=True
        )
        waiting.start()
        assert not waited.is_set()
    waiting.join(60)
    assert waited.is_set()
    assert not precompile.is_compiling()
