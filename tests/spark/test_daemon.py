"""The parent of Spark's Python processes: what it loads ahead, and from where."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install millstream[pipelines])")

from millstream.spark import daemon


def _archive(folder: Path, version: str) -> str:
    path = folder / "pyspark.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pyspark/version.py", version)
    return str(path)


def _installed(folder: Path, version: str) -> str:
    for name in ("pyspark", "py4j"):
        (folder / "site" / name).mkdir(parents=True)
    (folder / "site" / "pyspark" / "version.py").write_text(version)
    return str(folder / "site")


@pytest.mark.parametrize("zipped, kept", [("4.3.0", False), ("4.4.0", True)])
def test_spark_s_zip_is_left_out_if_the_same_version_is_installed(tmp_path, monkeypatch, zipped, kept):
    archive, site = _archive(tmp_path, zipped), _installed(tmp_path, "4.3.0")
    other = str(tmp_path / "py4j-0.10-src.zip")
    monkeypatch.setattr(sys, "path", [archive, other, "/elsewhere", site])
    daemon.prefer_installed_pyspark()
    assert sys.path == ([archive, other, "/elsewhere", site] if kept else ["/elsewhere", site])


def test_a_zip_alone_is_kept(tmp_path, monkeypatch):
    archive = _archive(tmp_path, "4.3.0")
    monkeypatch.setattr(sys, "path", [archive, "/elsewhere"])
    daemon.prefer_installed_pyspark()
    assert sys.path == [archive, "/elsewhere"]


def test_what_is_loaded_ahead_can_be_loaded():
    """In a process of its own, without threads of Python's: it is going to be forked."""
    program = (
        "import sys, threading; from millstream.spark import daemon; daemon.preload()\n"
        "print(threading.active_count(), 'pyspark.worker' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.stdout.strip(), done.stderr) == ("1 True", "")
