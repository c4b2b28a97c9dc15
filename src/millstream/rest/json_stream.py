"""Objects out of a stream of JSON values that follow each other, as they arrive: {...}{...}, or one a
line."""

import codecs
import json
from typing import Any

_scan = json.JSONDecoder().raw_decode
_SPACE = " \t\r\n"
NEAR = 16  # characters from the end within which an error may only mean that the rest has not come yet


class BadStream(ValueError):
    """What came is no JSON, or more of it than one value may have. `found` is what came before."""

    def __init__(self, message: str, found: list[Any]) -> None:
        super().__init__(message)
        self.found = found


class JsonStream:
    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._text = codecs.getincrementaldecoder("utf-8")()
        self._rest = ""

    def feed(self, data: bytes, *, last: bool = False) -> list[Any]:
        """The values that are complete now. BadStream where there is damage."""
        found: list[Any] = []
        try:
            self._rest += self._text.decode(data, last)
        except UnicodeDecodeError as error:
            raise BadStream(f"not UTF-8: {error.reason}", found) from None
        rest, at = self._rest, 0
        # A long value that has not ended yet is not tried again with every part of it: objects end with a
        # brace.
        tries = last or b"}" in data or not rest.lstrip(_SPACE).startswith("{")
        while tries:
            while at < len(rest) and rest[at] in _SPACE:
                at += 1
            if at == len(rest):
                break
            try:
                value, end = _scan(rest, at)
            except json.JSONDecodeError as error:
                unfinished = error.msg.startswith("Unterminated") or error.pos >= len(rest) - NEAR
                if last or not unfinished:
                    raise BadStream(str(error), found) from None
                break
            except RecursionError:
                raise BadStream("nested too deeply", found) from None
            if end == len(rest) and not last and isinstance(value, int | float):
                break  # the number may go on
            found.append(value)
            at = end
        self._rest = rest[at:]
        if len(self._rest) > self._largest:
            raise BadStream(f"a record is larger than {self._largest} bytes", found)
        return found
