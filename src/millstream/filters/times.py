"""Moments as people write them: `2026-01-01T00:00Z`, `2026-01-01`, `-1h`, `now`, or milliseconds since
1970."""

import re
import time
from datetime import UTC, datetime

UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
LARGEST = 1 << 62


class BadTime(ValueError):
    """The text is not a time; the message says what would be."""


def parse_time(text: str, now_ms: int | None = None) -> int:
    """Milliseconds since 1970. A time without a zone is UTC's; `-1h30m` is so long before now."""
    given = text.strip()
    now = round(time.time() * 1000) if now_ms is None else now_ms
    if given == "now":
        return now
    if given.startswith("-"):
        return now - parse_duration(given[1:])
    if given.isdecimal() and len(given) > 8:
        return min(int(given), LARGEST)
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise BadTime(
            f"'{text}' is not a time: use 2026-01-31T12:30Z, 2026-01-31, -1h (m, h, d, w), now, or "
            "milliseconds "
            "since 1970"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_duration(text: str) -> int:
    """`90s`, `1h30m`, `2d`: milliseconds."""
    given = text.strip().lower()
    amounts = _AMOUNT.findall(given)
    if not amounts or "".join(number + unit for number, unit in amounts) != given:
        raise BadTime(f"'{text}' is not a length of time: use 90s, 15m, 1h30m, 2d, 1w")
    return min(round(sum(float(number) * UNITS[unit] for number, unit in amounts)), LARGEST)
