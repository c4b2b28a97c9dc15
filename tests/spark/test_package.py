"""The archive for executors."""

import os
import subprocess
import sys
import tarfile
from importlib.metadata import distribution

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install millstream[pipelines])")

from millstream.spark import package
from millstream.spark.errors import PipelineError
from millstream.spark.package import _files, _with_dependencies, settings_for_archive, write_package


def test_everything_that_a_task_imports_is_in_it():
    found = _with_dependencies(["millstream[pipelines]"])
    assert {"millstream", "pyspark", "py4j", "pyarrow", "numba", "llvmlite", "numpy", "lmdb", "kio"} <= set(
        found
    )
    assert "pytest" not in found
    names = {name for name, _ in _files([found["pyspark"]])}
    assert {"pyspark/worker.py", "millstream/spark/daemon.py", "pyspark_millstream/__init__.py"} <= names
    assert not [name for name in names if name.startswith(("pyspark/jars/", "pyspark/python/", ".."))]


@pytest.mark.parametrize("name", ["packages.tar.gz", "packages.tar"])
def test_the_archive_runs_on_a_bare_python(tmp_path, monkeypatch, name):
    monkeypatch.setattr(package, "_with_dependencies", lambda names: {"py4j": distribution("py4j")})
    assert write_package(tmp_path / name)[0].startswith("py4j ")
    with tarfile.open(tmp_path / name) as archive:
        archive.extractall(tmp_path / "millstream", filter="data")
    program = "import py4j, millstream; print(py4j.__file__, millstream.__file__)"
    done = subprocess.run(
        ["millstream-python", "-c", program],
        cwd=tmp_path,
        env={"PATH": package.PATH_ON_EXECUTORS, "MILLSTREAM_PYTHON": sys._base_executable},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.count(str(tmp_path / "millstream" / "site")) == 2
    assert not list(tmp_path.glob(".*"))


def test_mistakes(tmp_path):
    with pytest.raises(PipelineError, match=r"is called .tar.gz, .tgz or .tar"):
        write_package(tmp_path / "packages.zip")
    with pytest.raises(PipelineError, match="package no-such-thing is not installed here"):
        write_package(tmp_path / "packages.tar", ["no-such-thing"])
    assert not list(tmp_path.iterdir())


def test_a_session_with_the_archive_names_the_same_program_on_all_machines(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", os.environ["PATH"])
    monkeypatch.setenv("PYSPARK_PYTHON", "mine")
    assert settings_for_archive({"spark.archives": "b.tar.gz#millstream"}) == {}
    monkeypatch.delenv("PYSPARK_PYTHON")
    assert settings_for_archive({"spark.archives": "a.zip#other"}) == {}
    found = settings_for_archive({"spark.archives": "a.zip#other, b.tar.gz#millstream"})
    assert found == {"spark.executorEnv.PATH": package.PATH_ON_EXECUTORS}
    assert os.environ["PYSPARK_PYTHON"] == "millstream-python"
    done = subprocess.run(
        ["millstream-python", "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True
    )
    assert done.stdout.strip() == sys.prefix
