"""The last offset of every key, in memory of a fixed size.

`log.cleaner.dedupe.buffer.size` is a promise about memory, and a dict of keys keeps it only for few keys: an
entry costs eight to ten times what it holds. So a dict, which is fastest, is used while it takes a small
share of that memory. When it outgrows it, its content moves into an open-addressing table in three flat
arrays, 24 bytes a slot: two hashes of the key and its last offset. The keys themselves are not stored. The
two hashes are Python's own keyed SipHash of the key and of the key with a byte added, 64 bits each with a
secret of this process: that two of a billion keys agree in both has a chance of about one in 10^20, and
nobody outside can construct a pair.

Table sizes are prime and the second hash is the step, so every probe sequence visits every slot. Beyond
`log.cleaner.io.buffer.load.factor` the table counts as full and the rest of the log waits for the next round.

The loops over records are here rather than with their callers because they are the inner loops of
compaction: locals and no call per record.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from math import isqrt

from millstream.wire.record_walk import RecordSpan

SLOT_BYTES = 24
MARK_BYTES = 8 << 20  # at most, beside the table
DICT_SHARE = 8  # the dict may take one part in this many of the memory
DICT_ENTRY_BYTES = 180  # of a dict that has just grown, with an int and a bytes object but for its content
_SALT = b"\x01"


class OffsetMap:
    __slots__ = (
        "_dict",
        "_dict_bytes",
        "_first",
        "_longest_key",
        "_offsets",
        "_second",
        "limit",
        "slots",
        "used",
    )

    def __init__(self, memory: int, load_factor: float, max_keys: int | None = None) -> None:
        """At most `memory` bytes; less if there cannot be more than `max_keys` different keys."""
        slots = memory // SLOT_BYTES
        if max_keys is not None:
            slots = min(slots, int(max_keys / load_factor) + 16)
        self.slots = largest_prime(max(slots, 3))
        self.limit = max(1, min(int(self.slots * load_factor), self.slots - 1))
        self.used = 0
        self._first = self._second = self._offsets = array("q")
        self._dict: dict[bytes, int] | None = {}  # None once the table is used
        self._dict_bytes = memory // DICT_SHARE
        self._longest_key = 0

    def __len__(self) -> int:
        return self.used

    @property
    def memory(self) -> int:
        """Bytes held, whatever is in it."""
        if self._dict is not None:
            return len(self._dict) * (DICT_ENTRY_BYTES + self._longest_key)
        return self.slots * SLOT_BYTES

    @property
    def utilization(self) -> float:
        return self.used / self.slots

    @property
    def offsets(self) -> Iterator[int]:
        """The last offset of each key, plus one; there may be zeros between them."""
        return iter(self._offsets) if self._dict is None else (known + 1 for known in self._dict.values())

    def learn(self, keys: Sequence[bytes], offsets: Sequence[int]) -> int:
        """Take in the keys of records in the order of the log. How many were taken: fewer than given means
        that the table is full."""
        known = self._dict
        if known is None:
            return self._learn(keys, offsets)
        # As if every key were new and as long as the longest, so that it is never too large.
        self._longest_key = max(self._longest_key, max(map(len, keys), default=0))
        size = len(known) + len(keys)
        if size * (DICT_ENTRY_BYTES + self._longest_key) > self._dict_bytes or size > self.limit:
            self._move_to_table(known)
            return self._learn(keys, offsets)
        known.update(zip(keys, offsets, strict=True))
        self.used = len(known)
        return len(keys)

    def _move_to_table(self, known: dict[bytes, int]) -> None:
        self._dict = None
        self.used = 0
        self._first, self._second, self._offsets = (array("q", [0]) * self.slots for _ in range(3))
        while known:
            # Taken out one by one, so that they are not in memory twice.
            key, offset = known.popitem()
            self._learn((key,), (offset,))

    def _learn(self, keys: Sequence[bytes], at_offsets: Sequence[int]) -> int:
        """Into the table."""
        first, second, offsets = self._first, self._second, self._offsets
        slots, used, limit = self.slots, self.used, self.limit
        step_range = slots - 2
        salt = _SALT
        taken = 0
        for key in keys:
            one, two = hash(key), hash(key + salt)
            at = one % slots
            step = 0
            while offsets[at]:
                if first[at] == one and second[at] == two:
                    break
                if not step:
                    step = 1 + two % step_range
                at += step
                if at >= slots:
                    at -= slots
            else:
                if used >= limit:
                    break
                first[at] = one
                second[at] = two
                used += 1
            offsets[at] = at_offsets[taken] + 1
            taken += 1
        self.used = used
        return taken

    def survivors(
        self, base_offset: int, spans: Sequence[RecordSpan], keep_tombstones: bool
    ) -> list[RecordSpan]:
        """The records that no later record of their key replaces. A key that the table does not know was not
        written in the dirty part of the log, so its record stays. A record without a key does not belong in a
        compacted log."""
        if self._dict is not None:
            get = self._dict.get
            return [
                span
                for span in spans
                if span[3] is not None
                and (span[4] or keep_tombstones)
                and base_offset + span[2] >= get(span[3], -1)
            ]
        first, second, offsets = self._first, self._second, self._offsets
        slots = self.slots
        step_range = slots - 2
        kept = []
        for span in spans:
            _, _, delta, key, has_value = span
            if key is None or not (has_value or keep_tombstones):
                continue
            one, two = hash(key), hash(key + _SALT)
            at = one % slots
            step = 0
            while True:
                known = offsets[at]
                if not known:
                    kept.append(span)
                    break
                if first[at] == one and second[at] == two:
                    if base_offset + delta + 1 >= known:
                        kept.append(span)
                    break
                if not step:
                    step = 1 + two % step_range
                at += step
                if at >= slots:
                    at -= slots
        return kept

    def get(self, key: bytes) -> int:
        """The last offset of a key, -1 if it is not known (for tests and tools: the loops above do not call
        it)."""
        if self._dict is not None:
            return self._dict.get(key, -1)
        one, two = hash(key), hash(key + _SALT)
        at, step = one % self.slots, 1 + two % (self.slots - 2)
        while self._offsets[at]:
            if self._first[at] == one and self._second[at] == two:
                return self._offsets[at] - 1
            at = (at + step) % self.slots
        return -1


class Marks:
    """What the second reading of the dirty part of a log has to look at.

    The table knows every key of that part, so a batch without the last record of any key has nothing to keep,
    and need not be opened to know that: most of a log whose keys are written again and again is such batches.
    Other batches have to be looked at for another reason (transactions, the last batch of a producer). One
    byte stands for 2^shift neighbouring offsets; they then share their mark, which costs time but loses
    nothing. With a shift of 0, the marks say of each record whether it stays.
    """

    __slots__ = ("end", "first", "marks", "shift")

    KEPT = 1  # the last record of a key
    LOOK = 2  # a batch ends here that must be looked at

    def __init__(self, first: int, end: int, memory: int) -> None:
        """For the offsets from `first` up to `end` (exclusive)."""
        self.first, self.end = first, end
        shift = 0
        while (end - first) >> shift >= memory:
            shift += 1
        self.shift = shift
        self.marks = bytearray(max(0, end - first >> shift) + 1)

    def look_at(self, offset: int) -> None:
        """The batch that holds this offset must be looked at."""
        if self.first <= offset < self.end:
            self.marks[offset - self.first >> self.shift] |= self.LOOK

    def learned(self, newest: OffsetMap, end: int) -> None:
        """The table has learned every record up to `end`; nothing is known of what follows."""
        self.end = end
        marks, shift, kept = self.marks, self.shift, self.KEPT
        before = self.first + 1  # the table holds offset + 1
        for known in newest.offsets:
            if known:
                marks[known - before >> shift] |= kept

    def exact(self, first: int, last: int) -> bool:
        """Do the marks say of each offset from `first` to `last` whether its record stays?"""
        return not self.shift and first >= self.first and last < self.end

    def must_look(self, first: int, last: int) -> bool:
        """Is there a mark from offset `first` to `last`, or is that not for the marks to say?"""
        start, shift = self.first, self.shift
        if first < start or last >= self.end:
            return True
        return bool(self.marks[first - start >> shift : (last - start >> shift) + 1].strip(b"\0"))

    def may_keep(self, first: int, last: int) -> bool:
        """The same, and the mark is of a record that stays."""
        start, shift = self.first, self.shift
        if first < start or last >= self.end:
            return True
        begin, end = first - start >> shift, (last - start >> shift) + 1
        marks = self.marks
        return marks.find(1, begin, end) >= 0 or marks.find(3, begin, end) >= 0

    def of_records(self, first: int, last: int) -> bytearray | None:
        """A byte for each offset from `first` to `last`, odd where the record stays; None where the marks do
        not know each single record."""
        if not self.exact(first, last):
            return None
        return self.marks[first - self.first : last + 1 - self.first]


def largest_prime(not_above: int) -> int:
    """The largest prime up to a number (at least 3, so that there is a step smaller than the table)."""
    number = max(3, not_above) | 1
    if number > not_above:
        number = max(3, number - 2)
    while any(number % divisor == 0 for divisor in range(3, isqrt(number) + 1, 2)):
        number -= 2
    return number
