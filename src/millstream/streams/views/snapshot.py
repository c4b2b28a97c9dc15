"""What a view holds at one moment, and the offsets that this reflects.

A snapshot is a read transaction of LMDB: it sees one state however long it is used, blocks nobody, and is not
seen by whoever writes meanwhile. Rows of all partitions are one table here. Which partition has a key, its
producer has chosen, so all are asked, unless one is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from typing import Any, NamedTuple

from millstream.streams.stores import StoreSpec
from millstream.streams.windows import FOREVER, Window, Windowed


class ViewRow(NamedTuple):
    key: Any
    value: Any
    timestamp: int


class VersionRow(NamedTuple):
    """`valid_to` is when the next version began; None: there is none."""

    key: Any
    value: Any
    timestamp: int
    valid_to: int | None


class Snapshot:
    """`offsets` by partition: everything before them is in it."""

    def __init__(self, spec: StoreSpec, stores: dict[int, Any], offsets: dict[int, int]) -> None:
        self.spec, self.stores, self.offsets = spec, stores, offsets

    def _asked(self, partition: int | None) -> list[Any]:
        if partition is None:
            return list(self.stores.values())
        return [self.stores[partition]] if partition in self.stores else []

    # Rows ---------------------------------------------------------------------------------------------------

    def get(self, key: Any, partition: int | None = None) -> ViewRow | None:
        for store in self._asked(partition):
            row = store.get(store.encode(key))
            if row is not None:
                return ViewRow(key, *row)
        return None

    def range(
        self, first: Any = None, last: Any = None, *, reverse: bool = False, partition: int | None = None
    ) -> Iterator[ViewRow]:
        """Rows in the order of their keys' bytes, both ends included; None is open."""

        def rows(store: Any) -> Iterator[tuple[bytes, Any, int]]:
            low = None if first is None else store.encode(first)
            high = None if last is None else store.encode(last)
            found: Iterator[tuple[bytes, Any, int]] = store.range(low, high, reverse)
            return found

        return self._rows(rows, reverse, partition)

    def scan(self, *, partition: int | None = None) -> Iterator[ViewRow]:
        """All rows, by key."""
        return self.range(partition=partition)

    def prefix_scan(self, prefix: bytes, *, partition: int | None = None) -> Iterator[ViewRow]:
        """Rows whose keys' bytes begin with these."""

        def rows(store: Any) -> Iterator[tuple[bytes, Any, int]]:
            for row in store.range(prefix, None):
                if not row[0].startswith(prefix):
                    return
                yield row

        return self._rows(rows, False, partition)

    def _rows(
        self,
        rows: Callable[[Any], Iterator[tuple[bytes, Any, int]]],
        reverse: bool,
        partition: int | None,
    ) -> Iterator[ViewRow]:
        stores = self._asked(partition)
        if not stores:
            return
        decode = stores[0].decode
        for key, value, timestamp in merge(*map(rows, stores), key=lambda row: row[0], reverse=reverse):
            yield ViewRow(decode(key), value, timestamp)

    # Versions -----------------------------------------------------------------------------------------------

    def get_as_of(self, key: Any, time: int, *, partition: int | None = None) -> VersionRow | None:
        """Of a versioned store: what was valid at a time."""
        for store in self._asked(partition):
            found = store.get_as_of(store.encode(key), time)
            if found is not None:
                return VersionRow(key, *found)
        return None

    def versions(
        self, key: Any, first: int = 0, last: int = FOREVER, *, partition: int | None = None
    ) -> list[VersionRow]:
        """Of a versioned store: what was valid at some time of a span, both ends included, the newest
        first."""
        return [
            VersionRow(key, *found)
            for store in self._asked(partition)
            for found in store.versions(store.encode(key), first, last)
        ]

    # Windows and sessions -----------------------------------------------------------------------------------

    def windows(
        self, key: Any, first: int = 0, last: int = FOREVER, *, partition: int | None = None
    ) -> list[ViewRow]:
        """Of a key, the windows that start within, or the sessions that touch the span; by end and start."""
        found = []
        for store in self._asked(partition):
            encoded_key = store.encode(key)
            if self.spec.type == "session":
                found += [
                    ViewRow(Windowed(key, Window(start, end)), value, end)
                    for start, end, value in store.find(encoded_key, first, last)
                ]
            else:
                found += [
                    ViewRow(self._windowed(key, start), *row)
                    for start, row in store.fetch(encoded_key, first, last)
                ]
        return sorted(found, key=lambda row: (row.key.window.end, row.key.window.start))

    def all_windows(
        self,
        first_key: Any = None,
        last_key: Any = None,
        first: int = 0,
        last: int = FOREVER,
        *,
        partition: int | None = None,
    ) -> list[ViewRow]:
        """The same for a range of keys, partition by partition."""
        found = []
        for store in self._asked(partition):
            low = None if first_key is None else store.encode(first_key)
            high = None if last_key is None else store.encode(last_key)
            decode = store.decode
            if self.spec.type == "session":
                found += [
                    ViewRow(Windowed(decode(key), Window(start, end)), value, end)
                    for key, start, end, value in store.scan(low, high, first, last)
                ]
            else:
                found += [
                    ViewRow(self._windowed(decode(key), start), *row)
                    for key, start, row in store.scan(low, high, first, last)
                ]
        return found

    def _windowed(self, key: Any, start: int) -> Windowed:
        return Windowed(key, Window(start, min(start + self.spec.window_size, FOREVER)))
