"""Settings of the broker that change while it runs (KIP-226), and what follows them.

The file and the command line give the static ones, the image the others. When these change, the settings are
put together anew and given to whoever keeps one: the controller's context, limits on connections, throttles,
groups, logs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from millstream.broker.apis.api_versions import SUPPORTED_FEATURES
from millstream.broker.coordinators.groups import group_settings
from millstream.broker.telemetry import subscriptions
from millstream.broker.telemetry.manager import check_subscription
from millstream.cluster.context import Context
from millstream.settings.config_def import BROKER, TOPIC
from millstream.settings.validate import validate_broker_config
from millstream.settings.values import InvalidSetting, Type, host_limits
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.server import Broker
    from millstream.cluster.image import Image

logger = logging.getLogger("millstream.broker")

NO_LIMIT = 2**31 - 1  # of max.connection.creation.rate


class DynamicConfig:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def follow(self, image: Image) -> None:
        broker = self._broker
        broker.settings = broker.static_settings.with_dynamic(
            image.broker_config(), image.broker_config(broker.node_id)
        )
        for problem in broker.settings.problems:
            logger.warning("dynamic setting ignored: %s", problem)
        self._changed()

    def _changed(self) -> None:
        broker, settings = self._broker, self._broker.settings
        broker.groups.settings_changed()
        self.set_admission()
        if broker.security is not None:
            broker.security.settings_changed()
        broker.controller.context = self.decision_context()
        broker.throttles.configure(
            settings.integer("leader.replication.throttled.rate"),
            settings.integer("follower.replication.throttled.rate"),
            settings.integer("replica.alter.log.dirs.io.max.bytes.per.second"),
            time.monotonic(),
        )
        broker.log_dirs.producers_expire_after(settings.integer("producer.id.expiration.ms"))
        if "replicas" in broker.__dict__:
            broker.replicas.settings_changed()
        broker.partitions.reconfigure_all()

    def set_admission(self) -> None:
        broker = self._broker
        settings, admission = broker.settings, broker.admission
        admission.limit = settings.integer("max.connections")
        admission.rates.limit = settings.integer("max.connection.creation.rate")
        if admission.rates.limit >= NO_LIMIT:
            admission.rates.limit = 0
        admission.rates.windows = settings.integer("quota.window.num")
        admission.rates.window_ms = settings.integer("quota.window.size.seconds") * 1000
        admission.per_address = settings.integer("max.connections.per.ip")
        name = "max.connections.per.ip.overrides"
        admission.overrides = host_limits(name, settings.string(name))
        names = {listener.name for listener in broker.listeners.bound}
        prefixed = {listener: f"listener.name.{listener.lower()}.max.connections" for listener in names}
        admission.per_listener = {
            listener: settings.integer(name) for listener, name in prefixed.items() if settings.is_set(name)
        }

    def decision_context(self) -> Context:
        settings = self._broker.settings
        return Context(
            default_partitions=settings.integer("num.partitions"),
            default_replication_factor=settings.integer("default.replication.factor"),
            max_partitions=settings.integer("millstream.max.partitions"),
            min_insync_replicas=settings.integer("min.insync.replicas"),
            unclean_elections=settings.boolean("unclean.leader.election.enable"),
            validate=self._validate,
            list_default=_list_default,
            no_room_for=self._broker.log_dirs.no_room_for,
            supported_features=SUPPORTED_FEATURES,
            first_features={name: highest for name, (_, highest) in SUPPORTED_FEATURES.items()},
        )

    def _validate(self, scope: str, name: str, values: Mapping[str, str]) -> None:
        """Whether these may be the settings of a topic or of a broker, with Kafka's error code for each."""
        broker = self._broker
        try:
            if scope == "topic":
                broker.settings.validate_topic(values)
            elif scope == "group":
                group_settings.validate(broker.settings, values)
            elif scope == subscriptions.SCOPE:
                check_subscription(broker.image, name, values)
            elif not name:
                broker.static_settings.validate_dynamic(values, broker.settings.this_broker)
            elif name == str(broker.node_id):
                broker.static_settings.validate_dynamic(broker.settings.cluster_default, values)
                if broker.security is not None:
                    broker.security.check(
                        broker.static_settings.with_dynamic(broker.settings.cluster_default, values)
                    )
            else:  # only that broker knows its other settings
                for setting, value in values.items():
                    validate_broker_config(setting, value, per_broker=True)
        except InvalidSetting as error:
            code = ErrorCode.invalid_config if scope == "topic" else ErrorCode.invalid_request
            raise KafkaError(code, error.message) from None


def _list_default(scope: str, name: str) -> str | None:
    """The default of a setting that is a list; None for any other."""
    if scope == subscriptions.SCOPE:
        return "" if name in ("metrics", "match") else None
    setting = (TOPIC if scope == "topic" else BROKER).get(name)
    return (setting.default or "") if setting is not None and setting.type is Type.LIST else None
