"""A high watermark that a test moves: partitions of internal topics commit when it says so, as they would
with followers that are slow."""

from __future__ import annotations

from millstream.broker.partition import INTERNAL_TOPICS, Partition


class HeldWatermark:
    """While it is held, nothing that is appended to an internal topic is committed."""

    def __init__(self) -> None:
        self.held = False
        self._appended = Partition.appended

    def appended(self, partition: Partition, size: int, messages: int, now_ms: int) -> bool:
        if not self.held or partition.topic not in INTERNAL_TOPICS:
            return self._appended(partition, size, messages, now_ms)
        return partition.log.high_watermark >= partition.log.end_offset

    def commit(self, partition: Partition, end: int | None = None) -> None:
        """The followers have everything (before `end`)."""
        partition.log.set_high_watermark(partition.log.end_offset if end is None else end)
        partition._release_acks()
