"""Time zones as Java names them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from millstream.sql.errors import EvaluationError
from millstream.sql.times import offset_millis

# Names that Java reads for `z`, each as the region that has it: summer time follows the date, not the name.
ZONE_NAMES = {
    name: region
    for region, names in {
        "America/Los_Angeles": "PST PDT PT",
        "America/Denver": "MST MDT MT",
        "America/Chicago": "CST CDT CT",
        "America/New_York": "EST EDT ET",
        "America/Anchorage": "AKST AKDT",
        "America/Halifax": "AST ADT",
        "America/St_Johns": "NST NDT",
        "Pacific/Honolulu": "HST",
        "Europe/London": "BST",
        "Europe/Paris": "CET CEST",
        "Europe/Athens": "EET EEST",
        "Europe/Lisbon": "WET WEST",
        "Europe/Moscow": "MSK",
        "Asia/Kolkata": "IST",
        "Asia/Tokyo": "JST",
        "Asia/Seoul": "KST",
        "Asia/Hong_Kong": "HKT",
        "Asia/Singapore": "SGT",
        "Australia/Sydney": "AEST AEDT",
        "Australia/Adelaide": "ACST ACDT",
        "Australia/Perth": "AWST",
        "Pacific/Auckland": "NZST NZDT",
        "Africa/Johannesburg": "SAST",
    }.items()
    for name in names.split()
}


class LocalZone(tzinfo):
    """The zone of this machine, by the rules of its C library."""

    def utcoffset(self, dt: datetime | None) -> timedelta:
        assert dt is not None
        moment = dt.replace(tzinfo=None)
        seconds = time.mktime(moment.timetuple())
        return timedelta(seconds=time.localtime(seconds).tm_gmtoff)

    def fromutc(self, dt: datetime) -> datetime:
        seconds = (dt.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()
        return dt + timedelta(seconds=time.localtime(seconds).tm_gmtoff)

    def dst(self, dt: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, dt: datetime | None) -> str:
        return time.tzname[0]


@lru_cache(maxsize=256)
def zone_of(name: str) -> tzinfo:
    """A zone by its id, as ZoneId.of takes it: `Europe/London`, `UTC`, `+02:00`, `GMT+2`."""
    if name in ("Z", "UTC", "GMT", "UT"):
        return UTC
    bare = re.sub(r"^(UTC|GMT|UT)(?=[+-])", "", name)
    if bare[:1] in ("+", "-"):
        return timezone(timedelta(milliseconds=offset_millis(bare)))
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        raise EvaluationError(f"Unknown time-zone ID: {name}") from None
