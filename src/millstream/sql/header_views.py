"""Views of tables with header columns: a row is kept with the headers of its record in front of its value.

The headers are their number, then for each the length and bytes of its name and of its value; a value that is
null has the length -1.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from millstream.streams.views import TopicView

if TYPE_CHECKING:
    from millstream.streams.runtime.fetched_records import SomeRecords

Headers = tuple[tuple[str, bytes | None], ...]
_INT = struct.Struct(">i")


def with_headers(headers: Headers, value: bytes) -> bytes:
    parts = [_INT.pack(len(headers))]
    for name, data in headers:
        encoded = name.encode()
        parts += (_INT.pack(len(encoded)), encoded)
        parts += (_INT.pack(-1),) if data is None else (_INT.pack(len(data)), data)
    return b"".join([*parts, value])


def without_headers(data: bytes) -> tuple[Headers, bytes]:
    """The headers, and the value behind them."""
    found: list[tuple[str, bytes | None]] = []
    at = _INT.size
    for _ in range(_INT.unpack_from(data)[0]):
        name, at = _part(data, at)
        value, at = _part(data, at)
        found.append(((name or b"").decode(), value))
    return tuple(found), data[at:]


def _part(data: bytes, at: int) -> tuple[bytes | None, int]:
    (size,) = _INT.unpack_from(data, at)
    begin = at + _INT.size
    return (None, begin) if size < 0 else (data[begin : begin + size], begin + size)


class HeaderView(TopicView):
    """A copy of a table's topic whose values have their headers in front."""

    def _take(self, partition: int, records: SomeRecords) -> None:
        self._store_of(partition).restore(
            (key, None if value is None else with_headers(headers, value), at)
            for _, key, value, at, headers in records
            if key is not None
        )
