"""Functions of regular expressions.

Patterns are Java's. They run in RE2, whose time is linear in the text: look-around and back-references are
refused, as the documentation says.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import re2

from millstream.sql.errors import EvaluationError
from millstream.sql.functions.table import Function, overload, scalar

_REGEX = "REGULAR EXPRESSION"
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_REFERENCE = re.compile(r"\\(.)|\$(?:(\d)(\d*)|\{([A-Za-z][A-Za-z0-9]*)\})|\$", re.DOTALL)
# Java's possessive quantifiers match at least what greedy ones do where there is no backtracking to see.
_POSSESSIVE = re.compile(r"(?<!\\)([*+?}])\+")
_NAMED = re.compile(r"\(\?<([A-Za-z][A-Za-z0-9]*)>")


@lru_cache(maxsize=512)
def compiled(pattern: str) -> Any:
    try:
        return re2.compile(_NAMED.sub(r"(?P<\1>", _POSSESSIVE.sub(r"\1", pattern)), options=_OPTIONS)
    except re2.error as error:
        raise EvaluationError(f"Invalid regular expression pattern: {pattern} ({error})") from None


def _extract(pattern: str, text: str, group: int = 0) -> str | None:
    regex = compiled(pattern)
    if group > regex.groups:
        return None
    found = regex.search(text)
    return None if found is None else found.group(group)


def _extract_all(pattern: str, text: str, group: int = 0) -> list[str | None] | None:
    regex = compiled(pattern)
    if group > regex.groups:
        return None
    return [found.group(group) for found in regex.finditer(text)]


def _replace(text: str, pattern: str, replacement: str) -> str:
    regex = compiled(pattern)

    def expanded(found: Any) -> str:
        def referred(reference: re.Match[str]) -> str:
            if reference[1] is not None:
                return reference[1]
            if reference[4]:
                return found.group(reference[4]) or ""
            if reference[2] is None:
                raise EvaluationError("Illegal group reference")
            number, rest = int(reference[2]), reference[3]
            if number > regex.groups:
                raise EvaluationError(f"No group {number}")
            # More digits belong to the number as long as there is such a group.
            while rest and number * 10 + int(rest[0]) <= regex.groups:
                number, rest = number * 10 + int(rest[0]), rest[1:]
            return (found.group(number) or "") + rest

        return _REFERENCE.sub(referred, replacement)

    return "".join(_pieces(regex, text, expanded))


def _pieces(regex: Any, text: str, expanded: Any) -> list[str]:
    pieces: list[str] = []
    end = 0
    for found in regex.finditer(text):
        pieces += (text[end : found.start()], expanded(found))
        end = found.end()
    pieces.append(text[end:])
    return pieces


def _split(text: str, pattern: str) -> list[str]:
    regex = compiled(pattern)
    matches_nothing = regex.fullmatch("") is not None
    pieces: list[str] = []
    end = 0
    for found in regex.finditer(text):
        # A match of nothing splits between characters, but not at the ends.
        if found.start() == found.end() and (found.start() == 0 or found.start() == len(text)):
            continue
        pieces.append(text[end : found.start()])
        end = found.end()
    pieces.append(text[end:])
    if matches_nothing:
        while len(pieces) > 1 and not pieces[-1]:
            pieces.pop()
    return pieces


ROWS: list[Function] = [
    scalar(
        "regexp_extract",
        _REGEX,
        "The first part of a string that matches, or one group of it; null if nothing does.",
        overload("(VARCHAR pattern, VARCHAR input) -> VARCHAR", _extract),
        overload("(VARCHAR pattern, VARCHAR input, INT group) -> VARCHAR", _extract),
    ),
    scalar(
        "regexp_extract_all",
        _REGEX,
        "All parts of a string that match, or one group of each.",
        overload("(VARCHAR pattern, VARCHAR input) -> ARRAY<VARCHAR>", _extract_all),
        overload("(VARCHAR pattern, VARCHAR input, INT group) -> ARRAY<VARCHAR>", _extract_all),
    ),
    scalar(
        "regexp_replace",
        _REGEX,
        "The string with each match replaced; $1 in the replacement is the first group.",
        overload("(VARCHAR str, VARCHAR regexp, VARCHAR newStr) -> VARCHAR", _replace),
    ),
    scalar(
        "regexp_split_to_array",
        _REGEX,
        "The pieces of a string between the matches.",
        overload("(VARCHAR string, VARCHAR regexp) -> ARRAY<VARCHAR>", _split),
    ),
]
