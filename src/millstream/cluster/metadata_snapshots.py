"""Snapshots of the metadata: the controller writes one now and then, so that a start never has much to read.

It is due after a number of entries, or of records if these are more than the snapshot's. A snapshot that
cannot be written is tried again when the next one is due.
"""

import asyncio
import logging
from collections.abc import Sequence

from millstream.cluster.image import Image
from millstream.cluster.metadata_loading import Loaded
from millstream.cluster.metadata_records import Record, encode_chunks
from millstream.cluster.store import MetadataStore, StoreBroken, StoreError

log = logging.getLogger(__name__)

SNAPSHOT_ENTRIES = 1000  # entries after which the log is compacted,
# Or records, if these are more than the snapshot's: what a start has to read stays bounded.
SNAPSHOT_RECORDS = 5000
KEEP_ENTRIES = 100  # that stay readable behind a snapshot


class MetadataSnapshots:
    def __init__(self, store: MetadataStore, snapshot_entries: int) -> None:
        self._store = store
        self._snapshot_entries = snapshot_entries
        self._snapshot_records = 0
        self._entries = 0  # since the snapshot
        self._entry_records = 0  # in these

    def start_from(self, loaded: Loaded) -> None:
        self._snapshot_records = loaded.snapshot_records
        self._entries, self._entry_records = loaded.entries, loaded.entry_records

    def count(self, records: Sequence[Record]) -> None:
        """An entry with these was applied."""
        self._entries += 1
        self._entry_records += len(records)

    def is_due(self) -> bool:
        return self._entries >= self._snapshot_entries or self._entry_records >= max(
            SNAPSHOT_RECORDS, self._snapshot_records
        )

    def begin(self) -> None:
        """Counts anew: one is about to be written. Whoever says so calls `compact`."""
        self._entries = self._entry_records = 0

    async def compact(self, image: Image) -> None:
        """`image` is a copy: the loop goes on between the chunks."""
        try:
            records = image.records()
            chunks = []
            for chunk in encode_chunks(records):
                chunks.append(chunk)
                await asyncio.sleep(0)
            await self._store.compact(image.version, chunks, KEEP_ENTRIES)
            self._snapshot_records = len(records)
            log.info("metadata compacted at version %d: %d records", image.version, len(records))
        except StoreBroken:
            raise
        except StoreError as problem:
            log.warning(
                "metadata not compacted at version %d, will try again later: %s", image.version, problem
            )
