"""What the broker and the child process that compacts say to each other: one JSON object a line.

    broker -> child    {"say": "facts", "aborted": [[...], ...], "producers": [[id, last offset, epoch], ...]}
                       {"say": "clean", ...the fields of Job...}
                       {"say": "next"}                     the replacement is in place, go on
    child -> broker    {"say": "replace", "old": [base offsets], "new": [fields of NewSegment]}, then waits
                       {"say": "done", ...the fields of Summary...}
                       {"say": "failed", "damaged": bool, "reason": "..."}

Facts come in slices, before the job that needs them, so that a log with very many producers does not hold up
the loop while they are written down. The end of input is the end of the child, whatever it is doing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from millstream.storage.cleaning.cleaned_segment import NewSegment, Replacement
from millstream.storage.transactions import AbortedTransaction

Message = dict[str, Any]


@dataclass(slots=True)
class Job:
    """Everything that must be known to clean one log."""

    folder: str
    # Base offset and size of all closed segments below `upper`, from the first.
    segments: list[tuple[int, int]]
    first_dirty: int
    upper: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_bytes: int
    index_interval: int
    map_bytes: int
    load_factor: float
    buffer_bytes: int
    bytes_per_second: float
    aborted: list[AbortedTransaction] = field(default_factory=list)
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)


_FACTS = ("aborted", "producers")
_PLAIN = tuple(each.name for each in fields(Job) if each.name not in _FACTS)


@dataclass(slots=True)
class Summary:
    """What a cleaning did."""

    end_offset: int = 0  # the log is clean up to here
    bytes_before: int = 0  # in the segments that were read
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    keys: int = 0
    map_bytes: int = 0
    map_utilization: float = 0.0
    learn_seconds: float = 0.0
    seconds: float = 0.0
    throttled_seconds: float = 0.0


def line(say: str, content: Message | None = None) -> bytes:
    return json.dumps({"say": say, **(content or {})}, separators=(",", ":")).encode() + b"\n"


def clean_line(job: Job) -> bytes:
    return line("clean", {name: getattr(job, name) for name in _PLAIN})


def read_job(message: Message) -> Job:
    job = Job(**{name: message[name] for name in _PLAIN})
    job.segments = [(base, size) for base, size in job.segments]
    return job


def replace_line(replacement: Replacement) -> bytes:
    return line("replace", {"old": replacement.old, "new": list(replacement.new)})


def read_replacement(message: Message) -> Replacement:
    return Replacement(list(message["old"]), NewSegment._make(message["new"]))


def done_line(summary: Summary) -> bytes:
    return line("done", asdict(summary))


def read_summary(message: Message) -> Summary:
    return Summary(**{each.name: message[each.name] for each in fields(Summary)})
