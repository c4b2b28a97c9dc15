"""Decoded values as JSON, for people and for programs that take text."""

import base64
import datetime
import decimal
import json
import math
import uuid
from typing import Any


def to_json(value: Any) -> str:
    """One line of JSON, for people. Bytes that are text are shown as text, others in base64; dates, decimals,
    NaN and Infinity as text."""
    try:
        return json.dumps(value, ensure_ascii=False, default=_plain, allow_nan=False)
    except ValueError:  # JSON has no NaN
        return json.dumps(_finite(value), ensure_ascii=False, default=_plain)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return base64.b64encode(data).decode("ascii")
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID):
        return str(value)
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return str(value)
