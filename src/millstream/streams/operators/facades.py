"""Stores as an application sees them: keys and values are objects, timestamps stay inside.

What is put goes to the changelog with the time of the record at hand, which `now` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import Any, NamedTuple

from millstream.streams.errors import StreamsError
from millstream.streams.serdes import Serde
from millstream.streams.stores.base import NOT_PUT
from millstream.streams.windows import FOREVER, Window, Windowed

Now = Callable[[], int]


class VersionedRecord(NamedTuple):
    """A value, the time from which it is valid, and the time at which the next one began; None: it is the
    newest."""

    value: Any
    timestamp: int
    valid_to: int | None = None


def _no_record() -> int:
    return -1


class KeyValues:
    """get, put, delete, put_if_absent, and scans in the order of the keys' bytes."""

    def __init__(self, store: Any, now: Now = _no_record) -> None:
        self._store, self._now = store, now
        self.name = store.spec.name

    def __len__(self) -> int:
        return len(self._store)

    def get(self, key: Any) -> Any:
        row = self._store.get(self._store.encode(key))
        return None if row is None else row[0]

    def get_with_timestamp(self, key: Any) -> tuple[Any, int] | None:
        """The value and the time of the record that brought it."""
        found: tuple[Any, int] | None = self._store.get(self._store.encode(key))
        return found

    def put(self, key: Any, value: Any) -> None:
        self._store.put(self._store.encode(key), value, self._now())

    def put_all(self, rows: Iterable[tuple[Any, Any]]) -> None:
        for key, value in rows:
            self.put(key, value)

    def put_if_absent(self, key: Any, value: Any) -> Any:
        found = self.get(key)
        if found is None:
            self.put(key, value)
        return found

    def delete(self, key: Any) -> Any:
        found = self.get(key)
        self.put(key, None)
        return found

    def range(self, first: Any = None, last: Any = None) -> Iterator[tuple[Any, Any]]:
        """Both ends included; None is open."""
        return self._opened(self._encoded(first), self._encoded(last), False)

    def reverse_range(self, first: Any = None, last: Any = None) -> Iterator[tuple[Any, Any]]:
        """The same rows, the last one first."""
        return self._opened(self._encoded(first), self._encoded(last), True)

    def all(self) -> Iterator[tuple[Any, Any]]:
        return self.range()

    def reverse_all(self) -> Iterator[tuple[Any, Any]]:
        return self.reverse_range()

    def prefix_scan(self, prefix: Any, serde: Serde | None = None) -> Iterator[tuple[Any, Any]]:
        """Rows whose keys' bytes begin with those of `prefix`, which are made by the serde of the keys,
        unless another one is given."""
        start = self._encoded(prefix) if serde is None else serde.write(self.name, prefix)
        start = start or b""
        rows = self._store.range(start, None, False)
        decode = self._store.decode
        found = [(key, value) for key, value, _ in takewhile(lambda row: row[0].startswith(start), rows)]
        return ((decode(key), value) for key, value in found)

    def _encoded(self, key: Any) -> bytes | None:
        return None if key is None else self._store.encode(key)

    def _opened(self, low: bytes | None, high: bytes | None, reverse: bool) -> Iterator[tuple[Any, Any]]:
        decode = self._store.decode
        for key, value, _timestamp in list(self._store.range(low, high, reverse)):
            yield decode(key), value


class Windows:
    """put(key, value, start), fetch(key, first, last), and scans over several keys. Times are those of the
    windows' starts, both ends included; a key of None is open."""

    def __init__(self, store: Any, size: int, now: Now = _no_record) -> None:
        self._store, self._size, self._now = store, size, now
        self.name = store.spec.name

    def put(self, key: Any, value: Any, start: int) -> None:
        now = self._now()
        self._store.put(self._store.encode(key), start, value, start if now < 0 else now)

    def fetch_one(self, key: Any, start: int) -> Any:
        row = self._store.fetch_one(self._store.encode(key), start)
        return None if row is None else row[0]

    def fetch(self, key: Any, first: int, last: int) -> list[tuple[int, Any]]:
        return [(start, row[0]) for start, row in self._store.fetch(self._store.encode(key), first, last)]

    def backward_fetch(self, key: Any, first: int, last: int) -> list[tuple[int, Any]]:
        """The newest first."""
        return self.fetch(key, first, last)[::-1]

    def fetch_range(self, first_key: Any, last_key: Any, first: int, last: int) -> list[tuple[Windowed, Any]]:
        """The windows of several keys."""
        encode, decode = self._store.encode, self._store.decode
        low = None if first_key is None else encode(first_key)
        high = None if last_key is None else encode(last_key)
        return [
            (Windowed(decode(key), Window(start, min(start + self._size, FOREVER))), row[0])
            for key, start, row in self._store.scan(low, high, first, last)
        ]

    def backward_fetch_range(
        self, first_key: Any, last_key: Any, first: int, last: int
    ) -> list[tuple[Windowed, Any]]:
        return self.fetch_range(first_key, last_key, first, last)[::-1]

    def fetch_all(self, first: int, last: int) -> list[tuple[Windowed, Any]]:
        return self.fetch_range(None, None, first, last)

    def backward_fetch_all(self, first: int, last: int) -> list[tuple[Windowed, Any]]:
        return self.fetch_all(first, last)[::-1]

    def all(self) -> list[tuple[Windowed, Any]]:
        return self.fetch_all(0, FOREVER)

    def backward_all(self) -> list[tuple[Windowed, Any]]:
        return self.all()[::-1]


