"""DATE, TIME and TIMESTAMP as text, in ksqlDB's ISO forms; other patterns are in `java_patterns.py`.

A timestamp is read from `2020-05-26T23:59:58.000`, with `Z` or an offset behind it, or from the beginning of
that. A date may lack day and month, a time its seconds. What cannot be read raises `EvaluationError`.
"""

from __future__ import annotations

import re
from datetime import date

from millstream.sql.errors import EvaluationError

MILLIS_OF_DAY = 86_400_000
_EPOCH = date(1970, 1, 1).toordinal()
_FULL_TIME = "00:00:00.000"
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_FULL = re.compile(r"(\d\d):(\d\d):(\d\d)\.(\d\d\d)", re.ASCII)
_TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{0,9}))?)?", re.ASCII)
_OFFSET = re.compile(r"([+-])(\d{1,2})(?::?(\d\d)(?::?(\d\d))?)?", re.ASCII)

_TIMESTAMP_HELP = (
    "\nRequired format is: \"yyyy-MM-dd'T'HH:mm:ss.SSS\", with an optional numeric 4-digit timezone, "
    "for example: '2020-05-26T23:59:58.000' or with tz: '2020-05-26T23:59:58.000+0200'. "
    "A trailing 'Z' instead of tz indicates the zero UTC offset. "
    'Partials are also supported, for example "2020-05-26"'
)
_TIME_HELP = (
    "\nRequired format is: \"HH:mm:ss.SSS\", for example: '01:34:20.123' or '01:34:20'. "
    "Partials are also supported, for example '01:34'"
)
_DATE_HELP = (
    "\nRequired format is: \"yyyy-MM-dd\", for example '2020-05-26'. "
    "Partials are also supported, for example '2020-05'"
)


def days_of(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01; ValueError if there is no such day."""
    return date(year, month, day).toordinal() - _EPOCH


def date_of(days: int) -> date:
    """The calendar day; only the years 1 to 9999 have one here."""
    try:
        return date.fromordinal(days + _EPOCH)
    except (ValueError, OverflowError):
        raise EvaluationError(f"the date {days} days from 1970-01-01 is out of range") from None


def format_date(days: int) -> str:
    return date_of(days).isoformat()


def format_time(millis: int) -> str:
    """Without milliseconds, and without seconds if they are zero: how ksqlDB casts a TIME to text."""
    minutes, seconds = divmod(millis // 1000, 60)
    text = f"{minutes // 60:02}:{minutes % 60:02}"
    return f"{text}:{seconds:02}" if seconds else text


def format_timestamp(millis: int) -> str:
    days, rest = divmod(millis, MILLIS_OF_DAY)
    seconds, milli = divmod(rest, 1000)
    minutes, second = divmod(seconds, 60)
    return f"{date_of(days).isoformat()}T{minutes // 60:02}:{minutes % 60:02}:{second:02}.{milli:03}"


def completed_date(text: str) -> str:
    """`2020` and `2020-05` become their first day."""
    return text + ("-01-01", "-01", "")[min(text.count("-"), 2)]


def parse_date(text: str) -> int:
    found = _DATE.fullmatch(completed_date(text))
    if found:
        try:
            return days_of(*map(int, found.groups()))
        except ValueError:
            pass
    raise EvaluationError(
        f"Failed to parse date '{text}': Text '{text}' could not be parsed at index 0{_DATE_HELP}"
    )


def parse_time(text: str) -> int:
    found = _TIME.fullmatch(text)
    if found:
        hours, minutes, seconds = (int(part or 0) for part in found.groups()[:3])
        if hours < 24 and minutes < 60 and seconds < 60:
            milli = int((found[4] or "").ljust(3, "0")[:3])
            return ((hours * 60 + minutes) * 60 + seconds) * 1000 + milli
    raise EvaluationError(
        f"Failed to parse time '{text}': Text '{text}' could not be parsed at index 0{_TIME_HELP}"
    )


def offset_millis(text: str) -> int:
    """`+0200`, `+02:00`, `-5`, `Z` or nothing."""
    if text in ("", "Z"):
        return 0
    found = _OFFSET.fullmatch(text)
    if not found:
        raise EvaluationError(
            f"Failed to parse timezone '{text}': Invalid ID for offset-based ZoneId: {text}"
        )
    sign = -1 if found[1] == "-" else 1
    hours, minutes, seconds = (int(part or 0) for part in found.groups()[1:])
    if hours > 18 or minutes > 59 or seconds > 59:
        raise EvaluationError(f"Failed to parse timezone '{text}': Zone offset not in valid range: {text}")
    return sign * ((hours * 60 + minutes) * 60 + seconds) * 1000


def parse_timestamp(text: str) -> int:
    day, found_t, rest = text.partition("T")
    zone = ""
    if found_t:
        start = rest.find("+")
        if start < 0:
            start = rest.find("-")
        if start >= 0:
            rest, zone = rest[:start], rest[start:].strip()
        rest = rest.removesuffix("Z")
    else:
        day = completed_date(text)
    time = rest + _FULL_TIME[len(rest) :]
    found_day, found_time = _DATE.fullmatch(day), _FULL.fullmatch(time)
    offset = offset_millis(zone)
    if found_day and found_time:
        hours, minutes, seconds, milli = map(int, found_time.groups())
        year, month, dom = map(int, found_day.groups())
        # 24:00 is the end of the day: the first moment of the next.
        of_day = hours < 24 or (hours == 24 and not (minutes or seconds or milli))
        if of_day and minutes < 60 and seconds < 60 and 1 <= month <= 12 and 1 <= dom <= 31 and year:
            days = days_of(year, month, min(dom, _last_day(year, month)))
            millis = ((hours * 60 + minutes) * 60 + seconds) * 1000 + milli
            return days * MILLIS_OF_DAY + millis - offset
    raise EvaluationError(
        f"Failed to parse timestamp '{text}': "
        f"Text '{day}T{time}' could not be parsed at index 0{_TIMESTAMP_HELP}"
    )


def _last_day(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31
