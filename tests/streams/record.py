"""Records the vectors anew: `python tests/streams/record.py [a pattern of names]`. Needs mvn, javac and java.

Runs the topologies of tests/interop/streams-java in Kafka's TopologyTestDriver and writes vectors/*.json.gz.
With a pattern only the topologies whose names match are run and replaced.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).with_name("vectors")
JAVA = Path(__file__).parents[1] / "interop" / "streams-java"


def class_path(folder: Path) -> str:
    """The jars of the pom, by Maven."""
    jars = folder / "class-path"
    command = ["mvn", "-B", "-q", "-f", str(JAVA / "pom.xml"), "dependency:build-classpath"]
    subprocess.run([*command, f"-Dmdep.outputFile={jars}"], check=True)
    return jars.read_text()


def record(pattern: str | None) -> int:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        jars = class_path(folder)
        sources = [str(source) for source in (JAVA / "src").glob("*.java")]
        subprocess.run(["javac", "-encoding", "UTF-8", "-d", temporary, "-cp", jars, *sources], check=True)
        command = [
            "java",
            "-Xmx512m",
            f"-Djava.io.tmpdir={temporary}",
            "-cp",
            f"{temporary}:{jars}",
            "Vectors",
        ]
        made = folder / "vectors"
        made.mkdir()
        done = subprocess.run([*command, str(made), *([pattern] if pattern else [])])
        for file in made.glob("*.json"):
            _write(FOLDER / f"{file.name}.gz", json.loads(file.read_bytes()), keep=pattern is not None)
    return done.returncode


def _write(file: Path, vectors: list[dict[str, object]], *, keep: bool) -> None:
    if keep and file.exists():
        fresh = {vector["name"]: vector for vector in vectors}
        known = json.loads(gzip.decompress(file.read_bytes()))
        vectors = [fresh.pop(vector["name"], vector) for vector in known] + list(fresh.values())
    data = json.dumps(vectors, separators=(",", ":"), ensure_ascii=False).encode()
    file.write_bytes(gzip.compress(data, 9, mtime=0))


if __name__ == "__main__":
    sys.exit(record(sys.argv[1] if len(sys.argv) > 1 else None))
