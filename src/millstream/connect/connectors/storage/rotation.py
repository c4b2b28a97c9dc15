"""Where one file ends and the next begins.

All open files of a Kafka partition are cut together, at one offset: a *range* [begin, end) becomes one file
per folder. Cuts by count, by the records' time and by schema follow from the records alone. A cut by the wall
clock does not, so it is announced before anything is written: `Intent` travels in the metadata of the group's
offset, and whoever reads the range again makes the same cuts and the same names.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from millstream.connect.data.schema import Schema


@dataclass(frozen=True, slots=True)
class Rules:
    """What cuts follow from. -1: not at all."""

    flush_size: int
    rotate_ms: int = -1


@dataclass(frozen=True, slots=True)
class Intent:
    """What will be written: everything below `until`, cut by `rules` as they were, with `clock` (ms) as the
    time of records that have none of their own."""

    until: int
    rules: Rules
    clock: int

    def to_text(self) -> str:
        content = {"until": self.until, "flush": self.rules.flush_size, "rotate": self.rules.rotate_ms}
        return json.dumps(content | {"clock": self.clock}, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Intent | None:
        """None for what is no intent: another sink's metadata, or none."""
        try:
            content: Any = json.loads(text) if text else None
            return cls(
                int(content["until"]), Rules(int(content["flush"]), int(content["rotate"])), content["clock"]
            )
        except (ValueError, TypeError, KeyError):
            return None


class Cutter:
    """Of the range that is open. `before` is asked for each record, `after` once it is in."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.count = 0
        self._first_time: int | None = None
        self._path = ""

    @property
    def room(self) -> int:
        """How many records more until the count ends the range."""
        return self.rules.flush_size - self.count

    def before(self, timestamp: int | None, path: str) -> bool:
        """Whether the range ends in front of this record."""
        if not self.count or self.rules.rotate_ms <= 0:
            return False
        if path != self._path:
            return True
        return (
            timestamp is not None
            and self._first_time is not None
            and timestamp - self._first_time >= self.rules.rotate_ms
        )

    def after(self, timestamp: int | None, path: str) -> bool:
        """Whether it ends behind it."""
        if not self.count:
            self._first_time, self._path = timestamp, path
        self.count += 1
        return 0 < self.rules.flush_size <= self.count


def schema_cuts(compatibility: str, current: Schema | None, new: Schema | None) -> bool:
    """Whether a record's schema needs a new file. With a compatibility, only the schema that is further in
    its direction does; records of the others are projected onto it."""
    if current is new or current == new:
        return False
    if compatibility == "NONE" or current is None or new is None:
        return True
    known, coming = current.version, new.version
    if known is None or coming is None:
        return True
    return coming < known if compatibility == "FORWARD" else coming > known
