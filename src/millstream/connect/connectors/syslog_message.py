"""Syslog messages: RFC 5424, RFC 3164, and how they stand in a stream (RFC 6587)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from millstream.connect.data import logical
from millstream.connect.data.schema import OPTIONAL, REQUIRED, Schema, Type, map_schema, struct_schema
from millstream.connect.data.struct import Struct

MAX_MESSAGE_BYTES = 1 << 20
_TEXT = OPTIONAL[Type.STRING]
MESSAGE: Schema = struct_schema(
    [
        ("date", logical.TIMESTAMP_SCHEMA.replace(optional=True)),
        ("facility", OPTIONAL[Type.INT32]),
        ("severity", OPTIONAL[Type.INT32]),
        ("level", OPTIONAL[Type.INT32]),
        ("version", OPTIONAL[Type.INT32]),
        ("type", REQUIRED[Type.STRING]),
        ("host", _TEXT),
        ("tag", _TEXT),
        ("appName", _TEXT),
        ("processId", _TEXT),
        ("messageId", _TEXT),
        (
            "structuredData",
            map_schema(
                REQUIRED[Type.STRING],
                map_schema(REQUIRED[Type.STRING], REQUIRED[Type.STRING]),
                optional=True,
            ),
        ),
        ("message", _TEXT),
        ("rawMessage", REQUIRED[Type.STRING]),
        ("remoteAddress", _TEXT),
    ],
    name="millstream.connect.Syslog",
)
"""`type` is RFC5424, RFC3164 or UNKNOWN; of the last, only rawMessage says something."""

_PRI = re.compile(r"<(\d{1,3})>")
_5424 = re.compile(r"(\d{1,2}) (\S+) (\S+) (\S+) (\S+) (\S+) ?", re.ASCII)
_3164 = re.compile(
    r"([A-Z][a-z]{2}) ([ \d]\d) (\d\d):(\d\d):(\d\d) (\S+) (?:([^\s:\[]{1,64})(?:\[([^\]]{1,128})\])?: ?)?",
    re.ASCII,
)
_ELEMENT = re.compile(r"\[([^\s=\]\"]{1,64})((?: [^\s=\]\"]{1,64}=\"(?:[^\"\\\]]|\\.)*\")*)\]")
_PARAMETER = re.compile(r" ([^\s=\]\"]{1,64})=\"((?:[^\"\\\]]|\\.)*)\"")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def parse(data: bytes, remote: str | None, now: datetime) -> Struct:
    """Anything is a message; what is not understood is kept as it came."""
    raw = data.decode("utf-8", "replace").rstrip("\r\n\x00")
    fields: dict[str, Any] = {"type": "UNKNOWN", "rawMessage": raw, "remoteAddress": remote}
    priority = _PRI.match(raw)
    if priority is not None and int(priority[1]) < 192:
        rest = raw[priority.end() :]
        fields |= {"facility": int(priority[1]) >> 3, "severity": int(priority[1]) & 7}
        fields["level"] = fields["severity"]
        fields |= _rfc5424(rest) or _rfc3164(rest, now) or {"message": rest}
    return Struct(MESSAGE, [fields.get(field.name) for field in MESSAGE.fields])


def _rfc5424(rest: str) -> dict[str, Any] | None:
    head = _5424.match(rest)
    if head is None:
        return None
    version, moment, host, application, process, message_id = head.groups()
    date = _iso(moment)
    if date is None and moment != "-":
        return None
    after, structured = _structured(rest[head.end() :])
    if after is None:
        return None
    return {
        "type": "RFC5424",
        "version": int(version),
        "date": date,
        "host": _or_none(host),
        "appName": _or_none(application),
        "tag": _or_none(application),
        "processId": _or_none(process),
        "messageId": _or_none(message_id),
        "structuredData": structured,
        "message": after.removeprefix(" ").removeprefix("\ufeff"),
    }


def _structured(text: str) -> tuple[str | None, dict[str, dict[str, str]] | None]:
    """What follows the structured data, and the data. None for the first where it is malformed."""
    if text.startswith("-"):
        return text[1:], None
    found: dict[str, dict[str, str]] = {}
    while (element := _ELEMENT.match(text)) is not None:
        pairs = _PARAMETER.findall(element[2])
        found[element[1]] = {name: re.sub(r'\\(["\\\]])', r"\1", value) for name, value in pairs}
        text = text[element.end() :]
    return (text, found) if found else (None, None)


def _rfc3164(rest: str, now: datetime) -> dict[str, Any] | None:
    head = _3164.match(rest)
    if head is None or head[1] not in _MONTHS:
        return None
    clock = (int(head[3]), int(head[4]), min(int(head[5]), 59))
    date = _without_year(_MONTHS.index(head[1]) + 1, int(head[2]), clock, now)
    if date is None:
        return None
    return {
        "type": "RFC3164",
        "date": date,
        "host": head[6],
        "tag": head[7],
        "appName": head[7],
        "processId": head[8],
        "message": rest[head.end() :],
    }


def _without_year(month: int, day: int, clock: tuple[int, int, int], now: datetime) -> datetime | None:
    """The year in which the moment is not more than a month ahead."""
    for year in (now.year + 1, now.year, now.year - 1):
        try:
            moment = datetime(year, month, day, *clock, tzinfo=UTC)
        except ValueError:
            continue
        if moment <= now + timedelta(days=31):
            return moment
    return None


def _iso(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    return moment.astimezone(UTC).replace(microsecond=moment.microsecond // 1000 * 1000)


def _or_none(text: str) -> str | None:
    return None if text == "-" else text


class Frames:
    """Messages out of a stream: counted octets (`12 <34>...`), or lines."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> list[bytes]:
        """ValueError for a message that is too large: nobody can tell where the next one begins."""
        self._held += data
        found = []
        while self._held:
            taken = self._counted() if self._held[:1].isdigit() else self._line()
            if taken is None:
                break
            if taken:
                found.append(taken)
        if len(self._held) > MAX_MESSAGE_BYTES:
            raise ValueError(f"a message of more than {MAX_MESSAGE_BYTES} bytes")
        return found

    def rest(self) -> bytes:
        """What a connection ended with, without an end of line."""
        held, self._held = self._held, b""
        return held

    def _counted(self) -> bytes | None:
        digits, space, rest = self._held.partition(b" ")
        if not space:
            return None if digits.isdigit() and len(digits) < 8 else self._line()
        if not digits.isdigit():
            return self._line()
        length = int(digits)
        if length > MAX_MESSAGE_BYTES:
            raise ValueError(f"a message of {length} bytes")
        if len(rest) < length:
            return None
        self._held = rest[length:]
        return rest[:length]

    def _line(self) -> bytes | None:
        line, end, rest = self._held.partition(b"\n")
        if not end:
            return None
        self._held = rest
        return line
