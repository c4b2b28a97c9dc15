"""Tells the story of groups_scenario.py to Apache Kafka's own tools and writes what they say into
recorded_groups.json.

python -m tests.cli.record_groups [WORD]        (from the root of the repository; needs Java and Maven)

With a word, only the steps with that tool are told (and those of the world), and what was recorded of the
others stays.
"""

import json
import sys
import tempfile
from pathlib import Path

from benchmarks.apache_kafka import ApacheKafka, tool

from .groups_scenario import KAFKA_CLASSES, STORY, WORLD, World
from .scenario import arguments

RECORDED = Path(__file__).with_name("recorded_groups.json")


def main() -> int:
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    found: dict[str, dict[str, object]] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    with ApacheKafka(heap="512m") as kafka, tempfile.TemporaryDirectory() as folder:
        world = World(kafka.bootstrap)
        for step in STORY:
            if step.tool == WORLD:
                getattr(world, step.args)()
                continue
            if only and step.tool != only:
                continue
            if step.file is not None:
                (Path(folder) / "input").write_text(step.file)
            done = tool(KAFKA_CLASSES[step.tool], *arguments(step, kafka.bootstrap, folder), stdin="")
            errors = [line for line in done.stderr.splitlines() if line and not line.startswith(("\t", "["))]
            found[step.name] = {"exit": done.returncode, "stdout": done.stdout, "stderr": errors[:3]}
            print(step.name, "->", found[step.name], file=sys.stderr)
            RECORDED.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        world.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
