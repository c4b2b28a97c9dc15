"""Stores from their changelogs: only what a folder lacks, a piece at a time.

A folder knows which part of each changelog it holds. If that is a beginning of the changelog as it is now,
the rest is read; otherwise the store is emptied and read from the start. A beginning of long ago is none: a
compacted topic forgets deletions after a while (`delete.retention.ms`), and a row that was deleted meanwhile
would stay for ever.

The folder is committed on the way, so a restore that is cut off goes on from there.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from millstream.client import Cluster
from millstream.client.fetch import Fetched
from millstream.client.offsets import EARLIEST, LATEST, list_offsets
from millstream.streams.runtime.fetched_records import SomeRecords, records_of
from millstream.streams.stores.lmdb import StoreFolder
from millstream.streams.task import StreamTask
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

log = logging.getLogger("millstream.streams")

FRESH_SECONDS = 12 * 3600
"""Well below a day, which is how long compacted topics keep deletions unless they are told otherwise."""
_COMMIT_RECORDS = 200_000
_BUFFER_BYTES = 8 << 20
_CHUNK_BYTES = 1 << 20
_NEVER = 1 << 62

Changelogs = Mapping[TopicPartition, Any]
"""The store of each changelog partition."""


def changelogs_of(task: StreamTask, partition: int) -> dict[TopicPartition, Any]:
    return {
        TopicPartition(store.spec.changelog(task.application), partition): store
        for name, store in task.stores.items()
        if store.spec.restored and not task.is_global(name)
    }


@dataclass(slots=True)
class FolderPosition:
    """What a folder of stores reflects.

    offsets      [topic, partition, offset] of each input, and
    metadata     what was committed beside them; empty while a restore is under way
    changelogs   by topic: its id, and the offset after the last record that the store holds
    at           when it was written, in seconds since the epoch
    """

    offsets: list[list[Any]] = field(default_factory=list)
    metadata: str = ""
    changelogs: dict[str, list[Any]] = field(default_factory=dict)
    at: float = 0.0

    @classmethod
    def of(
        cls,
        offsets: Mapping[TopicPartition, int],
        metadata: str,
        changelogs: Mapping[TopicPartition, int],
        cluster: Cluster,
    ) -> FolderPosition:
        ids = {which.topic: str(cluster.topic(which.topic).id) for which in changelogs}
        return cls(
            sorted([*which, offset] for which, offset in offsets.items()),
            metadata,
            {which.topic: [ids[which.topic], offset] for which, offset in changelogs.items()},
            time.time(),
        )

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, text: bytes | None) -> FolderPosition:
        """Nothing, if there is none or it is not understood: then everything is restored."""
        try:
            return cls(**json.loads(text or b"{}"))
        except (ValueError, TypeError):
            return cls()

    def is_at(self, offsets: Mapping[TopicPartition, int], metadata: str) -> bool:
        return bool(self.offsets) and (self.offsets, self.metadata) == (
            sorted([*which, offset] for which, offset in offsets.items()),
            metadata,
        )

    def knows(self, changelogs: Changelogs, cluster: Cluster) -> bool:
        """Whether it holds something of each of these topics, which are the same ones still."""
        return all(
            self.changelogs.get(which.topic, ["", -1])[0] == str(cluster.topic(which.topic).id)
            and self.changelogs[which.topic][1] >= 0
            for which in changelogs
        )

    def changelogs_in(self, changelogs: Changelogs) -> dict[TopicPartition, int]:
        return {which: int(self.changelogs[which.topic][1]) for which in changelogs}

    def first_missing(self, which: TopicPartition, cluster: Cluster, begin: int, end: int) -> int | None:
        """Where to read on; None if what the folder holds is no use."""
        topic_id, offset = self.changelogs.get(which.topic, ("", -1))
        fresh = 0 <= time.time() - self.at < FRESH_SECONDS
        if fresh and topic_id == str(cluster.topic(which.topic).id) and begin <= offset <= end:
            return int(offset)
        return None


class Restore:
    """One folder's restore. `positions` is what to fetch; `receive` and `work` in turns until `done`. With
    `follow` it goes on for ever."""

    def __init__(
        self,
        cluster: Cluster,
        folder: StoreFolder,
        changelogs: Changelogs,
        kept: FolderPosition,
        processed: Mapping[TopicPartition, int] | None = None,
        *,
        follow: bool = False,
    ) -> None:
        self._cluster, self._folder, self._changelogs = cluster, folder, changelogs
        self._began = time.monotonic()
        self.records = self._since_commit = 0
        self._received: deque[tuple[TopicPartition, Iterator[SomeRecords], int, int]] = deque()
        self._bytes_held = 0
        cluster.refresh(which.topic for which in changelogs)
        begins = list_offsets(cluster, dict.fromkeys(changelogs, EARLIEST))
        ends = list_offsets(cluster, dict.fromkeys(changelogs, LATEST), read_committed=True)
        # A store whose changelog is an input goes as far as that was processed.
        limits = processed or {}
        self._ends = {
            which: _NEVER if follow else min(end.offset, limits.get(which, end.offset))
            for which, end in ends.items()
        }
        self._fetched: dict[TopicPartition, int] = {}
        for which, store in changelogs.items():
            begin, end = begins[which].offset, min(ends[which].offset, self._ends[which])
            first = kept.first_missing(which, cluster, begin, end)
            if first is None:
                folder.clear(store)
                first = begin
            self._fetched[which] = first
        self.positions_reached = dict(self._fetched)

    @property
    def done(self) -> bool:
        return all(offset >= self._ends[which] for which, offset in self.positions_reached.items())

    @property
    def positions(self) -> dict[TopicPartition, int]:
        if self._bytes_held >= _BUFFER_BYTES:
            return {}
        return {which: offset for which, offset in self._fetched.items() if offset < self._ends[which]}

    def receive(self, fetched: Fetched) -> None:
        which = TopicPartition(fetched.topic, fetched.partition)
        if fetched.error is ErrorCode.offset_out_of_range:
            # Deleted from its beginning meanwhile, as windows are that nobody can ask for any more.
            first = list_offsets(self._cluster, {which: EARLIEST})[which].offset
            self._fetched[which] = max(first, self._fetched[which])
            return
        if fetched.error is not ErrorCode.none:
            raise KafkaError(fetched.error, f"{which} cannot be read")
        found, after = records_of(fetched, self._fetched[which], self._ends[which], chunk_bytes=_CHUNK_BYTES)
        if after <= self._fetched[which]:
            return
        self._received.append((which, found, after, len(fetched.records)))
        self._bytes_held += len(fetched.records)
        self._fetched[which] = after

    def work(self) -> bool:
        """Some of what was received. True if there is more."""
        if not self._received:
            return False
        which, found, after, size = self._received[0]
        records = next(found, None)
        if records is None:
            self._received.popleft()
            self._bytes_held -= size
            self.positions_reached[which] = min(after, self._ends[which])
        else:
            self._changelogs[which].restore(
                (key, value, at) for _, key, value, at, _ in records if key is not None
            )
            self.records += len(records)
            self._since_commit += len(records)
        if self._since_commit >= _COMMIT_RECORDS and records is None:
            self.commit()
        return bool(self._received)

    @property
    def uncommitted(self) -> bool:
        return self._since_commit > 0

    def commit(self) -> None:
        """What the folder holds so far: a piece of the changelogs, of no use for anything but to go on."""
        self._since_commit = 0
        self._folder.commit(FolderPosition.of({}, "", self.positions_reached, self._cluster).encode())

    def say_so(self, partition: int) -> None:
        if self.records:
            seconds = time.monotonic() - self._began
            log.warning("restored %d records of partition %d in %.2f s", self.records, partition, seconds)
