"""Java's SimpleDateFormat, in UTC and English: formats and parses moments by a pattern.

The pattern's letters are Java's; between single quotes stands text. Parsing is lenient as in Java: numbers
may have more or fewer digits than letters, a 13th month is the next January, and what follows the pattern is
ignored. Where two numbers touch, each takes as many digits as it has letters.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from millstream.connect.data.logical import EPOCH, from_millis, to_millis

_LETTERS = "GyMLdEHhkKmsSaDFwWuzZXY"
_NUMERIC = "ydHhkKmsSDFwWuY"
_MONTHS: tuple[str, ...] = ("January", "February", "March", "April", "May", "June", "July", "August")
_MONTHS = (*_MONTHS, "September", "October", "November", "December")
_DAYS: tuple[str, ...] = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_OFFSET = r"(?P<sign>[+-])(?P<hours>\d\d)"
# RFC 822 (`z` and `Z`), and ISO 8601 by the number of letters: what one takes, the others do not.
_ZONE = re.compile(
    _OFFSET + r"(?P<minutes>\d\d)|GMT[+-]\d{1,2}:\d\d|UTC|GMT|UT|Coordinated Universal Time", re.IGNORECASE
)
_ISO_ZONES = {
    1: re.compile(f"{_OFFSET}(?P<minutes>)|Z"),
    2: re.compile(f"{_OFFSET}(?P<minutes>\\d\\d)|Z"),
    3: re.compile(f"{_OFFSET}:(?P<minutes>\\d\\d)|Z"),
}


class _Part(NamedTuple):
    letter: str  # "" for text
    width: int
    text: str = ""

    @property
    def numeric(self) -> bool:
        return self.letter in _NUMERIC if self.letter not in ("M", "L") else self.width <= 2


class SimpleDateFormat:
    def __init__(self, pattern: str) -> None:
        """ValueError where Java refuses the pattern."""
        self.pattern = pattern
        self._parts = _split(pattern)

    def format(self, moment: datetime) -> str:
        return "".join(part.text if not part.letter else _format(part, moment) for part in self._parts)

    def parse(self, text: str) -> datetime:
        """ValueError where the text does not begin with what the pattern says."""
        at = 0
        found: dict[str, int] = {}
        for index, part in enumerate(self._parts):
            if not part.letter:
                if not text.startswith(part.text, at):
                    raise ValueError(text)
                at += len(part.text)
                continue
            following = self._parts[index + 1] if index + 1 < len(self._parts) else None
            abutting = part.numeric and following is not None and bool(following.letter) and following.numeric
            at = _parse(part, text, at, found, abutting)
        return _moment(found)


def _split(pattern: str) -> list[_Part]:
    parts: list[_Part] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "'":
            text, at = _quoted(pattern, at)
            parts.append(_Part("", 0, text))
        elif char.isascii() and char.isalpha():
            if char not in _LETTERS:
                raise ValueError(f"Illegal pattern character '{char}'")
            end = at
            while end < len(pattern) and pattern[end] == char:
                end += 1
            if char == "X" and end - at > 3:
                raise ValueError(f"invalid ISO 8601 format: length={end - at}")
            parts.append(_Part(char, end - at))
            at = end
        else:
            parts.append(_Part("", 0, char))
            at += 1
    return parts


def _quoted(pattern: str, at: int) -> tuple[str, int]:
    if pattern.startswith("''", at):
        return "'", at + 2
    end, text = at + 1, ""
    while end < len(pattern):
        if pattern.startswith("''", end):
            text, end = text + "'", end + 2
        elif pattern[end] == "'":
            return text, end + 1
        else:
            text, end = text + pattern[end], end + 1
    raise ValueError("Unterminated quote")


# --- formatting ---------------------------------------------------------------------------------------------


def _format(part: _Part, moment: datetime) -> str:
    letter, width = part.letter, part.width
    if letter in ("M", "L"):
        name = _MONTHS[moment.month - 1]
        return name if width >= 4 else name[:3] if width == 3 else f"{moment.month:0{width}d}"
    if letter == "E":
        name = _DAYS[moment.weekday()]
        return name if width >= 4 else name[:3]
    if letter == "a":
        return "AM" if moment.hour < 12 else "PM"
    if letter == "G":
        return "AD"
    if letter in ("y", "Y"):
        year = moment.year if letter == "y" else _week_year(moment)
        return f"{year % 100:02d}" if width == 2 else f"{year:0{width}d}"
    if letter == "z":
        return "Coordinated Universal Time" if width >= 4 else "UTC"
    if letter == "Z":
        return "+0000"
    if letter == "X":
        return "Z"
    return f"{_number(letter, moment):0{width}d}"


def _number(letter: str, moment: datetime) -> int:
    if letter == "D":
        return moment.timetuple().tm_yday
    if letter == "w":
        return _week_of_year(moment)
    sunday_first = moment.isoweekday() % 7
    return {
        "d": moment.day,
        "H": moment.hour,
        "k": moment.hour or 24,
        "K": moment.hour % 12,
        "h": moment.hour % 12 or 12,
        "m": moment.minute,
        "s": moment.second,
        "S": moment.microsecond // 1000,
        "F": (moment.day - 1) // 7 + 1,
        "u": moment.isoweekday(),
        "W": (moment.day + (sunday_first - moment.day + 1) % 7 - 1) // 7 + 1,
    }[letter]


def _first_week(year: int) -> datetime:
    """Weeks begin on Sunday, and the first one has January 1st, as in Java's English locale."""
    first = datetime(year, 1, 1, tzinfo=UTC)
    return first - timedelta(days=first.isoweekday() % 7)


