"""Views: local copies of tables for pull queries, in LMDB, kept current from the table's topic.

A view holds the newest record of each key as bytes, by partition: the key (with its window behind it, as in
the topic) gives the time and the value. It reads committed records only, and writes each block together with
the offset behind it, so a restart goes on where it stopped; a topic that was deleted and made again is
noticed by its id, and read anew. A query asks the cluster where the topic ends, waits until the view has come
that far, and reads from one snapshot.
"""

from __future__ import annotations

import logging
import shutil
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import lmdb

from millstream.client import EARLIEST, LATEST, ClientConfig, Cluster, Fetcher, list_offsets
from millstream.client.fetch import next_offset, visible_batches
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.murmur2 import partition_for
from millstream.wire.records import iter_records
from millstream.wire.topic_partition import TopicPartition

log = logging.getLogger("millstream.sql")

_TIME = struct.Struct(">q")
_OFFSET = struct.Struct(">q")
_PARTITION = struct.Struct(">H")
_BYTES = 4 << 20
_POLL_MS = 200
_PAUSE = 0.5
FIRST_MAP_SIZE = 64 << 20
_LAYOUT = b"1"
"""Of the rows: a file with another one is read anew."""


class ViewRow(NamedTuple):
    key: bytes
    value: bytes
    timestamp: int


class ViewUnavailable(Exception):
    """The view cannot answer now; the message says why."""


