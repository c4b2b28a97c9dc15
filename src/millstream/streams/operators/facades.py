"""Stores as an application sees them: keys and values are objects, timestamps stay inside.

What is put goes to the changelog with the time of the record at hand, which `now` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from millstream.streams.errors import StreamsError
from millstream.streams.windows import Window, Windowed

Now = Callable[[], int]


def _no_record() -> int:
    return -1


class KeyValues:
    """get, put, delete, put_if_absent, range, all. Ranges go by the order of the keys' bytes."""

    def __init__(self, store: Any, now: Now = _no_record) -> None:
        self._store, self._now = store, now
        self.name = store.spec.name

    def __len__(self) -> int:
        return len(self._store)

    def get(self, key: Any) -> Any:
        row = self._store.get(self._store.encode(key))
        return None if row is None else row[0]

    def put(self, key: Any, value: Any) -> None:
        self._store.put(self._store.encode(key), value, self._now())

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
        encode, decode = self._store.encode, self._store.decode
        low = None if first is None else encode(first)
        high = None if last is None else encode(last)
        for key, value, _timestamp in list(self._store.range(low, high)):
            yield decode(key), value

    def all(self) -> Iterator[tuple[Any, Any]]:
        return self.range()


class Windows:
    """put(key, value, start), fetch(key, start) or fetch(key, first, last)."""

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

    def fetch_all(self, first: int, last: int) -> list[tuple[Windowed, Any]]:
        decode = self._store.decode
        return [
            (Windowed(decode(key), Window(start, start + self._size)), row[0])
            for key, start, row in self._store.fetch_all(first, last)
        ]


class Sessions:
    """put(key, window, value), remove(key, window), find(key, earliest_end, latest_start)."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.name = store.spec.name

    def put(self, key: Any, window: Window, value: Any) -> None:
        self._store.put(self._store.encode(key), window.start, window.end, value)

    def remove(self, key: Any, window: Window) -> None:
        self.put(key, window, None)

    def find(self, key: Any, earliest_end: int, latest_start: int) -> list[tuple[Windowed, Any]]:
        found = self._store.find(self._store.encode(key), earliest_end, latest_start)
        return [(Windowed(key, Window(start, end)), value) for start, end, value in found]


def for_application(store: Any, now: Now = _no_record) -> Any:
    """What `context.store(name)` gives."""
    if store.spec.type == "window":
        return Windows(store, store.spec.window_size, now)
    if store.spec.type == "session":
        return Sessions(store)
    return KeyValues(store, now)


def read_only(store: Any) -> Any:
    """What `context.store(name)` gives of a global store: every task shares it, and only its topic changes
    it."""
    found = for_application(store)

    def refuse(*_: Any) -> None:
        raise StreamsError(
            f"{found.name} is a global store: processors can read it, but only its topic changes it"
        )

    for name in ("put", "put_if_absent", "delete", "remove"):
        if hasattr(found, name):
            setattr(found, name, refuse)
    return found
