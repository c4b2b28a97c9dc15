"""A fetch that waits for records, until `max_wait` is over or its client leaves.

It stands in the lists of its partitions. An append wakes it; it then reads again, and goes on waiting if that
is still too little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.broker.apis.fetch import FetchHandler
    from millstream.broker.apis.fetch_read import Fetch


class ParkedFetch:
    """Also the connection's pending request: it is cancelled when the client leaves."""

    __slots__ = ("_fetch", "_handler", "_partitions", "_timer", "done")

    def __init__(self, handler: FetchHandler, fetch: Fetch) -> None:
        self._handler = handler
        self._fetch = fetch
        self.done = False
        self._partitions = list(fetch.hosted())
        of_replica = fetch.request.replica_id >= 0
        for partition in self._partitions:
            partition.park(self, of_replica)
        handler.parked.add(self)
        connection = fetch.connection
        connection.park(self)
        self._timer = connection.loop.call_later(fetch.request.max_wait_ms / 1000, self._expire)

    def wake(self) -> None:
        """A partition has new records (or a new state)."""
        if not self.done and self._fetch.try_answer(patient=True):
            self._leave()

    def _expire(self) -> None:
        if not self.done:
            self._fetch.try_answer(patient=False)
            self._leave()

    def _leave(self) -> None:
        self.cancel()
        connection = self._fetch.connection
        # Otherwise a cold range is still being read, which resumes the connection when it is done.
        if connection.pending is self:
            connection.resume()

    def cancel(self) -> None:
        """Stop waiting; also when the client has left."""
        self.done = True
        self._timer.cancel()
        self._handler.parked.discard(self)
        for partition in self._partitions:
            partition.unpark(self)

    def hurry(self) -> None:
        """The client has sent something more. A follower does so when there is more to ask for: it gets its
        response at once."""
        if not self.done and self._fetch.request.replica_id >= 0:
            self._expire()
