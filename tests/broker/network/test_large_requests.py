"""Requests with very many elements: decoded off the loop, handled in slices, answered in order."""

from __future__ import annotations

import asyncio
import io
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.broker.network.buffer_budget import BufferBudget
from millstream.broker.network.connection import SCRATCH_SIZE, Connection
from millstream.broker.network.dispatch import LARGE_FRAME, MAX_ELEMENTS, Api, Call, Dispatcher
from millstream.broker.network.poller import Poller
from millstream.broker.network.slices import ELEMENTS_PER_SLICE, Slices, collect
from millstream.wire._kio import entity_writer
from millstream.wire.errors import ErrorCode
from millstream.wire.messages import codec

DESCRIBE_GROUPS, VERSION = 15, 0  # a request that is one list of strings
BUDGET = 16 << 20


def request(correlation_id: int, groups: int, text: str = "group") -> bytes:
    schema = codec(DESCRIBE_GROUPS, VERSION).request
    out = io.BytesIO()
    entity_writer(schema)(out, schema(groups=(text,) * groups))
    frame = struct.pack(">hhih", DESCRIBE_GROUPS, VERSION, correlation_id, -1) + out.getvalue()
    return struct.pack(">i", len(frame)) + frame


def large(correlation_id: int) -> bytes:
    frame = request(correlation_id, 2000)
    assert len(frame) > LARGE_FRAME
    return frame


class Server:
    """A dispatcher with one API, and a client's end of a connection to it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.poller = Poller(self.loop)
        self.budget = BufferBudget(BUDGET)
        self.dispatcher = Dispatcher(lambda: self.partitions)
        self.partitions = 0
        self.api = Api(DESCRIBE_GROUPS, "DescribeGroups", VERSION, VERSION, self.in_slices)
        self.dispatcher.serve(self.api)
        self.handled: list[tuple[int, int]] = []  # turn of the loop, size of the request
        self.turn = 0
        self.elements: dict[int, int] = {}  # handled by turn
        self.context: Any = SimpleNamespace(
            budget=self.budget, max_frame=100 << 20, poller=self.poller, closed=lambda _: None, name="PLAIN"
        )
        self.connection, self.client = self.connect()

    def connect(self) -> tuple[Connection, socket.socket]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        return Connection(ours, "peer", self.context, self.dispatcher, self.loop), theirs

    def made(self, call: Call) -> Iterator[Any]:
        self.handled.append((self.turn, len(call.request.groups)))
        for group in call.request.groups:
            self.elements[self.turn] = self.elements.get(self.turn, 0) + 1
            yield call.make(
                "DescribedGroup",
                error_code=ErrorCode.none,
                group_id=group,
                group_state="",
                protocol_type="",
                protocol_data="",
                members=(),
            )

    def in_slices(self, call: Call) -> Slices[Any]:
        return call.answer(groups=(yield from collect(self.made(call))))

    async def in_slices_later(self, call: Call) -> Any:
        return call.answer(groups=await call.in_slices(collect(self.made(call))))

    def exchange(self, *frames: bytes) -> list[bytes]:
        """Send all frames in one go and wait for as many responses, or for the end of the connection."""

        async def count_turns() -> None:
            while True:
                self.turn += 1
                await asyncio.sleep(0)

        async def talk() -> list[bytes]:
            counting = self.loop.create_task(count_turns())
            sending = self.loop.create_task(self.loop.sock_sendall(self.client, b"".join(frames)))
            got = b""
            responses: list[bytes] = []
            while len(responses) < len(frames):
                data = await self.loop.sock_recv(self.client, 1 << 20)
                if not data:
                    break
                got += data
                while len(got) >= 4 and len(got) >= (end := 4 + struct.unpack_from(">i", got)[0]):
                    responses.append(got[4:end])
                    got = got[end:]
            counting.cancel()
            sending.cancel()
            return responses

        return self.loop.run_until_complete(asyncio.wait_for(talk(), 120))

    def run_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(10_000):
            if condition():
                return
            self.loop.run_until_complete(asyncio.sleep(0.001))
        raise AssertionError("waited in vain")

    def close(self) -> None:
        self.connection.close()
        self.client.close()
        self.poller.close()
        self.dispatcher.close()
        self.loop.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def correlation_ids(responses: list[bytes]) -> list[int]:
    return [struct.unpack_from(">i", response)[0] for response in responses]


def test_a_large_request_is_decoded_and_its_response_encoded_by_a_thread(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, list[bool]] = {"read": [], "pack": []}
    for method in threads:
        original = getattr(type(codec(DESCRIBE_GROUPS, VERSION)), method)

        def counting(self: Any, *arguments: Any, method: str = method, original: Any = original) -> Any:
            threads[method].append(threading.current_thread() is threading.main_thread())
            return original(self, *arguments)

        monkeypatch.setattr(type(codec(DESCRIBE_GROUPS, VERSION)), method, counting)
    server.exchange(large(1), request(2, 1))
    assert threads == {"read": [False, True], "pack": [False, True]}


@pytest.mark.parametrize("handler", ["in_slices", "in_slices_later"])
def test_no_turn_handles_more_elements_than_a_slice_has(server: Server, handler: str) -> None:
    server.api.handler = getattr(server, handler)
    (response,) = server.exchange(large(1))
    assert struct.unpack_from(">ii", response) == (1, 2000)
    assert sum(server.elements.values()) == 2000
    assert max(server.elements.values()) <= ELEMENTS_PER_SLICE


def test_a_small_request_is_handled_in_the_turn_in_which_it_came(server: Server) -> None:
    server.exchange(request(1, 3), request(2, 4))
    (first, _), (second, _) = server.handled
    assert first == second


def test_requests_behind_a_large_one_are_answered_after_it(server: Server) -> None:
    order = [large(1), request(2, 1), large(3), large(4), request(5, 1), request(6, 1)]
    assert correlation_ids(server.exchange(*order)) == [1, 2, 3, 4, 5, 6]
    assert [size for _, size in server.handled] == [2000, 1, 2000, 2000, 1, 1]


def test_a_frame_in_a_buffer_of_the_connection_takes_the_buffer_along(server: Server) -> None:
    frames = [request(1, 2000, "g" * 1000), request(2, 1), request(3, 2000, "h" * 1000)]
    assert len(frames[0]) > 4 * SCRATCH_SIZE
    for _ in range(3):
        assert correlation_ids(server.exchange(*frames)) == [1, 2, 3]
    assert server.budget.used <= 2 * SCRATCH_SIZE
    server.connection.close()
    assert server.budget.used == 0


def test_a_request_may_have_as_many_elements_as_the_cluster_justifies(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.partitions = MAX_ELEMENTS // 4 + 1
    assert len(server.exchange(request(1, MAX_ELEMENTS + 4, ""))) == 1
    server.partitions = 0
    assert server.exchange(request(2, MAX_ELEMENTS + 4, "")) == []
    assert f"more than {MAX_ELEMENTS} elements in one request" in caplog.text
    assert server.dispatcher.malformed == 1


def test_a_client_that_leaves_meanwhile_costs_nothing_more(server: Server) -> None:
    connection, client = server.connect()

    client.setblocking(True)
    sending = threading.Thread(target=client.sendall, args=(request(1, 2000, "g" * 1000),))
    sending.start()
    server.run_until(lambda: connection.parked)
    sending.join()
    client.close()
    server.run_until(lambda: connection.closed and bool(server.handled) and not server.dispatcher.at_work)
    assert correlation_ids(server.exchange(request(2, 1))) == [2]
    assert server.budget.used == 0
