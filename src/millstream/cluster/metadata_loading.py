"""Loading the metadata: the image is what the newest snapshot says, and every entry of the log behind it.

A snapshot may be replaced by a newer one while it is read, with the entries that would have come next; then
the loading begins again.
"""

import gc
from collections.abc import Sequence
from typing import NamedTuple

from millstream.cluster.image import Image
from millstream.cluster.metadata_records import Controller as Claim
from millstream.cluster.metadata_records import Decoder, Record, UnknownMetadata
from millstream.cluster.store import Compacted, MetadataStore


class Loaded(NamedTuple):
    image: Image
    snapshot_records: int
    entries: int  # behind the snapshot
    entry_records: int  # in these


async def load(store: MetadataStore) -> Loaded:
    # Loading makes very many objects and no garbage: collecting meanwhile would double its time.
    collects = gc.isenabled()
    gc.disable()
    try:
        while True:
            try:
                return await _load_log(store)
            except Compacted:  # a newer snapshot came between: what it replaced is gone
                pass
    finally:
        if collects:
            gc.enable()


async def _load_log(store: MetadataStore) -> Loaded:
    version, chunks = await store.snapshot()
    image = Image()
    image.version = version
    decoder = Decoder()
    snapshot_records = entry_count = entry_records = 0
    for chunk in chunks:
        _, records = decoder.decode(chunk)
        image.load(records, version)
        snapshot_records += len(records)
    while entries := await store.read(image.version):
        for entry in entries:
            epoch, records = decoder.decode(entry.payload)
            check_epoch(image, epoch, records)
            image.load(records, entry.version)
            entry_count += 1
            entry_records += len(records)
    return Loaded(image, snapshot_records, entry_count, entry_records)


def check_epoch(image: Image, epoch: int, records: Sequence[Record]) -> None:
    """Nothing of an older controller may follow a newer one's claim; a claim takes exactly the next epoch."""
    claimed = [record.epoch for record in records if isinstance(record, Claim)]
    expected = image.controller_epoch + 1 if claimed else image.controller_epoch
    if epoch != expected or claimed not in ([], [expected]):
        raise UnknownMetadata(
            f"after version {image.version}, an entry of controller epoch {epoch} while {expected} is due"
        )
