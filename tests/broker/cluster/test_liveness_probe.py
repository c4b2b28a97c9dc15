"""The probe against real sockets: a listener that refuses means a dead broker, unless it was seen to live."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from millstream.broker import liveness_probe
from millstream.broker.liveness_probe import LivenessProbe
from millstream.cluster.commands import BrokerLost
from millstream.cluster.image import Delta, Image
from millstream.cluster.metadata_records import BrokerDown, BrokerUp, Controller, Endpoint, Record
from tests.support.waiting import wait_until_async


class ControllerToBe:
    """As much of the driver as the probe uses."""

    def __init__(self) -> None:
        self.broker_id = 1
        self.leading = True
        self.image = Image()
        self.commands: list[BrokerLost] = []
        self.deposed: list[tuple[int, int]] = []

    def submit(self, command: BrokerLost) -> asyncio.Future[None]:
        self.commands.append(command)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    async def depose(self, broker_id: int, broker_epoch: int) -> None:
        self.deposed.append((broker_id, broker_epoch))

    async def listen(self, listener: Any) -> None:
        listener(self.image, cast(Delta, None))

    @property
    def lost(self) -> list[tuple[int, int]]:
        return [(command.broker_id, command.epoch) for command in self.commands]


@pytest.fixture
async def listening() -> AsyncIterator[socket.socket]:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    yield sock
    sock.close()


def broker(
    sock: socket.socket, broker_id: int, epoch: int, incarnation: str = "i", host: str = "127.0.0.1"
) -> BrokerUp:
    endpoint = Endpoint("PLAINTEXT", host, sock.getsockname()[1], "PLAINTEXT")
    return BrokerUp(broker_id, epoch, incarnation, (endpoint,), None, False, {})


async def probing(*records: Record) -> tuple[ControllerToBe, LivenessProbe]:
    controller = ControllerToBe()
    controller.image.apply(records, 1)
    controller.leading = controller.image.controller_id == 1
    probe = LivenessProbe(cast(Any, controller), "PLAINTEXT")
    await probe.start()
    return controller, probe


async def now(controller: ControllerToBe, probe: LivenessProbe, *records: Record) -> None:
    controller.image.apply(records, controller.image.version + 1)
    controller.leading = controller.image.controller_id == 1
    await controller.listen(probe._changed)


async def accepted(listening: socket.socket) -> socket.socket:
    connection, _ = await asyncio.get_running_loop().sock_accept(listening)
    return connection


def listen(sock: socket.socket) -> None:
    sock.listen()
    sock.setblocking(False)


async def test_a_listener_that_goes(listening: socket.socket) -> None:
    listen(listening)
    controller, probe = await probing(Controller(1, 1), broker(listening, 2, 77))
    connection = await accepted(listening)
    connection.close()  # it was idle for too long, say: no reason to think ill of it
    connection = await accepted(listening)
    assert controller.lost == []
    listening.close()
    connection.close()
    await wait_until_async(lambda: controller.lost == [(2, 77)])
    await probe.stop()


async def test_a_broker_that_was_killed_before_it_was_reached(listening: socket.socket) -> None:
    """It listened before it registered, so who refuses is dead."""
    controller, probe = await probing(Controller(1, 1), broker(listening, 2, 77))
    await wait_until_async(lambda: controller.lost == [(2, 77)])
    await probe.stop()


async def test_a_verdict_waits_until_the_controller_leads(listening: socket.socket) -> None:
    """Its claim is in the image a moment before."""
    controller, probe = await probing(Controller(1, 1), broker(listening, 2, 77))
    controller.leading = False
    await wait_until_async(lambda: probe._verdicts)
    assert controller.lost == []
    controller.leading = True
    await wait_until_async(lambda: controller.lost == [(2, 77)])
    await probe.stop()


async def test_the_controller_goes(listening: socket.socket) -> None:
    """Whoever does not lead watches the controller alone, and takes its place away from it. Whoever leads
    then knows without reaching it first that its process is dead."""
    with socket.socket() as third:
        third.bind(("127.0.0.1", 0))
        listen(listening)
        brokers = [broker(listening, 2, 77), broker(third, 3, 78)]
        controller, probe = await probing(Controller(2, 1), *brokers)
        connection = await accepted(listening)
        assert (controller.deposed, len(probe._watched)) == ([], 1)
        listening.close()
        connection.close()
        await wait_until_async(lambda: controller.deposed == [(2, 77)])
        assert controller.lost == []
        await now(controller, probe, Controller(1, 2))
        await wait_until_async(lambda: sorted(controller.lost) == [(2, 77), (3, 78)])
        await probe.stop()


async def test_a_broker_that_lived_has_to_be_reached_before_it_is_suspected_again(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It registered again, and its process is the same: a firewall rejects, say."""
    monkeypatch.setattr(liveness_probe, "QUIET_SECONDS", 0.01)
    monkeypatch.setattr(liveness_probe, "UNREACHED_PAUSE", 0.01)
    controller, probe = await probing(Controller(1, 1), broker(listening, 2, 77))
    await wait_until_async(lambda: controller.lost == [(2, 77)])
    await now(controller, probe, BrokerDown(2, 77), broker(listening, 2, 80))
    # Long enough for many refusals.
    await asyncio.sleep(0.2)
    assert controller.lost == [(2, 77)]
    # The same for one that was deposed and claims the log again.
    await now(controller, probe, Controller(2, 2), broker(listening, 2, 80))
    await asyncio.sleep(0.2)
    assert controller.deposed == []
    listen(listening)
    connection = await accepted(listening)
    listening.close()
    connection.close()
    await wait_until_async(lambda: controller.deposed == [(2, 80)])
    await probe.stop()


