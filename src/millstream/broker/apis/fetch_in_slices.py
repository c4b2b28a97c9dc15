"""Fetch of very many partitions: decoded and packed by a thread, read in slices, so that nobody waits for it.

The answers are those of `fetch.Fetch`, whose methods do the work, some partitions at a time. Records may
arrive in a partition that was looked at in an earlier slice. So a fetch that would wait for records registers
with its partitions before it reads them, and reads once more if one of them had news meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from millstream.broker.network.file_range import FileRange, Part, join_parts, release
from millstream.broker.network.slices import ELEMENTS_PER_SLICE, Element, Slices, run_slices
from millstream.wire.errors import KafkaError
from millstream.wire.fetch import MAX_ELEMENTS, FetchRequest, pack_fetch_response, read_fetch
from millstream.wire.primitives import BAD_FRAME

if TYPE_CHECKING:
    from millstream.broker.apis.fetch import FetchHandler
    from millstream.broker.apis.fetch_read import Fetch, Result, Topics
    from millstream.broker.apis.fetch_sessions import Session
    from millstream.broker.network.buffer_budget import KeptFrame
    from millstream.broker.network.connection import Connection
    from millstream.broker.partition import Partition

logger = logging.getLogger("millstream.fetch")

Work = Callable[[], Coroutine[Any, Any, None]]
STEP = ELEMENTS_PER_SLICE // 8  # partitions between two looks at the clock


class SlicedFetch:
    """One such request, from its frame to its response. Partitions see it as they see a `ParkedFetch`."""

    __slots__ = (
        "_connection",
        "_handler",
        "_hurried",
        "_joined",
        "_results",
        "_task",
        "_unsent",
        "_watched",
        "_woken",
    )

    def __init__(self, handler: FetchHandler, connection: Connection) -> None:
        self._handler = handler
        self._connection = connection
        self._woken = asyncio.Event()
        self._hurried = False
        self._watched: list[Partition] = []
        self._results: list[Result] = []
        self._unsent: deque[object] = deque()  # parts of the response, as they were packed
        self._joined: list[Part] = []  # and as they will be sent
        self._task: asyncio.Task[None] | None = None

    def serve(self, fetch: Fetch) -> None:
        self._start(partial(self._serve, fetch))
        self._connection.park(self)

    def read_and_serve(self, frame: memoryview, start: int, version: int, correlation_id: int) -> None:
        kept = self._connection.keep_frame(frame)
        self._start(partial(self._read_and_serve, kept, start, version, correlation_id))
        self._connection.park(None)

    def wake(self) -> None:
        """A partition has new records (or a new state)."""
        self._woken.set()

    def hurry(self) -> None:
        """The client has sent something more: a follower gets its response at once (`ParkedFetch.hurry`)."""
        self._hurried = True
        self._woken.set()

    def cancel(self) -> None:
        """The client has left."""
        if self._task is not None:
            self._task.cancel()

    def _start(self, work: Work) -> None:
        task = self._task = self._connection.loop.create_task(self._run(work))
        self._handler.tasks.add(task)
        task.add_done_callback(self._handler.tasks.discard)

    async def _run(self, work: Work) -> None:
        try:
            await work()
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("fetch request from %s failed", self._connection.peer)
            self._connection.close("the request failed with an unexpected error, see above")
        finally:
            self._stop_watching()
            self._release()

    # ------------------------------------------------------------------ the request

    async def _read_and_serve(self, kept: KeptFrame, start: int, version: int, correlation_id: int) -> None:
        handler, connection = self._handler, self._connection
        dispatcher = connection.dispatcher
        limit = max(MAX_ELEMENTS, 4 * len(handler.partitions))
        try:
            request = await dispatcher.in_thread(read_fetch, kept.frame, start, version, limit)
        except BAD_FRAME as error:
            dispatcher.malformed += 1
            connection.close(f"request cannot be served: {error}")
            return
        finally:
            kept.give_back()
        if connection.closed:
            return
        connection.park(self)
        if handler.quotas is not None:
            request = handler.limited(connection, connection.client_id.encode(), request)
        fetch = handler.new_fetch(connection, request, version, correlation_id)
        try:
            nothing = request._replace(topics=[], forgotten=[])
            session, fetch.full = handler.sessions.open(nothing, fetch.by_id, connection.loop.time())
        except KafkaError as error:
            refused = pack_fetch_response(correlation_id, version, error.code, 0, [])
            connection.send(b"".join(refused))  # type: ignore[arg-type]
            self._resume()
            return
        if session is not None:
            await run_slices(_update(session, request))
            if handler.sessions.end_if_empty(session):
                session, fetch.full = None, True
        fetch.session = session
        await self._serve(fetch)

    # ------------------------------------------------------------------ records

    async def _serve(self, fetch: Fetch) -> None:
        handler, connection = self._handler, self._connection
        deadline = connection.loop.time() + fetch.request.max_wait_ms / 1000
        patient = fetch.request.max_wait_ms > 0
        if patient and len(handler.parked) >= handler.max_parked:
            logger.warning(
                "%d fetches are waiting already, %s is answered at once",
                len(handler.parked),
                connection.peer,
            )
            patient = False
        if patient:
            handler.parked.add(self)
            await run_slices(self._watch(fetch))
        while True:
            self._woken.clear()
            if self._hurried and fetch.request.replica_id >= 0:
                patient = False
            enough = await run_slices(self._read(fetch))
            if not patient or enough:
                break
            self._release()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._woken.wait()
            except TimeoutError:
                patient = False
        self._stop_watching()
        await self._answer(fetch)
        self._resume()

    def _watch(self, fetch: Fetch) -> Slices[None]:
        wanted = list(fetch.wanted())
        for step in _steps(wanted):
            for partition in fetch.hosted(step):
                partition.park(self, fetch.request.replica_id >= 0)
                self._watched.append(partition)
            for _ in step:
                yield

    def _read(self, fetch: Fetch) -> Slices[bool]:
        """Read everything; whether that is enough for an answer."""
        fetch.behind = any_failed = False
        found = 0
        max_bytes = min(fetch.request.max_bytes, self._handler.max_bytes)
        for step in _steps(list(fetch.wanted())):
            results, found, failed = fetch.read_some(step, max_bytes - found, found)
            self._results += results
            any_failed = any_failed or failed
            for _ in step:
                yield
        return not self._results or any_failed or fetch.is_enough(found)

    def _stop_watching(self) -> None:
        self._handler.parked.discard(self)
        for partition in self._watched:
            partition.unpark(self)
        self._watched = []

    # ------------------------------------------------------------------ the response

    async def _answer(self, fetch: Fetch) -> None:
        topics: Topics = []
        await run_slices(self._group(fetch, topics))
        session_id = fetch.session.id if fetch.session is not None else 0
        parts = await self._connection.dispatcher.in_thread(
            pack_fetch_response,
            fetch.correlation_id,
            fetch.version,
            0,
            session_id,
            topics,
            fetch.endpoints(topics),
        )
        self._unsent.extend(parts)
        self._results = []
        cold = await run_slices(self._join())
        joined, self._joined = self._joined, []
        fetch.send(joined, cold)

    def _group(self, fetch: Fetch, topics: Topics) -> Slices[None]:
        for step in _steps(self._results):
            fetch.group_some(step, topics)
            for _ in step:
                yield

    def _join(self) -> Slices[list[FileRange]]:
        all_cold: list[FileRange] = []
        while self._unsent:
            step = [self._unsent.popleft() for _ in range(min(STEP, len(self._unsent)))]
            parts, cold = join_parts(step)
            self._joined += parts
            all_cold += cold
            for _ in step:
                yield
        return all_cold

    def _resume(self) -> None:
        # Otherwise a cold range is still being read, which resumes the connection when it is done.
        if self._connection.pending is self:
            self._connection.resume()

    def _release(self) -> None:
        """Give back the segments of what was read and is not sent."""
        for _, result, _ in self._results:
            if result.size:
                result.source.release()  # type: ignore[attr-defined]
        release(self._unsent)
        release(self._joined)
        self._results = []
        self._unsent.clear()
        self._joined = []


def _update(session: Session, request: FetchRequest) -> Slices[None]:
    for topic, wanted in request.topics:
        yield
        for step in _steps(wanted):
            session.update([(topic, step)], ())
            for _ in step:
                yield
    for topic, indexes in request.forgotten:
        yield
        for numbers in _steps(indexes):
            session.update((), [(topic, numbers)])
            for _ in numbers:
                yield


def _steps(elements: Iterable[Element]) -> Iterator[list[Element]]:
    remaining = iter(elements)
    while step := list(islice(remaining, STEP)):
        yield step
