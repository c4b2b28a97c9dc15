"""The loop that follows one leader: one connection, one fetch under way.

What to ask for and what to do with the answers is decided by `Follower`. This loop connects, sends, waits,
and backs off by `replica.fetch.backoff.ms` when the leader is away or refuses a partition. An answer of
records and high watermarks, as nearly all are, is taken in and followed by the next fetch where it arrives,
in the connection's callback: the loop itself sleeps until there is something else to do. When the
partitions to follow change while a fetch waits at the leader, it is hurried: any further request makes the
leader answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING

from millstream.broker.replication.broker_connection import ASKED_AGAIN
from millstream.broker.replication.follower import Follower, Outcome
from millstream.wire import replica_fetch
from millstream.wire.errors import KafkaError
from millstream.wire.replica_fetch import Key, pack_replica_fetch, read_replica_fetch

if TYPE_CHECKING:
    from millstream.broker.partition import Partition
    from millstream.broker.replication.broker_connection import BrokerConnection
    from millstream.broker.server import Broker

logger = logging.getLogger("millstream.replication")

MAX_PAUSE = 5.0  # seconds after which a throttled replica is asked for again: the rate may be another by then
EMPTY_API_VERSIONS = b"\x0bmillstream\x021\0"  # client software and its version, in ApiVersions 3


class ReplicaFetcher:
    """Follows all partitions that one broker leads and this one has a replica of."""

    def __init__(self, broker: Broker, leader_id: int) -> None:
        self.broker = broker
        self.leader_id = leader_id
        self.follower = Follower()
        self.partitions: dict[Key, Partition] = {}
        self.bytes_in = 0
        self._connection: BrokerConnection | None = None
        self._changed = asyncio.Event()
        self._waiting = False  # a fetch is at the leader
        self._hurried = False
        self._retry: asyncio.TimerHandle | None = None
        self._series: asyncio.Future[Outcome] | None = None  # of the fetch that is at the leader
        self._settings: object = None  # of which these are
        self._limits: dict[str, int] = {}
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"replica-fetcher-{broker.node_id}-{leader_id}"
        )

    # ------------------------------------------------------------------ roles

    def follow(self, partition: Partition) -> None:
        key = (partition.topic_id.bytes, partition.index)
        self.partitions[key] = partition
        self.follower.follow(key, partition.log, partition.leader_epoch)
        self._news()

    def forget(self, key: Key) -> None:
        if self.partitions.pop(key, None) is not None:
            self.follower.forget(key)
            self._news()

    def _news(self) -> None:
        self._changed.set()
        if self._waiting and not self._hurried and self.follower.has_news and self._connection is not None:
            self._hurried = True
            # Its answer is of no interest, nor whether it comes.
            answer = self._connection.send(18, 3, True, [EMPTY_API_VERSIONS])
            answer.add_done_callback(_forget)

    async def stop(self) -> None:
        self._task.cancel()
        if self._retry is not None:
            self._retry.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._connection is not None:
            self._connection.close()

    # ------------------------------------------------------------------ the loop

    async def _run(self) -> None:
        while True:
            try:
                await self._fetch_until_it_fails()
            except asyncio.CancelledError:
                raise
            except KafkaError as error:
                if self.partitions:
                    logger.warning("cannot follow broker %d: %s", self.leader_id, error.message)
            except Exception:
                logger.exception("following broker %d failed", self.leader_id)
            self.follower.failed()
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            await asyncio.sleep(self.broker.settings.integer("replica.fetch.backoff.ms") / 1000)

    async def _fetch_until_it_fails(self) -> None:
        while True:
            while self.follower.idle:
                self._changed.clear()
                await self._changed.wait()
            if self._connection is None or self._connection.closed:
                self._connection = await self.broker.connections.open(self.leader_id)
            await self._fetch(self._connection)

    async def _fetch(self, connection: BrokerConnection) -> None:
        """Fetch for as long as nothing but records and high watermarks comes; then see to what else did."""
        answer = self._ask(connection)
        if answer is None:
            return
        self._waiting = True
        try:
            outcome = await answer
        finally:
            self._waiting = False
        await self._after(outcome)

    def _ask(
        self, connection: BrokerConnection, series: asyncio.Future[Outcome] | None = None
    ) -> asyncio.Future[Outcome] | None:
        request = self.follower.request()
        if request is None:
            return None
        settings = self.broker.settings
        if settings is not self._settings:
            self._settings = settings
            number = settings.integer
            self._limits = {
                "max_wait_ms": number("replica.fetch.wait.max.ms"),
                "min_bytes": number("replica.fetch.min.bytes"),
                "max_bytes": number("replica.fetch.response.max.bytes"),
                "partition_max_bytes": number("replica.fetch.max.bytes"),
            }
        body = pack_replica_fetch(
            request, self.broker.node_id, self.broker.controller.broker_epoch, **self._limits
        )
        take = partial(self._take, connection, request)
        self._hurried = False
        # The answer is taken in as it arrives: its records are in the connection's buffer only then.
        self._series = connection.send(
            replica_fetch.API_KEY, replica_fetch.VERSION, True, [body], take, None, series
        )
        return self._series

    def _take(
        self, connection: BrokerConnection, request: replica_fetch.ReplicaFetch, body: memoryview
    ) -> object:
        outcome = self.follower.answered(request, read_replica_fetch(body))
        if outcome.failed or not self.broker.throttles.follower.unlimited or self.follower.idle:
            return outcome
        for followed in outcome.grown:
            if followed.log.flushes:
                return outcome
        # What nearly always comes: the next fetch leaves before anybody else has a turn.
        self._stored(outcome)
        if self._ask(connection, self._series) is None:
            return Outcome()
        return ASKED_AGAIN

    def _stored(self, outcome: Outcome) -> None:
        self.bytes_in += outcome.bytes
        for followed in outcome.committed:
            partition = self.partitions.get(followed.key)
            if partition is not None and partition.commit_waiters:
                partition.wake_consumers()

    async def _after(self, outcome: Outcome) -> None:
        self._stored(outcome)
        for followed in outcome.grown:
            # flush.messages and flush.ms: what the next fetch says we have must be synced.
            partition = self.partitions.get(followed.key)
            if partition is not None and partition.log.flushes and partition.log.flush_due(wall_ms()):
                await partition.log.flush()
        pause = self._throttle(outcome)
        if outcome.failed:
            pause = max(pause, self.broker.settings.integer("replica.fetch.backoff.ms") / 1000)
        if pause > 0 and self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(pause, self._try_again)

    def _throttle(self, outcome: Outcome) -> float:
        """Replicas that are to be copied slowly wait for their rate. How long, in seconds."""
        limiter = self.broker.throttles.follower
        if limiter.unlimited or not outcome.grown:
            return 0.0
        now = time.monotonic()
        slowed = []
        for followed, size in zip(outcome.grown, outcome.sizes, strict=True):
            partition = self.partitions.get(followed.key)
            if partition is not None and self.broker.replicas.follows_slowly(partition):
                limiter.spend(size, now)
                slowed.append(followed.key)
        delay = min(limiter.delay(now), MAX_PAUSE)
        if delay > 0:
            for key in slowed:
                self.follower.pause(key)
        return delay if slowed else 0.0

    def _try_again(self) -> None:
        self._retry = None
        self.follower.retry()
        self._news()

    @property
    def max_lag(self) -> int:
        """Records that the partition furthest behind has yet to fetch, as far as is known."""
        return max(
            (max(each.leader_end - each.log.end_offset, 0) for each in self.follower.partitions.values()),
            default=0,
        )


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _forget(answer: asyncio.Future[object]) -> None:
    if not answer.cancelled():
        answer.exception()