class TableView:
    """One table's topic. `window_bytes` is what a window takes at the end of a key: 0, 8 or 16.

    `size_limit` bounds the file; a view that would grow beyond it stops and says so.
    """

    def __init__(
        self,
        folder: Path,
        client: ClientConfig,
        topic: str,
        *,
        window_bytes: int = 0,
        size_limit: int = 16 << 30,
    ) -> None:
        self.topic, self._window_bytes, self._size_limit = topic, window_bytes, size_limit
        self._folder = folder
        self._cluster, self._ask = Cluster(client), Cluster(client)
        self._positions: dict[int, int] = {}
        self._moved = threading.Condition()
        self._asking = threading.Lock()
        self._stopping = threading.Event()
        self.failure: str | None = None
        self._open()
        self._thread = threading.Thread(target=self._tail, name=f"view-{topic}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(5)
        self._cluster.close()
        self._ask.close()
        self._env.close()

    def delete(self) -> None:
        self.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # Keeping it current

    def _open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        # Nothing is lost by a crash that the topic does not bring again: no fsync.
        self._env = lmdb.open(
            str(self._folder), map_size=FIRST_MAP_SIZE, max_dbs=2, sync=False, max_readers=512, writemap=False
        )
        self._rows = self._env.open_db(b"rows")
        self._offsets = self._env.open_db(b"offsets")

    def _begin(self, topic_id: bytes) -> None:
        """With what the file has, if it is of this topic."""
        with self._env.begin(write=True) as transaction:
            if transaction.get(b"id", db=self._offsets) != _LAYOUT + topic_id:
                transaction.drop(self._rows, delete=False)
                transaction.drop(self._offsets, delete=False)
                transaction.put(b"id", _LAYOUT + topic_id, db=self._offsets)
                self._positions = {}
                return
            self._positions = {
                int(key[1:]): _OFFSET.unpack(value)[0]
                for key, value in transaction.cursor(db=self._offsets)
                if key[:1] == b"p"
            }

    def _tail(self) -> None:
        known: bytes | None = None
        fetcher = Fetcher(self._cluster, read_committed=True, partition_max_bytes=_BYTES)
        while not self._stopping.is_set():
            try:
                problem = self._cluster.refresh([self.topic]).get(self.topic) if known is None else None
                if problem is not None:
                    raise problem
                if known is None:
                    known = self._cluster.topic_id(self.topic).bytes
                    self._begin(known)
                    self._find_partitions()
                self._read(fetcher)
                self.failure = None
            except lmdb.MapFullError:
                if not self._grow():
                    return
            except (KafkaError, OSError) as error:
                known = None
                with self._moved:
                    self.failure = f"topic {self.topic} cannot be read: {error}"
                    self._moved.notify_all()
                self._stopping.wait(_PAUSE)

    def _find_partitions(self) -> None:
        new = [
            TopicPartition(self.topic, number)
            for number in self._cluster.topic(self.topic).partitions
            if number not in self._positions
        ]
        if new:
            first = list_offsets(self._cluster, dict.fromkeys(new, EARLIEST))
            self._positions |= {which.partition: found.offset for which, found in first.items()}

    def _read(self, fetcher: Fetcher) -> None:
        positions = {TopicPartition(self.topic, number): at for number, at in self._positions.items()}
        for fetched in fetcher.poll(positions, _POLL_MS):
            number = fetched.partition
            position = self._positions[number]
            if fetched.error is ErrorCode.offset_out_of_range:
                which = TopicPartition(self.topic, number)
                self._positions[number] = list_offsets(self._cluster, {which: EARLIEST})[which].offset
                continue
            if fetched.error is not ErrorCode.none:
                raise KafkaError(fetched.error, f"partition {number} cannot be read")
            after = next_offset(fetched, position)
            if after == position:
                continue
            prefix = _PARTITION.pack(number)
            with self._env.begin(write=True) as transaction:
                for _, batch in visible_batches(fetched, position, read_committed=True):
                    for record in iter_records(batch):
                        if record.offset < position or record.key is None:
                            continue
                        key = prefix + record.key
                        if record.value is None:
                            transaction.delete(key, db=self._rows)
                        else:
                            transaction.put(key, _TIME.pack(record.timestamp) + record.value, db=self._rows)
                transaction.put(b"p%d" % number, _OFFSET.pack(after), db=self._offsets)
            with self._moved:
                self._positions[number] = after
                self._moved.notify_all()

    def _grow(self) -> bool:
        size = self._env.info()["map_size"] * 2
        if size > self._size_limit:
            with self._moved:
                self.failure = (
                    f"the view of {self.topic} would be larger than {self._size_limit} bytes: drop the "
                    "table, or read "
                    "less of the topic into it"
                )
                self._moved.notify_all()
            log.error("%s", self.failure)
            return False
        self._env.set_mapsize(size)
        return True

    # Asking it

    def catch_up(self, timeout: float = 10.0) -> dict[int, int]:
        """Waits until the view has all that is committed now. Returns the offsets that it reflects."""
        try:
            with self._asking:  # a cluster's connections belong to one thread at a time
                partitions = [
                    TopicPartition(self.topic, number) for number in self._ask.topic(self.topic).partitions
                ]
                ends = list_offsets(self._ask, dict.fromkeys(partitions, LATEST), read_committed=True)
        except KafkaError as error:
            raise ViewUnavailable(f"topic {self.topic} cannot be read: {error}") from None
        wanted = {which.partition: found.offset for which, found in ends.items()}

        def there() -> bool:
            return all(self._positions.get(number, -1) >= end for number, end in wanted.items())

        with self._moved:
            if not self._moved.wait_for(lambda: there() or self.failure is not None, timeout):
                raise ViewUnavailable(f"the view of {self.topic} is behind: try again")
            if not there():
                raise ViewUnavailable(str(self.failure))
            return dict(self._positions)

    def get(self, key: bytes) -> Iterator[ViewRow]:
        """The row of a key; of a windowed table one for each window, by start."""
        size = self._window_bytes
        with self._env.begin(db=self._rows) as transaction:
            cursor = transaction.cursor()
            for prefix in self._likely_first(key):
                wanted = prefix + key
                if not size:
                    found = transaction.get(wanted)
                    if found is not None:
                        yield ViewRow(key, found[8:], _TIME.unpack_from(found)[0])
                        return
                    continue
                more = cursor.set_range(wanted)
                while more:
                    own, found = cursor.item()
                    if not own.startswith(wanted):
                        break
                    if len(own) == len(wanted) + size:
                        yield ViewRow(own[2:], found[8:], _TIME.unpack_from(found)[0])
                    more = cursor.next()

    def partition(self, key: bytes) -> int:
        """Where Kafka's partitioner puts a key."""
        return partition_for(key, len(self._positions)) if self._positions else 0

    def _likely_first(self, key: bytes) -> list[bytes]:
        """All partitions; first the one that Kafka's partitioner chooses, though a producer may choose
        another."""
        likely = self.partition(key)
        numbers = sorted(self._positions, key=lambda number: (number != likely, number))
        return [_PARTITION.pack(number) for number in numbers]

    def scan(self) -> Iterator[ViewRow]:
        """Every row, by partition and in the order of the keys' bytes."""
        with self._env.begin(db=self._rows) as transaction:
            for own, found in transaction.cursor():
                yield ViewRow(own[2:], found[8:], _TIME.unpack_from(found)[0])
