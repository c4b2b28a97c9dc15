"""Controlled shutdown: before a broker of several stops, others lead what it led.

The registration turns `draining`; the controller then moves every leadership that somebody else can take and
puts the broker on no new one. The broker stops when the image shows that, or after half a minute.
"""

import asyncio
import logging

from millstream.cluster.driver import Controller
from millstream.cluster.image import Image
from millstream.cluster.registration import Registration
from millstream.cluster.store import StoreError

logger = logging.getLogger("millstream.broker")

PATIENCE = 30.0


def still_to_hand_over(image: Image, broker_id: int) -> int:
    """How many partitions this broker leads although another in-sync replica could."""
    active = image.active_brokers() - {broker_id}
    return sum(
        1
        for partition in image.partitions_of(broker_id)
        if partition.leader == broker_id and any(replica in active for replica in partition.isr)
    )


async def drain(controller: Controller, registration: Registration, patience: float = PATIENCE) -> None:
    image, broker_id = controller.image, controller.broker_id
    if not image.active_brokers() - {broker_id}:
        return  # nobody to hand anything to
    try:
        async with asyncio.timeout(patience):
            await controller.update(registration)
            while not _is_drained(image, broker_id):
                await controller.waits_for(image.version + 1)
        logger.info("other brokers lead what this one led")
    except TimeoutError:
        logger.warning(
            "stopping although %d partitions could not be handed over within %g s",
            still_to_hand_over(image, broker_id),
            patience,
        )
    except StoreError as problem:
        logger.warning("stopping without handing anything over: %s", problem)


def _is_drained(image: Image, broker_id: int) -> bool:
    own = image.brokers.get(broker_id)
    return own is None or (own.draining and not still_to_hand_over(image, broker_id))
