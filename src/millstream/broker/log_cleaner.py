"""The log cleaner's schedule: which compacted log is next, and what to do with what its child process hands
over.

`log.cleaner.threads` tasks run on the loop. Each looks for the dirtiest log that is due, has a child process
compact it (storage/cleaning), swaps in the new segments, and writes to `cleaner-offset-checkpoint` how far
the log is clean. When nothing is due, its child ends and the task sleeps for `log.cleaner.backoff.ms`. The
loop itself only compares numbers that are in memory and renames files.

A log that cannot be cleaned because of what it holds is logged as uncleanable and left alone until the next
start. After any other failure (a full disk, a killed child) it is tried again after a while. Either goes on
serving.

Compacted logs get their retention (`compact,delete`, and segments below the log's start) from here too, so
that nothing is deleted from under a cleaning.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from millstream.storage import checkpoints
from millstream.storage.cleaning import planning, swap
from millstream.storage.cleaning.planning import Dirt
from millstream.storage.files import SyncFailed, sync_path
from millstream.wire.errors import KafkaError

if TYPE_CHECKING:
    from millstream.broker.server import Broker
    from millstream.storage.cleaning.cleaned_segment import Replacement
    from millstream.storage.cleaning.cleaner_process import CleanerProcess
    from millstream.storage.cleaning.worker_protocol import Job, Summary
    from millstream.storage.log import PartitionLog

logger = logging.getLogger("millstream.cleaner")

# How many logs, producers and segments are looked at before the loop serves others.
LOGS_PER_STEP = 50
PRODUCERS_PER_STEP = 5000
SEGMENTS_PER_STEP = 200
# Seconds until a change of log.cleaner.threads is noticed.
THREADS_CHECK = 1.0
# Seconds until a log is tried again after a failure; doubled each time.
FIRST_BACKOFF = 30.0
MAX_BACKOFF = 3600.0
MAX_MAP_BYTES = 1 << 31


class LogCleaner:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.enabled = broker.settings.boolean("log.cleaner.enable")
        self.uncleanable: dict[PartitionLog, str] = {}  # until the next start, and why
        self.last: dict[int, Summary] = {}  # what each task did last
        self.cleanings = self.failures = 0
        self.bytes_read = self.bytes_written = 0
        self.max_dirty_ratio = 0.0
        self.max_delay_ms = 0
        self.last_run = time.monotonic()
        self._busy: set[PartitionLog] = set()
        # Until when a log is not tried again, and how long the next such pause is.
        self._backoff: dict[PartitionLog, tuple[float, float]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._supervisor: asyncio.Task[None] | None = None
        self._checkpoint_lock = asyncio.Lock()
        self._last_deletion = 0.0

    # ------------------------------------------------------------------ start and stop

    def start(self) -> None:
        if self.enabled:
            self._supervisor = asyncio.create_task(self._supervise())

    async def stop(self) -> None:
        """Ends the children; what they had begun will be done again."""
        tasks = [task for task in (self._supervisor, *self._tasks.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def owns(self, log: PartitionLog) -> bool:
        """Whether the retention of this log is left to the cleaner."""
        return log in self._busy or (self.enabled and log.config.compact and log not in self.uncleanable)

    def is_cleaning(self, log: PartitionLog) -> bool:
        """Whether its files are being replaced just now."""
        return log in self._busy

    @property
    def threads(self) -> int:
        return self.broker.settings.integer("log.cleaner.threads")

    async def _supervise(self) -> None:
        """As many tasks as `log.cleaner.threads` says, which may change at any time."""
        while True:
            for number in range(self.threads):
                task = self._tasks.get(number)
                if task is None or task.done():
                    self._tasks[number] = asyncio.create_task(self._work(number))
            await asyncio.sleep(THREADS_CHECK)

    async def _work(self, number: int) -> None:
        child: CleanerProcess | None = None
        try:
            while number < self.threads:
                if number == 0:
                    await self._delete_old_segments()
                log = await self._next()
                if log is None:
                    if child is not None:
                        await child.end()
                        child = None
                    await asyncio.sleep(
                        max(self.broker.settings.integer("log.cleaner.backoff.ms") / 1000, 0.01)
                    )
                else:
                    child = await self._clean(number, child, log)
        except Exception:
            logger.exception("the cleaner's task %d failed, it will be started again", number)
        finally:
            if child is not None:
                await child.end()

    # ------------------------------------------------------------------ choosing

    async def _next(self) -> PartitionLog | None:
        """The dirtiest log that is due; it is marked busy."""
        now_ms = time.time_ns() // 1_000_000
        self._forget_gone()
        surveyed: list[tuple[PartitionLog, Dirt]] = []
        for count, log in enumerate(self._candidates()):
            if count % LOGS_PER_STEP == LOGS_PER_STEP - 1:
                await asyncio.sleep(0)
            if log.closed or log in self._busy:
                continue
            try:
                surveyed.append((log, planning.survey(log, log.cleaned_to, now_ms)))
            except (KafkaError, OSError) as error:
                self._retry_later(log, f"it cannot be surveyed: {error}")
        self.last_run = time.monotonic()
        self.max_dirty_ratio = max([dirt.ratio for _, dirt in surveyed], default=0.0)
        self.max_delay_ms = max([dirt.overdue_ms for _, dirt in surveyed], default=0)
        found = planning.dirtiest(
            (log, dirt) for log, dirt in surveyed if not log.closed and log not in self._busy
        )
        if found is None:
            return None
        self._busy.add(found[0])
        return found[0]

    def _candidates(self) -> Iterator[PartitionLog]:
        now = time.monotonic()
        for partition in list(self.broker.partitions):
            log = partition.log
            if (
                log.config.compact
                and log.offline is None
                and len(log.segments) > 1
                and log not in self.uncleanable
                and self._backoff.get(log, (0.0, 0.0))[0] <= now
            ):
                yield log

    def _forget_gone(self) -> None:
        """Drop deleted partitions."""
        self.uncleanable = {log: why for log, why in self.uncleanable.items() if not log.closed}
        self._backoff = {log: backoff for log, backoff in self._backoff.items() if not log.closed}

    async def _delete_old_segments(self) -> None:
        """Retention of compacted logs, every `log.cleaner.backoff.ms`."""
        now = time.monotonic()
        if now - self._last_deletion < self.broker.settings.integer("log.cleaner.backoff.ms") / 1000:
            return
        self._last_deletion = now
        now_ms = time.time_ns() // 1_000_000
        for count, partition in enumerate(list(self.broker.partitions)):
            if count % LOGS_PER_STEP == LOGS_PER_STEP - 1:
                await asyncio.sleep(0)
            log = partition.log
            if (
                log.config.compact
                and log.offline is None
                and not log.closed
                and log not in self._busy
                and log not in self.uncleanable
            ):
                try:
                    log.delete_old_segments(now_ms)
                except (KafkaError, OSError) as error:
                    logger.error("%s: old segments were not deleted: %s", log.name, error)

    # ------------------------------------------------------------------ cleaning one log

    async def _clean(
        self, number: int, child: CleanerProcess | None, log: PartitionLog
    ) -> CleanerProcess | None:
        """Clean a log that is marked busy. Returns the child, if it can be used again."""
        from millstream.storage.cleaning.cleaner_process import CleanerFailed, CleanerProcess

        generation = log.generation
        finished = False
        try:
            dirt = planning.survey(log, log.cleaned_to, time.time_ns() // 1_000_000)
            if not dirt.dirty_bytes:
                raise swap.LogChanged("nothing is left to clean")
            if log.recovery_point < dirt.upper:
                # What replaces older records must be durable before they go.
                await log.flush()
            if log.generation != generation or log.closed:
                raise swap.LogChanged(f"{log.name} was truncated or closed")
            job = await self._job(log, dirt)
            if child is None:
                child = await CleanerProcess.start()

            async def swap_in(replacement: Replacement) -> None:
                if log.generation != generation or not log.config.compact:
                    raise swap.LogChanged(f"{log.name} was changed while it was cleaned")
                swap.announce(log, replacement)
                await self._in_thread(sync_path, log.folder)
                segment = swap.exchange_segments(log, replacement, time.time_ns() // 1_000_000)
                await self._in_thread(sync_path, log.folder)
                swap.name_finally(segment)

            summary = await child.clean(job, swap_in)
            finished = True
            if log.generation == generation and not log.closed:
                await self._record(number, log, dirt, summary)
        except swap.LogChanged as change:
            logger.info("%s: cleaning given up: %s", log.name, change)
        except CleanerFailed as failure:
            finished = failure.damaged
            if not log.closed and log.generation == generation:
                self._failed(log, str(failure), for_good=failure.damaged)
        except SyncFailed as error:
            self.broker.log_dirs.take_offline(error)
        except (KafkaError, OSError) as error:
            if not log.closed and log.offline is None:
                self._failed(log, str(error), for_good=isinstance(error, OSError))
        except Exception as error:
            logger.exception("cleaning %s failed", log.name)
            self._retry_later(log, repr(error))
        finally:
            self._busy.discard(log)
            if not finished:
                if child is not None:
                    await child.end()
                await self._in_thread(swap.remove_leftovers, log.folder)
        return child if finished else None

    async def _job(self, log: PartitionLog, dirt: Dirt) -> Job:
        from millstream.storage.cleaning.worker_protocol import Job

        settings, config = self.broker.settings, log.config
        threads = self.threads
        job = Job(
            folder=log.folder,
            segments=[
                (segment.base_offset, segment.size)
                for segment in log.segments
                if segment.base_offset < dirt.upper
            ],
            first_dirty=dirt.first_dirty,
            upper=dirt.upper,
            now_ms=time.time_ns() // 1_000_000,
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            index_bytes=config.segment_index_bytes,
            index_interval=config.index_interval_bytes,
            map_bytes=min(settings.integer("log.cleaner.dedupe.buffer.size") // threads, MAX_MAP_BYTES),
            load_factor=settings.number("log.cleaner.io.buffer.load.factor"),
            buffer_bytes=settings.integer("log.cleaner.io.buffer.size") // threads // 2,
            bytes_per_second=settings.number("log.cleaner.io.max.bytes.per.second") / threads,
        )
        start = log.segments[0].base_offset
        # As log.aborted_transactions does, but letting the loop serve others meanwhile.
        for count, segment in enumerate(list(log.segments)):
            if count % SEGMENTS_PER_STEP == SEGMENTS_PER_STEP - 1:
                await asyncio.sleep(0)
            if segment.txn_index.collect(start, dirt.upper, job.aborted):
                break
        for count, producer in enumerate(list(log.producers.by_id.values())):
            if count % PRODUCERS_PER_STEP == PRODUCERS_PER_STEP - 1:
                await asyncio.sleep(0)
            if producer.last_offset < dirt.upper:
                job.producers[producer.id] = (producer.last_offset, producer.epoch)
        return job

    async def _record(self, number: int, log: PartitionLog, dirt: Dirt, summary: Summary) -> None:
        """Record how far the log is clean, for the next cleaning and for the metrics."""
        log.cleaned_to = summary.end_offset
        self._backoff.pop(log, None)
        self.cleanings += 1
        self.bytes_read += summary.bytes_read
        self.bytes_written += summary.bytes_written
        self.last[number] = summary
        async with self._checkpoint_lock:
            for job in self.broker.log_dirs.checkpoint_jobs(
                checkpoints.CLEANED_OFFSETS, self.broker.log_dirs.cleaned_to_remember
            ):
                await self._in_thread(job)
        map_full = (
            "" if summary.end_offset >= dirt.upper else f", then the map of {summary.keys} keys was full"
        )
        logger.info(
            "%s: cleaned up to offset %d in %.1f s%s: %d of %d records and %.1f of %.1f MB remain",
            log.name,
            summary.end_offset,
            summary.seconds,
            map_full,
            summary.records_after,
            summary.records_before,
            summary.bytes_after / 1e6,
            summary.bytes_before / 1e6,
        )

    def _failed(self, log: PartitionLog, reason: str, for_good: bool) -> None:
        if for_good:
            self.failures += 1
            self.uncleanable[log] = reason
            logger.error(
                "%s cannot be compacted and is left as it is until the broker starts again: %s",
                log.name,
                reason,
            )
        else:
            self._retry_later(log, reason)

    def _retry_later(self, log: PartitionLog, reason: str) -> None:
        self.failures += 1
        _, seconds = self._backoff.get(log, (0.0, FIRST_BACKOFF))
        self._backoff[log] = (time.monotonic() + seconds, min(seconds * 2, MAX_BACKOFF))
        logger.error("%s was not compacted, the next try is in %.0f s: %s", log.name, seconds, reason)

    async def _in_thread(self, work: Callable[..., object], *arguments: object) -> None:
        await asyncio.get_running_loop().run_in_executor(None, work, *arguments)
