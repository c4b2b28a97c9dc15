"""Produce requests whose partitions are not all committed yet.

Each partition reports when its high watermark has passed what was written, or that it never will under this
leader epoch. The response goes out with the last report, or when the request's time is over: then those that
are missing are REQUEST_TIMED_OUT. What was written stays written either way.

A commit takes a round trip to the followers (or an fsync), and a producer does not wait for it before it
sends on. What repeats an earlier request of the connection (`produce_fast_path`) is therefore written at
once, behind what waits already: `ProduceQueue`. One fetch of a follower then has all of it. Everything else
on the connection waits until the queue is empty, and responses leave in the order of their requests.
"""

from __future__ import annotations

import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from millstream.wire.errors import ErrorCode
from millstream.wire.produce import PartitionResult, RequestTemplate, pack_produce_response

if TYPE_CHECKING:
    import asyncio

    from millstream.broker.network.connection import Connection
    from millstream.broker.partition import Partition

MAX_QUEUED = 64  # requests of one connection that wait for their commit

Answer = list[tuple[bytes, list[PartitionResult]]]
Uncommitted = tuple["Partition", int, int, PartitionResult]  # its end offset, its topic's number


class PendingProduce:
    """A request of which these wait; the connection is parked until the response has left."""

    __slots__ = (
        "_answer",
        "_connection",
        "_correlation_id",
        "_done",
        "_left",
        "_timer",
        "_version",
    )

    def __init__(
        self,
        connection: Connection,
        version: int,
        correlation_id: int,
        timeout_ms: int,
        answer: Answer,
        waiting: list[Uncommitted],
    ) -> None:
        self._connection = connection
        self._version = version
        self._correlation_id = correlation_id
        self._answer = answer
        self._left = {(topic, result.partition) for _, _, topic, result in waiting}
        self._done = False
        self._timer = connection.loop.call_later(max(timeout_ms, 0) / 1000, self._timed_out)
        connection.park(self)
        for partition, offset, topic, result in waiting:
            notify = partial(self._committed, (topic, result.partition))
            partition.ack_waiters.append((offset, partition.leader_epoch, notify))

    def _committed(self, key: tuple[int, int], error: ErrorCode) -> None:
        """A partition, by the index of its topic in the response and its own, is committed or has failed."""
        if self._done or key not in self._left:
            return
        self._left.discard(key)
        if error:
            self._fail(key, error)
        if not self._left:
            self._finish()

    def _timed_out(self) -> None:
        for key in self._left:
            self._fail(key, ErrorCode.request_timed_out)
        self._finish()

    def _fail(self, key: tuple[int, int], error: ErrorCode) -> None:
        topic, index = key
        results = self._answer[topic][1]
        for position, result in enumerate(results):
            if result.partition == index:
                results[position] = PartitionResult(index, error)

    def _finish(self) -> None:
        if self._done:
            return
        self.cancel()
        self._connection.send(pack_produce_response(self._correlation_id, self._version, self._answer))
        self._connection.resume()

    def cancel(self) -> None:
        """The client has left: the write stands, nobody is waiting for the response."""
        self._done = True
        self._timer.cancel()


class _Queued:
    """One request of a queue."""

    __slots__ = (
        "append_time",
        "base_offset",
        "correlation_id",
        "deadline",
        "log_start",
        "queue",
        "response",
        "template",
    )

    template: RequestTemplate
    correlation_id: int
    base_offset: int
    append_time: int
    log_start: int
    deadline: float

    def __init__(self, queue: ProduceQueue, response: bytes | None = None) -> None:
        self.queue = queue
        self.response = response

    def committed(self, error: ErrorCode) -> None:
        """The partition is committed as far as this request wrote, or has failed."""
        if self.response is None:
            if error:
                self.fail(error)
            else:
                self.response = self.template.pack(
                    self.correlation_id, self.base_offset, self.append_time, self.log_start
                )
            self.queue.send_ready()

    def fail(self, error: ErrorCode) -> None:
        template = self.template
        answer = [(template.topic, [PartitionResult(template.index, error)])]
        self.response = pack_produce_response(self.correlation_id, template.version, answer)


class ProduceQueue:
    """The requests of one connection that were written by the fast path and wait, in order.

    The fast path sees it in the place of the connection, once something waits.
    """

    __slots__ = ("_connection", "_due", "_entries", "_taking", "_timer", "takes_more")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._entries: deque[_Queued] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf  # when it fires
        self._taking = False
        # Whether the next frame may be looked at before the last one is answered.
        self.takes_more = connection.may_pipeline
        connection.park(self)

    def wait(
        self,
        template: RequestTemplate,
        correlation_id: int,
        partition: Partition,
        base_offset: int,
        append_time: int,
    ) -> None:
        """Answer when the high watermark has reached the end of the log as it is now."""
        queued = _Queued(self)
        log = partition.log
        queued.template, queued.correlation_id = template, correlation_id
        queued.base_offset, queued.append_time, queued.log_start = base_offset, append_time, log.start_offset
        now = self._connection.loop.time()
        queued.deadline = now + max(template.timeout_ms, 0) / 1000
        self._entries.append(queued)
        if queued.deadline < self._due:
            self._wake_at(queued.deadline, now)
        partition.ack_waiters.append((log.end_offset, partition.leader_epoch, queued.committed))

    def send(self, response: bytes) -> None:
        """A request that was answered at once, behind others that wait."""
        self._entries.append(_Queued(self, response))

    def take(self, view: memoryview, start: int, end: int) -> bool:
        """Write the frame behind the others if it repeats an earlier one; else it has to wait, as has all
        that follows it."""
        connection = self._connection
        if self.takes_more and len(self._entries) < MAX_QUEUED and connection.may_pipeline:
            self._taking = True
            try:
                if connection.dispatcher.dispatch_repeated(connection, self, view, start, end):
                    return True
            finally:
                self._taking = False
                self.send_ready()
        self.takes_more = False
        return False

    def send_ready(self) -> None:
        """Answer the requests at the head of the queue that have their responses."""
        entries, connection = self._entries, self._connection
        if self._taking:
            return
        send = connection.send_with_others if connection.may_pipeline else connection.send
        while entries and (response := entries[0].response) is not None:
            entries.popleft()
            send(response)
        if not entries and connection.pending is self:
            self.cancel()
            connection.resume()

    def _wake_at(self, due: float, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = self._connection.loop.call_later(due - now, self._look_for_timeouts)

    def _look_for_timeouts(self) -> None:
        """One timer for the whole queue: requests come and go much faster than they time out."""
        self._timer, self._due = None, math.inf
        now = self._connection.loop.time()
        waiting = [queued for queued in self._entries if queued.response is None]
        for queued in waiting:
            if queued.deadline <= now:
                queued.fail(ErrorCode.request_timed_out)
        left = [queued.deadline for queued in waiting if queued.response is None]
        if left:
            self._wake_at(min(left), now)
        self.send_ready()

    def cancel(self) -> None:
        """Nobody waits any more, or the client has left: the writes stand."""
        self._entries.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
