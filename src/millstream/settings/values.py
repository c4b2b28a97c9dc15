"""One value of one setting: from text to a typed value, checked, and back to the text that Kafka would show.

Text is trimmed first, whatever the type. What a type becomes in Python:

    boolean           bool; the text is true or false in any case
    int, short, long  int, within the range of Java's type
    double            float
    string, class     str
    list              tuple of str: split at commas, each item trimmed; empty text is the empty tuple
    password          Password, which does not show its value when printed

A refused value raises `InvalidSetting`, worded as Kafka words it because clients show that text to people and
scripts look for it. A setting whose default is absent has the value None.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol

from millstream.settings.redaction import HIDDEN, hide_url_passwords


class Type(IntEnum):
    """The type of a setting; the numbers are those of the DescribeConfigs response."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Password:
    """A secret. Printing, logging or formatting it shows a placeholder; `.value` is the secret itself."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)


Value = bool | int | float | str | tuple[str, ...] | Password | None


class InvalidSetting(ValueError):
    """A setting cannot have this value, or there is no such setting, or it cannot be changed here."""

    def __init__(self, name: str, value: str | None, reason: str, message: str | None = None) -> None:
        self.name = name
        self.value = value
        self.reason = reason
        self.message = message or hide_url_passwords(
            f"Invalid value {value} for configuration {name}: {reason}"
        )
        super().__init__(self.message)


class Check(Protocol):
    """A rule for a typed value. Called, it raises InvalidSetting; `str()` of it is one phrase for the
    documentation."""

    def __call__(self, name: str, value: Value) -> None: ...


class Range(NamedTuple):
    """At least `low`, at most `high`, both included; `also` is one more value that is fine."""

    low: float | None = None
    high: float | None = None
    also: int | None = None

    def __call__(self, name: str, value: Value) -> None:
        assert isinstance(value, int | float)
        if value == self.also:
            return
        below = self.low is not None and value < self.low
        above = self.high is not None and value > self.high
        if not below and not above:
            return
        if self.also is not None:
            reason = f"Value must be between {self.low} and {self.high} or equal to {self.also}"
        elif below:
            reason = f"Value must be at least {self.low}"
        else:
            reason = f"Value must be no more than {self.high}"
        raise InvalidSetting(name, str(value), reason)

    def __str__(self) -> str:
        low = "" if self.low is None else str(self.low)
        high = "" if self.high is None else str(self.high)
        if not high:
            text = f"{low} or more"
        elif not low:
            text = f"{high} or less"
        else:
            text = f"{low} to {high}"
        return text if self.also is None else f"{text}, or {self.also}"


class NotZero:
    """A time: negative for no limit, else at least 1."""

    def __call__(self, name: str, value: Value) -> None:
        if value == 0:
            raise InvalidSetting(name, "0", "Value must be unlimited (-1) or at least 1")

    def __str__(self) -> str:
        return "1 or more, or -1"


class OneOf(NamedTuple):
    """One of a few strings."""

    allowed: tuple[str, ...]
    any_case: bool = False

    def __call__(self, name: str, value: Value) -> None:
        assert isinstance(value, str)
        if value in self.allowed or (self.any_case and value.upper() in self.allowed):
            return
        how = " (case insensitive)" if self.any_case else ""
        raise InvalidSetting(name, value, f"String must be one of{how}: {', '.join(self.allowed)}")

    def __str__(self) -> str:
        return ", ".join(self.allowed)


class Items(NamedTuple):
    """A list without empty items, without doubles unless allowed, of `allowed` ones only where these are
    given."""

    allowed: tuple[str, ...] = ()
    may_be_empty: bool = True
    may_repeat: bool = False

    def __call__(self, name: str, value: Value) -> None:
        assert isinstance(value, tuple)
        text = ",".join(value)
        if not value and not self.may_be_empty:
            raise InvalidSetting(name, text, "The list must not be empty")
        for item in value:
            if self.allowed and item not in self.allowed:
                raise InvalidSetting(name, item, f"String must be one of: {', '.join(self.allowed)}")
            if not item:
                raise InvalidSetting(name, text, "The list must not have empty items")
        if not self.may_repeat and len(set(value)) != len(value):
            raise InvalidSetting(name, text, "The list must not name anything twice")

    def __str__(self) -> str:
        what = "any of " + ", ".join(self.allowed) if self.allowed else ""
        return what if self.may_be_empty else f"{what}, not empty".removeprefix(", ")


class ThrottledReplicas:
    """`*`, or partition:broker pairs."""

    def __call__(self, name: str, value: Value) -> None:
        assert isinstance(value, tuple)
        if value == ("*",) or all(_is_pair(item) for item in value):
            return
        shape = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        reason = f"{name} must be the literal '*' or a list of replicas in the following format: {shape}"
        raise InvalidSetting(name, f"[{', '.join(value)}]", reason)

    def __str__(self) -> str:
        return "* or partition:broker pairs"


class HostLimits:
    """A text of host:number pairs, comma separated."""

    def __call__(self, name: str, value: Value) -> None:
        assert isinstance(value, str)
        host_limits(name, value)

    def __str__(self) -> str:
        return "host:number pairs, comma separated"


def host_limits(name: str, text: str) -> dict[str, int]:
    """`127.0.0.1:5,[::1]:7` as a dict from host to number."""
    limits: dict[str, int] = {}
    for pair in split(text):
        host, _, number = pair.rpartition(":")
        if not host or not _is_digits(number) or len(number) > 10:
            raise InvalidSetting(name, text, f"Expected host:number, not {pair!r}")
        limits[host.strip("[]")] = int(number)
    return limits


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _is_pair(text: str) -> bool:
    left, colon, right = text.partition(":")
    return bool(colon) and _is_digits(left) and _is_digits(right)


def split(text: str) -> tuple[str, ...]:
    """Comma separated text as a tuple of trimmed items."""
    text = text.strip()
    return tuple(item.strip() for item in text.split(",")) if text else ()


_BITS = {Type.SHORT: 15, Type.INT: 31, Type.LONG: 63}


def parse(name: str, config_type: Type, text: str) -> Value:
    """The typed value of a text. The type decides what is possible, a `Check` what is allowed."""
    trimmed = text.strip()
    bits = _BITS.get(config_type)
    if bits is not None:
        digits = trimmed[1:] if trimmed[:1] in ("+", "-") else trimmed
        # 20 characters hold any 64-bit number.
        if not _is_digits(digits) or len(digits) > 20 or not -(1 << bits) <= int(trimmed) < (1 << bits):
            raise InvalidSetting(name, text, f"Not a number of type {config_type.name}")
        return int(trimmed)
    if config_type is Type.BOOLEAN:
        lower = trimmed.lower()
        if lower not in ("true", "false"):
            raise InvalidSetting(name, text, "Expected value to be either true or false")
        return lower == "true"
    if config_type is Type.LIST:
        return split(trimmed)
    if config_type is Type.DOUBLE:
        if not trimmed or not set(trimmed) <= set("0123456789+-.eE"):
            raise InvalidSetting(name, text, "Not a number of type DOUBLE")
        try:
            return float(trimmed)
        except ValueError:
            raise InvalidSetting(name, text, "Not a number of type DOUBLE") from None
    if config_type is Type.PASSWORD:
        return Password(trimmed)
    return trimmed


def to_text(value: Value) -> str | None:
    """A typed value as the text that DescribeConfigs shows; None for an absent or secret value."""
    if value is None or isinstance(value, Password):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return _java_double(value)
    return str(value)


def _java_double(value: float) -> str:
    """Java writes 0.001 to 10^7 in plain digits and the rest as 1.0E7."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = f"{value!r}".partition("e")
    if not exponent:
        # Python writes up to 10^16 plainly: find the shortest scientific form that reads back the same.
        digits = next(count for count in range(18) if float(f"{value:.{count}e}") == value)
        mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
    if "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}E{int(exponent)}"
