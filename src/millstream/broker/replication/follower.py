"""What this broker fetches from one leader, and what it does with the answers. Pure: no socket, no clock.

For each partition a follower states where its log ends and the epoch of its last batch. The leader answers
with records that follow, or with the end of the last epoch on which both logs may agree, and then the
follower cuts its log there and asks again (KIP-595). It never cuts at a high watermark, which says what is
committed but not what differs. A follower that is behind the leader's first offset starts again there.

A partition that the leader does not serve (it does not lead, its image is older or newer) is set aside until
the image names a leader or epoch again, or until `retry`. Everything else goes on meanwhile.

Requests are incremental (KIP-227): only positions that changed are stated. One request is under way at a
time. An answer counts for a partition only if it is still followed under the same leader epoch and its log
still ends where the request said: a late or repeated answer must not touch a log that has moved on.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Protocol

from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.replica_fetch import Fetched, FetchedAll, Key, Position, ReplicaFetch

logger = logging.getLogger("millstream.replication")

FULL, LAST_SESSION_EPOCH = 0, 0x7FFFFFFF

_SESSION_ERRORS = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)


class ReplicaLog(Protocol):
    """What a follower needs of a partition's log (storage.log.PartitionLog)."""

    name: str
    start_offset: int
    end_offset: int
    high_watermark: int
    flushes: bool  # flush.messages or flush.ms are set

    def last_epoch(self) -> int: ...
    def epoch_end(self, epoch: int) -> tuple[int, int]: ...
    def append_follower(self, batches: memoryview) -> int: ...
    def truncate_to(self, offset: int) -> None: ...
    def reset_at(self, offset: int) -> None: ...
    def set_high_watermark(self, offset: int) -> None: ...
    def advance_start(self, offset: int) -> int: ...


class FollowedPartition:
    """One partition, under one leader epoch."""

    __slots__ = ("asked", "key", "leader_end", "leader_epoch", "log", "sent")

    def __init__(self, key: Key, log: ReplicaLog, leader_epoch: int) -> None:
        self.key = key
        self.log = log
        self.leader_epoch = leader_epoch
        self.sent: Position | None = None  # what the leader's session knows of it
        self.asked: Position | None = None  # what the request under way says of it, or its session
        self.leader_end = -1  # as far as is known; for the lag

    def position(self) -> Position:
        log = self.log
        return Position(self.leader_epoch, log.end_offset, log.last_epoch(), log.start_offset)


@dataclass(slots=True)
class Outcome:
    """What an answer came to."""

    grown: list[FollowedPartition] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  # bytes, of each in `grown`
    committed: list[FollowedPartition] = field(default_factory=list)  # their high watermark moved
    bytes: int = 0
    failed: bool = False  # a partition was set aside, or the whole answer was refused: back off


