"""Functions of strings. Positions count from 1, and every character is one, whatever its size in UTF-16."""

from __future__ import annotations

import hashlib
import re
import unicodedata
import uuid
from collections.abc import Callable
from typing import Any

from millstream.sql.errors import EvaluationError
from millstream.sql.functions.table import Function, Overload, overload, scalar

_TEXT = "STRING"
_WORD = re.compile(r"[^ \t\n\x0b\f\r]+[ \t\n\x0b\f\r]*")
_ESCAPE = re.compile(r"\\(?:u+([0-9a-fA-F]{4})|([0-3]?[0-7]{1,2})|(.))", re.DOTALL)
_CONTROL = {"b": "\b", "n": "\n", "t": "\t", "f": "\f", "r": "\r"}


def _chr(code: int) -> str | None:
    return chr(code) if 0 <= code <= 0x10FFFF else None


def _unescape(found: re.Match[str]) -> str:
    if found[1]:
        return chr(int(found[1], 16))
    if found[2]:
        return chr(int(found[2], 8))
    return _CONTROL.get(found[3], found[3])


def _chr_text(code: str) -> str | None:
    if len(code) < 6 or not code.startswith("\\u"):
        return None
    unescaped = _ESCAPE.sub(_unescape, code)
    # Two escapes may be the halves of one character.
    return unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _concat(*values: str | None) -> str:
    return "".join(value for value in values if value is not None)


def _concat_bytes(*values: bytes | None) -> bytes:
    return b"".join(value for value in values if value is not None)


def _concat_ws(*values: Any) -> Any:
    if len(values) < 2:
        raise EvaluationError("Function Concat_WS expects at least two input arguments.")
    separator = values[0]
    if separator is None:
        return None
    return separator.join([value for value in values[1:] if value is not None])


def _elt(position: int, *values: str | None) -> str | None:
    if position is None:
        return None
    return values[position - 1] if 1 <= position <= len(values) else None


def _field(text: str | None, *values: str | None) -> int:
    if text is None or text not in values:
        return 0
    return values.index(text) + 1


def _initcap(text: str) -> str:
    return "".join(word[0].upper() + word[1:] for word in _WORD.findall(text.lower()))


def _instr(text: str | None, part: str | None, position: int = 1, occurrence: int = 1) -> int | None:
    if position is None or occurrence is None:
        return None
    if text is None or part is None or not 1 <= abs(position) <= len(text) or occurrence < 1:
        return 0
    backwards = position < 0
    if backwards:
        text, part = text[::-1], part[::-1]
    start = at = abs(position) - 1
    # Nothing is found everywhere: its first occurrence counts for all.
    for _ in range(occurrence if part else 1):
        at = text.find(part, start)
        if at < 0:
            return 0
        start = at + 1
    return len(text) - at - len(part) + 1 if backwards else at + 1


