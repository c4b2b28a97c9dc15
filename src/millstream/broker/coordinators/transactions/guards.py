"""What the leader of a partition knows of transactions that another broker coordinates (KIP-890).

Between the coordinator's yes and the append of the first batch the transaction may end: the batch must not be
written behind its marker, or nobody would ever end what the batch begins. So a guard is put up before the
coordinator is asked, and the marker takes it down; only a yes whose guard still stands counts. It counts
until the marker comes, or until the partition has another leader epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.broker.partition import Partition

MAX_GUARDS = 100_000


class Guard:
    __slots__ = ("leader_epoch", "producer_epoch", "verified")

    def __init__(self, producer_epoch: int, leader_epoch: int) -> None:
        self.producer_epoch = producer_epoch
        self.leader_epoch = leader_epoch
        self.verified = False


class Guards:
    def __init__(self) -> None:
        self._guards: dict[tuple[Partition, int], Guard] = {}

    def put_up(self, partition: Partition, producer_id: int, producer_epoch: int) -> Guard:
        """Before the coordinator is asked. Who asks the same at the same time shares the guard."""
        guard = self._guards.get((partition, producer_id))
        if guard is None or not self._fits(guard, partition, producer_epoch):
            guard = self._guards[partition, producer_id] = Guard(producer_epoch, partition.leader_epoch)
            if len(self._guards) > MAX_GUARDS:
                del self._guards[next(iter(self._guards))]
        return guard

    def verified(self, partition: Partition, producer_id: int, guard: Guard) -> None:
        """The coordinator says yes: that counts if the guard still stands."""
        if self._guards.get((partition, producer_id)) is guard:
            guard.verified = True

    def is_verified(self, partition: Partition, producer_id: int, producer_epoch: int) -> bool:
        if not self._guards:
            return False
        guard = self._guards.get((partition, producer_id))
        return guard is not None and guard.verified and self._fits(guard, partition, producer_epoch)

    def take_down(self, partition: Partition, producer_id: int) -> None:
        """A marker of this producer is written, or the coordinator said no."""
        if self._guards:
            self._guards.pop((partition, producer_id), None)

    @staticmethod
    def _fits(guard: Guard, partition: Partition, producer_epoch: int) -> bool:
        return guard.producer_epoch == producer_epoch and guard.leader_epoch == partition.leader_epoch
