"""Dates, times and zones from what a pattern of `java_patterns.py` has read: a text for each letter."""

from __future__ import annotations

from datetime import timedelta, timezone, tzinfo

from millstream.sql.errors import EvaluationError
from millstream.sql.java_patterns import MONTHS, WEEKDAYS
from millstream.sql.times import MILLIS_OF_DAY, date_of, days_of, offset_millis
from millstream.sql.zones import zone_named, zone_of


def _month_of(text: str) -> int:
    if text.isdecimal():
        return int(text)
    return next(at for at, name in enumerate(MONTHS, 1) if name[:3].lower() == text[:3].lower())


def _checked(name: str, value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise EvaluationError(
            f"Invalid value for {name} (valid values {low} - {high}): {value}",
        )
    return value


def day_of_fields(fields: dict[str, str], *, lenient: bool = False) -> int:
    """Days since 1970; a year, month or day that was not read is 1970, January, the 1st."""
    by_week = _day_by_week(fields, lenient)
    if by_week is not None:
        return by_week
    # A week-based year is no year, as in Java; SimpleDateFormat takes it for one.
    year = int(fields.get("u") or fields.get("y") or (fields.get("Y") if lenient else None) or 1970)
    if fields.get("G", "AD")[:1].upper() == "B":
        year = 1 - year
    try:
        if "D" in fields:
            number = int(fields["D"])
            leap = days_of(year + 1, 1, 1) - days_of(year, 1, 1) == 366
            if number == 366 and not (fields.keys() & {"u", "y"}):
                raise EvaluationError("Leap day cannot be parsed without supplying the year field")
            return days_of(year, 1, 1) + _checked("DayOfYear", number, 1, 366 if leap else 365) - 1
        month, day = _month_of(fields.get("M", "1")), int(fields.get("d", 1))
        if lenient:
            return days_of(year + (month - 1) // 12, (month - 1) % 12 + 1, 1) + day - 1
        _checked("MonthOfYear", month, 1, 12)
        _checked("DayOfMonth", day, 1, 31)
        first = days_of(year, month, 1)
        following = days_of(year + month // 12, month % 12 + 1, 1)
        days = min(first + day - 1, following - 1)
    except ValueError as error:
        raise EvaluationError(str(error)) from None
    if "E" in fields and WEEKDAYS[date_of(days).weekday()][:3].lower() != fields["E"][:3].lower():
        if fields.keys() & {"d"}:
            raise EvaluationError(f"Conflict found: the day of the week is not {fields['E']}")
        wanted = next(at for at, name in enumerate(WEEKDAYS) if name[:3].lower() == fields["E"][:3].lower())
        days += wanted - date_of(days).weekday()
    return days


def _day_by_week(fields: dict[str, str], lenient: bool) -> int | None:
    """The date of a week-based year, a week and a day of the week. Java needs all three, and ignores them
    otherwise; SimpleDateFormat takes the first day of the week if none is read."""
    weekday = next((fields[letter] for letter in "ecE" if letter in fields), "1" if lenient else None)
    if "Y" not in fields or "w" not in fields or weekday is None:
        return None
    if weekday.isdecimal():
        number = _checked("DayOfWeek", int(weekday), 1, 7)
    else:
        names = [name[:3].lower() for name in WEEKDAYS]
        number = (names.index(weekday[:3].lower()) + 1) % 7 + 1
    try:
        first = days_of(int(fields["Y"]), 1, 1)
        week = _checked("WeekOfWeekBasedYear", int(fields["w"]), 1, 53)
        return first - (date_of(first).weekday() + 1) % 7 + 7 * (week - 1) + number - 1
    except ValueError as error:
        raise EvaluationError(str(error)) from None


def time_of_fields(fields: dict[str, str]) -> int:
    """Milliseconds of the day; what was not read is 0."""
    if "A" in fields:
        return _checked("MilliOfDay", int(fields["A"]), 0, MILLIS_OF_DAY - 1)
    if "N" in fields:
        return int(fields["N"]) // 1_000_000
    afternoon = fields.get("a", "AM").upper() == "PM"
    if "H" in fields:
        hour = int(fields["H"])
        # 24:00 is the end of the day.
        end = hour == 24 and not any(int(fields.get(letter, 0)) for letter in "msSn")
        hour = hour if end else _checked("HourOfDay", hour, 0, 23)
    elif "k" in fields:
        hour = _checked("ClockHourOfDay", int(fields["k"]), 1, 24) % 24
    elif "h" in fields:
        hour = _checked("ClockHourOfAmPm", int(fields["h"]), 1, 12) % 12 + 12 * afternoon
    elif "K" in fields:
        hour = _checked("HourOfAmPm", int(fields["K"]), 0, 11) + 12 * afternoon
    else:
        hour = 12 * afternoon
    minute = _checked("MinuteOfHour", int(fields.get("m", 0)), 0, 59)
    second = _checked("SecondOfMinute", int(fields.get("s", 0)), 0, 59)
    milli = int(fields["S"].ljust(3, "0")[:3]) if "S" in fields else int(fields.get("n", 0)) // 1_000_000
    return ((hour * 60 + minute) * 60 + second) * 1000 + milli


def zone_of_fields(fields: dict[str, str]) -> tzinfo | None:
    for letter in "XxZ":
        if letter in fields:
            offset = fields[letter].upper().removeprefix("GMT")
            return timezone(timedelta(milliseconds=offset_millis(offset)))
    if "V" in fields:
        return zone_of(fields["V"])
    if "z" in fields:
        return zone_named(fields["z"])
    if "O" in fields:
        return timezone(timedelta(milliseconds=offset_millis(fields["O"][3:])))
    return None
