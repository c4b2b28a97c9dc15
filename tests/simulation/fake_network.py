"""Links between brokers: requests and answers take their time, overtake each other, come twice or never.

A connection carries the real bytes of Fetch in both directions. A request that gets no answer in time ends
its connection, as in production; what it carried may still arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

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
    ) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if self.closed:
            future.set_exception(Unreachable("closed"))
            return future
        if key != FETCH:  # the request that hurries another one
            future.set_result(b"")
            return future
        self._pending[future] = None
        loop.call_later(TIMEOUT, self._timed_out, future)
        data = b"".join(body)

        def arrived(server: SimBroker, reply: Callable[[bytes], None]) -> None:
            server.serve_fetch(data, reply)

        def answered(answer: bytes) -> None:
            if future.done() or self.closed:
                return
            self._pending.pop(future, None)
            try:
                future.set_result(read(memoryview(answer)))
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

    async def request(self, broker_id: int, api: str, /, **fields: Any) -> Any:
        assert api == "alter_partition"
        if broker_id not in self._process.image.brokers:
            await asyncio.sleep(self._world.delay())
            raise Unreachable(f"broker {broker_id} is not alive")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def arrived(server: SimBroker, reply: Callable[[Any], None]) -> None:
            server.serve_alter_partition(names(fields), reply)

        def answered(answer: Any) -> None:
            if not future.done():
                future.set_result(answer)

        self._world.deliver(self._process, broker_id, arrived, answered)
        try:
            async with asyncio.timeout(TIMEOUT):
                return await future
        except TimeoutError:
            raise TimedOut("no answer in time") from None


class FakeCall:
    """What the handler of AlterPartition needs of a request that came in."""

    def __init__(self, request: Any) -> None:
        self.request = request

    def answer(self, **fields: Any) -> Any:
        return SimpleNamespace(**fields)

    def make(self, name: str, /, **fields: Any) -> Any:
        return SimpleNamespace(**fields)


REFUSED = SimpleNamespace(error_code=ErrorCode.unknown_server_error, topics=())
