"""Moving a partition from one data folder of a broker to another, while it is written and read.

A *future* log in `<new folder>/<topic>-<n>.<hex>-future` (Kafka's name for it) gets the batches of the
present one, as a follower would. When it has all of them it takes its place, in steps after each of which a
start finds exactly one whole log:

    1  the future log is synced, and gets a file `.complete`         (`mark_complete`, in a thread)
    2  the old folder is renamed to `-delete`, the future one to the partition's name        (`take_over`)
    3  both names are made durable, then the file is removed                     (`settle`, in a thread)

Who holds the `PartitionLog` keeps it: only the files under it are others. A start that finds a future folder
goes on copying if the partition is there; gives it the partition's name if it is not and the file is; and
keeps the folder as a stray otherwise, because nobody knows what it lacks. A power failure may keep the second
name of step 2 and not the first: of two folders with the partition's name, that with the file is the newer
one (`recover_names`).
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING
from uuid import uuid4

from millstream.storage import checkpoints
from millstream.storage.files import MAX_NAME, remove_quietly, replace_file, storage_error, sync_path
from millstream.storage.log import PartitionLog
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.storage.log_dirs import LogDirs

logger = logging.getLogger(__name__)

FUTURE_SUFFIX = "-future"
COMPLETE = ".complete"
TAIL_BYTES = 4 << 20  # what is copied at once, in the log's thread, when the future log takes over


def future_of(name: str) -> TopicPartition | None:
    """The partition that a future folder belongs to; None for any other folder."""
    if not name.endswith(FUTURE_SUFFIX):
        return None
    whose, dot, _ = name.removesuffix(FUTURE_SUFFIX).rpartition(".")
    topic, dash, number = whose.rpartition("-")
    if not dot or not dash or not topic or not number.isascii() or not number.isdecimal():
        return None
    return TopicPartition(topic, int(number))


# --- begin and end ------------------------------------------------------------------------------------------


def _future_name(key: TopicPartition) -> str:
    return f"{key.topic}-{key.partition}.{uuid4().hex}{FUTURE_SUFFIX}"


def has_room_for_name(key: TopicPartition) -> bool:
    """Is there a file name for the future log? The longest names of topics leave too little (KAFKA-4893)."""
    return len(_future_name(key)) <= MAX_NAME


def begin(log_dirs: LogDirs, log: PartitionLog, path: str) -> PartitionLog:
    """An empty future log in another data folder, which begins where the present one does."""
    key = TopicPartition(log.topic, log.partition)
    folder = os.path.join(path, _future_name(key))
    remove_quietly(os.path.join(log.folder, COMPLETE))  # of an earlier move that was cut off at its very end
    try:
        os.makedirs(folder)
        if log.topic_id is not None:
            checkpoints.write_topic_id(folder, log.topic_id, sync=False)
        future = PartitionLog.open(
            folder,
            log.config,
            clean=True,
            topic_id=log.topic_id,
            pool=log_dirs.pool,
            reaper=log_dirs.reaper,
            expiration_ms=log_dirs.expiration_ms,
        )
    except OSError as error:
        raise storage_error(f"create {folder}", error) from error
    future.on_sync_failed = log_dirs.take_offline
    begin_at_start_of(future, log)
    # What is copied may not have been cleaned yet, even if it is by the time the move ends.
    future.cleaned_to = log.cleaned_to
    log_dirs.futures[key] = future
    return future


def begin_at_start_of(future: PartitionLog, log: PartitionLog) -> None:
    """Empty, at the first batch that readers of the present log may see."""
    start = log.start_offset
    if start < log.end_offset:
        found = log.batch_at(start)
        start = min(start, found) if found is not None else start
    if future.end_offset != start or future.size:
        future.reset_at(start)


def abandon(log_dirs: LogDirs, key: TopicPartition) -> None:
    """The move is off: the future log is deleted."""
    future = log_dirs.futures.pop(key, None)
    if future is None:
        return
    future.close(clean=False)
    renamed = future.folder.removesuffix(FUTURE_SUFFIX) + "-delete"
    try:
        os.rename(future.folder, renamed)
    except OSError as error:
        logger.warning("%s cannot be removed: %s", future.folder, error)
        return
    log_dirs.reaper.add(0, [renamed])


# --- copying ------------------------------------------------------------------------------------------------


def reconcile(future: PartitionLog, log: PartitionLog) -> None:
    """Before batches are added: the future log must be a beginning of the present one, which may have been
    truncated or cut off at its start since. Leader epochs tell, as between a follower and its leader."""
    while future.end_offset > log.start_offset and future.size:
        last = future.last_epoch()
        epoch, end = log.epoch_end(last) if last >= 0 else (last, log.end_offset)
        if epoch == last and end >= future.end_offset:
            break
        cut = min(end, future.epoch_end(epoch)[1]) if epoch >= 0 else log.start_offset
        if cut <= log.start_offset or cut >= future.end_offset:
            begin_at_start_of(future, log)
            return
        future.truncate_to(cut)
    if future.end_offset < log.start_offset or future.end_offset > log.end_offset:
        begin_at_start_of(future, log)


# --- taking over --------------------------------------------------------------------------------------------


def copy_tail(future: PartitionLog, log: PartitionLog) -> bool:
    """The last bytes, at once. False if there are too many for that."""
    copied = 0
    while future.end_offset < log.end_offset:
        found = log.read(max(future.end_offset, log.start_offset), TAIL_BYTES, "end")
        if found.segment is None:  # compaction has left nothing up to the end
            skip_to(future, log.end_offset)
            break
        if copied + found.size > TAIL_BYTES:
            return False
        before = future.end_offset
        if future.append_follower(memoryview(found.read())) == before:
            return False
        copied += found.size
    return True


def skip_to(future: PartitionLog, offset: int) -> None:
    """Nothing comes before `offset` any more: the log goes on with a segment that begins there, so that a
    restart finds the same end."""
    try:
        if not future.size:
            future.reset_at(offset)
            return
        if not future.active.size:
            future.truncate_to(future.active.base_offset - 1)
        future.end_offset = offset
        future.roll()
    except OSError as error:
        raise storage_error(f"extend {future.name}", error) from error


def mark_complete(future: PartitionLog) -> None:
    """Before the last bytes follow; may run in a thread."""
    replace_file(os.path.join(future.folder, COMPLETE), b"")


def unmark(future: PartitionLog) -> None:
    """It does not take over yet."""
    remove_quietly(os.path.join(future.folder, COMPLETE))


def take_over(log_dirs: LogDirs, log: PartitionLog) -> str:
    """The future log has everything: from now on its files are the partition's. The old folder's new name,
    for `settle`."""
    key = TopicPartition(log.topic, log.partition)
    future = log_dirs.futures[key]
    if future.end_offset != log.end_offset:
        raise KafkaError(ErrorCode.kafka_storage_error, f"the copy of {log.name} is not complete")
    log.refuse_if_offline()
    old, target = log.folder, os.path.join(os.path.dirname(future.folder), log.name)
    set_aside = os.path.join(os.path.dirname(old), _delete_name(log))
    try:
        if future.recovery_point < log.recovery_point:
            # Of a topic that is flushed all the time the last bytes were promised to be on disk: the one
            # fsync that no thread can do for us, and of these bytes alone.
            future.flush_now()
        for segment in future.segments:
            segment.save_indexes()
        log.epochs.save(future.folder, sync=False)
        os.rename(old, set_aside)
        try:
            os.rename(future.folder, target)
        except OSError:
            os.rename(set_aside, old)
            raise
    except OSError as error:
        raise storage_error(f"move {log.name} to {os.path.dirname(target)}", error) from error
    del log_dirs.futures[key]
    future.moved_to(target)
    for segment in log.segments:  # readers in flight keep their files
        segment.close_files()
    log.exchange_files(future)
    log_dirs.moved(os.path.dirname(old), os.path.dirname(target))
    return set_aside


def settle(log_dirs: LogDirs, log: PartitionLog, set_aside: str) -> None:
    """After `take_over`; may run in a thread."""
    sync_path(os.path.dirname(set_aside))
    sync_path(os.path.dirname(log.folder))
    remove_quietly(os.path.join(log.folder, COMPLETE))
    log_dirs.reaper.add(int(time.time() * 1000) + log.config.file_delete_delay_ms, [set_aside])


def _delete_name(log: PartitionLog) -> str:
    tail = f".{uuid4().hex}-delete"
    number = f"-{log.partition}"
    return log.topic[: 255 - len(tail) - len(number)] + number + tail


# --- start --------------------------------------------------------------------------------------------------


def recover_names(paths: list[str]) -> dict[str, TopicPartition]:
    """Before partitions are loaded: finish a move that was at its last step. The future folders that remain,
    with their partitions."""
    futures: dict[str, TopicPartition] = {}
    present: dict[str, str] = {}
    for path in paths:
        with os.scandir(path) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=True):
                    continue
                key = future_of(entry.name)
                if key is not None:
                    futures[entry.path] = key
                elif entry.name not in present:
                    present[entry.name] = entry.path
                else:
                    present[entry.name] = _newer(present[entry.name], entry.path)
    for folder, key in list(futures.items()):
        name = f"{key.topic}-{key.partition}"
        marker = os.path.join(folder, COMPLETE)
        complete = os.path.exists(marker)
        if name in present:
            remove_quietly(marker)
            continue
        del futures[folder]
        if complete:
            target = os.path.join(os.path.dirname(folder), name)
            os.rename(folder, target)
            remove_quietly(os.path.join(target, COMPLETE))
            present[name] = target
            logger.info("%s is in %s now: its move was finished by this start", name, os.path.dirname(target))
        else:
            stray = folder.removesuffix(FUTURE_SUFFIX) + "-stray"
            os.rename(folder, stray)
            logger.warning(
                "%s is a copy of %s that was not complete, and the original is gone; it is kept in %s",
                folder,
                name,
                stray,
            )
    return futures


def _newer(one: str, other: str) -> str:
    """Of two folders of one name, the one that has taken over; the other one goes. If it is not known which,
    both stay, and the start is refused."""
    marked = [folder for folder in (one, other) if os.path.exists(os.path.join(folder, COMPLETE))]
    if len(marked) != 1:
        return one
    (old,) = {one, other} - set(marked)
    os.rename(old, f"{old}.{uuid4().hex}-delete")
    sync_path(os.path.dirname(old))
    remove_quietly(os.path.join(marked[0], COMPLETE))
    return marked[0]


def load(log_dirs: LogDirs, futures: dict[str, TopicPartition]) -> None:
    """After partitions are loaded: open the future logs, to go on with them."""
    for folder, key in futures.items():
        log = log_dirs.logs.get(key)
        path = os.path.dirname(folder)
        try:
            topic_id = checkpoints.read_topic_id(folder)
        except checkpoints.FormatError:
            topic_id = None
        if (
            log is None
            or key in log_dirs.futures
            or log_dirs.folder_of(log) == path
            or topic_id != log.topic_id
        ):
            log_dirs.reaper.add(0, [folder])
            continue
        try:
            future = PartitionLog.open(
                folder,
                log.config,
                clean=log_dirs.clean.get(path, False),
                topic_id=topic_id,
                pool=log_dirs.pool,
                reaper=log_dirs.reaper,
                expiration_ms=log_dirs.expiration_ms,
            )
        except (OSError, KafkaError) as error:
            logger.error("%s is not moved on, its copy cannot be opened: %s", log.name, error)
            log_dirs.reaper.add(0, [folder])
            continue
        future.on_sync_failed = log_dirs.take_offline
        log_dirs.futures[key] = future
