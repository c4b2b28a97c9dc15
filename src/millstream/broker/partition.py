"""A partition: a log joined with its role.

The role is the leader epoch under which it may be written; on it depend the produce requests that wait for
the high watermark and the fetches that wait for new records. Roles come only from the image, never from a
request. Where a partition has several replicas, its leader has a `tracker` of the others, which decides what
is committed; without one, everything is committed as it is written.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.replication.replica_tracker import Brokers, ReplicaTracker
    from millstream.broker.replication.throttle import RateLimiter
    from millstream.cluster.metadata_records import Partition as PartitionRecord
    from millstream.storage.log import PartitionLog

logger = logging.getLogger("millstream.partitions")

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})

# Offset that the high watermark has to reach, leader epoch under which it must, what to call then.
AckWaiter = tuple[int, int, Callable[[ErrorCode], None]]


class Replication(Protocol):
    """What a leader of several replicas needs to know of the cluster (replication/replica_manager.py)."""

    @property
    def brokers(self) -> Brokers:
        """Those that are alive."""

    max_lag: float  # seconds (replica.lag.time.max.ms)
    by_rack: bool  # consumers may be sent to followers (replica.selector.class)

    def now(self) -> float: ...

    def propose_soon(self, partition: Partition) -> None:
        """The ISR of this partition may have to change."""

    def track(self, partition: Partition, record: PartitionRecord) -> ReplicaTracker: ...

    def preferred_replica(self, partition: Partition, rack: bytes, offset: int) -> int:
        """The follower from which a consumer of that rack should read; -1 for the leader."""

    def role_changed(self, partition: Partition) -> None: ...

    def forget(self, partition: Partition) -> None: ...

    def send_limiter(self, partition: Partition, replica_id: int) -> RateLimiter | None:
        """What slows down the copying of this partition to that replica."""

    def may_lead(self) -> bool:
        """Whether nobody can have elected another leader yet, as far as the clock says (the lease)."""


class WaitingFetch(Protocol):
    """A fetch, or the session of a follower."""

    def wake(self) -> None:
        """There is something new in the log, or the role has changed."""


class Partition:
    __slots__ = (
        "_flush",
        "ack_waiters",
        "bytes_in",
        "bytes_out",
        "commit_waiters",
        "enough_in_sync",
        "fetch_waiters",
        "index",
        "isr",
        "leader",
        "leader_epoch",
        "leads",
        "log",
        "messages_in",
        "open_to_clients",
        "replicas",
        "replication",
        "topic",
        "topic_id",
        "tracker",
    )

    def __init__(self, topic: str, topic_id: UUID, index: int, log: PartitionLog) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leads = False
        self.open_to_clients = False  # leads, and is not an internal topic
        self.leader = -1
        self.leader_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.enough_in_sync = True
        # Of a leader with several replicas; None where this broker has the only one, or does not lead.
        self.tracker: ReplicaTracker | None = None
        self.replication: Replication | None = None
        # Woken by an append, in the order in which they came.
        self.fetch_waiters: dict[WaitingFetch, None] = {}
        # Consumers' fetches where an append is not yet a commit: woken by the high watermark.
        self.commit_waiters: dict[WaitingFetch, None] = {}
        self.ack_waiters: deque[AckWaiter] = deque()
        self.messages_in = self.bytes_in = self.bytes_out = 0
        self._flush: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    # ------------------------------------------------------------------ roles

    def become_leader(
        self,
        epoch: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        tracker: ReplicaTracker | None = None,
    ) -> None:
        """Lead from now on, or under this epoch, or with these replicas; with a tracker if there are more."""
        if not self.leads or epoch != self.leader_epoch:
            # What waits was written under an epoch that is over.
            self._refuse_acks(ErrorCode.not_leader_or_follower)
            self.log.begin_epoch(epoch)
        self.leads = True
        self.open_to_clients = self.topic not in INTERNAL_TOPICS
        self.leader_epoch = epoch
        self.replicas = replicas
        self.isr = isr
        self._track(tracker)
        self.check_in_sync()
        if tracker is None:
            self.log.set_high_watermark(self.log.end_offset)
            if self.ack_waiters or self.fetch_waiters:  # it had other replicas until now
                self._release_acks()
                self.wake_fetches()

    def _track(self, tracker: ReplicaTracker | None) -> None:
        if tracker is not None and self.tracker is None:
            self.commit_waiters |= self.fetch_waiters
            self.fetch_waiters.clear()
        elif tracker is None and self.commit_waiters:
            self.fetch_waiters |= self.commit_waiters
            self.commit_waiters.clear()
        self.tracker = tracker

    def check_in_sync(self) -> None:
        """Whether acks=all may be accepted; again after a change of ISR or of `min.insync.replicas`."""
        had_enough = self.enough_in_sync
        self.enough_in_sync = len(self.isr) >= min(self.log.config.min_insync_replicas, len(self.replicas))
        if self.tracker is not None:
            if self.tracker.has_elr:  # by the controller's minimum there are not enough
                self.enough_in_sync = False
            if had_enough and not self.enough_in_sync and self._flush is None:
                # Nothing is committed for now, so nobody needs to wait for it. It is written all the same,
                # and may be committed later. (While an fsync is under way, some may wait for that alone.)
                self._refuse_acks(ErrorCode.not_enough_replicas_after_append)
            self.advance()

    def resign(self) -> None:
        """Another broker leads, or the topic is gone: no write that is not committed may be acknowledged."""
        self.leads = self.open_to_clients = False
        self.enough_in_sync = False
        self._track(None)
        self._refuse_acks(ErrorCode.not_leader_or_follower)
        self.wake_fetches()

    def become_follower(self, record: PartitionRecord) -> None:
        """Another broker leads, or nobody. Comes after `resign`, before the first fetch from the leader."""
        self.leader, self.leader_epoch = record.leader, record.leader_epoch
        self.replicas, self.isr = record.replicas, record.isr
        self.log.end_epoch()

    # ------------------------------------------------------------------ replicas

    @property
    def at_min_isr(self) -> bool:
        return len(self.isr) == min(self.log.config.min_insync_replicas, len(self.replicas))

    @property
    def knows_latest(self) -> bool:
        """Whether this leader knows everything that was committed before its epoch (H4, KIP-207)."""
        return self.tracker is None or self.log.high_watermark >= self.tracker.epoch_end

    @property
    def low_watermark(self) -> int:
        """Where the log begins on every replica that is alive. A follower that has not fetched from this
        leader yet counts as one that has everything."""
        tracker, replication = self.tracker, self.replication
        starts = [self.log.start_offset]
        if tracker is not None and replication is not None:
            brokers = replication.brokers
            starts += (state.log_start for each, state in tracker.followers.items() if each in brokers)
        return min(starts)

    def replica_fetched(self, replica: int, broker_epoch: int, offset: int, log_start: int) -> None:
        """A follower's log agrees with ours up to `offset`, where it ends."""
        tracker, replication, log = self.tracker, self.replication, self.log
        assert tracker is not None and replication is not None
        if tracker.fetched(replica, broker_epoch, offset, log_start, log.end_offset, replication.now()):
            self.advance()
        if replica not in tracker.isr and tracker.may_join(replica, log.high_watermark, replication.brokers):
            replication.propose_soon(self)

    def advance(self) -> None:
        """Move the high watermark to where all replicas are that count, and tell those who wait for it."""
        tracker, replication, log = self.tracker, self.replication, self.log
        if tracker is None or replication is None:
            return
        # With flush.messages or flush.ms our own log counts as far as it is synced.
        end = log.end_offset if self._flush is None else log.recovery_point
        reached = tracker.high_watermark(
            end, log.config.min_insync_replicas, replication.brokers, replication.now(), replication.max_lag
        )
        if reached > log.high_watermark:
            log.set_high_watermark(reached)
            if self.ack_waiters:
                self._release_acks()
            self.wake_consumers()
            if replication.by_rack:
                self.wake_fetches()

    # ------------------------------------------------------------------ high watermark

    def appended(self, size: int, messages: int, now_ms: int) -> bool:
        """What follows every append: count it, advance the high watermark. Returns whether it is committed.

        The high watermark is what every in-sync replica holds; where there is one replica, the log's end.
        """
        self.bytes_in += size
        self.messages_in += messages
        log = self.log
        if self.tracker is not None:
            if log.flushes and log.flush_due(now_ms):
                self.flush_soon()
            if self.tracker.alone:
                self.advance()
            return log.high_watermark >= log.end_offset
        if self._flush is not None or (log.flushes and log.flush_due(now_ms)):
            self.flush_soon()
            return log.high_watermark >= log.end_offset
        log.set_high_watermark(log.end_offset)
        if self.ack_waiters:
            self._release_acks()
        return True

    def waits_for_commit(self, acks: int) -> bool:
        """Whether the response to an uncommitted batch waits: with acks=all, or for an fsync under way."""
        return acks == -1 or (acks != 0 and self._flush is not None)

    def flush_soon(self) -> None:
        """`flush.messages` or `flush.ms` asks for an fsync: only what it covers is committed."""
        if self._flush is None:
            self._flush = asyncio.get_running_loop().create_task(self._flush_until_done())

    async def _flush_until_done(self) -> None:
        """One fsync covers every write that came while the one before it was under way."""
        log = self.log
        try:
            while log.recovery_point < log.end_offset:
                flushed = await log.flush()
                if self.tracker is not None:
                    self.advance()
                elif self.leads:
                    log.set_high_watermark(flushed)
                    self._release_acks()
                    self.wake_fetches()
                else:  # a follower, whose leader knows what is committed
                    break
            self._flush = None
            self.advance()
        except (KafkaError, OSError) as error:
            logger.error("%s: fsync failed, what waits for it is refused: %s", self, error)
            self._refuse_acks(ErrorCode.kafka_storage_error)
        finally:
            self._flush = None

    def _release_acks(self) -> None:
        waiters, reached = self.ack_waiters, self.log.high_watermark
        while waiters and waiters[0][0] <= reached:
            _, epoch, notify = waiters.popleft()
            notify(ErrorCode.none if epoch == self.leader_epoch else ErrorCode.not_leader_or_follower)

    def _refuse_acks(self, error: ErrorCode) -> None:
        waiters, self.ack_waiters = self.ack_waiters, deque()
        for _, _, notify in waiters:
            notify(error)

    def wake_fetches(self) -> None:
        """There is something new in the log, or the role has changed."""
        if self.fetch_waiters:
            for fetch in tuple(self.fetch_waiters):
                fetch.wake()

    def wake_consumers(self) -> None:
        """The high watermark has moved, later than the log's end."""
        if self.commit_waiters:
            for fetch in tuple(self.commit_waiters):
                fetch.wake()

    def park(self, fetch: WaitingFetch, of_replica: bool) -> None:
        """Wake this fetch when there is something for it."""
        waits_for_append = of_replica or (self.tracker is None and self.leads)
        (self.fetch_waiters if waits_for_append else self.commit_waiters)[fetch] = None

    def unpark(self, fetch: WaitingFetch) -> None:
        self.fetch_waiters.pop(fetch, None)
        self.commit_waiters.pop(fetch, None)