def _week_year(moment: datetime) -> int:
    following = moment.year + 1
    return following if following <= 9999 and moment >= _first_week(following) else moment.year


def _week_of_year(moment: datetime) -> int:
    return (moment - _first_week(_week_year(moment))).days // 7 + 1


# --- parsing ------------------------------------------------------------------------------------------------


def _parse(part: _Part, text: str, at: int, found: dict[str, int], abutting: bool) -> int:
    while at < len(text) and text[at] in " \t":
        at += 1
    letter, width = part.letter, part.width
    if letter in ("M", "L") and width >= 3:
        found["M"], at = _name(_MONTHS, text, at)
        return at
    if letter == "E":
        found["E"], at = _name(_DAYS, text, at)
        return at
    if letter == "a":
        found["a"], at = _name(("AM", "PM"), text, at)
        return at
    if letter == "G":
        found["G"], at = _name(("AD", "BC"), text, at)
        return at
    if letter in "zZX":
        return _parse_zone(_ISO_ZONES[width] if letter == "X" else _ZONE, text, at, found)
    end = at + 1 if text[at : at + 1] == "-" and not abutting else at
    while (
        end < len(text)
        and text[end].isdigit()
        and text[end].isascii()
        and not (abutting and end - at == width)
    ):
        end += 1
    digits = text[at:end]
    if not digits.lstrip("-"):
        raise ValueError(text)
    number = int(digits)
    if letter in ("y", "Y") and width <= 2 and len(digits) == 2:
        number = _full_year(number)
    found["M" if letter == "L" else letter] = number
    return end


def _name(names: tuple[str, ...], text: str, at: int) -> tuple[int, int]:
    """The number of a name, from 1, whole or by its first three letters."""
    rest = text[at:].lower()
    for length in (None, 3):
        for number, name in enumerate(names, 1):
            if rest.startswith(name[:length].lower()):
                return number, at + len(name[:length])
    raise ValueError(text)


def _parse_zone(form: re.Pattern[str], text: str, at: int, found: dict[str, int]) -> int:
    zone = form.match(text, at)
    if zone is None:
        raise ValueError(text)
    sign, hours, minutes = (zone["sign"], zone["hours"], zone["minutes"]) if zone["sign"] else ("", "0", "0")
    if int(hours) > 23 or int(minutes or 0) > 59:
        raise ValueError(text)
    offset = int(hours) * 60 + int(minutes or 0)
    found["zone"] = -offset if sign == "-" else offset
    return zone.end()


def _full_year(two_digits: int) -> int:
    """Within 80 years before and 20 years after now."""
    now = datetime.now(UTC)
    century_start = now.replace(year=now.year - 80, day=min(now.day, 28))
    year = century_start.year // 100 * 100 + two_digits
    return year if year >= century_start.year else year + 100


def _moment(found: dict[str, int]) -> datetime:
    """Added up, so that what is too large runs over into the next field."""
    year, month = found.get("y", found.get("Y", 1970)), found.get("M", 1) - 1
    if found.get("G") == 2:
        year = 1 - year
    start = _start_of_month(year + month // 12, month % 12 + 1)
    if "D" in found and "M" not in found:
        start = _start_of_month(year, 1)
        days = found["D"] - 1
    else:
        days = found.get("d", 1) - 1
    hours = found.get("H", 0 if found.get("k", 24) == 24 else found["k"])
    if "H" not in found and "k" not in found and ("h" in found or "K" in found):
        hours = (found["h"] % 12 if "h" in found else found["K"]) + (12 if found.get("a") == 2 else 0)
    elif "a" in found and "H" not in found and "k" not in found:
        hours = 12 if found["a"] == 2 else 0
    minutes = found.get("m", 0) - found.get("zone", 0)
    millis = ((days * 24 + hours) * 60 + minutes) * 60_000 + found.get("s", 0) * 1000 + found.get("S", 0)
    return from_millis(start + millis)


def _start_of_month(year: int, month: int) -> int:
    try:
        return to_millis(EPOCH.replace(year=year, month=month))
    except ValueError:
        raise ValueError(f"year {year}") from None
