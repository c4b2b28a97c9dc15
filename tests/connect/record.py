"""Records the vectors anew: `python tests/connect/record.py [NAME ...]`. Needs mvn, javac and java.

Asks Kafka's own classes (tests/interop/connect-java) about every case of `cases.py`, and a worker of Kafka's,
on a broker of ours, about every configuration of `validations.py`. Writes vectors/*.jsonl.gz.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import httpx

from millstream.testing import Broker
from tests.connect import debezium_cases, validations
from tests.connect.cases import Case, all_cases
from tests.interop.test_connect import JavaWorker

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


def record_validations(class_path: str, folder: Path) -> list[Case]:
    recorded: list[Case] = []
    with Broker() as broker:
        worker = JavaWorker(class_path, broker.bootstrap_servers, "record", folder)
        try:
            worker.start()
            for settings in validations.cases():
                plugin = settings["connector.class"]
                url = f"http://127.0.0.1:{worker.port}/connector-plugins/{plugin}/config/validate"
                answer = httpx.put(url, json=settings, timeout=60)
                if answer.status_code == 200:
                    recorded.append({"settings": settings, "out": validations.compact(answer.json())})
                else:
                    recorded.append({"settings": settings, "status": answer.status_code})
        finally:
            worker.stop()
    return recorded


def write(name: str, recorded: list[Case]) -> None:
    data = "".join(json.dumps(case, separators=(",", ":")) + "\n" for case in recorded).encode()
    (FOLDER / f"{name}.jsonl.gz").write_bytes(gzip.compress(data, 9, mtime=0))
    print(f"{name}: {len(recorded)}")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    wanted = sys.argv[1:] or [*all_cases(), "debezium", "validation"]
    with tempfile.TemporaryDirectory() as folder:
        jars = class_path(folder)
        source = JAVA / "src" / "Recorder.java"
        subprocess.run(["javac", "-nowarn", "-d", folder, "-cp", jars, str(source)], check=True)
        for name, cases in all_cases().items():
            if name in wanted:
                write(name, record(cases, f"{folder}:{jars}"))
        if "debezium" in wanted:
            debezium = class_path(folder, "-Pdebezium")
            write("debezium", record(list(debezium_cases.cases()), f"{folder}:{debezium}"))
        if "validation" in wanted:
            write("validation", record_validations(jars, Path(folder)))


def class_path(folder: str, *options: str) -> str:
    jars = Path(folder) / "class-path"
    command = ["mvn", "-B", "-q", "-f", str(JAVA / "pom.xml"), *options, "dependency:build-classpath"]
    subprocess.run([*command, f"-Dmdep.outputFile={jars}"], check=True)
    return jars.read_text()


if __name__ == "__main__":
    main()
