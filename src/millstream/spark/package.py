"""What executors need, as one archive: `millstream pipeline package`.

Spark unpacks an archive (`spark.archives=millstream.tar.gz#millstream`) in the folder of every executor. This
one has Millstream and all that its extra `pipelines` depends on, as installed here, under `site`, and a
program that starts the machine's Python with them, `bin/millstream-python`. So a machine needs nothing but a
Python of the same version. Spark's jars are left out: an executor has its own.

Spark tells executors by name which Python to start, and uses the same name on the driver. As a path it would
have to be the same on all machines; so it is a bare name, and PATH says where it is on each.
"""

import os
import re
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from gzip import GzipFile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from millstream.spark.errors import PipelineError
from millstream.spark.start_cache import cache_folder, key_of
from millstream.spark.worker_python import write_script

NAME = "millstream"  # the folder on executors: spark.archives=FILE#millstream
PROGRAM = "millstream-python"
PATH_ON_EXECUTORS = f"./{NAME}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OURS = ("millstream", "pyspark_millstream")
_LAUNCHER = """#!/bin/sh
# The Python of this machine with the packages of this archive.
here=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH="$here/site${{PYTHONPATH:+:$PYTHONPATH}}"
exec "${{MILLSTREAM_PYTHON:-{python}}}" "$@"
"""
# Of PySpark only the Python part: the rest is what the executor runs on.
_LEFT_OUT = re.compile(r"^pyspark/(jars|bin|sbin|examples|data|licenses|python)/|(^|/)tests?/")


def write_package(target: Path, extra: Iterable[str] = ()) -> list[str]:
    """Write the archive; returns the packages in it. `extra` are further packages that are installed here."""
    if not target.name.endswith((".tar.gz", ".tgz", ".tar")):
        raise PipelineError(f"{target}: an archive for Spark is called .tar.gz, .tgz or .tar")
    packages = _with_dependencies([f"{NAME}[pipelines]", *extra])
    launcher = _LAUNCHER.format(python=f"python{sys.version_info.major}.{sys.version_info.minor}").encode()
    fresh = target.with_name(f".{target.name}.new")
    try:
        with (
            open(fresh, "wb") as file,
            _compressed(file, target) as stream,
            tarfile.open(fileobj=stream, mode="w|") as tar,
        ):
            about = tarfile.TarInfo(f"bin/{PROGRAM}")
            about.size, about.mode = len(launcher), 0o755
            tar.addfile(about, BytesIO(launcher))
            for name, path in _files(packages.values()):
                tar.add(path, f"site/{name}", recursive=False)
        fresh.replace(target)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise PipelineError(f"{target} cannot be written: {error}") from None
    return [f"{one.metadata['Name']} {one.version}" for one in packages.values()]


def _compressed(file: BinaryIO, target: Path) -> AbstractContextManager[Any]:
    return nullcontext(file) if target.suffix == ".tar" else GzipFile("", "wb", 1, file)


def settings_for_archive(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings, and the environment of this process, for a session whose executors get the archive."""
    archives = settings.get("spark.archives", "").split(",")
    if not any(one.strip().endswith(f"#{NAME}") for one in archives) or "PYSPARK_PYTHON" in os.environ:
        return {}
    folder = cache_folder()
    if folder is None:
        raise PipelineError("there is no folder for caches, which a session with an archive needs")
    script = write_script(folder / f"driver-{key_of(sys.executable)}", PROGRAM)
    os.environ["PYSPARK_PYTHON"] = PROGRAM
    os.environ["PATH"] = f"{script.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {"spark.executorEnv.PATH": PATH_ON_EXECUTORS}


def _with_dependencies(names: Iterable[str]) -> dict[str, Distribution]:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [Requirement(name) for name in names]
    while waiting:
        wanted = waiting.pop()
        name = str(canonicalize_name(wanted.name))
        try:
            package = found.setdefault(name, distribution(name))
        except PackageNotFoundError:
            raise PipelineError(
                f"package {wanted.name} is not installed here, and executors need it"
            ) from None
        for extra in ("", *wanted.extras):
            if (name, extra) not in seen:
                seen.add((name, extra))
                needed = [Requirement(text) for text in package.requires or []]
                waiting += [
                    one for one in needed if one.marker is None or one.marker.evaluate({"extra": extra})
                ]
    return found


def _files(packages: Iterable[Distribution]) -> Iterator[tuple[str, Path]]:
    for package in packages:
        if package.metadata["Name"] == NAME:
            continue  # it may be installed as a link to its sources
        for file in package.files or ():
            name = str(file)
            if not name.startswith("..") and not _LEFT_OUT.search(name):
                path = Path(str(package.locate_file(file)))
                if path.is_file():
                    yield name, path
    # With what numba has compiled: of use on machines with the same processor.
    root = Path(__file__).resolve().parents[2]
    for top in OURS:
        for path in sorted((root / top).rglob("*")):
            if path.is_file():
                yield str(path.relative_to(root)), path
