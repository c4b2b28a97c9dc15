"""The audit log: events of logins, refusals and changes, as JSON lines in a file or as records of a topic.

`millstream.audit.log` says where. While it is empty there is no `Audit`, and nothing asks for one but where
somebody logs in, is refused, or changes something; Produce and Fetch never do.

Nobody waits for it. An event goes into a queue of limited size, and a task takes it from there. Where the
queue is full (a disk or a leader that does not answer), events are dropped and counted. Equal refusals, and
equal logins, within a second are one event with a count, so that a client that tries without end does not
fill the log.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, Protocol

from millstream.broker.audit import requests
from millstream.broker.authorizer import camel_case
from millstream.wire.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.broker.network.connection import Connection
    from millstream.broker.network.dispatch import Api, Call
    from millstream.wire.acls import Operation, ResourceType

logger = logging.getLogger("millstream.audit")

MAX_WAITING = 10_000  # events
MAX_WAITING_BYTES = 16 * 1024 * 1024
MAX_BATCH = 500
MAX_BATCH_BYTES = 512 * 1024
PERIOD = 1.0  # seconds within which equal events are one, and between two tries
STOP_WITHIN = 5.0  # seconds for what is left at the end

Event = dict[str, Any]


class Sink(Protocol):
    async def write(self, lines: Sequence[bytes]) -> None:
        """Raises OSError or KafkaError, and is asked again later."""

    async def close(self) -> None: ...


class Audit:
    def __init__(
        self, sink: Sink, broker_id: Callable[[], int], clock: Callable[[], float] = time.time
    ) -> None:
        self.written = self.dropped = self.failures = 0
        self._sink = sink
        self._broker_id = broker_id
        self._clock = clock
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._repeated: dict[tuple[object, ...], tuple[int, Event]] = {}
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ events

    def login(self, connection: Connection, mechanism: str, refused: str = "") -> None:
        event = {
            "event": "login",
            "principal": None if refused else connection.principal,
            "host": connection.client_host,
            "client_id": connection.client_id[: requests.MAX_TEXT],
            "listener": connection.context.name,
            "action": mechanism,
            "verdict": "denied" if refused else "allowed",
        }
        self._put_once(event | ({"reason": refused[: requests.MAX_TEXT]} if refused else {}))

    def handshake_failed(self, host: str, listener: str, reason: str) -> None:
        self._put_once(
            {
                "event": "login",
                "principal": None,
                "host": host,
                "client_id": "",
                "listener": listener,
                "action": "TLS",
                "verdict": "denied",
                "reason": reason[: requests.MAX_TEXT],
            }
        )

    def denied(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str, api: str
    ) -> None:
        self._put_once(
            {
                "event": "authorization",
                "principal": principal,
                "host": host,
                "action": api,
                "operation": operation.name,
                "resources": (f"{camel_case(kind.name)}:{name[: requests.MAX_TEXT]}",),
                "verdict": "denied",
            }
        )

    def _request(self, api: Api, call: Call, answer: Any) -> None:
        found = requests.errors(answer)
        event: Event = {
            "event": "request",
            "principal": call.principal,
            "host": call.host,
            "client_id": call.connection.client_id[: requests.MAX_TEXT],
            "listener": call.listener,
            "action": api.name,
            "resources": requests.resources(api.key, call.request),
            "verdict": requests.verdict(found),
        }
        if found:
            event["errors"] = [error.name.upper() for error in found]
        if getattr(call.request, "validate_only", False):
            event["validate_only"] = True
        self._put(event)

    # ------------------------------------------------------------------ requests

    def watch(self, apis: Iterable[Api]) -> None:
        """Record what becomes of the requests that change something. Called once, before any is served."""
        for api in apis:
            if api.key in requests.RESOURCES and api.handler is not None:
                api.handler = self._watched(api, api.handler)

    def _watched(self, api: Api, handler: Callable[[Call], Any]) -> Callable[[Call], Any]:
        def handle(call: Call) -> Any:
            if call.is_forwarded and api.forwardable:  # recorded by the broker that it came from
                return handler(call)
            return self._audited(api, call, handler(call))

        return handle

    def _audited(self, api: Api, call: Call, result: Any) -> Any:
        """`result` is an answer, or a generator or a coroutine that comes to one (`network/dispatch.py`)."""
        if type(result) is GeneratorType:

            def run() -> Any:
                answer = yield from result
                return self._audited(api, call, answer)

            return run()
        if type(result) is CoroutineType:

            async def wait() -> Any:
                return self._audited(api, call, await result)

            return wait()
        answer = result() if type(result) is partial else result
        try:
            self._request(api, call, answer)
        except Exception:  # an event that cannot be made does not fail the request
            self.dropped += 1
            logger.exception("%s from %s is missing from the audit log", api.name, call.connection.peer)
        return answer

    # ------------------------------------------------------------------ the queue

    def _put_once(self, event: Event) -> None:
        """An event that may come very often: repetitions are counted."""
        key = tuple(event.values())
        before = self._repeated.get(key)
        if before is not None:
            self._repeated[key] = before[0] + 1, event
        elif len(self._repeated) >= MAX_WAITING:
            self.dropped += 1
        else:
            self._repeated[key] = 0, event
            self._put(event)

    def _put(self, event: Event) -> None:
        if len(self._waiting) >= MAX_WAITING or self._waiting_bytes >= MAX_WAITING_BYTES:
            self.dropped += 1
            return
        moment = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        whole = {"time": moment.replace("+00:00", "Z"), "broker": self._broker_id(), **event}
        line = json.dumps(whole, separators=(",", ":")).encode()
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        self._wake.set()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while not self._stopping.is_set():
            await self._wake.wait()
            self._wake.clear()
            await self._write()
            # What comes within this time is one batch, and equal events are one.
            try:
                await asyncio.wait_for(self._stopping.wait(), PERIOD)
            except TimeoutError:
                pass
            self._put_repeated()
            if self._waiting:
                self._wake.set()

    def _put_repeated(self) -> None:
        repeated, self._repeated = self._repeated, {}
        for count, event in repeated.values():
            if count:
                self._put({**event, "count": count})

    async def _write(self) -> None:
        """All that waits; what cannot be written waits on."""
        while self._waiting:
            batch: list[bytes] = []
            size = 0
            for line in self._waiting:
                size += len(line)
                if batch and (len(batch) == MAX_BATCH or size > MAX_BATCH_BYTES):
                    break
                batch.append(line)
            try:
                await self._sink.write(batch)
            except (OSError, KafkaError) as error:
                self.failures += 1
                if self.failures & (self.failures - 1) == 0:  # the 1st, 2nd, 4th, 8th ...
                    logger.error(
                        "the audit log cannot be written (failure %d, %d events wait): %s",
                        self.failures,
                        len(self._waiting),
                        error,
                    )
                return
            for _ in batch:
                self._waiting_bytes -= len(self._waiting.popleft())
            self.written += len(batch)

    async def stop(self) -> None:
        """Write what is left, if that can be done soon."""
        if self._task is None:
            return
        self._stopping.set()
        self._wake.set()
        try:
            await asyncio.wait_for(self._finish(self._task), STOP_WITHIN)
        except TimeoutError:
            pass
        if self._waiting:
            logger.error("%d events are missing from the audit log", len(self._waiting))
        await self._sink.close()

    async def _finish(self, task: asyncio.Task[None]) -> None:
        await task
        self._put_repeated()
        await self._write()
