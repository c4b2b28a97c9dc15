"""LogDirs: the data folders of one broker (`log.dirs`) and the partitions in them.

A start locks every folder, checks that it belongs to this node, and opens every partition in it; a clean stop
closes them, writes the checkpoints and, last, the marker that lets the next start skip the check of the logs.

    <folder>/.lock, meta.properties, *-offset-checkpoint, .kafka_cleanshutdown, .boot-id      (checkpoints.py)
    <folder>/<topic>-<n>/                     a partition
    <folder>/<topic>-<n>.<hex>-delete/        deleted, to be removed after a while
    <folder>/<topic>-<n>.<hex>-future/        a copy under way from another folder             (relocation.py)
    <folder>/<topic>-<n>.<hex>-stray/         not ours to serve (unknown topic id), kept for you to look at
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID, uuid4

from millstream.settings.log_config import LogConfig
from millstream.storage import checkpoints, relocation
from millstream.storage.checkpoints import FormatError, MetaProperties, Offsets
from millstream.storage.files import (
    FULL,
    MAX_NAME,
    FilePool,
    Reaper,
    SyncFailed,
    remove_quietly,
    remove_tree,
    storage_error,
    sync_file_system,
)
from millstream.storage.log import PartitionLog
from millstream.storage.preferred_folders import PreferredFolders
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

DELETE_SUFFIX, STRAY_SUFFIX = "-delete", "-stray"
SYNC_ALL_FROM = 16  # with more partitions than this, a stop syncs the file system once instead of every file
# What a new partition needs: a folder and its topic id, a block each; and what is kept for everything else.
PARTITION_BYTES, PARTITION_FILES, MIN_FREE_BYTES = 8192, 6, 64 * 1024
DAY_MS = 24 * 60 * 60 * 1000
# Kafka's own metadata log, if the folder was Kafka's: not a partition.
KRAFT_METADATA = (
    "__cluster_metadata",
    0,
)


class LogDirError(Exception):
    """A data folder cannot be used; the broker must not start with it."""


def parse_folder_name(name: str) -> TopicPartition | None:
    """(topic, partition) of a partition's folder; None for any other folder."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isascii() or not number.isdecimal():
        return None
    return TopicPartition(topic, int(number))


