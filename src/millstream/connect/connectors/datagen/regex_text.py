"""Texts that match a regular expression, made up at random."""

from __future__ import annotations

import re
import re._constants as sre  # type: ignore[import-not-found]
import re._parser as sre_parser  # type: ignore[import-not-found]
from collections.abc import Callable
from random import Random
from typing import Any

from millstream.connect.config.config_def import ConfigError

Make = Callable[[Random], str]

MAX_REPEATS = 16
"""Of `*`, `+` and other repetitions without an end."""
_PRINTABLE = [chr(code) for code in range(32, 127)]
_DIGITS = [chr(code) for code in range(48, 58)]
_WORD = [char for char in _PRINTABLE if char.isalnum() or char == "_"]
_SPACE = [" ", "\t"]
_CATEGORIES = {
    sre.CATEGORY_DIGIT: _DIGITS,
    sre.CATEGORY_WORD: _WORD,
    sre.CATEGORY_SPACE: _SPACE,
    sre.CATEGORY_NOT_DIGIT: [char for char in _PRINTABLE if char not in _DIGITS],
    sre.CATEGORY_NOT_WORD: [char for char in _PRINTABLE if char not in _WORD],
    sre.CATEGORY_NOT_SPACE: [char for char in _PRINTABLE if char != " "],
}


def text_by_regex(pattern: str) -> Make:
    try:
        return _sequence(sre_parser.parse(pattern))
    except re.error as error:
        raise ConfigError(f"not a regular expression: {pattern}: {error}") from None


def _sequence(items: Any) -> Make:
    parts = [_item(kind, what) for kind, what in items]
    return lambda random: "".join(part(random) for part in parts)


def _item(kind: Any, what: Any) -> Make:
    if kind is sre.LITERAL:
        text = chr(what)
        return lambda _: text
    if kind in (sre.ANY, sre.IN, sre.NOT_LITERAL):
        chars = _chars(kind, what)
        return lambda random: random.choice(chars)
    if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        low, high, inner = what
        high = low + MAX_REPEATS if high is sre.MAXREPEAT else high
        part = _sequence(inner)
        return lambda random: "".join(part(random) for _ in range(random.randint(low, high)))
    if kind is sre.BRANCH:
        choices = [_sequence(one) for one in what[1]]
        return lambda random: random.choice(choices)(random)
    if kind is sre.SUBPATTERN:
        return _sequence(what[-1])
    if kind is sre.AT:
        return lambda _: ""
    raise ConfigError(f"a regular expression with {str(kind).lower()} cannot be made up")


def _chars(kind: Any, what: Any) -> list[str]:
    if kind is sre.ANY:
        return _PRINTABLE
    if kind is sre.NOT_LITERAL:
        return [char for char in _PRINTABLE if ord(char) != what]
    negated, chars = False, []
    for part, value in what:
        if part is sre.NEGATE:
            negated = True
        elif part is sre.LITERAL:
            chars.append(chr(value))
        elif part is sre.RANGE:
            chars += [chr(code) for code in range(value[0], value[1] + 1)]
        else:
            chars += _CATEGORIES[value]
    return [char for char in _PRINTABLE if char not in chars] if negated else chars
