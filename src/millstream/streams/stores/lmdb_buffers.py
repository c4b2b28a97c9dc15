"""Buffers of joins and of `suppress`: in memory, with their changelog records as rows on disk."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.streams.stores.base import LogRecord, StoreSpec
from millstream.streams.stores.buffers import MemoryJoinBuffer, MemoryOuterJoinStore, MemorySuppressBuffer
from millstream.streams.stores.rows import Rows


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