def default_file_limit() -> int:
    """Half of the descriptors this process may have, three for each open segment; the rest is for
    connections."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        soft = 65536
    return max(16, min(4096, soft // 6))


class LogDirs:
    def __init__(
        self, paths: Sequence[Path | str], *, file_limit: int | None = None, expiration_ms: int = DAY_MS
    ) -> None:
        if not paths:
            raise LogDirError("no data folder is configured (log.dirs)")
        self.paths = [os.path.abspath(path) for path in paths]
        if len(set(self.paths)) != len(self.paths):
            raise LogDirError(f"a data folder is named twice: {', '.join(self.paths)}")
        self.pool = FilePool(file_limit or default_file_limit())
        self.reaper = Reaper()
        self.expiration_ms = expiration_ms
        self.logs: dict[TopicPartition, PartitionLog] = {}
        # Copies under way to another folder.
        self.futures: dict[TopicPartition, PartitionLog] = {}
        self.preferred = PreferredFolders()
        self.meta: dict[str, MetaProperties] = {}
        self.clean: dict[str, bool] = {}
        self.cluster_id = ""
        self.node_id = -1
        self.emptied = False  # a folder is new here: what this broker had in it before, if anything, is gone
        self.page_cache_lost = False  # a power cut, as far as we can tell: written bytes may be missing
        # One of the two, and the cluster, which must not count on what this broker had, does not know yet.
        self.data_lost = False
        self.offline: dict[str, str] = {}  # folders out of service until a restart, and why
        self.on_offline: Callable[[str, str], None] | None = None
        self._locks: dict[str, int] = {}
        self._counts = {path: 0 for path in self.paths}  # partitions in each folder
        self._on_disk: dict[str, set[TopicPartition]] = {}  # partitions named in each kind of checkpoint
        self._lost_ends = False  # a log ends before the offset up to which it was cleaned

    def producers_expire_after(self, milliseconds: int) -> None:
        """How long an idle producer is remembered, in the logs that are open and in those to come."""
        self.expiration_ms = milliseconds
        for log in self.logs.values():
            log.producers.expiration_ms = milliseconds

    def moved(self, source: str, target: str) -> None:
        """A partition has changed its folder."""
        self._counts[source] -= 1
        self._counts[target] += 1

    # -- start -----------------------------------------------------------------------------------------------

    def open(self, node_id: int, cluster_id: str | None = None) -> None:
        """Lock and check every folder. With no `cluster_id` given, it is the folders' own, or a new one."""
        try:
            for path in self.paths:
                os.makedirs(path, exist_ok=True)
                self._lock(path)
            self._identify(node_id, cluster_id)
            for path in self.paths:
                self.clean[path] = checkpoints.take_clean_marker(path)
                if not _has_room(path, 0):
                    logger.error("%s is full: it serves reads and deletions", path)
                fresh = not os.path.exists(os.path.join(path, checkpoints.BOOT_ID))
                self.emptied = self.emptied or fresh
                if not fresh and not self.clean[path] and not checkpoints.same_boot(path):
                    self.page_cache_lost = True
            self.data_lost = self.page_cache_lost or self.emptied
            if not self.data_lost:
                self._write_boot_ids()
        except OSError as error:
            self._unlock()
            raise LogDirError(f"cannot use the data folder: {error}") from error
        except (LogDirError, FormatError):
            self._unlock()
            raise

    def data_loss_reported(self) -> None:
        """The cluster knows of it. Only now is it forgotten here: had the report been lost with this process,
        the next start would take the data for complete."""
        if self.data_lost:
            self.data_lost = False
            self._write_boot_ids()

    def _write_boot_ids(self) -> None:
        """A full disk must not keep the broker from starting. With the old id, the next start takes a crash
        of this process for a power cut, which is the safe way to be wrong."""
        for path in self.paths:
            try:
                checkpoints.write_boot_id(path)
            except OSError as error:
                if error.errno not in FULL:
                    raise

    def _lock(self, path: str) -> None:
        fd = os.open(os.path.join(path, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise LogDirError(f"{path} is in use by another broker (its .lock is held)") from error
            raise
        self._locks[path] = fd

    def inode(self) -> str:
        """Boot, device and inode of the first folder. No other folder has the same, not even its copy, and
        whoever names it holds its lock. Empty where the boot is unknown."""
        boot_id = checkpoints.current_boot_id()
        stat = os.fstat(self._locks[self.paths[0]])
        return f"{boot_id}/{stat.st_dev}/{stat.st_ino}" if boot_id else ""

    def _unlock(self) -> None:
        for fd in self._locks.values():
            os.close(fd)
        self._locks.clear()

    def _identify(self, node_id: int, cluster_id: str | None) -> None:
        found = {path: checkpoints.read_meta(path) for path in self.paths}
        clusters = {meta.cluster_id for meta in found.values() if meta is not None}
        if cluster_id is not None:
            clusters.add(cluster_id)
        if len(clusters) > 1:
            raise LogDirError(f"the data folders belong to different clusters: {', '.join(sorted(clusters))}")
        self.cluster_id = clusters.pop() if clusters else checkpoints.spell_id(checkpoints.random_id())
        self.node_id = node_id
        for path, meta in found.items():
            if meta is None:
                meta = MetaProperties(self.cluster_id, node_id, checkpoints.spell_id(checkpoints.random_id()))
                checkpoints.write_meta(path, meta)
            elif meta.node_id != node_id:
                raise LogDirError(f"{path} belongs to node {meta.node_id}, not to node {node_id}")
            self.meta[path] = meta
        if len({meta.directory_id for meta in self.meta.values()}) != len(self.meta):
            raise LogDirError("two data folders have the same directory.id: one is a copy of the other")

    def load(
        self, config_for: Callable[[str], LogConfig] | None = None
    ) -> dict[TopicPartition, PartitionLog]:
        """Open every partition of every folder. `config_for(topic)` gives its settings (they can be set later
        too)."""
        futures = relocation.recover_names(self.paths)
        for path in self.paths:
            self._load_folder(path, config_for)
        relocation.load(self, futures)
        if self._lost_ends:
            self._forget_cleaned_offsets()
        return self.logs

    def _forget_cleaned_offsets(self) -> None:
        """Save that some logs are dirty again. If the disk is full, all are, which only costs time."""
        try:
            self.checkpoint_cleaned_offsets()
        except OSError as error:
            logger.warning("every log counts as dirty: %s", error)
            for path in self.paths:
                remove_quietly(os.path.join(path, checkpoints.CLEANED_OFFSETS))

    def _load_folder(self, path: str, config_for: Callable[[str], LogConfig] | None) -> None:
        recovery_points = self._read_checkpoint(path, checkpoints.RECOVERY_POINTS)
        starts = self._read_checkpoint(path, checkpoints.START_OFFSETS)
        high = self._read_checkpoint(path, checkpoints.HIGH_WATERMARKS)
        cleaned = self._read_checkpoint(path, checkpoints.CLEANED_OFFSETS)
        default = LogConfig()
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=True))
        for name in names:
            folder = os.path.join(path, name)
            if name.endswith(DELETE_SUFFIX):
                self.reaper.add(0, [folder])
                continue
            key = parse_folder_name(name)
            if key is None or key == KRAFT_METADATA or name.endswith(STRAY_SUFFIX):
                continue
            if key in self.logs:
                raise LogDirError(f"{name} is in two data folders: {self.logs[key].folder} and {folder}")
            try:
                log = PartitionLog.open(
                    folder,
                    config_for(key[0]) if config_for is not None else default,
                    clean=self.clean.get(path, False),
                    recovery_point=recovery_points.get(key, 0),
                    start_offset=starts.get(key, 0),
                    high_watermark=high.get(key, 0),
                    topic_id=self._topic_id(folder),
                    pool=self.pool,
                    reaper=self.reaper,
                    expiration_ms=self.expiration_ms,
                )
            except (OSError, KafkaError) as error:
                if isinstance(error, OSError) and error.errno in FULL:
                    # It has no segment, and there is no room for one: made when there is, see `create`.
                    logger.error("%s: not opened: %s", name, error)
                    continue
                raise LogDirError(f"cannot open the partition in {folder}: {error}") from error
            if cleaned.get(key, 0) <= log.end_offset:
                log.cleaned_to = cleaned.get(key, 0)
            else:  # the log lost its end: all of it is dirty, and must still be when it has grown again
                self._lost_ends = True
            self._keep(log, path)

    def _topic_id(self, folder: str) -> UUID | None:
        """None if the file is missing or torn: whoever knows the topics decides what the folder is."""
        try:
            return checkpoints.read_topic_id(folder)
        except FormatError as error:
            logger.error("%s; the partition has no topic id", error)
            return None

    def _read_checkpoint(self, path: str, name: str) -> Offsets:
        """A damaged checkpoint only costs time: without it more of the log is checked."""
        try:
            offsets = checkpoints.read_offsets(path, name)
            self._on_disk.setdefault(name, set()).update(offsets)
            return offsets
        except FormatError as error:
            logger.warning("%s; going on without it", error)
            return {}

    # -- partitions ------------------------------------------------------------------------------------------

    def create(self, topic: str, partition: int, topic_id: UUID | None, config: LogConfig) -> PartitionLog:
        """A new, empty partition in the folder that it is meant for, or the one that holds the fewest."""
        key = TopicPartition(topic, partition)
        if key in self.logs:
            raise KafkaError(ErrorCode.topic_already_exists, f"{topic}-{partition} exists already")
        online = [path for path in self.paths if path not in self.offline]
        if not online:
            raise KafkaError(ErrorCode.kafka_storage_error, "no data folder is in service")
        name = f"{topic}-{partition}"
        found = [path for path in online if os.path.exists(os.path.join(path, name))]
        preferred = self.preferred.of(key)
        path = min(
            found or online,
            key=lambda each: (not _has_room(each, 1), each != preferred, self._counts[each]),
        )
        folder = os.path.join(path, name)
        try:
            self._forget_namesake(key)
            os.makedirs(folder, exist_ok=True)
            if topic_id is not None:
                checkpoints.write_topic_id(folder, topic_id, sync=False)
            log = PartitionLog.open(
                folder,
                config,
                clean=True,
                topic_id=topic_id,
                pool=self.pool,
                reaper=self.reaper,
                expiration_ms=self.expiration_ms,
            )
        except OSError as error:
            if isinstance(error, SyncFailed):
                self.take_offline(error)
            if not found:
                remove_tree(folder)
            raise storage_error(f"create {folder}", error) from error
        self._keep(log, path)
        self.preferred.forget(key)
        return log

    def no_room_for(self, partitions: int) -> str | None:
        """Why so many partitions cannot be created; None if they probably can."""
        online = [path for path in self.paths if path not in self.offline]
        if any(_has_room(path, partitions) for path in online):
            return None
        return f"no data folder has room for {partitions} more partitions: {', '.join(self.paths)}"

    def _keep(self, log: PartitionLog, path: str) -> None:
        log.on_sync_failed = self.take_offline
        self.logs[TopicPartition(log.topic, log.partition)] = log
        self._counts[path] += 1

    def _forget_namesake(self, key: TopicPartition) -> None:
        """Checkpoints may still speak of a deleted partition of this name; the new one must not inherit from
        it."""
        if key in self._on_disk.get(checkpoints.RECOVERY_POINTS, ()):
            self.checkpoint_recovery_points()
        if key in self._on_disk.get(checkpoints.START_OFFSETS, ()):
            self.checkpoint_start_offsets()
        if key in self._on_disk.get(checkpoints.HIGH_WATERMARKS, ()):
            self.checkpoint_high_watermarks()
        if key in self._on_disk.get(checkpoints.CLEANED_OFFSETS, ()):
            self.checkpoint_cleaned_offsets()

    def folder_of(self, log: PartitionLog) -> str:
        """The data folder that a partition lives in."""
        return os.path.dirname(log.folder)

    def delete(self, log: PartitionLog, now_ms: int) -> None:
        """Forget a partition: its folder is renamed at once and removed after file.delete.delay.ms."""
        renamed = self._set_aside(log, DELETE_SUFFIX)
        self.reaper.add(now_ms + log.config.file_delete_delay_ms, [renamed])

    def set_aside_stray(self, log: PartitionLog) -> str:
        """A folder whose topic nobody knows: kept under another name, and said aloud."""
        renamed = self._set_aside(log, STRAY_SUFFIX)
        logger.warning("%s belongs to no known topic; its data is kept in %s", log.name, renamed)
        return renamed

    def _set_aside(self, log: PartitionLog, suffix: str) -> str:
        relocation.abandon(self, TopicPartition(log.topic, log.partition))
        if self.logs.pop(TopicPartition(log.topic, log.partition), None) is not None:
            self._counts[os.path.dirname(log.folder)] -= 1
        log.close(clean=False)
        tail = f".{uuid4().hex}{suffix}"
        number = f"-{log.partition}"
        name = log.topic[: MAX_NAME - len(tail) - len(number)] + number + tail
        renamed = os.path.join(os.path.dirname(log.folder), name)
        try:
            os.rename(log.folder, renamed)
        except OSError as error:
            raise storage_error(f"rename {log.folder}", error) from error
        log.moved_to(renamed)
        return renamed

    # -- failures --------------------------------------------------------------------------------------------

    def take_offline(self, error: SyncFailed) -> None:
        """An fsync failed: take the data folder that holds its file out of service until a restart. Its
        partitions can be read and deleted, but write nothing more. The other folders go on."""
        path = next((path for path in self.paths if _holds(path, error.filename)), None)
        if path is None or path in self.offline:
            return
        self.offline[path] = reason = f"fsync of {error.filename} failed: {error.strerror}"
        for log in self.logs.values():
            if self.folder_of(log) == path:
                log.take_offline(reason)
        for log in self.futures.values():
            if self.folder_of(log) == path:
                log.take_offline(reason)
        if self.on_offline is not None:
            self.on_offline(path, reason)

    # -- checkpoints -----------------------------------------------------------------------------------------

    def checkpoint_recovery_points(self) -> None:
        self._write_checkpoint(checkpoints.RECOVERY_POINTS, lambda log: log.recovery_point)

    def checkpoint_start_offsets(self) -> None:
        """Only where the start is not simply the first segment's."""
        self._write_checkpoint(
            checkpoints.START_OFFSETS,
            self.start_to_remember,
        )

    @staticmethod
    def start_to_remember(log: PartitionLog) -> int | None:
        return log.start_offset if log.start_offset > log.segments[0].base_offset else None

    def checkpoint_high_watermarks(self) -> None:
        self._write_checkpoint(checkpoints.HIGH_WATERMARKS, lambda log: log.high_watermark)

    def checkpoint_cleaned_offsets(self) -> None:
        self._write_checkpoint(checkpoints.CLEANED_OFFSETS, self.cleaned_to_remember)

    @staticmethod
    def cleaned_to_remember(log: PartitionLog) -> int | None:
        return log.cleaned_to or None

    def _write_checkpoint(self, name: str, value: Callable[[PartitionLog], int | None]) -> None:
        for job in self.checkpoint_jobs(name, value):
            job()

    def checkpoint_jobs(
        self, name: str, value: Callable[[PartitionLog], int | None]
    ) -> list[Callable[[], None]]:
        """The offsets are read now; each job writes one folder's file and may run in a thread."""
        offsets: dict[str, Offsets] = {path: {} for path in self.paths}
        for key, log in self.logs.items():
            offset = value(log)
            if offset is not None:
                offsets[os.path.dirname(log.folder)][key] = offset
        self._on_disk[name] = {key for content in offsets.values() for key in content}
        return [
            lambda path=path, content=content: checkpoints.write_offsets(path, name, content)  # type: ignore[misc]
            for path, content in offsets.items()
            if path not in self.offline
        ]

    def reap(self, now_ms: int | None = None) -> int:
        """Unlink what was deleted long enough ago. May run in a thread."""
        return self.reaper.run(int(time.time() * 1000) if now_ms is None else now_ms)

    # -- stop ------------------------------------------------------------------------------------------------

    def close(self, clean: bool = True, broker_epoch: int = -1) -> None:
        """Close every log; if all of it worked, say so for the next start."""
        failed = set(self.offline)
        one_sync = len(self.logs) > SYNC_ALL_FROM
        for log in (*self.logs.values(), *self.futures.values()):
            try:
                log.close(clean and log.offline is None, sync=not one_sync)
            except (KafkaError, OSError) as error:
                failed.add(os.path.dirname(log.folder))
                logger.error("%s was not closed cleanly: %s", log.name, error)
        try:
            if clean and one_sync:
                for path in self.paths:
                    if path not in failed:
                        sync_file_system(path)
            if clean:
                self.checkpoint_recovery_points()
                self.checkpoint_start_offsets()
                self.checkpoint_high_watermarks()
                for path in self.paths:
                    if path not in failed and (not self.data_lost or self.emptied):
                        checkpoints.write_clean_marker(path, broker_epoch)
        except OSError as error:
            logger.error("the checkpoints could not be written: %s", error)
        finally:
            self.logs.clear()
            self.futures.clear()
            self._unlock()
        if clean:
            self.reaper.run(1 << 62)


def _has_room(path: str, partitions: int) -> bool:
    try:
        disk = os.statvfs(path)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize >= MIN_FREE_BYTES + partitions * PARTITION_BYTES and (
        not disk.f_files or disk.f_favail >= partitions * PARTITION_FILES
    )


def _holds(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder + os.sep)
