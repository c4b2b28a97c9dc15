"""Times by the patterns of java.time.format.DateTimeFormatter, in English.

A pattern is compiled once: into a list of printers, and into a regular expression with what to do for each
group. Letters: G u y Y D M L d Q q w W F g E e c a h K k H m s S A n N V z O X x Z, p (padding), quotes, and
[optional] parts. Left out: B (times of the day) and v, which are refused by name.

Reading is as strict as Java's: `MM` takes two digits, `M` any number; names are read in any case. `lenient`
reads as SimpleDateFormat does, which PARSE_DATE uses: any number of digits, and the 32nd of January is the
1st of February.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

from millstream.sql.errors import EvaluationError
from millstream.sql.times import MILLIS_OF_DAY, date_of, days_of
from millstream.sql.zones import FULL_ZONE_NAMES, full_zone_name

MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_PIECES = re.compile(r"([A-Za-z])\1*|'((?:[^']|'')*)'|[^A-Za-z']", re.DOTALL)
_DATE_LETTERS, _TIME_LETTERS, _ZONE_LETTERS = set("GuyYDMLdQqwWFgEec"), set("ahKkHmsSAnN"), set("VzOXxZ")
_WIDEST = 19


@dataclass(frozen=True)
class _Letters:
    """`padding` is the width that the letters p in front ask for."""

    letter: str
    count: int
    padding: int = 0


@dataclass(frozen=True)
class _Optional:
    parts: tuple[_Part, ...]


_Part = str | _Letters | _Optional


def _parse_pattern(pattern: str) -> tuple[_Part, ...]:
    stack: list[list[_Part]] = [[]]
    at = padding = 0
    while at < len(pattern):
        found = _PIECES.match(pattern, at)
        if found is None:
            raise EvaluationError(f"Pattern ends with an incomplete string literal: {pattern}")
        at = found.end()
        text = found[0]
        if padding and not (found[1] and found[1] != "p"):
            break
        if found[1] == "p":
            padding = len(text)
        elif found[1]:
            stack[-1].append(_Letters(found[1], len(text), padding))
            padding = 0
        elif text.startswith("'"):
            stack[-1].append(found[2].replace("''", "'") or "'")
        elif text == "[":
            stack.append([])
        elif text == "]":
            if len(stack) == 1:
                raise EvaluationError("Pattern invalid as it contains ] without previous [")
            inner = tuple(stack.pop())
            stack[-1].append(_Optional(inner))
        elif text in "{}#":
            raise EvaluationError(f"Pattern includes reserved character: '{text}'")
        else:
            stack[-1].append(text)
    if padding:
        raise EvaluationError(f"Pad letter 'p' must be followed by valid pad pattern: {pattern}")
    while len(stack) > 1:
        inner = tuple(stack.pop())
        stack[-1].append(_Optional(inner))
    return tuple(stack[0])


def _letters(parts: tuple[_Part, ...]) -> set[str]:
    found: set[str] = set()
    for part in parts:
        if isinstance(part, _Letters):
            found.add(part.letter)
        elif isinstance(part, _Optional):
            found |= _letters(part.parts)
    return found


# Printing. A printer is given the days since 1970, the milliseconds of the day, and the zoned datetime (or
# None).
_Printer = Callable[[int, int, datetime | None], str]


def _number(count: int, value: Callable[[int, int], int]) -> _Printer:
    return lambda days, millis, zoned: str(value(days, millis)).zfill(count)


def _year_printer(count: int) -> _Printer:
    if count == 2:
        return lambda days, millis, zoned: f"{date_of(days).year % 100:02}"
    return lambda days, millis, zoned: str(date_of(days).year).zfill(count)


def _week_year(days: int) -> tuple[int, int]:
    """Year and week as in the US: weeks begin on Sunday, and the one with 1 January is the first."""
    day = date_of(days)
    sunday = days - (day.weekday() + 1) % 7
    for year in (day.year + 1, day.year, day.year - 1):
        first = days_of(year, 1, 1)
        start = first - (date_of(first).weekday() + 1) % 7
        if sunday >= start:
            return year, (sunday - start) // 7 + 1
    raise AssertionError("every day is in a week")


def _name_printer(count: int, names: tuple[str, ...], index: Callable[[int], int]) -> _Printer:
    length = {4: None, 5: 1}.get(count, 3)
    return lambda days, millis, zoned: names[index(days)][:length]


def _offset_text(zoned: datetime | None, letter: str, count: int) -> str:
    assert zoned is not None
    offset = zoned.utcoffset() or timedelta(0)
    seconds = int(offset.total_seconds())
    if seconds == 0 and (letter == "X" or (letter == "Z" and count == 5)):
        return "Z"
    sign, seconds = "-" if seconds < 0 else "+", abs(seconds)
    hours, minutes, rest = seconds // 3600, seconds // 60 % 60, seconds % 60
    if letter == "O" or (letter == "Z" and count == 4):
        if count == 4:
            return f"GMT{sign}{hours:02}:{minutes:02}" if seconds else "GMT"
        return "GMT" + (f"{sign}{hours}" + (f":{minutes:02}" if minutes else "") if seconds else "")
    style = {"Z": {5: 5}.get(count, 2)}.get(letter, count)
    text = f"{sign}{hours:02}"
    if style == 1:
        return text + (f"{minutes:02}" if minutes else "")
    colon = ":" if style in (3, 5) else ""
    return text + f"{colon}{minutes:02}" + (f"{colon}{rest:02}" if style >= 4 and rest else "")


def _zone_text(zoned: datetime | None, letter: str, count: int) -> str:
    assert zoned is not None and zoned.tzinfo is not None
    key = getattr(zoned.tzinfo, "key", None)
    if letter == "V" and key:
        return str(key)
    if not key and zoned.utcoffset():
        return _offset_text(zoned, "X", 5)
    name = zoned.tzname() or ""
    if count < 4:
        return name
    return full_zone_name(key, name, summer=bool(zoned.dst()))


_QUARTERS = ("1st quarter", "2nd quarter", "3rd quarter", "4th quarter")


def _printer(part: _Letters) -> _Printer:
    letter, count = part.letter, part.count
    if (letter == "a" and count > 1) or (letter in "MLEecQqGz" and count > 5):
        raise EvaluationError(f"Too many pattern letters: {letter}")
    if letter in "uy":
        return _year_printer(count)
    if letter == "Y":
        return lambda days, millis, zoned: (
            f"{_week_year(days)[0] % 100:02}" if count == 2 else str(_week_year(days)[0]).zfill(count)
        )
    if letter in "ML" and count >= 3:
        return _name_printer(count, MONTHS, lambda days: date_of(days).month - 1)
    if letter == "E" or (letter in "ec" and count >= 3):
        return _name_printer(count, WEEKDAYS, lambda days: date_of(days).weekday())
    if letter == "G":
        return lambda days, millis, zoned: {4: "Anno Domini", 5: "A"}.get(count, "AD")
    if letter == "a":
        return lambda days, millis, zoned: "AM" if millis < MILLIS_OF_DAY // 2 else "PM"
    if letter == "S":
        return lambda days, millis, zoned: f"{millis % 1000:03}000000"[:count].ljust(count, "0")
    if letter in "Qq":
        quarter = _number(count, lambda days, millis: (date_of(days).month - 1) // 3 + 1)
        if count < 3:
            return quarter
        if count == 4:
            return lambda days, millis, zoned: _QUARTERS[(date_of(days).month - 1) // 3]
        return lambda days, millis, zoned: f"Q{(date_of(days).month - 1) // 3 + 1}"
    if letter in "OXxZ":
        return lambda days, millis, zoned: _offset_text(zoned, letter, count)
    if letter in "Vz":
        return lambda days, millis, zoned: _zone_text(zoned, letter, count)
    value = _NUMBERS.get(letter)
    if value is None:
        raise EvaluationError(f"Unknown pattern letter: {letter}")
    if count > {"D": 3, "W": 1, "F": 1}.get(letter, 2) and letter not in "AnNg":
        raise EvaluationError(f"Too many pattern letters: {letter}")
    return _number(count, value)


_NUMBERS: dict[str, Callable[[int, int], int]] = {
    "M": lambda days, millis: date_of(days).month,
    "L": lambda days, millis: date_of(days).month,
    "d": lambda days, millis: date_of(days).day,
    "D": lambda days, millis: date_of(days).timetuple().tm_yday,
    "w": lambda days, millis: _week_year(days)[1],
    "W": lambda days, millis: (date_of(days).day + 5 - (date_of(days).weekday() + 1) % 7) // 7 + 1,
    "F": lambda days, millis: (date_of(days).day - 1) % 7 + 1,
    "g": lambda days, millis: days + 40_587,
    "e": lambda days, millis: (date_of(days).weekday() + 1) % 7 + 1,
    "c": lambda days, millis: (date_of(days).weekday() + 1) % 7 + 1,
    "H": lambda days, millis: millis // 3_600_000,
    "k": lambda days, millis: millis // 3_600_000 or 24,
    "h": lambda days, millis: millis // 3_600_000 % 12 or 12,
    "K": lambda days, millis: millis // 3_600_000 % 12,
    "m": lambda days, millis: millis // 60_000 % 60,
    "s": lambda days, millis: millis // 1000 % 60,
    "A": lambda days, millis: millis,
    "n": lambda days, millis: millis % 1000 * 1_000_000,
    "N": lambda days, millis: millis * 1_000_000,
}


def _sequence(parts: tuple[_Part, ...]) -> Callable[[int, int, datetime | None, set[str]], str]:
    """One printer for all parts. It is told which letters have no value."""
    made = [_part_printer(part) for part in parts]
    return lambda days, millis, zoned, missing: "".join(
        [printer(days, millis, zoned, missing) for printer in made]
    )


def _part_printer(part: _Part) -> Callable[[int, int, datetime | None, set[str]], str]:
    if isinstance(part, _Optional):
        letters, inner = _letters(part.parts), _sequence(part.parts)
        return lambda days, millis, zoned, missing: (
            "" if letters & missing else inner(days, millis, zoned, missing)
        )
    if isinstance(part, _Letters):
        letter, padding, printer = part.letter, part.padding, _printer(part)

        def printed(days: int, millis: int, zoned: datetime | None, missing: set[str]) -> str:
            if letter in missing:
                raise EvaluationError(f"Unsupported field: {letter}")
            text = printer(days, millis, zoned)
            if padding and len(text) > padding:
                raise EvaluationError(
                    f"Cannot print as output of {len(text)} characters exceeds pad width of {padding}"
                )
            return text.rjust(padding)

        return printed
    return lambda days, millis, zoned, missing: part


def _names_regex(names: tuple[str, ...], count: int) -> str:
    return "|".join(names if count == 4 else [name[:3] for name in names])


def _number_regex(count: int, lenient: bool, max_digits: int = _WIDEST) -> str:
    return r"\d+" if lenient else rf"\d{{{count}}}" if count > 1 else rf"\d{{1,{max_digits}}}"


def _letter_regex(part: _Letters, lenient: bool, digit_follows: bool) -> str:
    """The regular expression of one field. A number before another number has the width of its letters."""
    letter, count = part.letter, part.count
    if letter in "ML" and count >= 3:
        return "|".join((*MONTHS, *(name[:3] for name in MONTHS))) if lenient else _names_regex(MONTHS, count)
    if letter == "E" or (letter in "ec" and count >= 3):
        return (
            "|".join((*WEEKDAYS, *(name[:3] for name in WEEKDAYS)))
            if lenient
            else _names_regex(WEEKDAYS, count)
        )
    if letter == "G":
        return {4: "Anno Domini|Before Christ"}.get(count, "AD|BC")
    if letter == "a":
        return "AM|PM"
    if letter in "Vz":
        names = "|".join(map(re.escape, FULL_ZONE_NAMES)) + "|" if letter == "z" else ""
        return names + r"[A-Za-z][A-Za-z0-9_+\-/:]*|[+-]\d\d(?::?\d\d)?"
    if letter in "Qq" and count >= 3:
        return "Q[1-4]" if count == 3 else "|".join(_QUARTERS)
    if letter == "Z" and count == 4:
        return r"GMT(?:[+-]\d\d:\d\d)?"
    if letter in "XxZ":
        zulu = "Z|" if letter == "X" or (letter == "Z" and count == 5) or lenient else ""
        if count == 1 and letter != "Z":
            return rf"{zulu}[+-]\d\d(?:\d\d)?"
        colon = ":" if count in (3, 5) else ":?" if lenient else ""
        return rf"{zulu}[+-]\d\d{colon}\d\d(?:{colon}\d\d)?"
    if letter == "O":
        return r"GMT(?:[+-]\d{1,2}(?::?\d\d)?)?"
    if letter == "S" and not lenient:
        return rf"\d{{{count}}}"
    if letter in "uyY" and not lenient:
        return {1: r"[+-]?\d{1,19}", 2: r"\d\d", 3: r"\d{3,19}"}.get(
            count, rf"-?\d{{{count}}}|[+-]\d{{{count + 1},}}"
        )
    if letter not in _NUMBERS and letter not in "uyYSQq":
        raise EvaluationError(f"Unknown pattern letter: {letter}")
    if lenient and digit_follows:
        return rf"\d{{{count}}}"
    return _number_regex(count, lenient)


class Pattern:
    """A compiled pattern; `compiled` keeps them."""

    def __init__(self, pattern: str, lenient: bool = False) -> None:
        self._parts = _parse_pattern(pattern)
        self._lenient = lenient
        self.letters = _letters(self._parts)
        self._print = _sequence(self._parts) if not lenient else _sequence(())
        self._fields: list[_Letters] = []
        self._regex = re.compile(self._make_regex(self._parts), re.IGNORECASE | re.ASCII)

    def _make_regex(self, parts: tuple[_Part, ...]) -> str:
        made = ""
        for at, part in enumerate(parts):
            if isinstance(part, _Letters):
                follower = parts[at + 1] if at + 1 < len(parts) else None
                self._fields.append(part)
                digits = isinstance(follower, _Letters) and follower.letter in "uyYDMdHhKkmsSw"
                padding = rf" {{0,{part.padding - 1}}}" if part.padding else ""
                made += f"{padding}({_letter_regex(part, self._lenient, digits)})"
            elif isinstance(part, _Optional):
                made += f"(?:{self._make_regex(part.parts)})?"
            elif self._lenient and part.isspace():
                made += r"\s*"
            else:
                made += re.escape(part)
        return made

    def format(self, days: int | None, millis: int | None, zoned: datetime | None = None) -> str:
        """The text of a date, a time, or both with a zone; what is missing cannot be printed."""
        missing = (
            (_DATE_LETTERS if days is None else set())
            | (_TIME_LETTERS if millis is None else set())
            | (_ZONE_LETTERS if zoned is None else set())
        )
        return self._print(days or 0, millis or 0, zoned, missing)

    def parse(self, text: str) -> dict[str, str]:
        """What was read for each letter."""
        if self._lenient:
            text = text.lstrip()
        found = self._regex.match(text) if self._lenient else self._regex.fullmatch(text)
        if found is None:
            raise EvaluationError(f"Text '{text}' could not be parsed at index 0")
        fields: dict[str, str] = {}
        for part, value in zip(self._fields, found.groups(), strict=True):
            if value is None:
                continue
            key = part.letter
            if part.letter in "uyY" and part.count == 2 and len(value) == 2:
                value = _two_digit_year(value, self._lenient)
            if part.letter == "L":
                key = "M"
            fields[key] = value
        return fields


def _two_digit_year(value: str, lenient: bool) -> str:
    """2000 to 2099; SimpleDateFormat takes the century within 80 years before and 20 after now."""
    year = 2000 + int(value)
    if lenient and year > time.gmtime().tm_year + 20:
        year -= 100
    return str(year)


@lru_cache(maxsize=1000)
def compiled(pattern: str, lenient: bool = False) -> Pattern:
    return Pattern(pattern, lenient)


def to_millis(days: int, millis: int, zone: tzinfo) -> int:
    """The moment at which the clocks of a zone show a date and a time."""
    shown = days * MILLIS_OF_DAY + millis
    if zone is UTC:
        return shown
    local = datetime(1970, 1, 1) + timedelta(milliseconds=shown)
    offset = zone.utcoffset(local.replace(tzinfo=zone)) or timedelta(0)
    return shown - int(offset.total_seconds() * 1000)


def in_zone(millis: int, zone: tzinfo) -> tuple[int, int, datetime]:
    """Date and time that the clocks of a zone show at a moment."""
    try:
        zoned = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)).astimezone(zone)
    except OverflowError:
        raise EvaluationError(f"the timestamp {millis} is out of range") from None
    offset = zoned.utcoffset() or timedelta(0)
    days, rest = divmod(millis + int(offset.total_seconds() * 1000), MILLIS_OF_DAY)
    return days, rest, zoned
