"""What a task has been given to read and has not processed yet, in the order in which it is to be processed.

A task that reads several topics takes the record with the least timestamp first, as Kafka Streams does. It
can only tell which one that is while it has a record of every topic, or knows that a topic has no more: so it
stops at the end of what it holds of a topic whose partition goes on, and waits for the rest. A partition of
which enough is held is not fetched until some of it is processed: memory is bounded in bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from millstream.client.fetch import Fetched
from millstream.streams.columns.blocks import by_time
from millstream.streams.runtime.fetched_records import SomeRecords, records_of
from millstream.wire.topic_partition import TopicPartition

BUFFER_BYTES = 4 << 20
"""Of a partition: more is not fetched before some of it is processed."""
_CHUNK_BYTES = 1 << 20


class _Input:
    """One partition. `position` is where to fetch, `done` where processing is."""

    __slots__ = ("_answers", "bytes_held", "caught_up", "done", "end", "position", "records")

    def __init__(self, position: int) -> None:
        self.position = self.done = self.end = position
        self.caught_up = False
        self.bytes_held = 0
        self.records: list[SomeRecords] = []
        self._answers: deque[tuple[Iterator[SomeRecords], int, int]] = deque()

    def receive(self, fetched: Fetched) -> None:
        found, after = records_of(fetched, self.position, chunk_bytes=_CHUNK_BYTES)
        if after > self.position:
            self._answers.append((found, after, len(fetched.records)))
            self.bytes_held += len(fetched.records)
            self.position = after
        self.end = fetched.last_stable_offset if fetched.last_stable_offset >= 0 else fetched.high_watermark
        self.caught_up = self.position >= self.end

    @property
    def waiting(self) -> bool:
        return bool(self.records or self._answers)

    def fill(self) -> bool:
        """Some decoded records at hand; False if there are none. Answers without records (they hold markers,
        or what was aborted) are passed."""
        while not self.records and self._answers:
            found, after, size = self._answers[0]
            records = next(found, None)
            if records is None:
                self._answers.popleft()
                self.bytes_held -= size
                self.done = after
            elif len(records):
                self.records.append(records)
        return bool(self.records)

    def took(self, records: SomeRecords) -> None:
        """Processed: the first of what was at hand."""
        self.done = records.last_offset + 1
        whole = self.records[0]
        if len(records) == len(whole):
            del self.records[0]
            self.fill()  # an answer that ends here is done, without another turn
        else:
            self.records[0] = whole.slice(len(records), len(whole) - len(records))


class Inputs:
    """The partitions that one task reads."""

    def __init__(self, positions: dict[TopicPartition, int], max_bytes: int = BUFFER_BYTES) -> None:
        self._max_bytes = max_bytes
        self._inputs = {which: _Input(offset) for which, offset in positions.items()}
        self._by_topic = {which.topic: one for which, one in self._inputs.items()}

    def add(self, positions: dict[TopicPartition, int]) -> None:
        """Partitions of topics that are new."""
        for which, offset in positions.items():
            self._inputs[which] = self._by_topic[which.topic] = _Input(offset)

    def drop(self, topic: str) -> None:
        """A topic that is gone."""
        self._inputs = {which: one for which, one in self._inputs.items() if which.topic != topic}
        self._by_topic.pop(topic, None)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Where to fetch more; without those of which there is enough."""
        return {
            which: one.position for which, one in self._inputs.items() if one.bytes_held < self._max_bytes
        }

    @property
    def done(self) -> dict[TopicPartition, int]:
        """How far processing is: what to commit."""
        return {which: one.done for which, one in self._inputs.items()}

    @property
    def lag(self) -> int:
        """Records (and markers) that are not processed, as the brokers said last."""
        return sum(max(one.end - one.done, 0) for one in self._inputs.values())

    def receive(self, fetched: Fetched) -> None:
        one = self._inputs.get(TopicPartition(fetched.topic, fetched.partition))
        if one is not None:
            one.receive(fetched)

    def skip_to(self, topic_partition: TopicPartition, offset: int) -> None:
        """What lies before has been deleted."""
        one = self._inputs[topic_partition]
        one.position = max(one.position, offset)
        if not one.waiting:
            one.done = one.position

    def next_block(self) -> tuple[str, SomeRecords] | None:
        """Some records of one topic, to be processed now; None if there are none, or if those that there are
        have to wait for others that may be older."""
        filled = [(topic, one) for topic, one in self._by_topic.items() if one.fill()]
        if not filled:
            return None
        if len(self._inputs) == 1:
            return filled[0][0], filled[0][1].records[0]
        if any(not one.records and not one.caught_up for one in self._by_topic.values()):
            return None
        return next(by_time({topic: one.records[:1] for topic, one in filled}))

    def took(self, topic: str, records: SomeRecords) -> None:
        """They are processed."""
        self._by_topic[topic].took(records)

    @property
    def waiting(self) -> bool:
        """Whether something is held that is not processed."""
        return any(one.waiting for one in self._inputs.values())
