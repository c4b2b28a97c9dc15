"""Views: local copies of tables for pull queries.

The copy is one of Streams' (`streams/views`), of the topic's bytes: a key has its window behind it, as in the
topic. A thread keeps it current. A query asks the cluster where the topic ends, waits until the copy has come
that far, and reads from one snapshot. Queries that come within `lease` seconds of that question share its
answer, unless this server itself has written to the topic meanwhile.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from millstream.client import LATEST, ClientConfig, Cluster, list_offsets
from millstream.sql.header_views import HeaderView
from millstream.streams.serdes import BYTES
from millstream.streams.views import Snapshot, TopicView
from millstream.streams.views.snapshot import ViewRow
from millstream.streams.views.topic_view import DEFAULT_SIZE
from millstream.wire.errors import KafkaError
from millstream.wire.murmur2 import partition_for
from millstream.wire.topic_partition import TopicPartition

_LONGEST_WINDOW = b"\xff" * 16
_LOOK_EVERY = 1.0
"""How often a topic is looked at for new partitions."""
_PATIENCE = 10.0
_PATIENCE_WITH_A_PROBLEM = 2.0
"""Long enough for the copy to try once more."""


class ViewUnavailable(Exception):
    """The view cannot answer now; the message says why."""


Result = TypeVar("Result")


class Shared(Generic[Result]):
    """A question that many ask at once: one of them does, and all who came before have the answer."""

    def __init__(self, ask: Callable[[], Result]) -> None:
        self._ask = ask
        self._changed = threading.Condition()
        self._begun = self._done = 0
        self._fetching = False
        self._answer: Result | None = None

    def __call__(self) -> Result:
        with self._changed:
            wanted = self._begun + 1
            while self._done < wanted and self._fetching:
                self._changed.wait()
            if self._done >= wanted:
                return self._answer  # type: ignore[return-value]
            self._fetching = True
            self._begun += 1
            mine = self._begun
        try:
            answer = self._ask()
            with self._changed:
                self._answer, self._done = answer, mine
            return answer
        finally:
            with self._changed:
                self._fetching = False
                self._changed.notify_all()


class TableView:
    """One table's topic. `window_bytes` is what a window takes at the end of a key: 0, 8 or 16. With
    `headers`, values have those of their records in front (`header_views`)."""

    def __init__(
        self,
        folder: Path,
        client: ClientConfig,
        topic: str,
        *,
        window_bytes: int = 0,
        size: int = DEFAULT_SIZE,
        lease: float = 0.0,
        headers: bool = False,
    ) -> None:
        self.topic, self._folder, self._window_bytes = topic, folder, window_bytes
        self._lease, self._current_until, self._writes = lease, 0.0, 0
        kind = HeaderView if headers else TopicView
        self._copy = kind.of_table(topic, folder, client, key=BYTES, value=BYTES, size=size)
        self._cluster = Cluster(client)
        self._looked_at = 0.0
        self._ends = Shared(self._ask)
        self._copy.follow(wait=False)

    def close(self) -> None:
        self._copy.close()
        self._cluster.close()

    def delete(self) -> None:
        self.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def is_current(self) -> bool:
        """Whether a query need not ask how far the topic goes."""
        return time.monotonic() < self._current_until

    def written_to(self) -> None:
        """This server has written to the topic: whoever asks now has to see it."""
        self._writes += 1
        self._current_until = 0.0

    def catch_up(self) -> None:
        """Waits until the view has all that is committed now."""
        if self.is_current:
            return
        writes, began = self._writes, time.monotonic()
        try:
            ends = self._ends()
        except KafkaError as error:
            raise ViewUnavailable(f"topic {self.topic} cannot be read: {error}") from None
        timeout = _PATIENCE if self._copy.problem is None else _PATIENCE_WITH_A_PROBLEM
        if not self._copy.wait_for(ends, timeout):
            why = self._copy.problem or "try again"
            raise ViewUnavailable(f"the view of {self.topic} is behind: {why}")
        if writes == self._writes:
            self._current_until = began + self._lease

    def _ask(self) -> dict[int, int]:
        """Where the partitions end."""
        now = time.monotonic()
        if now - self._looked_at > _LOOK_EVERY:
            problem = self._cluster.refresh([self.topic]).get(self.topic)
            if problem is not None:
                raise problem
            self._looked_at = now
        try:
            numbers = self._cluster.topic(self.topic).partitions
            wanted = {TopicPartition(self.topic, number): LATEST for number in numbers}
            found = list_offsets(self._cluster, wanted, read_committed=True)
        except KafkaError:
            self._looked_at = 0.0
            raise
        return {which.partition: end.offset for which, end in found.items()}

    def get(self, key: bytes) -> ViewRow | None:
        """The row of a key, of a table without windows."""
        found = self._copy.get(key)
        return None if found is None else ViewRow(key, *found)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[TableSnapshot]:
        """What the view holds now. It is good until the end of the `with`."""
        with self._copy.snapshot() as found:
            yield TableSnapshot(found, self._window_bytes)


class TableSnapshot:
    """Keys and values are bytes."""

    def __init__(self, snapshot: Snapshot, window_bytes: int) -> None:
        self._snapshot, self._window_bytes = snapshot, window_bytes

    def get(self, key: bytes) -> Iterator[ViewRow]:
        """The row of a key; of a windowed table one for each window, by start."""
        for number in self._likely_first(key):
            if not self._window_bytes:
                row = self._snapshot.get(key, number)
                if row is not None:
                    yield row
                    return
                continue
            size = len(key) + self._window_bytes
            for row in self._snapshot.range(key, key + _LONGEST_WINDOW, partition=number):
                if len(row.key) == size and row.key.startswith(key):
                    yield row

    def partition(self, key: bytes) -> int:
        """Where Kafka's partitioner puts a key."""
        count = len(self._snapshot.offsets)
        return partition_for(key, count) if count else 0

    def _likely_first(self, key: bytes) -> list[int]:
        """All partitions; first the one that Kafka's partitioner chooses, though a producer may choose
        another."""
        likely = self.partition(key)
        return sorted(self._snapshot.offsets, key=lambda number: (number != likely, number))

    def scan(self) -> Iterator[ViewRow]:
        """Every row, by partition and in the order of the keys' bytes."""
        for number in sorted(self._snapshot.stores):
            yield from self._snapshot.scan(partition=number)
