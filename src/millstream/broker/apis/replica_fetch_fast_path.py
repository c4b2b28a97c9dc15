"""A follower's fetches, served at the cost of what has changed.

A follower repeats one request for as long as it lives: the next epoch of its session, and the positions of
the partitions that it has got records of. The full path looks at every partition of the session, once when
the fetch comes and once more when it is woken. Here the session stays registered with its partitions: an
append marks its partition as active, and a fetch looks at the active ones and at those that it states. One
with nothing to say any more (the follower has all of it, and knows that all of it is committed) is left out
until the next append. All that is written in one turn of the poller leaves in one response.

Every stated position is judged by `replica_reads.admit`, as on the full path. What is left to that path: a
partition that is new to the session, forgotten, or not led here any more, logs that differ, throttled
replicas, consumers that read from followers, any error. And one fetch every FULL_EVERY seconds, which
tells the trackers that a follower is still there for the partitions that rest, and tells the follower where
logs begin.

tests/broker/apis/test_replica_fetch_fast_path.py holds both paths against each other;
benchmarks/cluster_produce.py is what it is for.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from millstream.broker.apis.fetch_sessions import Cached, Key, Session
from millstream.broker.apis.parked_fetch import ParkedFetch
from millstream.broker.network.file_range import FileRange, not_in_memory, release
from millstream.broker.replication.replica_reads import AGREED, admit
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.fetch import FetchPartition, FetchRequest, FetchResult, pack_fetch_response, read_fetch
from millstream.wire.primitives import BAD_FRAME, INT32
from millstream.wire.varint import uvarint

if TYPE_CHECKING:
    import asyncio

    from millstream.broker.apis.fetch import FetchHandler
    from millstream.broker.network.connection import Connection
    from millstream.broker.partition import Partition
    from millstream.broker.replication.replica_tracker import ReplicaTracker

API_KEY = 1
FULL_EVERY = 0.5  # seconds
FULL_IN_LAG = 8  # full fetches at least, within replica.lag.time.max.ms
# Up to this size one read and one send cost less than sendfile between two sends, for the follower as well.
COPY_BELOW = 128 * 1024
# Behind the topics: nothing forgotten, no rack, one tagged field with the follower's id and broker epoch.
_END_SIZE = 18
_END_BEGINS = b"\x01\x01\x01\x01\x0d"
_RESPONSE_END = b"\0\0\0"  # tags of partition, topic and response

# Size, correlation id, no tags, throttle time, error, session id.
_HEAD = struct.Struct(">iiBihi")
# High watermark, last stable and log start offset, aborted transactions (null), preferred replica.
_NUMBERS = struct.Struct(">qqqBi")

Stated = list[tuple["Followed", FetchPartition]]
Results = list[tuple["Followed", FetchResult]]


class Followed:
    """One partition of a follower's session. Stands among the partition's waiting fetches for good."""

    __slots__ = ("cached", "head", "key", "partition", "session", "tracker")

    def __init__(
        self,
        session: ReplicaFetchFastPath,
        key: Key,
        cached: Cached,
        partition: Partition,
        tracker: ReplicaTracker,
    ) -> None:
        self.session = session
        self.key = key
        self.cached = cached
        self.partition = partition
        self.tracker = tracker
        # Of a response with no other partition: one topic, one partition, no error.
        self.head = b"\x02" + key[0] + b"\x02" + struct.pack(">ih", key[1], 0)

    def wake(self) -> None:
        """There is something new in the log, or the role has changed."""
        self.session.wake(self)


class ReplicaFetchFastPath:
    """The session of one follower, on the connection that it fetches by."""

    __slots__ = (
        "_active",
        "_begins",
        "_body_at",
        "_changes",
        "_connection",
        "_correlation_id",
        "_deadline",
        "_end",
        "_followed",
        "_full_at",
        "_full_every",
        "_handler",
        "_key_and_version",
        "_none",
        "_one",
        "_request",
        "_session",
        "_timer",
        "_version",
        "_waking",
        "api",
        "done",
        "waiting",
    )

    def __init__(
        self,
        handler: FetchHandler,
        connection: Connection,
        request: FetchRequest,
        session: Session,
        frame: memoryview,
        body_at: int,
        version: int,
    ) -> None:
        self._handler = handler
        self._connection = connection
        self._session = session
        self._changes = session.changes
        self._version = version
        self._request = request._replace(session_id=session.id, topics=[], forgotten=[])
        self.api = handler.api
        self._key_and_version = API_KEY << 16 | version
        self._body_at = body_at
        epoch_at = body_at + 17  # behind max wait, min bytes, max bytes, isolation level, session id
        self._begins = bytes(frame[8 : epoch_at - 4]) + INT32.pack(session.id)
        self._end = bytes(frame[-_END_SIZE:])
        begin = f">ii{len(self._begins)}si"
        self._none = struct.Struct(f"{begin}B{_END_SIZE}s")
        # One topic with one partition: index, leader epoch, offset, last epoch, log start, max bytes, tags.
        self._one = struct.Struct(f"{begin}B16sBiiqiqiBB{_END_SIZE}s")
        self._followed: dict[Key, Followed] = {}
        self._active: dict[Followed, None] = {}
        self._full_at = connection.loop.time()
        self._full_every = FULL_EVERY
        self._correlation_id = 0
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._waking = False
        self.waiting = False
        self.done = False

    @property
    def session_id(self) -> int:
        return self._session.id

    # ------------------------------------------------------------------ learning

    @staticmethod
    def fits(handler: FetchHandler, request: FetchRequest, frame: memoryview) -> bool:
        """Whether a follower's request is one that it will repeat."""
        return (
            handler.quotas is None
            and request.max_wait_ms > 0
            and not request.forgotten
            and frame[-_END_SIZE : -_END_SIZE + len(_END_BEGINS)] == _END_BEGINS
            and frame[-1] == 0
        )

    def join(self) -> bool:
        """Register with all partitions of the session; false if one of them needs the full path."""
        partitions = self._handler.partitions.by_id
        for key, cached in self._session.partitions.items():
            partition = partitions.get(key[0], {}).get(key[1])
            tracker = None if partition is None else partition.tracker
            if partition is None or tracker is None or not self._serves(partition, tracker, cached):
                return False
            self._followed[key] = Followed(self, key, cached, partition, tracker)
            assert partition.replication is not None
            self._full_every = min(FULL_EVERY, partition.replication.max_lag / FULL_IN_LAG)
        for followed in self._followed.values():
            followed.partition.park(followed, True)
            self._active[followed] = None
        return True

    def _serves(self, partition: Partition, tracker: ReplicaTracker, cached: Cached) -> bool:
        replication = partition.replication
        return (
            partition.leads
            and cached.want.leader_epoch == partition.leader_epoch
            and self._request.replica_id in tracker.followers
            and replication is not None
            and not replication.by_rack
        )

    def still_fits(self, session: Session) -> bool:
        """After a fetch on the full path: whether it was for the same partitions."""
        if self.done or session is not self._session or len(session.partitions) != len(self._followed):
            return False
        for key, cached in session.partitions.items():
            followed = self._followed.get(key)
            if followed is None or followed.cached is not cached or not self._holds(followed):
                return False
        self._full_at = self._connection.loop.time()
        return True

    def _holds(self, followed: Followed) -> bool:
        """Whether what was learned of this partition is still so."""
        partition = followed.partition
        return (
            partition.tracker is followed.tracker
            and partition.leads
            and partition.leader_epoch == followed.cached.want.leader_epoch
            and not partition.log.closed
        )

    def leave(self) -> None:
        """The connection, or what was learned of it, is gone."""
        self.done = True
        self.waiting = False
        self._handler.parked.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for followed in self._followed.values():
            followed.partition.unpark(followed)
        self._active.clear()

    cancel = leave  # for the connection, which it is what is pending of

    # ------------------------------------------------------------------ requests

    def try_handle(self, connection: Connection, view: memoryview, start: int, end: int) -> bool:
        now = connection.loop.time()
        session = self._session
        if session.changes != self._changes:
            # A fetch that taught nothing (one in slices, say) added partitions to the session or took some
            # out. What is stated of those has to reach the session.
            self.leave()
            connection.fast_path = None
            return False
        stated: Stated = []
        if end - start == self._one.size:
            (
                key_and_version, correlation_id, begins, epoch, topics, topic, partitions, index,
                leader_epoch, offset, last_epoch, log_start, max_bytes, _, _, ends,
            ) = self._one.unpack_from(view, start)  # fmt: skip
            followed = self._followed.get((topic, index))
            if topics != 2 or partitions != 2 or followed is None:
                return False
            want = FetchPartition(index, leader_epoch, offset, last_epoch, log_start, max_bytes)
            stated.append((followed, want))
        else:
            if end - start < self._none.size:
                return False
            key_and_version, correlation_id, begins, epoch, topics, _ = self._none.unpack_from(view, start)
            ends = bytes(view[end - _END_SIZE : end])
            if topics != 1 and not self._read(view[start:end], stated):
                return False
        handler = self._handler
        if (
            begins != self._begins
            or ends != self._end
            or key_and_version != self._key_and_version
            or epoch != session.epoch
            or session not in handler.sessions
            or now - self._full_at > self._full_every
            or len(handler.parked) >= handler.max_parked
            or not self._agree(stated)
        ):
            return False
        handler.sessions.move_on(session, now)
        for followed, want in stated:
            followed.cached.want = want
            self._active[followed] = None
        self._correlation_id = correlation_id
        if not self._try_answer(patient=True):
            self._wait(now)
        return True

    def _read(self, frame: memoryview, stated: Stated) -> bool:
        """Several positions, by the decoder of the full path."""
        try:
            request = read_fetch(frame, self._body_at, self._version)
        except BAD_FRAME:
            return False
        for topic, partitions in request.topics:
            for want in partitions:
                followed = self._followed.get((topic, want.partition))
                if followed is None:
                    return False
                stated.append((followed, want))
        return not request.forgotten and not request.rack

    def _agree(self, stated: Stated) -> bool:
        """Record how far the follower is; false if something is to be said about a partition. What was
        recorded before that is recorded again on the full path."""
        request = self._request
        for followed, want in stated:
            partition = followed.partition
            if (
                want.leader_epoch != followed.cached.want.leader_epoch
                or not self._holds(followed)
                or partition.replication is None
                or partition.replication.by_rack
                or partition.replication.send_limiter(partition, request.replica_id) is not None
                or admit(partition, request.replica_id, request.replica_epoch, want) is not AGREED
            ):
                return False
        return True

    # ------------------------------------------------------------------ waiting

    def _wait(self, now: float) -> None:
        self._deadline = now + self._request.max_wait_ms / 1000
        if self._timer is None:
            self._timer = self._connection.loop.call_later(self._deadline - now, self._expire)
        self.waiting = True
        self._handler.parked.add(self)
        self._connection.park(self)

    def wake(self, followed: Followed) -> None:
        if self._connection.fast_path is not self and not self.waiting:
            self.leave()  # rules of access have changed, and nobody fetches here any more
            return
        self._active[followed] = None
        if self.waiting and not self._waking:
            self._waking = True
            self._connection.at_end_of_turn(self._woken)

    def _woken(self) -> None:
        self._waking = False
        if self.waiting:
            if self._connection.fast_path is not self:
                self._leave_to_full_path(patient=True)
            elif self._try_answer(patient=True):
                self._answered()

    def _expire(self) -> None:
        """One timer for all fetches of the session: few of them wait so long."""
        self._timer = None
        if not self.waiting:
            return
        now = self._connection.loop.time()
        if now < self._deadline:
            self._timer = self._connection.loop.call_later(self._deadline - now, self._expire)
        else:
            self.hurry()

    def hurry(self) -> None:
        """The time is over, or the follower has more to ask for: it gets its response at once."""
        if self.waiting:
            if self._connection.fast_path is not self:
                self._leave_to_full_path(patient=False)
            elif self._try_answer(patient=False):
                self._answered()

    def _answered(self) -> None:
        self.waiting = False
        self._handler.parked.discard(self)
        # Otherwise a cold range is still being read, which resumes the connection when it is done.
        if self._connection.pending is self:
            self._connection.resume()

    def _leave_to_full_path(self, patient: bool) -> None:
        """Something is to be said that only the full path says. The session has moved on already."""
        connection, handler = self._connection, self._handler
        self.leave()
        if connection.fast_path is self:
            connection.fast_path = None
        fetch = handler.new_fetch(connection, self._request, self._version, self._correlation_id)
        fetch.session, fetch.full = self._session, False
        if not fetch.try_answer(patient):
            ParkedFetch(handler, fetch)
        elif connection.pending is self:
            connection.resume()

    # ------------------------------------------------------------------ answers

    def _try_answer(self, patient: bool) -> bool:
        """Answer if there is enough. True also if the full path has taken over."""
        request, handler = self._request, self._handler
        left = min(request.max_bytes, handler.max_bytes)
        enough = max(min(request.min_bytes, left), 1)
        found = 0
        results: Results = []
        resting: list[Followed] = []
        for followed in list(self._active):
            log, want = followed.partition.log, followed.cached.want
            try:
                if not self._holds(followed):
                    raise KafkaError(ErrorCode.not_leader_or_follower)
                if want.offset >= log.end_offset:
                    resting.append(followed)
                    continue
                segment, position, size, _ = log.read(
                    want.offset, min(left, want.max_bytes), "end", found == 0
                )
            except (KafkaError, OSError):
                release(result.source for _, result in results)
                self._leave_to_full_path(patient)
                return True
            result = FetchResult(
                want.partition, 0, log.high_watermark, log.last_stable_offset, log.start_offset
            )
            results.append((followed, result))
            if segment is not None:
                newest = segment is log.active
                result.source = FileRange(segment, position, size, newest)
                result.size = size
                left -= size
                found += size
                if not newest:  # waiting brings no more of this segment
                    enough = 1
        if patient and found < enough:
            release(result.source for _, result in results)
            return False
        for followed in resting:
            self._look_at_resting(followed, results)
        self._answer(results)
        return True

    def _look_at_resting(self, followed: Followed, results: Results) -> None:
        """The follower has everything. Once it knows that all of it is committed, it has nothing to hear of
        this partition until the next append."""
        cached, log = followed.cached, followed.partition.log
        if log.high_watermark == log.end_offset == cached.high_watermark:
            del self._active[followed]
        result = FetchResult(
            cached.want.partition, 0, log.high_watermark, log.last_stable_offset, log.start_offset
        )
        results.append((followed, result))

    def _answer(self, results: Results) -> None:
        """As `Fetch._answer` does it: what has not changed is left out."""
        changed: Results = []
        session = self._session
        for followed, result in results:
            cached = followed.cached
            if (
                result.size
                or result.high_watermark != cached.high_watermark
                or result.last_stable != cached.last_stable
                or result.log_start != cached.log_start
            ):
                changed.append((followed, result))
                cached.high_watermark = result.high_watermark
                cached.last_stable = result.last_stable
                cached.log_start = result.log_start
        if len(changed) == 1 and changed[0][1].size:
            followed, result = changed[0]
            if len(session.partitions) > 1:
                session.to_back([followed.key])
            self._answer_one(followed, result)
            return
        session.to_back([followed.key for followed, result in changed if result.size])
        topics: dict[bytes, list[FetchResult]] = {}
        for followed, result in changed:
            topics.setdefault(followed.key[0], []).append(result)
        packed = pack_fetch_response(self._correlation_id, self._version, 0, session.id, list(topics.items()))
        self._handler.send_packed(self._connection, packed)

    def _answer_one(self, followed: Followed, result: FetchResult) -> None:
        """Nearly every response: records of one partition."""
        size = result.size
        source = result.source
        assert isinstance(source, FileRange)
        length = uvarint(size + 1)
        head = _HEAD.pack(
            _HEAD.size - 4 + len(followed.head) + _NUMBERS.size + len(length) + size + len(_RESPONSE_END),
            self._correlation_id,
            0,
            0,
            0,
            self._session.id,
        )
        numbers = _NUMBERS.pack(result.high_watermark, result.last_stable, result.log_start, 0, -1)
        head = b"".join((head, followed.head, numbers, length))
        cold = [] if source.newest or not not_in_memory(source) else [source]
        if size < COPY_BELOW and not cold:
            source.release()
            records = source.segment.read(source.position, size)
            self._connection.send(b"".join((head, records, _RESPONSE_END)))
        else:
            self._handler.send(self._connection, [head, source, _RESPONSE_END], cold)
