"""The probe against real sockets: only a listener that was there and is gone means a dead broker."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from millstream.broker import liveness_probe
from millstream.broker.liveness_probe import LivenessProbe
from millstream.cluster.commands import BrokerLost
from millstream.cluster.image import Delta, Image
from millstream.cluster.metadata_records import BrokerUp, Controller, Endpoint
from tests.support.waiting import wait_until_async


class ControllerToBe:
    """As much of the driver as the probe uses."""

    def __init__(self) -> None:
        self.broker_id = 1
        self.leading = True
        self.image = Image()
        self.commands: list[BrokerLost] = []

    def submit(self, command: BrokerLost) -> asyncio.Future[None]:
        self.commands.append(command)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    async def listen(self, listener: Any) -> None:
        listener(self.image, cast(Delta, None))


@pytest.fixture
async def listening() -> AsyncIterator[socket.socket]:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    yield sock
    sock.close()


async def probing(port: int) -> tuple[ControllerToBe, LivenessProbe]:
    controller = ControllerToBe()
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", port, "PLAINTEXT")
    records = [Controller(1, 1)]
    controller.image.apply([*records, BrokerUp(2, 77, "i", (endpoint,), None, False, {})], 1)
    probe = LivenessProbe(cast(Any, controller), "PLAINTEXT")
    await probe.start()
    return controller, probe


async def test_a_listener_that_goes(listening: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness_probe, "START_PAUSE", 0.01)
    controller, probe = await probing(listening.getsockname()[1])
    # Long enough for many refusals of one that has not begun to listen.
    await asyncio.sleep(0.2)
    assert controller.commands == []
    listening.listen()
    listening.setblocking(False)
    connection, _ = await asyncio.get_running_loop().sock_accept(listening)
    connection.close()  # it was idle for too long, say: no reason to think ill of it
    connection, _ = await asyncio.get_running_loop().sock_accept(listening)
    assert controller.commands == []
    listening.close()
    connection.close()
    await wait_until_async(lambda: [(one.broker_id, one.epoch) for one in controller.commands] == [(2, 77)])
    await probe.stop()


async def test_whoever_does_not_lead_watches_nobody(listening: socket.socket) -> None:
    listening.listen()
    listening.setblocking(False)
    controller, probe = await probing(listening.getsockname()[1])
    connection, _ = await asyncio.get_running_loop().sock_accept(listening)
    controller.image.apply([Controller(2, 2)], 2)
    await controller.listen(probe._changed)
    assert await asyncio.get_running_loop().sock_recv(connection, 1) == b""
    connection.close()
    await probe.stop()
