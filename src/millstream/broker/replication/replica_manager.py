"""This broker's replicas as a whole: whom to follow, and which ISRs to change.

The image tells which partitions this broker follows, at whom; one `ReplicaFetcher` per leader does it. For
the partitions that it leads, proposals to change an ISR are collected and go to the controller together, one
AlterPartition at a time. A proposal that gets no answer is made again: it names the partition epoch that it
changes, so that it cannot be accepted twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any
from uuid import UUID

from millstream.broker.replication.failing_replicas import FailingReplicas
from millstream.broker.replication.replica_fetcher import ReplicaFetcher
from millstream.broker.replication.replica_selector import NO_REPLICA, preferred_replica, selects_by_rack
from millstream.broker.replication.replica_tracker import Brokers, ReplicaTracker
from millstream.broker.replication.throttle import RateLimiter, is_throttled
from millstream.cluster.commands import AlterPartition, IsrProposal
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.partition import Partition
    from millstream.broker.server import Broker
    from millstream.cluster.metadata_records import Partition as PartitionRecord

logger = logging.getLogger("millstream.replication")

LEADER_THROTTLED = "leader.replication.throttled.replicas"
FOLLOWER_THROTTLED = "follower.replication.throttled.replicas"
MAX_PROPOSALS = 1000  # in one request
RETRY_SECONDS = 0.2

# The controller has looked at the proposal and has not accepted it, nor will it later.
_REFUSED = frozenset({ErrorCode.ineligible_replica, ErrorCode.invalid_request, ErrorCode.unknown_topic_id})

Sent = list[tuple["Partition", ReplicaTracker, IsrProposal]]


class ReplicaManager:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.fetchers: dict[int, ReplicaFetcher] = {}
        self.isr_shrinks = self.isr_expands = self.failed_isr_updates = 0
        self._proposing: dict[Partition, None] = {}
        self._sender: asyncio.Task[None] | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._closed = False
        self.failing = FailingReplicas(self)
        self.settings_changed()

    # ------------------------------------------------------------------ what partitions need to know

    @property
    def brokers(self) -> Brokers:
        return self.broker.controller.image.brokers

    def settings_changed(self) -> None:
        self.max_lag = self.broker.settings.integer("replica.lag.time.max.ms") / 1000
        self.by_rack = selects_by_rack(self.broker.settings.string("replica.selector.class"))

    def now(self) -> float:
        return time.monotonic()

    def may_lead(self) -> bool:
        """The lease alone does not tell: a new session may have one while the image still shows what we led
        in the life before, which another leads by now."""
        return self.broker.controller.holds_lease()

    def track(self, partition: Partition, record: PartitionRecord) -> ReplicaTracker:
        """The tracker of a partition that this broker leads, brought up to this record."""
        tracker = partition.tracker
        if tracker is None or tracker.leader_epoch != record.leader_epoch:
            tracker = ReplicaTracker(self.broker.node_id, record, partition.log.end_offset, self.now())
        else:
            before = tracker.isr
            tracker.update(record, self.now())
            self.isr_shrinks += bool(before - tracker.isr)
            self.isr_expands += bool(tracker.isr - before)
        if tracker.recovering:
            self.propose_soon(partition)
        self.start()
        return tracker

    def preferred_replica(self, partition: Partition, rack: bytes, offset: int) -> int:
        if not self.by_rack or partition.tracker is None:
            return NO_REPLICA
        brokers = self.broker.controller.image.brokers
        return preferred_replica(partition.tracker, brokers, rack.decode(errors="replace"), offset)

    # ------------------------------------------------------------------ throttles

    def send_limiter(self, partition: Partition, replica_id: int) -> RateLimiter | None:
        """What a follower gets of this partition counts for leader.replication.throttled.rate if the topic
        names our replica and the follower is not in sync."""
        limiter = self.broker.throttles.leader
        tracker = partition.tracker
        if limiter.unlimited or tracker is None or replica_id in tracker.isr:
            return None
        named = self.broker.image.topic_config(partition.topic_id).get(LEADER_THROTTLED, "")
        return limiter if is_throttled(named, partition.index, self.broker.node_id) else None

    def follows_slowly(self, partition: Partition) -> bool:
        """Whether what this broker fetches of it counts for follower.replication.throttled.rate."""
        image, node_id = self.broker.image, self.broker.node_id
        record = image.partition(partition.topic_id, partition.index)
        if record is None or node_id in record.isr:
            return False
        named = image.topic_config(partition.topic_id).get(FOLLOWER_THROTTLED, "")
        return is_throttled(named, partition.index, node_id)

    # ------------------------------------------------------------------ roles

    def role_changed(self, partition: Partition) -> None:
        """A partition has taken over what the image says of it: follow its leader, or nobody.
        One that cannot be written follows nobody."""
        leader = -1 if partition.leads else partition.leader
        key = (partition.topic_id.bytes, partition.index)
        for broker_id, fetcher in self.fetchers.items():
            if broker_id != leader:
                fetcher.forget(key)
        if leader >= 0 and not self._closed and partition.log.writable:
            self._fetcher(leader).follow(partition)

    def forget(self, partition: Partition) -> None:
        """The replica goes."""
        for fetcher in self.fetchers.values():
            fetcher.forget((partition.topic_id.bytes, partition.index))

    def brokers_changed(self) -> None:
        """A broker that came, went or drains counts, or no longer counts, in high watermarks and ISRs."""
        for partition in self.broker.partitions:
            if partition.tracker is not None:
                partition.advance()

    def _fetcher(self, leader_id: int) -> ReplicaFetcher:
        fetcher = self.fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self.fetchers[leader_id] = ReplicaFetcher(self.broker, leader_id)
        return fetcher

    def start(self) -> None:
        if self._ticker is None and not self._closed:
            self._ticker = asyncio.get_running_loop().create_task(self._tick_forever(), name="isr-ticker")

    async def close(self) -> None:
        self._closed = True
        for task in (self._ticker, self._sender):
            if task is not None:
                task.cancel()
        for fetcher in self.fetchers.values():
            await fetcher.stop()
        self.fetchers.clear()

    # ------------------------------------------------------------------ ISR

    async def _tick_forever(self) -> None:
        """Who has not caught up for too long leaves the ISR, and no longer holds up what is committed."""
        while True:
            await asyncio.sleep(max(self.max_lag / 2, 0.05))
            try:
                self.tick()
            except Exception:
                logger.exception("in-sync replicas were not looked at")

    def tick(self) -> None:
        now, max_lag = self.now(), self.max_lag
        for partition in list(self.broker.partitions):
            tracker = partition.tracker
            if tracker is None:
                continue
            partition.advance()
            if tracker.lags(partition.log.end_offset, now, max_lag) or any(
                tracker.may_join(replica, partition.log.high_watermark, self.brokers)
                for replica in tracker.followers
                if replica not in tracker.isr
            ):
                self.propose_soon(partition)

    def propose_soon(self, partition: Partition) -> None:
        """With all others of this turn of the loop, or after the request under way."""
        self._proposing[partition] = None
        if self._sender is None and not self._closed:
            self._sender = asyncio.get_running_loop().create_task(self._propose_all())

    async def _propose_all(self) -> None:
        try:
            while self._proposing and not self._closed:
                # Those that want a change in the same turn go together.
                await asyncio.sleep(0)
                sent = self._proposals()
                if sent and not await self._propose(sent):
                    await asyncio.sleep(RETRY_SECONDS)
                    for partition, _, _ in sent:
                        self._proposing[partition] = None
        finally:
            self._sender = None

    def _proposals(self) -> Sent:
        sent: Sent = []
        now, max_lag = self.now(), self.max_lag
        while self._proposing and len(sent) < MAX_PROPOSALS:
            partition = next(iter(self._proposing))
            del self._proposing[partition]
            tracker, log = partition.tracker, partition.log
            if tracker is None:
                continue
            isr = tracker.propose(log.end_offset, log.high_watermark, self.brokers, now, max_lag)
            if isr is not None:
                logger.info(
                    "%s: ISR %s is to become %s",
                    partition,
                    sorted(tracker.isr),
                    [broker_id for broker_id, _ in isr],
                )
                proposal = IsrProposal(
                    partition.topic_id, partition.index, tracker.leader_epoch, tracker.partition_epoch, isr
                )
                sent.append((partition, tracker, proposal))
        return sent

    async def _propose(self, sent: Sent) -> bool:
        """Ask the controller. False if it has to be asked again."""
        proposals = [proposal for _, _, proposal in sent]
        try:
            results = await self._ask_controller(proposals)
        except Exception as error:  # whatever it is, the proposals must be free to be made again
            logger.warning("the controller did not answer a change of ISRs: %s", error)
            self.failed_isr_updates += len(sent)
            for _, tracker, proposal in sent:
                tracker.unanswered(proposal.partition_epoch)
            return False
        known = True
        for partition, tracker, proposal in sent:
            result = results.get((proposal.topic_id, proposal.index), ErrorCode.unknown_server_error)
            if result is ErrorCode.none:
                continue  # the image will say so
            self.failed_isr_updates += 1
            logger.info("%s: the controller refuses a change of its ISR: %s", partition, result.name)
            if result in _REFUSED:
                tracker.refused(proposal.partition_epoch)
            else:  # our image is behind: it will say what has become of the partition
                tracker.unanswered(proposal.partition_epoch)
                known = False
        return known

    async def _ask_controller(self, proposals: list[IsrProposal]) -> dict[tuple[UUID, int], ErrorCode]:
        controller = self.broker.controller
        if controller.leading:
            replies = await controller.submit(
                AlterPartition(self.broker.node_id, controller.broker_epoch, proposals)
            )
            return {key: result.error for key, result in replies.items()}
        topics: dict[UUID, list[dict[str, Any]]] = {}
        for proposal in proposals:
            topics.setdefault(proposal.topic_id, []).append(
                {
                    "partition_index": proposal.index,
                    "leader_epoch": proposal.leader_epoch,
                    "partition_epoch": proposal.partition_epoch,
                    "leader_recovery_state": int(proposal.recovering),
                    "new_isr_with_epochs": [
                        {"broker_id": broker_id, "broker_epoch": epoch} for broker_id, epoch in proposal.isr
                    ],
                }
            )
        response = await self.broker.connections.request(
            controller.image.controller_id,
            "alter_partition",
            broker_id=self.broker.node_id,
            broker_epoch=controller.broker_epoch,
            topics=[
                {"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in topics.items()
            ],
        )
        if response.error_code is not ErrorCode.none:
            raise KafkaError(response.error_code)
        return {
            (topic.topic_id, partition.partition_index): partition.error_code
            for topic in response.topics
            for partition in topic.partitions
        }
