"""Rebuilding what is known of producers: a snapshot, then the headers of the batches behind it."""

from __future__ import annotations

import logging
import os

from millstream.storage.files import remove_quietly
from millstream.storage.producers import ProducerTable
from millstream.storage.segment import SNAPSHOT, Segment, file_stem
from millstream.storage.transactions import AbortedTransaction

logger = logging.getLogger(__name__)


def restore_producers(
    folder: str, segments: list[Segment], producers: ProducerTable, snapshots: list[int], end: int
) -> list[int]:
    """Make `producers` what it was at offset `end`. Returns the snapshots that exist; damaged ones are
    removed."""
    snapshots, start = load_newest_snapshot(folder, producers, snapshots, end)
    if start < end:
        replay(segments, producers, start, end)
    return snapshots


def aborted_in(
    folder: str, segments: list[Segment], segment: Segment, snapshots: list[int]
) -> tuple[list[AbortedTransaction], list[int]]:
    """The aborted transactions of a segment, found again from its markers; and the snapshots that exist."""
    producers = ProducerTable()
    snapshots = restore_producers(folder, segments, producers, snapshots, segment.base_offset)
    found = [producers.replay(header, batch) for header, batch in segment.walk_headers(0)]
    return [entry for entry in found if entry is not None], snapshots


def load_newest_snapshot(
    folder: str, producers: ProducerTable, snapshots: list[int], not_after: int
) -> tuple[list[int], int]:
    """Fill the table from the newest sound snapshot at or before an offset. (snapshots left, where replay
    starts)."""
    left = list(snapshots)
    for offset in sorted(snapshots, reverse=True):
        if offset > not_after:
            continue
        path = os.path.join(folder, file_stem(offset) + SNAPSHOT)
        try:
            with open(path, "rb") as file:
                producers.load(file.read())
            return left, offset
        except FileNotFoundError:
            left.remove(offset)
        except ValueError as error:
            logger.warning("%s: %s; using an older one", path, error)
            remove_quietly(path)
            left.remove(offset)
    producers.clear()
    return left, 0


def replay(segments: list[Segment], producers: ProducerTable, start: int, stop: int) -> None:
    """Feed the batches in [start, stop) to the table, from headers alone (markers are small and read
    whole)."""
    for segment in segments:
        if segment.end_offset <= start or segment.base_offset >= stop or not segment.size:
            continue
        found = segment.find(max(start, segment.base_offset))
        if found is None:
            continue
        for header, batch in segment.walk_headers(found[0]):
            if header.base_offset >= stop:
                return
            if header.producer_id >= 0:
                producers.replay(header, batch)
