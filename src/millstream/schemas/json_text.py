"""JSON in and out the way Java's registry writes it, so that the same schema gives the same text in both.

Compact, non-ASCII characters as they are, keys in the order given; a number with a fraction or an exponent is
written as Java writes a double (`1.0E10`, not `10000000000.0`). NaN and Infinity, which Python's parser
takes, are not JSON.
"""

import json
import re
from typing import Any

MAX_DEPTH = 400  # nesting; a deeper text is refused before it can exhaust the stack


class _Double(float):
    """A number that was not written as an integer."""


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_decoder = json.JSONDecoder(parse_float=_Double, parse_constant=_refuse_constant)


def loads(text: str) -> Any:
    """Parse; ValueError for whatever is not JSON."""
    try:
        value, end = _decoder.raw_decode(text, len(text) - len(text.lstrip()))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if text[end:].strip():
        raise ValueError(f"extra data at character {end}")
    check_depth(value)
    return value


def check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return
    raise ValueError("nested too deeply")


def in_order(value: Any) -> Any:
    """The same JSON with the keys of every object in order."""
    if isinstance(value, dict):
        return {key: in_order(value[key]) for key in sorted(value)}
    return [in_order(item) for item in value] if isinstance(value, list) else value


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
_PERHAPS_A_DOUBLE = re.compile(r"\d\.\d|\de[-+]?\d|Infinity|NaN")


def dumps(value: Any) -> str:
    quick = _encode(value)
    if _PERHAPS_A_DOUBLE.search(quick) is None:
        return quick
    out: list[str] = []
    _write(value, out)
    return "".join(out)


_quote = json.JSONEncoder(ensure_ascii=False).encode


def _write(value: Any, out: list[str]) -> None:
    if isinstance(value, str):
        out.append(_quote(value))
    elif value is None or isinstance(value, bool | int):
        out.append(json.dumps(value))
    elif isinstance(value, float):
        out.append(java_double(value))
    elif isinstance(value, dict):
        before = "{"
        for key, child in value.items():
            out.append(f"{before}{_quote(key)}:")
            _write(child, out)
            before = ","
        out.append("}" if value else "{}")
    else:
        before = "["
        for child in value:
            out.append(before)
            _write(child, out)
            before = ","
        out.append("]" if value else "[]")


def java_double(number: float) -> str:
    """A double as Java's Double.toString gives it."""
    text = float.__repr__(number)
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        if "e" in text:  # 0.001 is written out by both, but Python switches at 1e-4 only
            text = f"{number:.20f}".rstrip("0")
        return text
    sign = "-" if number < 0 else ""
    mantissa, _, exponent = float.__repr__(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    shift = int(exponent or 0) + len(whole) - 1
    if whole == "0":
        shift = int(exponent or 0) - (len(fraction) - len(fraction.lstrip("0")) + 1)
    digits = digits.rstrip("0") or "0"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{shift}"
