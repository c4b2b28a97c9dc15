"""Where a table was read to, in Confluent's format: `incrementing`, `timestamp` and `timestamp_nanos`.

Ids are given out before transactions commit, so a row can appear below an id that was read before. The ids
that were missing then, the gaps, are part of the offset for a while, in a field that Java's connector
ignores: `first-last@milliseconds`, comma between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from millstream.connect.data.logical import EPOCH

GAPS = "millstream.gaps"
MAX_GAPS = 200
"""Of more than that, the oldest are forgotten: the newest ids are those that can still be on their way."""


class Gap(NamedTuple):
    first: int
    last: int
    seen_ms: int


@dataclass(frozen=True, slots=True)
class SourceOffset:
    incrementing: int | None = None
    timestamp: datetime | None = None
    gaps: tuple[Gap, ...] = ()

    def to_map(self) -> dict[str, Any]:
        result: dict[str, Any] = {}
        if self.incrementing is not None:
            result["incrementing"] = self.incrementing
        if self.timestamp is not None:
            micros = (self.timestamp - EPOCH) // timedelta(microseconds=1)
            result["timestamp"] = micros // 1000
            result["timestamp_nanos"] = micros % 1_000_000 * 1000
        if self.gaps:
            result[GAPS] = ",".join(f"{gap.first}-{gap.last}@{gap.seen_ms}" for gap in self.gaps)
        return result

    @classmethod
    def from_map(cls, found: Mapping[str, Any] | None) -> SourceOffset:
        if not found:
            return cls()
        millis, nanos = found.get("timestamp"), found.get("timestamp_nanos")
        timestamp = None
        if millis is not None:
            # Nanoseconds of the second, in which the milliseconds are as well.
            micros = (
                int(millis) * 1000 if nanos is None else int(millis) // 1000 * 1_000_000 + int(nanos) // 1000
            )
            timestamp = EPOCH + timedelta(microseconds=micros)
        gaps = []
        for text in str(found.get(GAPS) or "").split(","):
            ids, at, seen = text.partition("@")
            # Ids may be below zero, and so may have a minus of their own.
            first, _, last = ids[1:].partition("-")
            if at:
                gaps.append(Gap(int(ids[0] + first), int(last), int(seen)))
        incrementing = found.get("incrementing")
        return cls(None if incrementing is None else int(incrementing), timestamp, tuple(gaps))

    def without_old_gaps(self, before_ms: int) -> SourceOffset:
        kept = tuple(gap for gap in self.gaps if gap.seen_ms >= before_ms)
        return self if len(kept) == len(self.gaps) else replace(self, gaps=kept)

    def after_ids(self, ids: Iterable[int], now_ms: int, *, keep_gaps: bool) -> SourceOffset:
        """These ids were read, in their order."""
        highest, gaps = self.incrementing, list(self.gaps)
        for number in ids:
            if highest is None or number > highest:
                if keep_gaps and highest is not None and number > highest + 1:
                    gaps.append(Gap(highest + 1, number - 1, now_ms))
                highest = number
            else:
                gaps = [part for gap in gaps for part in _without(gap, number)]
        return replace(self, incrementing=highest, gaps=tuple(gaps[-MAX_GAPS:]))


def _without(gap: Gap, number: int) -> list[Gap]:
    if not gap.first <= number <= gap.last:
        return [gap]
    parts = [gap._replace(last=number - 1), gap._replace(first=number + 1)]
    return [part for part in parts if part.first <= part.last]
