"""Stores on disk, in LMDB.

One folder holds the stores of one task: a sub-topology on one partition. All of them share one write
transaction, from the first use after a commit to the next one, so a batch is in all stores or in none, and
what a crash leaves is the state of the last commit. `position` is written with it: whatever the runtime needs
to know of how far the state goes. Between two batches nobody holds the folder, so that another process may go
on with it.

Rows of the batch at hand are kept as objects; they go into the transaction when a range needs them there, and
at the commit, in the order of their keys. Values lie there as Kafka Streams keeps them: a timestamp in front
(not for sessions).

Keys have no limit, whatever LMDB's own is: see `rows`.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import lmdb

from millstream.streams.stores.base import LogRecord, Row, StoreSpec, segment
from millstream.streams.stores.buffers import MemoryJoinBuffer, MemoryOuterJoinStore, MemorySuppressBuffer
from millstream.streams.stores.layout import (
    WINDOW,
    session_key,
    split_session_key,
    split_window_key,
    window_key,
)
from millstream.streams.stores.rows import Rows
from millstream.streams.stores.versioned import LmdbVersionedStore

_TIME = struct.Struct(">q")
_SWEEP_AT_LEAST = 60_000
_POSITION = b"position"
_METADATA = ("newest", "sequence")


class StoreFolder:
    """The stores of one task. `open` has the signature of `task.in_memory`.

    size      the limit that the folder may grow to; nothing is taken before it is used
    durable   a commit is on disk before it returns, so a machine that loses power leaves a sound folder
              behind. The very
              last commit may be missing then, which its position tells.
    """

    def __init__(
        self, folder: Path | str, *, size: int = 64 << 30, durable: bool = True, max_stores: int = 250
    ) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        self._environment = lmdb.open(
            str(folder),
            map_size=size,
            max_dbs=2 * max_stores + 12,
            sync=durable,
            metasync=False,
            max_readers=512,
        )
        self._meta = self._environment.open_db(b"millstream")
        self._stores: dict[str, Any] = {}
        self._databases: dict[str, tuple[Any, Any]] = {}
        self._open: Any = None

    @property
    def transaction(self) -> Any:
        if self._open is None:
            self._open = self._environment.begin(write=True)
        return self._open

    @property
    def position(self) -> bytes | None:
        """What was given with the last commit, by whatever process."""
        with self._environment.begin() as transaction:
            found = transaction.get(_POSITION, db=self._meta)
            return None if found is None else bytes(found)

    @contextlib.contextmanager
    def reading(self) -> Iterator[ReadOnlyFolder]:
        """What was committed last, while others write: stores that are opened in it are for reading, and
        until its end."""
        with self._environment.begin() as transaction:
            yield ReadOnlyFolder(transaction, self._meta, self._databases)

    def clear(self, store: Any) -> None:
        """Empties a store, before it is restored."""
        store.rows.clear()
        store.reload()
        if store.newest is not None:
            store.newest = -1

    def open(self, spec: StoreSpec, application: str) -> Any:
        short, long = (
            self._environment.open_db(prefix + spec.name.encode(), txn=self.transaction)
            for prefix in (b"store ", b"long ")
        )
        self._databases[spec.name] = (short, long)
        store = store_class(spec)(spec, application, Rows(self, spec.name, short, long))
        self._stores[spec.name] = store
        return store

    def commit(self, position: bytes | None = None) -> None:
        """All that was put since the last commit, and the position, at once."""
        for store in self._stores.values():
            store.rows.flush()
        if position is not None:
            self.transaction.put(_POSITION, position, db=self._meta)
        for name, store in self._stores.items():
            for what in _METADATA:
                number = getattr(store, what, None)
                if number is not None:
                    self.transaction.put(f"{what} {name}".encode(), _TIME.pack(number), db=self._meta)
        self.transaction.commit()
        self._open = None
        for store in self._stores.values():
            store.rows.trim()

    def roll_back(self) -> None:
        """Forgets all that was put since the last commit."""
        self._end()
        for store in self._stores.values():
            store.reload()

    def number(self, what: str, store: str) -> int | None:
        """Something that a store remembers besides its rows."""
        found = self.transaction.get(f"{what} {store}".encode(), db=self._meta)
        return None if found is None else int(_TIME.unpack(found)[0])

    def close(self) -> None:
        self._end()
        self._environment.close()

    def _end(self) -> None:
        if self._open is not None:
            self._open.abort()
            self._open = None


class ReadOnlyFolder:
    """A folder as it was at one moment."""

    def __init__(self, transaction: Any, meta: Any, databases: dict[str, tuple[Any, Any]]) -> None:
        self.transaction, self._meta, self._databases = transaction, meta, databases

    @property
    def position(self) -> bytes | None:
        found = self.transaction.get(_POSITION, db=self._meta)
        return None if found is None else bytes(found)

    def number(self, what: str, store: str) -> int | None:
        found = self.transaction.get(f"{what} {store}".encode(), db=self._meta)
        return None if found is None else int(_TIME.unpack(found)[0])

    def has(self, store: str) -> bool:
        return store in self._databases

    def open(self, spec: StoreSpec, application: str) -> Any:
        return store_class(spec)(spec, application, Rows(self, spec.name, *self._databases[spec.name]))


class _Lmdb:
    _front = 8  # bytes of the timestamp

    def __init__(self, spec: StoreSpec, application: str, rows: Rows) -> None:
        self.spec, self.rows = spec, rows
        topic = spec.changelog(application)
        write = spec.key.writer(topic)
        plain = spec.key.plain_write
        self.encode: Any = plain if plain is not None else lambda key: write(key) or b""
        self.decode: Any = spec.key.reader(topic)
        self._shared = spec.value.shared
        self._write = spec.value.writer(topic)
        self._read = spec.value.reader(topic)
        self._dirty: dict[bytes, int] = {}
        self._logged = spec.logged
        self.newest: int | None = None
        self._load_metadata()

    def _load_metadata(self) -> None:
        """What the folder holds besides rows."""

    def reload(self) -> None:
        self.rows.forget()
        self._dirty.clear()
        self._load_metadata()

    def drain(self) -> list[LogRecord]:
        front = self._front
        bodies = [None if row is None else row[front:] for row in self.rows.get_many(self._dirty)]
        found = list(zip(self._dirty, bodies, self._dirty.values(), strict=True))
        self._dirty.clear()
        return found

    def read_rows(self, row_keys: list[bytes]) -> list[bytes | None]:
        """Many rows as bytes: the timestamp in front (not for sessions), then the value."""
        return self.rows.get_many(row_keys)

    def write_rows(self, row_keys: list[bytes], rows: list[bytes | None], stamps: list[int]) -> None:
        """Many rows, each with the timestamp for its changelog record."""
        self.rows.pending.update(zip(row_keys, rows, strict=True))
        cached = self.rows.cached
        if cached:
            for row_key in row_keys:
                cached.pop(row_key, None)
        if self._logged:
            self._dirty.update(zip(row_keys, stamps, strict=True))


class LmdbKeyValueStore(_Lmdb):
    def __len__(self) -> int:
        return len(self.rows)

    def get(self, key: bytes) -> Row | None:
        cached = self.rows.cached
        row: Any = cached.get(key, cached)
        if row is cached:
            raw = self.rows.get(key)
            if raw is None:
                cached[key] = None
                return None
            row = (self._read(raw[8:]) if self._shared else raw[8:], _TIME.unpack_from(raw)[0])
            cached[key] = row
        if row is None:
            return None
        return (row[0] if self._shared else self._read(row[0]), row[1])

    def put(self, key: bytes, value: Any, timestamp: int) -> None:
        if value is None:
            self.rows.cached[key] = None
            self.rows.pending[key] = None
        else:
            body = self._write(value) or b""
            self.rows.cached[key] = (value if self._shared else body, timestamp)
            self.rows.pending[key] = _TIME.pack(timestamp) + body
        if self._logged:
            self._dirty[key] = timestamp

    def range(
        self, first: bytes | None, last: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Any, int]]:
        for key, raw in self.rows.range(first, last, reverse):
            yield key, self._read(raw[8:]), _TIME.unpack_from(raw)[0]

    def restore(self, records: Iterable[LogRecord]) -> None:
        put, pack = self.rows.put, _TIME.pack
        for key, value, timestamp in records:
            put(key, None if value is None else pack(timestamp) + value)
        self.rows.cached.clear()
        self.rows.flush()


def _within(key: bytes, first: bytes | None, last: bytes | None) -> bool:
    return (first is None or key >= first) and (last is None or key <= last)


class LmdbWindowStore(_Lmdb):
    newest: int
    sequence: int | None = None
    """With duplicates: the number of the last row. It tells apart the rows of a key and an instant, whichever
    process put them."""

    def __init__(self, spec: StoreSpec, application: str, rows: Rows) -> None:
        super().__init__(spec, application, rows)
        self._sweep_at = self.newest + max(spec.retention // 2, _SWEEP_AT_LEAST)
        self._kept = spec.retention - (0 if spec.final else 1)

    def _load_metadata(self) -> None:
        newest = self.rows.number("newest")
        self.newest = -1 if newest is None else newest
        if self.spec.duplicates:
            self.sequence = self.rows.number("sequence")
            if self.sequence is None:  # a new folder, or one of a release that did not write it down
                self.sequence = max(
                    (split_window_key(row_key)[2] for row_key in self.rows.row_keys()), default=0
                )

    @property
    def oldest(self) -> int:
        return self.newest - self._kept

    def _row(self, raw: bytes) -> Row:
        return (self._read(raw[8:]), _TIME.unpack_from(raw)[0])

    def fetch_one(self, key: bytes, start: int) -> Row | None:
        if start < self.newest - self._kept:
            return None
        row_key = window_key(key, start, 0)
        cached = self.rows.cached
        if self._shared and row_key in cached:
            found: Row | None = cached[row_key]
            return found
        raw = self.rows.get(row_key)
        row = None if raw is None else self._row(raw)
        if self._shared:
            cached[row_key] = row
        return row

    def fetch(self, key: bytes, first: int, last: int) -> list[tuple[int, Row]]:
        first = max(first, self.oldest, 0)
        if first > last:
            return []
        low, high = window_key(key, first, 0), window_key(key, last, 0x7FFFFFFF)
        size = len(low)
        return [
            (_TIME.unpack_from(row_key, size - 12)[0], self._row(raw))
            for row_key, raw in self.rows.range(low, high)
            if len(row_key) == size
        ]

    def fetch_all(self, first: int, last: int) -> list[tuple[bytes, int, Row]]:
        first = max(first, self.oldest)
        found = []
        for row_key, raw in self.rows.range(None, None):
            key, start, sequence = split_window_key(row_key)
            if first <= start <= last:
                found.append((start, key, sequence, raw))
        found.sort(key=lambda row: row[:3])
        return [(key, start, self._row(raw)) for start, key, _sequence, raw in found]

    def scan(
        self, first_key: bytes | None, last_key: bytes | None, first: int, last: int
    ) -> list[tuple[bytes, int, Row]]:
        first = max(first, self.oldest)
        found = []
        # A longer key that begins with the last one may lie before some windows of the last one.
        high = None if last_key is None else last_key + b"\xff" * 12
        for row_key, raw in self.rows.range(first_key, high):
            key, start, _sequence = split_window_key(row_key)
            if first <= start <= last and _within(key, first_key, last_key):
                found.append((key, start, self._row(raw)))
        return sorted(found, key=lambda row: segment(self.spec, row[1]))

    def put(self, key: bytes, start: int, value: Any, timestamp: int) -> None:
        duplicates = self.spec.duplicates
        if duplicates and value is None:
            return
        if start > self.newest:
            self.newest = start
            if start >= self._sweep_at:
                self._sweep()
        elif start < self.oldest:
            return
        number = 0
        if self.sequence is not None:
            number = self.sequence = (self.sequence + 1) & 0x7FFFFFFF
        row_key = window_key(key, start, number)
        if self._shared and not duplicates:
            self.rows.cached[row_key] = None if value is None else (value, timestamp)
        raw = None if value is None else _TIME.pack(timestamp) + (self._write(value) or b"")
        self.rows.pending[row_key] = raw
        if self._logged:
            self._dirty[row_key] = start if duplicates else timestamp

    def add_rows(self, keys: list[bytes | None], starts: list[int], bodies: list[bytes | None]) -> None:
        """Many `put`s of a store with duplicates, values as bytes; those without a key or a value are left
        out."""
        assert self.sequence is not None
        pack, pack_time, kept, newest, number = (
            WINDOW.pack,
            _TIME.pack,
            self._kept,
            self.newest,
            self.sequence,
        )
        pending, dirty, logged = self.rows.pending, self._dirty, self._logged
        for key, start, body in zip(keys, starts, bodies, strict=True):
            if key is None or body is None or start < newest - kept:
                continue
            if start > newest:
                newest = start
            number = (number + 1) & 0x7FFFFFFF
            row_key = key + pack(start, number)
            pending[row_key] = pack_time(start) + body
            if logged:
                dirty[row_key] = start
        self.sequence = number
        self.saw(newest)

    def saw(self, newest: int) -> None:
        """The newest window there is, after `write_rows`."""
        if newest > self.newest:
            self.newest = newest
            if newest >= self._sweep_at:
                self._sweep()

    def _sweep(self) -> None:
        self._sweep_at = self.newest + max(self.spec.retention // 2, _SWEEP_AT_LEAST)
        oldest = _TIME.pack(max(self.oldest, 0))  # starts are written so that they sort as bytes
        for row_key in [row_key for row_key in self.rows.row_keys() if row_key[-12:-4] < oldest]:
            self.rows.cached.pop(row_key, None)
            self.rows.put(row_key, None)
        self.rows.flush()

    def restore(self, records: Iterable[LogRecord]) -> None:
        found = [(*split_window_key(record[0]), *record) for record in records]
        self.newest = max([self.newest, *(row[1] for row in found)])
        if self.sequence is not None:
            self.sequence = max([self.sequence, *(row[2] for row in found)])
        oldest, put, pack = self.oldest, self.rows.put, _TIME.pack
        for _key, start, _sequence, row_key, value, timestamp in found:
            if start >= oldest:
                put(row_key, None if value is None else pack(timestamp) + value)
        self.rows.cached.clear()
        self.rows.flush()
        if self.newest >= self._sweep_at:
            self._sweep()


class LmdbSessionStore(_Lmdb):
    newest: int
    _front = 0

    def __init__(self, spec: StoreSpec, application: str, rows: Rows) -> None:
        super().__init__(spec, application, rows)
        self._sweep_at = self.newest + max(spec.retention // 2, _SWEEP_AT_LEAST)

    def _load_metadata(self) -> None:
        newest = self.rows.number("newest")
        self.newest = -1 if newest is None else newest

    @property
    def _oldest(self) -> int:
        return self.newest - self.spec.retention + 1

    def find(self, key: bytes, earliest_end: int, latest_start: int) -> list[tuple[int, int, Any]]:
        earliest_end = max(earliest_end, self._oldest, 0)
        low, high = session_key(key, 0, earliest_end), key + b"\x7f" + b"\xff" * 15
        found = []
        for row_key, raw in self.rows.range(low, high):
            if len(row_key) == len(low):
                _, start, end = split_session_key(row_key)
                if start <= latest_start:
                    found.append((start, end, self._read(raw)))
        return found

    def find_all(self, earliest_end: int, latest_end: int) -> list[tuple[bytes, int, int, Any]]:
        found = []
        for row_key, raw in self.rows.range(None, None):
            key, start, end = split_session_key(row_key)
            if earliest_end <= end <= latest_end:
                found.append((end, key, start, raw))
        found.sort(key=lambda row: row[:3])
        return [(key, start, end, self._read(raw)) for end, key, start, raw in found]

    def scan(
        self, first_key: bytes | None, last_key: bytes | None, earliest_end: int, latest_start: int
    ) -> list[tuple[bytes, int, int, Any]]:
        earliest_end = max(earliest_end, self._oldest)
        found = []
        high = None if last_key is None else last_key + b"\xff" * 16
        for row_key, raw in self.rows.range(first_key, high):
            key, start, end = split_session_key(row_key)
            if end >= earliest_end and start <= latest_start and _within(key, first_key, last_key):
                found.append((key, start, end, self._read(raw)))
        return sorted(found, key=lambda row: segment(self.spec, row[2]))

    def fetch_one(self, key: bytes, start: int, end: int) -> Any:
        return None if end < self._oldest else self._read(self.rows.get(session_key(key, start, end)))

    def put(self, key: bytes, start: int, end: int, value: Any) -> None:
        if end > self.newest:
            self.newest = end
            if end >= self._sweep_at:
                self._sweep()
        row_key = session_key(key, start, end)
        self.rows.put(row_key, self._write(value))
        if self._logged:
            self._dirty[row_key] = end

    def _sweep(self) -> None:
        self._sweep_at = self.newest + max(self.spec.retention // 2, _SWEEP_AT_LEAST)
        oldest = self._oldest
        for row_key in [
            row[0] for row in self.rows.range(None, None) if split_session_key(row[0])[2] < oldest
        ]:
            self.rows.put(row_key, None)
        self.rows.flush()

    def restore(self, records: Iterable[LogRecord]) -> None:
        found = [(split_session_key(row_key)[2], row_key, value) for row_key, value, _timestamp in records]
        self.newest = max([self.newest, *(row[0] for row in found)])
        oldest = self._oldest
        for end, row_key, value in found:
            if end >= oldest:
                self.rows.put(row_key, value)
        self.rows.flush()
        if self.newest >= self._sweep_at:
            self._sweep()


class _Mirrored:
    """A buffer in memory whose changelog records are also its rows on disk: read back when the folder is
    opened."""

    rows: Rows
    newest: int | None = None

    def _stored(self) -> list[LogRecord]:
        return [(key, value, 0) for key, value in self.rows.range(None, None)]

    def _keep(self, records: Iterable[LogRecord]) -> list[LogRecord]:
        kept = list(records)
        for key, value, _timestamp in kept:
            self.rows.put(key, value)
        return kept


class LmdbOuterJoinStore(_Mirrored, MemoryOuterJoinStore):
    def __init__(self, spec: StoreSpec, application: str, rows: Rows) -> None:
        MemoryOuterJoinStore.__init__(self, spec, application)
        self.rows = rows
        MemoryOuterJoinStore.restore(self, self._stored())

    def restore(self, records: Iterable[LogRecord]) -> None:
        MemoryOuterJoinStore.restore(self, self._keep(records))

    def drain(self) -> list[LogRecord]:
        return self._keep(MemoryOuterJoinStore.drain(self))

    def reload(self) -> None:
        self._order.clear()
        self._rows.clear()
        self._dirty.clear()
        self.rows.forget()
        MemoryOuterJoinStore.restore(self, self._stored())


class LmdbSuppressBuffer(_Mirrored, MemorySuppressBuffer):
    def __init__(self, spec: StoreSpec, application: str, rows: Rows) -> None:
        MemorySuppressBuffer.__init__(self, spec, application)
        self.rows = rows
        MemorySuppressBuffer.restore(self, self._stored())

    def restore(self, records: Iterable[LogRecord]) -> None:
        MemorySuppressBuffer.restore(self, self._keep(records))

    def drain(self) -> list[LogRecord]:
        return self._keep(MemorySuppressBuffer.drain(self))

    def reload(self) -> None:
        self._order.clear()
        self._rows.clear()
        self._dirty.clear()
        self.bytes_held = 0
        self.rows.forget()
        MemorySuppressBuffer.restore(self, self._stored())


class LmdbJoinBuffer(_Mirrored, MemoryJoinBuffer):
    def __init__(self, spec: StoreSpec, application: str, rows: Rows) -> None:
        MemoryJoinBuffer.__init__(self, spec, application)
        self.rows = rows
        self._read_back()

    def _read_back(self) -> None:
        self.newest = self.rows.number("newest")
        MemoryJoinBuffer.restore(self, self._stored())

    def restore(self, records: Iterable[LogRecord]) -> None:
        MemoryJoinBuffer.restore(self, self._keep(records))

    def drain(self) -> list[LogRecord]:
        return self._keep(MemoryJoinBuffer.drain(self))

    def reload(self) -> None:
        self._order.clear()
        self._rows.clear()
        self._dirty.clear()
        self.rows.forget()
        self._read_back()


_STORE_CLASSES: dict[str, Any] = {
    "key-value": LmdbKeyValueStore,
    "window": LmdbWindowStore,
    "session": LmdbSessionStore,
    "outer-join": LmdbOuterJoinStore,
    "suppress": LmdbSuppressBuffer,
    "versioned": LmdbVersionedStore,
    "join-buffer": LmdbJoinBuffer,
}


def store_class(spec: StoreSpec) -> Any:
    return _STORE_CLASSES[spec.type]
