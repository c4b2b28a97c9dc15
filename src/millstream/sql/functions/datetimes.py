"""Functions of dates and times."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, timedelta, tzinfo
from typing import Any

from millstream.sql import pattern_fields
from millstream.sql.arithmetic import integer_divide, wrap32
from millstream.sql.errors import EvaluationError
from millstream.sql.functions.table import Function, overload, scalar
from millstream.sql.java_patterns import compiled, in_zone, to_millis
from millstream.sql.times import MILLIS_OF_DAY, format_date, format_time
from millstream.sql.zones import LocalZone, zone_of

_TIME = "DATE / TIME"
_UNITS = {"MILLISECOND": 1, "SECOND": 1000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": MILLIS_OF_DAY}
_LOCAL: tzinfo = LocalZone()


def _millis(unit: str, interval: int) -> int:
    return _UNITS[unit.upper().removesuffix("S")] * interval


def _explained(what: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except EvaluationError as error:
        raise EvaluationError(f"{what}: {error}") from None


def _offset(zone: tzinfo, millis: int) -> int:
    offset = in_zone(millis, zone)[2].utcoffset() or timedelta(0)
    return int(offset.total_seconds() * 1000)


def _convert_tz(millis: int, source: str, target: str) -> int:
    return millis + _offset(zone_of(target), millis) - _offset(zone_of(source), millis)


def _date_plus(sign: int) -> Callable[[str, int, int], int]:
    def plus(unit: str, interval: int, days: int) -> int:
        return integer_divide(days * MILLIS_OF_DAY + sign * _millis(unit, interval), MILLIS_OF_DAY)

    return plus


def _time_plus(sign: int) -> Callable[[str, int, int], int]:
    return lambda unit, interval, millis: (millis + sign * _millis(unit, interval)) % MILLIS_OF_DAY


def _timestamp_plus(sign: int) -> Callable[[str, int, int], int]:
    return lambda unit, interval, millis: millis + sign * _millis(unit, interval)


def _format_date(days: int, pattern: str) -> str:
    return str(
        _explained(
            f"Failed to format date {format_date(days)} with formatter '{pattern}'",
            lambda: compiled(pattern).format(days, None),
        )
    )


def _format_time(millis: int, pattern: str) -> str:
    return str(
        _explained(
            f"Failed to format time {format_time(millis)} with formatter '{pattern}'",
            lambda: compiled(pattern).format(None, millis),
        )
    )


def _format_timestamp(millis: int, pattern: str, zone: str | tzinfo = UTC) -> str:
    def formatted() -> str:
        zoned = in_zone(millis, zone_of(zone) if isinstance(zone, str) else zone)
        return compiled(pattern).format(*zoned)

    shown = f" at timeZone '{zone}'" if isinstance(zone, str) else ""
    return str(
        _explained(f"Failed to format timestamp {millis}{shown} with formatter '{pattern}'", formatted)
    )


def _parse_date(text: str, pattern: str) -> int:
    def parsed() -> int:
        fields = compiled(pattern, lenient=True).parse(text)
        if pattern_fields.time_of_fields(fields):
            raise EvaluationError("Date format contains time field.")
        return pattern_fields.day_of_fields(fields, lenient=True)

    return int(_explained(f"Failed to parse date '{text}' with formatter '{pattern}'", parsed))


def _parse_time(text: str, pattern: str) -> int:
    def parsed() -> int:
        fields = compiled(pattern).parse(text)
        if fields.keys() & set("GuyYDMdQqwWFgEec"):
            raise EvaluationError("Time format contains date field.")
        if not fields.keys() & set("HkhKAN") or (fields.keys() & set("hK") and "a" not in fields):
            raise EvaluationError("Unable to obtain LocalTime from TemporalAccessor")
        return pattern_fields.time_of_fields(fields) % MILLIS_OF_DAY

    return int(_explained(f"Failed to parse time '{text}' with formatter '{pattern}'", parsed))


def _parse_timestamp(text: str, pattern: str, zone: str | tzinfo = UTC) -> int:
    def parsed() -> int:
        fields = compiled(pattern).parse(text)
        default = zone_of(zone) if isinstance(zone, str) else zone
        days, millis = pattern_fields.day_of_fields(fields), pattern_fields.time_of_fields(fields)
        return to_millis(days, millis, pattern_fields.zone_of_fields(fields) or default)

    shown = f" at timezone '{zone}'" if isinstance(zone, str) else ""
    return int(_explained(f"Failed to parse timestamp '{text}'{shown} with formatter '{pattern}'", parsed))


def _string_to_date(text: str, pattern: str) -> int:
    def parsed() -> int:
        fields = compiled(pattern).parse(text)
        by_week = fields.keys() >= {"Y", "w"} and fields.keys() & set("ecE")
        by_day = fields.keys() & set("uy") and (fields.keys() >= {"M", "d"} or "D" in fields)
        if not by_week and not by_day:
            raise EvaluationError("Unable to obtain LocalDate from TemporalAccessor")
        return pattern_fields.day_of_fields(fields)

    return int(_explained(f"Failed to parse date '{text}' with formatter '{pattern}'", parsed))


def _today() -> int:
    return in_zone(int(time.time() * 1000), _LOCAL)[0]


_PATTERN = " The pattern is one of java.time.format.DateTimeFormatter."
_LEGACY = " Use {} instead: this one is kept for older statements."

ROWS: list[Function] = [
    scalar(
        "convert_tz",
        _TIME,
        "A timestamp moved from the clock of one time zone to that of another.",
        overload("(TIMESTAMP timestamp, VARCHAR fromTimeZone, VARCHAR toTimeZone) -> TIMESTAMP", _convert_tz),
    ),
    scalar(
        "dateadd",
        _TIME,
        "A date and a number of units later: DATEADD(DAYS, 3, d).",
        overload("(INTERVAL unit, INT interval, DATE date) -> DATE", _date_plus(1)),
    ),
    scalar(
        "datesub",
        _TIME,
        "A date and a number of units earlier.",
        overload("(INTERVAL unit, INT interval, DATE date) -> DATE", _date_plus(-1)),
    ),
    scalar(
        "datetostring",
        _TIME,
        "Days since 1970-01-01 as text." + _PATTERN + _LEGACY.format("FORMAT_DATE"),
        overload("(INT epochDays, VARCHAR formatPattern) -> VARCHAR", _format_date),
    ),
    scalar(
        "format_date",
        _TIME,
        "A date as text." + _PATTERN,
        overload("(DATE date, VARCHAR formatPattern) -> VARCHAR", _format_date),
    ),
    scalar(
        "format_time",
        _TIME,
        "A time as text." + _PATTERN,
        overload("(TIME time, VARCHAR formatPattern) -> VARCHAR", _format_time),
    ),
    scalar(
        "format_timestamp",
        _TIME,
        "A timestamp as text, in UTC or another time zone." + _PATTERN,
        overload("(TIMESTAMP timestamp, VARCHAR formatPattern) -> VARCHAR", _format_timestamp),
        overload(
            "(TIMESTAMP timestamp, VARCHAR formatPattern, VARCHAR timeZone) -> VARCHAR", _format_timestamp
        ),
    ),
    scalar(
        "from_days",
        _TIME,
        "The date a number of days after 1970-01-01.",
        overload("(INT days) -> DATE", lambda days: days),
    ),
    scalar(
        "from_unixtime",
        _TIME,
        "The timestamp a number of milliseconds after 1970-01-01T00:00 UTC.",
        overload("(BIGINT epochMilli) -> TIMESTAMP", lambda millis: millis),
    ),
    scalar(
        "parse_date",
        _TIME,
        "A date from text. The pattern is one of java.text.SimpleDateFormat.",
        overload("(VARCHAR formattedDate, VARCHAR formatPattern) -> DATE", _parse_date),
    ),
    scalar(
        "parse_time",
        _TIME,
        "A time from text." + _PATTERN,
        overload("(VARCHAR formattedTime, VARCHAR formatPattern) -> TIME", _parse_time),
    ),
    scalar(
        "parse_timestamp",
        _TIME,
        "A timestamp from text; where the text names no zone, UTC or the third argument counts." + _PATTERN,
        overload("(VARCHAR formattedTimestamp, VARCHAR formatPattern) -> TIMESTAMP", _parse_timestamp),
        overload(
            "(VARCHAR formattedTimestamp, VARCHAR formatPattern, VARCHAR timeZone) -> TIMESTAMP",
            _parse_timestamp,
        ),
    ),
    scalar(
        "stringtodate",
        _TIME,
        "Days since 1970-01-01 from text." + _PATTERN + _LEGACY.format("PARSE_DATE"),
        overload("(VARCHAR formattedDate, VARCHAR formatPattern) -> INT", _string_to_date),
    ),
    scalar(
        "stringtotimestamp",
        _TIME,
        "Milliseconds since 1970 from text; without a zone the server's counts."
        + _PATTERN
        + _LEGACY.format("PARSE_TIMESTAMP"),
        overload(
            "(VARCHAR formattedTimestamp, VARCHAR formatPattern) -> BIGINT",
            lambda text, pattern: _parse_timestamp(text, pattern, _LOCAL),
        ),
        overload(
            "(VARCHAR formattedTimestamp, VARCHAR formatPattern, VARCHAR timeZone) -> BIGINT",
            _parse_timestamp,
        ),
    ),
    scalar(
        "timeadd",
        _TIME,
        "A time and a number of units later, past midnight if need be.",
        overload("(INTERVAL unit, INT interval, TIME time) -> TIME", _time_plus(1)),
    ),
    scalar(
        "timesub",
        _TIME,
        "A time and a number of units earlier.",
        overload("(INTERVAL unit, INT interval, TIME time) -> TIME", _time_plus(-1)),
    ),
    scalar(
        "timestampadd",
        _TIME,
        "A timestamp and a number of units later.",
        overload("(INTERVAL unit, INT interval, TIMESTAMP timestamp) -> TIMESTAMP", _timestamp_plus(1)),
    ),
    scalar(
        "timestampsub",
        _TIME,
        "A timestamp and a number of units earlier.",
        overload("(INTERVAL unit, INT interval, TIMESTAMP timestamp) -> TIMESTAMP", _timestamp_plus(-1)),
    ),
    scalar(
        "timestamptostring",
        _TIME,
        "Milliseconds since 1970 as text; without a zone the server's counts."
        + _PATTERN
        + _LEGACY.format("FORMAT_TIMESTAMP"),
        overload(
            "(BIGINT epochMilli, VARCHAR formatPattern) -> VARCHAR",
            lambda millis, pattern: _format_timestamp(millis, pattern, _LOCAL),
        ),
        overload(
            "(BIGINT epochMilli, VARCHAR formatPattern, VARCHAR timeZone) -> VARCHAR", _format_timestamp
        ),
    ),
    scalar(
        "unix_date",
        _TIME,
        "Days since 1970-01-01: today's, or those of a date.",
        overload("() -> INT", lambda: _today()),
        overload("(DATE date) -> INT", wrap32),
    ),
    scalar(
        "unix_timestamp",
        _TIME,
        "Milliseconds since 1970: now, or those of a timestamp.",
        overload("() -> BIGINT", lambda: time.time_ns() // 1_000_000),
        overload("(TIMESTAMP timestamp) -> BIGINT", lambda millis: millis),
    ),
]
