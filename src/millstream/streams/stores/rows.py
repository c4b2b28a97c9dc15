"""Rows of one store on disk: bytes by bytes.

LMDB takes keys of 1 to 511 bytes. A byte goes in front of every key, because a record's key may be empty.
Keys of more than 510 bytes, their window included, go to a second database: there a key is its first bytes
and a digest of all of them, and the whole key lies in front of the row. So keys have no limit, ranges are in
the order of whole keys, and short keys, which is nearly all of them, pay nothing for it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any, Protocol

_FRONT = b"k"
_SHORT = 510
_DIGEST = 16
_PREFIX = _SHORT - _DIGEST
_SIZE = struct.Struct(">I")
_MAX_CACHED = 200_000


class _Folder(Protocol):
    @property
    def transaction(self) -> Any: ...

    def number(self, what: str, store: str) -> int | None: ...


def get_row(folder: _Folder, short: Any, long: Any, key: bytes) -> bytes | None:
    """One row that is committed, for who asks for nothing else."""
    if len(key) > _SHORT:
        return Rows(folder, "", short, long).get(key)
    found: bytes | None = folder.transaction.get(_FRONT + key, db=short)
    return found


class Rows:
    """Bytes by bytes in one database, with the objects of recent rows in front. None in `cached` is a row
    that is not there.

    short, long   the databases for keys of either size
    """

    __slots__ = ("_any_long", "_folder", "_long", "_short", "cached", "name", "pending")

    def __init__(self, folder: _Folder, name: str, short: Any, long: Any) -> None:
        self._folder, self.name, self._short, self._long = folder, name, short, long
        self._any_long = folder.transaction.stat(db=long)["entries"] > 0
        self.cached: dict[bytes, Any] = {}
        self.pending: dict[bytes, bytes | None] = {}

    def number(self, what: str) -> int | None:
        return self._folder.number(what, self.name)

    def get(self, key: bytes) -> bytes | None:
        if key in self.pending:
            return self.pending[key]
        if len(key) > _SHORT:
            return self._get_long(key)
        found: bytes | None = self._folder.transaction.get(_FRONT + key, db=self._short)
        return found

    def put(self, key: bytes, value: bytes | None) -> None:
        self.pending[key] = value

    def get_many(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """`keys` are gone through twice."""
        pending, database = self.pending, self._short
        missing: Any = self
        look_up = self._folder.transaction.get
        found = [
            look_up(_FRONT + key, None, database) if (row := pending.get(key, missing)) is missing else row
            for key in keys
        ]
        if self._any_long:
            for number, key in enumerate(keys):
                if len(key) > _SHORT and key not in pending:
                    found[number] = self._get_long(key)
        return found

    def flush(self) -> None:
        if not self.pending:
            return
        transaction, database = self._folder.transaction, self._short
        if len(max(self.pending, key=len)) > _SHORT:
            self._flush_long()
        pending = self.pending
        rows = [(_FRONT + key, pending[key]) for key in sorted(pending)]
        for key, value in rows:
            if value is None:
                transaction.delete(key, db=database)
        with transaction.cursor(db=database) as cursor:
            cursor.putmulti([row for row in rows if row[1] is not None])
        self.pending.clear()

    def range(
        self, first: bytes | None, last: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """In the order of the keys, both ends included. Whoever changes rows meanwhile has to take a list
        first."""
        self.flush()
        if reverse:
            short = self._short_reversed(first, last)
            if not self._any_long:
                return short
            long = reversed(list(self._long_range(first, last)))
            return merge(short, long, key=itemgetter(0), reverse=True)
        short = self._short_range(first, last)
        return merge(short, self._long_range(first, last), key=itemgetter(0)) if self._any_long else short

    def row_keys(self) -> Iterator[bytes]:
        """All keys, in no order."""
        self.flush()
        with self._folder.transaction.cursor(db=self._short) as cursor:
            for key in cursor.iternext(keys=True, values=False):
                yield key[1:]
        if self._any_long:
            for key, _ in self._long_range(None, None):
                yield key

    def clear(self) -> None:
        for database in (self._short, self._long):
            self._folder.transaction.drop(database, delete=False)
        self.forget()

    def trim(self) -> None:
        if len(self.cached) > _MAX_CACHED:
            self.cached.clear()

    def forget(self) -> None:
        self.cached.clear()
        self.pending.clear()

    def __len__(self) -> int:
        self.flush()
        transaction = self._folder.transaction
        return sum(int(transaction.stat(db=database)["entries"]) for database in (self._short, self._long))

    def _short_range(self, first: bytes | None, last: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        with self._folder.transaction.cursor(db=self._short) as cursor:
            if not cursor.set_range(_bound(first or b"")):
                return
            for key, value in cursor:
                plain = bytes(key[1:])
                if first is not None and plain < first:
                    continue
                if last is not None and plain > last:
                    return
                yield plain, bytes(value)

    def _short_reversed(self, first: bytes | None, last: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        with self._folder.transaction.cursor(db=self._short) as cursor:
            if last is None:
                found = cursor.last()
            else:
                found = cursor.set_range(_bound(last)) or cursor.last()
                if found and cursor.key() > _bound(last):
                    found = cursor.prev()
            while found:
                plain = bytes(cursor.key()[1:])
                if first is not None and plain < first:
                    return
                yield plain, bytes(cursor.value())
                found = cursor.prev()

    # Long keys ----------------------------------------------------------------------------------------------

    def _get_long(self, key: bytes) -> bytes | None:
        data = self._folder.transaction.get(_hashed_key(key), db=self._long)
        return None if data is None else _split(data)[1]

    def _flush_long(self) -> None:
        transaction = self._folder.transaction
        for key in [key for key in self.pending if len(key) > _SHORT]:
            row = self.pending.pop(key)
            if row is None:
                transaction.delete(_hashed_key(key), db=self._long)
            else:
                self._any_long = True
                transaction.put(_hashed_key(key), _SIZE.pack(len(key)) + key + row, db=self._long)

    def _long_range(self, first: bytes | None, last: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Keys that begin alike lie together, in the order of their digests: they are sorted here."""
        with self._folder.transaction.cursor(db=self._long) as cursor:
            if not cursor.set_range(_FRONT + (first or b"")[:_PREFIX]):
                return
            for prefix, entries in groupby(cursor, key=lambda entry: bytes(entry[0][1:-_DIGEST])):
                if last is not None and prefix > last[:_PREFIX]:
                    return
                for key, row in sorted(_split(data) for _, data in entries):
                    if (first is None or key >= first) and (last is None or key <= last):
                        yield key, row


def _bound(key: bytes) -> bytes:
    """Where a range begins or ends. Of a longer key so many bytes as LMDB takes: no short key lies between
    the two."""
    return (_FRONT + key)[: _SHORT + 1]


def _hashed_key(key: bytes) -> bytes:
    return _FRONT + key[:_PREFIX] + blake2b(key, digest_size=_DIGEST).digest()


def _split(data: bytes) -> tuple[bytes, bytes]:
    """The key and the row."""
    end = _SIZE.size + _SIZE.unpack_from(data)[0]
    return bytes(data[_SIZE.size : end]), bytes(data[end:])
