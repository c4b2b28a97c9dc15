"""Records the vectors anew: `python tests/streams/record.py [a pattern of names]`. Needs mvn, javac and java.

Runs the topologies of tests/interop/streams-java in Kafka's TopologyTestDriver and writes vectors/*.json.gz.
With a pattern only the topologies whose names match are run and replaced.

`python tests/streams/record.py --plans 1000 50` adds the random topologies (`plan_maker`) of 50 seeds, but
for those that Kafka Streams refuses or fails with. To look for differences, record some hundreds and run
`pytest tests/streams/test_vectors.py -k plan_`; what is found and mended is worth keeping.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.streams.plan_maker import plan

FOLDER = Path(__file__).with_name("vectors")
JAVA = Path(__file__).parents[1] / "interop" / "streams-java"


def class_path(folder: Path) -> str:
    """The jars of the pom, by Maven."""
    jars = folder / "class-path"
    command = ["mvn", "-B", "-q", "-f", str(JAVA / "pom.xml"), "dependency:build-classpath"]
    subprocess.run([*command, f"-Dmdep.outputFile={jars}"], check=True)
    return jars.read_text()


def record(pattern: str | None, plans: list[dict[str, Any]]) -> int:
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
        made, given = folder / "vectors", folder / "plans.json"
        made.mkdir()
        given.write_text(json.dumps(plans))
        done = subprocess.run([*command, str(made), str(given), *([pattern] if pattern else [])])
        steps = {plan["name"]: plan for plan in plans}
        for file in made.glob("*.json"):
            found = [vector for vector in json.loads(file.read_bytes()) if "failed" not in vector]
            for vector in found:
                if vector["name"] in steps:
                    vector["plan"] = steps[vector["name"]]
            _write(FOLDER / f"{file.name}.gz", found, keep=pattern is not None)
    return done.returncode


def _write(file: Path, vectors: list[dict[str, Any]], *, keep: bool) -> None:
    if keep and file.exists():
        fresh = {vector["name"]: vector for vector in vectors}
        known = json.loads(gzip.decompress(file.read_bytes()))
        vectors = [fresh.pop(vector["name"], vector) for vector in known] + list(fresh.values())
    data = json.dumps(vectors, separators=(",", ":"), ensure_ascii=False).encode()
    file.write_bytes(gzip.compress(data, 9, mtime=0))


def _recorded_plans() -> list[dict[str, Any]]:
    file = FOLDER / "plans.json.gz"
    return [vector["plan"] for vector in json.loads(gzip.decompress(file.read_bytes()))]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--plans"]:
        begin, count = map(int, sys.argv[2:4])
        sys.exit(record("plan_.*", [plan(seed) for seed in range(begin, begin + count)]))
    sys.exit(record(sys.argv[1] if len(sys.argv) > 1 else None, _recorded_plans()))
