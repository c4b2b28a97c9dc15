"""The primitive fields of coordinator records: the same encodings as in requests, written and read one by
one.

A record's version decides whether strings, byte arrays and arrays carry a fixed length or, in flexible
versions, a varint of the length plus one, and whether a section of tagged fields follows each structure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from millstream.wire.primitives import INT16, INT32, INT64
from millstream.wire.varint import Malformed, read_uvarint, uvarint

Item = TypeVar("Item")
INT8 = struct.Struct(">b")


class Writer:
    """Appends fields; `flexible` chooses the form of whatever has a length."""

    __slots__ = ("flexible", "out")

    def __init__(self, version: int, flexible: bool) -> None:
        self.flexible = flexible
        self.out = bytearray(INT16.pack(version))

    def int8(self, value: int) -> None:
        self.out += INT8.pack(value)

    def int32(self, value: int) -> None:
        self.out += INT32.pack(value)

    def int64(self, value: int) -> None:
        self.out += INT64.pack(value)

    def uuid(self, value: UUID) -> None:
        self.out += value.bytes

    def string(self, value: str | None) -> None:
        if self.flexible:
            self.bytes_(None if value is None else value.encode())
        elif value is None:
            self.out += b"\xff\xff"
        else:
            data = value.encode()
            self.out += INT16.pack(len(data)) + data

    def bytes_(self, value: bytes | None) -> None:
        if self.flexible:
            self.out += b"\0" if value is None else uvarint(len(value) + 1) + value
        else:
            self.out += b"\xff\xff\xff\xff" if value is None else INT32.pack(len(value)) + value

    def count(self, value: int) -> None:
        self.out += uvarint(value + 1) if self.flexible else INT32.pack(value)

    def int32s(self, values: list[int]) -> None:
        self.count(len(values))
        self.out += struct.pack(f">{len(values)}i", *values)

    def strings(self, values: list[str]) -> None:
        self.count(len(values))
        for value in values:
            self.string(value)

    def tags(self, *tagged: tuple[int, bytes]) -> None:
        """The end of a structure: its tagged fields, which only flexible versions have."""
        if self.flexible:
            self.out += uvarint(len(tagged))
            for number, data in tagged:
                self.out += uvarint(number) + uvarint(len(data)) + data

    def done(self) -> bytes:
        return bytes(self.out)


class Reader:
    """Takes fields one after the other. What does not fit is `Malformed`, `struct.error` or `IndexError`."""

    __slots__ = ("at", "data", "flexible", "version")

    def __init__(self, data: bytes, flexible_from: int) -> None:
        self.data = data
        self.version: int = INT16.unpack_from(data)[0]
        self.flexible = self.version >= flexible_from
        self.at = 2

    def _take(self, form: struct.Struct) -> int:
        value: int = form.unpack_from(self.data, self.at)[0]
        self.at += form.size
        return value

    def int8(self) -> int:
        return self._take(INT8)

    def int16(self) -> int:
        return self._take(INT16)

    def int32(self) -> int:
        return self._take(INT32)

    def int64(self) -> int:
        return self._take(INT64)

    def uuid(self) -> UUID:
        return UUID(bytes=self._bytes(16))

    def uvarint(self) -> int:
        value, self.at = read_uvarint(self.data, self.at)
        return value

    def _bytes(self, size: int) -> bytes:
        end = self.at + size
        if size < 0 or end > len(self.data):
            raise Malformed(f"{size} bytes announced, {len(self.data) - self.at} left in the record")
        value = self.data[self.at : end]
        self.at = end
        return value

    def string(self) -> str | None:
        size = self.uvarint() - 1 if self.flexible else self.int16()
        return None if size < 0 else self._bytes(size).decode()

    def text(self) -> str:
        """A string that may not be null; a null one reads as empty, to be lenient with old records."""
        return self.string() or ""

    def bytes_(self) -> bytes | None:
        size = self.uvarint() - 1 if self.flexible else self.int32()
        return None if size < 0 else self._bytes(size)

    def array(self, read: Callable[[], Item]) -> list[Item]:
        count = self.uvarint() - 1 if self.flexible else self.int32()
        if count > len(self.data) - self.at:
            raise Malformed(f"array of {count} elements in {len(self.data) - self.at} bytes")
        return [read() for _ in range(count)]

    def tags(self) -> dict[int, bytes]:
        """The tagged fields of a structure by their numbers; none in versions that have none."""
        if not self.flexible:
            return {}
        tagged = {}
        for _ in range(self.uvarint()):
            number = self.uvarint()
            tagged[number] = self._bytes(self.uvarint())
        return tagged
