"""Incremental fetch sessions (KIP-227): a client states its partitions once, later only what changed.

A session remembers, per partition, what the client wants and what the last response said. An incremental
response has only partitions with records, an error, or a changed watermark. Partitions that returned records
go to the back of the order, so that a small `max_bytes` starves none.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable

from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.fetch import FetchPartition, FetchRequest

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
LAST_EPOCH = 0x7FFFFFFF  # followed by 1
LAST_ID = 0x7FFFFFFF
MIN_IDLE_BEFORE_EVICTION = 120.0  # seconds; a session used more recently is not evicted for a new one

Key = tuple[bytes, int]  # topic as the request names it, partition


class Cached:
    """One partition of a session."""

    __slots__ = ("high_watermark", "last_stable", "log_start", "want")

    def __init__(self, want: FetchPartition) -> None:
        self.want = want
        self.high_watermark = -1
        self.last_stable = -1
        self.log_start = -1


class Session:
    __slots__ = ("by_id", "changes", "epoch", "id", "last_used", "partitions")

    def __init__(self, id: int, by_id: bool, now: float) -> None:
        self.id = id
        self.by_id = by_id
        self.epoch = 1
        self.changes = 0  # how often partitions came or went
        self.last_used = now
        self.partitions: dict[Key, Cached] = {}

    def update(
        self,
        topics: Iterable[tuple[bytes, Iterable[FetchPartition]]],
        forgotten: Iterable[tuple[bytes, Iterable[int]]],
    ) -> None:
        partitions = self.partitions
        for topic, wanted in topics:
            for want in wanted:
                cached = partitions.get((topic, want.partition))
                if cached is None:
                    partitions[(topic, want.partition)] = Cached(want)
                    self.changes += 1
                else:
                    if want.leader_epoch != cached.want.leader_epoch:
                        # What it was told under another epoch, a follower may not have taken.
                        cached.high_watermark = -1
                    cached.want = want
        for topic, indexes in forgotten:
            for index in indexes:
                if partitions.pop((topic, index), None) is not None:
                    self.changes += 1

    def to_back(self, keys: list[Key]) -> None:
        for key in keys:
            cached = self.partitions.pop(key, None)
            if cached is not None:
                self.partitions[key] = cached


class FetchSessions:
    """All sessions of the broker, at most `slots` of them."""

    def __init__(
        self, slots: int, new_id: Callable[[], int] = lambda: secrets.randbelow(LAST_ID) + 1
    ) -> None:
        self.slots = slots
        self._new_id = new_id
        self._sessions: OrderedDict[int, Session] = OrderedDict()
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session: Session) -> bool:
        return self._sessions.get(session.id) is session

    @property
    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def open(self, request: FetchRequest, by_id: bool, now: float) -> tuple[Session | None, bool]:
        """The session of this request, if it has one, and whether the response must be complete."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id:
                self._sessions.pop(request.session_id, None)
            if request.session_epoch == FINAL_EPOCH:
                return None, True
            session = self._create(by_id, now, request.replica_id >= 0)
            if session is not None:
                session.update(request.topics, request.forgotten)
            return session, True
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.fetch_session_id_not_found)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.invalid_fetch_session_epoch)
        if session.by_id != by_id:
            raise KafkaError(ErrorCode.fetch_session_topic_id_error)
        session.update(request.topics, request.forgotten)
        if self.end_if_empty(session):
            return None, True
        self.move_on(session, now)
        return session, False

    def move_on(self, session: Session, now: float) -> None:
        """The session goes on to its next epoch, as the one used last."""
        session.epoch = 1 if session.epoch == LAST_EPOCH else session.epoch + 1
        session.last_used = now
        self._sessions.move_to_end(session.id)

    def end_if_empty(self, session: Session) -> bool:
        """A session without partitions ends; the response says so."""
        if session.partitions:
            return False
        self._sessions.pop(session.id, None)
        return True

    def _create(self, by_id: bool, now: float, of_replica: bool) -> Session | None:
        """A follower's session takes the place of another one, however recently that was used."""
        if len(self._sessions) >= self.slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or (now - oldest.last_used < MIN_IDLE_BEFORE_EVICTION and not of_replica):
                return None
            del self._sessions[oldest.id]
            self.evicted += 1
        # Whoever knows the id of a session can end it, or read on in it and see the names of its topics.
        # Random also because a restarted broker must not take an id of an earlier run for one of its own.
        id = self._new_id()
        while id in self._sessions:
            id = self._new_id()
        session = self._sessions[id] = Session(id, by_id, now)
        return session
