"""A copy of a changelog, or of any topic that is a table, in LMDB.

The copy is kept current by `catch_up` (to the topic's present end) or by `follow` (a thread, until `close`):
committed records only. A block of records and the offsets behind it are one transaction, so after a crash the
copy goes on exactly where it was; it is begun anew only if the topic is another one of the same name, or if
the copy is so old that compaction may have removed deletions that it has not seen. Questions go to a
`snapshot`, at any time and from any thread.

If the disk is full the copy stays as it is: it goes on answering, its offsets say how far it goes, `problem`
says why, and it reads on when there is room again.

One process keeps a copy; a second one in the same folder is refused.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import lmdb

from millstream.client import ClientConfig, Cluster
from millstream.streams.errors import StreamsError
from millstream.streams.runtime.topic_reader import TopicReader
from millstream.streams.serdes import STRING, Serde
from millstream.streams.stores import StoreSpec
from millstream.streams.stores.lmdb import ReadOnlyFolder, StoreFolder
from millstream.streams.views.snapshot import Snapshot
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.murmur2 import partition_for
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.streams.runtime.fetched_records import SomeRecords

log = logging.getLogger("millstream.streams")

FRESH_SECONDS = 12 * 3600
"""Well below a day, which is how long compacted topics keep deletions unless they are told otherwise."""
REMEMBER_SECONDS = 600.0
"""How often a copy of a topic in which nothing happens says that it is current."""
RETRY_SECONDS = 1.0
POLL_MS = 500
DEFAULT_SIZE = 64 << 30
MAX_PARTITIONS = 1000
CLOSE_SECONDS = 10.0
"""How long `close` waits for snapshots that are in use."""
_TIME = struct.Struct(">q")


class ViewBusy(StreamsError):
    """Another process keeps a copy in this folder."""


class TopicView:
    """spec      the store that the topic is the changelog of
    application  part of the subjects of its serdes, if a schema registry has them
    size         the limit that the folder may grow to; nothing is taken before it is used
    """

    def __init__(
        self,
        spec: StoreSpec,
        topic: str,
        folder: Path | str,
        client: ClientConfig,
        *,
        application: str = "",
        size: int = DEFAULT_SIZE,
    ) -> None:
        self.spec, self.topic, self._application, self._size = spec, topic, application, size
        self.problem: str | None = None
        self._path = Path(folder)
        self._path.mkdir(parents=True, exist_ok=True)
        self._lock_file = self._locked()
        self._writing = threading.Lock()
        self._moved = threading.Condition()
        self._stopping = threading.Event()
        self._snapshots = 0
        self._follower: threading.Thread | None = None
        self._cluster = Cluster(client)
        self._reader = TopicReader(self._cluster, [topic])
        self._open()

    @classmethod
    def of_table(
        cls,
        topic: str,
        folder: Path | str,
        client: ClientConfig,
        *,
        key: Serde = STRING,
        value: Serde = STRING,
        size: int = DEFAULT_SIZE,
    ) -> TopicView:
        """A topic whose records are the newest state of their keys."""
        return cls(StoreSpec(topic, "key-value", key, value, logged=False), topic, folder, client, size=size)

    def _locked(self) -> Any:
        file = (self._path / "lock").open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise ViewBusy(f"another process keeps a copy of {self.topic} in {self._path}") from None
        return file

    def _open(self) -> None:
        self._folder = StoreFolder(self._path / "rows", size=self._size, max_stores=MAX_PARTITIONS)
        kept = _decoded(self._folder.position)
        self._topic_id = kept["topic_id"]
        self._current_at = self._saved_at = float(kept["current_at"])
        self._offsets = {int(number): offset for number, offset in kept["offsets"].items()}
        self._reader.positions = self._committed_positions()
        self._open_stores(self._offsets)

    def _open_stores(self, partitions: Iterable[int]) -> None:
        """Each partition is a store of its own, as in the application's tasks: it has a time of its own."""
        self._stores: dict[int, Any] = {}
        for number in partitions:
            self._store_of(number)

    def _store_of(self, partition: int) -> Any:
        store = self._stores.get(partition)
        if store is None:
            if partition >= MAX_PARTITIONS:
                raise StreamsError(f"{self.topic} has more than {MAX_PARTITIONS} partitions")
            store = self._folder.open(self._spec_of(partition), self._application)
            # What holds a new store must not be rolled back with what comes first into it.
            self._folder.commit()
            self._stores[partition] = store
        return store

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._stopping.set()
        if self._follower is not None:
            self._follower.join()
        with self._moved:
            self._moved.wait_for(lambda: not self._snapshots, CLOSE_SECONDS)
        with self._writing:
            self._folder.close()
            self._cluster.close()
            self._lock_file.close()

    # Reading on ---------------------------------------------------------------------------------------------

    @property
    def offsets(self) -> dict[int, int]:
        """By partition, up to where records were taken."""
        return dict(self._offsets)

    def catch_up(self) -> None:
        """To the present end of the topic, as far as it is committed."""
        with self._writing:
            self._catch_up()

    def _catch_up(self) -> None:
        problem = self._cluster.refresh([self.topic]).get(self.topic)
        if problem is not None:
            if problem.code is ErrorCode.unknown_topic_or_partition and self._reader.positions:
                self._begin_anew("is gone")
            raise problem
        ends = self._reader.ends()
        topic_id = str(self._cluster.topic_id(self.topic))
        if self._is_another(topic_id, ends):
            self._begin_anew("is another topic than the one that was copied")
        elif self._reader.positions and not 0 <= time.time() - self._current_at < FRESH_SECONDS:
            self._begin_anew("may have forgotten deletions since it was copied")
        self._topic_id, self._current_at = topic_id, time.time()
        reached: dict[TopicPartition, int] = {}
        before = dict(self._reader.positions)
        try:
            for which, records in self._reader.read_to(ends):
                if not len(records):
                    continue
                self._take(which.partition, records)
                reached[which] = records.last_offset + 1
                self._commit({**self._reader.positions, **reached})
            if self._reader.positions != before or self._current_at - self._saved_at > REMEMBER_SECONDS:
                self._commit(self._reader.positions)
        except (KafkaError, lmdb.Error, OSError) as error:
            self._folder.roll_back()
            self._reader.positions = self._committed_positions()
            if isinstance(error, KafkaError):
                raise
            self._stall(error)
            return
        self.problem = None

    def _is_another(self, topic_id: str, ends: dict[TopicPartition, int]) -> bool:
        """Deleted and created again, or cut off."""
        if self._topic_id not in ("", topic_id):
            return True
        return any(offset > ends.get(which, -1) for which, offset in self._reader.positions.items())

    def _take(self, partition: int, records: SomeRecords) -> None:
        store = self._store_of(partition)
        store.restore((key, value, at) for _, key, value, at, _ in records if key is not None)

    def _spec_of(self, partition: int) -> StoreSpec:
        return replace(self.spec, name=str(partition), logged=False, source_topic=self.topic)

    def _commit(self, positions: dict[TopicPartition, int]) -> None:
        offsets = {which.partition: offset for which, offset in sorted(positions.items())}
        position = {"topic_id": self._topic_id, "offsets": offsets, "current_at": self._current_at}
        self._folder.commit(json.dumps(position).encode())
        self._saved_at = self._current_at
        with self._moved:
            self._offsets = offsets
            self._moved.notify_all()

    def _committed_positions(self) -> dict[TopicPartition, int]:
        kept = _decoded(self._folder.position)
        return {TopicPartition(self.topic, int(number)): offset for number, offset in kept["offsets"].items()}

    def _begin_anew(self, why: str) -> None:
        log.warning("%s %s: the copy is made anew", self.topic, why)
        for store in self._stores.values():
            self._folder.clear(store)
        self._topic_id = ""
        self._reader.positions = {}
        self._commit({})

    def _stall(self, error: Exception) -> None:
        if isinstance(error, OSError) and error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise error
        full = isinstance(error, lmdb.MapFullError)
        text = f"the copy has reached its limit of {self._size} bytes" if full else f"cannot write: {error}"
        if self.problem != text:
            log.warning("the copy of %s stays at %s: %s", self.topic, self.offsets, text)
        self.problem = text

    # Following ----------------------------------------------------------------------------------------------

    def follow(self, *, wait: bool = True) -> None:
        """Reads on in a thread, until `close`. Returns when all that there is now has been read, or at
        once."""
        if wait:
            self.catch_up()
        if self._follower is None:
            name = f"view-{self.topic}"
            self._follower = threading.Thread(target=self._follow, name=name, daemon=True)
            self._follower.start()

    def _follow(self) -> None:
        while not self._stopping.is_set():
            try:
                self.catch_up()
                if self.problem is None:
                    self._reader.wait(POLL_MS)
                else:
                    self._stopping.wait(RETRY_SECONDS)
            except KafkaError as error:
                self.problem = f"cannot read: {error}"
                log.warning("the copy of %s stays at %s: %s", self.topic, self.offsets, self.problem)
                self._stopping.wait(RETRY_SECONDS)

    def wait_for(self, offsets: dict[int, int], timeout: float) -> bool:
        """Until everything before these offsets is in the copy; False if that takes longer."""

        def there() -> bool:
            return all(self._offsets.get(number, 0) >= offset for number, offset in offsets.items())

        with self._moved:
            return self._moved.wait_for(there, timeout)

    # Asking -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """What the copy holds now. It is good until the end of the `with`."""
        with self._reading() as folder:
            offsets = _decoded(folder.position)["offsets"]
            found = {int(number): offset for number, offset in offsets.items()}
            yield Snapshot(self.spec, self._snapshot_stores(folder, sorted(found)), found)

    def get(self, key: bytes) -> tuple[bytes, int] | None:
        """One row of a table by the bytes of its key: the value's bytes and its time. The same as a
        snapshot's `get`, in a tenth of the time."""
        with self._reading() as folder:
            count = len(self._offsets)
            likely = partition_for(key, count) if count else 0
            found = folder.row(str(likely), key)
            if found is None:
                for number in list(self._stores):
                    found = None if number == likely else folder.row(str(number), key)
                    if found is not None:
                        break
                else:
                    return None
        return found[8:], _TIME.unpack_from(found)[0]

    @contextlib.contextmanager
    def _reading(self) -> Iterator[ReadOnlyFolder]:
        with self._moved:
            if self._stopping.is_set():
                raise StreamsError(f"the copy of {self.topic} is closed")
            self._snapshots += 1
        try:
            with self._folder.reading() as folder:
                yield folder
        finally:
            with self._moved:
                self._snapshots -= 1
                self._moved.notify_all()

    def _snapshot_stores(self, folder: ReadOnlyFolder, partitions: list[int]) -> dict[int, Any]:
        specs = {number: self._spec_of(number) for number in partitions}
        return {
            number: folder.open(spec, self._application)
            for number, spec in specs.items()
            if folder.has(spec.name)
        }


def _decoded(position: bytes | None) -> dict[str, Any]:
    if position is None:
        return {"topic_id": "", "offsets": {}, "current_at": 0.0}
    found: dict[str, Any] = json.loads(position)
    return found
