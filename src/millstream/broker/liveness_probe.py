"""Brokers notice at once when the process of another broker is gone.

A session lasts for seconds after its broker was killed. The kernel is faster: it closes the connections of a
dead process and refuses new ones. So the controller keeps an idle connection to every broker, and every
broker one to the controller; when it ends, they connect again, and a broker whose listener *refuses* that is
taken for dead. A broker listens before it registers, so this holds from the first moment. No answer at all
may be the network's fault and is left to the session.

The controller writes a dead broker into the log. If the controller is dead, the others take its place away
from it, and one of them claims the log. A mistake (a firewall that rejects, say) costs an election and no
more: who may write is decided by the log alone. Whoever turns out to live after such a verdict is left alone
for a minute, and has to be reached before its refusals count again, so this cannot become a loop
(docs/decisions/2026-11-18-a-dead-controller.md).
"""

import asyncio
import contextlib
import errno
import ipaddress
import logging
import socket
import time
from typing import NamedTuple

from millstream.cluster.commands import BrokerLost
from millstream.cluster.driver import Controller
from millstream.cluster.image import Delta, Image
from millstream.cluster.metadata_records import BrokerUp
from millstream.cluster.store import StoreError
from millstream.wire.errors import KafkaError

logger = logging.getLogger("millstream.broker")

QUIET_SECONDS = 60.0  # for a broker that was wrongly taken for dead
CONNECT_SECONDS = 5.0
RETRY_SECONDS = 1.0
REFUSALS = 2  # in a row, to survive a listener that is being replaced
REFUSAL_PAUSE = 0.01
UNREACHED_PAUSE = 0.2
# Of a host with several addresses those that cannot be tried from here say nothing about the broker.
NO_WAY = (errno.EADDRNOTAVAIL, errno.ENETUNREACH, errno.EAFNOSUPPORT)


class _Verdict(NamedTuple):
    broker: BrokerUp
    controller_epoch: int
    at: float


class LivenessProbe:
    """Watches the other brokers while this one is the controller, and the controller otherwise."""

    def __init__(self, controller: Controller, listener: str) -> None:
        self._controller = controller
        self._listener = listener
        # By broker id, its epoch and the controller's: a new life and a new role are watched anew.
        self._watched: dict[tuple[int, int, int], asyncio.Task[None]] = {}
        self._verdicts: dict[int, _Verdict] = {}
        self._stopped = False

    async def start(self) -> None:
        await self._controller.listen(self._changed)

    async def stop(self) -> None:
        self._stopped = True
        tasks = list(self._watched.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _changed(self, image: Image, delta: Delta) -> None:
        own = self._controller.broker_id
        leads = image.controller_id == own
        wanted = {
            (broker.broker_id, broker.epoch, image.controller_epoch): broker
            for broker in image.brokers.values()
            if not self._stopped
            and broker.broker_id != own
            and (leads or broker.broker_id == image.controller_id)
        }
        for key in list(self._watched.keys() - wanted.keys()):
            self._watched.pop(key).cancel()
        for key in wanted.keys() - self._watched.keys():
            broker = wanted[key]
            self._watched[key] = asyncio.create_task(
                self._watch(broker, image.controller_epoch, self._quiet_until(broker, image), leads),
                name=f"probe-{broker.broker_id}",
            )

    def _quiet_until(self, broker: BrokerUp, image: Image) -> float:
        """Not 0 if it has shown that it lived when it was last taken for dead."""
        last = self._verdicts.get(broker.broker_id)
        if last is None or last.broker.incarnation != broker.incarnation:
            return 0.0
        claimed = image.controller_id == broker.broker_id and image.controller_epoch > last.controller_epoch
        return last.at + QUIET_SECONDS if claimed or broker.epoch > last.broker.epoch else 0.0

    async def _watch(self, broker: BrokerUp, controller_epoch: int, quiet_until: float, leads: bool) -> None:
        endpoint = broker.endpoint(self._listener)
        if endpoint is None:
            return
        await asyncio.sleep(max(0.0, quiet_until - time.monotonic()))
        await self._until_refused(endpoint.host, endpoint.port, must_be_reached=quiet_until > 0)
        self._verdicts[broker.broker_id] = _Verdict(broker, controller_epoch, time.monotonic())
        if leads:
            await self._declare_lost(broker)
        else:
            await self._depose(broker)

    async def _until_refused(self, host: str, port: int, must_be_reached: bool) -> None:
        refusals = 0
        counts = not must_be_reached
        while refusals < REFUSALS:
            try:
                reader, writer = await _connect(host, port)
            except ConnectionRefusedError:
                refusals += counts
                await asyncio.sleep(REFUSAL_PAUSE if counts else UNREACHED_PAUSE)
                continue
            except (OSError, TimeoutError):
                await asyncio.sleep(RETRY_SECONDS)
                continue
            counts, refusals = True, 0
            try:
                began = time.monotonic()
                await reader.read(1)
            except OSError:
                pass
            finally:
                writer.transport.abort()
            if time.monotonic() - began < RETRY_SECONDS:
                await asyncio.sleep(REFUSAL_PAUSE * 10)  # one that accepts and closes at once, over and over

    async def _declare_lost(self, broker: BrokerUp) -> None:
        logger.warning("broker %d refuses connections: it is taken for dead", broker.broker_id)
        while True:  # until the image shows that this broker is dead, or that somebody else leads
            if self._controller.leading:
                try:
                    await self._controller.submit(BrokerLost(broker.broker_id, broker.epoch))
                    return
                except KafkaError as problem:
                    logger.warning("broker %d was not declared dead: %s", broker.broker_id, problem)
                    await asyncio.sleep(RETRY_SECONDS)
            # The image shows our claim a moment before we lead.
            await asyncio.sleep(REFUSAL_PAUSE)

    async def _depose(self, broker: BrokerUp) -> None:
        logger.warning("broker %d refuses connections: it is no longer the controller", broker.broker_id)
        while True:
            try:
                await self._controller.depose(broker.broker_id, broker.epoch)
                return
            except StoreError as problem:
                logger.warning("broker %d could not be deposed: %s", broker.broker_id, problem)
                await asyncio.sleep(RETRY_SECONDS)


async def _connect(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """ConnectionRefusedError if the host refuses, by every address that can be tried; asyncio's error for
    several addresses would not say so. Otherwise what went wrong, as OSError."""
    refused: OSError | None = None
    unclear: OSError | None = None
    for address in await _addresses(host, port):
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await asyncio.open_connection(address, port)
        except ConnectionRefusedError as error:
            refused = error
        except OSError as error:  # a TimeoutError is one
            if error.errno not in NO_WAY:
                unclear = error
    raise unclear or refused or OSError(f"no address of {host} can be tried")


async def _addresses(host: str, port: int) -> list[str]:
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host)
        return [host]
    async with asyncio.timeout(CONNECT_SECONDS):
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))
