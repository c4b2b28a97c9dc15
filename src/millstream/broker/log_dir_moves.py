"""Replicas on their way from one data folder of this broker to another (AlterReplicaLogDirs).

One task copies for all of them, a piece of each in turn: a thread reads, the loop appends. Pieces wait for
`replica.alter.log.dirs.io.max.bytes.per.second`. Copied is what is committed, so that hardly ever something
has to be taken back; the rest follows at once when the copy takes over (storage/relocation.py). Nobody has to
ask again after a restart: the copy is found on disk and goes on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from millstream.storage import checkpoints, relocation
from millstream.storage.files import SyncFailed
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.broker.server import Broker
    from millstream.storage.log import PartitionLog

logger = logging.getLogger("millstream.log_dirs")

PIECE = 1 << 20  # bytes
IDLE = 0.05  # seconds between two looks at a log that has to wait for something
AGAIN_AFTER = 5.0  # seconds, after a disk has refused


class LogDirMoves:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._log_dirs = broker.log_dirs
        self._limiter = broker.throttles.log_dirs
        self._task: asyncio.Task[None] | None = None
        self._not_before: dict[TopicPartition, float] = {}

    # ------------------------------------------------------------------ for the API

    def request(self, key: TopicPartition, folder: str) -> ErrorCode:
        """Begin to move a replica to a data folder; to the one it is in: give up a move. For one that is not
        here the folder is remembered, though the answer is an error: as in Kafka, its topic may be created
        or its reassignment begun after this."""
        log_dirs = self._log_dirs
        if not relocation.has_room_for_name(key):
            return ErrorCode.invalid_topic_exception
        if folder not in log_dirs.paths:
            return ErrorCode.log_dir_not_found
        if folder in log_dirs.offline:
            return ErrorCode.kafka_storage_error
        partition = self._broker.partitions.find(*key)
        if partition is None:
            log_dirs.preferred.remember(key, folder)
            topic = self._broker.image.topic(key.topic)
            known = topic is not None and self._broker.image.partition(topic.topic_id, key.partition)
            return ErrorCode.replica_not_available if known else ErrorCode.unknown_topic_or_partition
        log = partition.log
        if log.offline is not None:
            return ErrorCode.kafka_storage_error
        future = log_dirs.futures.get(key)
        if future is not None:
            if log_dirs.folder_of(future) == folder:
                return ErrorCode.none
            relocation.abandon(log_dirs, key)
            logger.info("%s: its move to %s is given up", log.name, log_dirs.folder_of(future))
        if log_dirs.folder_of(log) == folder:
            return ErrorCode.none
        try:
            relocation.begin(log_dirs, log, folder)
        except KafkaError as error:
            logger.error("%s is not moved: %s", log.name, error)
            return error.code
        logger.info("%s moves from %s to %s", log.name, log_dirs.folder_of(log), folder)
        self.start()
        return ErrorCode.none

    def lag(self, key: TopicPartition, future: PartitionLog) -> int:
        """How many offsets a copy is behind."""
        log = self._log_dirs.logs.get(key)
        return max(0, log.end_offset - future.end_offset) if log is not None else 0

    # ------------------------------------------------------------------ the task

    def start(self) -> None:
        """Go on with what is under way, if anything is."""
        if self._log_dirs.futures and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._move_all(), name="log-dir-moves")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _move_all(self) -> None:
        while self._log_dirs.futures:
            progress = False
            for key in list(self._log_dirs.futures):
                try:
                    progress |= await self._step(key)
                except SyncFailed as error:
                    self._log_dirs.take_offline(error)
                except (KafkaError, OSError) as error:
                    if key in self._log_dirs.futures:  # and was not deleted meanwhile
                        logger.error("%s is not moved, which is tried again: %s", key, error)
                        self._not_before[key] = time.monotonic() + AGAIN_AFTER
                except Exception:
                    logger.exception("%s is not moved, its copy is given up", key)
                    relocation.abandon(self._log_dirs, key)
            # Others have their turn; where nothing could be done, there is time for it.
            await asyncio.sleep(0 if progress else IDLE)
        self._not_before.clear()

    async def _step(self, key: TopicPartition) -> bool:
        """One piece of one log. Whether there was something to do."""
        log, future = self._log_dirs.logs.get(key), self._log_dirs.futures.get(key)
        if future is None:
            return False
        if log is None or log.closed or log.offline is not None or future.offline is not None:
            logger.error("%s is not moved: a data folder is out of service, or the replica is gone", key)
            relocation.abandon(self._log_dirs, key)
            return False
        now = time.monotonic()
        if now < self._not_before.get(key, 0.0) or not self._limiter.ready(now):
            return False
        if future.config is not log.config:
            future.config = log.config
        relocation.reconcile(future, log)
        if future.end_offset < log.high_watermark:
            piece = min(PIECE, log.config.segment_bytes)
            found = log.read(max(future.end_offset, log.start_offset), piece, "hw")
            if found.segment is not None:
                generation = log.generation
                fd = found.segment.acquire()
                try:
                    data = await asyncio.get_running_loop().run_in_executor(
                        None, os.pread, fd, found.size, found.position
                    )
                finally:
                    found.segment.release()
                if self._is_current(key, log, future) and log.generation == generation:
                    future.append_follower(memoryview(data))
                    self._limiter.spend(len(data), time.monotonic())
                    if future.unsynced:  # as after any roll: what is synced early need not be at the end
                        await future.flush(closed_segments_only=True)
                return True
        if self._broker.log_cleaner.is_cleaning(log):
            return False
        await future.flush()
        return await self._finish(key, log, future)

    async def _finish(self, key: TopicPartition, log: PartitionLog, future: PartitionLog) -> bool:
        await self._in_thread(partial(relocation.mark_complete, future))
        before = future.end_offset
        try:
            # Nothing else runs between the last copied byte and the exchange of the files.
            if not self._is_current(key, log, future) or self._broker.log_cleaner.is_cleaning(log):
                relocation.unmark(future)
                return False
            relocation.reconcile(future, log)
            if not relocation.copy_tail(future, log):
                relocation.unmark(future)
                return future.end_offset > before
            old = relocation.take_over(self._log_dirs, log)
        except (KafkaError, OSError):
            relocation.unmark(future)
            raise
        logger.info("%s is in %s now", log.name, self._log_dirs.folder_of(log))
        await self._in_thread(partial(relocation.settle, self._log_dirs, log, old))
        # The next start must know from the new folder what it knew from the old one.
        for name, value in (
            (checkpoints.START_OFFSETS, self._log_dirs.start_to_remember),
            (checkpoints.RECOVERY_POINTS, lambda each: each.recovery_point),
            (checkpoints.HIGH_WATERMARKS, lambda each: each.high_watermark),
            (checkpoints.CLEANED_OFFSETS, self._log_dirs.cleaned_to_remember),
        ):
            for job in self._log_dirs.checkpoint_jobs(name, value):
                await self._in_thread(job)
        return True

    async def _in_thread(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(None, work)

    def _is_current(self, key: TopicPartition, log: PartitionLog, future: PartitionLog) -> bool:
        return self._log_dirs.logs.get(key) is log and self._log_dirs.futures.get(key) is future
