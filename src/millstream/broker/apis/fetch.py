"""Fetch 4-18: full and incremental, with long poll.

     4  isolation level, last stable offset, aborted transactions, record batches of format v2 (KIP-98)
     5  log start offset, of the follower and in the response (KIP-107)
     6  the client knows KAFKA_STORAGE_ERROR (KIP-112)
     7  incremental fetch sessions (KIP-227)
     8  the client expects to be throttled after the response (KIP-219)
     9  current leader epoch, against reading from a deposed leader (KIP-320)
    10  zstd (KIP-110)
    11  the consumer's rack, and a preferred read replica in the response (KIP-392)
    12  flexible; last fetched epoch, answered with the diverging epoch (KIP-595)
    13  topic ids instead of names (KIP-516)
    14  the follower knows OFFSET_MOVED_TO_TIERED_STORAGE (KIP-405)
    15  the follower's id and epoch in tagged fields (KIP-903)
    16  endpoints of new leaders in tagged fields (KIP-951)
    17  directory id of a follower that fetches the metadata log (KIP-853)
    18  the follower's high watermark in tagged fields (KIP-1166)

A fetch collects a `FileRange` of a segment per partition (no record is read) and answers when `min_bytes` are
there, when something is wrong, or when `max_wait` is over. Until then it is parked on its partitions, and an
append wakes it (`parked_fetch`). What it may read is decided in `fetch_read`. Records go from the file to
the socket by sendfile; a range that is not in the page cache is first read by a helper thread, so that a
consumer of old data does not stop the loop. A request that repeats an earlier one is served by
`fetch_fast_path`, one of very many partitions by `fetch_in_slices`.

A follower's fetch is served here too, and mostly by `replica_fetch_fast_path`. It reads up to the end of the
log, after `replication/replica_reads` has found that both logs agree so far, and what it asks for says what
the follower has.

A tool that compares replicas says that it is replica -2, and may read from a follower what is committed.
A consumer may be sent to a follower of its rack (`replication/replica_selector`), and a follower serves
consumers up to its own high watermark (KIP-392).

Left out: tiered storage.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.broker.apis.fetch_fast_path import FetchFastPath, SessionFetchFastPath
from millstream.broker.apis.fetch_in_slices import SlicedFetch
from millstream.broker.apis.fetch_read import Fetch
from millstream.broker.apis.fetch_sessions import FINAL_EPOCH, FetchSessions
from millstream.broker.apis.leaders import Leaders
from millstream.broker.apis.parked_fetch import ParkedFetch
from millstream.broker.apis.produce_fast_path import ProduceFastPath
from millstream.broker.apis.replica_fetch_fast_path import ReplicaFetchFastPath
from millstream.broker.network.file_range import (
    COPY_BELOW,
    FileRange,
    Part,
    join_parts,
    read_through,
    release,
)
from millstream.cluster.image import Image
from millstream.wire.errors import KafkaError
from millstream.wire.fetch import (
    FIRST_FLEXIBLE,
    FIRST_WITHOUT_REPLICA,
    FetchRequest,
    pack_fetch_response,
    read_fetch,
)
from millstream.wire.messages import body_start

if TYPE_CHECKING:
    from millstream.broker.authorizer import Authorizer
    from millstream.broker.network.connection import Connection
    from millstream.broker.network.dispatch import Api
    from millstream.broker.partitions import Partitions
    from millstream.broker.quotas import Quotas

logger = logging.getLogger("millstream.fetch")

# A longer frame, in bytes, and a session of more partitions than this are served in slices.
LARGE_FRAME = 16 * 1024
MANY_PARTITIONS = 512


class FetchHandler:
    """Serves Fetch on the full path: any version, any number of partitions, sessions."""

    api: Api  # set before the first request comes
    authorizer: Authorizer | None = None
    topic_name: Callable[[bytes], str | None]  # of its id; set with `authorizer`
    quotas: Quotas | None = None

    def __init__(
        self, partitions: Partitions, sessions: FetchSessions, max_bytes: int, max_parked: int
    ) -> None:
        self.partitions = partitions
        self.leaders = Leaders(Image)  # the broker gives it its own image
        self.sessions = sessions
        self.max_bytes = max_bytes
        self.max_parked = max_parked
        self.parked: set[ParkedFetch | SlicedFetch | ReplicaFetchFastPath] = set()
        self.failed = 0
        self.cold_reads = 0
        self.tasks: set[asyncio.Task[None]] = set()

    def handle(
        self,
        connection: Connection,
        frame: memoryview,
        client_id_size: int,
        version: int,
        correlation_id: int,
    ) -> None:
        start = body_start(frame, client_id_size, version >= FIRST_FLEXIBLE)
        if len(frame) > LARGE_FRAME:
            SlicedFetch(self, connection).read_and_serve(frame, start, version, correlation_id)
            return
        request = read_fetch(frame, start, version)
        if self.quotas is not None:
            request = self.limited(connection, bytes(frame[10 : 10 + max(client_id_size, 0)]), request)
        fetch = self.new_fetch(connection, request, version, correlation_id)
        try:
            session, fetch.full = self.sessions.open(request, fetch.by_id, connection.loop.time())
        except KafkaError as error:
            refused = pack_fetch_response(correlation_id, version, error.code, 0, [])
            connection.send(b"".join(refused))  # type: ignore[arg-type]
            return
        fetch.session = session
        if session is not None and len(session.partitions) > MANY_PARTITIONS:
            SlicedFetch(self, connection).serve(fetch)
            return
        if fetch.try_answer(patient=request.max_wait_ms > 0):
            self._learn(fetch, frame, start)
            return
        if len(self.parked) >= self.max_parked:
            logger.warning(
                "%d fetches are waiting already, %s is answered at once", len(self.parked), connection.peer
            )
            fetch.try_answer(patient=False)
            return
        ParkedFetch(self, fetch)
        if request.replica_id >= 0:
            self._learn_follower(fetch, frame, start)

    def limited(self, connection: Connection, client_id: bytes, request: FetchRequest) -> FetchRequest:
        """Of one fetch no more than its quota allows in all windows: else it could never be served."""
        limit = None if self.quotas is None else self.quotas.fetch_limit(connection, client_id)
        return request if limit is None else request._replace(max_bytes=min(request.max_bytes, limit))

    def new_fetch(
        self, connection: Connection, request: FetchRequest, version: int, correlation_id: int
    ) -> Fetch:
        return Fetch(self, connection, request, version, correlation_id)

    def _learn(self, fetch: Fetch, frame: memoryview, body_at: int) -> None:
        """The next request of this connection will probably repeat this one."""
        connection, request, session = fetch.connection, fetch.request, fetch.session
        if request.replica_id >= 0:
            self._learn_follower(fetch, frame, body_at)
            return
        if (
            fetch.found < COPY_BELOW
            or not FetchFastPath.fits(request, frame, fetch.version)
            or isinstance(connection.fast_path, ProduceFastPath)
        ):
            return
        for partition in fetch.hosted():
            if session is None:
                if request.session_epoch == FINAL_EPOCH and not request.session_id:
                    connection.fast_path = FetchFastPath(self, request, frame, fetch.version, partition)
            elif not fetch.full and len(session.partitions) == 1:
                connection.fast_path = SessionFetchFastPath(
                    self, request, frame, fetch.version, partition, session, body_at
                )

    def _learn_follower(self, fetch: Fetch, frame: memoryview, body_at: int) -> None:
        connection, session = fetch.connection, fetch.session
        known = connection.fast_path
        if isinstance(known, ReplicaFetchFastPath):
            if session is not None and known.still_fits(session):
                return
            known.leave()
            connection.fast_path = None
        if (
            session is not None
            and not connection.closed
            and fetch.version >= FIRST_WITHOUT_REPLICA
            and ReplicaFetchFastPath.fits(self, fetch.request, frame)
        ):
            learned = ReplicaFetchFastPath(
                self, connection, fetch.request, session, frame, body_at, fetch.version
            )
            if learned.join():
                connection.fast_path = learned

    def send_packed(self, connection: Connection, packed: list[object]) -> None:
        """Send a response as `pack_fetch_response` returns it."""
        parts, cold = join_parts(packed)
        if len(parts) == 1 and not cold:
            connection.send(bytes(parts[0]))  # type: ignore[arg-type]
        else:
            self.send(connection, parts, cold)

    def send(self, connection: Connection, parts: list[Part], cold: list[FileRange]) -> None:
        """Send a response with file ranges in it, after a thread has read the cold ones into the page
        cache."""
        if not cold:
            connection.send_parts(parts)
            return
        self.cold_reads += len(cold)
        connection.park(None)

        async def read_then_send() -> None:
            try:
                await asyncio.get_running_loop().run_in_executor(None, read_through, cold)
            finally:
                if connection.closed:
                    release(parts)
                else:
                    connection.send_parts(parts)
                    connection.resume()

        task = connection.loop.create_task(read_then_send())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
