"""Metrics as a client pushes them, written by hand: `metrics_data(gauge("lag", 7.0, topic="orders"))`."""

from __future__ import annotations

import struct


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def number(field_number: int, value: int) -> bytes:
    return varint(field_number << 3) + varint(value)


def attribute(key: str, value: str | bool | int | float) -> bytes:
    if isinstance(value, str):
        content = field(1, value.encode())
    elif isinstance(value, bool):
        content = number(2, int(value))
    elif isinstance(value, int):
        content = number(3, value)
    else:
        content = varint(4 << 3 | 1) + struct.pack("<d", value)
    return field(1, key.encode()) + field(2, content)


def gauge(name: str, value: float, **attributes: str | bool | int | float) -> bytes:
    point = varint(4 << 3 | 1) + struct.pack("<d", value)
    point += b"".join(field(7, attribute(key, text)) for key, text in attributes.items())
    return field(1, name.encode()) + field(5, field(1, point))


def sum_of(name: str, value: int, *, delta: bool) -> bytes:
    point = field(1, varint(6 << 3 | 1) + struct.pack("<q", value))
    return field(1, name.encode()) + field(7, point + number(2, 1 if delta else 2) + number(3, 1))


def metrics_data(*metrics: bytes, resource: dict[str, str] | None = None) -> bytes:
    about = b"".join(field(1, attribute(key, text)) for key, text in (resource or {}).items())
    scope = b"".join(field(2, metric) for metric in metrics)
    return field(1, field(1, about) + field(2, scope))
