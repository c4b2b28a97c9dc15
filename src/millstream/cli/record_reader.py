"""Lines of text into records, by the rules (and property names) of Kafka's console producer.

    parse.key, key.separator                        the key is what comes before the separator (a tab)
    parse.headers, headers.delimiter                headers come first, up to the delimiter (a tab)
    headers.separator, headers.key.separator        `h1:v1,h2:v2`
    null.marker                                     a key, value or header value equal to it is null
    ignore.error                                    a line without separator is a value as it stands

Lines stay bytes: what is typed is what is sent, whatever its encoding.
"""

from collections.abc import Mapping
from typing import NamedTuple

from millstream.cli.errors import CommandFailed, UsageError

KNOWN = (
    "parse.key",
    "parse.headers",
    "ignore.error",
    "key.separator",
    "headers.delimiter",
    "headers.separator",
    "headers.key.separator",
    "null.marker",
)


class ParsedRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class LineMessageReader:
    """Turns one line after the other into key, value and headers. Counts lines for its error messages."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        for name in properties:
            if name not in KNOWN and name != "topic":
                raise UsageError(
                    f"--reader-property {name}: there is no such property; there are {', '.join(KNOWN)}"
                )
        self._parse_key = _is_true(properties.get("parse.key"))
        self._parse_headers = _is_true(properties.get("parse.headers"))
        self._ignore_error = _is_true(properties.get("ignore.error"))
        self._key_separator = properties.get("key.separator", "\t").encode()
        self._headers_delimiter = properties.get("headers.delimiter", "\t").encode()
        self._headers_separator = properties.get("headers.separator", ",").encode()
        self._headers_key_separator = properties.get("headers.key.separator", ":").encode()
        marker = properties.get("null.marker")
        self._null = None if marker is None else marker.encode()
        self._check_separators()
        self._number = 0

    def _check_separators(self) -> None:
        used = {
            "key.separator": self._key_separator,
            "headers.delimiter": self._headers_delimiter,
            "headers.separator": self._headers_separator,
            "headers.key.separator": self._headers_key_separator,
        }
        for name, value in used.items():
            if not value:
                raise UsageError(f"{name} must not be empty")
            if value == self._null:
                raise UsageError(f"null.marker and {name} may not be equal")
        header = ("headers.delimiter", "headers.separator", "headers.key.separator")
        for first, second in ((0, 1), (0, 2), (1, 2)):
            if used[header[first]] == used[header[second]]:
                raise UsageError(f"{header[first]} and {header[second]} may not be equal")

    def parse(self, line: bytes) -> ParsedRecord:
        self._number += 1
        at = 0
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if self._parse_headers:
            end = self._find(line, self._headers_delimiter, 0, "headers delimiter")
            if end is not None:
                if line[:end] != self._null:
                    headers = self._split_headers(line[:end])
                at = end + len(self._headers_delimiter)
        key: bytes | None = None
        if self._parse_key:
            end = self._find(line, self._key_separator, at, "key separator")
            if end is not None:
                key = self._nullable(line[at:end])
                at = end + len(self._key_separator)
        return ParsedRecord(key, self._nullable(line[at:]), headers)

    def _find(self, line: bytes, separator: bytes, start: int, name: str) -> int | None:
        found = line.find(separator, start)
        if found >= 0:
            return found
        if self._ignore_error:
            return None
        text = line.decode("utf-8", "replace")
        raise CommandFailed(f"No {name} found on line number {self._number}: '{text}'")

    def _split_headers(self, text: bytes) -> tuple[tuple[str, bytes | None], ...]:
        found: list[tuple[str, bytes | None]] = []
        pairs = text.split(self._headers_separator)
        while len(pairs) > 1 and not pairs[-1]:
            pairs.pop()  # separators at the end separate nothing
        if len(pairs) == 1 and text and not pairs[0]:
            return ()
        for pair in pairs:
            name, separator, value = pair.partition(self._headers_key_separator)
            if not separator:
                if not self._ignore_error:
                    shown = pair.decode("utf-8", "replace")
                    raise CommandFailed(
                        f"No header key separator found in pair '{shown}' on line number {self._number}"
                    )
                found.append((_text(pair), None))
                continue
            if name == self._null:
                raise CommandFailed(
                    f"A header name equals the null marker on line number {self._number}: it cannot be null"
                )
            found.append((_text(name), self._nullable(value)))
        return tuple(found)

    def _nullable(self, data: bytes) -> bytes | None:
        return None if self._null is not None and data == self._null else data


def _is_true(text: str | None) -> bool:
    return text is not None and text.strip().lower() == "true"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