async def test_a_new_process_is_not_trusted_longer_than_any_other(listening: socket.socket) -> None:
    controller, probe = await probing(Controller(1, 1), broker(listening, 2, 77))
    await wait_until_async(lambda: controller.lost == [(2, 77)])
    await now(controller, probe, BrokerDown(2, 77), broker(listening, 2, 80, "j"))
    await wait_until_async(lambda: controller.lost == [(2, 77), (2, 80)])
    await probe.stop()


async def test_whoever_no_longer_leads_stops_watching(listening: socket.socket) -> None:
    listen(listening)
    with socket.socket() as third:
        third.bind(("127.0.0.1", 0))
        listen(third)
        controller, probe = await probing(Controller(1, 1), broker(listening, 2, 77))
        connection = await accepted(listening)
        await now(controller, probe, Controller(3, 2), broker(third, 3, 78))
        assert await asyncio.get_running_loop().sock_recv(connection, 1) == b""
        connection.close()
        (await accepted(third)).close()
        await probe.stop()


@pytest.mark.parametrize("addresses", [("127.0.0.2", "127.0.0.1"), ("192.0.2.1", "127.0.0.1")])
async def test_a_host_with_several_addresses(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch, addresses: tuple[str, ...]
) -> None:
    """It is reached by any of them, and refuses when none is left that could be tried."""
    port = listening.getsockname()[1]
    connect = asyncio.open_connection

    async def resolved(host: str, *_: Any, **__: Any) -> list[Any]:
        names = addresses if host == "broker.test" else (host,)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (name, port)) for name in names]

    async def connected(host: str, *given: Any, **more: Any) -> Any:
        if host == "192.0.2.1":
            raise OSError(errno.ENETUNREACH, "no such way from here")
        return await connect(host, *given, **more)

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolved)
    monkeypatch.setattr(asyncio, "open_connection", connected)
    listen(listening)
    controller, probe = await probing(Controller(1, 1), broker(listening, 2, 77, host="broker.test"))
    connection = await accepted(listening)
    assert controller.lost == []
    listening.close()
    connection.close()
    await wait_until_async(lambda: controller.lost == [(2, 77)])
    await probe.stop()


async def test_an_address_that_does_not_answer_leaves_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = {"127.0.0.1": ConnectionRefusedError(errno.ECONNREFUSED, ""), "127.0.0.2": TimeoutError()}

    async def resolved(*_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (name, 1)) for name in outcomes]

    async def connected(host: str, _: int) -> Any:
        raise outcomes[host]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolved)
    monkeypatch.setattr(asyncio, "open_connection", connected)
    with pytest.raises(TimeoutError):
        await liveness_probe._connect("broker.test", 1)
    del outcomes["127.0.0.2"]
    with pytest.raises(ConnectionRefusedError):
        await liveness_probe._connect("broker.test", 1)
