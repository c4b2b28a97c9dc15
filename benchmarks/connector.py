"""Spark's own Kafka connector (spark-sql-kafka-0-10), for comparison: its jars, by Maven, once.

jars()        comma-separated, for Spark's setting `spark.jars`
class_path()  the same way for any other pom
available()   None, or why it cannot be had
"""

import hashlib
import shutil
import subprocess
from pathlib import Path

from apache_kafka import Unavailable, _one_at_a_time, _usable, cache_folder

POM = Path(__file__).resolve().parent / "connector_pom.xml"


def jars() -> str:
    return class_path(POM, "spark-kafka").replace(":", ",")


def class_path(pom: Path, name: str) -> str:
    """The jars of a pom; `name` is what they are kept under."""
    folder = cache_folder()
    kept = folder / f"{name}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:16]}.txt"
    with _one_at_a_time(folder / f"{name}.lock"):
        if not (kept.is_file() and _usable(kept.read_text().strip())):
            _ask_maven(pom, kept)
    return kept.read_text().strip()


def available() -> str | None:
    try:
        jars()
        return None
    except Unavailable as reason:
        return str(reason)


def _ask_maven(pom: Path, kept: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("no mvn found on PATH, and no jars in the cache")
    fresh = kept.with_suffix(".new")
    command = [maven, "-B", "-q", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={fresh}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    except (OSError, subprocess.TimeoutExpired) as reason:
        raise Unavailable(f"Maven did not answer: {reason}") from reason
    if done.returncode != 0 or not fresh.is_file():
        lines = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
        raise Unavailable(
            f"Maven cannot resolve {pom.name}: {lines[0] if lines else f'exit {done.returncode}'}"
        )
    fresh.replace(kept)


if __name__ == "__main__":
    print(available() or jars())
