"""Java's regular expressions: patterns are nearly the same as Python's, replacements ($1) are not.

They come from whoever may write a connector's settings, and `(a+)+b` takes for ever to find that a name of
thirty letters does not match. In Java that costs its own thread; here it would stop the whole worker, since
Python matches without giving up the interpreter's lock. So RE2 matches, in linear time, what it understands:
all but look-around, references to groups, possessive quantifiers and a few spellings that it reads in another
way. Those are left to Python's own module.
"""

from __future__ import annotations

import re
from typing import Any, cast

from millstream.connect.config.config_def import ConfigError
from millstream.patterns import InvalidPattern, compile_with_groups

_GROUP = re.compile(r"\\(.)|\$(\d+)|\$\{(\w+)\}", re.DOTALL)
# Parts of a pattern that Java and Python write differently. Java's (?<name>...) is a look-behind to Python
# where it begins with = or !.
_PART = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)|\\(?P<negated>[pP])\{(?:Is)?(?P<set>\w+)\}|(?P<end>\\z)|\\."
    r"|(?P<named>\(\?<(?![=!]))|(?P<opens>\[\^?\]?)|(?P<closes>\])",
    re.DOTALL,
)
_SETS = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": r" \t\n\x0b\f\r",
}

# Repetitions from nothing, POSIX classes, escapes by number: Python and RE2 differ about them.
_READ_OTHERWISE = re.compile(r"\{,|\[:|\\[0-9]")
_ESCAPED = re.compile(r"\\.", re.DOTALL)


class ValidRegex:
    def __call__(self, name: str, value: Any) -> None:
        if value is None:
            raise ConfigError.of(name, value, "Invalid regex: there is none")
        try:
            compile_regex(value)
        except re.error as error:
            raise ConfigError.of(name, value, f"Invalid regex: {error}") from None

    def __str__(self) -> str:
        return "valid regex"


def compile_regex(pattern: str) -> re.Pattern[str]:
    """With Java's classes: `\\w`, `\\d` and `\\s` are ASCII there, and so are POSIX's (`\\p{Alpha}`). RE2's
    patterns have the methods of Python's."""
    depth = 0

    def translated(part: re.Match[str]) -> str:
        nonlocal depth
        if part["quoted"] is not None:
            return re.escape(part["quoted"])
        if part["set"] is not None:
            return _set_of(part, inside=depth > 0)
        if part["end"]:
            return r"\Z"
        if part["named"] and not depth:
            return "(?P<"
        if part["opens"] and not depth:
            depth = 1
        elif part["closes"]:
            depth = 0
        return part.group()

    text = _PART.sub(translated, pattern)
    try:
        compiled = re.compile(text, re.ASCII)
    except (RecursionError, OverflowError):
        raise re.error("it is nested too deeply, or repeats too often") from None
    if _READ_OTHERWISE.search(text) is None:
        try:
            ends = _ESCAPED.sub(lambda escaped: r"\z" if escaped[0] == r"\Z" else escaped[0], text)
            return cast("re.Pattern[str]", compile_with_groups(ends))
        except InvalidPattern:
            pass
    return compiled


def _set_of(part: re.Match[str], *, inside: bool) -> str:
    members, negated = _SETS.get(part["set"]), part["negated"] == "P"
    if members is None or (inside and negated):
        raise re.error(f"{part.group()} is not supported here", part.string, part.start())
    if inside:
        return members
    return f"[{'^' if negated else ''}{members}]"


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
