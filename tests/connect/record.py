"""Records the vectors anew: `python tests/connect/record.py`. Needs mvn, javac and java.

Asks Kafka's own classes (tests/interop/connect-java) about every case of `cases.py` and writes
vectors/*.jsonl.gz.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.connect.cases import Case, all_cases

FOLDER = Path(__file__).with_name("vectors")
JAVA = Path(__file__).parents[1] / "interop" / "connect-java"


def record(cases: list[Case], class_path: str) -> list[Case]:
    lines = "\n".join(json.dumps(case) for case in cases)
    command = [
        "java",
        "-Duser.timezone=UTC",
        "-Duser.language=en",
        "-Duser.country=US",
        "-cp",
        class_path,
        "Recorder",
    ]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        jars = Path(folder) / "class-path"
        command = ["mvn", "-B", "-q", "-f", str(JAVA / "pom.xml"), "dependency:build-classpath"]
        subprocess.run([*command, f"-Dmdep.outputFile={jars}"], check=True)
        source = JAVA / "src" / "Recorder.java"
        subprocess.run(["javac", "-nowarn", "-d", folder, "-cp", jars.read_text(), str(source)], check=True)
        for name, cases in all_cases().items():
            recorded = record(cases, f"{folder}:{jars.read_text()}")
            data = "".join(json.dumps(case, separators=(",", ":")) + "\n" for case in recorded).encode()
            (FOLDER / f"{name}.jsonl.gz").write_bytes(gzip.compress(data, 9, mtime=0))
            print(f"{name}: {len(recorded)}")


if __name__ == "__main__":
    main()
