"""At start: finish or undo the replacement of segments that a crash interrupted.

What is found tells how far it had come, because of the order of the renames (swap.py):

    only *.cleaned                      the new segment was never complete: remove it
    .log.swap and still *.cleaned       not all has its new name: remove both, the old segments are all there
    .log.swap and no *.cleaned          complete, and old segments may be half gone: finish
    *.swap without .log.swap            nearly done, the log file has its final name: give the rest theirs

The files of the next group of segments may lie there as *.cleaned too; they have a larger offset and say
nothing about this one.
"""

from __future__ import annotations

import logging
import os
import re

from millstream.storage.cleaning.cleaned_segment import CLEANED, SEGMENT_SUFFIXES, SWAP
from millstream.storage.files import FilePool, remove_quietly
from millstream.storage.segment import LOG, Segment, file_stem

logger = logging.getLogger(__name__)

_NUMBERED = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex)(\.swap|\.cleaned|)", re.ASCII)


def finish_swaps(folder: str, names: list[str], pool: FilePool) -> bool:
    """Whether there was anything to do: then the folder's `names` have changed."""
    if not any(name.endswith((CLEANED, SWAP)) for name in names):
        return False
    found = [match for name in names if (match := _NUMBERED.fullmatch(name))]
    unfinished = [int(match[1]) for match in found if match[3] == CLEANED]
    swapping = sorted({int(match[1]) for match in found if match[3] == SWAP})
    for match in found:
        if match[3] == CLEANED or (match[3] == SWAP and int(match[1]) >= min(unfinished, default=1 << 63)):
            remove_quietly(os.path.join(folder, match[0]))
    for base in swapping:
        if base < min(unfinished, default=1 << 63):
            _finish(folder, base, pool, [match for match in found if match[3] == ""])
    return True


def _finish(folder: str, base: int, pool: FilePool, old: list[re.Match[str]]) -> None:
    stem = os.path.join(folder, file_stem(base))
    if os.path.exists(stem + LOG + SWAP):
        logger.info(
            "%s: finishing the replacement of segments from offset %d on", os.path.basename(folder), base
        )
        end = _end_of(folder, base, pool)
        for match in old:
            if base <= int(match[1]) < end:
                remove_quietly(os.path.join(folder, match[0]))
    for suffix in SEGMENT_SUFFIXES:
        try:
            os.replace(stem + suffix + SWAP, stem + suffix)
        except FileNotFoundError:
            pass


def _end_of(folder: str, base: int, pool: FilePool) -> int:
    """Behind the last batch of the new segment; at least its own base is taken."""
    segment = Segment(folder, base, pool)
    segment.suffix = SWAP
    segment.size = os.stat(segment.path).st_size
    end = base + 1
    for _, _, _, last, _ in segment.walk(0):
        end = last + 1
    segment.close_files()
    return end
