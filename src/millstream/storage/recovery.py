"""Opening a partition's folder: what is there, is it sound, and if not, what remains.

After a clean stop nothing is checked but the end of the active segment, so opening costs a few small reads.
Otherwise every batch from the recovery point on is read and checked (scan.py); what lies before it was
synced. The log ends at the first bad batch: the file is cut there and later segments are set aside as
`*.lost`. Whatever is cut is said aloud, with the partition's name and the offsets, and never keeps the broker
from starting.

The recovery point is the last flush: indexes, epochs and (at most 64 MB earlier) a producer snapshot were
synced with it, so the work grows with the bytes behind it and with nothing else.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass, field
from itertools import pairwise

from millstream.settings.log_config import LogConfig
from millstream.storage import epochs as epoch_files
from millstream.storage.cleaning.cleaned_segment import CLEANED, SEGMENT_SUFFIXES
from millstream.storage.cleaning.swap_recovery import finish_swaps
from millstream.storage.epochs import EpochCache
from millstream.storage.files import DELETED, FilePool, remove_quietly
from millstream.storage.producer_replay import aborted_in, load_newest_snapshot, replay, restore_producers
from millstream.storage.producers import ProducerTable
from millstream.storage.scan import scan
from millstream.storage.segment import (
    INDEX,
    LOG,
    OPEN_END,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    Segment,
    file_stem,
)

logger = logging.getLogger(__name__)

TEMPORARY, LOST = ".tmp", ".lost"


@dataclass(slots=True)
class Loaded:
    """All that PartitionLog needs to begin."""

    folder: str
    name: str
    segments: list[Segment]
    end_offset: int
    recovery_point: int
    producers: ProducerTable
    epochs: EpochCache
    snapshots: list[int] = field(default_factory=list)
    checked_bytes: int = 0
    checked_from: int = OPEN_END  # segments with this base offset or a larger one were read
    incomplete: list[Segment] = field(default_factory=list)  # files beside the log are missing or damaged
    created: bool = False


def load(
    folder: str,
    config: LogConfig,
    pool: FilePool,
    clean: bool,
    recovery_point: int,
    start_offset: int,
    high_watermark: int,
    expiration_ms: int,
) -> Loaded:
    """Open the folder (made if missing). `high_watermark` only helps to tell what was lost."""
    name = os.path.basename(folder)
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        os.makedirs(folder)
        names = []
    if finish_swaps(folder, names, pool):
        names = os.listdir(folder)
    segments, snapshots, incomplete = _take_stock(folder, names, pool)
    loaded = Loaded(
        folder, name, segments, 0, recovery_point, ProducerTable(name, expiration_ms), EpochCache(), snapshots
    )
    loaded.incomplete = incomplete
    known_end = max(recovery_point, high_watermark)
    if not segments:
        _begin(loaded, start_offset, pool)
    elif clean and _end_is_sound(loaded):
        _trust(loaded)
    else:
        _recover(loaded, config, clean)
    if loaded.end_offset < start_offset:
        logger.error(
            "%s ends at %d, before its start offset: it begins again at %d",
            name,
            loaded.end_offset,
            start_offset,
        )
        for segment in loaded.segments:
            _set_aside(segment)
        loaded.producers.clear()
        loaded.epochs.clear()
        while loaded.snapshots:
            remove_quietly(os.path.join(folder, file_stem(loaded.snapshots.pop()) + SNAPSHOT))
        _begin(loaded, start_offset, pool)
    elif loaded.end_offset < known_end:
        logger.error(
            "%s: offsets %d to %d are lost, the log ends before them", name, loaded.end_offset, known_end - 1
        )
    for segment in incomplete:
        if segment in loaded.segments and segment.base_offset < loaded.checked_from:
            _complete(loaded, segment, config.index_interval_bytes)
    _make_missing_files(loaded, set(names))
    _drop_stray_snapshots(loaded)
    loaded.epochs.truncate_start(max(start_offset, loaded.segments[0].base_offset))
    loaded.producers.touch(int(time.time() * 1000))
    loaded.recovery_point = (
        loaded.end_offset if clean and not loaded.checked_bytes else min(recovery_point, loaded.end_offset)
    )
    for segment in loaded.segments:
        segment.close_files()
    return loaded


# -- what is there -------------------------------------------------------------------------------------------


def _take_stock(
    folder: str, names: list[str], pool: FilePool
) -> tuple[list[Segment], list[int], list[Segment]]:
    """The segments in order, the snapshots' offsets, and the segments whose files beside the log are not
    complete. Leftovers of interrupted work are removed.

    Aborted transactions are missed by nobody when their file is gone. But every closed segment has an offset
    index: if that is missing, files were removed, perhaps to have them made anew."""
    bases = sorted(int(name[: -len(LOG)]) for name in names if _is_numbered(name, LOG))
    known = set(bases)
    for name in names:
        path = os.path.join(folder, name)
        if name.endswith((DELETED, CLEANED, TEMPORARY)):
            remove_quietly(path)
        for suffix in (INDEX, TIME_INDEX, TXN_INDEX):
            if _is_numbered(name, suffix) and int(name[: -len(suffix)]) not in known:
                logger.warning("removing %s, which belongs to no segment", path)
                remove_quietly(path)
    segments = []
    for base in bases:
        segment = Segment(folder, base, pool)
        status = os.stat(segment.path)
        segment.size = status.st_size
        segment.created_ms = int(status.st_mtime * 1000)
        segment.set_newest(-2 if segment.size else -1, base)
        segments.append(segment)
    for one, following in pairwise(segments):
        one.end_offset = following.base_offset
    snapshots = sorted(int(name[: -len(SNAPSHOT)]) for name in names if _is_numbered(name, SNAPSHOT))
    present = set(names)
    incomplete = [segment for segment in segments if segment.size and not _is_complete(segment, present)]
    return segments, snapshots, incomplete


def _is_complete(segment: Segment, present: set[str]) -> bool:
    stem = file_stem(segment.base_offset)
    if stem + INDEX not in present:
        return False
    if stem + TXN_INDEX not in present:
        return True
    problem = segment.txn_index.problem(segment.base_offset, segment.end_offset)
    if problem is not None:
        logger.warning("%s is rebuilt: %s", segment.txn_index.path, problem)
    return problem is None


def _is_numbered(name: str, suffix: str) -> bool:
    return (
        name.endswith(suffix)
        and len(name) == 20 + len(suffix)
        and name[:20].isascii()
        and name[:20].isdecimal()
    )


def _complete(loaded: Loaded, segment: Segment, interval: int) -> None:
    """Make the missing files beside a segment's log again."""
    aborted, loaded.snapshots = aborted_in(loaded.folder, loaded.segments, segment, loaded.snapshots)
    try:
        segment.txn_index.replace(aborted)
        # Last: until it is there, the next start begins here again.
        if not os.path.exists(segment.stem + INDEX):
            logger.warning(
                "%s: the segment %d has no index; it is made anew", loaded.name, segment.base_offset
            )
            segment.rebuild_indexes(interval)
            segment.seal(segment.end_offset)
    except OSError as error:  # a read-only disk still serves readers: all of it is in memory
        logger.warning("%s: an index could not be written: %s", loaded.name, error)


