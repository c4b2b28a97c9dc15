"""Links between brokers: requests and answers take their time, overtake each other, come twice or never.

A connection carries the real bytes of Fetch in both directions. A request that gets no answer in time ends
its connection, as in production; what it carried may still arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from millstream.broker.replication.broker_connection import ASKED_AGAIN
from millstream.client.errors import TimedOut, Unreachable
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tests.simulation.sim_broker import SimBroker
    from tests.simulation.world import World

TIMEOUT = 3.0
FETCH = 1


def names(value: Any) -> Any:
    """The fields of a request as the server's code reads them."""
    if isinstance(value, dict):
        return SimpleNamespace(**{key: names(each) for key, each in value.items()})
    if isinstance(value, list | tuple):
        return [names(each) for each in value]
    return value


class SimConnection:
    def __init__(self, world: World, process: SimBroker, target: int) -> None:
        self._world, self._process, self._target = world, process, target
        self.closed = False
        self._pending: dict[asyncio.Future[Any], None] = {}

    def send(
        self,
        key: int,
        version: int,
        flexible: bool,
        body: Sequence[bytes],
        read: Callable[[memoryview], Any] = bytes,
        within: float | None = None,
        series: asyncio.Future[Any] | None = None,
    ) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future() if series is None else series
        if self.closed:
            future.set_exception(Unreachable("closed"))
            return future
        if key != FETCH:  # the request that hurries another one
            future.set_result(b"")
            return future
        self._pending[future] = None
        timer = loop.call_later(TIMEOUT, self._timed_out, future)
        data = b"".join(body)

        def arrived(server: SimBroker, reply: Callable[[bytes], None]) -> None:
            server.serve_fetch(data, reply)

        def answered(answer: bytes) -> None:
            if future.done() or self.closed or timer.cancelled():  # each request is answered once
                return
            timer.cancel()
            self._pending.pop(future, None)
            try:
                result = read(memoryview(answer))
                if result is not ASKED_AGAIN:
                    future.set_result(result)
            except KafkaError as error:
                future.set_exception(error)

        self._world.deliver(self._process, self._target, arrived, answered)
        return future

    def _timed_out(self, future: asyncio.Future[Any]) -> None:
        if not future.done():
            future.set_exception(TimedOut("no answer in time"))
            self.close()

    def close(self) -> None:
        self.closed = True
        pending, self._pending = self._pending, {}
        for future in pending:
            if not future.done():
                future.set_exception(Unreachable("closed"))


class SimConnections:
    """In place of BrokerConnections."""

    def __init__(self, world: World, process: SimBroker) -> None:
        self._world, self._process = world, process

    async def open(self, broker_id: int) -> SimConnection:
        await asyncio.sleep(self._world.delay())
        if broker_id not in self._process.image.brokers:
            raise Unreachable(f"broker {broker_id} is not alive")
        return SimConnection(self._world, self._process, broker_id)

    async def shared(self, broker_id: int) -> SharedConnection:
        return SharedConnection(self, broker_id)

    async def request(self, broker_id: int, api: str, /, **fields: Any) -> Any:
        if broker_id not in self._process.image.brokers:
            await asyncio.sleep(self._world.delay())
            raise Unreachable(f"broker {broker_id} is not alive")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def arrived(server: SimBroker, reply: Callable[[Any], None]) -> None:
            server.serve(api, names(fields), reply)

        def answered(answer: Any) -> None:
            if not future.done():
                future.set_result(answer)

        # What is asked again is not harmed by an earlier copy; markers of transactions are, as in Kafka.
        wanted = None if api == "alter_partition" else lambda: not future.done()
        self._world.deliver(self._process, broker_id, arrived, answered, wanted)
        try:
            async with asyncio.timeout(TIMEOUT):
                return await future
        except TimeoutError:
            raise TimedOut("no answer in time") from None


class SharedConnection:
    """To one broker, for those who send a request at a time."""

    def __init__(self, connections: SimConnections, broker_id: int) -> None:
        self._connections, self._broker_id = connections, broker_id

    async def request(self, api: str, within: float, **fields: Any) -> Any:
        return await self._connections.request(self._broker_id, api, **fields)


class FakeCall:
    """What a handler needs of a request that came in."""

    is_large = False

    def __init__(self, request: Any, version: int = 0) -> None:
        self.request, self.version = request, version

    async def in_slices(self, slices: Any) -> Any:
        return finished(slices)

    def answer(self, **fields: Any) -> Any:
        return SimpleNamespace(**fields)

    def make(self, name: str, /, **fields: Any) -> Any:
        return SimpleNamespace(**fields)


def finished(slices: Any) -> Any:
    """What a handler that works in slices returns."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            return end.value


REFUSED = SimpleNamespace(error_code=ErrorCode.unknown_server_error, topics=())
