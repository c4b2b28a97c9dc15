"""What passes from the child that compacts to the broker that owns the log: files of these names, and these
few numbers."""

from __future__ import annotations

import os
from typing import NamedTuple

from millstream.storage.files import remove_quietly
from millstream.storage.segment import INDEX, LOG, TIME_INDEX, TXN_INDEX, file_stem

CLEANED = ".cleaned"  # being written, or complete and not yet taken over
SWAP = ".swap"  # complete, and taking the place of others
SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)


class NewSegment(NamedTuple):
    """A finished *.cleaned segment."""

    base_offset: int
    size: int
    max_timestamp: int
    max_timestamp_offset: int


class Replacement(NamedTuple):
    """A new segment is ready, to take the place of these."""

    old: list[int]  # base offsets
    new: NewSegment


def remove_files(folder: str, base_offset: int, suffix: str) -> None:
    """.log first: without it, what remains of a segment means nothing."""
    for file_type in SEGMENT_SUFFIXES:
        remove_quietly(os.path.join(folder, file_stem(base_offset) + file_type + suffix))
