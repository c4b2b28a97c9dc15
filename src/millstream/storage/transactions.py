"""Aborted transactions of a segment: the .txnindex file, in Kafka's bytes.

    i16 version (0), i64 producer id, i64 first offset, i64 last offset, i64 last stable offset

An entry stands in the segment that holds the abort marker (its last offset). The last stable offset is the
one right after the transaction ended: a reader that needs nothing beyond it can stop looking. The file exists
only if a transaction was aborted, so it is opened for each use and never kept open.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from millstream.storage.files import remove_quietly, replace_file, write_all
from millstream.wire.errors import ErrorCode, KafkaError

ENTRY = struct.Struct(">hqqqq")
VERSION = 0
_marker_offset = attrgetter("last_offset")


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedIndex:
    __slots__ = ("_entries", "_saved", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._entries: list[AbortedTransaction] | None = None
        self._saved = 0

    def entries(self) -> list[AbortedTransaction]:
        if self._entries is None:
            try:
                with open(self.path, "rb") as file:
                    data = file.read()
            except FileNotFoundError:
                data = b""
            self._entries = list(parse(data))
            self._saved = len(self._entries)
        return self._entries

    def append(self, entry: AbortedTransaction) -> None:
        """The marker is in the log already, so a full disk must not fail this: the entry is then saved
        later."""
        self.entries().append(entry)
        try:
            self.save()
        except OSError:
            pass

    def save(self) -> None:
        if self._entries is not None and self._saved < len(self._entries):
            data = b"".join([ENTRY.pack(VERSION, *entry) for entry in self._entries[self._saved :]])
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                write_all(fd, data, self._saved * ENTRY.size)
            finally:
                os.close(fd)
            self._saved = len(self._entries)

    def truncate(self, offset: int) -> None:
        """Forget the transactions whose marker stands at `offset` or later."""
        entries = self.entries()
        keep = [entry for entry in entries if entry.last_offset < offset]
        if len(keep) < len(entries):
            if len(keep) < self._saved:
                os.truncate(self.path, len(keep) * ENTRY.size)
                self._saved = len(keep)
            self._entries = keep

    def clear(self) -> None:
        """Forget all, whatever the file holds."""
        remove_quietly(self.path)
        self._entries, self._saved = [], 0

    def replace(self, entries: list[AbortedTransaction]) -> None:
        """These and no others, in one step: a crash leaves the old file or the new one."""
        if not entries:
            self.clear()
            return
        self._entries, self._saved = entries, 0
        replace_file(self.path, b"".join([ENTRY.pack(VERSION, *entry) for entry in entries]))
        self._saved = len(entries)

    def problem(self, base_offset: int, end_offset: int) -> str | None:
        """Why the file cannot belong to a segment with these offsets; None if it can."""
        try:
            with open(self.path, "rb") as file:
                data = file.read()
            if len(data) % ENTRY.size:
                return f"its size is no multiple of {ENTRY.size}"
            before = base_offset - 1
            for entry in parse(data):
                if not (before < entry.last_offset < end_offset and entry.first_offset < entry.last_offset):
                    return f"it has a transaction from {entry.first_offset} to {entry.last_offset}"
                before = entry.last_offset
        except (OSError, KafkaError) as error:
            return str(error)
        return None

    def collect(self, start: int, stop: int, into: list[AbortedTransaction]) -> bool:
        """Add what touches offsets [start, stop); True when no later segment can add more."""
        # In the order of their markers, so those that ended before `start` come first.
        entries = self.entries()
        for number in range(bisect_left(entries, start, key=_marker_offset), len(entries)):
            entry = entries[number]
            if entry.first_offset < stop:
                into.append(entry)
            if entry.last_stable_offset >= stop:
                return True
        return False


def parse(data: bytes) -> Iterator[AbortedTransaction]:
    for at in range(0, len(data) - ENTRY.size + 1, ENTRY.size):
        version, *fields = ENTRY.unpack_from(data, at)
        if version != VERSION:
            raise KafkaError(ErrorCode.kafka_storage_error, f"transaction index entry of version {version}")
        yield AbortedTransaction(*fields)
