"""How far a query is behind, in the names of Spark's Kafka connector.

    behind = offsets_behind(query.lastProgress)

Spark takes metrics only from sources written in Java, so they are not in `progress.sources[n].metrics`. But a
report says how far each source has read and where its partitions ended, and that is all they are made of.
"""

import json
from collections.abc import Mapping
from typing import Any

Offsets = dict[str, dict[str, int]]
NAMES = ("minOffsetsBehindLatest", "maxOffsetsBehindLatest", "avgOffsetsBehindLatest")


def offsets_behind(progress: Any) -> list[dict[str, float]]:
    """For each source of a report (`query.lastProgress`, one of `query.recentProgress`, or its JSON as a
    dict) the offsets between where it is and where its partitions ended; empty for a source without
    offsets."""
    report = progress if isinstance(progress, Mapping) else json.loads(progress.json)
    found = []
    for source in report.get("sources") or []:
        done, newest = offsets_in(source.get("endOffset")), offsets_in(source.get("latestOffset"))
        behind = [
            max(0, end - done.get(topic, {}).get(partition, 0))
            for topic, ends in newest.items()
            for partition, end in ends.items()
        ]
        figures = (min(behind), max(behind), sum(behind) / len(behind)) if done and behind else ()
        found.append(dict(zip(NAMES, figures, strict=False)))
    return found


def offsets_in(text: Any) -> Offsets:
    """Offsets as our source or as Spark's Kafka source writes them; nothing for other sources."""
    if isinstance(text, str):
        try:
            text = json.loads(text)
        except ValueError:
            return {}
    if not isinstance(text, dict):
        return {}
    found = text.get("offsets", text)
    if not isinstance(found, dict):
        return {}
    if not all(isinstance(parts, dict) for parts in found.values()):
        found = text  # of a topic that is called so
    try:
        return {
            str(topic): {str(int(partition)): int(offset) for partition, offset in parts.items()}
            for topic, parts in found.items()
        }
    except (AttributeError, ValueError, TypeError):
        return {}
