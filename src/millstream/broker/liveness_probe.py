"""The controller notices at once when the process of another broker is gone.

A session lasts for seconds after its broker was killed. The kernel is faster: it closes the connections of a
dead process and refuses new ones. So the controller keeps an idle connection to every broker; when one ends,
it connects again, and a broker whose listener *refuses* that is declared lost. No answer at all may be the
network's fault and is left to the session, as is a broker that has never been reached: it registers before it
listens.

A broker that was declared lost and lives (a firewall that rejects, say) sees that in the log and registers
again. It is not probed again for a minute, so this cannot become a loop.
"""

import asyncio
import logging
import time

from millstream.cluster.commands import BrokerLost
from millstream.cluster.driver import Controller
from millstream.cluster.image import Delta, Image
from millstream.cluster.metadata_records import BrokerUp
from millstream.wire.errors import KafkaError

logger = logging.getLogger("millstream.broker")

QUIET_SECONDS = 60.0  # between two verdicts on one broker
CONNECT_SECONDS = 5.0
RETRY_SECONDS = 1.0
REFUSALS = 2  # in a row, to survive a listener that is being replaced
REFUSAL_PAUSE = 0.01
START_PAUSE = 0.2


class LivenessProbe:
    """Watches the other brokers while this one is the controller."""

    def __init__(self, controller: Controller, listener: str) -> None:
        self._controller = controller
        self._listener = listener
        self._watched: dict[tuple[int, int], asyncio.Task[None]] = {}  # by broker id and epoch
        self._last_verdict: dict[int, float] = {}
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
        leads = image.controller_id == own and not self._stopped
        wanted = {
            (broker.broker_id, broker.epoch): broker
            for broker in image.brokers.values()
            if leads and broker.broker_id != own
        }
        for key in list(self._watched.keys() - wanted.keys()):
            self._watched.pop(key).cancel()
        for key in wanted.keys() - self._watched.keys():
            self._watched[key] = asyncio.create_task(self._watch(wanted[key]), name=f"probe-{key[0]}")

    async def _watch(self, broker: BrokerUp) -> None:
        endpoint = broker.endpoint(self._listener)
        if endpoint is None:
            return
        quiet_until = self._last_verdict.get(broker.broker_id, -QUIET_SECONDS) + QUIET_SECONDS
        await asyncio.sleep(max(0.0, quiet_until - time.monotonic()))
        refusals = 0
        reached = False
        while refusals < REFUSALS:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
            except ConnectionRefusedError:
                refusals += reached
                await asyncio.sleep(REFUSAL_PAUSE if reached else START_PAUSE)
                continue
            except (OSError, TimeoutError):
                await asyncio.sleep(RETRY_SECONDS)
                continue
            reached, refusals = True, 0
            try:
                began = time.monotonic()
                await reader.read(1)
            except OSError:
                pass
            finally:
                writer.transport.abort()
            if time.monotonic() - began < RETRY_SECONDS:
                await asyncio.sleep(REFUSAL_PAUSE * 10)  # one that accepts and closes at once, over and over
        await self._declare_lost(broker)

    async def _declare_lost(self, broker: BrokerUp) -> None:
        if not self._controller.leading:
            return
        self._last_verdict[broker.broker_id] = time.monotonic()
        logger.warning("broker %d refuses connections: it is taken for dead", broker.broker_id)
        try:
            await self._controller.submit(BrokerLost(broker.broker_id, broker.epoch))
        except KafkaError as problem:
            logger.warning("broker %d was not declared dead: %s", broker.broker_id, problem)
