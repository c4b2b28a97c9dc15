"""Whether a follower may read on from where it stands: the leader's side of a follower's fetch.

The checks are in this order, and only a fetch that passes all of them says anything about the follower:

  leader epoch not equal        FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH; equal, both ways (KIP-320): one
                                of another epoch may hold what this leader never had
  not a replica                 UNKNOWN_LEADER_EPOCH: its image is newer or older than ours
  another life of the broker    STALE_BROKER_EPOCH (KIP-903): a restarted, perhaps emptied replica must not
                                profit from what its earlier life had
  offset below the log          OFFSET_OUT_OF_RANGE with the start of the log; the follower starts again there
  the logs differ               the end of the last epoch on which they may agree; the follower cuts its log
  offset behind the log         OFFSET_OUT_OF_RANGE, as above
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.wire.errors import ErrorCode

if TYPE_CHECKING:
    from millstream.broker.partition import Partition
    from millstream.wire.fetch import FetchPartition

Verdict = tuple[ErrorCode, tuple[int, int] | None]  # what is wrong, and where the logs diverge
AGREED: Verdict = (ErrorCode.none, None)


def admit(partition: Partition, replica_id: int, broker_epoch: int, want: FetchPartition) -> Verdict:
    """Judge the fetch of a follower at a partition that we lead, and note how far the follower is."""
    if want.leader_epoch != partition.leader_epoch:
        older = 0 <= want.leader_epoch < partition.leader_epoch
        return (ErrorCode.fenced_leader_epoch if older else ErrorCode.unknown_leader_epoch), None
    tracker, replication, log = partition.tracker, partition.replication, partition.log
    if tracker is None or replication is None or replica_id not in tracker.followers:
        return ErrorCode.unknown_leader_epoch, None
    broker = replication.brokers.get(replica_id)
    if broker is None or broker.epoch != broker_epoch:
        return ErrorCode.stale_broker_epoch, None
    offset = want.offset
    if want.last_fetched_epoch >= 0:
        epoch, end = log.epoch_end(want.last_fetched_epoch)
        if epoch < want.last_fetched_epoch or end < offset:
            if offset < log.start_offset:  # nothing is left to compare with
                return ErrorCode.offset_out_of_range, None
            return ErrorCode.none, (epoch, end)
    if not log.start_offset <= offset <= log.end_offset:
        return ErrorCode.offset_out_of_range, None
    partition.replica_fetched(replica_id, broker_epoch, offset, want.log_start)
    return AGREED