def _begin(loaded: Loaded, offset: int, pool: FilePool) -> None:
    segment = Segment(loaded.folder, offset, pool)
    segment.create()
    loaded.segments[:] = [segment]
    loaded.end_offset = offset
    loaded.created = True


def _make_missing_files(loaded: Loaded, present: set[str]) -> None:
    """A partition has these from its first moment, empty. Nothing relies on them, so a full disk may have
    none."""
    try:
        if epoch_files.FILE_NAME not in present:
            epoch_files.create(loaded.folder)
        active = loaded.segments[-1]
        if not loaded.created and file_stem(active.base_offset) + INDEX not in present:
            active.index.ensure()
            active.time_index.ensure()
    except OSError as error:
        logger.warning("%s: an empty file could not be made: %s", loaded.name, error)


# -- after a clean stop --------------------------------------------------------------------------------------


def _end_is_sound(loaded: Loaded) -> bool:
    """Do the last index entry and the headers behind it lead exactly to the end of the active segment?"""
    active = loaded.segments[-1]
    loaded.end_offset = active.base_offset
    if active.index_problem() is not None:
        return False
    last = active.index.last()
    end = last[1] if last else 0
    newest, newest_offset = active.time_index.last_timestamp, active.time_index.last_offset
    offset = active.base_offset
    for position, base, size, ending, timestamp in active.walk(end):
        if base < offset or ending < base or (last is not None and position == last[1] and ending != last[0]):
            return False
        offset, end = ending + 1, position + size
        if timestamp > newest:
            newest, newest_offset = timestamp, ending
    if end != active.size or active.time_index.problem(max(offset, active.base_offset + 1)) is not None:
        return False
    active.set_newest(newest, newest_offset)
    active.unindexed = active.size - (last[1] if last else 0)
    loaded.end_offset = offset
    return True


