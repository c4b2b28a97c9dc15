"""Stores on disk, in LMDB: the folder that holds them.

One folder holds the stores of one task: a sub-topology on one partition. All of them share one write
transaction, from the first use after a commit to the next one, so a batch is in all stores or in none, and
what a crash leaves is the state of the last commit. `position` is written with it: whatever the runtime needs
to know of how far the state goes. Between two batches nobody holds the folder, so that another process may go
on with it.

The stores themselves are in `lmdb_stores`, `lmdb_buffers` and `versioned`; how rows lie in the database, in
`rows`.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb

from millstream.streams.stores.base import StoreSpec
from millstream.streams.stores.lmdb_buffers import LmdbJoinBuffer, LmdbOuterJoinStore, LmdbSuppressBuffer
from millstream.streams.stores.lmdb_stores import LmdbKeyValueStore, LmdbSessionStore, LmdbWindowStore
from millstream.streams.stores.rows import Rows, get_row
from millstream.streams.stores.versioned import LmdbVersionedStore

_TIME = struct.Struct(">q")
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

    def row(self, store: str, key: bytes) -> bytes | None:
        """A row as it lies in a store, without opening the store; None if there is no such store either."""
        databases = self._databases.get(store)
        return None if databases is None else get_row(self, *databases, key)


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
