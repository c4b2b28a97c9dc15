"""Requests between brokers, against a server that answers late, in pieces, wrongly or never."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable

import pytest

from millstream.broker.replication.broker_connection import BrokerConnection, BrokerConnections
from millstream.client.errors import TimedOut, Unreachable
from millstream.client.messages import API_KEYS
from millstream.cluster.image import Image
from millstream.cluster.metadata_records import BrokerUp, Endpoint
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.messages import codec
from tests.support.waiting import wait_until_async

FETCH, METADATA = API_KEYS["fetch"], API_KEYS["metadata"]
Behaviour = Callable[[int, int, asyncio.StreamWriter], bytes | None]


class Peer:
    """A broker whose answers to all but ApiVersions the test decides."""

    def __init__(self) -> None:
        self.accepted = 0
        self.requests: list[int] = []
        self.answer: Behaviour = lambda key, correlation_id, writer: None
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self.server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self.server.close()
        for writer in self._writers:
            writer.close()
        await self.server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._writers.append(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                key, _, correlation_id = struct.unpack_from(">hhi", frame)
                self.requests.append(key)
                answer = _versions(correlation_id) if key == 18 else self.answer(key, correlation_id, writer)
                if answer is not None:
                    writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass


def _versions(correlation_id: int) -> bytes:
    form = codec(18, 3)
    keys = tuple(form.make("ApiVersion", api_key=key, min_version=0, max_version=99) for key in (1, 3, 18))
    return form.pack(correlation_id, form.answer(error_code=ErrorCode.none, api_keys=keys))


def frame(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


def image_of(*brokers: tuple[int, int]) -> Image:
    image = Image()
    image.apply(
        [
            BrokerUp(broker_id, 1, "life", (Endpoint("REPLICATION", "127.0.0.1", port),))
            for broker_id, port in brokers
        ],
        1,
    )
    return image


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    peer = Peer()
    await peer.start()
    yield peer
    await peer.stop()


@pytest.fixture
async def connections(peer: Peer) -> AsyncIterator[BrokerConnections]:
    image = image_of((2, peer.port))
    made = BrokerConnections(lambda: image, "REPLICATION", "broker-1-fetcher", timeout=60)
    yield made
    made.close()


def fetch(connection: BrokerConnection, body: bytes = b"") -> asyncio.Future[bytes]:
    return connection.send(FETCH, 17, True, [body], bytes)


async def test_requests_of_all_callers_share_a_connection_and_are_sent_ahead(
    peer: Peer, connections: BrokerConnections
) -> None:
    held: list[tuple[int, asyncio.StreamWriter]] = []

    def hold(key: int, correlation_id: int, writer: asyncio.StreamWriter) -> None:
        held.append((correlation_id, writer))
        if len(held) == 3:
            for number, (earlier, _) in enumerate(held):
                writer.write(frame(earlier, b"answer %d" % number))

    peer.answer = hold
    first = await connections.shared(2)
    answers = [fetch(first), fetch(await connections.shared(2)), fetch(await connections.shared(2))]
    assert await asyncio.gather(*answers) == [b"answer 0", b"answer 1", b"answer 2"]
    assert peer.accepted == 1


async def test_responses_are_found_however_they_are_cut(peer: Peer, connections: BrokerConnections) -> None:
    body = bytes(range(256)) * 2000  # larger than the first buffer

    async def in_pieces(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        data = frame(correlation_id, body)
        for at in range(0, len(data), 100_003):
            writer.write(data[at : at + 100_003])
            await writer.drain()
            await asyncio.sleep(0)

    tasks: list[asyncio.Task[None]] = []

    def answer(key: int, correlation_id: int, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.ensure_future(in_pieces(correlation_id, writer)))

    peer.answer = answer
    connection = await connections.open(2)
    for _ in range(3):
        assert await fetch(connection) == body
    connection.close()


async def test_a_response_that_does_not_come_fails_all_that_wait(
    peer: Peer, connections: BrokerConnections
) -> None:
    connection = await connections.open(2)
    late = connection.send(FETCH, 17, True, [], bytes, within=0.05)
    behind = fetch(connection)
    with pytest.raises(TimedOut):
        await late
    with pytest.raises(Unreachable):
        await behind
    assert connection.closed
    with pytest.raises(Unreachable):
        await fetch(connection)


async def test_a_broken_connection_is_replaced(peer: Peer, connections: BrokerConnections) -> None:
    def hang_up(key: int, correlation_id: int, writer: asyncio.StreamWriter) -> None:
        writer.close()

    peer.answer = hang_up
    with pytest.raises(Unreachable, match="closed the connection"):
        await fetch(await connections.shared(2))
    peer.answer = lambda key, correlation_id, writer: frame(correlation_id, b"again")
    assert await fetch(await connections.shared(2)) == b"again"
    assert peer.accepted == 2


@pytest.mark.parametrize(
    "rubbish",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", struct.pack(">ii", 4, 77), struct.pack(">ii", -1, 0)],
    ids=["another protocol", "a response to nobody", "a negative size"],
)
async def test_what_is_not_a_response_closes_the_connection(
    peer: Peer, connections: BrokerConnections, rubbish: bytes
) -> None:
    peer.answer = lambda key, correlation_id, writer: rubbish
    connection = await connections.open(2)
    with pytest.raises(Unreachable):
        await fetch(connection)
    assert connection.closed


async def test_a_response_that_cannot_be_decoded_is_an_error_of_that_request(
    peer: Peer, connections: BrokerConnections
) -> None:
    peer.answer = lambda key, correlation_id, writer: frame(correlation_id, b"\xff\xff")
    with pytest.raises(KafkaError, match="makes no sense"):
        await connections.request(
            2,
            "metadata",
            topics=None,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )


async def test_brokers_that_are_not_there_are_unreachable(peer: Peer) -> None:
    port = peer.port
    await peer.stop()
    image = image_of((2, port))
    connections = BrokerConnections(lambda: image, "REPLICATION", "test", timeout=60)
    for _ in range(2):  # the second time after the back-off
        with pytest.raises(Unreachable, match="cannot connect"):
            await connections.shared(2)
    with pytest.raises(Unreachable, match="broker 7 is not alive"):
        await connections.shared(7)
    connections.close()
    other = BrokerConnections(lambda: image, "CLIENTS", "test", timeout=60)
    with pytest.raises(Unreachable, match="no listener CLIENTS"):
        await other.shared(2)


async def test_a_broker_that_moved_is_found_at_its_new_address(peer: Peer) -> None:
    second = Peer()
    await second.start()
    images = [image_of((2, peer.port))]
    connections = BrokerConnections(lambda: images[-1], "REPLICATION", "test", timeout=60)
    first = await connections.shared(2)
    images.append(image_of((2, second.port)))
    assert (await connections.shared(2)).address == f"127.0.0.1:{second.port}"
    assert first.closed
    connections.close()
    await second.stop()


async def test_who_waits_for_a_broker_that_moves_hears_that_it_is_unreachable(peer: Peer) -> None:
    """And is not cancelled: it would take that for its own end."""
    accepted: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda reader, writer: accepted.append(writer), "127.0.0.1", 0)
    images = [image_of((2, silent.sockets[0].getsockname()[1]))]
    connections = BrokerConnections(lambda: images[-1], "REPLICATION", "test", timeout=60)
    waiting = asyncio.create_task(connections.shared(2))
    await wait_until_async(lambda: bool(accepted))
    images.append(image_of((2, peer.port)))
    assert (await connections.shared(2)).address == f"127.0.0.1:{peer.port}"
    with pytest.raises(Unreachable, match="another address"):
        await waiting
    connections.close()
    silent.close()
    for writer in accepted:
        writer.close()
    await silent.wait_closed()


async def test_a_secured_listener_needs_credentials(peer: Peer) -> None:
    image = Image()
    image.apply([BrokerUp(2, 1, "life", (Endpoint("B", "127.0.0.1", peer.port, "SASL_SSL"),))], 1)
    connections = BrokerConnections(lambda: image, "B", "test", timeout=60)
    with pytest.raises(Unreachable, match="SASL_SSL"):
        await connections.open(2)
    connections.close()


async def test_versions_that_the_other_side_does_not_have(peer: Peer, connections: BrokerConnections) -> None:
    with pytest.raises(KafkaError, match="does not offer create_topics"):
        await connections.request(2, "create_topics")


def test_it_works_on_the_loop_that_brokers_run_on() -> None:
    """uvloop's transports are not asyncio's; the tests above run on asyncio's loop."""
    import uvloop

    from millstream.broker.replication.broker_connection import NoSecurity, connect

    async def ask() -> int:
        peer = Peer()
        await peer.start()
        connection = await connect(Endpoint("PLAINTEXT", "127.0.0.1", peer.port), "test", 60, NoSecurity())
        try:
            return len(peer.requests)
        finally:
            connection.close()
            await peer.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(ask()) == 1