class Follower:
    """The partitions that this broker follows at one leader."""

    def __init__(self) -> None:
        self.partitions: dict[Key, FollowedPartition] = {}
        self._session_id = 0
        self._session_epoch = FULL
        self._forgotten: list[Key] = []  # to be taken out of the session
        self._changed: dict[Key, FollowedPartition] = {}  # whose position has to be stated
        self._aside: set[Key] = set()
        self._request: ReplicaFetch | None = None

    # ------------------------------------------------------------------ roles

    def follow(self, key: Key, log: ReplicaLog, leader_epoch: int) -> None:
        """Fetch this partition from now on, under this leader epoch."""
        old = self.partitions.get(key)
        if old is not None and old.leader_epoch == leader_epoch and old.log is log:
            self._take_back(old)
            return
        new = self.partitions[key] = FollowedPartition(key, log, leader_epoch)
        if old is not None:
            new.sent = old.sent
        self._aside.discard(key)
        self._changed[key] = new

    def forget(self, key: Key) -> None:
        old = self.partitions.pop(key, None)
        if old is not None:
            self._changed.pop(key, None)
            self._aside.discard(key)
            self._drop_from_session(old)

    def pause(self, key: Key) -> None:
        """Do not ask for this partition until `retry`: its replica is to be copied slowly."""
        partition = self.partitions.get(key)
        if partition is not None and key not in self._aside:
            self._set_aside(partition)

    def retry(self) -> None:
        """The back-off is over: ask for the partitions that were set aside once more."""
        for key in list(self._aside):
            self._take_back(self.partitions[key])

    def _take_back(self, partition: FollowedPartition) -> None:
        if partition.key in self._aside:
            self._aside.discard(partition.key)
            self._changed[partition.key] = partition

    def _set_aside(self, partition: FollowedPartition) -> None:
        self._aside.add(partition.key)
        self._changed.pop(partition.key, None)
        self._drop_from_session(partition)

    def _drop_from_session(self, partition: FollowedPartition) -> None:
        if partition.sent is not None:
            partition.sent = partition.asked = None
            self._forgotten.append(partition.key)

    # ------------------------------------------------------------------ requests

    @property
    def idle(self) -> bool:
        """Nothing to ask for."""
        return len(self._aside) == len(self.partitions)

    @property
    def has_news(self) -> bool:
        """The partitions have changed since the request under way was made."""
        return bool(self._changed or self._forgotten)

    def request(self) -> ReplicaFetch | None:
        """The next request; None if there is nothing to ask for."""
        if self.idle:
            return None
        if self._session_epoch == FULL:
            stated = [one for key, one in self.partitions.items() if key not in self._aside]
            forgotten: list[Key] = []
        else:
            stated = list(self._changed.values())
            forgotten = [key for key in self._forgotten if key not in self._changed]
        positions: list[tuple[Key, Position]] = []
        for partition in stated:
            position = partition.position()
            partition.sent = partition.asked = position
            positions.append((partition.key, position))
        self._changed.clear()
        self._forgotten.clear()
        self._request = ReplicaFetch(self._session_id, self._session_epoch, positions, forgotten)
        return self._request

    def failed(self) -> None:
        """The request under way will not be answered: the session is over."""
        self._request = None
        self._start_session()

    def _start_session(self) -> None:
        self._session_id, self._session_epoch = 0, FULL
        self._forgotten.clear()
        for partition in self.partitions.values():
            partition.sent = partition.asked = None

    # ------------------------------------------------------------------ answers

    def answered(self, request: ReplicaFetch, answer: FetchedAll) -> Outcome:
        """The answer to `request` has come."""
        outcome = Outcome()
        if request is not self._request:
            return outcome
        self._request = None
        if answer.error:
            if answer.error not in _SESSION_ERRORS:
                logger.warning("a leader refuses to be followed: %s", ErrorCode(answer.error).name)
                outcome.failed = True
            self._start_session()
            return outcome
        self._session_id = answer.session_id
        if answer.session_id:
            epoch = self._session_epoch
            self._session_epoch = 1 if epoch == LAST_SESSION_EPOCH else epoch + 1
        else:
            self._session_epoch = FULL
        for fetched in answer.partitions:
            partition = self.partitions.get(fetched.key)
            if partition is None or partition.asked is None:
                continue
            if _still_counts(partition):
                self._take(partition, fetched, outcome)
            else:  # or the leader would answer the old position again and again
                self._changed[partition.key] = partition
        return outcome

    def _take(self, partition: FollowedPartition, fetched: Fetched, outcome: Outcome) -> None:
        log = partition.log
        try:
            if fetched.error:
                self._refused(partition, fetched, outcome)
            elif fetched.diverging is not None:
                _cut(log, *fetched.diverging)
            else:
                _grow(partition, fetched, outcome)
        except KafkaError as error:
            logger.error("%s: what the leader sent cannot be stored: %s", log.name, error)
            self._set_aside(partition)
            outcome.failed = True
        if partition.key not in self._aside and partition.position() != partition.sent:
            self._changed[partition.key] = partition

    def _refused(self, partition: FollowedPartition, fetched: Fetched, outcome: Outcome) -> None:
        log = partition.log
        if fetched.error == ErrorCode.offset_out_of_range and fetched.log_start >= 0:
            logger.warning(
                "%s ends at %d, outside of the leader's log: it starts again at %d",
                log.name,
                log.end_offset,
                fetched.log_start,
            )
            log.reset_at(fetched.log_start)
            return
        logger.info(
            "%s: the leader of epoch %d answers %s",
            log.name,
            partition.leader_epoch,
            ErrorCode(fetched.error).name,
        )
        self._set_aside(partition)
        outcome.failed = True


def _still_counts(partition: FollowedPartition) -> bool:
    """Whether the log ends as the request said. Where it begins does not matter: retention may have moved
    that meanwhile."""
    return partition.asked is not None and partition.asked[:3] == partition.position()[:3]


def _cut(log: ReplicaLog, epoch: int, end: int) -> None:
    """The logs may agree up to the end of `epoch`, on the shorter one of them. A log whose records were all
    deleted knows no epochs: it starts again where it ends, or the last one would be told apart for ever."""
    _, mine = log.epoch_end(epoch)
    offset = max(min(end, mine if mine >= 0 else log.start_offset), 0)
    if offset < log.high_watermark:
        logger.error(
            "%s is cut to %d, below its high watermark %d: committed records are lost, as happens only "
            "after an unclean election",
            log.name,
            offset,
            log.high_watermark,
        )
    if offset < log.start_offset or mine < 0:
        log.reset_at(offset)
    else:
        log.truncate_to(offset)


def _grow(partition: FollowedPartition, fetched: Fetched, outcome: Outcome) -> None:
    log = partition.log
    if len(fetched.records):
        before = log.end_offset
        log.append_follower(fetched.records)
        outcome.bytes += len(fetched.records)
        if log.end_offset > before:
            outcome.grown.append(partition)
            outcome.sizes.append(len(fetched.records))
    committed = min(fetched.high_watermark, log.end_offset)
    if committed > log.high_watermark:
        log.set_high_watermark(committed)
        outcome.committed.append(partition)
    partition.leader_end = max(fetched.high_watermark, log.end_offset)
    if log.start_offset < fetched.log_start <= log.high_watermark:
        log.advance_start(fetched.log_start)