def _trust(loaded: Loaded) -> None:
    """Snapshot and epochs as they were saved, or rebuilt where they do not reach to the end."""
    loaded.snapshots = restore_producers(
        loaded.folder, loaded.segments, loaded.producers, loaded.snapshots, loaded.end_offset
    )
    cache = epoch_files.load(loaded.folder)
    if cache is not None:
        cache.truncate_end(loaded.end_offset)
        if cache.latest == _last_epoch(loaded.segments):
            loaded.epochs = cache
            return
    rebuild_epochs(loaded, OPEN_END)


def _last_epoch(segments: list[Segment]) -> int:
    """The epoch of the last batch in the log, from the log itself."""
    for segment in reversed(segments):
        epoch = -1
        last = segment.index.last() if segment.size else None
        for header, _ in segment.walk_headers(last[1] if last else 0):
            epoch = header.leader_epoch
        if epoch >= 0:
            return epoch
    return -1


def rebuild_epochs(loaded: Loaded, stop: int) -> None:
    """From the headers of every batch before `stop`."""
    cache = EpochCache()
    for segment in loaded.segments:
        if segment.base_offset >= stop or not segment.size:
            continue
        for header, _ in segment.walk_headers(0):
            if header.base_offset >= stop:
                break
            if header.leader_epoch > cache.latest:
                cache.assign(header.leader_epoch, header.base_offset)
    loaded.epochs = cache


# -- after a crash -------------------------------------------------------------------------------------------


def _recover(loaded: Loaded, config: LogConfig, clean: bool) -> None:
    """Find where to start, check from there, cut at the first bad batch."""
    if clean:
        logger.warning("%s was closed cleanly but its end is damaged: checking it", loaded.name)
    segments = loaded.segments
    first, position, offset = _scan_start(loaded)
    loaded.checked_from = segments[first].base_offset
    _restore_before(loaded, first, offset)
    for number in range(first, len(segments)):
        segment = segments[number]
        if number > first:
            segment.index_problem()  # opens them as they are; a repair now would be thrown away
            segment.clear_indexes()
            position, offset = 0, max(offset, segment.base_offset)
        if position:
            segment.txn_index.truncate(offset)
        else:
            segment.txn_index.clear()
        start = position
        end = scan(segment, position, offset, config.index_interval_bytes, loaded.epochs, loaded.producers)
        loaded.checked_bytes += end.position - start
        offset = end.next_offset
        if end.problem is not None:
            _cut(loaded, number, end.position, offset, end.problem)
            break
        if number + 1 < len(segments):
            _seal(loaded, segment)
    active = segments[-1]
    active.end_offset = OPEN_END
    loaded.end_offset = max(offset, active.base_offset)
    loaded.epochs.truncate_end(loaded.end_offset)
    if loaded.checked_bytes:
        logger.info(
            "%s: checked %d bytes, the log ends at %d", loaded.name, loaded.checked_bytes, loaded.end_offset
        )


def _seal(loaded: Loaded, segment: Segment) -> None:
    """A full disk still serves readers: the entries are in memory, and a flush tries to save them again."""
    try:
        segment.seal(segment.end_offset)
    except OSError as error:
        logger.warning("%s: an index could not be written: %s", loaded.name, error)


