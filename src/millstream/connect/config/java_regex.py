"""Java's regular expressions by Python's: patterns are nearly the same, replacements ($1) are not."""

from __future__ import annotations

import re
from typing import Any

from millstream.connect.config.config_def import ConfigError

_GROUP = re.compile(r"\\(.)|\$(\d+)|\$\{(\w+)\}", re.DOTALL)
# Java writes named groups as (?<name>...), which is a look-behind to Python where it begins with = or !.
_NAMED = re.compile(r"\(\?<(?![=!])")


class ValidRegex:
    def __call__(self, name: str, value: Any) -> None:
        try:
            compile_regex(value)
        except (re.error, TypeError) as error:
            raise ConfigError.of(name, value, f"Invalid regex: {error}") from None

    def __str__(self) -> str:
        return "valid regex"


def compile_regex(pattern: str) -> re.Pattern[str]:
    return re.compile(_NAMED.sub("(?P<", pattern))


def replace_first(pattern: re.Pattern[str], replacement: str, text: str) -> str:
    """`Matcher.replaceFirst`."""
    found = pattern.search(text)
    if found is None:
        return text

    def group(reference: re.Match[str]) -> str:
        escaped, number, name = reference.groups()
        if escaped is not None:
            return escaped
        return (found.group(_existing_group(pattern, number)) if number else found.group(name)) or ""

    # $12 is group 1 and a 2 where there are fewer than twelve groups.
    expanded = _GROUP.sub(group, _split_numbers(pattern, replacement))
    return text[: found.start()] + expanded + text[found.end() :]


def _existing_group(pattern: re.Pattern[str], number: str) -> int:
    if int(number) > pattern.groups:
        raise ConfigError(f"No group {number} in {pattern.pattern}")
    return int(number)


def _split_numbers(pattern: re.Pattern[str], replacement: str) -> str:
    def shorten(reference: re.Match[str]) -> str:
        digits = reference.group(1)
        length = len(digits)
        while length > 1 and int(digits[:length]) > pattern.groups:
            length -= 1
        rest = "".join(f"\\{digit}" for digit in digits[length:])
        return f"${digits[:length]}{rest}"

    return re.sub(r"(?<!\\)\$(\d+)", shorten, replacement)
