"""What the leader of one partition knows of its followers, and what follows from it. Pure: no clock, no I/O.

A follower's fetch says how far its log goes; nothing else does. From that come the high watermark (what is
committed) and proposals to change the ISR. The rules, by their numbers in the design:

H1  The high watermark is the smallest end among the ISR, the members of every proposal that may still be
    accepted, and the live replicas that kept up lately and are about to join. A replica that the leader wants
    to remove counts until the image has removed it: until then it may be elected.
H2  It does not move while the ISR is smaller than `min.insync.replicas`: nothing is committed then, so those
    that leave the ISR keep every committed record and stay eligible (the ELR). While the image names such,
    the controller takes the ISR for too small, whatever this broker's own file says of the minimum.
H3  A follower may join when its log reaches the high watermark and the leader's end at the beginning of its
    epoch. It has to leave when it has not caught up for `replica.lag.time.max.ms`.
H4  A new leader does not know what was committed before it until its high watermark has reached the end that
    its log had at the election.

A proposal names the partition epoch that it changes, so that the controller accepts one of them at most. One
whose outcome is unknown may be accepted at any time until the image shows a later partition epoch, so its
members count until then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from millstream.cluster.metadata_records import Partition as PartitionRecord

NEVER = -math.inf


class Broker(Protocol):
    """What matters of a broker that is alive (metadata_records.BrokerUp)."""

    @property
    def epoch(self) -> int: ...

    @property
    def draining(self) -> bool: ...


Brokers = Mapping[int, Broker]


class FollowerState:
    """A follower, as its fetches in this leader epoch show it."""

    __slots__ = (
        "broker_epoch",
        "caught_up_at",
        "end",
        "fetched_at",
        "leader_end",
        "log_start",
        "sent_high_watermark",
    )

    def __init__(self, caught_up_at: float) -> None:
        self.end = -1  # unknown
        self.log_start = -1
        self.broker_epoch = -1
        self.caught_up_at = caught_up_at  # when its log was last as long as the leader's
        self.fetched_at = NEVER
        self.sent_high_watermark = -1  # by the last response
        self.leader_end = math.inf  # the leader's end at its last fetch


class ReplicaTracker:
    """One leader epoch of one partition."""

    __slots__ = (
        "_counted",
        "_uncertain",
        "broker_id",
        "epoch_end",
        "followers",
        "has_elr",
        "in_flight",
        "isr",
        "leader_epoch",
        "partition_epoch",
        "pending",
        "recovering",
        "replicas",
    )

    def __init__(self, broker_id: int, record: PartitionRecord, log_end: int, now: float) -> None:
        self.broker_id = broker_id
        self.leader_epoch = record.leader_epoch
        self.epoch_end = log_end  # the log's end when the epoch began (H3, H4)
        self.partition_epoch = -1
        self.pending: frozenset[int] = frozenset()  # members of proposals that may still be accepted
        self.in_flight = False  # a proposal waits for its answer, or for the image
        self._uncertain = False  # the outcome of one of them is unknown
        self.followers: dict[int, FollowerState] = {}
        self.update(record, now)

    def update(self, record: PartitionRecord, now: float) -> None:
        """The image has a later record of the same leader epoch."""
        if record.partition_epoch <= self.partition_epoch:
            return
        self.partition_epoch = record.partition_epoch
        self.replicas = record.replicas
        self.isr = frozenset(record.isr)
        self.has_elr = bool(record.elr)
        self.recovering = record.recovering
        self.pending = frozenset()
        self.in_flight = self._uncertain = False
        self._counted = self.isr
        for replica in record.replicas:
            if replica != self.broker_id and replica not in self.followers:
                # A member of the ISR has had all committed records lately; it gets the full time to show it.
                self.followers[replica] = FollowerState(now if replica in self.isr else NEVER)
        for replica in [one for one in self.followers if one not in record.replicas]:
            del self.followers[replica]

    @property
    def alone(self) -> bool:
        """Nobody else has to have a record: an append may be a commit."""
        return len(self._counted) == 1

    # ------------------------------------------------------------------ fetches

    def fetched(
        self, replica: int, broker_epoch: int, offset: int, log_start: int, leader_end: int, now: float
    ) -> bool:
        """A fetch of this follower was found to be in agreement with the leader's log up to `offset`. Returns
        whether that is news."""
        follower = self.followers[replica]
        is_news = offset != follower.end or broker_epoch != follower.broker_epoch
        if offset >= leader_end:
            follower.caught_up_at = now
        elif offset >= follower.leader_end:
            follower.caught_up_at = max(follower.caught_up_at, follower.fetched_at)
        follower.end = offset
        follower.log_start = log_start
        follower.broker_epoch = broker_epoch
        follower.fetched_at = now
        follower.leader_end = leader_end
        return is_news

    def high_watermark(
        self, leader_end: int, min_isr: int, brokers: Brokers, now: float, max_lag: float
    ) -> int:
        """What is committed by H1 and H2; -1 if nothing more is. Never compared with an older one here."""
        if self.has_elr or len(self.isr) < min(min_isr, len(self.replicas)) or self.broker_id not in self.isr:
            return -1
        reached = leader_end
        counted = self._counted
        for replica, follower in self.followers.items():
            if follower.end < reached and (
                replica in counted or self._about_to_join(replica, follower, brokers, now, max_lag)
            ):
                reached = follower.end
        return reached

    def _about_to_join(
        self, replica: int, follower: FollowerState, brokers: Brokers, now: float, max_lag: float
    ) -> bool:
        return now - follower.caught_up_at <= max_lag and self._eligible(replica, follower, brokers)

    def _eligible(self, replica: int, follower: FollowerState, brokers: Brokers) -> bool:
        """Alive, not about to stop, and the life of the broker that has fetched."""
        broker = brokers.get(replica)
        return broker is not None and not broker.draining and broker.epoch == follower.broker_epoch

    def may_join(self, replica: int, high_watermark: int, brokers: Brokers) -> bool:
        """H3, for a follower that has fetched. While a proposal is under way there is no other; one that came
        to nothing is made again."""
        return not self.in_flight and self._joins(replica, high_watermark, brokers)

    def lags(self, leader_end: int, now: float, max_lag: float) -> list[int]:
        """Members of the ISR that have to leave."""
        return [
            replica
            for replica, follower in self.followers.items()
            if replica in self.isr and follower.end != leader_end and now - follower.caught_up_at > max_lag
        ]

    # ------------------------------------------------------------------ proposals

    def propose(
        self, leader_end: int, high_watermark: int, brokers: Brokers, now: float, max_lag: float
    ) -> list[tuple[int, int]] | None:
        """The ISR that should be, as (broker id, broker epoch), if it differs from the one that is. Its
        members count from now on (H1)."""
        if self.in_flight or self.broker_id not in self.isr or self.broker_id not in brokers:
            return None
        leaving = set(self.lags(leader_end, now, max_lag))
        joining = {
            replica
            for replica in self.followers
            if replica not in self.isr and self._joins(replica, high_watermark, brokers)
        }
        if not leaving and not joining and not self.recovering:
            return None
        members = [
            replica
            for replica in self.replicas
            if (replica in self.isr and replica not in leaving) or replica in joining
        ]
        if self.recovering:  # first the flag goes, by a proposal of the leader alone
            members = [self.broker_id]
        # The life that has fetched: a later one may lack what this one had. Of members, the image knows it.
        epochs = [
            (one, self.followers[one].broker_epoch if one in joining else self._epoch_of(one, brokers))
            for one in members
        ]
        self.pending |= frozenset(members)
        self._counted = self.isr | self.pending
        self.in_flight = True
        return epochs

    def _joins(self, replica: int, high_watermark: int, brokers: Brokers) -> bool:
        follower = self.followers[replica]
        return follower.end >= max(high_watermark, self.epoch_end) and self._eligible(
            replica, follower, brokers
        )

    @staticmethod
    def _epoch_of(replica: int, brokers: Brokers) -> int:
        broker = brokers.get(replica)
        return -1 if broker is None else broker.epoch

    def refused(self, partition_epoch: int) -> None:
        """The controller has not accepted the proposal, and never will."""
        if partition_epoch == self.partition_epoch:
            self.in_flight = False
            if not self._uncertain:
                self.pending = frozenset()
                self._counted = self.isr

    def unanswered(self, partition_epoch: int) -> None:
        """Whether the controller has accepted the proposal, or will, is not known."""
        if partition_epoch == self.partition_epoch:
            self.in_flight = False
            self._uncertain = True