def _scan_start(loaded: Loaded) -> tuple[int, int, int]:
    """(segment number, position, offset) to check from: the recovery point, or earlier where that cannot be
    trusted."""
    segments, point = loaded.segments, loaded.recovery_point
    number = len(segments) - 1
    while number > 0 and segments[number].base_offset > point:
        number -= 1
    # Synced long ago; a glance at the end of each still finds a file that was cut short.
    for earlier in range(number):
        if not _reaches_its_end(segments[earlier]):
            number, point = earlier, segments[earlier].base_offset
            break
    segment = segments[number]
    problem = segment.index_problem()
    if problem is None and segment in loaded.incomplete:
        segment.clear_indexes()
        return number, 0, segment.base_offset
    if problem is None:
        segment.index.truncate(point)
        segment.time_index.truncate(point)
        entry = segment.index.last()
        if entry is None:
            segment.clear_indexes()
            return number, 0, segment.base_offset
        header = segment.header_at(entry[1]) if entry[1] + 61 <= segment.size else None
        if header is not None and header.last_offset == entry[0]:
            segment.unindexed = 0
            segment.set_newest(segment.time_index.last_timestamp, segment.time_index.last_offset)
            return number, entry[1], header.base_offset
        problem = f"offset {entry[0]} does not end at position {entry[1]}"
    if segment.size:
        logger.warning("%s: the whole segment %d is checked: %s", loaded.name, segment.base_offset, problem)
    segment.clear_indexes()
    return number, 0, segment.base_offset


def _reaches_its_end(segment: Segment) -> bool:
    if segment.index_problem() is not None:
        return False
    last = segment.index.last()
    end = last[1] if last else 0
    for position, _, size, _, _ in segment.walk(end):
        end = position + size
    segment.close_files()
    return end == segment.size


def _restore_before(loaded: Loaded, first: int, offset: int) -> None:
    """Producers and epochs as they were where the check begins."""
    loaded.snapshots, start = load_newest_snapshot(loaded.folder, loaded.producers, loaded.snapshots, offset)
    if start < offset:
        replay(loaded.segments[: first + 1], loaded.producers, start, offset)
    cache = epoch_files.load(loaded.folder)
    if cache is not None:
        cache.truncate_end(offset)
        loaded.epochs = cache
    elif offset > loaded.segments[0].base_offset:
        rebuild_epochs(loaded, offset)


def _cut(loaded: Loaded, number: int, position: int, offset: int, problem: str) -> None:
    """The log ends here: cut this segment, set later ones aside, and say so."""
    segment = loaded.segments[number]
    later = loaded.segments[number + 1 :]
    logger.warning(
        "%s: cut %d bytes at offset %d (position %d of %s): %s%s",
        loaded.name,
        segment.size - position,
        offset,
        position,
        os.path.basename(segment.path),
        problem,
        f"; {len(later)} later segments from offset {later[0].base_offset} on are set aside as *{LOST}"
        if later
        else "",
    )
    os.ftruncate(segment.open_for_writing(), position)
    segment.size = position
    for each in reversed(later):
        _set_aside(each)
    del loaded.segments[number + 1 :]


def _set_aside(segment: Segment) -> None:
    segment.close_files()
    for suffix in SEGMENT_SUFFIXES:
        try:
            os.replace(segment.stem + suffix, segment.stem + suffix + LOST)
        except FileNotFoundError:
            pass


def _drop_stray_snapshots(loaded: Loaded) -> None:
    """Keep those at the start of a segment, and the newest; none behind the end."""
    bases = {segment.base_offset for segment in loaded.segments}
    sound = [offset for offset in loaded.snapshots if offset <= loaded.end_offset]
    keep = [offset for offset in sound if offset in bases or offset == sound[-1]]
    for offset in set(loaded.snapshots) - set(keep):
        remove_quietly(os.path.join(loaded.folder, f"{offset:020d}{SNAPSHOT}"))
    loaded.snapshots = keep
