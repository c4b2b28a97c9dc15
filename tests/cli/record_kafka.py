"""Tells the story of scenario.py to Apache Kafka's own tools and writes what they say into recorded.json.

python -m tests.cli.record_kafka        (from the root of the repository; needs Java and Maven)
"""

import json
import sys
import tempfile
from pathlib import Path

from benchmarks.apache_kafka import ApacheKafka, tool

from .scenario import KAFKA_CLASSES, STORY, arguments

RECORDED = Path(__file__).with_name("recorded.json")


def sentence(stdout: str, stderr: str) -> str:
    """The first line that is neither a log line nor a Java stack."""
    for line in (stdout + stderr).splitlines():
        if line.strip() and not line.startswith(("[", "\t", "Option ")):
            return line.removeprefix("Error occurred: ").removeprefix(
                "org.apache.kafka.common.KafkaException: "
            )
    return ""


def main() -> int:
    found: dict[str, dict[str, object]] = {}
    with ApacheKafka(heap="512m") as kafka, tempfile.TemporaryDirectory() as folder:
        for step in STORY:
            if step.file is not None:
                (Path(folder) / "input").write_text(step.file)
            words = arguments(step, kafka.bootstrap, folder)
            done = tool(KAFKA_CLASSES[step.tool], *words, stdin=step.stdin or "")
            if done.returncode == 0:
                found[step.name] = {"exit": 0, "stdout": done.stdout}
            else:
                found[step.name] = {"exit": done.returncode, "says": sentence(done.stdout, done.stderr)}
            print(step.name, "->", found[step.name], file=sys.stderr)
    RECORDED.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
