"""Transactions, as they pass by while a log is read from its start: may this batch go?

    data of an aborted transaction     may go
    data of a committed one            is judged record by record, like any other
    a marker                           may go when no data of its transaction stood before it; the filter then
                                       gives it a delete horizon and removes it later, like a tombstone

Only decided transactions are read here (cleaning stops at the last stable offset). Which were aborted is
known from the transaction index; all others were committed. The index is rewritten on the way: an aborted
transaction stays in it as long as data of it was still seen in the log.
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.storage.producers import parse_marker
from millstream.storage.transactions import AbortedTransaction
from millstream.wire.batch import CONTROL, TRANSACTIONAL, BatchHeader


class CleanedTransactions:
    __slots__ = ("_aborted", "_committed", "_open", "_seen", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)  # next one last
        self._open: dict[int, AbortedTransaction] = {}  # aborted, and their marker was not reached yet
        self._seen: set[int] = set()  # producers of those whose data was seen
        # Producers with data of a committed transaction, marker not reached.
        self._committed: set[int] = set()
        self.kept: list[AbortedTransaction] = []  # for the index of the segment being written

    def may_go(self, header: BatchHeader, batch: memoryview) -> bool:
        """Look at the next batch of the log."""
        attributes = header.attributes
        if not attributes & (TRANSACTIONAL | CONTROL):
            return False
        aborted, last = self._aborted, header.last_offset
        while aborted and aborted[-1].first_offset <= last:
            entry = aborted.pop()
            self._open.setdefault(entry.producer_id, entry)
        producer = header.producer_id
        if attributes & CONTROL:
            return self._marker(header, batch)
        if producer in self._open:
            self._seen.add(producer)
            return True
        self._committed.add(producer)
        return False

    def _marker(self, header: BatchHeader, batch: memoryview) -> bool:
        if not header.record_count:
            return True  # emptied before
        marker = parse_marker(batch)
        if marker is None:
            return False  # a control record of another kind
        producer = header.producer_id
        commit, _ = marker
        if commit:
            had_data = producer in self._committed
            self._committed.discard(producer)
            return not had_data
        entry = self._open.pop(producer, None)
        if entry is None or producer not in self._seen:
            return True
        self._seen.discard(producer)
        self.kept.append(entry)
        return False

    def take_kept(self) -> list[AbortedTransaction]:
        """The index entries for what was read since the last call."""
        kept, self.kept = self.kept, []
        return kept