def _pad(left: bool) -> Callable[[Any, Any, Any], Any]:
    def padded(value: Any, length: int | None, padding: Any) -> Any:
        if value is None or length is None or length < 0 or not padding:
            return None
        missing = max(length - len(value), 0)
        filling = (padding * (missing // len(padding) + 1))[:missing]
        return (filling + value if left else value + filling)[:length]

    return padded


class _Masker:
    """Which character stands for which kind; None leaves the kind as it is."""

    def __init__(
        self,
        upper: str | None = "X",
        lower: str | None = "x",
        digit: str | None = "n",
        other: str | None = "-",
    ) -> None:
        for mask in (upper, lower, digit, other):
            if mask is not None and len(mask) != 1:
                raise EvaluationError(
                    f"Invalid mask character. Must be only single character, but was '{mask}'"
                )
        self._masks = {"Lu": upper, "Ll": lower, "Nd": digit}
        self._other = other

    def mask(self, text: str) -> str:
        masks, other = self._masks, self._other
        return "".join(masks.get(unicodedata.category(each), other) or each for each in text)


def _mask(text: str | None, *masks: str | None) -> str | None:
    masker = _Masker(*masks)
    return None if text is None else masker.mask(text)


def _masking(name: str, parts: Callable[[str, int, _Masker], str]) -> Callable[..., str | None]:
    def masked(text: str | None, count: int, *masks: str | None) -> str | None:
        masker = _Masker(*masks)
        if count is None:
            return None
        if count < 0:
            raise EvaluationError(
                f"function {name} requires a non-negative number of characters to mask or skip"
            )
        return None if text is None else parts(text, count, masker)

    return masked


def _split_at(text: str, count: int) -> tuple[str, str]:
    """The last `count` characters apart from the rest."""
    at = max(0, len(text) - count)
    return text[:at], text[at:]


def _mask_right(text: str, count: int, masker: _Masker) -> str:
    head, tail = _split_at(text, count)
    return head + masker.mask(tail)


def _mask_keep_right(text: str, count: int, masker: _Masker) -> str:
    head, tail = _split_at(text, count)
    return masker.mask(head) + tail


def _split(text: str, delimiter: str) -> list[str]:
    if delimiter:
        return text.split(delimiter)
    return list(text) or [""]


def _split_bytes(value: bytes, delimiter: bytes) -> list[bytes]:
    if not value:
        return [value]
    return value.split(delimiter) if delimiter else [value[at : at + 1] for at in range(len(value))]


def _split_to_map(text: str, entries: str, pairs: str) -> dict[str, str] | None:
    if not entries or not pairs or entries == pairs:
        return None
    found: dict[str, str] = {}
    for entry in text.split(entries):
        key, there, rest = entry.partition(pairs)
        if there:
            found[key] = rest.partition(pairs)[0]
    return found


def _substring(value: Any, position: int, length: int | None = None) -> Any:
    start = max(len(value) + position, 0) if position < 0 else min(max(position - 1, 0), len(value))
    return value[start:] if length is None else value[start : max(start + length, start)]


def _trim(text: str) -> str:
    """Everything up to the space counts as white, as in Java's trim."""
    start, end = 0, len(text)
    while start < end and text[start] <= " ":
        start += 1
    while start < end and text[end - 1] <= " ":
        end -= 1
    return text[start:end]


def _uuid_of(value: bytes) -> str | None:
    return str(uuid.UUID(bytes=value)) if len(value) == 16 else None


def _mask_overloads(call: Callable[..., Any], count: str = "") -> tuple[Overload, ...]:
    first = f"VARCHAR input{count}"
    return (
        overload(f"({first}) -> VARCHAR", call, own_nulls=True),
        overload(
            f"({first}, VARCHAR upper, VARCHAR lower, VARCHAR digit, VARCHAR other) -> VARCHAR",
            call,
            own_nulls=True,
        ),
    )


_MASKS = (
    " Upper-case letters become X, lower-case ones x, digits n, all else -; "
    "NULL for one of the masks leaves that kind as it is."
)

ROWS: list[Function] = [
    scalar(
        "Chr",
        _TEXT,
        "The character of a code point, or of an escape such as \\u004b.",
        overload("(INT decimalCode) -> VARCHAR", _chr),
        overload("(VARCHAR utf16Code) -> VARCHAR", _chr_text),
    ),
    scalar(
        "concat",
        _TEXT,
        "The arguments one after the other; null counts as empty.",
        overload("(VARCHAR... inputs) -> VARCHAR", _concat, own_nulls=True),
        overload("(BYTES... inputs) -> BYTES", _concat_bytes, own_nulls=True),
    ),
    scalar(
        "concat_ws",
        _TEXT,
        "The arguments after the first, with the first between them; null is left out.",
        overload("(VARCHAR... inputs) -> VARCHAR", _concat_ws, own_nulls=True),
        overload("(BYTES... inputs) -> BYTES", _concat_ws, own_nulls=True),
    ),
    scalar(
        "elt",
        _TEXT,
        "The n-th of the strings, from 1; null if there is none.",
        overload("(INT n, VARCHAR... args) -> VARCHAR", _elt, own_nulls=True),
    ),
    scalar(
        "field",
        _TEXT,
        "The place of the first string among the others, from 1; 0 if it is not there.",
        overload("(VARCHAR str, VARCHAR... args) -> INT", _field, own_nulls=True),
    ),
    scalar(
        "initcap",
        _TEXT,
        "Each word with a capital and the rest in lower case.",
        overload("(VARCHAR str) -> VARCHAR", _initcap),
    ),
    scalar(
        "instr",
        _TEXT,
        "The position of a part in a string, from 1; 0 if it is not there. The search starts at `position`, "
        "from the end if that is negative, and finds the given occurrence.",
        overload("(VARCHAR str, VARCHAR substring) -> INT", _instr, own_nulls=True),
        overload("(VARCHAR str, VARCHAR substring, INT position) -> INT", _instr, own_nulls=True),
        overload(
            "(VARCHAR str, VARCHAR substring, INT position, INT occurrence) -> INT", _instr, own_nulls=True
        ),
    ),
    scalar("lcase", _TEXT, "The string in lower case.", overload("(VARCHAR input) -> VARCHAR", str.lower)),
    scalar(
        "LPad",
        _TEXT,
        "The value with padding before it up to a length, or cut to it; null if the padding is empty.",
        overload("(VARCHAR input, INT targetLen, VARCHAR padding) -> VARCHAR", _pad(True), own_nulls=True),
        overload("(BYTES input, INT targetLen, BYTES padding) -> BYTES", _pad(True), own_nulls=True),
    ),
    scalar(
        "len",
        _TEXT,
        "The length of a string or of bytes.",
        overload("(VARCHAR input) -> INT", len),
        overload("(BYTES input) -> INT", len),
    ),
    scalar(
        "md5",
        _TEXT,
        "The MD5 of a string, in hex.",
        overload(
            "(VARCHAR s) -> VARCHAR",
            lambda text: hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(),
        ),
    ),
    scalar("mask", _TEXT, "The string with every character masked." + _MASKS, *_mask_overloads(_mask)),
    scalar(
        "mask_keep_left",
        _TEXT,
        "The string masked but for its first characters." + _MASKS,
        *_mask_overloads(
            _masking("mask_keep_left", lambda text, count, masker: text[:count] + masker.mask(text[count:])),
            ", INT numChars",
        ),
    ),
    scalar(
        "mask_keep_right",
        _TEXT,
        "The string masked but for its last characters." + _MASKS,
        *_mask_overloads(_masking("mask_keep_right", _mask_keep_right), ", INT numChars"),
    ),
    scalar(
        "mask_left",
        _TEXT,
        "The string with its first characters masked." + _MASKS,
        *_mask_overloads(
            _masking("mask_left", lambda text, count, masker: masker.mask(text[:count]) + text[count:]),
            ", INT numChars",
        ),
    ),
    scalar(
        "mask_right",
        _TEXT,
        "The string with its last characters masked." + _MASKS,
        *_mask_overloads(_masking("mask_right", _mask_right), ", INT numChars"),
    ),
    scalar(
        "RPad",
        _TEXT,
        "The value with padding behind it up to a length, or cut to it; null if the padding is empty.",
        overload("(VARCHAR input, INT targetLen, VARCHAR padding) -> VARCHAR", _pad(False), own_nulls=True),
        overload("(BYTES input, INT targetLen, BYTES padding) -> BYTES", _pad(False), own_nulls=True),
    ),
    scalar(
        "replace",
        _TEXT,
        "The string with each occurrence of a part replaced.",
        overload("(VARCHAR str, VARCHAR oldStr, VARCHAR newStr) -> VARCHAR", str.replace),
    ),
    scalar(
        "split",
        _TEXT,
        "The pieces between the delimiters; with an empty delimiter, all characters.",
        overload("(VARCHAR string, VARCHAR delimiter) -> ARRAY<VARCHAR>", _split),
        overload("(BYTES bytes, BYTES delimiter) -> ARRAY<BYTES>", _split_bytes),
    ),
    scalar(
        "split_to_map",
        _TEXT,
        "Keys and values of a string like `a=1,b=2`; the last value of a key counts.",
        overload(
            "(VARCHAR input, VARCHAR entryDelimiter, VARCHAR kvDelimiter) -> MAP<VARCHAR, VARCHAR>",
            _split_to_map,
        ),
    ),
    scalar(
        "substring",
        _TEXT,
        "The part from a position, counted from 1, or from the end if it is negative.",
        overload("(VARCHAR str, INT pos) -> VARCHAR", _substring),
        overload("(VARCHAR str, INT pos, INT length) -> VARCHAR", _substring),
        overload("(BYTES bytes, INT pos) -> BYTES", _substring),
        overload("(BYTES bytes, INT pos, INT length) -> BYTES", _substring),
    ),
    scalar(
        "trim",
        _TEXT,
        "The string without white space at its ends.",
        overload("(VARCHAR input) -> VARCHAR", _trim),
    ),
    scalar("ucase", _TEXT, "The string in upper case.", overload("(VARCHAR input) -> VARCHAR", str.upper)),
    scalar(
        "UUID",
        _TEXT,
        "A random UUID, or the one of 16 bytes.",
        overload("() -> VARCHAR", lambda: str(uuid.uuid4())),
        overload("(BYTES bytes) -> VARCHAR", _uuid_of),
    ),
]
