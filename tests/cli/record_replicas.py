"""Tells the story of replicas_scenario.py to Apache Kafka's own tools and writes what they say into
recorded_replicas.json.

python -m tests.cli.record_replicas        (from the root of the repository; needs Java and Maven)
"""

import json
import sys
import tempfile
from pathlib import Path

from benchmarks.apache_kafka import ApacheKafka, tool

from .record_kafka import sentence
from .replicas_scenario import KAFKA_CLASSES, STORY, said
from .scenario import arguments

RECORDED = Path(__file__).with_name("recorded_replicas.json")


def main() -> int:
    found: dict[str, dict[str, object]] = {}
    with ApacheKafka(heap="512m") as kafka, tempfile.TemporaryDirectory() as folder:
        for step in STORY:
            if step.file is not None:
                (Path(folder) / "input").write_text(step.file)
            done = tool(KAFKA_CLASSES[step.tool], *arguments(step, kafka.bootstrap, folder))
            if done.returncode == 0:
                found[step.name] = {"exit": 0, "stdout": done.stdout.replace(folder, "FOLDER")}
            else:
                found[step.name] = {
                    "exit": done.returncode,
                    "says": said(sentence(done.stdout, done.stderr)),
                }
            print(step.name, "->", found[step.name], file=sys.stderr)
    RECORDED.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
