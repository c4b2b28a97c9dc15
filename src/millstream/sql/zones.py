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

# What zzzz prints in English, by the region as in ZONE_NAMES, for winter and for summer.
_FULL_NAMES = {
    "America/Los_Angeles": ("Pacific Standard Time", "Pacific Daylight Time"),
    "America/Denver": ("Mountain Standard Time", "Mountain Daylight Time"),
    "America/Chicago": ("Central Standard Time", "Central Daylight Time"),
    "America/New_York": ("Eastern Standard Time", "Eastern Daylight Time"),
    "America/Anchorage": ("Alaska Standard Time", "Alaska Daylight Time"),
    "America/Halifax": ("Atlantic Standard Time", "Atlantic Daylight Time"),
    "America/St_Johns": ("Newfoundland Standard Time", "Newfoundland Daylight Time"),
    "America/Sao_Paulo": ("Brasilia Standard Time", "Brasilia Summer Time"),
    "Pacific/Honolulu": ("Hawaii-Aleutian Standard Time", "Hawaii-Aleutian Daylight Time"),
    "Europe/London": ("Greenwich Mean Time", "British Summer Time"),
    "Europe/Dublin": ("Greenwich Mean Time", "Irish Standard Time"),
    "Europe/Paris": ("Central European Standard Time", "Central European Summer Time"),
    "Europe/Athens": ("Eastern European Standard Time", "Eastern European Summer Time"),
    "Europe/Lisbon": ("Western European Standard Time", "Western European Summer Time"),
    "Europe/Moscow": ("Moscow Standard Time", "Moscow Summer Time"),
    "Asia/Kolkata": ("India Standard Time", "India Standard Time"),
    "Asia/Tokyo": ("Japan Standard Time", "Japan Daylight Time"),
    "Asia/Seoul": ("Korean Standard Time", "Korean Daylight Time"),
    "Asia/Shanghai": ("China Standard Time", "China Daylight Time"),
    "Asia/Hong_Kong": ("Hong Kong Standard Time", "Hong Kong Summer Time"),
    "Asia/Singapore": ("Singapore Standard Time", "Singapore Standard Time"),
    "Australia/Sydney": ("Australian Eastern Standard Time", "Australian Eastern Daylight Time"),
    "Australia/Adelaide": ("Australian Central Standard Time", "Australian Central Daylight Time"),
    "Australia/Perth": ("Australian Western Standard Time", "Australian Western Daylight Time"),
    "Pacific/Auckland": ("New Zealand Standard Time", "New Zealand Daylight Time"),
    "Africa/Johannesburg": ("South Africa Standard Time", "South Africa Standard Time"),
}
_UTC_NAME = "Coordinated Universal Time"
# Longer names first, so that none hides another that it begins.
FULL_ZONE_NAMES = sorted({_UTC_NAME}.union(*_FULL_NAMES.values()), key=len, reverse=True)
_BY_FULL_NAME = {name.upper(): region for region, pair in reversed(_FULL_NAMES.items()) for name in pair}


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


def full_zone_name(key: str | None, short: str, *, summer: bool) -> str:
    """The name that zzzz prints for a region at a moment, of which the short name is known."""
    if short in ("UTC", "GMT") and key in (None, "UTC", "GMT", "Etc/UTC"):
        return "Greenwich Mean Time" if key == "GMT" else _UTC_NAME
    # A region that has the same short names has the same full ones: Berlin as Paris.
    pair = _FULL_NAMES.get(key or "") or _FULL_NAMES.get(ZONE_NAMES.get(short, ""))
    return short if pair is None else pair[summer]


def zone_named(text: str) -> tzinfo:
    """What the pattern letter z reads: a short or a full name, or an id."""
    upper = text.upper()
    if upper == _UTC_NAME.upper():
        return UTC
    return zone_of(_BY_FULL_NAME.get(upper) or ZONE_NAMES.get(upper, text))
