"""What the broker does by the clock: retention, flushes, checkpoints, idle connections, loop lag.

Each job is a coroutine on the loop that does a little and sleeps. What may take long (fsync, unlink) goes to
helper threads. A job that fails is logged and tried again at its next turn; it never ends the broker. If it
fails for one partition (a disk error), it goes on with the next one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from millstream.broker.partitions import Yielder
from millstream.cluster.commands import ElectLeaders
from millstream.cluster.leader_balance import leaderships_to_return
from millstream.cluster.security_commands import RemoveExpiredTokens
from millstream.storage import checkpoints
from millstream.storage.files import SyncFailed
from millstream.wire.errors import KafkaError
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.broker.partition import Partition
    from millstream.broker.server import Broker
    from millstream.storage.log import PartitionLog

logger = logging.getLogger("millstream.housekeeping")

SHED_AFTER = 10.0  # seconds without traffic until a connection's spare buffer is freed


class Housekeeping:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._tasks: list[asyncio.Task[None]] = []
        # What each checkpoint file holds.
        self._written: dict[str, dict[TopicPartition, int | None]] = {}

    def start(self) -> None:
        transactions = self.broker.transactions
        for interval, job in (
            ("log.retention.check.interval.ms", self.retention),
            (1.0, self.reap),
            (1.0, self.create_missing_logs),
            (1.0, self.failing_replicas),
            (5.0, self.checkpoints),
            ("log.flush.offset.checkpoint.interval.ms", self.recovery_points),
            (1.0, self.overdue_flushes),
            (1.0, self.sync_closed_segments),
            (5.0, self.idle_connections),
            (10.0, self.forget_clients),
            ("producer.id.expiration.check.interval.ms", self.expire_producers),
            ("offsets.retention.check.interval.ms", self.expire_offsets),
            ("leader.imbalance.check.interval.seconds", self.balance_leaders),
            ("delegation.token.expiry.check.interval.ms", self.expire_tokens),
            ("transaction.abort.timed.out.transaction.cleanup.interval.ms", transactions.abort_timed_out),
            ("transaction.remove.expired.transaction.cleanup.interval.ms", transactions.forget_expired),
        ):
            self._tasks.append(asyncio.create_task(self._repeat(interval, job)))
        self._tasks.append(asyncio.create_task(self._measure_lag()))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def forget_clients(self) -> None:
        """Clients that pushed metrics and do no longer."""
        if self.broker.telemetry is not None:
            self.broker.telemetry.forget()

    async def _repeat(self, interval: str | float, job: Callable[[], Awaitable[None]]) -> None:
        """Do a job again and again; its interval is in seconds, or is a setting (in milliseconds, if its name
        does not say otherwise) that may change."""
        while True:
            settings = self.broker.settings
            if isinstance(interval, float):
                seconds = interval
            else:
                seconds = settings.integer(interval) / (1 if interval.endswith(".seconds") else 1000)
            await asyncio.sleep(max(seconds, 0.01))
            try:
                await job()
            except SyncFailed as error:
                self.broker.log_dirs.take_offline(error)
            except (KafkaError, OSError) as error:
                logger.error("%s failed, it will be tried again: %s", job.__name__, error)
            except Exception:
                logger.exception("%s failed, it will be tried again", job.__name__)

    async def expire_tokens(self) -> None:
        """An expired token is no longer good for a login; the controller also forgets it."""
        if self.broker.controller.leading and self.broker.image.tokens:
            await self.broker.controller.submit(RemoveExpiredTokens(time.time_ns() // 1_000_000))

    async def failing_replicas(self) -> None:
        """Other brokers are to lead what this one cannot write."""
        if "replicas" in self.broker.__dict__:
            await self.broker.replicas.failing.look()

    async def retention(self) -> None:
        now_ms = time.time_ns() // 1_000_000
        async for partition in self._all():
            if not self.broker.log_cleaner.owns(partition.log):
                try:
                    partition.log.delete_old_segments(now_ms)
                except (KafkaError, OSError) as error:
                    logger.error("%s: old segments were not deleted: %s", partition.log.name, error)

    async def reap(self) -> None:
        """Unlink what was deleted long enough ago."""
        if self.broker.log_dirs.reaper:
            await self._in_thread(self.broker.log_dirs.reap)

    async def create_missing_logs(self) -> None:
        """Partitions whose log the disk refused."""
        if self.broker.partitions.without_log:
            await self.broker.partitions.create_missing_logs(self.broker.image)

    async def checkpoints(self) -> None:
        """High watermarks and log starts."""
        await self._write(checkpoints.HIGH_WATERMARKS, lambda log: log.high_watermark)
        await self.write_start_offsets()

    async def write_start_offsets(self) -> None:
        """Log starts inside a segment, so that deleted records do not come back after a crash."""
        await self._write(checkpoints.START_OFFSETS, self.broker.log_dirs.start_to_remember)

    async def recovery_points(self) -> None:
        await self._write(checkpoints.RECOVERY_POINTS, lambda log: log.recovery_point)

    async def _write(self, name: str, value: Callable[[PartitionLog], int | None]) -> None:
        """Read the offsets now, write the files in a thread, and only where something changed."""
        state = {
            TopicPartition(log.topic, log.partition): value(log) for log in self.broker.log_dirs.logs.values()
        }
        if self._written.get(name) != state:
            for job in self.broker.log_dirs.checkpoint_jobs(name, value):
                await self._in_thread(job)
            self._written[name] = state

    async def overdue_flushes(self) -> None:
        """`flush.ms`: partitions whose oldest unflushed record is too old."""
        now_ms = time.time_ns() // 1_000_000
        async for partition in self._all():
            if partition.log.flush_due(now_ms):
                partition.flush_soon()

    async def sync_closed_segments(self) -> None:
        """After a roll: what is synced need not be checked again after a crash."""
        async for partition in self._all():
            if partition.log.unsynced:
                try:
                    await partition.log.flush(closed_segments_only=True)
                except (KafkaError, OSError) as error:
                    logger.error("%s: a closed segment was not synced: %s", partition.log.name, error)

    async def expire_producers(self) -> None:
        now_ms = time.time_ns() // 1_000_000
        async for partition in self._all():
            partition.log.expire_producers(now_ms)

    async def expire_offsets(self) -> None:
        await self.broker.groups.expire_offsets()

    async def balance_leaders(self) -> None:
        """As controller: leadership goes back to the preferred replicas, some at a time."""
        controller = self.broker.controller
        while controller.leading and self.broker.settings.boolean("auto.leader.rebalance.enable"):
            partitions = leaderships_to_return(controller.image)
            if not partitions:
                return
            outcome = await controller.submit(ElectLeaders(partitions), is_large=True)
            elected = sum(result.ok for result in outcome.values())
            logger.info("%d partitions are led by their preferred replicas again", elected)
            if not elected:
                return
            await asyncio.sleep(1.0)

    async def _all(self) -> AsyncIterator[Partition]:
        """Every partition that can be written, letting the loop serve others now and then."""
        yield_now = Yielder()
        for partition in list(self.broker.partitions):
            await yield_now()
            if not partition.log.closed and partition.log.offline is None:
                yield partition

    async def _in_thread(self, work: Callable[[], object]) -> None:
        await asyncio.get_running_loop().run_in_executor(None, work)

    async def idle_connections(self) -> None:
        now = asyncio.get_running_loop().time()
        limit = self.broker.settings.integer("connections.max.idle.ms") / 1000
        for connection in list(self.broker.admission.open):
            idle = now - connection.last_active
            if idle > SHED_AFTER:
                connection.shed()
            if limit > 0 and idle > limit and not connection.parked:
                connection.close(f"idle for {idle:.0f} s (connections.max.idle.ms)")

    async def _measure_lag(self) -> None:
        """How late a timer fires: the time during which the loop served nobody."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + 1.0
            await asyncio.sleep(1.0)
            self.broker.loop_lag = max(loop.time() - due, self.broker.loop_lag * 0.9)
