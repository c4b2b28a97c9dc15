"""Java's .properties format, in which server.properties is written.

A line is `key=value`; a colon or blanks may stand for the equals sign. Lines that begin with # or ! are
comments. A backslash at the end joins the next line, whose leading blanks go. A backslash before anything
else takes it literally, but for t, n, r, f, and u with four hex digits. A key that comes twice has its last
value. Blanks after a value belong to it; every setting's value is trimmed later anyway.

Files are read as UTF-8, or as Latin-1 (Java's rule) where they are not valid UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterator

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class BadProperties(ValueError):
    """The text is not in .properties format; the message names the line."""


def read_properties(path: str) -> dict[str, str]:
    with open(path, "rb") as file:
        data = file.read()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    try:
        return parse_properties(text)
    except BadProperties as error:
        raise BadProperties(f"{path}: {error}") from None


def parse_properties(text: str) -> dict[str, str]:
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        end = _end_of_key(line)
        rest = line[end:].lstrip(_BLANKS)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANKS)
        properties[_unescape(line[:end], number)] = _unescape(rest, number)
    return properties


def parse_assignment(text: str) -> tuple[str, str]:
    """`key=value` as given on a command line."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise BadProperties(f"expected key=value, not {text!r}")
    return name.strip(), value.strip()


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(line number, text) of each entry, continuations joined, comments and empty lines left out."""
    joined, first, continued = "", 0, False
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = line.lstrip(_BLANKS)
        if not continued:
            if not line or line[0] in "#!":
                continue
            joined, first = "", number
        backslashes = len(line) - len(line.rstrip("\\"))
        continued = backslashes % 2 == 1
        joined += line[:-1] if continued else line
        if not joined:
            continued = False  # nothing but a backslash: Java begins anew, so that a comment may follow
        elif not continued:
            yield first, joined
    if continued:
        yield first, joined


def _end_of_key(line: str) -> int:
    escaped = False
    for position, character in enumerate(line):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character in "=: \t\f":
            return position
    return len(line)


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text
    out = []
    characters = iter(text)
    for character in characters:
        if character == "\\":
            character = next(characters, "")
            if character == "u":
                digits = "".join(next(characters, "") for _ in range(4))
                if len(digits) != 4 or not set(digits) <= set("0123456789abcdefABCDEF"):
                    raise BadProperties(f"line {number}: \\u needs four hex digits")
                character = chr(int(digits, 16))
            else:
                character = _ESCAPES.get(character, character)
        out.append(character)
    return "".join(out)
