"""Produce to very many partitions: decoded and packed by a thread, written in slices, so that nobody waits.

Each slice is verified and written like a request of its own, because nothing may happen between the verdict
on a transactional batch and its append. The responses of the slices are one response.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from millstream.broker.apis.batch_opener import Opened, TopicBatches, may_be_opened
from millstream.broker.coordinators.transactions.verification import verdict_of
from millstream.broker.network.slices import ELEMENTS_PER_SLICE
from millstream.wire.primitives import BAD_FRAME
from millstream.wire.produce import (
    FIRST_WITH_TOPIC_ID,
    MAX_ELEMENTS,
    ProduceRequest,
    pack_produce_response,
    read_produce,
)

if TYPE_CHECKING:
    from millstream.broker.apis.pending_produce import Answer, Uncommitted
    from millstream.broker.apis.produce import ProduceHandler
    from millstream.broker.coordinators.transactions.coordinator import Verdicts
    from millstream.broker.coordinators.transactions.verification import Refused, Table
    from millstream.broker.network.buffer_budget import KeptFrame
    from millstream.broker.network.connection import Connection
    from millstream.wire.errors import ErrorCode

logger = logging.getLogger("millstream.produce")


def handle_in_slices(
    handler: ProduceHandler,
    connection: Connection,
    frame: memoryview,
    start: int,
    version: int,
    correlation_id: int,
) -> None:
    kept = connection.keep_frame(frame)

    async def serve() -> None:
        try:
            await _serve(handler, connection, kept, start, version, correlation_id)
        except Exception:
            logger.exception("produce request from %s failed", connection.peer)
            connection.close("the request failed with an unexpected error, see above")
        finally:
            kept.give_back()

    task = connection.loop.create_task(serve())
    handler.tasks.add(task)
    task.add_done_callback(handler.tasks.discard)
    connection.park(None)


async def _serve(
    handler: ProduceHandler,
    connection: Connection,
    kept: KeptFrame,
    start: int,
    version: int,
    correlation_id: int,
) -> None:
    """Runs to its end even if the client has left, as a smaller request would have, unless large batches have
    to be opened."""
    dispatcher = connection.dispatcher
    limit = max(MAX_ELEMENTS, 4 * len(handler.partitions))
    try:
        request = await dispatcher.in_thread(read_produce, kept.frame, start, version, limit)
    except BAD_FRAME as error:
        dispatcher.malformed += 1
        connection.close(f"request cannot be served: {error}")
        return
    partitions = handler.partitions
    table = partitions.by_id if version >= FIRST_WITH_TOPIC_ID else partitions.by_name
    transactional = request.transactional_id is not None
    answer: Answer = []
    waiting: list[Uncommitted] = []
    if handler.transaction_denied(connection, request):
        answer = handler.all_denied(request.topics)
        request = request._replace(topics=[])
    for first, topics in slices_of(request.topics):
        opened: Opened | None = None
        if may_be_opened(topics, table):
            opened = {}
            large = handler.opener.open_now(topics, table, opened)
            await handler.opener.open_by_thread(large, topics, connection, opened)
            if connection.closed:
                return
        refused = None
        denied = handler.denied_topics(connection, topics, version)
        if transactional:
            own = request._replace(topics=topics)
            refused = await _verify(handler, without(own, denied) if denied else own, table, version)
        made, uncommitted, woken, _ = handler.write(
            topics, table, request.acks, version, transactional, refused, opened, denied
        )
        for number, (topic, results) in enumerate(made, first):
            if number == len(answer):
                answer.append((topic, results))
            else:
                answer[number][1].extend(results)
        for partition, end_offset, number, result in uncommitted or ():
            waiting.append((partition, end_offset, first + number, result))
        for partition in woken:
            partition.wake_fetches()
        await asyncio.sleep(0)
    if connection.closed:
        return
    if waiting:
        handler.answer_when_committed(
            connection, version, correlation_id, request.timeout_ms, answer, waiting
        )
        return
    if request.acks:
        endpoints = handler.endpoints(connection, version, answer)
        response = await dispatcher.in_thread(
            pack_produce_response, correlation_id, version, answer, endpoints
        )
        if not connection.closed:
            connection.send(response)
    else:
        handler.check_unacknowledged(connection, answer)
    if not connection.closed:
        connection.resume()


async def _verify(
    handler: ProduceHandler, request: ProduceRequest, table: Table, version: int
) -> Refused | None:
    """Ends in the same turn of the loop as the verdict is given."""
    verdict: ErrorCode | Verdicts | None = None
    while True:
        judged = handler.transactions.verify(request, table, version, verdict)
        if not isinstance(judged, asyncio.Future):
            return judged
        verdict = verdict_of(await judged)


def without(request: ProduceRequest, denied: set[bytes]) -> ProduceRequest:
    return request._replace(topics=[each for each in request.topics if each[0] not in denied])


def slices_of(topics: list[TopicBatches]) -> Iterator[tuple[int, list[TopicBatches]]]:
    """The topics in slices of at most ELEMENTS_PER_SLICE topics and partitions, each with the number of its
    first topic. A topic may go on in the next slice."""
    made: list[TopicBatches] = []
    first = room = 0
    for number, (topic, batches) in enumerate(topics):
        start = 0
        while True:
            if room < 2:
                if made:
                    yield first, made
                first, made, room = number, [], ELEMENTS_PER_SLICE
            taken = batches[start : start + room - 1]
            made.append((topic, taken))
            room -= 1 + len(taken)
            start += len(taken)
            if start >= len(batches):
                break
    if made:
        yield first, made
