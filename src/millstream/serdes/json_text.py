"""JSON as the text that it is: checked and laid out anew, but never turned into Python's values and back.

On that way duplicate keys would become one, 1.10 would become 1.1 and 1e400 infinite. Here every name, string
and number keeps the characters it was written with; only the white space between them changes. JSON is what
RFC 8259 calls so: NaN and Infinity are not.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

# A string, a bracket or a sign, or a number or word: of text that has been checked.
_LEXEME = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)


def check_json(text: str) -> str:
    """The text itself; ValueError if it is not JSON, or nested too deeply to be looked at."""
    try:
        # len: numbers are only looked at, so that Python's limit on digits is no limit here.
        json.loads(text, parse_constant=_refuse_constant, parse_int=len)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return text


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def loads(text: str) -> Any:
    """As json.loads, without NaN and Infinity, also where a number is too large for Python."""
    return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is too large a number")
    return value


def lexemes(text: str) -> Iterator[str]:
    for found in _LEXEME.finditer(text):
        yield found[0]


def minified(text: str) -> str:
    """Without white space between the lexemes."""
    return "".join(lexemes(text))


def one_line(text: str) -> str:
    """With a space after commas and colons, as json.dumps writes it."""
    return "".join(f"{lexeme} " if lexeme in (",", ":") else lexeme for lexeme in lexemes(text))


def laid_out(text: str, limit: int, indent: int = 2) -> str:
    """One member or item a line. Ends soon after `limit` characters: deep nesting makes much of little."""
    parts: list[str] = []
    length, depth, opened = 0, 0, False
    for lexeme in lexemes(text):
        if lexeme in ("}", "]"):
            depth -= 1
            piece = lexeme if opened else "\n" + " " * (indent * depth) + lexeme
            opened = False
        else:
            piece = "\n" + " " * (indent * depth) + lexeme if opened else lexeme
            opened = lexeme in ("{", "[")
            if opened:
                depth += 1
            elif lexeme == ",":
                piece += "\n" + " " * (indent * depth)
            elif lexeme == ":":
                piece += " "
        parts.append(piece)
        length += len(piece)
        if length > limit:
            break
    return "".join(parts)
