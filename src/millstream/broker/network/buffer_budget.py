"""The memory of unfinished and kept frames: how much there may be, and whose it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.broker.network.connection import Connection


class BufferBudget:
    """How many bytes of unfinished frames the whole broker may hold, and who holds them."""

    __slots__ = ("holders", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.holders: set[Connection] = set()

    def take(self, size: int, wanting: Connection) -> bool:
        """Account for `size` more bytes; closes the holders that have stalled longest if it must."""
        while self.used + size > self.limit:
            stalled = min(
                (holder for holder in self.holders if holder is not wanting),
                key=lambda holder: holder.last_active,
                default=None,
            )
            if stalled is None:
                return False
            if not stalled.shed():
                stalled.close(
                    "the broker's budget for unfinished requests is used up and this one is the slowest"
                )
        self.used += size
        self.holders.add(wanting)
        return True

    def give_back(self, size: int, holder: Connection) -> None:
        self.used -= size
        self.holders.discard(holder)


class KeptFrame:
    """A frame that outlives its turn, with the connection's own buffer if it lies there. The budget counts
    that buffer until it is given back."""

    __slots__ = ("_budget", "_size", "frame")

    def __init__(self, frame: memoryview, budget: BufferBudget, size: int) -> None:
        self.frame = frame
        self._budget = budget
        self._size = size

    def give_back(self) -> None:
        self.frame = memoryview(b"")
        self._budget.used -= self._size
