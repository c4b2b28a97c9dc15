"""Tells the story of authorizer_scenario.py to Apache Kafka; its answers go into recorded_authorizer.json.

python -m tests.broker.record_authorizer        (from the root of the repository; needs Java and Maven)
"""

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.apache_kafka import ApacheKafka

from .authorizer_scenario import SETTINGS, tell

RECORDED = Path(__file__).with_name("recorded_authorizer.json")


def main() -> int:
    answers: dict[str, list[Any]] = {}  # of each request the different answers,
    by_grant: dict[str, dict[str, int]] = {}  # and which of them each grant brought
    with ApacheKafka(heap="512m", settings=SETTINGS) as kafka:
        for request, grant, found in tell(kafka.bootstrap):
            known = answers.setdefault(request, [])
            if found not in known:
                known.append(found)
            by_grant.setdefault(request, {})[grant] = known.index(found)
    table = {name: {"answers": answers[name], "by grant": by_grant[name]} for name in answers}
    RECORDED.write_text(json.dumps(table, indent=None, sort_keys=True, separators=(",", ":")) + "\n")
    print(f"{sum(map(len, by_grant.values()))} answers, {sum(map(len, answers.values()))} of them different")
    return 0


if __name__ == "__main__":
    sys.exit(main())
