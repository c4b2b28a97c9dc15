"""The last offset of every key, in a table whose size is fixed when it is made.

`log.cleaner.dedupe.buffer.size` is a promise about memory, and a dict of keys cannot keep it: each entry
costs eight to ten times what it holds. So this is an open-addressing table in three flat arrays, 24 bytes a
slot: two hashes of the key and its last offset. The keys themselves are not stored. The two hashes are
Python's own keyed SipHash of the key and of the key with a byte added, 64 bits each with a secret of this
process: that two of a billion keys agree in both has a chance of about one in 10^20, and nobody outside can
construct a pair.

Table sizes are prime and the second hash is the step, so every probe sequence visits every slot. Beyond
`log.cleaner.io.buffer.load.factor` the table counts as full and the rest of the log waits for the next round.

The two loops over records are here rather than with their callers because they are the inner loops of
compaction: locals and no call per record.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from math import isqrt

from millstream.wire.record_walk import RecordSpan

SLOT_BYTES = 24
MARK_BYTES = 8 << 20  # at most, beside the table
_SALT = b"\x01"


class OffsetMap:
    __slots__ = ("_first", "_offsets", "_second", "limit", "slots", "used")

    def __init__(self, memory: int, load_factor: float, max_keys: int | None = None) -> None:
        """At most `memory` bytes; less if there cannot be more than `max_keys` different keys."""
        slots = memory // SLOT_BYTES
        if max_keys is not None:
            slots = min(slots, int(max_keys / load_factor) + 16)
        self.slots = largest_prime(max(slots, 3))
        self.limit = max(1, min(int(self.slots * load_factor), self.slots - 1))
        self.used = 0
        self._first = array("q", [0]) * self.slots
        self._second = array("q", [0]) * self.slots
        self._offsets = array("q", [0]) * self.slots  # offset + 1; 0 is an empty slot

    def __len__(self) -> int:
        return self.used

    @property
    def memory(self) -> int:
        """Bytes held, whatever is in it."""
        return self.slots * SLOT_BYTES

    @property
    def utilization(self) -> float:
        return self.used / self.slots

    @property
    def offsets(self) -> Iterator[int]:
        """Every slot: the last offset of a key, plus one; 0 if it is empty."""
        return iter(self._offsets)

    def learn(self, base_offset: int, spans: Sequence[RecordSpan]) -> int:
        """Take in records in the order of the log. How many were taken: fewer than given means that the table
        is full."""
        first, second, offsets = self._first, self._second, self._offsets
        slots, used, limit = self.slots, self.used, self.limit
        step_range = slots - 2
        taken = 0
        for _, _, delta, key, _ in spans:
            if key is not None:
                one, two = hash(key), hash(key + _SALT)
                at = one % slots
                step = 0
                while True:
                    known = offsets[at]
                    if not known:
                        if used >= limit:
                            self.used = used
                            return taken
                        first[at] = one
                        second[at] = two
                        used += 1
                        break
                    if first[at] == one and second[at] == two:
                        break
                    if not step:
                        step = 1 + two % step_range
                    at += step
                    if at >= slots:
                        at -= slots
                offsets[at] = base_offset + delta + 1
            taken += 1
        self.used = used
        return taken

    def survivors(
        self, base_offset: int, spans: Sequence[RecordSpan], keep_tombstones: bool
    ) -> list[RecordSpan]:
        """The records that no later record of their key replaces. A key that the table does not know was not
        written in the dirty part of the log, so its record stays. A record without a key has no place in a
        compacted log."""
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
        one, two = hash(key), hash(key + _SALT)
        at, step = one % self.slots, 1 + two % (self.slots - 2)
        while self._offsets[at]:
            if self._first[at] == one and self._second[at] == two:
                return self._offsets[at] - 1
            at = (at + step) % self.slots
        return -1


class Marks:
    """Where in the dirty part of a log the last record of any key stands.

    The table knows every key of that part, so a batch of it without a mark has nothing to keep, and need not
    be opened to know that: most of a log whose keys are written again and again is such batches. One byte
    stands for 2^shift neighbouring offsets; they then share their mark, which costs time but loses nothing.
    """

    __slots__ = ("_end", "_first", "_marks", "_shift")

    def __init__(self, newest: OffsetMap, first: int, end: int, memory: int = MARK_BYTES) -> None:
        """For a table that has learned every record from `first` up to `end` (exclusive)."""
        self._first, self._end = first, end
        shift = 0
        while (end - first) >> shift >= memory:
            shift += 1
        self._shift = shift
        self._marks = marks = bytearray(max(0, end - first >> shift) + 1)
        before = first + 1  # the table holds offset + 1
        for known in newest.offsets:
            if known:
                marks[known - before >> shift] = 1

    def may_keep(self, first: int, last: int) -> bool:
        """Is there a mark from offset `first` to `last`? Nobody knows outside of the dirty part."""
        start = self._first
        if first < start or last >= self._end:
            return True
        shift = self._shift
        return self._marks.find(1, first - start >> shift, (last - start >> shift) + 1) >= 0


def largest_prime(not_above: int) -> int:
    """The largest prime up to a number (at least 3, so that there is a step smaller than the table)."""
    number = max(3, not_above) | 1
    if number > not_above:
        number = max(3, number - 2)
    while any(number % divisor == 0 for divisor in range(3, isqrt(number) + 1, 2)):
        number -= 2
    return number
