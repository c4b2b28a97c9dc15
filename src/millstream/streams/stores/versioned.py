"""Values by key and time (KIP-889): what was valid when, as far back as the retention.

A version is valid from its timestamp until that of the next one; a deletion is a version without a value.
The newest version stays for ever, unless it is a deletion. Older ones go when nobody can ask for them any
more: by the newest timestamp that the store has seen, minus the retention. A record that is older than that
is not taken at all.

`get` and `put` are those of a store of rows, so that a table can be kept here; `put_version` tells where a
record went.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from millstream.streams.stores.base import NEWEST, NOT_PUT, LogRecord, Row, StoreSpec
from millstream.streams.stores.memory import _Memory
from millstream.streams.stores.rows import Rows

_TIME = struct.Struct(">q")
_SWEEP_AT_LEAST = 60_000
_LAST = (1 << 63) - 1

Version = tuple[int, bytes | None]
"""From when, and the value's bytes; None is a deletion."""
Found = tuple[Any, int, int | None]
"""Value, from when, until when; None: it is the newest."""


class _Versioned(_Memory):
    """The rules. Where versions lie is up to the subclasses."""

    newest: int

    def __init__(self, spec: StoreSpec, application: str) -> None:
        super().__init__(spec, application)
        self.newest = -1
        self._changes: list[LogRecord] = []
        self._sweep_at = 0

    def _at(self, key: bytes, time: int) -> Version | None:
        """The version that begins at this time, or the last before."""
        raise NotImplementedError

    def _after(self, key: bytes, time: int) -> Version | None:
        """The first that begins later."""
        raise NotImplementedError

    def _set(self, key: bytes, time: int, body: bytes | None) -> None:
        raise NotImplementedError

    def _drop(self, key: bytes, time: int) -> None:
        raise NotImplementedError

    def _all(self) -> Iterator[tuple[bytes, int, bytes | None]]:
        """Every version, those of a key by time."""
        raise NotImplementedError

    @property
    def _oldest(self) -> int:
        return self.newest - self.spec.retention

    def expired(self, timestamp: int) -> bool:
        """Whether a record of that time would come too late."""
        return timestamp < self._oldest

    def get(self, key: bytes) -> Row | None:
        found = self._at(key, _LAST)
        return None if found is None or found[1] is None else (self._read(found[1]), found[0])

    def get_as_of(self, key: bytes, time: int) -> Found | None:
        found = self._at(key, time)
        if found is None or found[1] is None:
            return None
        after = self._after(key, time)
        if after is not None and time < self._oldest:
            return None
        return self._read(found[1]), found[0], None if after is None else after[0]

    def versions(self, key: bytes, first: int, last: int) -> list[Found]:
        """Those that were valid at some time within, both ends included, the newest first."""
        found = []
        after, time = self._after(key, last), last
        while (version := self._at(key, time)) is not None:
            if after is not None and (after[0] <= first or after[0] < self._oldest):
                break
            if version[1] is not None:
                until = None if after is None else after[0]
                found.append((self._read(version[1]), version[0], until))
            after, time = version, version[0] - 1
        return found

    def put(self, key: bytes, value: Any, timestamp: int) -> None:
        self.put_version(key, value, timestamp)

    def put_version(self, key: bytes, value: Any, timestamp: int) -> int:
        """NEWEST, or from when the next version is valid, or NOT_PUT."""
        body = self._write(value)
        if self._logged:
            self._changes.append((key, body, timestamp))
        return self._put(key, body, timestamp)

    def _put(self, key: bytes, body: bytes | None, timestamp: int) -> int:
        if self.expired(timestamp):
            return NOT_PUT
        if timestamp > self.newest:
            self.newest = timestamp
            if timestamp >= self._sweep_at:
                self._sweep()
        after = self._after(key, timestamp)
        if after is None and body is None and self._forgets(key, timestamp):
            self._drop(key, timestamp)
        else:
            self._set(key, timestamp, body)
        return NEWEST if after is None else after[0]

    def _forgets(self, key: bytes, timestamp: int) -> bool:
        """As Kafka's store does, a deletion at the very time of the newest value takes that away and leaves
        nothing behind, if no older value ended there."""
        now = self._at(key, timestamp)
        if now is None or now[0] != timestamp or now[1] is None:
            return False
        before = self._at(key, timestamp - 1)
        return before is None or before[1] is None

    def _sweep(self) -> None:
        self._sweep_at = self.newest + max(self.spec.retention // 2, _SWEEP_AT_LEAST)
        oldest, last = self._oldest, dict[bytes, tuple[int, bytes | None]]()
        gone = []
        for key, time, body in self._all():
            before = last.get(key)
            if before is not None and time < oldest:
                gone.append((key, before[0]))
            last[key] = (time, body)
        gone.extend((key, time) for key, (time, body) in last.items() if body is None and time < oldest)
        for key, time in gone:
            self._drop(key, time)

    def drain(self) -> list[LogRecord]:
        found, self._changes = self._changes, []
        return found

    def restore(self, records: Iterable[LogRecord]) -> None:
        for key, value, timestamp in records:
            self._put(key, value, timestamp)


class MemoryVersionedStore(_Versioned):
    def __init__(self, spec: StoreSpec, application: str) -> None:
        super().__init__(spec, application)
        self._times: dict[bytes, list[int]] = {}
        self._bodies: dict[tuple[bytes, int], bytes | None] = {}

    def __len__(self) -> int:
        return sum(1 for key in self._times if self.get(key) is not None)

    def _at(self, key: bytes, time: int) -> Version | None:
        times = self._times.get(key, [])
        spot = bisect_right(times, time)
        return (times[spot - 1], self._bodies[key, times[spot - 1]]) if spot else None

    def _after(self, key: bytes, time: int) -> Version | None:
        times = self._times.get(key, [])
        spot = bisect_right(times, time)
        return (times[spot], self._bodies[key, times[spot]]) if spot < len(times) else None

    def _set(self, key: bytes, time: int, body: bytes | None) -> None:
        if (key, time) not in self._bodies:
            times = self._times.setdefault(key, [])
            times.insert(bisect_right(times, time), time)
        self._bodies[key, time] = body

    def _drop(self, key: bytes, time: int) -> None:
        del self._bodies[key, time]
        self._times[key].remove(time)
        if not self._times[key]:
            del self._times[key]

    def _all(self) -> Iterator[tuple[bytes, int, bytes | None]]:
        for key, times in self._times.items():
            for time in times:
                yield key, time, self._bodies[key, time]


class LmdbVersionedStore(_Versioned):
    """A row for each version: the key and its time; a byte and the value, or nothing for a deletion."""

    def __init__(self, spec: StoreSpec, application: str, rows: Rows) -> None:
        super().__init__(spec, application)
        self.rows = rows
        self.reload()

    def reload(self) -> None:
        self.rows.forget()
        self._changes.clear()
        newest = self.rows.number("newest")
        self.newest = -1 if newest is None else newest

    def __len__(self) -> int:
        return sum(1 for key in {key for key, _, _ in self._all()} if self.get(key) is not None)

    def _at(self, key: bytes, time: int) -> Version | None:
        if time < 0:
            return None
        return self._first(key, self.rows.range(key + _TIME.pack(0), key + _TIME.pack(time), True))

    def _after(self, key: bytes, time: int) -> Version | None:
        if time >= _LAST:
            return None
        low = key + _TIME.pack(max(time + 1, 0))
        return self._first(key, self.rows.range(low, key + _TIME.pack(_LAST)))

    def _first(self, key: bytes, found: Iterator[tuple[bytes, bytes]]) -> Version | None:
        size = len(key) + 8
        for row_key, raw in found:
            if len(row_key) == size:  # not one of a longer key
                return _TIME.unpack_from(row_key, size - 8)[0], raw[1:] if raw else None
        return None

    def _set(self, key: bytes, time: int, body: bytes | None) -> None:
        self.rows.put(key + _TIME.pack(time), b"" if body is None else b"\x01" + body)

    def _drop(self, key: bytes, time: int) -> None:
        self.rows.put(key + _TIME.pack(time), None)

    def _all(self) -> Iterator[tuple[bytes, int, bytes | None]]:
        for row_key, raw in list(self.rows.range(None, None)):
            yield row_key[:-8], _TIME.unpack_from(row_key, len(row_key) - 8)[0], raw[1:] if raw else None

    def restore(self, records: Iterable[LogRecord]) -> None:
        super().restore(records)
        self.rows.flush()
