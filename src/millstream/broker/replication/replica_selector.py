"""From which replica a consumer should read (KIP-392): one in its own rack, to save traffic between racks.

`replica.selector.class` says by which rule. Ours are Kafka's two, by the names of its classes: the leader
(the default), and RackAwareReplicaSelector. The leader answers a consumer of another rack with the id of a
follower, and no records; followers serve every consumer that knows of this (Fetch 11), up to their own high
watermark. Only members of the ISR are named (KAFKA-14372): others may stay behind for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from millstream.broker.replication.replica_tracker import ReplicaTracker

RACK_AWARE = "RackAwareReplicaSelector"
NO_REPLICA = -1


class Racked(Protocol):
    """What matters of a broker that is alive (metadata_records.BrokerUp)."""

    @property
    def rack(self) -> str | None: ...

    @property
    def draining(self) -> bool: ...


def selects_by_rack(class_name: str) -> bool:
    return class_name.rpartition(".")[2] == RACK_AWARE


def preferred_replica(tracker: ReplicaTracker, brokers: Mapping[int, Racked], rack: str, offset: int) -> int:
    """The follower to read from, `NO_REPLICA` to read from the leader: the one in that rack that has most."""
    leader = brokers.get(tracker.broker_id)
    if leader is None or leader.rack == rack:
        return NO_REPLICA
    best, best_end = NO_REPLICA, -1
    for replica, follower in tracker.followers.items():
        broker = brokers.get(replica)
        if (
            broker is not None
            and broker.rack == rack
            and not broker.draining
            and replica in tracker.isr
            and follower.log_start <= offset <= follower.end
            and follower.end > best_end
        ):
            best, best_end = replica, follower.end
    return best
