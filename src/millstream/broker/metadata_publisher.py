"""What the broker does when the metadata changes: the parts that depend on it hear of it, in order.

It listens to the controller, so a change is in effect before it is answered. ACLs and quotas come first:
nothing that they forbid may slip through with what follows.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from millstream.broker.telemetry import subscriptions
from millstream.wire.acls import AclBinding

if TYPE_CHECKING:
    from millstream.broker.authorizer import Authorizer
    from millstream.broker.server import Broker
    from millstream.cluster.image import Delta, Image

ACLS_AT_ONCE = 500


class MetadataPublisher:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def publish(self, image: Image, delta: Delta) -> None:
        """An entry of the metadata log was applied: follow it before the change is answered."""
        broker = self._broker
        if broker.authorizer is not None and delta.changed("acls"):
            await self._follow_acls(broker.authorizer, image, delta)
        if delta.changed("quotas"):
            self.follow_quotas(image)
        if delta.changed("tokens"):
            broker.tokens.changed(cast(str, key) for table, key in delta.security if table == "tokens")
        if broker.telemetry is not None and delta.has_configs(subscriptions.SCOPE):
            broker.telemetry.follow(image)
        if delta.broker_configs(broker.node_id):
            broker.dynamic_config.follow(image)
        await broker.partitions.apply(image, delta)
        if delta.brokers and "replicas" in broker.__dict__:
            broker.replicas.brokers_changed()
        broker.groups.metadata_changed(delta)
        if broker.security is not None:
            broker.security.metadata_changed(image, delta)

    async def _follow_acls(self, authorizer: Authorizer, image: Image, delta: Delta) -> None:
        """What connections repeat was allowed by the old rules. Fetches that wait are judged when they
        wake."""
        keys = [cast(AclBinding, key) for table, key in delta.security if table == "acls"]
        for start in range(0, len(keys), ACLS_AT_ONCE):
            if start:
                await asyncio.sleep(0)  # there may be ten thousand, and nobody has been told of them yet
            some = keys[start : start + ACLS_AT_ONCE]
            authorizer.change(
                [key for key in some if key in image.acls], [key for key in some if key not in image.acls]
            )
        for connection in self._broker.admission.open:
            connection.fast_path = None

    def follow_quotas(self, image: Image) -> None:
        broker = self._broker
        broker.quotas.follow(image)
        broker.fetch.quotas = broker.quotas if broker.quotas.active else None
        broker.admission.rates.by_ip = broker.quotas.by_ip