class Sessions:
    """put(key, window, value), remove(key, window), and sessions by key, by a range of keys, and by time."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.name = store.spec.name

    def put(self, key: Any, window: Window, value: Any) -> None:
        self._store.put(self._store.encode(key), window.start, window.end, value)

    def remove(self, key: Any, window: Window) -> None:
        self.put(key, window, None)

    def fetch_session(self, key: Any, start: int, end: int) -> Any:
        return self._store.fetch_one(self._store.encode(key), start, end)

    def find(self, key: Any, earliest_end: int, latest_start: int) -> list[tuple[Windowed, Any]]:
        """Those that end not before, and start not after."""
        found = self._store.find(self._store.encode(key), earliest_end, latest_start)
        return [(Windowed(key, Window(start, end)), value) for start, end, value in found]

    def backward_find(self, key: Any, earliest_end: int, latest_start: int) -> list[tuple[Windowed, Any]]:
        return self.find(key, earliest_end, latest_start)[::-1]

    def find_range(
        self, first_key: Any, last_key: Any, earliest_end: int, latest_start: int
    ) -> list[tuple[Windowed, Any]]:
        """The same for several keys; None is open."""
        encode, decode = self._store.encode, self._store.decode
        low = None if first_key is None else encode(first_key)
        high = None if last_key is None else encode(last_key)
        return [
            (Windowed(decode(key), Window(start, end)), value)
            for key, start, end, value in self._store.scan(low, high, earliest_end, latest_start)
        ]

    def backward_find_range(
        self, first_key: Any, last_key: Any, earliest_end: int, latest_start: int
    ) -> list[tuple[Windowed, Any]]:
        return self.find_range(first_key, last_key, earliest_end, latest_start)[::-1]

    def fetch(self, key: Any) -> list[tuple[Windowed, Any]]:
        """All sessions of a key."""
        return self.find(key, 0, FOREVER)

    def backward_fetch(self, key: Any) -> list[tuple[Windowed, Any]]:
        return self.fetch(key)[::-1]

    def fetch_range(self, first_key: Any, last_key: Any) -> list[tuple[Windowed, Any]]:
        return self.find_range(first_key, last_key, 0, FOREVER)

    def backward_fetch_range(self, first_key: Any, last_key: Any) -> list[tuple[Windowed, Any]]:
        return self.fetch_range(first_key, last_key)[::-1]


class Versions:
    """Values by key and time. `put(key, value, timestamp)` gives the time up to which that value is valid, -1
    if it is the newest one, or None if it came too late. No value is a deletion at that time."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.name = store.spec.name

    def put(self, key: Any, value: Any, timestamp: int) -> int | None:
        found: int = self._store.put_version(self._store.encode(key), value, timestamp)
        return None if found == NOT_PUT else found

    def delete(self, key: Any, timestamp: int) -> VersionedRecord | None:
        """Gives what was valid at that time."""
        encoded = self._store.encode(key)
        if self._store.expired(timestamp):
            return None
        found = _version(self._store.get_as_of(encoded, timestamp))
        self._store.put_version(encoded, None, timestamp)
        return found

    def get(self, key: Any, as_of: int | None = None) -> VersionedRecord | None:
        """The newest value, or the one that was valid at a time."""
        encoded = self._store.encode(key)
        if as_of is not None:
            return _version(self._store.get_as_of(encoded, as_of))
        row = self._store.get(encoded)
        return None if row is None else VersionedRecord(*row)

    def get_all(self, key: Any, first: int = 0, last: int = FOREVER) -> list[VersionedRecord]:
        """The versions that were valid at some time of a span, both ends included, the newest first."""
        found = self._store.versions(self._store.encode(key), first, last)
        return [VersionedRecord(*version) for version in found]


def _version(found: tuple[Any, int, int | None] | None) -> VersionedRecord | None:
    return None if found is None else VersionedRecord(*found)


def for_application(store: Any, now: Now = _no_record) -> Any:
    """What `context.store(name)` gives."""
    if store.spec.type == "window":
        return Windows(store, store.spec.window_size, now)
    if store.spec.type == "session":
        return Sessions(store)
    if store.spec.type == "versioned":
        return Versions(store)
    return KeyValues(store, now)


def read_only(store: Any) -> Any:
    """What `context.store(name)` gives of a global store: every task shares it, and only its topic changes
    it."""
    found = for_application(store)

    def refuse(*_: Any) -> None:
        raise StreamsError(
            f"{found.name} is a global store: processors can read it, but only its topic changes it"
        )

    for name in ("put", "put_all", "put_if_absent", "delete", "remove"):
        if hasattr(found, name):
            setattr(found, name, refuse)
    return found
