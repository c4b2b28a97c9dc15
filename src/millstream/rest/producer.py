"""Records to Kafka by librdkafka: many requests share one producer and thereby its batches.

A thread waits for delivery reports. It fills in the results of a request and wakes the request up when all
are there.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

log = logging.getLogger(__name__)

_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
Header = tuple[str, str | bytes | None]
DEFAULTS = {
    "enable.idempotence": "true",
    "linger.ms": "2",
    "partitioner": "murmur2_random",  # as Java's producer
    "delivery.timeout.ms": "30000",
    "message.max.bytes": "1048576",  # as Java's max.request.size
    "queue.buffering.max.messages": "200000",
    "queue.buffering.max.kbytes": "131072",
}


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    partition: int | None = None
    timestamp: int = 0  # 0: now
    headers: list[Header] | None = None


class Sent(NamedTuple):
    partition: int
    offset: int
    timestamp: int


class Tally:
    """Of all requests. Changed in the loop's thread only."""

    def __init__(self) -> None:
        self.delivered = 0
        self.refused = 0


class Sending:
    """The records of one request and what became of them."""

    __slots__ = ("done", "expected", "failed", "future", "loop", "producing", "results", "tally")

    def __init__(self, count: int, loop: asyncio.AbstractEventLoop, producing: "Producing") -> None:
        self.producing = producing
        self.tally: Tally | None = producing.tally
        self.failed = 0  # written like `done`
        self.done = 0  # written by the thread with the reports only
        self.expected = -1  # reports to come; written by the request only, when it knows
        self.results: list[Any] = [None] * count
        self.loop = loop
        self.future: asyncio.Future[None] = loop.create_future()

    async def outcome(self) -> list[Sent | KafkaError]:
        await self.future
        return self.results

    def delivered(self, index: int, error: Any, message: Any) -> None:
        """Called by librdkafka, in the thread that waits for it."""
        if error is None:
            self.results[index] = Sent(message.partition(), message.offset(), message.timestamp()[1])
        else:
            if self.producing.login_refused and error.code() in _PURGED:
                error = KafkaError(KafkaError._AUTHENTICATION, "Unauthorized")
            self.results[index] = error
            self.failed += 1
        self.done += 1
        if self.done == self.expected:
            self.loop.call_soon_threadsafe(self._finish)

    def expect(self, count: int) -> None:
        self.expected = count
        if self.done == count:
            self._finish()

    def _finish(self) -> None:
        """Both threads may see the last report, and the request may have been given up: it counts once."""
        tally, self.tally = self.tally, None
        if tally is not None:
            tally.delivered += self.expected - self.failed
            tally.refused += len(self.results) - self.expected + self.failed
        if not self.future.done():
            self.future.set_result(None)


class Producing:
    def __init__(
        self,
        config: dict[str, Any],
        flush_timeout: float,
        tally: Tally,
        on_login_refused: Callable[[], None] | None = None,
        make: Callable[[dict[str, Any]], Any] | None = None,
    ) -> None:
        """`on_login_refused` is called in librdkafka's thread. `make` makes another producer of the same
        settings in place of librdkafka's."""
        self._make = make or partial(Producer, logger=log)
        self._config = config
        self._flush_timeout = flush_timeout
        self._producer: Producer | None = None
        self._ending = threading.Event()
        self._closed = False
        self._on_login_refused = on_login_refused
        self.tally = tally
        self.login_refused = False  # why it is closed

    async def send(self, topic: str, records: Sequence[Record]) -> list[Sent | KafkaError]:
        """Where each record went, or why not. Takes at most delivery.timeout.ms."""
        return await (await self.begin(topic, records)).outcome()

    async def begin(self, topic: str, records: Sequence[Record]) -> Sending:
        """Put records in line. They keep their order, also that to those of the next call."""
        request = Sending(len(records), asyncio.get_running_loop(), self)
        if self._closed:
            code = KafkaError._AUTHENTICATION if self.login_refused else KafkaError._DESTROY
            request.results = [KafkaError(code)] * len(records)
            request.expect(0)
            return request
        producer = self._current()
        produce = producer.produce
        delivered = request.delivered
        refused = 0
        for index, (key, value, partition, timestamp, headers) in enumerate(records):
            report = partial(delivered, index)
            while True:
                try:
                    produce(
                        topic,
                        value,
                        key,
                        -1 if partition is None else partition,
                        report,
                        None,
                        timestamp,
                        headers,
                    )
                except BufferError:  # more is waiting than may
                    await asyncio.sleep(0.005)
                    continue
                except KafkaException as error:
                    request.results[index] = error.args[0]
                    refused += 1
                break
        request.expect(len(records) - refused)
        return request

    def _current(self) -> Producer:
        if self._producer is None:
            self._producer = self._make(self._config | {"error_cb": self._failed})
            threading.Thread(
                target=self._serve, args=(self._producer,), name="delivery reports", daemon=True
            ).start()
        return self._producer

    def _serve(self, producer: Producer) -> None:
        poll = producer.poll
        while not self._ending.is_set() and (producer is self._producer or len(producer)):
            poll(0.25)

    def _failed(self, error: Any) -> None:
        """A fatal error ends a producer; the next request gets a new one."""
        if error.code() == KafkaError._AUTHENTICATION and self._on_login_refused is not None:
            self._on_login_refused()
        if error.fatal():
            log.error("the producer failed and is replaced: %s", error)
            self._producer = None
        else:
            log.debug("producer: %s", error)

    def close(self) -> None:
        """Takes at most the time to flush. What is not sent by then fails, and its requests are told."""
        self._closed = True
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.flush(0 if self.login_refused else min(3.0, self._flush_timeout))
            producer.purge()
            producer.flush(1.0)
        self._ending.set()
