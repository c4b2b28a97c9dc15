"""Keeps this broker registered: again when its session with the store was lost, or when the log says that it
is dead although it is not. The steps are those of a start, with a new epoch.

A broker that was unregistered while it runs stays away, as in Kafka, until it is started again.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.cluster.store import RETRY_SECONDS, MetadataStore, StoreClosed, Unavailable

if TYPE_CHECKING:
    from millstream.cluster.driver import Controller

log = logging.getLogger(__name__)


class RegistrationKeeper:
    """Of one controller. `keep` runs from the first registration until this broker stays away."""

    def __init__(self, controller: Controller, store: MetadataStore) -> None:
        self._controller = controller
        self._store = store
        self._fenced = asyncio.Event()  # the log says that this broker is down, or gone
        self._forgotten = False  # it says so because somebody wanted it
        self.unregistered = False  # for as long as this process lives

    async def keep(self) -> None:
        controller = self._controller
        while True:
            await self._until_ended()
            if self._forgotten:
                self.unregistered = True
                log.error(
                    "broker %d was unregistered: it leads and stores nothing until it is started again",
                    controller.broker_id,
                )
                controller.resign("the broker was unregistered")
                return
            registration = controller.registration
            assert registration is not None
            if controller.started:
                # The log knows what was lost before this process began. What it wrote since is still there.
                controller.registration = registration = replace(registration, lost_data=False)
            controller.resign("the session with the metadata store was lost")
            broker_id = controller.broker_id
            while True:
                try:
                    controller.broker_epoch = await self._store.register(broker_id, registration.encode())
                    self._fenced.clear()  # the end of the former life is no news
                    self._forgotten = False
                    self.notice_own_end()
                    controller.wake()  # the image may have shown the new life before we knew its epoch
                    break
                except StoreClosed:
                    return
                except Unavailable as problem:
                    log.warning("broker %d cannot register again yet: %s", broker_id, problem)
                    await asyncio.sleep(RETRY_SECONDS)
            log.warning("broker %d registered again, with epoch %d", broker_id, controller.broker_epoch)

    async def _until_ended(self) -> None:
        lost = asyncio.ensure_future(self._store.lost())
        fenced = asyncio.ensure_future(self._fenced.wait())
        try:
            await asyncio.wait((lost, fenced), return_when=asyncio.FIRST_COMPLETED)
        finally:
            lost.cancel()
            fenced.cancel()

    def notice_own_end(self) -> None:
        """After each change of the image: has somebody declared this life of the broker over, although it is
        not? Then it needs a new one."""
        controller = self._controller
        image, broker_id = controller.image, controller.broker_id
        if broker_id not in image.brokers and image.last_epoch(broker_id) == controller.broker_epoch:
            self._forgotten = broker_id in image.brokers_gone
            self._fenced.set()

    async def give_way(self) -> None:
        """Others cannot ask a controller that is no broker of theirs."""
        broker_id, epoch = self._controller.broker_id, self._controller.broker_epoch
        while True:
            try:
                return await self._store.depose(broker_id, epoch)
            except Unavailable as problem:
                log.warning("broker %d cannot give way yet: %s", broker_id, problem)
                await asyncio.sleep(RETRY_SECONDS)
