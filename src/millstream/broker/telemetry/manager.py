"""The broker's telemetry: follows the subscriptions in the metadata, keeps what clients push."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from millstream.broker.telemetry import subscriptions
from millstream.broker.telemetry.instances import Instances
from millstream.broker.telemetry.series import ClientSeries
from millstream.broker.telemetry.subscriptions import Subscription
from millstream.cluster.image import Image
from millstream.settings.resolve import BrokerSettings
from millstream.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger("millstream.telemetry")

LEAST_LIMIT = 1024 * 1024  # decompressed bytes that a push may have in any case
LIMIT_RATIO = 4  # decompressed bytes a push may have, as a multiple of telemetry.max.bytes


def clock_ms() -> float:
    return time.monotonic() * 1000


class Telemetry:
    def __init__(self, max_bytes: int, max_series: int) -> None:
        self.max_bytes = max_bytes
        self.max_decompressed = max(LEAST_LIMIT, LIMIT_RATIO * max_bytes)
        self.instances = Instances(clock_ms)
        self.series = ClientSeries(max_series, clock_ms)

    @classmethod
    def wanted(cls, settings: BrokerSettings) -> Telemetry | None:
        """Clients are asked for metrics where there is a page to show them on."""
        max_series = settings.integer("millstream.client.metrics.max.series")
        if not max_series or not settings.string("millstream.metrics.listener"):
            return None
        return cls(settings.integer("telemetry.max.bytes"), max_series)

    def follow(self, image: Image) -> None:
        found: dict[str, Subscription] = {}
        for name, values in resources(image).items():
            try:
                found[name] = subscriptions.parse(values)
            except KafkaError as error:  # of another release
                logger.warning("subscription %s to client metrics is ignored: %s", name, error.message)
        self.instances.subscribe(found)

    def forget(self) -> None:
        self.instances.forget()
        self.series.forget()


def resources(image: Image) -> dict[str, Mapping[str, str]]:
    """Subscriptions by name; one whose settings were all removed is none."""
    return {
        name: values
        for (scope, name), values in image.configs.items()
        if scope == subscriptions.SCOPE and values
    }


def check_subscription(image: Image, name: str, values: Mapping[str, str]) -> None:
    """KafkaError if these may not be its settings, or it is one too many."""
    subscriptions.parse(values)
    known = resources(image)
    if values and name not in known and len(known) >= subscriptions.MAX_SUBSCRIPTIONS:
        raise KafkaError(
            ErrorCode.policy_violation,
            f"There are {len(known)} subscriptions to client metrics, as many as there may be.",
        )
